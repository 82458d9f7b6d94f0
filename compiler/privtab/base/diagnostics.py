"""Findings as values (where something is wrong in a file, what it is, and what to do about it) and as text, with carets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from enum import StrEnum
from typing import Any, Generic, TypeVar
from unicodedata import combining, east_asian_width

from privtab.base.lazy import pattern
from privtab.base.nodes import dataclass
from privtab.base.printable import printable_text

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Span:
    """A place in a file: 1-based lines and columns, the end exclusive.

    >>> Span(path="lake.yaml", line=3, column=7, end_line=3, end_column=9).line
    3
    """

    path: str
    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True, slots=True)
class Located(Generic[T_co]):
    """A value and the position it was read from.

    >>> place = Span(path="lake.yaml", line=3, column=7, end_line=3, end_column=9)
    >>> Located("SELECT", place).value
    'SELECT'
    """

    value: T_co
    span: Span

    def part(self: Located[str], start: int, end: int) -> Located[str]:
        """A part of a text; of a quoted text, with the span of the whole text."""
        span = self.span
        if span.line == span.end_line and span.end_column - span.column == len(self.value):
            span = replace(span, column=span.column + start, end_column=span.column + end)
        return Located(self.value[start:end], span)


class Severity(StrEnum):
    """The severity of a finding; only errors stop a compilation.

    >>> str(Severity.WARNING)
    'warning'
    """

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One finding: a code and a name, a message, a position, and a computed hint.

    `fix` is the text that corrects the file if it replaces the span.

    >>> place = Span(path="lake.yaml", line=3, column=7, end_line=3, end_column=9)
    >>> found = Diagnostic(code="P104", name="unknown-privilege", severity=Severity.ERROR, message="unknown", span=place)
    >>> print(found.render())
    lake.yaml:3:7: error[P104 unknown-privilege]: unknown
    """

    code: str
    name: str
    severity: Severity
    message: str
    span: Span
    help: str | None = None
    related: tuple[Located[str], ...] = ()
    """Second positions that belong to the finding, and what they are."""
    fix: str | None = None

    def __lt__(self, other: Diagnostic) -> bool:
        return self.in_order() < other.in_order()

    def in_order(self) -> tuple[Span, str, str]:
        """The position, the code and the message, by which findings are sorted."""
        return self.span, self.code, self.message

    def to_json(self) -> dict[str, Any]:
        """The finding as one flat JSON object."""
        return {
            "code": self.code,
            "name": self.name,
            "severity": str(self.severity),
            "message": self.message,
            "help": self.help,
            **asdict(self.span),
            "related": [{"message": related.value, **asdict(related.span)} for related in self.related],
        }

    def render(self, source: str | None = None, *, color: bool = False) -> str:
        """The finding as text; with the line and carets below its span if `source`, the text of its file, is given."""
        return render([self], {} if source is None else {self.span.path: source}, color=color)


@dataclass(frozen=True, slots=True)
class FindingKind:
    """The common part of all findings of one code.

    >>> place = Span(path="lake.yaml", line=3, column=7, end_line=3, end_column=9)
    >>> unknown = FindingKind("P104", "unknown-privilege", Severity.ERROR)
    >>> unknown.at(place, "unknown privilege `MODIFIY`", "did you mean `MODIFY`?").code
    'P104'
    """

    code: str
    name: str
    severity: Severity

    def at(
        self,
        span: Span,
        message: str,
        advice: str | None = None,
        *,
        related: tuple[Located[str], ...] = (),
        fix: str | None = None,
    ) -> Diagnostic:
        """A finding of this kind; `advice` is its hint."""
        return Diagnostic(
            code=self.code,
            name=self.name,
            severity=self.severity,
            message=message,
            span=span,
            help=advice,
            related=related,
            fix=fix,
        )


_COLORS = {Severity.ERROR: "\x1b[1;31m", Severity.WARNING: "\x1b[1;33m", Severity.NOTE: "\x1b[1;36m"}
_BOLD, _BLUE, _OFF = "\x1b[1m", "\x1b[1;34m", "\x1b[0m"
LINE_END = pattern(r"\r\n|\n|\r")
"""The ends of the lines by which places in files are counted."""
_WIDTH = 160
"""Longer lines are cut around the span."""


def render(diagnostics: Iterable[Diagnostic], sources: Mapping[str, str], *, color: bool = False) -> str:
    """Render every finding, with blank lines between them; `sources` holds the texts of files by the paths in spans.

    A finding in a file without text is shown without its line.
    """
    lines = {path: LINE_END.split(text) for path, text in sources.items()}
    return "\n\n".join(_rendered(d, lines, color=color) for d in diagnostics)


def shown_columns(line: str, start: int, end: int) -> tuple[str, int, int]:
    r"""A line of a file as it is printed, and the positions of the characters from `start` to `end` in it.

    >>> shown_columns("\x1b[2Jgone", 4, 8)
    ('\\x1b[2Jgone', 7, 11)
    """
    shown = printable_text(line, one_line=True)
    beyond_end = max(0, end - len(line))
    return shown, _shown_offset(line, start), _shown_offset(line, min(end, len(line))) + beyond_end


def _shown_offset(line: str, offset: int) -> int:
    return len(printable_text(line[:offset], one_line=True)) + max(0, offset - len(line))


def _rendered(diagnostic: Diagnostic, lines: Mapping[str, list[str]], *, color: bool) -> str:
    span = diagnostic.span
    place = _place(span)
    kind = f"{diagnostic.severity}[{diagnostic.code} {diagnostic.name}]:"
    if color:
        place = f"{_BOLD}{place}{_OFF}"
        kind = f"{_COLORS[diagnostic.severity]}{kind}{_OFF}"
    parts = [f"{place} {kind} {printable_text(diagnostic.message)}", *_excerpt(span, lines, color=color)]
    for related in diagnostic.related:
        parts.append(f"  {_place(related.span)} {printable_text(related.value)}")
        parts.extend(_excerpt(related.span, lines, color=color))
    if diagnostic.help:
        word = f"{_BOLD}help:{_OFF}" if color else "help:"
        parts.append(f"  {word} {printable_text(diagnostic.help)}")
    return "\n".join(parts)


def _place(span: Span) -> str:
    return printable_text(f"{span.path}:{span.line}:{span.column}:", one_line=True)


def _excerpt(span: Span, lines: Mapping[str, list[str]], *, color: bool) -> list[str]:
    """The first line of the span with carets below; tabs are kept so that the carets line up."""
    file_lines = lines.get(span.path)
    if file_lines is None or not 1 <= span.line <= len(file_lines):
        return []
    line = file_lines[span.line - 1]
    if not line.strip() and span.column > len(line) + 1:
        return []
    end = span.end_column - 1 if span.end_line == span.line else len(line)
    line, start, end = shown_columns(line, span.column - 1, max(end, span.column))
    if len(line) > _WIDTH:
        cut = max(0, min(start - _WIDTH // 3, len(line) - _WIDTH))
        prefix = "…" if cut else ""
        suffix = "…" if cut + _WIDTH < len(line) else ""
        line = prefix + line[cut : cut + _WIDTH] + suffix
        start, end = start - cut + len(prefix), min(end - cut + len(prefix), len(line))
    gutter = f"{span.line:>4} | "
    blank = " " * (len(gutter) - 2) + "| "
    indent = "".join("\t" if c == "\t" else " " * _cells(c) for c in line[:start]) + " " * max(0, start - len(line))
    carets = "^" * max(1, sum(_cells(c) for c in line[start:end]))
    if color:
        return [f"{_BLUE}{gutter}{_OFF}{line}", f"{_BLUE}{blank}{_OFF}{indent}{_BLUE}{carets}{_OFF}"]
    return [f"{gutter}{line}".rstrip(), f"{blank}{indent}{carets}"]


def _cells(character: str) -> int:
    """The number of columns that a character takes on a terminal."""
    if combining(character):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1
