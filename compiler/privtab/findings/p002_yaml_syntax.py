"""P002: the text is not YAML."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privtab.diagnostics import Diagnostic, FindingKind, Related, Severity

if TYPE_CHECKING:
    from yaml import YAMLError

    from privtab.source import SourceFile

KIND = FindingKind("P002", "yaml-syntax", Severity.ERROR)

_ADVICE = (
    ("mapping values are not allowed", "put text that holds `: ` in quotes, and check the indentation of this line"),
    ("expected ',' or ']'", "close the list with `]`, or separate its items by commas"),
    ("expected ',' or '}'", "close the mapping with `}`, or separate its entries by commas"),
    ("expected <block end>", "lines that belong together must be indented by the same number of spaces"),
    ("did not find expected key", "lines that belong together must be indented by the same number of spaces"),
    ("could not find expected ':'", "a key is followed by `: ` and its value"),
    ("unexpected end of stream", "a quoted text is not closed"),
    ("cannot start any token", "put the text in quotes"),
)


def finding(source: SourceFile, error: YAMLError) -> Diagnostic:
    """Build the finding for an `error` of the YAML parser."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    offset = mark.index if mark is not None else getattr(error, "position", 0)
    offset = min(offset if isinstance(offset, int) else 0, len(source.text))
    problem = str(getattr(error, "problem", None) or getattr(error, "reason", None) or "the text is not YAML")
    context = getattr(error, "context", None)
    message = f"{context}: {problem}" if context and not problem.startswith("mapping") else problem
    help_: str | None
    if source.text[offset : offset + 1] == "\t":
        message, help_ = "a tab cannot indent YAML", "use spaces"
    else:
        help_ = next((advice for sign, advice in _ADVICE if sign in problem), None)
    return KIND.at(
        source.span(offset, min(offset + 1, max(offset, len(source.text)))),
        message,
        help_,
        related=_opening(source, error, offset),
    )


def _opening(source: SourceFile, error: YAMLError, offset: int) -> tuple[Related, ...]:
    """The start of the text that the YAML parser could not finish."""
    mark = getattr(error, "context_mark", None)
    if mark is None or mark.index >= offset:
        return ()
    return (Related(message="it begins here", span=source.span(mark.index, mark.index + 1)),)
