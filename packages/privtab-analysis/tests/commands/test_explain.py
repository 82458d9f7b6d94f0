from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def test_an_allow_tells_every_row_behind_it(privtab: Callable[..., Any], policy: Path, state: Path) -> None:
    ran = privtab("explain", "ben", "read", "item:s/a/y", "-p", policy, "-s", state)
    assert ran.code == 0, ran.err
    assert ran.out.startswith("ALLOW  user:ben read item:s/a/y\n")
    output = ran.out[ran.out.index("allowed by") :]
    lines = [line.split(f"{state}:") for line in output.splitlines()]
    assert [line[0].strip() for line in lines] == [
        "allowed by",
        "✓ READ (item:s/a/y)",
        "READ granted to role:clerk at store:s",
        "ben holds role:clerk",
    ]
    assert [int(line[1]) for line in lines if len(line) == 2] == [2, 6]


def test_more_ways_on_request(privtab: Callable[..., Any], policy: Path, state: Path) -> None:
    ask = ["explain", "ben", "read", "item:s/a/y", "-p", policy, "-s", state]
    assert "✗ owner (item:s/a/y)  missing" not in privtab(*ask).out
    assert "✗ owner (item:s/a/y)  missing" in privtab(*ask, "--all").out


def test_a_denial_in_the_way_is_named_with_its_row(privtab: Callable[..., Any], policy: Path, state: Path) -> None:
    ran = privtab("explain", "user:ben", "read", "item:s/a/x", "-p", policy, "-s", state)
    assert ran.code == 0, "a denial is an answer"
    assert ran.out.startswith("DENY  user:ben read item:s/a/x\n")
    denied = next(line for line in ran.out.splitlines() if "READ denied to user:ben at item:s/a/x" in line)
    assert denied.endswith(f"{state}:4")


def test_changes_that_would_turn_a_denial(privtab: Callable[..., Any], policy: Path, state: Path) -> None:
    ran = privtab("explain", "ben", "read", "item:s/a/x", "-p", policy, "-s", state)
    turns = ran.out[ran.out.index("what would allow it") :].splitlines()
    assert [line.split(f"  {state}")[0].strip() for line in turns] == [
        "what would allow it: any one of these 3, least privilege first",
        "1  remove the denial of READ at item:s/a/x to user:ben",
        "which gives 1 permission",
        "2  make user:ben owner of item:s/a/x",
        "which gives 1 permission",
        "3  make user:ben owner of shelf:s/a",
        "which gives 1 permission",
    ]
    move = privtab("explain", "zoe", "move", "item:s/a/x", "--with", "to=shelf:s/b", "-p", policy, "-s", state)
    output_lines = [line.strip() for line in move.out.splitlines()]
    assert "1  grant WRITE at item:s/a/x to a new role" in output_lines
    assert "and assign that role to user:zoe" in output_lines
    assert "2  grant WRITE at item:s/a/x to user:zoe" in output_lines
    assert "or at store:s, shelf:s/a" in output_lines
    assert "and grant WRITE at shelf:s/b to user:zoe" in output_lines


def test_narrow_screens_put_places_below(
    privtab: Callable[..., Any], policy: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("privtab.command._output.PLAIN_WIDTH", 60)
    monkeypatch.setenv("COLUMNS", "60")
    ran = privtab("explain", "ben", "read", "item:s/a/y", "-p", policy, "-s", state)
    lines = ran.out.splitlines()
    at = lines.index("      READ granted to role:clerk at store:s")
    assert lines[at + 1].strip() == f"{state}:2"


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
    assert "✓ WRITE (item:s/a/x)" in far.out
    assert "grant WRITE at shelf:s/b to user:ann" in far.out
    burn = ["explain", "ann", "burn", "item:s/a/x", "-p", policy, "-s", state]
    assert privtab(*burn).out.startswith("ALLOW")
    assert privtab(*burn, "--with", "really").out.startswith("DENY")


def test_for_programs_every_atom_says_whether_it_holds(privtab: Callable[..., Any], policy: Path, state: Path) -> None:
    ran = privtab("explain", "ben", "read", "item:s/a/x", "-p", policy, "-s", state, "--format", "json")
    value = json.loads(ran.out)
    assert value["decision"] is False
    assert value["context"]["rule"] == "shop/item/read"
    assert value["request"]["subject"] == {"type": "user", "id": "ben"}
    read = next(atoms["atoms"][0] for atoms in value["sets"] if atoms["atoms"][0]["atom"] == "READ (item:s/a/x)")
    places = {"path": str(state), "table": "grants"}
    assert read == {
        "atom": "READ (item:s/a/x)",
        "holds": False,
        "on": None,
        "through": None,
        "because": [
            [
                {
                    "kind": "grant",
                    "text": "READ granted to role:clerk at store:s",
                    "place": {**places, "row": 1, "line": 2},
                },
                {
                    "kind": "assignment",
                    "text": "ben holds role:clerk",
                    "place": {"path": str(state), "table": "assignments", "row": 1, "line": 6},
                },
            ]
        ],
        "denied": ["user:ben at item:s/a/x"],
        "denied_by": [
            [
                {
                    "kind": "deny",
                    "text": "READ denied to user:ben at item:s/a/x",
                    "place": {**places, "row": 3, "line": 4},
                }
            ]
        ],
    }
    assert value["turns"][0] == [
        {
            "change": "remove denial",
            "text": "remove the denial of READ at item:s/a/x to user:ben",
            "grantee": "user:ben",
            "effect": "deny",
            "privilege": "READ",
            "entity": "item:s/a/x",
        }
    ]


def test_effects_of_success(privtab: Callable[..., Any], policy: Path, state: Path) -> None:
    ran = privtab("explain", "ann", "create", "item:s/a/new", "-p", policy, "-s", state)
    assert ran.out.endswith("on success\n  become owner (item:s/a/new)\n")


@pytest.mark.parametrize(
    "question",
    [
        ["explain", "", "read", "item:s/a/x"],
        ["explain", "user:", "read", "item:s/a/x"],
        ["what-can", ""],
        ["what-can", "", "--steps", "any"],
        ["what-can", "user:", "item:s/a/x", "--gain", "READ"],
    ],
    ids=" ".join,
)
def test_empty_names_are_bad_usage(privtab: Callable[..., Any], policy: Path, state: Path, question: list[str]) -> None:
    ran = privtab(*question, "-p", policy, "-s", state)
    assert (ran.code, ran.out) == (2, "")
    assert "empty" in ran.err


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


@pytest.mark.parametrize(
    "question",
    [
        ["explain", "ben", "read", "item:s/a/y"],
        ["who-can", "read", "item:s/a/y"],
        ["what-can", "ben"],
        ["what-can", "ben", "--steps", "any"],
    ],
    ids=lambda question: question[0],
)
def test_a_flag_unused_by_every_row_is_refused(
    privtab: Callable[..., Any], policy: Path, state: Path, question: list[str]
) -> None:
    ran = privtab(*question, "--with", "nope", "-p", policy, "-s", state)
    assert ran.code == 2
    assert "no row uses a flag `nope`" in ran.err


def test_swapped_files_are_named(privtab: Callable[..., Any], policy: Path, state: Path) -> None:
    ran = privtab("explain", "ben", "read", "item:s/a/y", "-p", state, "-s", policy)
    assert "this is a state, not a policy" in ran.err
    ran = privtab("state", "validate", policy, "-p", policy)
    assert "this is a policy, not a state: give it as the policy, `--policy FILE`" in ran.err


@pytest.mark.parametrize("user", ["groups:eng", "Users:ann"])
def test_a_misspelt_kind_is_no_user(privtab: Callable[..., Any], policy: Path, state: Path, user: str) -> None:
    ran = privtab("explain", user, "read", "item:s/a/y", "-p", policy, "-s", state)
    assert (ran.code, ran.out) == (2, "")
    assert f"`{user}` is not a user: did you mean `{user.lower().replace('s:', ':')}`?" in ran.err


def test_what_no_grant_can_mend_is_shown_as_missing(privtab: Callable[..., Any], tmp_path: Path, state: Path) -> None:
    (tmp_path / "given.yaml").write_text(
        "privtab: 1\nsystem: shop\nversion: '1'\nentities: {store: {shelf: {item:}}}\nprivileges: [READ, WRITE, SHARE]\n"
        "attributes: {request: {mfa: bool}}\nsemantics: {inheritance: down, deny: overrides, owner: {creator: true}}\n"
        "tables: {item: {read: READ (item) and request.mfa and (WRITE (item) when deep)}}\n",
        encoding="utf-8",
    )
    ask = ["explain", "ben", "read", "item:s/a/y", "-p", tmp_path / "given.yaml", "-s", state]
    ran = privtab(*ask)
    assert "missing, whatever is granted\n  ✗ request.mfa = true  missing\n" in ran.out
    assert "allowed without `deep`" in privtab(*ask, "--with", "request.mfa=true", "--with", "deep").out


def test_comparing_loads_only_what_an_answer_needs(policy: Path, state: Path) -> None:
    """An allow compares no states, and a denial no policies."""
    heavy = ("hashlib", "privtab_analysis.diff", "privtab_analysis.state_diff")
    source = (
        "import sys\nfrom privtab.command._app import run\ncode = run(sys.argv[1:])\n"
        f"sys.stderr.write(repr([n for n in {heavy!r} if n in sys.modules]))\nsys.exit(code)"
    )
    for item, loaded in (("y", "[]"), ("x", "['privtab_analysis.state_diff']")):
        ask = ["explain", "ben", "read", f"item:s/a/{item}", "-p", str(policy), "-s", str(state)]
        ran = subprocess.run(
            [sys.executable, "-c", source, *ask], check=True, capture_output=True, text=True, timeout=60
        )
        assert (ran.stdout.partition("  ")[0], ran.stderr) == ({"y": "ALLOW", "x": "DENY"}[item], loaded)
