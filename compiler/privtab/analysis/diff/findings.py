"""A diff as findings, for tools that show findings next to lines."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from privtab.analysis.diff.nodes import Diff, RowChange, Verdict
from privtab.analysis.diff.summary import answers_text, holding_texts, request_text
from privtab.diagnostics import Diagnostic, Related, Severity, Span

CODES = {
    Verdict.WIDER: ("D101", "operation-wider", "An operation is allowed to more callers, or gives them more."),
    Verdict.NARROWER: ("D102", "operation-narrower", "An operation is allowed to fewer callers, or gives them less."),
    Verdict.INCOMPARABLE: (
        "D103",
        "operation-incomparable",
        "An operation gained callers or effects, and lost others.",
    ),
    Verdict.ADDED: ("D104", "operation-added", "An operation is new."),
    Verdict.REMOVED: ("D105", "operation-removed", "An operation is gone."),
    Verdict.RENAMED: ("D106", "operation-renamed", "An operation or its entity has another name."),
    Verdict.UNKNOWN: ("D107", "operation-unknown", "Whether an operation is allowed to others was not decided."),
}
"""For each verdict, the code, the name and the meaning of its finding."""


def findings(diff: Diff, failing: Collection[Verdict]) -> Iterator[tuple[Diagnostic, RowChange]]:
    """One finding for each changed operation, at its row: an error if it fails the run, else a note."""
    file = next((row.after.span.path for row in diff.rows if row.after is not None), None)
    for row in diff.changes:
        span = _span(row, file)
        code, name, _ = CODES[row.verdict]
        yield (
            Diagnostic(
                code=code,
                name=name,
                severity=Severity.ERROR
                if row.verdict in failing or (failing and row.verdict is Verdict.UNKNOWN)
                else Severity.NOTE,
                message=message(row),
                span=span,
                related=_related(row),
            ),
            row,
        )


def message(row: RowChange) -> str:
    """What changed, on one line, with the witnesses."""
    text = f"`{row.name}` is {row.verdict}"
    if row.was is not None:
        text += f", it was `{row.was[0]}/{row.was[1]}`"
    elif row.before is not None and row.after is not None and row.before.text != row.after.text:
        text += f": `{row.before.text}` became `{row.after.text}`"
    for witness in row.witnesses:
        holdings = "; ".join(holding_texts(witness.state, witness.request)) or "nothing is held"
        text += f"; `{request_text(witness.request)}`: {answers_text(witness)}, where {holdings}"
    return text


def _span(row: RowChange, file: str | None) -> Span:
    """The span of the row; for a removed row, the top of the later file."""
    if row.after is not None:
        return row.after.span
    assert row.before is not None
    return row.before.span if file is None else Span(path=file, line=1, column=1, end_line=1, end_column=1)


def _related(row: RowChange) -> tuple[Related, ...]:
    """The earlier row, unless it is in a git revision, which no tool could open."""
    if row.before is None or row.after is None or ":" in row.before.span.path:
        return ()
    return (Related(message="the row before", span=row.before.span),)
