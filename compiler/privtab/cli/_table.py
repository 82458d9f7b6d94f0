"""The table of all commands: Rich's, with a faster layout of plain ASCII cells, since lists may have thousands of rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.table import Table as RichTable

GAP = 2
"""Spaces between columns."""
_WORD = re.compile(r"\s*\S+\s*")


class Table(RichTable):
    """A table without lines. Cells that do not fit their column are wrapped between words; longer words are cut."""

    def __init__(self, *columns: str, right: Sequence[str] = ()) -> None:
        super().__init__(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0))
        for column in columns:
            self.add_column(column, justify="right" if column in right else "left", overflow="fold")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Rich's layout, computed here for headers of one line and cells without styles or characters of another width."""
        columns = self._plain_columns()
        widths = _widths([max(map(_width, column)) for column in columns], options.max_width)
        if not widths or any(len(wrapped(column[0], width)) > 1 for column, width in zip(columns, widths, strict=True)):
            yield from super().__rich_console__(console, options)
            return
        bold, gap = Style(bold=True), " " * GAP
        plain: list[str] = []
        for number, row in enumerate(zip(*columns, strict=True)):
            cells = [wrapped(cell, width) for cell, width in zip(row, widths, strict=True)]
            for line in zip_longest(*cells, fillvalue=""):
                parts = [
                    part.rstrip().rjust(width) if column.justify == "right" else part.ljust(width)
                    for column, part, width in zip(self.columns, line, widths, strict=True)
                ]
                if number:
                    plain.append(gap.join(parts) + "\n")
                else:
                    for part in parts[:-1]:
                        yield from (Segment(part, bold), Segment(gap, bold))
                    yield from (Segment(parts[-1], bold), Segment.line())
        if plain:
            yield Segment("".join(plain))

    def _plain_columns(self) -> list[list[str]]:
        """The header and the cells of each column; empty unless all of them are ASCII text without a style."""
        if any(row.style for row in self.rows):
            return []
        found: list[list[str]] = []
        for column in self.columns:
            cells = [column.header, *column.cells]
            texts = [cell for cell in cells if isinstance(cell, str)]
            shown = "".join(texts).replace("\n", "")
            if len(texts) < len(cells) or not (shown and shown.isascii() and shown.isprintable()):
                return []
            found.append(texts)
        return found


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
