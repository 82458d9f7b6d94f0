"""Lists and tables, which may have thousands of rows, laid out without Rich."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, TypeVar

from privtab.base.lazy import pattern
from privtab.base.printable import no_formula

T = TypeVar("T")

GAP = 2
"""Spaces between columns."""
_WORD = pattern(r"\s*\S+\s*")


class Printer:
    """What prints lines: a `Terminal`, or what stands for it where nothing has a style."""

    file: Any
    print: Callable[..., None]

    def print_csv(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Print a table as CSV, without cells that spreadsheets would take for formulas."""
        import csv

        writer = csv.writer(self.file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([no_formula(str(cell)) for cell in row] for row in rows)

    def more(
        self, number: int, noun: str = "", how: str = "`--limit 0` lists them", *, indent: int = 0, apart: bool = False
    ) -> None:
        """Print how many things of a list were left out, if any, and what shows them; `apart`: below an empty line."""
        if number > 0:
            if apart:
                self.print()
            self.print(f"{' ' * indent}… and {number:,} more{noun and ' '}{noun}; {how}", style="dim")

    def first(self, things: Sequence[T], most: int, noun: str = "", **left_out: Any) -> Iterator[T]:
        """Yield the first of some things, 0 for all, and then print as `more` does how many were left out."""
        shown = things[: most or None]
        yield from shown
        self.more(len(things) - len(shown), noun, **left_out)


def plain_columns(columns: Iterable[Iterable[Any]]) -> list[list[str]]:
    """The header and the cells of each column; empty unless all of them are ASCII text without a style."""
    found: list[list[str]] = []
    for column in columns:
        cells = list(column)
        texts = [cell for cell in cells if isinstance(cell, str)]
        shown = "".join(texts).replace("\n", "")
        if len(texts) < len(cells) or not (shown and shown.isascii() and shown.isprintable()):
            return []
        found.append(texts)
    return found


def laid_out(columns: Sequence[Sequence[str]], right: Sequence[bool], available: int) -> Iterator[list[str]] | None:
    """The cells of each line of a table, the header first, padded; None where its header has several lines, or it has no column."""
    widths = _widths([max(map(_width, column)) for column in columns], available)
    if not widths or any(len(wrapped(column[0], width)) > 1 for column, width in zip(columns, widths, strict=True)):
        return None
    return (
        [
            part.rstrip().rjust(width) if is_right else part.ljust(width)
            for is_right, part, width in zip(right, line, widths, strict=True)
        ]
        for row in zip(*columns, strict=True)
        for line in zip_longest(*(wrapped(cell, width) for cell, width in zip(row, widths, strict=True)), fillvalue="")
    )


def _width(text: str) -> int:
    return max(map(len, text.split("\n")))


def _widths(desired: Sequence[int], available: int) -> list[int]:
    """The widths of the columns: as wanted, or with the widest ones narrowed; empty if that leaves too little, or no column."""
    gaps = [GAP] * (len(desired) - 1) + [0] * bool(desired)
    widths = [min(width + gap, available) for width, gap in zip(desired, gaps, strict=True)]
    while (excess := sum(widths) - available) > 0:
        widest = max(widths)
        most = min(excess, widest - max((width for width in widths if width < widest), default=0))
        sharing = widths.count(widest)
        for index, width in enumerate(widths):
            if width == widest:
                less = min(most, round(excess / sharing))
                widths[index] -= less
                excess, sharing = excess - less, sharing - 1
    found = [width - gap for width, gap in zip(widths, gaps, strict=True)]
    return found if min(found, default=0) > 0 else []


def wrapped(text: str, width: int) -> list[str]:
    """The lines of a cell in a column of this width."""
    lines: list[str] = []
    for line in text.split("\n"):
        lines += [line] if len(line) <= width else _divided(line, width)
    return lines


def _divided(line: str, width: int) -> Iterator[str]:
    breaks: list[int] = []
    column = 0
    for found in _WORD.finditer(line):
        start, length = found.start(), len(found[0].rstrip())
        if column + length <= width:
            column += len(found[0])
        elif length > width:
            pieces = range(start, found.end(), width)
            breaks += pieces
            column = found.end() - pieces[-1]
        elif column and start:
            breaks.append(start)
            column = len(found[0])
    breaks = [place for place in breaks if place]
    for start, end in zip([0, *breaks], [*breaks, len(line)], strict=True):
        yield line[start:end].rstrip()[:width] if end - start > width else line[start:end]
