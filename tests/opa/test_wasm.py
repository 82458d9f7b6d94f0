from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from privtab.base.errors import OpaError
from privtab.engines.opa.binary import build_wasm
from privtab.pipeline import load_program, policy_artifacts, wasm_modules

MODULE = "package p\n\nallow if input.x == 1\n"


def test_the_same_modules_give_the_same_bytes(opa_binary: Path) -> None:
    built = [build_wasm({"p.rego": MODULE}, ["p/allow"], opa_binary) for _ in range(2)]
    assert built[0] == built[1]
    assert built[0].startswith(b"\0asm")


@pytest.mark.parametrize(
    ("modules", "entrypoint", "message"),
    [
        ({"p.rego": "package p\n\nallow if"}, "p/allow", "p.rego:3"),
        ({"p.rego": MODULE}, "p/other", "p/other"),
    ],
)
def test_the_message_of_opa_is_in_the_error(
    modules: dict[str, str], entrypoint: str, message: str, opa_binary: Path
) -> None:
    with pytest.raises(OpaError, match=message):
        build_wasm(modules, [entrypoint], opa_binary)


def test_an_opa_that_does_not_run(tmp_path: Path) -> None:
    with pytest.raises(OpaError, match="did not end well"):
        build_wasm({"p.rego": MODULE}, ["p/allow"], tmp_path / "none")


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["cdap/final", "gravitino/1.1.0", "streams/teracloud"])
def test_the_modules_for_wasm_are_strict_and_in_opas_own_layout(policy: str, tmp_path: Path, opa_binary: Path) -> None:
    program = load_program(policy)
    modules = wasm_modules(program)
    assert set(modules) == set(policy_artifacts(program).modules)
    for path, text in modules.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    for command in (["check", "--strict"], ["fmt", "--fail", "--list"]):
        done = subprocess.run([opa_binary, *command, str(tmp_path)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
