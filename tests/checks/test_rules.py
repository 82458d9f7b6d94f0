from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from checkout import ROOT

from privtab import checks
from privtab.base.diagnostics import Diagnostic, FindingKind, Severity
from privtab.checks import _every

RULES = {path.stem: path for path in (ROOT / "docs" / "rules").glob("P*.md")}
HEADINGS = ["What it finds", "Why it is bad", "Example", "Use instead"]
CODES = list(checks.codes())


def page(kind: FindingKind) -> str:
    return RULES[f"{kind.code}-{kind.name}"].read_text("utf-8")


def block(text: str, heading: str) -> str | None:
    section = text.split(f"## {heading}\n")[1].split("\n## ", maxsplit=1)[0]
    found = re.search(r"```yaml\n(.*?)```", section, re.DOTALL)
    return found[1] if found else None


def test_checks_tests_and_pages_are_the_same_set() -> None:
    names = {f"{kind.code}-{kind.name}" for kind in checks.codes().values()}
    tests = {path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_p*.py")}
    assert names == set(RULES)
    assert tests == {name.lower().replace("-", "_") for name in names}


def test_codes_are_unique_and_severities_follow_them() -> None:
    assert len(set(CODES)) == len(CODES)
    for kind in checks.codes().values():
        assert (kind.severity is Severity.ERROR) == (kind.code < "P300")
    assert {check.kind.code for check in _every.catalogue()} == {code for code in CODES if "P300" <= code < "P400"}


@pytest.mark.parametrize("kind", checks.codes().values(), ids=CODES)
def test_pages_have_their_headings_and_severity(kind: FindingKind) -> None:
    text = page(kind)
    assert text.startswith(f"# {kind.code} {kind.name}\n\nSeverity: {kind.severity}.\n")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == HEADINGS


@pytest.mark.parametrize("kind", checks.codes().values(), ids=CODES)
def test_the_example_has_the_finding_and_no_other(kind: FindingKind, find: Callable[[str], list[Diagnostic]]) -> None:
    example = block(page(kind), "Example")
    if example is None:
        shown_in_words = ("P001", "P216", "P341")
        assert kind.code in shown_in_words, "bytes, eighty rows, and what takes too long, cannot be shown"
        return
    # What is said of the head, which stands below the example, belongs to other examples.
    found = [d for d in find(example) if d.span.line <= len(example.splitlines())]
    assert {d.code for d in found if d.severity is Severity.ERROR or kind.code >= "P300"} == {kind.code}


@pytest.mark.parametrize("kind", checks.codes().values(), ids=CODES)
def test_the_suggested_example_has_no_error_and_not_the_finding(
    kind: FindingKind, find: Callable[[str], list[Diagnostic]]
) -> None:
    better = block(page(kind), "Use instead")
    if better is not None:
        found = find(better)
        assert [d for d in found if d.severity is Severity.ERROR or d.code == kind.code] == []


@pytest.mark.parametrize("kind", checks.codes().values(), ids=CODES)
def test_messages_are_lower_case_and_end_without_a_stop(
    kind: FindingKind, find: Callable[[str], list[Diagnostic]]
) -> None:
    example = block(page(kind), "Example")
    for diagnostic in find(example) if example is not None else ():
        for text in (diagnostic.message, diagnostic.help or "x"):
            assert not text.endswith(".")
            assert text[0].islower() or text[0] in "`'<", text
