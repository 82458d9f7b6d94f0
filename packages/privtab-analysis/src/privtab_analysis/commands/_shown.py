"""Rows and conditions as the commands that answer questions show them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile
from typing import TYPE_CHECKING

from privtab.base import FileError, read_text

if TYPE_CHECKING:
    from privtab.base import Span
    from privtab.command import Terminal
    from privtab.ir import Program, Rule


MOST_LINES = 8
"""Maximum lines shown of a row's source."""
NARROWEST = 60
"""Minimum width before the column of positions."""
WIDEST = 120
"""Column at which lists are wrapped, even on wider terminals."""


def show_rule(console: Terminal, program: Program, rule: Rule) -> None:
    """Print a rule with its source text, its position, and the document it comes from."""
    console.print()
    console.print_styled(("rule  ", "dim"), rule.id, (f"  {rule.span.path}:{rule.span.line}", "dim"))
    for line in _source(rule.span):
        console.print(f"      {line}")
    if rule.source is not None:
        line = "" if rule.source.line is None else f" line {rule.source.line}"
        source_name = next(
            (name for name, document in program.sources.items() if document == rule.source.document), None
        )
        suffix = "" if source_name is None else f" ({source_name})"
        console.print_styled(("from  ", "dim"), f"{rule.source.document}{line}{suffix}")


def show_words(
    console: Terminal, head: str, words: Iterable[str], *, margin: int, gap: str = " ", style: str = ""
) -> None:
    """Print words after a head, wrapped in the column of the first one: `margin`, or further right after a long head."""
    console.print(head, style=style, end="")
    column = max(margin, len(head))
    for number, word in enumerate(words):
        if number and column + len(gap) + len(word) > min(console.width, WIDEST):
            console.print()
            console.print(" " * margin, end="")
            column = margin
        elif number:
            console.print(gap, end="")
            column += len(gap)
        console.print(word, style="dim" if word.startswith("[") else "", end="")
        column += len(word)
    console.print()


def show_rows(console: Terminal, rows: Iterable[tuple[str, str]], *, indent: int = 6) -> None:
    """Print lines of text, each with a position: in one column if the width allows, else at the right edge."""
    row_list = list(rows)
    position_column = max([NARROWEST, *(indent + len(text) for text, place in row_list if place)]) + 2
    fits_one_column = all(position_column + len(place) <= console.width for _, place in row_list)
    for text, place in row_list:
        console.print(" " * indent + text, end="")
        if fits_one_column and place:
            console.print(" " * (position_column - indent - len(text)) + place, style="dim")
        else:
            show_place(console, place, at=indent + len(text), column=console.width)


def show_place(console: Terminal, place: str, *, at: int, column: int = 0) -> None:
    """End a line, printed up to column `at`, with a position; on a line of its own if it does not fit.

    `column`: where the position ends; 0 for right after the line.
    """
    if place and at + 2 + len(place) > console.width:
        console.print()
        at = 0
        column = console.width
    gap = max(2 if at else 0, column - len(place) - at)
    console.print(" " * gap + place if place else "", style="dim")


def _source(span: Span) -> list[str]:
    """The source of a row: the line of its key and the lines indented below; empty if the file is missing."""
    try:
        lines = read_text(span.path).split("\n")[span.line - 1 :]
    except FileError:
        return []
    indent = len(lines[0]) - len(lines[0].lstrip()) if lines else 0
    continuation = takewhile(lambda line: line.startswith(" " * (indent + 1)), lines[1:MOST_LINES])
    return [line[indent:].rstrip() for line in [*lines[:1], *continuation]]
