"""Findings and test results in the formats of other tools; takes plain values and returns text.

Here are these values, workflow commands, which GitHub shows beside the changed lines of a pull request, and JUnit XML in the
dialect that CI servers read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from privtab.base.diagnostics import Diagnostic, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class SuppressedFinding:
    """A finding that was suppressed, and the reason; `in_source` if a comment beside it does so."""

    finding: Diagnostic
    reason: str
    in_source: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """One test: how long it took, its failure, or why it was skipped, and the `file` and `line` that define it.

    A failure has one line, details, and a kind.

    >>> CaseResult(name="ann reads", classname="lake", failure="expected an allow").failure_kind
    'failure'
    """

    name: str
    classname: str
    seconds: float = 0.0
    failure: str | None = None
    details: str = ""
    failure_kind: str = "failure"
    skipped: str | None = None
    properties: tuple[tuple[str, str], ...] = ()
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteResult:
    """The cases of one file, in order.

    >>> SuiteResult(name="lake", cases=(CaseResult(name="ann reads", classname="lake"),)).cases[0].seconds
    0.0
    """

    name: str
    cases: tuple[CaseResult, ...]
    properties: tuple[tuple[str, str], ...] = ()


_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


def github_annotations(findings: Iterable[Diagnostic]) -> str:
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
        text += f"\n{related.span.path}:{related.span.line}:{related.span.column}: {related.value}"
    head = ",".join(f"{name}={_property(value)}" for name, value in fields)
    return f"::{_COMMANDS[finding.severity]} {head}::{_data(text)}\n"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(suites: Iterable[SuiteResult], *, name: str = "privtab") -> str:
    """The document, ending in a line break; characters that XML cannot hold become U+FFFD.

    >>> junit([SuiteResult(name="lake", cases=())]).splitlines()[0]
    '<?xml version="1.0" encoding="UTF-8"?>'
    """
    all_ = tuple(suites)
    root = Element("testsuites", {"name": _clean(name), **_counts([case for suite in all_ for case in suite.cases])})
    for suite in all_:
        element = SubElement(root, "testsuite", {"name": _clean(suite.name), **_counts(suite.cases)})
        _properties(element, suite.properties)
        for case in suite.cases:
            _case(element, case)
    indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _case(suite: Element, case: CaseResult) -> None:
    attributes = {"name": case.name, "classname": case.classname, "time": _seconds(case.seconds)}
    if case.file is not None:
        attributes["file"] = case.file
    if case.line is not None:
        attributes["line"] = str(case.line)
    element = SubElement(suite, "testcase", {key: _clean(value) for key, value in attributes.items()})
    _properties(element, case.properties)
    if case.skipped is not None:
        SubElement(element, "skipped", {"message": _clean(case.skipped)})
    elif case.failure is not None:
        attributes = {"message": _clean(case.failure), "type": _clean(case.failure_kind)}
        SubElement(element, "failure", attributes).text = _clean(case.details)


def _properties(element: Element, properties: Sequence[tuple[str, str]]) -> None:
    if properties:
        parent = SubElement(element, "properties")
        for name, value in properties:
            SubElement(parent, "property", {"name": _clean(name), "value": _clean(value)})


def _counts(cases: Sequence[CaseResult]) -> dict[str, str]:
    return {
        "tests": str(len(cases)),
        "failures": str(sum(case.failure is not None and case.skipped is None for case in cases)),
        "errors": "0",
        "skipped": str(sum(case.skipped is not None for case in cases)),
        "time": _seconds(sum(case.seconds for case in cases)),
    }


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f}"


def _clean(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
