"""The origin of a bundle, recorded in its manifest, where it changes neither decisions nor the revision."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from privtab import __version__
from privtab.base.errors import FileError
from privtab.base.files import ENDINGS, ending_of, state_location
from privtab.bundle.archive import archive_digest

GIT_SECONDS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """The input of a bundle and the compiler. No times and no paths of a machine: the same input gives the same provenance.

    For example:

        Provenance.of(Path("lake.yaml")).to_json()
    """

    sources: Mapping[str, str] = field(default_factory=dict)
    """The SHA-256 of each file by its name, which is relative to the folder."""
    commit: str | None = None
    """The commit that changed the sources last; None outside a repository."""
    dirty: bool = False
    """True if a source differs from the commit."""
    choices: Mapping[str, Any] = field(default_factory=dict)
    """Further choices: the variant, readings, the policy that a state was checked against."""

    @classmethod
    def of(cls, path: Path, **choices: Any) -> Provenance:
        """The provenance of a file or a folder; empty `choices` are omitted. Raises FileError.

        A state from a registry, a store or another system has no source: its address may hold a password.

            Provenance.of(Path("lake.yaml"), policy="lake/1")
        """
        if str(path).startswith(("registry:", "store:", "import:")):
            return cls(sources={}, choices=choices)
        path, _ = state_location(path)
        folder, files = path.parent, [path]
        if path.is_dir():
            tables = (file for file in path.rglob("*") if ending_of(file.name)[1] in ENDINGS and file.is_file())
            folder, files = path, sorted(tables)
        try:
            sources = {file.relative_to(folder).as_posix(): _digest(file) for file in files}
        except OSError as error:
            raise FileError(f"cannot read {error.filename}: {error.strerror}") from error
        commit = _git(folder, "log", "-1", "--format=%H", "--", *sources) if sources else None
        changed = _git(folder, "status", "--porcelain", "--", *sources) if commit else None
        return cls(sources=sources, commit=commit or None, dirty=bool(changed), choices=choices)

    def to_json(self) -> dict[str, Any]:
        """As JSON, for the manifest's metadata."""
        git = {"git": {"commit": self.commit, "dirty": self.dirty}} if self.commit is not None else {}
        return {"compiler": f"privtab {__version__}", "sources": dict(sorted(self.sources.items())), **git} | {
            name: value for name, value in sorted(self.choices.items()) if value
        }


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return archive_digest(file)


def _git(folder: Path, *arguments: str) -> str | None:
    """The output of git, or None if it fails: no git, no repository, or a folder that it does not trust."""
    command = ["git", "-C", str(folder), "--no-optional-locks", "-c", "core.fsmonitor=false", *arguments]
    environment = {name: value for name, value in os.environ.items() if name not in ("GIT_DIR", "GIT_WORK_TREE")}
    try:
        result = subprocess.run(command, capture_output=True, check=False, timeout=GIT_SECONDS, env=environment)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.decode("utf-8", "replace").strip() if result.returncode == 0 else None
