"""Reading logs: every shape that OPA writes, and what is damaged, masked, cut off or of another kind is counted and named."""

from __future__ import annotations

import gzip
import io
import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from decision_logs import REQUEST, entry

from privtab.base import FileError
from privtab_logs import reading
from privtab_logs.schema import FAILED, MALFORMED, MASKED, NO_ANSWER, SCHEMA, UNREAD, WRONG_ANSWER, Reading, log_schema


def read(tmp_path: Path, *entries: Any, name: str = "log.json") -> tuple[list[dict[str, Any]], Reading]:
    file = tmp_path / name
    file.write_text("\n".join(map(json.dumps, entries)), encoding="utf-8")
    account = Reading()
    return reading.read(file, reading=account).to_pylist(), account


def test_a_row_has_what_the_entry_has(tmp_path: Path) -> None:
    input_ = {
        "subject": {"type": "service", "id": "ann", "properties": {"groups": ["hr"], "level": 3}},
        "action": {"name": "move"},
        "resource": {"type": "item", "id": "s/a/x", "properties": {"team": "a"}},
        "context": {"with": {"to": {"type": "shelf", "id": "s/b"}}, "pii": True, "really": False, "ip": "10.0.0.1"},
    }
    (row,), account = read(
        tmp_path, entry({"decision": False, "context": {"rule": "shop/item/move"}}, input_, "decision")
    )
    assert account.decisions == 1
    assert row | {"time": None} == {
        "time": None,
        "decision_id": "d1",
        "system": "shop",
        "subject_type": "service",
        "user": "ann",
        "groups": ["hr"],
        "active_roles": None,
        "action": "move",
        "resource": "item:s/a/x",
        "with": [("to", "shelf:s/b")],
        "flags": ["ip", "pii", "really=false"],
        "attributes": '{"context":{"ip":"10.0.0.1"},"resource":{"team":"a"},"subject":{"level":3}}',
        "allowed": False,
        "rule": "shop/item/move",
        "policy_revision": "p1",
        "state_revision": "s1",
        "latency_us": 852,
        "origin": "opa",
        "masked": None,
        "problem": None,
        "position": f"{tmp_path}/log.json:1",
    }
    assert row["time"].isoformat() == "2026-11-28T00:22:38.452483+00:00"
    row |= {"time": row["time"].isoformat(), "with": dict(row["with"])}
    jsonschema.validate(row, log_schema())


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (entry(masked=["/input"]), None),
        (entry(erased=["/input/token"]), None),
        (entry(erased=["/input/subject/id"], input_={**REQUEST, "subject": {"type": "user"}}), MASKED),
        (entry(masked=["/input/resource/id"]), MASKED),
        (entry(erased=["/result"], result=None), MASKED),
        (entry(masked=["/input"], input_={**REQUEST, "subject": {"type": "user", "id": "ab" * 32}}), MASKED),
        (entry(masked=["/input"], input_={**REQUEST, "subject": {"type": "user"}}), MASKED),
        (entry(input_={**REQUEST, "subject": {"type": "user"}}), MALFORMED),
        (entry(input_={**REQUEST, "action": "read"}), MALFORMED),
        (entry(input_=[1]), MALFORMED),
        (entry(input_={**REQUEST, "context": {"with": {"to": 1}}}), MALFORMED),
        (entry(input_={**REQUEST, "subject": {"type": "user", "id": "ann", "properties": {"groups": "hr"}}}), MALFORMED),
        ({name: part for name, part in entry().items() if name != "result"}, NO_ANSWER),
        (entry(error={"code": "internal_error"}), FAILED),
        (entry("true"), WRONG_ANSWER),
        (entry([True], {"requests": [REQUEST, REQUEST]}, "decisions"), WRONG_ANSWER),
        (entry({"decision": 1}, rule="decision"), WRONG_ANSWER),
        (entry(["x"], {**REQUEST, "items": [["item:s/a/x"]]}, "visible"), WRONG_ANSWER),
        (entry({"name": "eu_only", "sql": "x"}, rule="filters/applied"), UNREAD),
        (entry({"keys": []}, rule="concern"), UNREAD),
        (entry({"allow": True}, path="privtab/shop"), UNREAD),
        (entry(True, {"do": "read", "requests": [REQUEST]}, "doors/till/allow"), UNREAD),
        (entry([0], {"requests": [REQUEST]}, "doors/till/seen", masked=["/input"]), UNREAD),
        (entry(False, {"requests": [REQUEST] * 2}, "doors/till/allow", masked=["/input"]), UNREAD),
        (entry(None, {"requests": [REQUEST]}, "doors/till/mask", masked=["/input"]), UNREAD),
    ],
)  # fmt: skip
def test_what_cannot_be_replayed_is_kept_and_says_why(
    given: dict[str, Any], problem: str | None, tmp_path: Path
) -> None:
    rows, account = read(tmp_path, given)
    assert rows
    assert {row["problem"] for row in rows} == {problem}
    assert account.problems == ({problem: len(rows)} if problem else {})


def test_a_listing_is_one_decision_for_each_item(tmp_path: Path) -> None:
    items = [["store:s", "shelf:s/a", f"item:s/a/{name}"] for name in "xyz"]
    rows, _ = read(tmp_path, entry([0, 2], {**REQUEST, "items": items}, "visible"))
    assert [(row["user"], row["resource"], row["allowed"]) for row in rows] == [
        ("ann", "item:s/a/x", True),
        ("ann", "item:s/a/y", False),
        ("ann", "item:s/a/z", True),
    ]


def test_a_question_at_a_door_is_a_decision_on_each_of_its_requests(tmp_path: Path) -> None:
    def asked(result: Any, *requests: Any, **more: Any) -> dict[str, Any]:
        return entry(result, {"operation": "x", "requests": [*requests], **more}, "doors/till/allow", masked=["/input"])

    shelf = {**REQUEST, "resource": {"type": "shelf", "id": "s/a"}}
    rows, account = read(
        tmp_path,
        asked(True, REQUEST, shelf),
        asked({"allow": False, "refused": None}, shelf),
        asked(False, refused={"reason": "unknown_operation"}),
    )
    assert [(row["system"], row["resource"], row["allowed"], row["problem"]) for row in rows] == [
        ("shop", "item:s/a/x", True, None),
        ("shop", "shelf:s/a", True, None),
        ("shop", "shelf:s/a", False, None),
    ]
    assert account.other == {"refused at a door": 1}


def test_other_entries_are_counted_as_what_they_are(tmp_path: Path) -> None:
    rows, account = read(
        tmp_path,
        {"msg": "Initializing server.", "level": "info"},
        entry(path="privtab_program/shop"),
        entry(path=7),
        entry() | {"msg": "Decision Log"},
        {"hello": 1},
        [entry(), entry()],
    )
    assert len(rows) == 3
    assert account.other == {"log line": 1, "call of no rule that decides": 1}
    assert [place.partition(": ")[2] for place in account.places] == [
        "no entry of the log: an object with `labels`, `decision_id`, `bundles`, `path`, `input`, `result`",
        "no entry of the log: an object with `hello`",
    ]


def test_damage_is_named_by_line_and_the_rest_is_read(tmp_path: Path) -> None:
    file = tmp_path / "log"
    good = json.dumps(entry())
    twice = good.replace('"result": true', '"result": true, "result": false')
    file.write_bytes(
        b"\n".join(
            [
                good.encode(),
                good[:300].encode(),
                twice.encode(),
                good.replace("ann", "a\\ud800").encode(),
                good.encode(),
            ]
        )
        + good.replace("ann", "ann\xff").encode("latin-1")
        + b"\n"
        + good.encode()
    )
    account = Reading()
    assert reading.read(file, reading=account).num_rows == 3
    assert account.damaged == 4
    assert [place.split(":")[-2] for place in account.places] == ["2", "3", "4", "5"]


def test_of_a_packed_file_that_is_cut_off_what_is_readable_is_read(tmp_path: Path) -> None:
    texts = [json.dumps([entry(decision_id=f"{part}-{number}") for number in range(500)]) for part in range(4)]
    packed = b"".join(gzip.compress(text.encode()) for text in texts)
    whole = tmp_path / "whole.gz"
    whole.write_bytes(packed)
    account = Reading()
    assert reading.read(whole, reading=account).num_rows == 2000
    assert account.damaged == 0
    cut = tmp_path / "cut.gz"
    cut.write_bytes(packed[: -len(packed) // 8])
    rows = reading.read(cut, reading=account).to_pylist()
    assert 1500 < len(rows) < 2000
    assert len({row["decision_id"] for row in rows}) == len(rows)
    assert any("cut off" in place for place in account.places)


@pytest.mark.parametrize(("end", "damaged"), [("]", 0), ("", 1), (",", 1), ("]\n[", 1), ("]\n[]", 0)])
def test_an_array_that_is_cut_off_between_entries_is_damaged(end: str, damaged: int, tmp_path: Path) -> None:
    file = tmp_path / "log.json"
    file.write_text(f"[{json.dumps(entry())},{json.dumps(entry())}{end}", encoding="utf-8")
    account = Reading()
    assert reading.read(file, reading=account).num_rows == 2
    assert account.damaged == damaged


def test_a_value_larger_than_the_window_is_read(tmp_path: Path) -> None:
    many = {"requests": [REQUEST] * 20_000}
    rows, account = read(tmp_path, entry([True] * 20_000, many, "decisions"), entry())
    assert len(rows) == 20_001
    assert account.damaged == 0


def test_a_million_distinct_errors_need_no_memory_for_each(tmp_path: Path) -> None:
    rows, account = read(tmp_path, *([f"error {number}"] for number in range(5_000)))
    assert rows == []
    assert account.damaged == 5_000
    assert len(account.places) == 100


def test_clocks_that_go_back_are_counted(tmp_path: Path) -> None:
    times = ("2026-11-28T00:22:38Z", "2026-11-28T00:22:30Z", "yesterday", "2026-11-28T00:22:31Z")
    rows, account = read(tmp_path, *(entry(timestamp=time) for time in times))
    assert account.backwards == 1
    assert [row["time"] is None for row in rows] == [False, False, True, False]


def test_rows_are_read_again_from_parquet(tmp_path: Path) -> None:
    rows, _ = read(tmp_path, entry(), entry(False))
    table = reading.read(tmp_path / "log.json")
    pq.write_table(table, tmp_path / "log.parquet")
    assert reading.read(tmp_path / "log.parquet").to_pylist() == rows
    pq.write_table(table.drop(["user"]), tmp_path / "wrong.parquet")
    account = Reading()
    assert reading.read(tmp_path / "wrong.parquet", reading=account).num_rows == 0
    (place,) = account.places
    assert place.startswith(f"{tmp_path}/wrong.parquet:0: not Parquet of decisions")


def test_a_log_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="no such log"):
        reading.read(tmp_path / "none")
    with pytest.raises(FileError, match="no log in the folder"):
        reading.read(tmp_path)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="this system has no such device")
def test_a_line_without_an_end_is_an_error_instead_of_memory() -> None:
    with pytest.raises(FileError, match="/dev/zero:1: a line of more than 67,108,864 characters"):
        list(reading.batches(["/dev/zero"], Reading()))


def test_an_empty_log_has_no_rows() -> None:
    assert list(reading.batches_of(io.BufferedReader(io.BytesIO(b"")), "x", Reading())) == []
    assert SCHEMA.names[:2] == ["time", "decision_id"]


def test_properties_of_a_root_without_an_id_are_kept(tmp_path: Path) -> None:
    resource = {"type": "shop", "properties": {"team": "a"}}
    (row,), _ = read(tmp_path, entry(input_={**REQUEST, "resource": resource}))
    assert (row["resource"], row["attributes"]) == ("shop:", '{"resource":{"team":"a"}}')


@pytest.mark.parametrize(
    ("cells", "problem"),
    [
        ({"allowed": None}, NO_ANSWER),
        ({"user": None}, MALFORMED),
        ({"action": None}, MALFORMED),
        ({"resource": None}, MALFORMED),
        ({"resource": "item"}, MALFORMED),
        ({"groups": [None]}, MALFORMED),
        ({"flags": [None]}, MALFORMED),
        ({"active_roles": [None]}, MALFORMED),
        ({"with": [("to", None)]}, MALFORMED),
        ({"with": [("to", "shelf:s/a"), ("to", "shelf:s/b")]}, MALFORMED),
        ({"attributes": "{"}, MALFORMED),
        ({"attributes": "[1]"}, MALFORMED),
        ({"attributes": '{"subject": 1}'}, MALFORMED),
        ({"attributes": '{"with": {"to": 1}}'}, MALFORMED),
        ({"problem": MASKED, "allowed": None}, MASKED),
        ({"with": [("to", "shelf:s/a")], "attributes": '{"context": {"a": 1}}', "groups": ["a"]}, None),
    ],
)
def test_rows_of_parquet_without_a_problem_can_be_decided_again(
    cells: dict[str, Any], problem: str | None, tmp_path: Path
) -> None:
    (row,), _ = read(tmp_path, entry())
    pq.write_table(pa.Table.from_pylist([row | cells, row], SCHEMA), tmp_path / "log.parquet")
    found = reading.read(tmp_path / "log.parquet").to_pylist()
    assert [one["problem"] for one in found] == [problem, None]


def test_what_is_no_file_in_a_folder_of_logs_is_a_gap(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(json.dumps(entry()))
    (tmp_path / "b.log").symlink_to("rotated.log")
    os.mkfifo(tmp_path / "c.log")
    account = Reading()
    assert len(reading.read(tmp_path, reading=account)) == 1
    assert [place.rpartition("/")[2][:5] for place in account.places] == ["b.log", "c.log"]
