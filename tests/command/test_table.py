"""Tables and texts that are printed without Rich look like Rich's."""

from __future__ import annotations

from contextlib import redirect_stdout
from io import StringIO

from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from privtab.command import lint
from privtab.command._output import _Plain, recorder, table
from privtab.command._terminal import Table, Terminal

CELLS = st.text(st.sampled_from("abc  \n"), max_size=40)
COUNTS = st.integers(1, 5)


@settings(deadline=None)
@given(
    st.integers(1, 90),
    st.booleans(),
    COUNTS.flatmap(
        lambda columns: st.lists(st.lists(CELLS, min_size=columns, max_size=columns), min_size=1, max_size=5)
    ),
)
@example(30, True, [["name", "a long header"], ["a b c d e f g h", "x" * 70], ["", "two\nlines"]])
def test_the_layout_is_rich_s(width: int, right: bool, rows: list[list[str]]) -> None:
    header, *cells = rows
    header = [f"{name}{number}" for number, name in enumerate(header)]
    right_columns = header[:1] if right else ()
    ours = Table(*header, right=right_columns)
    for row in cells:
        ours.add_row(*row)
    for color in (None, "standard"):
        printed = []
        for render in (Table.__rich_console__, RichTable.__rich_console__):
            console = Terminal(
                file=StringIO(), width=width, color_system=color, force_terminal=color is not None, highlight=False
            )
            console.print(_Rendered(ours, render))
            printed.append(console.file.getvalue())
        assert printed[0] == printed[1] != ""
    file, expected = StringIO(), StringIO()
    with redirect_stdout(file):
        _Plain(stderr=False).print(table(*header, rows=cells, right=right_columns), width=width)
    Terminal(file=expected, width=_Plain(stderr=False).width, color_system=None).print(ours, width=width)
    assert file.getvalue() == expected.getvalue()


class _Rendered:
    """A table as one of the two methods renders it."""

    def __init__(self, shown, render) -> None:  # type: ignore[no-untyped-def]
        self.__rich_console__ = lambda console, options: render(shown, console, options)


def test_a_table_with_a_style_is_laid_out_by_rich() -> None:
    for kind in ("row", "cell", "column", "header"):
        grid, ours = table("a", "b"), Table("a", "b")
        for shown in (grid, ours):
            shown.add_row(
                "1", Text("2", style="bold") if kind == "cell" else "2", style="bold" if kind == "row" else None
            )
            if kind == "column":
                shown.columns[0].style = "bold"
            if kind == "header":
                shown.show_header = False
            shown.add_row("3", "4")
        file, expected = StringIO(), StringIO()
        with redirect_stdout(file):
            _Plain(stderr=False).print(grid)
        recorder(expected, width=160).print(ours)
        assert file.getvalue() == expected.getvalue() != ""


TEXTS = st.text(st.sampled_from("abc  \n\t\x1b[]é漢:"), max_size=90)


@settings(deadline=None)
@given(TEXTS, st.booleans(), st.sampled_from(["", "\n"]))
@example("a b" * 30, True, "\n")
def test_a_text_is_printed_as_by_rich(text: str, wrap: bool, end: str) -> None:
    for printed in (text, Text(text, style="bold")):
        file, expected = StringIO(), StringIO()
        recorder(file, width=40).print(printed, style="dim", end=end, soft_wrap=not wrap)
        Console.print(recorder(expected, width=40), printed, style="dim", end=end, soft_wrap=not wrap)
        assert file.getvalue() == expected.getvalue()
    for options in ({"soft_wrap": not wrap}, {}, {"width": 40}, {"width": 40, "soft_wrap": True}):
        file, expected = StringIO(), StringIO()
        with redirect_stdout(file):
            _Plain(stderr=False).print(text, end=end, **options)
            _Plain(stderr=False).print_styled((text, "bold"), " and ", text, end=end, **options)
        console = recorder(expected, width=_Plain(stderr=False).width)
        console.print(text, end=end, **options)
        console.print_styled((text, "bold"), " and ", text, end=end, **options)
        assert file.getvalue() == expected.getvalue()


@settings(deadline=None)
@given(st.text(st.sampled_from("abc  \té漢"), max_size=200))
@example("word " * 40)
@example("x" * 150 + " y")
def test_indented_prose_is_laid_out_as_by_rich(text: str) -> None:
    file, expected = StringIO(), StringIO()
    lint._print_indented([text], recorder(file), 60)
    recorder(expected).print(Padding(Text(text), (0, 0, 0, 10), expand=False), width=60)
    assert file.getvalue() == expected.getvalue()
