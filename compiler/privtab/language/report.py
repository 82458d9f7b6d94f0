"""Findings and test results in the formats of other tools; takes plain values and returns text.

The formats are workflow commands, which GitHub shows beside the changed lines of a pull request, JUnit XML in the dialect
that CI servers read, and SARIF for code hosts and editors.

Source: Static Analysis Results Interchange Format (SARIF) Version 2.1.0, OASIS Standard.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from privtab import __version__
from privtab.base.diagnostics import LINE_END, Diagnostic, FindingKind, Severity, Span
from privtab.base.lazy import pattern
from privtab.base.printable import printable_json
from privtab.base.records import dataclass

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element


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


_NOT_XML = pattern("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(suites: Iterable[SuiteResult], *, name: str = "privtab") -> str:
    """The document, ending in a line break; characters that XML cannot hold become U+FFFD.

    >>> junit([SuiteResult(name="lake", cases=())]).splitlines()[0]
    '<?xml version="1.0" encoding="UTF-8"?>'
    """
    from xml.etree.ElementTree import Element, SubElement, indent, tostring

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
    from xml.etree.ElementTree import SubElement

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
    from xml.etree.ElementTree import SubElement

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


SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
FINGERPRINT = "privtabFinding/v1"
Json = dict[str, Any]


def sarif(
    findings: Iterable[Diagnostic],
    rules: Mapping[FindingKind, str] = {},
    *,
    pages: Mapping[str, str] = {},
    suppressed: Iterable[SuppressedFinding] = (),
    texts: Mapping[str, str] | None = None,
) -> str:
    """Return one run as JSON, ending in a line break; the same findings give the same bytes.

    `rules` describes kinds of findings in one line, `pages` codes in Markdown; others get only their name. `texts` holds the
    files by the paths of the spans: with it, results contain their lines, and fingerprints stay the same when lines are
    inserted above.
    """
    shown = tuple(findings)
    hidden = tuple(suppressed)
    known = {kind.code: _rule(kind, summary, pages.get(kind.code)) for kind, summary in rules.items()}
    for finding in (*shown, *(entry.finding for entry in hidden)):
        kind = FindingKind(finding.code, finding.name, finding.severity)
        known.setdefault(finding.code, _rule(kind, finding.name.replace("-", " "), None))
    codes = sorted(known)
    run = _Run({code: index for index, code in enumerate(codes)}, texts or {})
    results = [run.result(finding) for finding in shown]
    for entry in hidden:
        suppression = {"kind": "inSource" if entry.in_source else "external", "justification": entry.reason}
        results.append(run.result(entry.finding) | {"suppressions": [suppression]})
    log = {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "privtab",
                        "semanticVersion": __version__,
                        "rules": [known[code] for code in codes],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "results": results,
            }
        ],
    }
    return printable_json(log, indent=True) + "\n"


class _Run:
    def __init__(self, index: Mapping[str, int], texts: Mapping[str, str]) -> None:
        self.index = index
        self.lines = {path: LINE_END.split(text) for path, text in texts.items()}
        self.occurrences: Counter[str] = Counter()

    def result(self, finding: Diagnostic) -> Json:
        text = finding.message if finding.help is None else f"{finding.message}\nhelp: {finding.help}"
        result: Json = {
            "ruleId": finding.code,
            "ruleIndex": self.index[finding.code],
            "level": str(finding.severity),
            "message": {"text": text},
            "locations": [self.location(finding.span)],
            "partialFingerprints": {FINGERPRINT: self.fingerprint(finding)},
        }
        if finding.related:
            result["relatedLocations"] = [
                {"id": number, "message": {"text": related.value}, **self.location(related.span)}
                for number, related in enumerate(finding.related, start=1)
            ]
        if finding.fix is not None:
            replacement = {"deletedRegion": _region(finding.span), "insertedContent": {"text": finding.fix}}
            change = {"artifactLocation": _file(finding.span.path), "replacements": [replacement]}
            result["fixes"] = [{"description": {"text": f"write `{finding.fix}`"}, "artifactChanges": [change]}]
        return result

    def location(self, span: Span) -> Json:
        """A physical location, with its line if the text is known."""
        physical: Json = {"artifactLocation": _file(span.path), "region": _region(span)}
        if line := self.line(span):
            physical["contextRegion"] = {"startLine": span.line, "snippet": {"text": line}}
        return {"physicalLocation": physical}

    def line(self, span: Span) -> str:
        """The first line of a span; empty if unknown."""
        lines = self.lines.get(span.path, [])
        return lines[span.line - 1] if span.line <= len(lines) else ""

    def fingerprint(self, finding: Diagnostic) -> str:
        """A fingerprint that does not depend on the line number; identical findings are numbered."""
        line = " ".join(self.line(finding.span).split())
        base = "\0".join((finding.code, PurePath(finding.span.path).as_posix(), finding.message, line))
        self.occurrences[base] += 1
        from hashlib import sha256

        return sha256(f"{base}\0{self.occurrences[base]}".encode("utf-8", "backslashreplace")).hexdigest()[:32]


def _rule(kind: FindingKind, summary: str, page: str | None) -> Json:
    return {
        "id": kind.code,
        "name": "".join(word.capitalize() for word in kind.name.split("-")),
        "shortDescription": {"text": summary},
        "fullDescription": {"text": summary},
        "defaultConfiguration": {"level": str(kind.severity)},
        "properties": {"tags": ["access-control", kind.name]},
        **({"help": {"text": page, "markdown": page}} if page else {}),
    }


def _file(path: str) -> Json:
    """An artifact location: relative paths are relative to the root of the checkout, absolute ones are `file:` URIs."""
    pure = PurePath(path)
    if pure.is_absolute():
        return {"uri": pure.as_uri()}
    return {"uri": quote(pure.as_posix()), "uriBaseId": "%SRCROOT%"}


def _region(span: Span) -> Json:
    return {"startLine": span.line, "startColumn": span.column, "endLine": span.end_line, "endColumn": span.end_column}
