from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import pytest

from privtab.diagnostics import Diagnostic
from privtab.fmt import format_source
from privtab.pipeline import find_policy, policy_names, program_of
from privtab.source import SourceFile, load
from privtab_analysis.diff import diff
from privtab_pages.imported import TableReader, edited, own_policy
from privtab_pages.policy import PolicyPage
from privtab_pages.tables import page_source, tables

HEAD = "privtab: 1\nsystem: shop\nversion: draft\nentities: {shop: {shelf: {}}}\nprivileges: [READ, WRITE]\n"
EXPECTED = f"""{HEAD}semantics: {{owner: {{creator: false}}}}
tables:
  shop: {{open: READ/WRITE (shop), close: anyone}}
  shelf: {{fill: WRITE (shop) or owner (shelf), see: READ (shelf)}}
"""
MARKDOWN = """
# A wiki

Object | Action | Required privileges | Notes |
---|---|---|---|
Shop | open | READ/WRITE (Shop) | |
close | none | ||
Shelf | fill | WRITE on the shop OR owner of the shelf | at night |
see | READ (Shelf) | ||
"""
HTML = """<h1>A wiki</h1><table><tr><th>Object<th>Action<th>Required privileges<th>Notes
<tr><td rowspan="2">Shop<td>open<td>READ/WRITE <b>(Shop)</b><td></tr>
<tr><td>close<td>none<td></tr>
<tr><td rowspan=2>Shelf</td><td>fill</td><td>WRITE on the shop<br>OR owner of the shelf</td><td>at night</td></tr>
<tr><td>see</td><td>READ (Shelf)</td></tr></table>"""
ROWS = (
    ("Object", "Action", "Required privileges", "Notes"),
    ("Shop", "open", "READ/WRITE (Shop)", ""),
    ("", "close", "none", ""),
    ("Shelf", "fill", "WRITE on the shop OR owner of the shelf", "at night"),
    ("", "see", "READ (Shelf)", ""),
)


def reader(**options: Any) -> TableReader:
    return TableReader(system="shop", version="draft", document="wiki", **{"inside": {"shelf": "shop"}, **options})


def read(path: Path, text: str, **options: Any) -> tuple[str | None, list[Diagnostic]]:
    path.write_text(text, encoding="utf-8")
    table_reader = reader(**options)
    policy = table_reader.read(tables(page_source(path)))
    return policy, table_reader.found


def same(policy: str | None) -> bool:
    assert policy is not None
    before, after = (program_of(SourceFile.of("policy.yaml", text)) for text in (EXPECTED, policy))
    return not diff(before, after).changes


@pytest.mark.parametrize(("name", "text"), [("wiki.md", MARKDOWN), ("wiki.html", HTML)])
def test_cells_are_read_that_follow_a_pattern(name: str, text: str, tmp_path: Path) -> None:
    policy, found = read(tmp_path / name, text, accepted=("shifted",))
    assert found == []
    assert same(policy)


def test_csv_is_read(tmp_path: Path) -> None:
    with (tmp_path / "wiki.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(ROWS)
    table_reader = reader()
    assert same(table_reader.read(tables(page_source(tmp_path / "wiki.csv"))))


def test_a_workbook_is_read(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in ROWS:
        book.active.append(row)
    book.save(tmp_path / "wiki.xlsx")
    assert same(reader().read(tables(page_source(tmp_path / "wiki.xlsx"))))


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("whatever the admin says", "cannot read `whatever the admin says`"),
        ("READ (Shopp)", "`Shopp` is no type"),
        ("READ (Shop", "cannot read `READ (Shop`"),
        ("READ (Shop) | WRITE (Shop)", ""),
        ("", "cannot read ``: the cell is empty"),
        ("READ (Shop) and (see below)", "cannot read"),
        ("not READ (Shop)", "cannot read"),
        ("READ", "cannot read"),
    ],
)
def test_a_cell_that_follows_no_pattern_is_reported_and_its_operation_left_out(
    cell: str, message: str, tmp_path: Path
) -> None:
    text = f"Object | Action | Requires |\n---|---|---|\nShop | open | {cell} |\nShop | close | READ (Shop) |\n"
    policy, found = read(tmp_path / "wiki.md", text)
    assert policy is not None
    program = program_of(SourceFile.of("policy.yaml", policy))
    if not message:
        # A bar ends the cell: what is behind it stands in a column without a name.
        message = "the column `column 4` is not read"
    assert set(program.rules) == {("shop", "close")}
    (finding,) = found
    assert message in finding.message
    assert finding.span.line == 3


def test_names_for_several_privileges_are_not_guessed(tmp_path: Path) -> None:
    text = "Object | Action | Requires | Grants |\n---|---|---|---|\nShop | open | READ (Shop) | ALL (Shop) |\n"
    _, found = read(tmp_path / "wiki.md", text)
    assert [finding.help for finding in found] == ["if it stands for several: `--set ALL=READ,WRITE`"]
    policy, found = read(tmp_path / "wiki.md", text, sets={"ALL": "READ"})
    assert found == []
    assert policy is not None
    assert "grants: ALL (shop)" in policy


def test_rows_twice_are_reported(tmp_path: Path) -> None:
    text = "Object | Action | Requires |\n---|---|---|\nShop | open | READ (Shop) |\nShop | open | WRITE (Shop) |\n"
    _, found = read(tmp_path / "wiki.md", text)
    assert [finding.name for finding in found] == ["row-twice", "row-twice"]


TABLE = "Object | Action | Requires |\n---|---|---|\nShop | open | READ (Shop) |\n"


def rules(policy: str | None) -> dict[tuple[str, str], str | None]:
    assert policy is not None
    program = program_of(SourceFile.of("policy.yaml", policy))
    return {pair: rule.requires_text for pair, rule in program.rules.items()}


@pytest.mark.parametrize("more", ["Shop | close | READ (Shop)\n", "| Shop | close | READ (Shop)\n"])
def test_rows_of_any_number_of_bars_are_rows(more: str, tmp_path: Path) -> None:
    policy, found = read(tmp_path / "wiki.md", f"{TABLE}{more}Shop | see | READ (Shop) |\n\nafter\n")
    assert found == []
    assert [operation for _, operation in rules(policy)] == ["open", "close", "see"]
    two, found = read(
        tmp_path / "two.md", "# Shop\nSome text\nAction | Requires\n---|---\nopen | anyone\nclose | anyone\n"
    )
    assert found == []
    assert [operation for _, operation in rules(two)] == ["open", "close"]
    _, (finding,) = read(tmp_path / "cut.md", f"{TABLE}Shop | close\n")
    assert (finding.span.line, finding.message) == (4, "cannot read ``: the cell is empty")


@pytest.mark.parametrize("hidden", ["```\n{}```\n", "~~~~ md\n{}~~~~\n", "<!--\n{}-->\n", "<!-- a {}\n-->\n"])
def test_code_and_comments_of_a_page_say_nothing(hidden: str, tmp_path: Path) -> None:
    other = "Object | Action | Requires |\n---|---|---|\nShop | close | anyone |\n"
    policy, found = read(tmp_path / "wiki.md", f"{hidden.format(other)}\n{TABLE}{hidden.format(other)}")
    assert found == []
    assert rules(policy) == {("shop", "open"): "READ (shop)"}


@pytest.mark.parametrize("row", ["| | WRITE (Shop) |", "Shop | - | WRITE (Shop) |"])
def test_what_is_required_of_no_operation_is_reported(row: str, tmp_path: Path) -> None:
    _, (finding,) = read(tmp_path / "wiki.md", f"{TABLE}{row}\n")
    assert "names no operation" in finding.message
    assert finding.span.line == 4


def test_two_columns_for_one_part_are_not_guessed(tmp_path: Path) -> None:
    text = "Object | Action | Requires | Permissions |\n---|---|---|---|\nShop | open | READ (Shop) | WRITE (Shop) |\n"
    _, (finding,) = read(tmp_path / "wiki.md", text)
    assert finding.help is not None
    assert finding.help.endswith("say what it holds: `--column requires=Permissions`")
    _, found = read(tmp_path / "wiki.md", text, columns={"requires": "Permissions"}, accepted=("Requires",))
    assert found == []


def test_what_is_not_read_is_told(tmp_path: Path) -> None:
    text = "Object | Action | Requires | Unless |\n---|---|---|---|\nShop | open | READ (Shop) | at night |\n\nTerm | Meaning |\n---|---|\n"
    policy, found = read(tmp_path / "wiki.md", text)
    assert rules(policy) == {}
    assert [(finding.name, finding.span.line) for finding in found] == [("left-out", 1), ("left-out", 5)]
    policy, found = read(tmp_path / "wiki.md", text, accepted=("Unless", "table Term"))
    assert found == []
    assert rules(policy) == {("shop", "open"): "READ (shop)"}


def test_tables_inside_of_cells_end_no_table(tmp_path: Path) -> None:
    head = "<h2>Shop</h2><table><tr><th>Action<th>Requires</tr>"
    text = f"{head}<tr><td>open<td>anyone<table><tr><td>or</table></td></tr><tr><td>close<td>anyone</tr></table>"
    policy, (finding,) = read(tmp_path / "wiki.html", text)
    assert finding.message.startswith("cannot read `anyone or`")
    assert [operation for _, operation in rules(policy)] == ["close"]


def test_struck_text_is_not_read_as_if_it_held(tmp_path: Path) -> None:
    cell = "<s>anyone or</s> READ (entity)"
    text = f"<h2>Shop</h2><table><tr><th>Action<th>Requires</tr><tr><td>open<td>{cell}</tr></table>"
    policy, (finding,) = read(tmp_path / "wiki.html", text)
    assert finding.message == "`anyone or` is not read: it is struck out"
    assert rules(policy) == {}
    policy, found = read(tmp_path / "wiki.html", text, accepted=("struck",))
    assert found == []
    assert rules(policy) == {("shop", "open"): "READ (entity)"}


def test_a_page_without_such_a_table_gives_nothing(tmp_path: Path) -> None:
    assert read(tmp_path / "wiki.md", "a | b |\n---|---|\n1 | 2 |\n") == (None, [])
    assert read(tmp_path / "wiki.csv", "") == (None, [])
    assert read(tmp_path / "wiki.html", "<table>") == (None, [])


@pytest.mark.parametrize("name", policy_names())
def test_own_pages_give_back_their_policy(name: str) -> None:
    path = find_policy(name)
    text, _ = format_source(load(path))
    assert text is not None
    page = PolicyPage(program=program_of(load(path)), revision="", source=text)
    for suffix, written in ((".md", page.markdown()), (".html", page.html())):
        source = SourceFile.of(f"page{suffix}", written)
        assert own_policy(source) == text
        assert list(edited(tables(source), tables(source))) == []


def test_an_edited_page_is_refused() -> None:
    path = find_policy("cdap/final")
    page = PolicyPage(program=program_of(load(path)), revision="", source="privtab: 1\n")
    for suffix, text, old, new in (
        (".md", page.markdown(), "| `READ (namespace)` |", "| `WRITE (namespace)` |"),
        (".html", page.html(), "<code>READ (namespace)</code>", "<code>WRITE (namespace)</code>"),
    ):
        assert old in text
        given, made = (tables(SourceFile.of(f"page{suffix}", t)) for t in (text.replace(old, new, 1), text))
        (finding,) = edited(given, made)
        assert finding.message == "the page says `WRITE (namespace)`, its policy `READ (namespace)`"
        without = "\n".join(line for line in text.splitlines() if 'id="stream.truncate"' not in line)
        (missing,) = edited(tables(SourceFile.of(f"page{suffix}", without)), made)
        assert "`stream.truncate`" in missing.message


@pytest.mark.parametrize("suffix", [".md", ".html"])
def test_rows_that_a_page_has_besides_its_policy_are_refused(suffix: str) -> None:
    page = PolicyPage(program=program_of(load(find_policy("cdap/final"))), revision="", source="privtab: 1\n")
    text = page.markdown() if suffix == ".md" else page.html()
    made = tables(SourceFile.of(f"page{suffix}", text))
    row = next(line for line in text.splitlines() if 'id="stream.truncate"' in line)
    for new, message in (
        (re.sub(r'<a id="[^"]*"></a>| id="[^"]*"', "", row), "has no row `"),
        (row, "has no other row `stream.truncate`"),
    ):
        given = tables(SourceFile.of(f"page{suffix}", text.replace(row, f"{row}\n{new}")))
        assert [message in finding.message for finding in edited(given, made)] == [True]
    assert len(list(edited([], made))) == sum(bool(row.anchor) for table in made for row in table.rows)


def test_cells_that_a_page_lacks_are_seen() -> None:
    page = PolicyPage(program=program_of(load(find_policy("cdap/final"))), revision="", source="privtab: 1\n")
    text = page.markdown()
    row = next(line for line in text.splitlines() if 'id="stream.truncate"' in line)
    cut = text.replace(row, "|".join(row.split("|")[:2]) + "|")
    found = list(edited(tables(SourceFile.of("page.md", cut)), tables(SourceFile.of("page.md", text))))
    assert found
    assert all("the page says ``" in finding.message for finding in found)
