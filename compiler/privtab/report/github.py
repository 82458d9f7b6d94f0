"""Findings as workflow commands, which GitHub shows beside the changed lines of a pull request."""

from collections.abc import Iterable

from privtab.diagnostics import Diagnostic, Severity

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


def annotations(findings: Iterable[Diagnostic]) -> str:
    """One line for each finding, with its advice as the second line of the message; empty without findings."""
    return "".join(_line(finding) for finding in findings)


def _line(finding: Diagnostic) -> str:
    span = finding.span
    fields = [("file", span.path), ("line", str(span.line))]
    if span.end_line == span.line:
        # Columns are valid on one line only. The last one is inclusive, so an empty span is one column wide.
        fields += [("col", str(span.column)), ("endColumn", str(max(span.column, span.end_column - 1)))]
    else:
        fields.append(("endLine", str(span.end_line)))
    fields.append(("title", f"{finding.code} {finding.name}"))
    text = finding.message if finding.help is None else f"{finding.message}\nhelp: {finding.help}"
    for related in finding.related:
        text += f"\n{related.span.path}:{related.span.line}:{related.span.column}: {related.message}"
    head = ",".join(f"{name}={_property(value)}" for name, value in fields)
    return f"::{_COMMANDS[finding.severity]} {head}::{_data(text)}\n"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
