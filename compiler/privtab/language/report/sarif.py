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
from privtab.base.diagnostics import Diagnostic, FindingKind, Span
from privtab.base.printable import printable_json
from privtab.language.report import SuppressedFinding

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
FINGERPRINT = "privtabFinding/v1"
_LINE_END = re.compile(r"\r\n|\n|\r")
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
    return {
        "startLine": span.line,
        "startColumn": span.column,
        "endLine": span.end_line,
        "endColumn": span.end_column,
    }
