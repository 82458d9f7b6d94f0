"""The Rego that explains decisions passes its unit tests, with a compiled policy around it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from privtab import pipeline
from privtab.pipeline import policy_artifacts

TESTS = Path(__file__).parent / "explanation"


def test_opa_test_passes(tmp_path: Path, opa_binary: Path) -> None:
    program = pipeline.load_program(Path(__file__).parent / "library.yaml")
    for name, content in policy_artifacts(program).files().items():
        path = tmp_path / name
        if path.name != ".manifest":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    done = subprocess.run(
        [opa_binary, "test", tmp_path, TESTS, "--verbose"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": PASS") >= 9


def test_unit_tests_are_formatted(opa_binary: Path) -> None:
    done = subprocess.run([opa_binary, "fmt", "--list", TESTS], capture_output=True, text=True, check=True)
    assert done.stdout == ""
