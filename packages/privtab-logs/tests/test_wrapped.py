"""Entries inside what other tools put around them are read as they are; what holds no entry is named, and makes an answer incomplete."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from decision_logs import LINES, OBJECTS, REQUEST, docker, docker_in_parts, entry, hits, runtime_in_parts

from privtab_logs import reading
from privtab_logs.schema import UNREAD, Reading


def read(tmp_path: Path, *lines: str) -> tuple[list[tuple[Any, ...]], Reading]:
    (tmp_path / "log").write_text("\n".join(lines) + "\n")
    account = Reading()
    rows = reading.read(tmp_path / "log", reading=account).to_pylist()
    return [(row["user"], row["resource"], row["allowed"], row["problem"]) for row in rows], account


ROW = ("ann", "item:s/a/x", True, None)


@pytest.mark.parametrize("form", OBJECTS)
def test_an_entry_in_an_object(form: str, tmp_path: Path) -> None:
    record = json.dumps(OBJECTS[form](entry()))
    rows, account = read(tmp_path, json.dumps(entry()), record, record, json.dumps(entry()))
    assert rows == [ROW] * 4
    assert account.damaged == 0, account.places


@pytest.mark.parametrize("form", LINES)
def test_an_entry_in_lines(form: str, tmp_path: Path) -> None:
    lines = LINES[form](json.dumps(entry()))
    rows, account = read(tmp_path, json.dumps(entry()), lines, lines, json.dumps([entry(), entry()]))
    assert rows == [ROW] * 5
    assert account.damaged == 0, account.places


@pytest.mark.parametrize("parts", [docker_in_parts, runtime_in_parts])
def test_a_line_in_parts_of_any_length(parts: Any, tmp_path: Path) -> None:
    text = json.dumps(entry())
    for size in range(1, len(text), 7):
        rows, account = read(tmp_path, parts(text, size), parts(text, size))
        assert rows == [ROW] * 2, size
        assert account.damaged == 0, (size, account.places)


def test_lines_in_parts_of_two_senders_do_not_mix(tmp_path: Path) -> None:
    one = docker_in_parts(json.dumps(entry())).splitlines()
    other = [line.replace('"stderr"', '"stdout"') for line in docker_in_parts(json.dumps(entry(False))).splitlines()]
    rows, account = read(tmp_path, *(line for pair in zip(one, other, strict=True) for line in pair))
    assert sorted(row[2] for row in rows) == [False, True]
    assert account.damaged == 0, account.places


def test_what_a_decision_point_prints_beside_its_decisions_is_of_no_consequence(tmp_path: Path) -> None:
    asked = {"client_addr": "127.0.0.1:50", "level": "info", "msg": "Received request.", "req_id": 1, "time": "x"}
    rows, account = read(tmp_path, json.dumps(asked), docker(json.dumps(asked)), f"opa-1 | {json.dumps(asked)}")
    assert rows == []
    assert account.other == {"log line": 3}
    assert account.damaged == 0


@pytest.mark.parametrize(
    "line",
    [
        "panic: no memory",
        "level=info msg=\"Decision Log\" decision_id=7",
        json.dumps({"user": "ann", "decision": "allow"}),
        json.dumps({"level": "info", "msg": "allowed", "input": REQUEST}),
        json.dumps({"level": "info", "msg": "Decision Log", "type": "openpolicyagent.org/decision_logs"}),
        json.dumps({"log": "no JSON\n", "stream": "stdout", "time": "x"}),
        json.dumps({"log": json.dumps(entry())[:-40] + "\n", "stream": "stdout", "time": "x"}),
        json.dumps({"log": json.dumps(entry())[:-40], "stream": "stdout", "time": "x"}),
        json.dumps({"log": entry(), "message": entry(False)}),
        json.dumps({"quoted": entry()}),
        json.dumps(hits()),
        json.dumps(hits(entry(), {"a": 1})),
        f"opa-1  | {json.dumps(entry())[:-3]}",
        f"opa-1  | {json.dumps(entry())} and more",
        f"2026-01-02T03:04:05Z stdout P {json.dumps(entry())[:-3]}",
        json.dumps({"decision_id": "d", "path": 7, "input": REQUEST, "result": True}),
    ],
)  # fmt: skip
def test_what_holds_no_entry_is_named_and_nothing_else_is_lost(line: str, tmp_path: Path) -> None:
    rows, account = read(tmp_path, json.dumps(entry()), line, f"opa-1  | {json.dumps(entry())}", json.dumps(entry()))
    assert [row for row in rows if row == ROW][:3] == [ROW] * 3
    assert account.damaged == 1, account.places
    assert account.gaps({}) == [f"1 entry or rest of a file cannot be read, such as {account.places[0]}"]
    assert ":2: " in account.places[0]


@pytest.mark.parametrize(
    "more",
    [
        {"timed_out": True},
        {"_shards": {"total": 2, "failed": 1}},
        {"terminated_early": True},
        {"responseHeader": {"partialResults": True}},
    ],
    ids=str,
)
def test_a_search_that_found_not_everything_is_a_gap(more: dict[str, Any], tmp_path: Path) -> None:
    rows, account = read(tmp_path, json.dumps(hits(entry(), entry()) | more))
    assert rows == [ROW] * 2
    assert account.damaged == 1


@pytest.mark.parametrize(
    ("answers", "gap"),
    [
        ([{"hits": {"total": {"value": 3, "relation": "eq"}, "hits": [entry(), entry()]}}], "3 or more entries, and 2"),
        ([{"hits": {"total": 3, "hits": [entry()] * 2}}, {"hits": {"total": 3, "hits": [entry()]}}], ""),
        ([{"hits": {"total": {"value": 2, "relation": "gte"}, "hits": [entry()] * 2}}], "3 or more entries, and 2"),
        ([{"responseHeader": {"status": 0}, "response": {"numFound": 10**30, "docs": [entry()]}}], ""),
        ([{"responseHeader": {"status": 0}, "response": {"numFound": 11, "docs": [entry()]}}], "11 or more"),
    ],
)  # fmt: skip
def test_the_first_page_of_what_a_search_found_is_a_gap(answers: list[Any], gap: str, tmp_path: Path) -> None:
    rows, account = read(tmp_path, *map(json.dumps, answers))
    assert set(rows) == {ROW}
    assert account.damaged == 0, account.places
    assert len(account.gaps({})) == bool(gap)
    assert gap in "".join(account.gaps({}))


@pytest.mark.parametrize("path", ["", "privtab", "/privtab/"])
def test_a_call_that_asks_for_everything_is_a_row_of_which_nothing_is_known(path: str, tmp_path: Path) -> None:
    rows, account = read(tmp_path, json.dumps(entry({"shop": {"allow": True}}, path=path)))
    assert rows == [(None, None, None, UNREAD)]
    assert account.damaged == 0
