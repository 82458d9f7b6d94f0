"""The hand-written Rego library passes its own tests, with a compiled policy around it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from privtab import _resources, pipeline
from privtab.pipeline import policy_artifacts

LIBRARY = _resources.opa() / "lib"


def test_opa_test_passes(tmp_path: Path, opa_binary: Path) -> None:
    program = pipeline.load_program(Path(__file__).parent / "library.yaml")
    for name, content in policy_artifacts(program, "example_system").files().items():
        path = tmp_path / name
        if path.name not in {"explain.rego", ".manifest"}:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    done = subprocess.run(
        [opa_binary, "test", tmp_path, LIBRARY, "--verbose"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": PASS") >= 9


def test_library_is_formatted(opa_binary: Path) -> None:
    done = subprocess.run([opa_binary, "fmt", "--list", LIBRARY], capture_output=True, text=True, check=True)
    assert done.stdout == ""
