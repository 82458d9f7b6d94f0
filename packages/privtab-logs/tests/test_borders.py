"""Valid logs with one entry, field or type that does not belong there: the answer is the same, or says that it is incomplete."""

from __future__ import annotations

import copy
import gzip
import json
import random
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from decision_logs import REQUEST, entry, wrapped
from seeds import seeds

from privtab.base import UsageError, Window
from privtab.pipeline import load_program
from privtab.state import load_raw_state, validate_with_places
from privtab_logs import mapped, opa, reading
from privtab_logs.distinct import distinct
from privtab_logs.moments import KnownState, Moments, Policy
from privtab_logs.replaying import KINDS, replay
from privtab_logs.report import report
from privtab_logs.row_use import Observed, unused
from privtab_logs.schema import Reading

LAKE = """\
privtab: 1
system: {system}
version: "1"
entities: {{{entities}}}
privileges: {{READ: {{on: [{types}]}}}}
semantics: {{inheritance: down}}
tables:
  {rows}
"""
SELECT = "SelectFromColumns: READ (table), CreateViewWithSelectFromColumns: READ (table), InsertIntoTable: READ (table)"
POLICIES = {
    "opa": LAKE.format(
        system="shop",
        entities="store: {shelf: {item: }}",
        types="store, shelf, item",
        rows="item: {read: READ (item), move: {requires: READ (item), with: {to: shelf}}}",
    ),
    "ranger": LAKE.format(
        system="hive",
        entities="database: {table: {column: }}",
        types="database, table, column",
        rows="column: {select: READ (column)}\n  table: {select: READ (table)}",
    ),
    "trino": LAKE.format(
        system="trino",
        entities="catalog: {schema: {table: {column: }}}",
        types="catalog, schema, table, column",
        rows=f"table: {{{SELECT}}}\n  column: {{{SELECT.replace('(table)', '(column)')}}}",
    ),
}
STATES = {
    "opa": ("item:s/a/x", "item:s/a/y", "shelf:s/b", "item:s/c/z"),
    "ranger": ("column:hr/staff/name", "column:hr/staff/city", "column:hr/staff/pay", "table:hr/jobs"),
    "trino": (
        "column:lake/s/t/a",
        "column:lake/s/t/b",
        "table:lake/s/v by bob",
        "table:lake/s/w",
        "table:lake/s/idle",
    ),
}


def of_opa() -> Iterator[dict[str, Any]]:
    def asked(item: str, **more: Any) -> dict[str, Any]:
        return {**REQUEST, "resource": {"type": "item", "id": item}, **more}

    groups = {"type": "user", "id": "ann", "properties": {"groups": ["hr"]}}
    to = {"with": {"to": {"type": "shelf", "id": "s/a"}}, "pii": True}
    yield entry()
    yield entry(
        {"decision": True, "context": {"rule": "shop/item/move"}},
        asked("s/b/q", action={"name": "move"}, context=to),
        "decision",
    )
    yield entry([True, False], {"requests": [asked("s/a/y"), asked("s/d/y", subject=groups)]}, "decisions")
    yield entry([0], {**REQUEST, "items": [["store:s", "shelf:s/a", f"item:s/a/{name}"] for name in "xw"]}, "visible")
    yield entry(False, asked("s/e/x"))  # fmt: skip


def of_ranger() -> Iterator[dict[str, Any]]:
    audit = {
        "repoType": 3, "repo": "hive", "reqUser": "ann", "evtTime": "2021-11-01 14:42:34.683", "access": "SELECT", "action": "select",
        "result": 1, "policy": 8, "logType": "RangerAudit", "id": "f2e39748-0", "seq_num": 1, "tags": ["pii"], "event_count": 1,
    }  # fmt: skip
    yield {**audit, "resource": "hr/staff/name,city", "resType": "@column"}
    yield {**audit, "resource": "hr/jobs", "resType": "@table", "evtTime": 1635777754683}
    yield {**audit, "resource": "hr/other", "resType": "table", "result": 0, "evtTime": "2016-10-26T05:14:21.686Z"}
    yield {**audit, "resource": "/user", "resType": "path", "repoType": 1}


def of_trino() -> Iterator[dict[str, Any]]:
    def read(name: str, *columns: str) -> dict[str, Any]:
        table = {"catalog": "lake", "schema": "s", "table": name, "authorization": "ann" if columns else "bob"}
        return {**table, "columns": [{"column": column} for column in columns]}

    def event(*tables: Any, **more: Any) -> dict[str, Any]:
        metadata = {"queryId": "q", "queryState": "FINISHED", "tables": [*tables], **more}
        output = {"catalogName": "lake", "schema": "s", "table": "w"}
        caller = {"user": "ann", "groups": ["staff"]}
        return {"metadata": metadata, "context": caller, "ioMetadata": {"output": output}, "createTime": "2026-03-03T05:39:52.129Z"}  # fmt: skip

    yield event(read("t", "a", "b"), read("v"))
    yield event(updateType="INSERT")
    yield event(read("t", "a"), queryState="FAILED")


LOGS = {"opa": of_opa, "ranger": of_ranger, "trino": of_trino}
ODD: tuple[Any, ...] = (
    None, True, 7, -1, 2.5, 10**25, "", "x", "{", "[1]", "@table", "9" * 30, [], ["x"], [[]], [["a", 1]], {}, {"id": "x"}, {"log": "x"},
    {"a": {"b": [1]}},
)  # fmt: skip
RAW = (
    "NaN",
    "-Infinity",
    "1e400",
    '"\\ud800"',
    "[" * 300 + "]" * 300,
    '{"a":' * 90 + "1" + "}" * 90,
    "[" * 5000 + "]" * 5000,
    "9" * 5000,
    "nul",
)
LINES = (
    "", "text", "panic: {", "}", "]", "[", "[1]", "{", '"x"', "\x00", "\ufeff", "null", "{}", '{"msg":"x"}', '{"level":"info","msg":"x"}', '{"log":',
    '{"log":"x\\n"}', '{"log":"{","stream":"stdout"}', '{"decision_id":"d"}', '{"decision_id":"d","path":7}', '{"logType":"RangerAudit"}',
    "2026-01-02T03:04:05Z stdout P {", "2026-01-02T03:04:05Z stdout F }", "opa-1  | x", '{"hits":{"hits":[]}}', '{"_source":{}}', "[pod/x/opa] {}",
    '{"metadata":{"queryId":"q"}}',
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield from places(part, (*path, key))


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def changed(given: list[dict[str, Any]], random_: random.Random) -> tuple[bytes, bool]:
    """A log with one change, and whether it must have the same answer."""
    entries, number = copy.deepcopy(given), random_.randrange(len(given))
    own, texts, same, how = entries[number], [*map(json.dumps, given)], False, random_.randrange(6)
    match how:
        case 0:
            inside = random_.choice([path for path in places(own) if isinstance(at(own, path), dict)])
            at(own, inside)[random_.choice(["x1", "extra", "Reason"])] = random_.choice(ODD)
            texts[number] = json.dumps(own)
        case 1 | 2:
            *above, last = random_.choice([path for path in places(own) if path])
            new = random_.choice([odd for odd in ODD if type(odd) is not type(at(own, (*above, last)))])
            new = None if last == "result" and isinstance(new, bool) else new
            at(own, tuple(above))[last] = new if how == 1 else "@@"
            texts[number] = json.dumps(own).replace('"@@"', random_.choice(RAW))
        case 3:
            texts[number], same = wrapped(own, random_), True
        case 4:
            texts[number] = texts[number][: random_.randrange(1, len(texts[number]))]
        case _:
            texts.insert(number, random_.choice(LINES))
    text = "\n".join(texts) if how in (3, 4, 5) or random_.random() < 0.5 else f"[{','.join(texts)}]"
    return (gzip.compress(text.encode(), 1) if random_.random() < 0.2 else text.encode()), same


@cache
def world(kind: str, folder: Path) -> tuple[Any, Observed, Moments, Any]:
    (folder / "p.yaml").write_text(POLICIES[kind])
    grants = [
        {"grantee": f"user:{by or 'ann'}", "effect": "allow", "privilege": "READ", "entity": entity}
        for entity, _, by in (text.partition(" by ") for text in STATES[kind])
    ]
    (folder / "s.json").write_text(json.dumps({"grants": grants}))
    program, rows = load_program(folder / "p.yaml"), load_raw_state(folder / "s.json")
    state, found, _ = validate_with_places(program, rows)
    policy, known = Policy.of(program), KnownState(rows=rows)
    moments = Moments(new=policy, policy=lambda _: policy, state=lambda _: known)
    return (
        program,
        Observed(whole=state, places=found, moment=Window().begin + 1, kept={}),
        moments,
        (opa.rows if kind == "opa" else mapped.load(kind).rows),
    )


def answer(kind: str, content: bytes, folder: Path) -> tuple[Any, list[str]]:
    """What a replay and a search for unused rows say of a log, and why that is not the whole truth."""
    (folder / "log").write_bytes(content)
    program, observed, moments, entries = world(kind, folder)
    account = Reading()
    batches = list(reading.batches([folder / "log"], account, entries))
    rows = Counter(
        (row["user"], row["action"], row["resource"], row["allowed"])
        for batch in batches for row in batch.to_pylist() if row["problem"] is None
    )  # fmt: skip
    found = replay(batches, moments, reading=account)
    log = distinct(batches, program)
    try:
        idle = [row.text for row in unused(program, observed, log).idle]
    except UsageError:
        idle = []
    incomplete = report(found, moments, None).incomplete + account.gaps(log.skipped, log.samples)
    return (rows, [found.count(one) for one in KINDS], idle), incomplete


@cache
def right(kind: str, folder: Path) -> tuple[list[dict[str, Any]], Any]:
    """A valid log, and its answer."""
    given = list(LOGS[kind]())
    expected, incomplete = answer(kind, "\n".join(map(json.dumps, given)).encode(), folder)
    assert not incomplete
    assert expected[1] == [0, 0, 0]
    assert len(expected[2]) == 1, "one row is unused"
    return given, expected


def compared(numbers: range, kind: str, folder: Path) -> Counter[str]:
    given, expected = right(kind, folder)
    outcomes: Counter[str] = Counter()
    for number in numbers:
        content, same = changed(given, random.Random(number))
        found, why = answer(kind, content, folder)
        told = content if content[:2] != b"\x1f\x8b" else gzip.decompress(content)
        assert why == [] or not same, (number, why, told)
        assert found == expected or why, (number, told)
        outcomes["incomplete" if why else "same"] += 1
    return outcomes


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


@pytest.mark.parametrize("kind", LOGS)
@pytest.mark.parametrize("seed", seeds(range(40), quick=10))
def test_nothing_vanishes_from_a_log(seed: int, kind: str, folder: Path) -> None:
    assert compared(range(seed * 2, seed * 2 + 2), kind, folder)


@pytest.mark.long
@pytest.mark.parametrize("kind", LOGS)
def test_nothing_vanishes_from_many_logs(search_seed: int, kind: str, folder: Path) -> None:
    outcomes = compared(range(search_seed, search_seed + 3_400), kind, folder)
    assert min(outcomes["same"], outcomes["incomplete"]) > 1000
