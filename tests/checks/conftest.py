from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import pytest

from privtab import checks, model
from privtab.base.diagnostics import Diagnostic, Severity
from privtab.base.source import SourceFile
from privtab.checks.lint.judge import filter_findings
from privtab.checks.lint.settings import Settings
from privtab.language import syntax

HEAD = {
    "privtab": "privtab: 1",
    "system": "system: shop",
    "version": 'version: "1"',
    "entities": "entities: {shop: {shelf: {item:}, user:, role:}}",
    "privileges": "privileges: [READ, WRITE]",
}


def with_head(text: str) -> str:
    """A complete policy: the text, and the keys of the head that it lacks, as in docs/rules/README.md."""
    text = dedent(text)
    if text.startswith("privtab:") or all(line.startswith("#") for line in text.splitlines()):
        return text
    present = {line.split(":")[0] for line in text.splitlines()}
    return text + "".join(f"{line}\n" for key, line in HEAD.items() if key not in present)


def findings(text: str) -> list[Diagnostic]:
    source = SourceFile.of("shop.yaml", text)
    tables, found = syntax.read_policy(source)
    if tables is not None:
        policy, model_findings = model.resolve(tables)
        found = [*found, *model_findings, *(checks.run(policy) if policy is not None else ())]
        complete = policy is not None and all(d.severity is not Severity.ERROR for d in found)
        return list(filter_findings(found, source, Path(source.path), Settings(), complete=complete).kept)
    return sorted(set(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a test looks at: the finding, and the text under its carets."""

    code: str
    message: str
    help: str | None
    under: str


@pytest.fixture
def find() -> Callable[[str], list[Diagnostic]]:
    """Every finding of a policy, whose head may be left off."""
    return lambda text: findings(with_head(text))


@pytest.fixture
def codes() -> Callable[[str], list[str]]:
    """The codes of the findings of a policy, whose head may be left off."""
    return lambda text: [d.code for d in findings(with_head(text))]


@pytest.fixture
def only() -> Callable[[str, str], Found]:
    """The single finding of a policy; a policy with errors has no warnings, so there is one of either kind.

    Warnings and notes of other codes are ignored.
    """

    def single_finding(text: str, code: str) -> Found:
        text = with_head(text)
        found = findings(text)
        relevant = [d for d in found if d.code == code or d.severity is Severity.ERROR]
        assert [d.code for d in relevant] == [code], [
            f"{d.code} {d.span.line}:{d.span.column} {d.message}" for d in found
        ]
        span = relevant[0].span
        line = (text.splitlines() or [""])[span.line - 1]
        end = span.end_column - 1 if span.end_line == span.line else len(line)
        return Found(code=code, message=relevant[0].message, help=relevant[0].help, under=line[span.column - 1 : end])

    return single_finding
