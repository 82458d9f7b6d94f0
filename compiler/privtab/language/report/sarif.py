"""Findings as SARIF 2.1.0, for code hosts and editors.

Source: Static Analysis Results Interchange Format (SARIF) Version 2.1.0, OASIS Standard.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from privtab import __version__
from privtab.base.diagnostics import Diagnostic, Span
from privtab.base.printable import printable_json
from privtab.language.report import RuleInfo, SuppressedFinding

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
FINGERPRINT = "privtabFinding/v1"
_LINE_END = re.compile(r"\r\n|\n|\r")
Json = dict[str, Any]


def sarif(
    findings: Iterable[Diagnostic],
    rules: Iterable[RuleInfo] = (),
    *,
    suppressed: Iterable[SuppressedFinding] = (),
    texts: Mapping[str, str] | None = None,
) -> str:
    """Return one run as JSON, ending in a line break; the same findings give the same bytes.

    `rules` describes the codes; codes without a description get only their name. `texts` holds the files by the paths
    of the spans: with it, results contain their lines, and fingerprints stay the same when lines are inserted above.
    """
    shown = tuple(findings)
    hidden = tuple(suppressed)
    known = {rule.code: rule for rule in rules}
    for finding in (*shown, *(entry.finding for entry in hidden)):
        severity, summary = finding.severity, finding.name.replace("-", " ")
        known.setdefault(
            finding.code, RuleInfo(code=finding.code, name=finding.name, severity=severity, summary=summary)
        )
    codes = sorted(known)
    run = _Run({code: index for index, code in enumerate(codes)}, texts or {})
    results = [run.result(finding) for finding in shown]
    for entry in hidden:
        kind = "inSource" if entry.in_source else "external"
        results.append(run.result(entry.finding) | {"suppressions": [{"kind": kind, "justification": entry.reason}]})
    log = {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "privtab",
                        "semanticVersion": __version__,
                        "rules": [_rule(known[code]) for code in codes],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "results": results,
            }
        ],
    }
    return printable_json(log, indent=True) + "\n"


class _Run:
    """Turns findings into results, and counts identical ones so that their fingerprints differ."""

    def __init__(self, index: Mapping[str, int], texts: Mapping[str, str]) -> None:
        self.index = index
        self.lines = {path: _LINE_END.split(text) for path, text in texts.items()}
        self.occurrences: Counter[str] = Counter()

    def result(self, finding: Diagnostic) -> Json:
        """One result, without its suppressions."""
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
            result["fixes"] = [
                {"description": {"text": f"write `{finding.fix}`"}, "artifactChanges": [change]},
            ]
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
        return sha256(f"{base}\0{self.occurrences[base]}".encode("utf-8", "backslashreplace")).hexdigest()[:32]


def _rule(rule: RuleInfo) -> Json:
    descriptor: Json = {
        "id": rule.code,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": rule.summary},
        "fullDescription": {"text": rule.summary},
        "defaultConfiguration": {"level": str(rule.severity)},
        "properties": {"tags": ["access-control", rule.name]},
    }
    if rule.page:
        descriptor["help"] = {"text": rule.page, "markdown": rule.page}
    return descriptor


def _file(path: str) -> Json:
    """An artifact location: relative paths are relative to the root of the checkout, absolute ones are `file:` URIs."""
    pure = PurePath(path)
    if pure.is_absolute():
        return {"uri": pure.as_uri()}
    return {"uri": quote(pure.as_posix()), "uriBaseId": "%SRCROOT%"}


def _region(span: Span) -> Json:
    return {
        "startLine": span.line,
        "startColumn": span.column,
        "endLine": span.end_line,
        "endColumn": span.end_column,
    }
