from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

POLICY = """\
privtab: 1
system: club
version: "1"
entities: {club: {room: }}
privileges: [KEY, RULE]
semantics: {owner: {}}
tables:
  club: {join: {requires: anyone, becomes: member, creates: false}}
  room:
    claim: {requires: member (club) and KEY (room), becomes: owner, creates: false}
    build: {requires: member (club), creates: true, becomes: owner}
    rule: {requires: owner (room)}
"""
STATE = """\
grants:
  - {grantee: "user:ann", effect: allow, privilege: KEY, entity: "room:c/r"}
members:
  - {user: ben, of: "club:c"}
"""


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    (tmp_path / "club.yaml").write_text(POLICY, encoding="utf-8")
    (tmp_path / "state.yaml").write_text(STATE, encoding="utf-8")
    return ["-p", str(tmp_path / "club.yaml"), "-s", str(tmp_path / "state.yaml")]


def test_the_steps_to_a_goal(privtab: Callable[..., Any], options: list[str]) -> None:
    ran = privtab("what-can", "ann", "room:c/r", "--gain", "owner", *options)
    assert ran.code == 0, ran.err
    assert ran.out.startswith("PATH  user:ann to owner (room:c/r) in 2 steps\n")
    words = [line.split() for line in ran.out.splitlines()]
    assert words[1][:3] == ["1", "join", "club:c"]
    assert words[4][:3] == ["2", "claim", "room:c/r"]
    assert words[5] == ["needs", "member", "(club:c),", "KEY", "(room:c/r)"]
    assert words[6] == ["brings", "owner", "(room:c/r)"]


def test_an_operation_as_the_goal(privtab: Callable[..., Any], options: list[str]) -> None:
    ran = privtab("what-can", "ann", "room:c/r", "--gain", "can rule", *options, "--format", "json")
    value = json.loads(ran.out)
    assert value["reachable"] is True
    assert [step["operation"] for step in value["path"]["steps"]] == ["join", "claim"]
    assert value["path"]["steps"][1]["brings"] == ["owner (room:c/r)"]


def test_no_path_and_no_need_of_one(privtab: Callable[..., Any], options: list[str]) -> None:
    assert privtab("what-can", "ben", "room:c/r", "--gain", "owner", *options).out.startswith(
        "NO PATH  user:ben cannot"
    )
    assert privtab("what-can", "ben", "club:c", "--gain", "member", *options).out.startswith("HELD  user:ben has")
    short = privtab("what-can", "ann", "room:c/r", "--gain", "owner", "--steps", "1", *options)
    assert "within 1 step" in short.out


def test_all_that_one_could_gain(privtab: Callable[..., Any], options: list[str]) -> None:
    ran = privtab("what-can", "ann", "--steps", "any", *options)
    assert "2 rights on existing entities" in ran.out
    assert "build room:c/new: owner (room:c/new)" in ran.out
    ben = json.loads(privtab("what-can", "ben", "--steps", "any", *options, "--format", "json").out)
    assert ben["gains"] == []
    assert ben["makes"] == [{"operation": "build", "resource": "room:c/new", "brings": ["owner (room:c/new)"]}]


def test_everybody(privtab: Callable[..., Any], options: list[str]) -> None:
    ran = privtab("what-can", "--all", *options)
    assert ran.code == 1, "somebody could gain something"
    assert ran.err == "3 escalations of 2 users\n"
    assert "a stranger could gain member (club:c)" in ran.out
    assert "user:ann could gain owner (room:c/r)  in 2 steps" in ran.out


def test_nobody(privtab: Callable[..., Any], policy: Path, state: Path) -> None:
    ran = privtab("what-can", "--all", "-p", policy, "-s", state)
    assert ran.code == 0
    assert ran.out.startswith("no user can gain anything on existing entities\n\nnot considered: what other users do")


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--steps", "any"],
        ["ann", "--all"],
        ["--all", "--gain", "KEY"],
        ["--all", "room:c/r", "--gain", "KEY"],
        ["ann", "--gain", "KEY"],
        ["ann", "room:c/r", "--steps", "any"],
        ["ann", "room:c/r", "--gain", "KEYS"],
        ["ann", "room:c", "--gain", "KEY"],
        ["ann", "room:c/r", "--gain", "can rul"],
        ["ann", "--steps", "0"],
        ["ann", "--steps", "few"],
        ["ann", "--authorise", "owners=rule"],
        ["ann", "--steps", "any", "--format", "csv"],
    ],
)
def test_impossible_goals_are_bad_usage(privtab: Callable[..., Any], options: list[str], words: list[str]) -> None:
    ran = privtab("what-can", *words, *options)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err


GRANTING = """\
privtab: 1
system: lake
version: "1"
entities: {lake: {table: }}
privileges: [READ, MANAGE]
semantics: {inheritance: down, deny: overrides, owner: {kinds: [user]}}
tables:
  lake: {set_owner: service admin}
  table:
    read: READ (table)
    grant_privilege: MANAGE (table) or owner (lake)
    drop: owner (lake)
"""
HELD = """\
grants:
  - {grantee: "user:ann", effect: allow, privilege: MANAGE, entity: "lake:l"}
  - {grantee: "user:ben", effect: deny, privilege: READ, entity: "table:l/t"}
"""


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    (tmp_path / "lake.yaml").write_text(GRANTING, encoding="utf-8")
    (tmp_path / "held.yaml").write_text(HELD, encoding="utf-8")
    (tmp_path / "privtab.toml").write_text('[store]\nadministrators = ["ben"]\n', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return ["-p", "lake.yaml", "-s", "held.yaml"]


def test_a_row_that_lets_a_user_grant_is_a_path(privtab: Callable[..., Any], lake: list[str]) -> None:
    ran = privtab("what-can", "ann", "table:l/t", "--gain", "READ", *lake)
    assert ran.out.startswith("PATH  user:ann to READ (table:l/t) in 1 step\n")
    words = [line.split() for line in ran.out.splitlines()]
    assert words[1][:3] == ["1", "grant_privilege", "table:l/t"]
    assert words[2] == ["lets", "them", "add", "grants", "in", "a", "store"]
    assert words[4] == ["brings", "READ", "(table:l/t)"]
    assert privtab("what-can", "cleo", "table:l/t", "--gain", "READ", *lake).out.startswith("NO PATH  ")


def test_an_administrator_by_settings_counts(privtab: Callable[..., Any], lake: list[str]) -> None:
    ran = privtab("what-can", "ben", "table:l/t", "--gain", "READ", *lake, "--format", "json")
    value = json.loads(ran.out)
    assert value["path"]["certain"] is True
    assert [step["operation"] for step in value["path"]["steps"]] == ["set_owner", "grant_privilege"]
    assert value["path"]["steps"][1]["brings"] == ["READ (table:l/t)", "no denial to user:ben (table:l/t)"]
    assert "what other users do for them" in value["not_considered"]


def test_what_is_not_followed_is_not_denied(privtab: Callable[..., Any], lake: list[str]) -> None:
    Path("lake.yaml").write_text(GRANTING.replace("grant_privilege: MANAGE (table) or", "grant_privilege:"))
    assert privtab("what-can", "ann", "table:l/t", "--gain", "READ", *lake).out.startswith("NO PATH  ")
    ran = privtab("what-can", "ann", "table:l/t", "--gain", "READ", *lake, "--authorise", "attributes=read")
    assert ran.out.startswith("NO PATH  "), "she may not read it"
    Path("lake.yaml").write_text(
        GRANTING.replace("MANAGE (table) or", "").replace("drop: owner (lake)", "drop: MANAGE (table)")
    )
    ran = privtab("what-can", "ann", "table:l/t", "--gain", "READ", *lake, "--authorise", "attributes=drop")
    assert ran.out.startswith("PERHAPS  ")
    assert "`drop` on `table` lets them change attributes" in ran.out
