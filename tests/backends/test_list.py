"""Back ends are found by one list: adding one means a module, its name in the list, and its test."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

import pytest
from installed import install

import privtab
from privtab import backends
from privtab.backends import BACKENDS, backend, protocol
from privtab.base.errors import UnsupportedError
from privtab.command._app import run
from privtab.pipeline import backend_files, load_program, policy_artifacts

POLICY = "cdap/final"
TOY = """\
from privtab.base.errors import UnsupportedError


def files(policy):
    if policy.name == "refused":
        raise UnsupportedError("rows of this policy", next(iter(policy.program.rules.values())).span)
    return {"rows/names.txt": "".join(rule.id + "\\n" for rule in policy.optimised.rules.values())}
"""


@pytest.mark.parametrize("name", BACKENDS)
def test_every_back_end_writes_the_same_text_for_the_same_policy(name: str) -> None:
    program = load_program(POLICY)
    artifacts = policy_artifacts(program)
    files = backend_files(program, name, artifacts)
    assert files
    assert all(text.endswith("\n") and not Path(path).is_absolute() for path, text in files.items())
    assert files == backend_files(load_program(POLICY), name, artifacts)


def test_the_files_are_those_that_bundles_and_commands_write(capsys: pytest.CaptureFixture[str]) -> None:
    program = load_program(POLICY)
    artifacts = policy_artifacts(program)
    assert backend_files(program, "rego", artifacts) == artifacts.modules
    assert run(["describe", POLICY, "--format", "json"]) == 0
    described = json.loads(backend_files(program, "describe", artifacts)["policy.json"])
    assert {"format": 1, **described} == json.loads(capsys.readouterr().out)


def test_no_other_list_names_back_ends() -> None:
    tree = ast.parse((Path(privtab.__file__).parent / "command" / "compile.py").read_text(encoding="utf-8"))
    named = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)} & {"describe"}
    assert not named


def test_compile_writes_the_output_of_the_chosen_back_ends(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run(["compile", POLICY, "-o", str(out), "--also", "describe"]) == 0
    assert json.loads((out / POLICY / "describe" / "policy.json").read_text(encoding="utf-8"))["system"] == "cdap"
    assert run(["compile", POLICY, "-o", str(out)]) == 0
    assert not (out / POLICY / "describe").exists(), "a folder that was not asked for again goes"


def test_a_module_in_the_folder_and_its_name_in_the_list_are_a_back_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "toy.py").write_text(TOY, encoding="utf-8")
    monkeypatch.setattr(backends, "__path__", [*backends.__path__, str(tmp_path)])
    monkeypatch.setattr(protocol, "BACKENDS", (*BACKENDS, "toy"))
    program = load_program(POLICY)
    files = backend_files(program, "toy", policy_artifacts(program))
    assert files["rows/names.txt"].splitlines() == [rule.id for rule in program.rules.values()]
    with pytest.raises(UnsupportedError):
        backend("toy").files(backends.Compilation(program=program, optimised=program, name="refused"))
    del sys.modules["privtab.backends.toy"]


def test_an_entry_point_is_a_back_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, "[privtab.backends]\ntoy = toy_plugin\n", TOY)
    out = tmp_path / "out"
    assert "toy" in backends.backend_names()
    assert run(["compile", POLICY, "-o", str(out), "--also", "toy"]) == 0
    rules = [rule.id for rule in load_program(POLICY).rules.values()]
    assert (out / POLICY / "toy" / "rows" / "names.txt").read_text(encoding="utf-8").splitlines() == rules


def test_a_back_end_that_nothing_has_stops_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compile", POLICY, "-o", str(tmp_path / "out"), "--also", "descripe"]) == 2
    assert "did you mean `describe`?" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()
