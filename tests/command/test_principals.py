"""Principals are written in one way everywhere, and names that no row knows are told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Privtab = Callable[..., Any]
MORE = """\
  - {principal: "group:staff", role: clerk}
memberships:
  - {user: dan, group: staff}
"""


@pytest.fixture
def staffed(state: Path) -> Path:
    text = state.read_text(encoding="utf-8")
    state.write_text(text.replace("owners:", f"{MORE}owners:"), encoding="utf-8")
    return state


def test_rights_of_a_group_or_a_role(privtab: Privtab, policy: Path, staffed: Path) -> None:
    def allowed(who: str) -> set[tuple[str, str]]:
        ran = privtab("what-can", who, "-p", policy, "-s", staffed, "--format", "json")
        assert ran.code == 0, ran.err
        document = json.loads(ran.out)
        assert document["principal"] == who
        assert document["user"] is None
        return {(may["operation"], may["resource"]) for may in document["allowed"]}

    assert ("read", "item:s/a/x") in allowed("role:clerk")
    assert allowed("group:staff") == allowed("role:clerk")
    dan = json.loads(privtab("what-can", "dan", "-p", policy, "-s", staffed, "--format", "json").out)
    assert {(may["operation"], may["resource"]) for may in dan["allowed"]} == allowed("group:staff")
    ran = privtab("what-can", "role:clerk", "-p", policy, "-s", staffed)
    assert ran.out.splitlines()[0] == "what role:clerk can do"


def test_only_users_ask(privtab: Privtab, policy: Path, staffed: Path) -> None:
    for command in (["explain", "group:staff", "read", "item:s/a/x"], ["what-can", "role:clerk", "--steps", "any"]):
        ran = privtab(*command, "-p", policy, "-s", staffed)
        assert ran.code == 2
        assert f"only a user can be a subject; `what-can {command[1]}` tells what it gives" in ran.err


def test_wildcards_are_no_principals(privtab: Privtab, policy: Path, staffed: Path) -> None:
    for command in (["explain", "*", "read", "item:s/a/x"], ["what-can", "group:*"], ["what-can", "%"]):
        ran = privtab(*command, "-p", policy, "-s", staffed)
        assert ran.code == 2, command
    ran = privtab("who-can", "read", "item:s/a/*", "-p", policy, "-s", staffed)
    assert ran.code == 2
    assert "there are no wildcards" in ran.err


@pytest.mark.parametrize(
    ("command", "note"),
    [
        (["explain", "bem", "read", "item:s/a/x"], "`user:bem` is not in the state; did you mean `user:ben`?"),
        (["explain", "ben", "read", "item:s/a/z"], "`item:s/a/z` is not in the state; did you mean `item:s/a/y`?"),
        (["explain", "ben", "create", "item:s/q/z"], "`shelf:s/q` is not in the state"),
        (["who-can", "read", "item:s/a/z"], "`item:s/a/z` is not in the state"),
        (["what-can", "role:clerc"], "`role:clerc` is not in the state; did you mean `role:clerk`?"),
        (["what-can", "group:staf"], "`group:staf` is not in the state; did you mean `group:staff`?"),
        (["what-can", "ben", "store:t"], "`store:t` is not in the state"),
        (
            ["what-can", "bem", "item:s/a/x", "--gain", "READ"],
            "`user:bem` is not in the state; did you mean `user:ben`?",
        ),
        (["what-can", "bem", "item:s/a/x", "--gain", "can read"], "`user:bem` is not in the state"),
    ],
)
def test_unknown_names_are_noted(privtab: Privtab, policy: Path, staffed: Path, command: list[str], note: str) -> None:
    ran = privtab(*command, "-p", policy, "-s", staffed)
    assert ran.code == 0, ran.err
    assert f"note: {note}" in ran.err
    document = json.loads(privtab(*command, "-p", policy, "-s", staffed, "--format", "json").out)
    assert any(text.startswith(note) for text in document["notes"])


@pytest.mark.parametrize(
    "command",
    [
        ["explain", "user:ben", "read", "item:s/a/x"],
        ["explain", "ben", "create", "item:s/a/new"],
        ["explain", "ben", "create", "item:s/a"],
        ["who-can", "open", "store:s"],
        ["what-can", "role:clerk"],
    ],
)
def test_known_names_are_not(privtab: Privtab, policy: Path, staffed: Path, command: list[str]) -> None:
    ran = privtab(*command, "-p", policy, "-s", staffed)
    assert ran.code == 0, ran.err
    assert "note:" not in ran.err
    assert json.loads(privtab(*command, "-p", policy, "-s", staffed, "--format", "json").out)["notes"] == []


def test_an_empty_group_and_an_unassigned_role(privtab: Privtab, policy: Path, staffed: Path) -> None:
    text = staffed.read_text(encoding="utf-8").replace(
        "assignments:",
        '  - {grantee: "group:staf", effect: allow, privilege: READ, entity: "store:s"}\n'
        '  - {grantee: "role:clerks", effect: allow, privilege: READ, entity: "store:s"}\nassignments:',
    )
    staffed.write_text(text, encoding="utf-8")
    ran = privtab("state", "validate", staffed, "--policy", policy)
    assert ran.code == 0, ran.err
    assert "note[S164 empty-group]: `group:staf` has no members" in ran.err
    assert "did you mean `staff`?" in ran.err
    assert "note[S165 unheld-role]: `role:clerks` is not assigned" in ran.err


def test_requests_may_write_the_kind_of_a_user(privtab: Privtab, policy: Path, staffed: Path, tmp_path: Path) -> None:
    def line(user: str) -> str:
        parts = {"subject": {"type": "user", "id": user}, "action": {"name": "read"}}
        return json.dumps({**parts, "resource": {"type": "item", "id": "s/a/y"}})

    requests_file = tmp_path / "asked.jsonl"
    requests_file.write_text(
        "\n".join(map(line, ["ben", "user:ben", "user:user:ben", "group:staff", "*"])), encoding="utf-8"
    )
    ran = privtab("decide", "-p", policy, "-s", staffed, "-r", requests_file)
    answers = [json.loads(answer) for answer in ran.out.splitlines()]
    assert [answer["decision"] for answer in answers] == [True, True, False, False, False]
    assert answers[0] == answers[1]
    assert ["error" in answer["context"] for answer in answers] == [False, False, True, True, True]


def test_commands_name_their_own_options(privtab: Privtab, policy: Path, staffed: Path) -> None:
    for command in (["explain", "ben", "move", "item:s/a/x"], ["who-can", "move", "item:s/a/x"]):
        ran = privtab(*command, "-p", policy, "-s", staffed)
        assert ran.code == 2
        assert "needs `--with to=TYPE:PATH`: an entity of type shelf" in ran.err
        assert "context.with" not in ran.err
    ran = privtab("what-can", "ben", "item:s/a/x", "--gain", "read", "-p", policy, "-s", staffed)
    assert "ask for it by `item:s/a/x --operation read`" in ran.err
    ran = privtab("who-can", "item:s/a/x", "read", "-p", policy, "-s", staffed)
    assert "write `who-can OP ENTITY`, the operation first" in ran.err
