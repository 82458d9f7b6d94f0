"""Pages as people see them: what the readers of the formats make of cells, headings, places and spans."""

from __future__ import annotations

from pathlib import Path

import pytest

from privtab.base import FileError, SourceFile
from privtab_pages.page_files import page_of, page_source, tables
from privtab_pages.tables import Table


def texts(table: Table) -> list[list[str]]:
    return [[cell.text for cell in row.cells] for row in (table.header, *table.rows)]


def only(name: str, text: str) -> Table:
    (table,) = tables(SourceFile.of(name, text))
    return table


@pytest.mark.parametrize(
    "text",
    [
        "Action,Admin\nopen,x\n",
        "Action;Admin\nopen;x\n",
        "Action\tAdmin\nopen\tx\n",
        "sep=|\nAction|Admin\nopen|x\n",
        "Doors of the shop\n\nAction;Admin\nopen;x\n",
        '"Action";"Admin"\r\n"open";"x"\r\n',
    ],
)
def test_columns_of_csv_are_told_apart(text: str) -> None:
    assert texts(only("page.csv", text)) == [["Action", "Admin"], ["open", "x"]]


def test_a_title_above_the_header_is_a_heading() -> None:
    assert only("page.csv", "Doors;;\nAction;Admin;Guest\nopen;x;\n").headings == ("Doors",)


def test_two_ways_to_tell_columns_apart_are_refused() -> None:
    with pytest.raises(FileError, match="apart by `,` or `;`"):
        tables(SourceFile.of("page.csv", "a,b;c\nd,e;f\n"))


def test_utf_16_is_read_and_latin_1_refused(tmp_path: Path) -> None:
    path = tmp_path / "page.csv"
    path.write_bytes("Action;Admin\n\u00f6ffnen;x\n".encode("utf-16"))
    assert texts(only("page.csv", page_source(path).text))[1] == ["\u00f6ffnen", "x"]
    path.write_bytes("Action;Admin\n\u00f6ffnen;x\n".encode("latin-1"))
    with pytest.raises(FileError, match="2:1: not UTF-8"):
        page_source(path)


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (":white_check_mark:", ":white_check_mark:"),
        ("![yes](a.png)", "\u27e6yes\u27e7"),
        ("![](a.png)", "\u27e6img\u27e7"),
        ('<img src="a.png" alt="no">', "\u27e6no\u27e7"),
        ('<Icon icon="square-check" iconType="solid" />', "\u27e6square-check\u27e7"),
        ('<Icon icon="xmark" /> own', "\u27e6xmark\u27e7 own"),
        ('<i class="fa fa-check"></i>', "\u27e6fa fa-check\u27e7"),
        ("<i>own</i>", "own"),
        ('<input type="checkbox" checked disabled>', "\u27e6checked\u27e7"),
        ("<svg><title>yes</title></svg>", "\u27e6yes\u27e7"),
        ("View<br></br>Edit", "View\nEdit"),
        ("<ul><li>View</li><li>Edit</li></ul>", "View\nEdit"),
        ("a \\| b", "a | b"),
        ("`a \\| b`", "a | b"),
        ("[Docs](x.md):<br>View *all*", "Docs:\nView all"),
        ("a&nbsp;b &lt;c&gt;", "a b <c>"),
    ],
)
def test_cells_are_what_people_see(cell: str, text: str) -> None:
    page = f"---\ntitle: a | b\n---\nimport X from 'y'\n\n# Door\n\n| Action | Admin |\n|---|---|\n| open | {cell} |\n"
    table = only("page.mdx", page)
    assert texts(table)[1] == ["open", text]
    span = table.rows[0].cells[1].span
    assert (span.line, span.column) == (10, 10)


def test_raised_texts_are_notes() -> None:
    table = only("page.html", "<table><tr><td>open<sup>1)</sup><td><b>x</b></table>")
    first, second = table.header.cells
    assert (first.text, first.notes, first.bold, second.bold) == ("open", ("1)",), False, True)


def test_headings_are_a_path() -> None:
    table = "<table><caption>Roles</caption><tr><td>a<td>b</table>"
    page = f"<h1>Lake</h1><h2>Old</h2><h2>Views</h2><p><b>Who may</b></p>{table}<h2>Files</h2><p>text <b>bold</b></p>{table}"
    assert [found.headings for found in tables(SourceFile.of("page.html", page))] == [
        ("Lake", "Views", "Who may", "Roles"),
        ("Lake", "Files", "Roles"),
    ]


def test_the_lines_around_tables_are_kept() -> None:
    page = page_of(SourceFile.of("page.md", "Y: allowed\n\n| a | b |\n|---|---|\n| c | d |\n\n(1) by night\n"))
    assert page.lines == ("Y: allowed", "(1) by night")


def test_two_rows_of_headings_are_one() -> None:
    head = "<thead><tr><th rowspan=2>Action<th colspan=2>Cloud<th colspan=2>Local<tr><th>Admin<th>User<th>Admin<th>Guest</thead>"
    table = only("page.html", f"<table>{head}<tr><td>open<td>1<td>2<td>3<td>4</table>")
    assert texts(table) == [["Action", "Cloud Admin", "User", "Local Admin", "Guest"], ["open", "1", "2", "3", "4"]]


def test_spans_end_with_their_part_of_the_table() -> None:
    body = "<tbody><tr><td rowspan=9>a<td>b<tr><td>c</tbody><tbody><tr><td>d<td>e</tbody>"
    table = only("page.html", f"<table><tr><th>A<th>B{body}</table>")
    assert texts(table)[1:] == [["a", "b"], ["a", "c"], ["d", "e"]]


@pytest.mark.parametrize("count", [500, 5_000, 100_000])
def test_elements_without_end_are_refused(count: int) -> None:
    with pytest.raises(FileError, match=r"within each other|are not closed"):
        tables(SourceFile.of("page.html", "<div>" * count + "<table><tr><td>a"))


@pytest.mark.parametrize("mark", ['=== "Cloud"', "!!! note", '???+ "Cloud"'])
def test_tables_in_tabs_are_read(mark: str) -> None:
    page = f"# Doors\n\n{mark}\n\n    | Action | Admin |\n    |---|---|\n    | open | x |\n\ntext\n"
    table = only("page.md", page)
    assert texts(table) == [["Action", "Admin"], ["open", "x"]]
    assert (table.rows[0].cells[1].span.line, table.rows[0].cells[1].span.column) == (7, 14)


def test_tables_that_place_others_are_none() -> None:
    inner = "<table><tr><th>Action<th>Admin<tr><td>open<td>x</table>"
    table = only("page.html", f"<table><tr><td><h2>Doors</h2>{inner}</table>")
    assert (table.headings, texts(table)) == (("Doors",), [["Action", "Admin"], ["open", "x"]])
