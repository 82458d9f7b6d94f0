from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from shipped_policies import FEW, by_release

from privtab import pipeline
from privtab.backends.rego import render
from privtab.ir import passes
from privtab.pipeline import policy_artifacts

HERE = Path(__file__).parent
LIBRARY = HERE / "library.yaml"


def in_both_layouts() -> Iterator[Any]:
    """Policies, each for a whole state and for one in shards: the library and a few at once."""
    for sharded, of_layout in ((False, by_release(quick=FEW)), (True, by_release(full=FEW))):
        suffix = "-sharded" if sharded else ""
        yield pytest.param((LIBRARY, sharded), id=f"library{suffix}")
        for each in of_layout:
            yield pytest.param((each.values[0], sharded), id=f"{each.id}{suffix}", marks=each.marks)


def test_a_small_policy_compiles_to_this(golden: Callable[[Path, str], None]) -> None:
    modules = render(passes.run(pipeline.load_program(HERE / "library.yaml")))
    for path, text in modules.items():
        golden(HERE / "golden" / path.removeprefix("privtab/library/"), text)
    written = {p.relative_to(HERE / "golden").as_posix() for p in (HERE / "golden").rglob("*.rego")}
    assert written == {path.removeprefix("privtab/library/") for path in modules}


def test_for_a_state_in_shards_it_compiles_to_this(golden: Callable[[Path, str], None]) -> None:
    program = passes.run(pipeline.load_program(HERE / "library.yaml"))
    whole, modules = render(program), render(program, sharded=True)
    different = {path: text for path, text in modules.items() if text != whole[path]}
    for path, text in different.items():
        golden(HERE / "golden_sharded" / path.removeprefix("privtab/library/"), text)
    written = {p.relative_to(HERE / "golden_sharded").as_posix() for p in (HERE / "golden_sharded").rglob("*.rego")}
    assert written == {path.removeprefix("privtab/library/") for path in different}
    assert modules.keys() == whole.keys()


@pytest.fixture(
    scope="module",
    params=in_both_layouts(),
)
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of a policy's bundle, for a whole state and for one in shards."""
    path, sharded = request.param
    folder = tmp_path_factory.mktemp("compiled")
    for name, content in policy_artifacts(pipeline.load_program(path), sharded=sharded).files().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def run(*command: str | Path) -> str:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_output_passes_the_strict_check(compiled: Path, opa_binary: Path) -> None:
    run(opa_binary, "check", "--strict", "--bundle", compiled)


def test_output_is_formatted(compiled: Path, opa_binary: Path) -> None:
    assert run(opa_binary, "fmt", "--list", compiled / "privtab") == ""


def test_a_package_is_one_module(compiled: Path) -> None:
    # For each module of a package, OPA copies the names of all of its rules.
    texts = [path.read_text(encoding="utf-8") for path in compiled.rglob("*.rego")]
    packages = [re.findall(r"(?m)^package (\S+)$", text) for text in texts]
    assert all(len(named) == 1 for named in packages)
    assert len({named[0] for named in packages}) == len(texts)


def test_each_row_has_one_annotated_rule(compiled: Path, opa_binary: Path) -> None:
    found = json.loads(run(opa_binary, "inspect", "--annotations", "--format", "json", compiled))
    ids = [
        entry["annotations"]["custom"]["id"]
        for entry in found["annotations"]
        if "id" in entry["annotations"].get("custom", {})
    ]
    data = json.loads(next((compiled / "privtab_program").glob("*/data.json")).read_text())
    rows = [rule["id"] for rules in data["rules"].values() for rule in rules.values()]
    assert sorted(ids) == sorted(rows)


def test_an_entity_type_may_be_called_as_a_module_is(tmp_path: Path, opa_binary: Path) -> None:
    text = """
privtab: 1
system: odd
version: "1"
entities: {policy: {lib: {explain:}, is:, json:}}
privileges: [READ]
tables:
  policy: {load: READ (policy)}
  lib: {load: can load (policy)}
  explain: {load: can load (lib)}
  is: {string: can load (policy), can: can string (is)}
  json: {patch: READ (json), use_patch: can patch (json)}
"""
    (tmp_path / "odd.yaml").write_text(text)
    for name, content in policy_artifacts(pipeline.load_program(tmp_path / "odd.yaml")).files().items():
        path = tmp_path / "out" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    run(opa_binary, "check", "--strict", "--bundle", tmp_path / "out")
    assert {path.parent.name for path in (tmp_path / "out").rglob("*.rego")} == {"odd", "lib", "explain"}
