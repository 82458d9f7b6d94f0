"""Examples of `--help` run from the wheel in an empty folder: those that need nothing of the reader's own."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from privtab.command._app import command

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("packaging")]

OF_THE_READER = re.compile(
    r"\b(?:my|mine|old|new|lake|studio|shop|drive|warehouse|narrower|state|sources|final\.more)\.\w+|\b(?:https?|registry|store|import|s3|postgresql\S*):|"
    r"\.(?:pem|jsonl|tar\.gz|html|db|log)\b|HEAD|[a-z]+/(?= |$)|/srv/|app:app|openapi|docs/|grants\.db|/shared/|…"
)
"""Things of a reader: files, folders, servers, repositories, keys."""
FOREVER = ("lsp", "explore", "serve", "opa run", "opa install", "opa path")
"""They run until they are ended, or build an OPA."""
RUN = {
    "compile",
    "describe",
    "diff",
    "docs",
    "explain",
    "filter",
    "lint",
    "schema",
    "state diff",
    "state lint",
    "state validate",
    "test",
    "what-can",
    "who-can",
}
"""The commands of which an example runs so."""


def commands(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name, found in group.commands.items():
        if hasattr(found, "commands"):
            yield from commands(found, (*words, name))
        else:
            yield " ".join((*words, name)), found


def examples() -> list[tuple[str, str]]:
    """Each example by its command, in one line."""
    found = []
    for name, one in commands(command()):
        text = re.sub(r"\\\n\s*", " ", (one.help or "").partition("Example:")[2].replace("[dim][/dim]", ""))
        found += [(name, line.strip()) for line in text.splitlines() if line.strip().startswith("privtab ")]
    return found


ANOTHER = re.compile(r"--check|--wasm|--engine|^privtab diff \S+$")
"""An earlier output, an OPA, or a repository with the policy is needed."""


def shipped(name: str, line: str) -> bool:
    inputs = re.sub(r" -o \S+", "", line)
    needs = OF_THE_READER.search(inputs) or ANOTHER.search(inputs) or name.startswith(FOREVER)
    return not needs and re.search(r" [a-z]+/[\w.]+|sample:|--of|--explain", inputs) is not None


SHIPPED = [(name, line) for name, line in examples() if shipped(name, line)]


def test_each_of_these_commands_has_an_example_that_needs_nothing() -> None:
    assert {name for name, _ in SHIPPED} == RUN


@pytest.mark.parametrize("line", [line for _, line in SHIPPED])
def test_the_example_runs_from_the_wheel(line: str, environment: Callable[..., Any], tmp_path: Path) -> None:
    env = environment("compiler")
    ran = env.run(env.command, *shlex.split(line)[1:], cwd=tmp_path)
    assert ran.returncode in ((0, 1) if "--fail-on" in line or " lint " in line else (0,)), ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr
    assert "pip install" not in ran.stderr


@pytest.mark.parametrize(
    "line",
    [
        "state pack sample:gravitino --policy gravitino/1.1.0",
        "store load grants.db sample:gravitino --policy gravitino/1.1.0",
        "state push postgresql postgresql+psycopg://a@localhost/b -p postgresql/15 -s sample:gravitino",
        "deploy gravitino/1.1.0 --state sample:gravitino --skip-tests because -r registry/ -c dev --dry-run",
        "serve -p gravitino/1.1.0 -s sample:gravitino --port 0",
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
