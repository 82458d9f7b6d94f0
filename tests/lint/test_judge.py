from __future__ import annotations

from pathlib import Path

import pytest

from privtab.base.diagnostics import Diagnostic, Severity, Span
from privtab.base.source import SourceFile
from privtab.checks.lint.judge import FilteredFindings, filter_findings
from privtab.checks.lint.settings import Level, Override, Settings

AT = Span(path="privtab.toml", line=2, column=1, end_line=2, end_column=2)


def finding(line: int, code: str = "P305", severity: Severity = Severity.WARNING) -> Diagnostic:
    span = Span(path="a.yaml", line=line, column=1, end_line=line, end_column=2)
    return Diagnostic(code=code, name="x", severity=severity, message="m", span=span)


def filter_text(
    text: str, *found: Diagnostic, settings: Settings | None = None, complete: bool = True
) -> FilteredFindings:
    source = SourceFile.of("a.yaml", text)
    return filter_findings(found, source, Path("a.yaml"), settings or Settings(), complete=complete)


def codes(filtered: FilteredFindings) -> list[tuple[str, int]]:
    return [(finding.code, finding.span.line) for finding in filtered.kept]


def test_a_finding_beside_the_comment_goes_and_is_remembered_with_the_reason() -> None:
    done = filter_text("a: 1  # privtab: ignore P305 why\nb: 1\n", finding(1), finding(2))
    assert codes(done) == [("P305", 2)]
    assert [(suppressed.finding.span.line, suppressed.reason, suppressed.in_source) for suppressed in done.ignored] == [
        (1, "why", True)
    ]


def test_only_the_code_that_is_named_goes() -> None:
    assert codes(filter_text("a: 1  # privtab: ignore P305 why\n", finding(1), finding(1, "P310"))) == [("P310", 1)]


def test_errors_cannot_be_ignored() -> None:
    text = "a: 1  # privtab: ignore P101 why\n"
    assert codes(filter_text(text, finding(1, "P101", Severity.ERROR))) == [("P101", 1), ("P402", 1)]


def test_a_comment_without_a_finding_is_one_for_each_code() -> None:
    text = "a: 1  # privtab: ignore P305, P310 why\n"
    assert codes(filter_text(text, finding(1))) == [("P401", 1)]
    assert codes(filter_text(text)) == [("P401", 1), ("P401", 1)]
    assert codes(filter_text(text, complete=False)) == []


def test_the_narrowest_comment_counts_so_a_wider_one_may_be_unused() -> None:
    text = "# privtab: ignore-file P305 all\na: 1  # privtab: ignore P305 this\n"
    done = filter_text(text, finding(2))
    assert [suppressed.reason for suppressed in done.ignored] == ["this"]
    assert codes(done) == [("P401", 1)]


@pytest.mark.parametrize("code", ["P001", "P002", "P003"])
def test_invalid_yaml_has_no_comments(code: str) -> None:
    assert codes(filter_text("a: [\n# privtab: ignore\n", finding(1, code, Severity.ERROR))) == [(code, 1)]


def test_settings_change_severities_and_disable_findings() -> None:
    off, note = Level(severity=None, span=AT), Level(severity=Severity.NOTE, span=AT)
    settings = Settings(file=Path.cwd() / "privtab.toml", severity={"P305": off, "P310": note})
    done = filter_text("a: 1\n", finding(1), finding(1, "P310"), finding(1, "P311"), settings=settings)
    assert [(suppressed.code, suppressed.severity) for suppressed in done.kept] == [
        ("P310", Severity.NOTE),
        ("P311", Severity.WARNING),
    ]
    assert [(suppressed.reason, suppressed.in_source) for suppressed in done.ignored] == [
        ("off in privtab.toml:2", False)
    ]


def test_a_comment_for_a_finding_that_is_off_is_used() -> None:
    settings = Settings(file=Path.cwd() / "privtab.toml", severity={"P305": Level(severity=None, span=AT)})
    done = filter_text("a: 1  # privtab: ignore P305 why\n", finding(1), settings=settings)
    assert codes(done) == []
    assert [suppressed.reason for suppressed in done.ignored] == ["why"]


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [("old/*", True), ("old", True), ("./old/", True), ("*.yaml", True), ("new/*", False), ("old/a", False)],
)
def test_overrides_are_for_the_files_that_their_patterns_name(pattern: str, matches: bool, tmp_path: Path) -> None:
    override = Override(paths=(pattern,), severity={"P305": Level(severity=Severity.NOTE, span=AT)})
    settings = Settings(file=tmp_path / "privtab.toml", overrides=(override,))
    assert ("P305" in settings.levels(tmp_path / "old" / "deep" / "a.yaml")) is matches
    assert settings.levels(tmp_path.parent / "old" / "a.yaml") == {}
