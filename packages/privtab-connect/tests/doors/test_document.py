"""Door documents: every mistake is reported, at its place and with advice, and nothing is compiled."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from documentation_pages import read

from privtab.base import Diagnostic, PolicyInvalid, UsageError
from privtab.ir import Program
from privtab.pipeline import load_program, policy_artifacts
from privtab_connect.doors.document import Place, load
from privtab_connect.doors.opened import opened

POLICY = """\
privtab: 1
system: shop
version: "1"
entities: {shop: {shelf: {item: , box: }, card: }}
types: {box: {single: true}, shelf: {nested: true}, card: {flat: true}}
privileges: [LOOK, MOVE]
semantics: {groups: [state, request], active_roles: request}
tables:
  shop: {open: LOOK (shop)}
  item:
    look: {each: LOOK (item)}
    move: {with: {to: shelf}, requires: MOVE (item) and MOVE (to)}
    count: {requires: LOOK (item) and (MOVE (item) when all), flags: {all: required}}
  box: {lift: MOVE (shelf)}
"""
DOOR = """\
door: 1
title: A till
caller: {user: who.name, groups: who.groups, roles: who.roles, is: {who.kind: person}}
operation: do
answers:
  allow: {form: boolean, about: what, shape: {ok: "{allowed}", why: "{refused}"}}
  seen: {form: positions, about: "all[]"}
kinds:
  shop: {type: shop, path: shop}
  item: {type: item, path: [shop, "around[kind!=top].name", name], is: {kind: [thing, ware], "around[].kind": top, tags: []}}
  items: {type: item, path: [shop, "around[].name"], unnamed: true}
  parts: {type: item, path: [shop, shelf, "@"], each: "parts[]"}
  shelf: {type: shelf, path: [shop, shelf]}
operations:
  open: shop
  look, LOOK: [{kind: item, row: look}, {kind: items, row: look}]
  move: {kind: item, with: {to: {kind: [shelf], about: to}}}
  glance: {kind: parts, row: look}
"""


@pytest.fixture
def program(tmp_path: Path) -> Program:
    (tmp_path / "shop.yaml").write_text(POLICY, encoding="utf-8")
    return load_program(tmp_path / "shop.yaml")


def findings(tmp_path: Path, program: Program, text: str, name: str = "till") -> tuple[Diagnostic, ...]:
    path = tmp_path / f"{name}.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(PolicyInvalid) as caught:
        load(str(path), program)
    return caught.value.diagnostics


def test_a_document_is_read_and_rows_that_it_does_not_reach_are_noted(tmp_path: Path, program: Program) -> None:
    path = tmp_path / "till.yaml"
    path.write_text(DOOR, encoding="utf-8")
    door = load(str(path), program)
    assert door.name == "till"
    assert door.kinds["item"].path[1] == Place(at=("around",), items=("name",), skip=(("kind",), "top"))
    assert [a.kind for a in door.operations["LOOK"]] == ["item", "items"]
    (note,) = door.notes
    assert (note.code, note.severity.value, note.message) == (
        "W002", "note", "no operation reaches `item/count`, `box/lift`",
    )  # fmt: skip


MISTAKES = [
    # what is replaced, by what | line, and the message with its advice
    ("door: 1", "door: 2", 1, "`door` is `2`", "write one of"),
    ("title: A till\n", "", 1, "`title` is missing", None),
    ("operation: do", "operation: do[]", 4, "has the values of a list", "a place is written"),
    ("operation: do", "operation: do..it", 4, "is not a place", "a place is written"),
    ("form: boolean", "form: bool", 6, "`form` is `bool`", "did you mean `boolean`"),
    ("  seen:", "  lib:", 7, "`lib` cannot be the name of an answer", None),
    ("  seen:", "  default:", 7, "`default` cannot be the name of an answer", None),
    ("  seen:", "  all-of:", 7, "`all-of` cannot be the name of an answer", None),
    ("type: shop,", "type: shops,", 9, "the policy has no type `shops`", "did you mean `shop`"),
    ("{type: shelf, path: [shop, shelf]}", "{type: card, path: shop}", 13, "do not say where its entities lie", None),
    ("path: shop}", "path: [shop, shop]}", 9, "the path of `shop` has 2 names, and that of `shop` 1", None),
    ('path: [shop, shelf, "@"], each: "parts[]"', 'path: [shop, shelf, "@"]', 12, "`@` stands for", None),
    ('each: "parts[]"', "each: parts", 12, "`each` is about one value", "write `[]`"),
    ("open: shop", "open: shopp", 15, "there is no kind `shopp`", "did you mean `shop`"),
    ("open: shop", "opened: shop", 15, "the policy has no row `shop/opened`", "did you mean `open`"),
    ("row: look}, {kind", "row: lok}, {kind", 16, "the policy has no row `item/lok`", "did you mean `look`"),
    ("{kind: item, row: look}, {kind: items", "{kind: items, row: look}, {kind: items", 16, "is never reached", None),
    ("look, LOOK:", "look, look:", 16, "`look` occurs twice", None),
    ("with: {to: {", "with: {too: {", 17, "has no object `too`", "did you mean `to`"),
    (", with: {to: {kind: [shelf], about: to}}", "", 17, "`item/move` needs an object `to`", "say it under `with`"),
    ("kind: [shelf], about", "kind: [shop], about", 17, "`to` is a shelf, and `shop` a shop", None),
    ("glance: {kind: parts, row: look}", "count: item", 18, "requires the flag `all`", None),
    ("glance: {kind: parts, row: look}", "move_: {kind: items, row: move, with: {to: {kind: shelf, about: to}}}", 18,
     "is about a named entity", None),
    ("glance: {kind: parts, row: look}", "look2: {kind: item, filter: rows}", 18, "`filter` is `rows`", "write one of"),
    ("operation: do", "operatoin: do", 4, "unknown key `operatoin`", "did you mean `operation`"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "line", "message", "help_"), MISTAKES, ids=[m[3][:40] for m in MISTAKES])
def test_a_mistake_is_told_where_it_is(
    tmp_path: Path, program: Program, old: str, new: str, line: int, message: str, help_: str | None
) -> None:
    assert DOOR.count(old) >= 1
    found = findings(tmp_path, program, DOOR.replace(old, new, 1))
    fitting = [d for d in found if message in d.message]
    assert fitting, [d.message for d in found]
    assert [d.span.line for d in fitting] == [line]
    assert help_ is None or help_ in (fitting[0].help or "")


@pytest.mark.parametrize(
    ("kind", "place", "message"),
    [
        ('{sign: "$", reads: look}', ("names.yaml", 4), "the policy has no row `shop/look`"),
        ('{sign: "$", reads: open}', ("till.yaml", 10), "may be derived: `item` needs"),
    ],
)
def test_a_mistake_in_derived_names_is_told_where_it_is(
    tmp_path: Path, program: Program, kind: str, place: tuple[str, int], message: str
) -> None:
    (tmp_path / "names.yaml").write_text(f"names: 1\ntitle: A till\nkinds:\n  shop: {kind}\n", encoding="utf-8")
    (found,) = (d for d in findings(tmp_path, program, DOOR) if message in d.message)
    assert (Path(found.span.path).name, found.span.line) == place


def test_a_kind_of_the_names_needs_no_type(tmp_path: Path, program: Program) -> None:
    (tmp_path / "names.yaml").write_text(
        "names: 1\ntitle: A till\nkinds: {shop: {type: [store, shop]}}\n", encoding="utf-8"
    )
    (tmp_path / "till.yaml").write_text(DOOR.replace("type: shop, ", ""), encoding="utf-8")
    assert load(str(tmp_path / "till.yaml"), program).kinds["shop"].type == "shop"
    (tmp_path / "names.yaml").unlink()
    assert {d.message for d in findings(tmp_path, program, DOOR.replace("type: shop, ", ""))} >= {
        "`type` is missing in `shop`"
    }


def test_all_mistakes_are_told_at_once(tmp_path: Path, program: Program) -> None:
    text = (
        DOOR.replace("form: boolean", "form: bool")
        .replace("open: shop", "open: shopp")
        .replace("type: shelf", "type: shell")
    )
    messages = [d.message for d in findings(tmp_path, program, text)]
    assert [m for m in messages if "bool" in m]
    assert [m for m in messages if "shopp" in m]
    assert [m for m in messages if "shell" in m]


def test_the_name_of_the_file_is_a_part_of_addresses(tmp_path: Path, program: Program) -> None:
    (finding,) = findings(tmp_path, program, DOOR, name="my-till")
    assert "`my-till`" in finding.message


def test_what_the_policy_ignores_is_no_caller(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(
        POLICY.replace("semantics: {groups: [state, request], active_roles: request}\n", "")
    )
    program = load_program(tmp_path / "shop.yaml")
    messages = [d.message for d in findings(tmp_path, program, DOOR)]
    assert messages[:2] == ["the policy does not take groups from requests", "the policy has no active roles"]


def test_an_unknown_document(program: Program) -> None:
    with pytest.raises(UsageError, match="no door document `trin`: did you mean `trino`"):
        load("trin", program)


@pytest.mark.parametrize("policy", ["trino/476", "trino/483", "polaris/1.7", "polaris/1.8", "kafka/3.9", "kafka/4.4"])
def test_shipped_doors_reach_every_row(policy: str) -> None:
    assert load(policy.partition("/")[0], load_program(policy)).notes == ()


LATER = DOOR + "later:\n  move: {kind: items, row: put}\n  lift: shop\n"


def test_rows_that_only_a_later_policy_has_are_denied_without_it(tmp_path: Path, program: Program) -> None:
    (tmp_path / "till.yaml").write_text(LATER, encoding="utf-8")
    before = load(str(tmp_path / "till.yaml"), program).operations
    assert "lift" not in before
    assert [(one.kind, one.row) for one in before["move"]] == [("item", "move")]
    (tmp_path / "later.yaml").write_text(
        POLICY.replace("  shop: {open:", "  shop: {lift: MOVE (shop), open:"), encoding="utf-8"
    )
    after = load(str(tmp_path / "till.yaml"), load_program(tmp_path / "later.yaml")).operations
    assert [(one.kind, one.row) for one in after["lift"]] == [("shop", "lift")]


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("lift: shop", "lift: shopp", 21, "there is no kind `shopp`"),
        ("  lift: shop", "  lift, lift: shop", 21, "`lift` occurs twice in `later`"),
        ("{kind: items, row: put}", "{kind: items, rows: put}", 20, "unknown key `rows`"),
        ("  move: {kind: items, row: put}", "  open: shelf", 15, "every object is `shop`"),
        ("later:", "latter:", 19, "unknown key `latter`"),
    ],
)
def test_a_mistake_in_what_is_later_is_told_where_it_is(
    tmp_path: Path, program: Program, old: str, new: str, line: int, message: str
) -> None:
    assert LATER.count(old) == 1
    found = findings(tmp_path, program, LATER.replace(old, new))
    assert [d.span.line for d in found if message in d.message] == [line], [d.message for d in found]


def test_the_document_of_the_page_is_one(tmp_path: Path) -> None:
    (block,) = (block for block in read("docs/reference/doors.md").blocks if block.language == "yaml")
    (tmp_path / "till.yaml").write_text(block.text, encoding="utf-8")
    (tmp_path / "shop.yaml").write_text(
        """\
privtab: 1
system: shop
version: "1"
entities: {shop: {item: }}
privileges: [LOOK]
semantics: {groups: [state, request]}
tables:
  shop: {open: LOOK (shop)}
  item: {look: LOOK (item), move: LOOK (item)}
""",
        encoding="utf-8",
    )
    assert load(str(tmp_path / "till.yaml"), load_program(tmp_path / "shop.yaml")).notes == ()


def test_every_part_of_a_document_is_valid_rego(tmp_path: Path, program: Program, opa_binary: Path) -> None:
    """Places with words of Rego and other signs, lists with items left out, kinds of any shape, further objects, a shape."""
    path = tmp_path / "till.yaml"
    path.write_text(
        DOOR.replace("path: shop}", "path: café.in}").replace("who.kind", "with.a-b.default"), encoding="utf-8"
    )
    artifacts = policy_artifacts(program, doors=[opened(str(path), program)])
    for name, text in artifacts.modules.items():
        (tmp_path / "rego" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "rego" / name).write_text(text, encoding="utf-8")
    for command in (["check", "--strict"], ["fmt", "--fail", "--list"]):
        subprocess.run([opa_binary, *command, tmp_path / "rego"], check=True, timeout=60)
