"""Virtual environments that hold the wheel and nothing of the one that runs the tests."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Environment:
    """A virtual environment without anything of this one."""

    path: Path
    needs: frozenset[str]
    """The packages beside privtab that its extras ask for."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that its commands have beside those of this process, of which those of Python and privtab are left out."""

    @property
    def python(self) -> Path:
        return self.path / "bin" / "python"

    @property
    def command(self) -> Path:
        return self.path / "bin" / "privtab"

    @property
    def all_variables(self) -> dict[str, str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PRIVTAB", "COV"))}
        return clean | dict(self.variables)

    def run(
        self, *command: str | Path, cwd: Path, given: str = "", seconds: int = 300
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(part) for part in command],
            cwd=cwd,
            env=self.all_variables,
            input=given,
            check=False,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
