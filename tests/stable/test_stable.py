"""The stable part of 0.x: documents that an earlier version wrote are read, and mean the same.

Each folder beside this file is of one version, as that version read and wrote it: a policy, a state, bundles of both, requests with
their decisions, and the JSON of commands. Nothing in it is ever written again.
"""

from __future__ import annotations

import io
import json
import shlex
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from privtab import Embedded, Request
from privtab.base import BrokenBundle, DecisionUnavailable, FileError
from privtab.bundle.archive import contents
from privtab.bundle.contents import program_in
from privtab.command._output import JSON_FORMAT
from privtab.ir.serialise import FORMAT, FORMAT_NEWER

VERSIONS = sorted(path for path in Path(__file__).parent.iterdir() if (path / "lake.yaml").is_file())
COMMANDS = [
    pytest.param(version, name, id=f"{version.name}-{name}")
    for version in VERSIONS
    for name in json.loads((version / "commands.json").read_text(encoding="utf-8"))
]


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def missing(old: Any, new: Any, where: str = "") -> Iterator[str]:
    """Parts of the older JSON that its readers would miss in the newer: a key, or a value of its type."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key, value in old.items():
            if key in new:
                yield from missing(value, new[key], f"{where}.{key}")
            else:
                yield f"{where}.{key} is gone"
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            yield f"{where} has {len(new)} instead of {len(old)}"
        for number, (one, other) in enumerate(zip(old, new, strict=False)):
            yield from missing(one, other, f"{where}[{number}]")
    elif old is not None and type(old) is not type(new):
        yield f"{where} is {new!r}, not {old!r}"


def test_there_is_a_version_to_read() -> None:
    assert VERSIONS


@pytest.mark.parametrize("version", VERSIONS, ids=lambda path: path.name)
@pytest.mark.parametrize("form", ["tables", "bundles"])
def test_an_older_policy_and_state_decide_as_they_did(
    version: Path, form: str, privtab: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(version)
    policy, state = ("lake.yaml", "state.yaml") if form == "tables" else ("policy.tar.gz", "state.tar.gz")
    answered = privtab("decide", "-p", policy, "-s", state, "-r", "asked.jsonl")
    assert answered.code == 0, answered.err
    new, old = lines(answered.out), lines((version / "answers.jsonl").read_text(encoding="utf-8"))
    assert [one["decision"] for one in new] == [one["decision"] for one in old]
    assert {one["decision"] for one in old} == {True, False}
    assert list(missing(old, new)) == []


@pytest.mark.parametrize("version", VERSIONS, ids=lambda path: path.name)
def test_a_process_decides_by_older_bundles(version: Path) -> None:
    asked = lines((version / "asked.jsonl").read_text(encoding="utf-8"))
    old = lines((version / "answers.jsonl").read_text(encoding="utf-8"))
    with Embedded(version / "policy.tar.gz", version / "state.tar.gz") as client:
        answers = [client.check(Request.from_json(request)) for request in asked]
    assert answers == [one["decision"] for one in old]


@pytest.mark.parametrize(("version", "name"), COMMANDS)
def test_the_json_of_a_command_has_all_that_it_had(
    version: Path, name: str, privtab: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(version)
    words = json.loads((version / "commands.json").read_text(encoding="utf-8"))[name]
    ran = privtab(*words)
    assert ran.code == 0, ran.err
    old, new = json.loads((version / "json" / f"{name}.json").read_text(encoding="utf-8")), json.loads(ran.out)
    assert list(missing(old, new)) == [], shlex.join(words)
    assert isinstance(new, list) or new["format"] == JSON_FORMAT == 1


def test_what_readers_would_miss_is_found() -> None:
    old = {"a": [{"b": 1, "c": None}], "d": "x"}
    assert list(missing(old, {"a": [{"b": 2, "c": "new", "more": 1}], "d": "y"})) == []
    assert list(missing(old, {"a": [{"c": None}], "d": "x"})) == [".a[0].b is gone"]
    assert list(missing(old, {"a": [{"b": "1", "c": None}], "d": "x"})) == [".a[0].b is '1', not 1"]
    assert list(missing(old, {"a": [], "d": "x"})) == [".a has 0 instead of 1"]


# --- newer ones ---


def rewritten(bundle: Path, file: str, change: Callable[[dict[str, Any]], None]) -> bytes:
    """A bundle in which one JSON file is another."""
    out = io.BytesIO()
    with tarfile.open(bundle) as old, tarfile.open(fileobj=out, mode="w:gz") as new:
        for entry in old.getmembers():
            read = old.extractfile(entry)
            content = b"" if read is None else read.read()
            if entry.name.lstrip("/") == file:
                document = json.loads(content)
                change(document)
                content = json.dumps(document).encode()
                entry.size = len(content)
            new.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def test_a_newer_language_is_refused_by_its_number(privtab: Callable[..., Any], tmp_path: Path) -> None:
    text = (VERSIONS[-1] / "lake.yaml").read_text(encoding="utf-8")
    (tmp_path / "lake.yaml").write_text(text.replace("privtab: 1", "privtab: 2"), encoding="utf-8")
    ran = privtab("lint", tmp_path / "lake.yaml")
    assert ran.code == 1
    assert "unknown format 2" in ran.out


@pytest.mark.parametrize("name", ["policy", "state"])
def test_a_bundle_of_a_newer_format_is_refused(name: str, tmp_path: Path) -> None:
    bundle = VERSIONS[-1] / f"{name}.tar.gz"
    same = contents(rewritten(bundle, ".manifest", lambda manifest: manifest["metadata"].update(format=1)))
    assert same.data == contents(bundle.read_bytes()).data
    newer = rewritten(bundle, ".manifest", lambda manifest: manifest["metadata"].update(format=2))
    with pytest.raises(BrokenBundle, match="the bundle is of format 2, which a newer privtab reads"):
        contents(newer)
    (tmp_path / "newer.tar.gz").write_bytes(newer)
    files = [VERSIONS[-1] / "policy.tar.gz", VERSIONS[-1] / "state.tar.gz"]
    files[name == "state"] = tmp_path / "newer.tar.gz"
    with pytest.raises(DecisionUnavailable, match="format 2"):
        Embedded(*files)


def test_a_program_of_a_newer_format_is_refused() -> None:
    bundle = VERSIONS[-1] / "policy.tar.gz"
    newer = rewritten(bundle, "privtab_program/lake/data.json", lambda program: program.update(format=FORMAT_NEWER + 1))
    with pytest.raises(FileError, match=f"not a program of format {FORMAT} or {FORMAT_NEWER}"):
        program_in(newer, "newer.tar.gz")
