"""`privtab diff --state`: rows, and what users gain and lose by them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from privtab_server.registry import Registry

Privtab = Callable[..., Any]
NEW = """\
grants:
  - {grantee: "role:clerk", effect: allow, privilege: READ, entity: "store:s"}
  - {grantee: "user:ann", effect: allow, privilege: ALL, entity: "shelf:s/a"}
  - {grantee: "role:clerk", effect: allow, privilege: WRITE, entity: "shelf:s/a"}
assignments:
  - {principal: "user:ben", role: clerk}
owners:
  - {entity: "item:s/a/y", owner: "user:cleo"}
"""
DENIAL = "READ denied to user:ben at item:s/a/x"
TWO = ("-s", "{state}", "-s", "{state}")
GRANT = "WRITE granted to role:clerk at shelf:s/a"


@pytest.fixture
def new(tmp_path: Path) -> Path:
    path = tmp_path / "new.yaml"
    path.write_text(NEW, encoding="utf-8")
    return path


def test_rows_without_a_policy(privtab: Privtab, state: Path, new: Path) -> None:
    ran = privtab("diff", "-s", state, "-s", new)
    assert ran.code == 0, ran.err
    assert ran.out.splitlines()[1] == "2 rows changed: 1 added, 1 removed"
    assert [line.split("  ")[0] for line in ran.out.splitlines()[3:]] == [f"- {DENIAL}", f"+ {GRANT}"]
    assert f"{new}:4" in ran.out
    assert "gained" not in ran.out


def test_gained_operations_and_the_rows_behind_them(privtab: Privtab, policy: Path, state: Path, new: Path) -> None:
    ran = privtab("diff", "-s", state, "-s", new, "-p", policy, "--format", "json")
    assert ran.code == 0, ran.err
    document = json.loads(ran.out)
    texts = [row["text"] for row in document["rows"]]
    by = {
        (change["change"], change["rule"], *change["entities"]["names"]): [texts[n] for n in change["rows"]]
        for change in document["access"]
        if change["subjects"]["names"] == ["user:ben"] and not change["with"]
    }
    assert by["gained", "shop/item/read", "item:s/a/x"] == [DENIAL]
    assert by["gained", "shop/shelf/delete", "shelf:s/a"] == [GRANT]
    assert {change["change"] for change in document["access"]} == {"gained"}
    assert document["summary"]["gained"]["sensitive"] > 0
    assert document["summary"]["lost"] == {"permissions": 0, "subjects": 0, "sensitive": 0}


@pytest.mark.parametrize(("words", "code"), [("wider", 1), ("gained", 1), ("lost", 0), ("any", 1), ("lost,wider", 1)])
def test_fail_on_sets_the_exit_code(
    privtab: Privtab, policy: Path, state: Path, new: Path, words: str, code: int
) -> None:
    assert privtab("diff", "-s", state, "-s", new, "-p", policy, "--fail-on", words).code == code
    assert privtab("diff", "-s", state, "-s", state, "-p", policy, "--fail-on", words).code == 0


def test_only_sensitive_operations_are_wider(privtab: Privtab, policy: Path, state: Path, tmp_path: Path) -> None:
    less = tmp_path / "less.yaml"
    less.write_text(state.read_text(encoding="utf-8").replace("effect: deny", "effect: allow"), encoding="utf-8")
    arguments = ("diff", "-s", state, "-s", less, "-p", policy, "--fail-on", "wider")
    assert privtab(*arguments).code == 0
    declared = policy.read_text(encoding="utf-8")
    sensitive = declared.replace(" READ (item) or owner (shelf, item)", " {requires: READ (item), sensitive: true}")
    for text in (sensitive, declared.replace(", destructive: true", "")):
        assert text != declared
        policy.write_text(text, encoding="utf-8")
        assert privtab(*arguments).code == 1, "declared, or for caution as nothing is"


@pytest.mark.parametrize("row", [GRANT, f"+ {GRANT}", "{new}:4"])
def test_without_one_row(privtab: Privtab, policy: Path, new: Path, row: str) -> None:
    ran = privtab("diff", "-s", new, "--without", row.format(new=new), "-p", policy, "--fail-on", "lost")
    assert ran.code == 1, ran.err
    assert "1 row changed: 1 removed" in ran.out
    assert "gained: nothing" in ran.out
    assert "delete (sensitive)" in ran.out


def test_the_sentence_is_the_one_of_explain(privtab: Privtab, policy: Path, state: Path) -> None:
    ran = privtab("explain", "ben", "read", "item:s/b/x", "-p", policy, "-s", state, "--format", "json")
    steps = [step["text"] for step in _steps(json.loads(ran.out))]
    assert len(steps) > 1
    for text in steps:
        assert privtab("diff", "-s", state, "--without", text).code == 0, text


def _steps(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, dict):
        own = [value] if {"kind", "text", "place"} <= value.keys() else []
        return own + [step for inner in value.values() for step in _steps(inner)]
    return [step for inner in value for step in _steps(inner)] if isinstance(value, list) else []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-s", "{state}"], "give two states, `-s OLD -s NEW`, or one with `--without ROW`"),
        ([*TWO, "-s", "{state}"], "give two states, `-s OLD -s NEW`, or one"),
        ([*TWO, "--without", DENIAL], "give two states, `-s OLD -s NEW`, or one"),
        ([*TWO, "--fail-on", "wider"], "`--fail-on wider` needs a policy"),
        ([*TWO, "--fail-on", "narrow"], "`--fail-on narrow`: there are wider, gained, lost and any"),
        ([*TWO, "--at", "2026-03-03T12:00Z"], "`--at` needs a policy"),
        (["-s", "{state}", "--without", "ben hold role:clerk"], "did you mean `ben holds role:clerk`?"),
        (["-s", "{state}", "--without", "{state}:99"], "a row is named as `explain` prints it, or as FILE:LINE"),
        (["cdap/final", "cdap/revised", *TWO], "leave out a second policy, or `--state`"),
        ([*TWO, "--all"], "leave out `--all`"),
        ([*TWO, "--rename", "A=B"], "leave out `--rename`"),
        ([*TWO, "--waivers", "{state}"], "leave out `--waivers`"),
        ([*TWO, "--format", "sarif"], "leave out `--format sarif`"),
        (["cdap/final", "cdap/revised", "--limit", "3"], "are about states: give `--state`"),
        (["cdap/final", "--without", DENIAL], "are about states: give `--state`"),
    ],
)
def test_bad_usage(privtab: Privtab, state: Path, arguments: list[str], message: str) -> None:
    ran = privtab("diff", *(text.format(state=state) for text in arguments))
    assert ran.code == 2
    assert message in ran.err


def test_markdown(privtab: Privtab, policy: Path, state: Path, new: Path) -> None:
    ran = privtab("diff", "-s", state, "-s", new, "-p", policy, "--format", "markdown")
    assert f"| added | `{GRANT}` |" in ran.out
    assert "| **gained** | ben |" in ran.out


def test_a_limit_says_what_it_leaves_out(privtab: Privtab, policy: Path, state: Path, new: Path) -> None:
    whole = privtab("diff", "-s", state, "-s", new, "-p", policy, "--limit", "0").out
    short = privtab("diff", "-s", state, "-s", new, "-p", policy, "--limit", "1").out
    assert "`--limit 0` lists them" not in whole
    assert "… and 1 more rows" in short
    assert whole.count("\n      ") == 1 + int(short.split("… and ")[2].split()[0])


def test_bundles_and_releases_are_compared_as_bundles_hold_them(
    privtab: Privtab, policy: Path, state: Path, new: Path, tmp_path: Path
) -> None:
    bundle = tmp_path / "state.tar.gz"
    assert privtab("state", "pack", state, "-p", policy, "-o", bundle).code == 0
    ran = privtab("diff", "-s", bundle, "-s", state, "-p", policy, "--fail-on", "any")
    assert ran.code == 0, ran.out
    registry = Registry.open(str(tmp_path / "registry"))
    stored = registry.put(bundle.read_bytes())
    registry.release("prod", "shop", state=stored.id)
    expected = privtab("diff", "-s", bundle, "-s", new, "-p", policy, "--format", "json").out
    for place in ("prod", "prod@1", f"prod@{stored.id}", f"prod/shop@{stored.id}"):
        text = privtab("diff", "-s", f"registry:{registry.url}#{place}", "-s", new, "-p", policy, "--format", "json")
        assert text.code == 0, text.err
        assert json.loads(text.out)["access"] == json.loads(expected)["access"]
    ran = privtab("diff", "-s", bundle, "-s", new)
    assert ran.code == 2
    assert "give a policy to compare it with a file" in ran.err
    other = tmp_path / "new.tar.gz"
    assert privtab("state", "pack", new, "-p", policy, "-o", other).code == 0
    assert "changed" in privtab("diff", "-s", bundle, "-s", other).out


@pytest.mark.parametrize("packed", [False, True])
def test_rows_that_hold_for_a_time(privtab: Privtab, policy: Path, tmp_path: Path, packed: bool) -> None:
    row = '  - {{grantee: "user:ann", effect: allow, privilege: READ, entity: "item:s/a/x"{}}}'
    paths = []
    for name, until in (("old", "2030-01-01T00:00:00Z"), ("new", "2031-01-01T00:00:00Z")):
        path = tmp_path / f"{name}.yaml"
        path.write_text(f"grants:\n{row.format(f', until: {until}')}\n", encoding="utf-8")
        paths.append(path)
    if packed:
        old = tmp_path / "old.tar.gz"
        assert privtab("state", "pack", paths[0], "-p", policy, "-o", old).code == 0
        paths[0] = old
    document = [
        json.loads(privtab("diff", "-s", paths[0], "-s", paths[1], "-p", policy, "--at", at, "--format", "json").out)
        for at in ("2029-06-01T00:00Z", "2030-06-01T00:00Z", "2031-06-01T00:00Z")
    ]
    for difference in document:
        texts = [row["text"] for row in difference["rows"]]
        assert [text.partition(", ")[2] for text in texts] == [
            "until 2030-01-01T00:00:00Z",
            "until 2031-01-01T00:00:00Z",
        ]
    assert [compared["summary"]["gained"]["permissions"] for compared in document] == [0, 1, 0]
    (gained,) = document[1]["access"]
    assert gained["rows"] == [1]


def test_one_row_of_a_bundle(privtab: Privtab, policy: Path, state: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "state.tar.gz"
    assert privtab("state", "pack", state, "-p", policy, "-o", bundle).code == 0
    ran = privtab("diff", "-s", bundle, "--without", "ben holds role:clerk", "-p", policy, "--fail-on", "lost")
    assert ran.code == 1, ran.err
    assert "lost by\n  - ben holds role:clerk" in ran.out


def test_imports_are_states_wherever_a_state_is_named(
    privtab: Privtab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    policy = "privtab: 1\nsystem: lake\nversion: '1'\nentities: {schema: {table:}}\nprivileges: [SELECT]\n"
    Path("lake.yaml").write_text(policy + "tables: {table: {read: SELECT (table)}}\n", encoding="utf-8")
    for name, users in (("old", ["ann", "ben"]), ("new", ["ben"])):
        resources = {"database": {"values": ["s"]}, "table": {"values": ["t"]}, "column": {"values": ["*"]}}
        items = [{"users": users, "accesses": [{"type": "select", "isAllowed": True}]}]
        mask = {"id": 2, "isEnabled": True, "policyType": 1, "resources": resources}
        policies = [{"id": 1, "isEnabled": True, "resources": resources, "policyItems": items}, mask]
        Path(f"{name}.json").write_text(json.dumps({"policies": policies}), encoding="utf-8")
    ran = privtab("diff", "-s", "import:ranger:old.json", "-s", "import:ranger:new.json", "-p", "lake.yaml")
    assert (ran.code, "data-mask: policy 2" in ran.err) == (1, True)
    sides = ("import:ranger?accept=data-mask:old.json", "import:ranger?accept=data-mask:new.json")
    both = ("-s", sides[0], "-s", sides[1])
    ran = privtab("diff", *both, "-p", "lake.yaml", "--fail-on", "lost")
    assert ran.code == 1
    assert "lost by\n  - SELECT granted to user:ann at table:s/t" in ran.out
    assert ran.err.count("1 thing of import:ranger") == 2
    assert "read" in privtab("what-can", "ann", "-p", "lake.yaml", "-s", sides[0]).out
    assert privtab("state", "pack", sides[0], "-p", "lake.yaml", "-o", "state.tar.gz").code == 0
    assert privtab("diff", "-s", "state.tar.gz", "-s", sides[0], "-p", "lake.yaml", "--fail-on", "any").code == 0
    ran = privtab("diff", *both)
    assert (ran.code, "give `--policy`" in ran.err) == (2, True)
    ran = privtab("diff", "-s", "import:ranger", "-s", sides[1], "-p", "lake.yaml")
    assert (ran.code, "write import:DOCUMENT:SOURCE" in ran.err) == (2, True)
    ran = privtab("diff", "-s", "import:gravitino:old.json", "-s", sides[1], "-p", "lake.yaml")
    assert (ran.code, "needs `metalake`" in ran.err) == (2, True)


def test_wrong_rows_are_reported(privtab: Privtab, policy: Path, state: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(state.read_text(encoding="utf-8").replace("effect: deny", "effect: forbid"), encoding="utf-8")
    ran = privtab("diff", "-s", state, "-s", wrong, "-p", policy)
    assert ran.code == 1
    assert "may carry a denial" in ran.err
    ran = privtab("diff", "-s", state, "-s", wrong)
    assert ran.code == 0
    assert " `forbid` to " in ran.out  # without a policy, rows are texts
