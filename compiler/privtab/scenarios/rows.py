"""The row of a policy file as its author wrote it."""

from __future__ import annotations

from functools import lru_cache
from itertools import takewhile
from pathlib import Path

from privtab.diagnostics import Span

MOST_LINES = 8
"""How much of a row is shown."""


def row_lines(span: Span, most: int = MOST_LINES) -> list[str]:
    """The line of a row's key and what is indented below it; nothing where the file is gone."""
    lines = _lines(span.path)[span.line - 1 :]
    indent = len(lines[0]) - len(lines[0].lstrip()) if lines else 0
    below = takewhile(lambda line: line.startswith(" " * (indent + 1)), lines[1:most])
    return [line[indent:].rstrip() for line in [*lines[:1], *below]]


@lru_cache(maxsize=16)
def _lines(path: str) -> tuple[str, ...]:
    try:
        return tuple(Path(path).read_text(encoding="utf-8").splitlines())
    except OSError:
        return ()
