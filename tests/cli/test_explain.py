from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def test_an_allow_tells_through_which_role(privtab: Callable[..., Any], policy: Path, state: Path) -> None:
    ran = privtab("explain", "ben", "read", "item:s/a/y", "-p", policy, "-s", state)
    assert ran.code == 0, ran.err
    assert ran.out.startswith("ALLOW  user:ben read item:s/a/y\n")
    assert "✓ READ (item:s/a/y)  through role:clerk at store:s" in ran.out
    assert "✗ owner (item:s/a/y)  missing" in ran.out


def test_a_denial_in_the_way_is_named(privtab: Callable[..., Any], policy: Path, state: Path) -> None:
    ran = privtab("explain", "user:ben", "read", "item:s/a/x", "-p", policy, "-s", state)
    assert ran.code == 0, "a denial is an answer"
    assert ran.out.startswith("DENY  user:ben read item:s/a/x\n")
    assert "✗ READ (item:s/a/x)  denied to user:ben at item:s/a/x" in ran.out


def test_the_row_is_shown_as_its_author_wrote_it(privtab: Callable[..., Any], policy: Path, state: Path) -> None:
    ran = privtab("explain", "ben", "read", "item:s/a/x", "-p", policy, "-s", state)
    assert "read: READ (item) or owner (shelf, item)" in ran.out
    assert "move:" not in ran.out


def test_objects_and_flags_of_the_request(privtab: Callable[..., Any], policy: Path, state: Path) -> None:
    ask = ["explain", "ann", "move", "item:s/a/x", "-p", policy, "-s", state]
    near = privtab(*ask, "--with", "to=shelf:s/a")
    far = privtab(*ask, "--with", "to=shelf:s/b")
    assert near.out.startswith("ALLOW")
    assert far.out.startswith("DENY")
    assert "✗ WRITE (shelf:s/b)  missing" in far.out
    burn = ["explain", "ann", "burn", "item:s/a/x", "-p", policy, "-s", state]
    assert privtab(*burn).out.startswith("ALLOW")
    assert privtab(*burn, "--flag", "really").out.startswith("DENY")


def test_for_programs_every_atom_says_whether_it_holds(privtab: Callable[..., Any], policy: Path, state: Path) -> None:
    ran = privtab("explain", "ben", "read", "item:s/a/x", "-p", policy, "-s", state, "--format", "json")
    value = json.loads(ran.out)
    assert value["decision"] is False
    assert value["context"]["rule"] == "shop/item/read"
    assert value["request"]["subject"] == {"type": "user", "id": "ben"}
    read = next(atoms["atoms"][0] for atoms in value["sets"] if atoms["atoms"][0]["atom"] == "READ (item:s/a/x)")
    assert read == {
        "atom": "READ (item:s/a/x)",
        "holds": False,
        "on": None,
        "through": None,
        "denied": ["user:ben at item:s/a/x"],
    }


def test_what_success_does(privtab: Callable[..., Any], policy: Path, state: Path) -> None:
    ran = privtab("explain", "ann", "create", "item:s/a/new", "-p", policy, "-s", state)
    assert "on success: become owner (item:s/a/new)" in ran.out


def test_a_request_that_cannot_be_is_bad_usage(privtab: Callable[..., Any], policy: Path, state: Path) -> None:
    for ask in (
        ["ann", "reed", "item:s/a/x"],
        ["ann", "read", "item"],
        ["ann", "read", "item:s/a"],
        ["ann", "move", "item:s/a/x", "--with", "to"],
        ["ann", "move", "item:s/a/x", "--with", "to=shelf"],
    ):
        ran = privtab("explain", *ask, "-p", policy, "-s", state)
        assert (ran.code, ran.out) == (2, ""), ask
        assert ran.err.startswith("privtab: ")
