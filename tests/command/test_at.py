"""Questions about a state whose rows hold for a time: `--at`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

STATE = """\
memberships:
  - {user: ann, group: staff, from: 2026-03-01T00:00:00Z, until: 2026-05-01T00:00:00Z}
assignments:
  - {principal: "group:staff", role: clerk, from: 2026-04-01T00:00:00Z}
grants:
  - {grantee: "role:clerk", effect: allow, privilege: READ, entity: "store:s"}
  - {grantee: "user:ben", effect: allow, privilege: READ, entity: "store:s"}
  - {grantee: "user:ben", effect: deny, privilege: READ, entity: "item:s/a/x", until: 2026-04-01T00:00:00Z}
owners:
  - {entity: "item:s/a/x", owner: "user:cleo", from: 2026-04-01T00:00:00.000000001Z}
"""
MARCH, APRIL, MAY = "2026-03-03T12:00Z", "2026-04-01T00:00:00Z", "2026-05-01T00:00:00Z"


@pytest.fixture
def timed(tmp_path: Path) -> Path:
    path = tmp_path / "timed.yaml"
    path.write_text(STATE)
    return path


def test_a_decision_holds_at_its_moment(privtab: Callable[..., Any], policy: Path, timed: Path, tmp_path: Path) -> None:
    requests_file = tmp_path / "asked.jsonl"
    request = {"action": {"name": "read"}, "resource": {"type": "item", "id": "s/a/x"}}
    people = [{"type": "user", "id": name} for name in ("ann", "ben", "cleo")]
    requests_file.write_text("".join(json.dumps({**request, "subject": who}) + "\n" for who in people))

    def answers(*more: str) -> list[bool]:
        ran = privtab("decide", "-p", policy, "-s", timed, "-r", requests_file, *more)
        assert ran.code == 0, ran.err
        return [json.loads(line)["decision"] for line in ran.out.splitlines()]

    expected = {
        MARCH: [False, False, False],
        "2026-03-31T23:59:59.999999999Z": [False, False, False],
        APRIL: [True, True, False],
        "2026-04-01T00:00:00.000000001Z": [True, True, True],
        MAY: [False, True, True],
    }
    for at, allowed in expected.items():
        for engine in ("reference", "python"):
            assert answers("--at", at, "--engine", engine) == allowed, (at, engine)


def test_without_a_moment_it_is_now(privtab: Callable[..., Any], policy: Path, tmp_path: Path) -> None:
    state = tmp_path / "now.yaml"
    row = '  - {{grantee: "user:{}", effect: allow, privilege: READ, entity: "store:s", {}}}\n'
    rows = (
        ("old", "until: 2020-01-01T00:00:00Z"),
        ("new", "from: 2020-01-01T00:00:00Z"),
        ("next", "from: 2200-01-01T00:00Z"),
    )
    state.write_text("grants:\n" + "".join(row.format(*pair) for pair in rows))
    ran = privtab("who-can", "open", "store:s", "-p", policy, "-s", state)
    assert [line.split()[0] for line in ran.out.splitlines()[5:]] == ["new"]


def test_questions_about_a_moment(privtab: Callable[..., Any], policy: Path, timed: Path) -> None:
    def users(at: str) -> list[str]:
        ran = privtab("who-can", "read", "item:s/a/x", "-p", policy, "-s", timed, "--format", "json", "--at", at)
        return [entry["user"] for entry in json.loads(ran.out)["users"]]

    assert users(MARCH) == []
    assert users("2026-04-15T00:00Z") == ["ann", "ben", "cleo"]
    assert users("2027-01-01T00:00Z") == ["ben", "cleo"]
    what = ["what-can", "ann", "-p", policy, "-s", timed]
    assert "open" in privtab(*what, "--at", "2026-04-15T00:00Z").out
    assert "open" not in privtab(*what, "--at", MARCH).out
    paths = ["what-can", "cleo", "item:s/a/x", "--gain", "can read", "-p", policy, "-s", timed, "--at"]
    assert privtab(*paths, "2026-04-15T00:00Z").code == 0


def test_an_explanation_shows_the_windows_of_the_rows(privtab: Callable[..., Any], policy: Path, timed: Path) -> None:
    ask = ["explain", "ann", "read", "item:s/a/x", "-p", policy, "-s", timed, "--at", "2026-04-15T00:00Z"]
    out = privtab(*ask).out
    assert "group:staff holds role:clerk, from 2026-04-01T00:00:00Z" in out
    assert "ann is in group:staff, from 2026-03-01T00:00:00Z until 2026-05-01T00:00:00Z" in out
    assert f"{timed}:2" in out, "rows keep their lines"
    output = privtab(*ask, "--format", "json").out
    links = [
        link
        for minimal_set in json.loads(output)["sets"]
        for atom in minimal_set["atoms"]
        for chain in atom.get("because", atom.get("chains", ()))
        for link in chain
    ]
    assert {"2026-03-01T00:00:00Z"} <= {link.get("from") for link in links}, output
    denied = ["explain", "ben", "read", "item:s/a/x", "-p", policy, "-s", timed, "--at", MARCH]
    assert "READ denied to user:ben at item:s/a/x, until 2026-04-01T00:00:00Z" in privtab(*denied).out


@pytest.mark.parametrize("at", ["2026-03-03", "2026-03-03T12:00", "yesterday"])
def test_a_wrong_moment_is_bad_usage(privtab: Callable[..., Any], policy: Path, timed: Path, at: str) -> None:
    ran = privtab("who-can", "open", "store:s", "-p", policy, "-s", timed, "--at", at)
    assert ran.code == 2
    assert f"`--at {at}`" in ran.err


def test_lint_of_a_state(privtab: Callable[..., Any], policy: Path, timed: Path, tmp_path: Path) -> None:
    ran = privtab("state", "validate", "--lint", timed, "-p", policy, "--at", "2026-04-20T00:00:00Z")
    assert ran.code == 1
    assert "warning[S201 expired-row]: the row has ended at 2026-04-01T00:00:00Z" in ran.out + ran.err
    assert "note[S203 row-ends-soon]: the row ends at 2026-05-01T00:00:00Z" in ran.out + ran.err
    listed = json.loads(
        privtab("state", "validate", "--lint", timed, "-p", policy, "--at", "2026-03-20T00:00Z", "--format", "json").out
    )
    assert {(finding["code"], finding["row_number"]) for finding in listed} >= {("S203", 3), ("S206", 2)}
    empty = tmp_path / "empty.yaml"
    empty.write_text("assignments:\n  - {principal: 'user:a', role: nothing}\n")
    assert "warning[S204 empty-role]: role `nothing` is held" in privtab(
        "state", "validate", "--lint", empty, "-p", policy
    ).err + (privtab("state", "validate", "--lint", empty, "-p", policy).out)
    alone = privtab("state", "validate", timed, "-p", policy, "--soon", "3d")
    assert (alone.code, "give `--lint`" in alone.err) == (2, True)
    assert privtab("state", "validate", empty, "-p", policy).code == 0
    for text in ("soon", ""):
        wrong = privtab("state", "validate", "--lint", timed, "-p", policy, "--soon", text)
        assert (wrong.code, f"`{text}` is not a duration" in wrong.err) == (2, True)
    good = tmp_path / "good.yaml"
    good.write_text(
        "grants:\n  - {grantee: 'group:g', effect: allow, privilege: READ, entity: 'store:s'}\nmemberships:\n  - {user: a, group: g}\n"
    )
    assert privtab("state", "validate", "--lint", good, "-p", policy).code == 0
