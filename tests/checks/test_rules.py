from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from privtab import checks
from privtab.diagnostics import Diagnostic, Severity

ROOT = Path(__file__).parents[2]
RULES = {path.stem: path for path in (ROOT / "docs" / "rules").glob("P*.md")}
HEADINGS = ["What it finds", "Why it is bad", "Example", "Use instead"]
CODES = [module.KIND.code for module in checks.catalogue()]


def page(module: ModuleType) -> str:
    return RULES[f"{module.KIND.code}-{module.KIND.name}"].read_text("utf-8")


def block(text: str, heading: str) -> str | None:
    section = text.split(f"## {heading}\n")[1].split("\n## ", maxsplit=1)[0]
    found = re.search(r"```yaml\n(.*?)```", section, re.DOTALL)
    return found[1] if found else None


def test_checks_tests_and_pages_are_the_same_set() -> None:
    modules = {f"{m.KIND.code}-{m.KIND.name}" for m in checks.catalogue()}
    rooms = (ROOT / "compiler" / "privtab" / room for room in ("findings", "checks"))
    files = {path.stem for room in rooms for path in room.glob("p*.py")}
    tests = {path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_p*.py")}
    assert modules == set(RULES)
    assert files == tests == {name.lower().replace("-", "_") for name in modules}


def test_codes_are_unique_and_severities_follow_them() -> None:
    assert len(set(CODES)) == len(CODES)
    for module in checks.catalogue():
        assert (module.KIND.severity is Severity.ERROR) == (module.KIND.code < "P300")
        assert hasattr(module, "find") == ("P300" <= module.KIND.code < "P400")


@pytest.mark.parametrize("module", checks.catalogue(), ids=CODES)
def test_pages_have_their_headings_and_severity(module: ModuleType) -> None:
    text = page(module)
    assert text.startswith(f"# {module.KIND.code} {module.KIND.name}\n\nSeverity: {module.KIND.severity}.\n")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == HEADINGS


@pytest.mark.parametrize("module", checks.catalogue(), ids=CODES)
def test_the_example_has_the_finding_and_no_other(module: ModuleType, find: Callable[[str], list[Diagnostic]]) -> None:
    example = block(page(module), "Example")
    if example is None:
        assert module.KIND.code in ("P001", "P341"), "bytes, and what takes too long, cannot be shown in a page"
        return
    # What is said of the head, which stands below the example, belongs to other examples.
    found = [d for d in find(example) if d.span.line <= len(example.splitlines())]
    assert {d.code for d in found if d.severity is Severity.ERROR or module.KIND.code >= "P300"} == {module.KIND.code}


@pytest.mark.parametrize("module", checks.catalogue(), ids=CODES)
def test_the_suggested_example_has_no_error_and_not_the_finding(
    module: ModuleType, find: Callable[[str], list[Diagnostic]]
) -> None:
    better = block(page(module), "Use instead")
    if better is not None:
        found = find(better)
        assert [d for d in found if d.severity is Severity.ERROR or d.code == module.KIND.code] == []


@pytest.mark.parametrize("module", checks.catalogue(), ids=CODES)
def test_messages_are_lower_case_and_end_without_a_stop(
    module: ModuleType, find: Callable[[str], list[Diagnostic]]
) -> None:
    example = block(page(module), "Example")
    for diagnostic in find(example) if example is not None else ():
        for text in (diagnostic.message, diagnostic.help or "x"):
            assert not text.endswith(".")
            assert text[0].islower() or text[0] in "`'<", text
