"""Examples of `--help` run from the wheel: in an empty folder, or beside things that a reader has if the examples name such things."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from reader_folder import examples, run, runs_here

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("packaging")]

OF_THE_READER = re.compile(
    r"\.(?:pem|jsonl|db|tar\.gz|yaml|json|log|md|fga|cedar\w*|csv|html)\b|[a-z]/(?= |$)|registry:|HEAD|shop_app|"
    r"^privtab (?:lint|fmt|test|compile)(?: -|$)"
)
"""Things in a folder; other examples run in an empty one."""
NEW = re.compile(r"^privtab registry init")
"""Examples that make what the folder has."""


def needs_things(line: str) -> bool:
    return not NEW.match(line) and OF_THE_READER.search(re.sub(r" -o \S+", "", line)) is not None


HERE = sorted({(name, line) for name, line in examples() if runs_here(name, line)})
DEMAND = re.compile(r"--fail-on|HEAD|--against|--all|--check|--min-|--probe|routes | lint |diff .*-s|unused|replay")
"""These exit with 1 where they find what they are asked for."""


@pytest.fixture(scope="module")
def answers(
    environment: Callable[..., Any], home: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[int, str]]:
    """The exit code and the output of each example, from two processes: starting one for each would take most of the time."""
    found: dict[str, tuple[int, str]] = {}
    for folder, needing in ((tmp_path_factory.mktemp("empty"), False), (home, True)):
        lines = [line for _, line in HERE if needs_things(line) is needing]
        found |= zip(lines, run(environment("compiler"), folder, lines, apart=True), strict=True)
    return found


@pytest.mark.parametrize("group", sorted({name.split()[0] for name, _ in HERE}))
def test_the_examples_run_from_the_wheel(group: str, answers: dict[str, tuple[int, str]]) -> None:
    for line in [line for name, line in HERE if name.split()[0] == group]:
        code, output = answers[line]
        assert code in ((0, 1) if DEMAND.search(line) else (0,)), f"{line}\n{output}"
        assert "Traceback" not in output
        assert "pip install" not in output


@pytest.mark.parametrize(
    "line",
    [
        "state pack sample:gravitino --policy gravitino/1.1.0",
        "store create grants.db --state sample:gravitino --policy gravitino/1.1.0",
        "state push postgresql postgresql+psycopg://a@localhost/b -p postgresql/15 -s sample:gravitino",
        "deploy gravitino/1.1.0 --state sample:gravitino --accept untested=because -r registry/ -c dev --dry-run",
        "serve -p gravitino/1.1.0 -s sample:gravitino --listen 0",
        "compile gravitino/1.1.0 --state sample:gravitino -o out",
    ],
)
def test_what_deploys_or_keeps_rows_takes_no_sample(
    line: str, privtab: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = privtab(*shlex.split(line))
    assert ran.code == 2
    assert "sample:gravitino is for trying things out" in ran.err
    assert [path for path in tmp_path.rglob("*") if path.suffix in (".gz", ".db")] == []


@pytest.mark.parametrize(
    ("name", "said"), [("gravitno", "did you mean `sample:gravitino`?"), ("zzz", "there are `sample:cdap/all`")]
)
def test_a_sample_that_there_is_not_is_named(name: str, said: str, privtab: Callable[..., Any]) -> None:
    ran = privtab("what-can", "ann", "-p", "gravitino/1.1.0", "-s", f"sample:{name}")
    assert ran.code == 2
    assert said in " ".join(ran.err.split())


def test_a_sample_answers_as_its_file_does(privtab: Callable[..., Any]) -> None:
    from privtab.base.resources import policies

    asked = ("explain", "alice", "load", "table:demo/hive/sales/orders", "-p", "gravitino/1.1.0", "--format", "json")
    named = privtab(*asked, "-s", "sample:gravitino")
    assert named.code == 0
    assert named.out == privtab(*asked, "-s", policies() / "gravitino" / "state.yaml").out
