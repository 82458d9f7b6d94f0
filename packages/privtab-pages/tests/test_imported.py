from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import pytest
from shipped_policies import FEW, by_release

from privtab.base import Diagnostic, FileError, SourceFile
from privtab.language import format_source
from privtab.pipeline import find_policy, load_program
from privtab_analysis.diff import diff
from privtab_pages.imported import TableReader
from privtab_pages.own_pages import edited, own_policy
from privtab_pages.page_files import page_source, tables
from privtab_pages.policy import PolicyPage

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
| | close | none | |
Shelf | fill | WRITE on the shop OR owner of the shelf | at night |
| | see | READ (Shelf) | |
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
    before, after = (load_program(SourceFile.of("policy.yaml", text)) for text in (EXPECTED, policy))
    return not diff(before, after).changes


@pytest.mark.parametrize(("name", "text"), [("wiki.md", MARKDOWN), ("wiki.html", HTML)])
def test_cells_are_read_that_follow_a_pattern(name: str, text: str, tmp_path: Path) -> None:
    policy, found = read(tmp_path / name, text)
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
        ("maybe", "cannot read"),
        ("READ, WRITE", "cannot read"),
        ("Read/Write", "cannot read"),
        ("N/A", "cannot read"),
        ("READ<br>WRITE", "cannot read"),
        ("READ WRITE", "cannot read"),
        ("NOT READ", "cannot read"),
        ("READ UNLESS OWNER", "cannot read"),
        ("ALL PRIVILEGES", "cannot read"),
        ("READ or WRITE and OWN", "cannot read"),
        ("READ [1]", "has the footnote `[1]`"),
    ],
)
def test_a_cell_that_follows_no_pattern_is_reported_and_its_operation_left_out(
    cell: str, message: str, tmp_path: Path
) -> None:
    text = f"Object | Action | Requires |\n---|---|---|\nShop | open | {cell} |\nShop | close | READ (Shop) |\n"
    policy, found = read(tmp_path / "wiki.md", text)
    assert policy is not None
    program = load_program(SourceFile.of("policy.yaml", policy))
    if not message:
        # A bar ends the cell: what is behind it stands in a column without a name.
        message = "the column `column 4` is not read"
    assert program.rules["shop", "open"].requires_text in ("nobody", None)
    assert program.rules["shop", "close"].requires_text == "READ (shop)"
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
    program = load_program(SourceFile.of("policy.yaml", policy))
    return {pair: rule.requires_text for pair, rule in program.rules.items() if rule.requires_text != "nobody"}


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


@pytest.mark.parametrize("row", ["| | | WRITE (Shop) |", "Shop | - | WRITE (Shop) |"])
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


@pytest.mark.parametrize("path", by_release(quick=FEW))
def test_own_pages_give_back_their_policy(path: Path) -> None:
    text, _ = format_source(SourceFile.load(path))
    assert text is not None
    page = PolicyPage(program=load_program(SourceFile.load(path)), revision="", source=text)
    for suffix, written in ((".md", page.markdown()), (".html", page.html())):
        source = SourceFile.of(f"page{suffix}", written)
        assert own_policy(source) == text
        assert list(edited(tables(source), tables(source))) == []
        # Each row is compared, folded or not.
        read = {row.anchor for table in tables(source) if not table.lost for row in table.rows}
        assert {f"{entity}.{operation}" for entity, operation in page.program.rules} <= read


def test_an_edited_page_is_refused() -> None:
    path = find_policy("cdap/final")
    page = PolicyPage(program=load_program(SourceFile.load(path)), revision="", source="privtab: 1\n")
    for suffix, text, old, new in (
        (".md", page.markdown(), "| `READ (namespace)` |", "| `WRITE (namespace)` |"),
        (".html", page.html(), "<code>READ (namespace)</code>", "<code>WRITE (namespace)</code>"),
    ):
        assert old in text
        given, made = (tables(SourceFile.of(f"page{suffix}", t)) for t in (text.replace(old, new, 1), text))
        (finding,) = edited(given, made)
        assert finding.message == "the page says `WRITE (namespace)`, the policy `READ (namespace)`"
        without = "\n".join(line for line in text.splitlines() if 'id="stream.truncate"' not in line)
        (missing,) = edited(tables(SourceFile.of(f"page{suffix}", without)), made)
        assert "`stream.truncate`" in missing.message


@pytest.mark.parametrize("suffix", [".md", ".html"])
def test_rows_that_a_page_has_besides_its_policy_are_refused(suffix: str) -> None:
    page = PolicyPage(
        program=load_program(SourceFile.load(find_policy("cdap/final"))), revision="", source="privtab: 1\n"
    )
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
    page = PolicyPage(
        program=load_program(SourceFile.load(find_policy("cdap/final"))), revision="", source="privtab: 1\n"
    )
    text = page.markdown()
    row = next(line for line in text.splitlines() if 'id="stream.truncate"' in line)
    cut = text.replace(row, "|".join(row.split("|")[:2]) + "|")
    found = list(edited(tables(SourceFile.of("page.md", cut)), tables(SourceFile.of("page.md", text))))
    assert found
    assert all("the page says ``" in finding.message for finding in found)


HEAD_HTML = "<h2>Shop</h2><table><tr><th>Action<th>Requires</tr>"
SEE = "<tr><td>see<td>READ (entity)</tr>"


@pytest.mark.parametrize(
    "text",
    [
        "~~WRITE~~",
        "<s>x</s>",
        "<del>x</del>",
        "<strike>x</strike>",
        '<span style="text-decoration: line-through">x</span>',
        '<span style="TEXT-DECORATION-LINE:line-through">x</span>',
        "<span hidden>x</span>",
        '<span style="display : none">x</span>',
        '<b style="visibility:hidden">x</b>',
        '<b style="opacity: 0">x</b>',
        "<template>x</template>",
        "<noscript>x</noscript>",
    ],
)
@pytest.mark.parametrize("column", [0, 1])
def test_text_that_does_not_hold_or_is_not_seen_stops_until_it_is_accepted(
    text: str, column: int, tmp_path: Path
) -> None:
    cells = ["open", "WRITE (entity)"]
    cells[column] = f"{text} {cells[column]}"
    page = f"# Shop\n\n| Action | Requires |\n|---|---|\n| see | READ (entity) |\n| {cells[0]} | {cells[1]} |\n"
    policy, (finding,) = read(tmp_path / "wiki.md", page)
    assert (finding.name, finding.span.line) == ("left-out", 6)
    assert [*rules(policy)] == [("shop", "see")]
    policy, found = read(tmp_path / "wiki.md", page, accepted=("struck", "hidden"))
    assert found == []
    assert rules(policy)["shop", "open"] == "WRITE (entity)"


def test_style_sheets_strike_and_hide(tmp_path: Path) -> None:
    sheet = "<style>@media print { td { display: none } } p .old, #no { text-decoration: line-through }</style>"
    text = f'{sheet}{HEAD_HTML}{SEE}<tr class="old"><td>open<td>none</tr><tr id=no><td>shut<td>none</tr></table>'
    policy, found = read(tmp_path / "wiki.html", text)
    assert [finding.name for finding in found] == ["left-out"] * 4
    assert [*rules(policy)] == [("shop", "see")]


@pytest.mark.parametrize(
    "around",
    [
        "<div hidden>{}</div>",
        "<details><summary>Old</summary>{}</details>",
        '<details class="fold"><summary>Old</summary>{}</details>',
        "<template>{}</template>",
        '<div style="display:none">{}</div>',
        "<del>{}</del>",
    ],
)
def test_tables_that_are_not_seen_are_named(around: str, tmp_path: Path) -> None:
    other = f"{HEAD_HTML}<tr><td>open<td>none</tr></table>"
    text = f"{around.format(other)}<h2>Shop</h2>{HEAD_HTML}{SEE}</table>"
    policy, (finding,) = read(tmp_path / "wiki.html", text)
    assert (finding.name, finding.help) == ("left-out", "to do without: `--accept 'table Action'`")
    assert [*rules(policy)] == [("shop", "see")]


@pytest.mark.parametrize(
    ("page", "pairs"),
    [
        ("Shop\n====\n\n{}\n", ["shop"]),
        ("# Door\n\nShop\n----\n\n{}\n", ["shop"]),
        ("###### Shop #\n\n{}\n", ["shop"]),
        ("<h5>Shop</h5>\n\n{}\n", ["shop"]),
        ("# Shop\n\n- item\n\n  {}\n", ["shop"]),
        ("# Shop\n\n> {}\n", ["shop"]),
        ("---\ntitle: Wiki\n---\n# Shop\n{}\n", ["shop"]),
        ("# Shop\n\n<details><summary>Old</summary>\n\nno table\n\n</details>\n\n{}\n", ["shop"]),
        ("# Door\n\n**Shop**\n\n{}\n", ["shop"]),
        ("# Door\n\n<details open><summary>Shop</summary>\n\n{}\n\n</details>\n", ["shop"]),
    ],
)
def test_tables_are_read_under_their_heading(page: str, pairs: list[str], tmp_path: Path) -> None:
    prefix = "\n> " if "> {}" in page else "\n  " if "  {}" in page else "\n"
    table = prefix.join(("| Action | Requires |", "|---|---|", "| open | READ (entity) |"))
    policy, found = read(tmp_path / "wiki.md", page.format(table))
    assert found == []
    assert [entity for entity, _ in rules(policy)] == pairs


@pytest.mark.parametrize(
    "page",
    [
        "# Shop <sup>1</sup>\n\n{}\n",
        "# ~~Shop~~\n\n{}\n",
        "# Shop / Door\n\n{}\n",
    ],
)
def test_a_table_without_a_heading_that_names_its_type_is_reported(page: str, tmp_path: Path) -> None:
    table = "| Action | Requires |\n|---|---|\n| open | READ (entity) |"
    policy, (finding,) = read(tmp_path / "wiki.md", page.format(table))
    assert finding.name == "unreadable-cell"
    assert not re.search("open:", policy or "")


@pytest.mark.parametrize(
    "more",
    [
        "\n\n| Action | Requires |\n|---|---|---|\n| shut | none |\n",
        "- x | shut | none\n",
        "> x | shut | none\n",
        "\n\n<table><tr><td>Action<td>Needs</table>\n",
        "\n\n> | Term | Means |\n> |---|---|\n> | open | only by night |\n",
    ],
)
def test_rows_and_tables_that_are_not_read_are_named(more: str, tmp_path: Path) -> None:
    _, (finding,) = read(tmp_path / "wiki.md", f"{TABLE.rstrip()}\n{more}")
    assert finding.name == "left-out"


@pytest.mark.parametrize(
    "operation",
    [
        "op\u200ben",
        "op\u00aden",
        "open<sup>1</sup>",
        "open\u00b9",
        "open*",
        "open \u2020",
        "open[^1]",
        "12",
        "2. Open",
        "\u67e5\u770b",
        "open<br>shut",
        "\u043epen",
        "open ![x](y.png)",
        "open\ufe0f",
    ],
)
def test_what_is_no_name_becomes_none(operation: str, tmp_path: Path) -> None:
    policy, found = read(tmp_path / "wiki.md", f"{TABLE}Shop | {operation} | none |\n{operation} | shut | none |\n")
    assert [finding.span.line for finding in found] == [4, 5]
    assert [*rules(policy)] == [("shop", "open")]


def test_a_name_that_a_page_writes_otherwise_is_said(tmp_path: Path) -> None:
    names = {"Shut / lock": "shut, lock", "The shop": "shop"}
    policy, found = read(tmp_path / "wiki.md", f"{TABLE}The shop | Shut / lock | none |\n", names=names)
    assert found == []
    assert [operation for _, operation in rules(policy)] == ["open", "shut", "lock"]


def test_types_are_not_merged(tmp_path: Path) -> None:
    _, (finding,) = read(tmp_path / "wiki.md", f"{TABLE}Data set | see | none |\nData-set | shut | none |\n")
    assert "would both be the type `data_set`" in finding.message


def test_blanks_that_do_not_break_are_blanks(tmp_path: Path) -> None:
    policy, found = read(tmp_path / "wiki.md", f"{TABLE}Shop | set&nbsp;owner | READ\u00a0(Shop) |\n")
    assert found == []
    assert rules(policy)["shop", "set_owner"] == "READ (shop)"


@pytest.mark.parametrize(
    "row", ["share | everyone | see below |", "share | everyone | see below | |", "share | everyone | | |"]
)
def test_a_row_whose_condition_is_unreadable_is_no_shifted_row(row: str, tmp_path: Path) -> None:
    text = "Object | Action | Requires | Notes |\n---|---|---|---|\nShop | open | READ (Shop) | |\n"
    policy, (finding,) = read(tmp_path / "wiki.md", f"{text}{row}\n")
    assert finding.span.line == 4
    assert [*rules(policy)] == [("shop", "open")]


def test_a_cell_under_several_headings_is_reported(tmp_path: Path) -> None:
    text = f"{HEAD_HTML}{SEE}<tr><td colspan=2>none</tr></table>"
    policy, (finding,) = read(tmp_path / "wiki.html", text)
    assert finding.message == "one cell stands under several headings"
    assert [*rules(policy)] == [("shop", "see")]


def test_cells_that_span_rows_are_in_each(tmp_path: Path) -> None:
    text = (
        "<table><tr><th>Object<th>Action<th>Requires</tr><tr><td rowspan=3>Shop<td>open<td rowspan=2>READ (Shop)</tr>"
    )
    policy, found = read(tmp_path / "wiki.html", f"{text}<tr><td>see</tr><tr><td>shut<td>none</tr></table>")
    assert found == []
    assert rules(policy) == {
        ("shop", "open"): "READ (shop)",
        ("shop", "see"): "READ (shop)",
        ("shop", "shut"): "anyone",
    }


def test_a_table_without_rows_is_reported(tmp_path: Path) -> None:
    _, (finding,) = read(tmp_path / "wiki.csv", "Object,Action,Requires\n")
    assert finding.message == "the table has no row"


def test_pages_of_other_encodings_are_refused(tmp_path: Path) -> None:
    (tmp_path / "wiki.csv").write_bytes("Object,Action,Requires\nCaf\u00e9,open,none\n".encode("latin-1"))
    with pytest.raises(FileError, match="2:4: not UTF-8"):
        page_source(tmp_path / "wiki.csv")


def test_what_a_workbook_hides_is_named(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    sheet, path = book.active, tmp_path / "wiki.xlsx"
    for row in (
        ("Object", "Action", "Requires", "Only if"),
        ("Shop", "see", "READ (Shop)"),
        (None, "open", "none", "at night"),
        ("=A2", "shut", "none"),
    ):
        sheet.append(row)
    sheet.merge_cells("A2:A3")
    sheet.column_dimensions["D"].hidden = True
    old = book.create_sheet("2019")
    old.append(("Object", "Action", "Requires"))
    old.sheet_state = "hidden"
    book.save(path)
    table_reader = reader()
    policy = table_reader.read(tables(page_source(path)))
    assert [(finding.span.path, finding.span.line, finding.span.column) for finding in table_reader.found] == [
        (f"{path} [Sheet]", 1, 4),
        (f"{path} [Sheet]", 3, 4),
        (f"{path} [Sheet]", 4, 1),
        (f"{path} [2019]", 1, 1),
    ]
    assert "sheet 2019" in str(table_reader.found[-1].help)
    assert [*rules(policy)] == [("shop", "see")]


@pytest.mark.parametrize(
    "more",
    [
        "<tr><td>open<td><p hidden>none or<br>see below</p>none</tr>",
        "<tr><td>open<td><p><s>none or</p><p>see</s></p>none</tr>",
        "<tr><td>open<td><s>a<tr><td>shut<td>none</tr>",
        "<tr><td rowspan=0>open<td>none<td>x</tr>",
        f"<tr><td rowspan={'9' * 5000}>open<td data-cell=x>none<td>x</tr>",
    ],
)
def test_elements_end_where_browsers_end_them(more: str, tmp_path: Path) -> None:
    policy, found = read(tmp_path / "wiki.html", f"{HEAD_HTML}{SEE}{more}</table>")
    assert found
    assert ("shop", "open") not in rules(policy)


def test_rows_and_headings_begin_without_their_tags(tmp_path: Path) -> None:
    text = "<h1>Door</h1><h2>Shop<table><tr><th>Action<th>Requires</tr><td>open<td>none<tr><td>shut<td>none</table>"
    policy, found = read(tmp_path / "wiki.html", text)
    assert found == []
    assert rules(policy) == {("shop", "open"): "anyone", ("shop", "shut"): "anyone"}


@pytest.mark.parametrize("name", ["wiki.xlsx", "wiki.csv"])
def test_broken_files_are_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("a" * 200_000, encoding="utf-8")
    with pytest.raises(FileError, match="cannot read"):
        tables(page_source(tmp_path / name))


@pytest.mark.parametrize("suffix", [".md", ".html"])
def test_a_table_beside_the_rows_of_an_own_page_is_refused(suffix: str) -> None:
    page = PolicyPage(
        program=load_program(SourceFile.load(find_policy("cdap/final"))), revision="", source="privtab: 1\n"
    )
    text = page.markdown() if suffix == ".md" else page.html()
    made = tables(SourceFile.of(f"page{suffix}", text))
    more = "<h2>Shop</h2><table><tr><th>Operation<th>Requires<tr><td>open<td>none</table>"
    (finding,) = edited(tables(SourceFile.of(f"page{suffix}", f"{text}\n\n{more}\n")), made)
    assert finding.message == "the policy of this page has no such table"


@pytest.mark.parametrize(
    "comment", ["<!-- a --!>", "<!-->", "<!--->", "<!-- a -- > none or -->", '<b title="<!--"></b>']
)
def test_comments_end_where_browsers_end_them(comment: str, tmp_path: Path) -> None:
    text = f"{HEAD_HTML}<tr><td>open<td>{comment}READ (entity)</tr>{SEE}</table>"
    policy, found = read(tmp_path / "wiki.html", text)
    assert found == []
    assert rules(policy) == {("shop", "open"): "READ (entity)", ("shop", "see"): "READ (entity)"}


@pytest.mark.parametrize(
    ("operation", "names"),
    [
        ("GET /v1/{name}", ["get_v1_name"]),
        ("Create/edit", ["create_edit"]),
        ("`GET /v1/a`<br>`GET /v1/a?b=1`", ["get_v1_a", "get_v1_a_b_1"]),
        ("[Labels](x.md):<br>Add", ["labels_add"]),
        ("2. Shut", ["shut"]),
        ("SetOwner", ["set_owner"]),
    ],
)
def test_names_are_the_words_of_a_text(operation: str, names: list[str], tmp_path: Path) -> None:
    policy, found = read(tmp_path / "wiki.md", f"{TABLE}Shop | {operation} | none |\n")
    assert found == []
    assert [name for _, name in rules(policy)] == ["open", *names]


def test_two_texts_never_have_one_name(tmp_path: Path) -> None:
    policy, (finding,) = read(
        tmp_path / "wiki.md", f"{TABLE}Shop | Create/edit | none |\nShop | Create, edit | anyone |\n"
    )
    assert "would both be the operation `create_edit`" in finding.message
    assert len(rules(policy)) == 2


@pytest.mark.parametrize(
    ("cell", "condition"),
    [
        ("READ", "READ (entity)"),
        ("Read", "Read (entity)"),
        ("CREATE TABLE", '"CREATE TABLE" (entity)'),
        ("READ and WRITE", "READ (entity) and WRITE (entity)"),
        ("ReadAcl or ReadAll", "ReadAcl (entity) or ReadAll (entity)"),
        ("cluster:admin/x/get", "cluster:admin.x.get (entity)"),
    ],
)
def test_privileges_without_a_target_are_on_the_entity(cell: str, condition: str, tmp_path: Path) -> None:
    policy, found = read(tmp_path / "wiki.md", f"{TABLE}Shop | shut | {cell} |\n")
    assert found == []
    assert rules(policy)["shop", "shut"] == condition


def test_tables_that_name_no_type_have_one_root(tmp_path: Path) -> None:
    text = "| Action | Requires |\n|---|---|\n| open | READ (entity) |"
    assert [*rules(read(tmp_path / "wiki.md", text)[0])] == [("system", "open")]
    assert [*rules(read(tmp_path / "wiki.md", text, entity="shop")[0])] == [("shop", "open")]
    policy, found = read(tmp_path / "wiki.md", text, entity="shop", inside={})
    assert (found, "entities:\n  shop: {}" in (policy or "")) == ([], True)


@pytest.mark.parametrize(("several", "word"), [("any", "or"), ("all", "and")])
def test_several_rows_of_an_operation_are_combined_as_said(several: str, word: str, tmp_path: Path) -> None:
    more = "Shop | open | WRITE (Shop) |\n"
    policy, found = read(tmp_path / "wiki.md", TABLE + more, several=several)
    assert found == []
    assert rules(policy) == {("shop", "open"): f"(READ (shop)) {word} (WRITE (shop))"}
    policy, (finding,) = read(tmp_path / "wiki.md", f"{TABLE}{more}Shop | open | see below |\n", several=several)
    assert finding.span.line == 5
    assert bool(rules(policy)) == (several == "any")


def test_privileges_and_their_objects_may_be_in_two_columns(tmp_path: Path) -> None:
    head = "API (key) | Operation | Resource | Note |\n---|---|---|---|\n"
    rows = "PRODUCE (0) | Write | Topic | |\nPRODUCE (0) | Write | Cluster | |\nFETCH (1) | Read | Topic | from 2.0 |\nLIST (2) | Read | Topic | |\nDROP (3) | Write | Topic | |\n"
    policy, found = read(tmp_path / "wiki.md", head + rows)
    assert found == []
    assert rules(policy) == {
        ("topic", "produce_0"): "Write (entity)",
        ("topic", "fetch_1"): "Read (entity)",
        ("topic", "list_2"): "Read (entity)",
        ("topic", "drop_3"): "Write (entity)",
        ("cluster", "produce_0"): "Write (entity)",
    }


def test_a_cell_may_name_several_calls(tmp_path: Path) -> None:
    head = "Object type | Privilege name | Relevant API description |\n---|---|---|\n"
    rows = "Shop | Load | LoadShop/GetLoadState |\nShop | Drop | DropShop |\nShop | List | ListShops |\nShop | Own | CreateUser CreateRole |\nShop | Look | SeeShop |\nShop | All | All API calls |\n"
    policy, (finding,) = read(tmp_path / "wiki.md", head + rows)
    assert "cannot read `All`" in finding.message
    assert {name: text for (_, name), text in rules(policy).items()} == {
        "load_shop": "Load (entity)",
        "get_load_state": "Load (entity)",
        "drop_shop": "Drop (entity)",
        "list_shops": "List (entity)",
        "create_user": "Own (entity)",
        "create_role": "Own (entity)",
        "see_shop": "Look (entity)",
    }


def test_privileges_with_what_they_are_granted_on_are_rows(tmp_path: Path) -> None:
    text = "Privilege | Levels | Description\n---|---|---\n`ALL` | Shop, Door | all\n`DROP` | Shop, Door | drops\n`ZONE CONFIG` | Door |\n"
    policy, (finding,) = read(tmp_path / "wiki.md", text, inside={})
    assert "cannot read `ALL`" in finding.message
    assert rules(policy) == {
        ("shop", "drop"): "DROP (entity)",
        ("door", "drop"): "DROP (entity)",
        ("door", "zone_config"): '"ZONE CONFIG" (entity)',
    }


def test_the_nearest_heading_is_the_type_of_operations(tmp_path: Path) -> None:
    table = "| Action | Requires |\n|---|---|\n| open | READ (entity) |\n"
    policy, found = read(
        tmp_path / "wiki.md", f"# Lake permissions\n\n## Shop\n\n{table}\n## Door\n\n{table}", inside={}
    )
    assert found == []
    assert [*rules(policy)] == [("shop", "open"), ("door", "open")]
