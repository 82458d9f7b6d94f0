from __future__ import annotations

import csv
import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any


def test_each_user_with_what_lets_him(privtab: Callable[..., Any], policy: Path, state: Path) -> None:
    ran = privtab("who-can", "read", "item:s/a/y", "-p", policy, "-s", state)
    assert ran.code == 0, ran.err
    lines = [line.rstrip() for line in ran.out.splitlines()]
    assert lines[0] == "who can read item:s/a/y"
    assert lines[2] == "3 users of 3"
    assert lines[5:] == ["ann   READ in person", "ben   READ by role:clerk", "cleo  owner (item:s/a/y)"]


def test_requests_take_objects_and_flags(privtab: Callable[..., Any], policy: Path, state: Path) -> None:
    near = privtab("who-can", "move", "item:s/a/y", "--with", "to=shelf:s/a", "-p", policy, "-s", state)
    far = privtab("who-can", "move", "item:s/a/y", "--with", "to=shelf:s/b", "-p", policy, "-s", state)
    assert "1 user of 3" in near.out
    assert "0 users of 3" in far.out
    burn = ["who-can", "burn", "item:s/a/y", "-p", policy, "-s", state]
    assert "1 user of 3" in privtab(*burn).out
    assert "0 users of 3" in privtab(*burn, "--with", "really").out


def test_by_principal(privtab: Callable[..., Any], policy: Path, state: Path) -> None:
    ran = privtab("who-can", "read", "item:s/a/y", "--by", "principal", "-p", policy, "-s", state)
    lines = [line.split() for line in ran.out.splitlines()[4:]]
    assert lines == [
        ["principal", "besides"],
        ["role:clerk", "nothing"],
        ["user:ann", "nothing"],
        ["user:cleo", "nothing"],
    ]


def test_lists_for_programs_and_spreadsheets(privtab: Callable[..., Any], policy: Path, state: Path) -> None:
    ask = ["who-can", "read", "item:s/a/y", "-p", policy, "-s", state]
    value = json.loads(privtab(*ask, "--format", "json").out)
    assert value["rule"]["id"] == "shop/item/read"
    assert value["anyone"] is False
    assert value["count"] == 3
    assert value["users"][1] == {
        "user": "ben",
        "through": [{"atom": "READ (item:s/a/y)", "on": "store:s", "through": "role:clerk", "via": None}],
    }
    rows = list(csv.reader(StringIO(privtab(*ask, "--format", "csv").out)))
    assert rows == [
        ["user", "through"],
        ["ann", "READ in person"],
        ["ben", "READ by role:clerk"],
        ["cleo", "owner (item:s/a/y)"],
    ]
    principals = json.loads(privtab(*ask, "--by", "principal", "--format", "json").out)["principals"]
    assert principals[0] == {"principal": "role:clerk", "scope": None, "needs": [[]]}


def test_a_limit_says_what_it_leaves_out(privtab: Callable[..., Any], policy: Path, state: Path) -> None:
    ask = ["who-can", "read", "item:s/a/y", "-p", policy, "-s", state, "--limit", "1"]
    ran = privtab(*ask)
    assert "ann" in ran.out
    assert "cleo" not in ran.out
    assert "… and 2 more; `--limit 0` lists them" in ran.out
    value = json.loads(privtab(*ask, "--format", "json").out)
    assert (value["count"], len(value["users"])) == (3, 1)


def test_anyone(privtab: Callable[..., Any], tmp_path: Path) -> None:
    policy, state = tmp_path / "open.yaml", tmp_path / "state.yaml"
    policy.write_text(
        "privtab: 1\nsystem: open\nversion: '1'\nentities: {door: }\nprivileges: [KEY]\n"
        "tables: {door: {knock: anyone, enter: KEY (door)}}\n",
        encoding="utf-8",
    )
    state.write_text(
        "grants: [{grantee: 'user:ann', effect: allow, privilege: KEY, entity: 'door:d'}]", encoding="utf-8"
    )
    ran = privtab("who-can", "knock", "door:d", "-p", policy, "-s", state)
    assert ran.out.endswith("anyone may, named in the state or not\n")
    assert privtab("who-can", "knock", "door:d", "-p", policy, "-s", state, "--format", "csv").out.endswith(
        "ann,anyone\n"
    )


def test_unknown_names_are_bad_usage(privtab: Callable[..., Any], policy: Path, state: Path) -> None:
    for ask in (["reed", "item:s/a/y"], ["read", "item"], ["read", "item:s"], ["move", "item:s/a/y"]):
        ran = privtab("who-can", *ask, "-p", policy, "-s", state)
        assert (ran.code, ran.out) == (2, ""), ask
