from __future__ import annotations

from textwrap import dedent

import pytest

from privtab.base.source import SourceFile
from privtab.language.syntax import Tables, read_policy
from privtab.language.syntax.nodes import RowDecl

HEAD = "privtab: 1\nsystem: shop\nversion: 1.10\nentities: {shop: {shelf: {item: }}}\nprivileges: [READ, WRITE]\n"


def tables(text: str) -> Tables:
    source = SourceFile.of("shop.yaml", HEAD + dedent(text))
    read_, found = read_policy(source)
    assert read_ is not None
    assert found == []
    return read_


def row(text: str) -> RowDecl:
    return tables(f"sources: {{d: {{document: d.txt}}}}\ntables: {{shop: {{open: {text}}}}}\n").tables[0].rows[0]


def codes(text: str) -> list[str]:
    return [d.code for d in read_policy(SourceFile.of("shop.yaml", text))[1]]


def test_a_version_keeps_its_spelling() -> None:
    assert tables("").version.value == "1.10"


def test_entities_are_a_forest_in_the_order_of_the_file() -> None:
    source = SourceFile.of("a.yaml", "privtab: 1\nsystem: a\nversion: x\nentities:\n  b: {c: {d: }, e: }\n  a:\n")
    read_, found = read_policy(source)
    assert (read_ is not None, found) == (True, [])
    assert read_ is not None
    assert [(e.name.value, e.parent) for e in read_.entities] == [
        ("b", None),
        ("c", "b"),
        ("d", "c"),
        ("e", "b"),
        ("a", None),
    ]


def test_one_key_makes_a_row_for_each_operation() -> None:
    rows = tables("tables:\n  shop:\n    start,  stop, debug: READ (shop)\n").tables[0].rows
    assert [r.operation.value for r in rows] == ["start", "stop", "debug"]
    assert [(r.span.line, r.span.column, r.span.end_column) for r in rows] == [(8, 5, 10), (8, 13, 17), (8, 19, 24)]


def test_a_plain_cell_is_requires() -> None:
    short, long = row("READ (shop)"), row("{requires: READ (shop)}")
    assert short.body.requires is not None
    assert long.body.requires is not None
    assert short.body.requires.expression == long.body.requires.expression
    assert short.body.plain
    assert not long.body.plain


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("15", [(None, 15)]),
        ("d:15", [("d", 15)]),
        ("{source: d, line: 15}", [("d", 15)]),
        ("[d:15, 16]", [("d", 15), (None, 16)]),
    ],
)
def test_sources_are_read(text: str, expected: list[tuple[str | None, int]]) -> None:
    source = row(f"{{requires: anyone, source: {text}}}").source
    assert [(ref.name, ref.line) for ref in source] == expected


@pytest.mark.parametrize("text", ["[owner, member]", '"owner & member"', "owner"])
def test_effects_are_one_or_a_list(text: str) -> None:
    cells = row(f"{{requires: anyone, becomes: {text}}}").body.becomes
    assert cells is not None
    assert [n.text for c in cells for t in c.terms or () for n in t.names][:1] == ["owner"]


def test_objects_of_one_type_of_several_or_any() -> None:
    withs = row("{requires: anyone, with: {a: shelf, b: [shelf, item], c: any}}").withs
    assert [(w.name.value, w.types and [t.value for t in w.types]) for w in withs] == [
        ("a", ["shelf"]),
        ("b", ["shelf", "item"]),
        ("c", None),
    ]


def test_a_reading_is_a_condition_or_a_row() -> None:
    decl = row(
        "{each: READ (shop), ambiguous: {cell: c, why: w, readings: {one: WRITE (shop), two: {requires: anyone, each: anyone}}}}"
    )
    assert decl.ambiguous is not None
    first, second = decl.ambiguous.readings
    assert (first.text, first.body.each is not None, first.body.requires) == ("WRITE (shop)", True, None)
    assert (second.text, second.body.requires is not None) == ("requires: anyone; each: anyone", True)


def test_role_grants_are_lists_words_or_sums() -> None:
    roles = tables(
        "roles: {boss: {scope: shop, grants: {shop: [READ, WRITE], shelf: READ + WRITE, item: READ}}}\n"
    ).roles
    assert [(t.value, [p.value for p in words]) for t, words in roles[0].grants] == [
        ("shop", ["READ", "WRITE"]),
        ("shelf", ["READ", "WRITE"]),
        ("item", ["READ"]),
    ]


def test_sections_may_be_empty() -> None:
    assert tables("core:\ntables: {shop: }\nroles: {boss: }\nsemantics:\n").core == ()


def test_comments_for_editors_are_comments() -> None:
    assert codes("# yaml-language-server: $schema=../schema.json\n" + HEAD) == []


def test_a_byte_order_mark_and_windows_line_ends(tmp_path: object) -> None:
    assert codes(HEAD.replace("\n", "\r\n")) == []


def test_another_yaml_file_is_one_finding() -> None:
    assert codes("memberships: [{user: alice, group: hr}]\ngrants: []\n") == ["P009"]
    assert codes("members_of_staff: [alice]\n") == ["P007"]
    assert codes("just text\n") == ["P008"]
    assert codes("- a\n- b\n") == ["P008"]


def test_tables_with_errors_come_back_marked() -> None:
    broken, found = read_policy(SourceFile.of("a.yaml", HEAD + "colour: red\n"))
    assert broken is not None
    assert broken.broken
    assert [d.code for d in found] == ["P006"]


@pytest.mark.parametrize(
    "text", ["{program:}", "{program: }", "{program: , stream:}", "{program:, stream:,}", "{program}"]
)
def test_types_inside_braces_need_no_value(text: str) -> None:
    file = SourceFile.of("a.yaml", f"privtab: 1\nsystem: a\nversion: x\nentities:\n  application: {text}\n")
    found, diagnostics = read_policy(file)
    assert diagnostics == []
    assert found is not None
    assert [(e.name.value, e.parent) for e in found.entities][:2] == [("application", None), ("program", "application")]


def test_roles_that_roles_alone_could_have_are_refused() -> None:
    found = read_policy(SourceFile.of("shop.yaml", HEAD + "semantics: {assignees: [role]}\n"))[1]
    assert [(d.code, d.span.line, d.span.column) for d in found] == [("P009", 6, 24)]
    assert "nobody would ever hold one" in found[0].message
