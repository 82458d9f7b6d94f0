"""The work of `privtab lint`: select findings and report them in each format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from privtab._staged import write
from privtab.cli._output import as_json, diagnostic_json, err, out, recorder, table
from privtab.diagnostics import Diagnostic, Severity
from privtab.errors import UsageError
from privtab.lint.codes import CatalogueEntry, codes, unknown
from privtab.lint.settings import FailOn, LintFormat, LintResult
from privtab.report.nodes import Case, Failure, Rule, Suite

if TYPE_CHECKING:
    from rich.console import Console

FindingFilter = Callable[[Diagnostic], bool]


def selection(select: Sequence[str] | None, ignore: Sequence[str] | None) -> FindingFilter:
    """A predicate for the selected findings, always with errors that stop a policy. Raises UsageError for unknown codes."""
    selected = _matching_codes(select, "--select")
    ignored = _matching_codes(ignore, "--ignore") or frozenset()
    if unignorable := sorted(code for code in ignored if not codes()[code].configurable):
        raise UsageError(f"`--ignore {unignorable[0]}`: an error that stops a policy cannot be ignored")

    def is_selected(finding: Diagnostic) -> bool:
        code_entry = codes().get(finding.code)
        if code_entry is not None and not code_entry.configurable:
            return True
        return (selected is None or finding.code in selected) and finding.code not in ignored

    return is_selected


def _matching_codes(options: Sequence[str] | None, option: str) -> frozenset[str] | None:
    if not options:
        return None
    words = [word.strip() for text in options for word in text.split(",") if word.strip()]
    found: set[str] = set()
    for word in words:
        matching = {
            entry.code for entry in codes().values() if entry.code.startswith(word.upper()) or entry.name == word
        }
        if not matching:
            raise UsageError(f"`{option} {word}`: {_unknown(word)}")
        found |= matching
    return frozenset(found)


def _unknown(word: str) -> str:
    message, help_, _ = unknown(word)
    return f"{message}: {help_}"


def check(
    policies: Sequence[Path], config: Path | None, is_selected: FindingFilter, fail_on: FailOn | None
) -> list[LintResult]:
    """Check every policy with the settings of `config` or those above the file, and keep the selected findings."""
    from privtab.lint.config import read_settings
    from privtab.pipeline import lint_policy

    settings = None if config is None else read_settings(config)
    results: list[LintResult] = []
    for policy in policies:
        result = lint_policy(policy, settings=settings, parallel=True)
        results.append(
            LintResult(
                path=result.source.path,
                text=result.source.text,
                findings=tuple(finding for finding in result.findings.kept if is_selected(finding)),
                ignored=tuple(suppressed for suppressed in result.findings.ignored if is_selected(suppressed.finding)),
                settings=result.settings,
                fail_on=fail_on or result.settings.fail_on or FailOn.ERROR,
            )
        )
    return sorted(results, key=lambda result: result.path)


def show(results: Sequence[LintResult], console: Console) -> None:
    """Print the findings as text."""
    from privtab.cli._lint_pretty import show as pretty

    pretty(results, console)


def report(results: Sequence[LintResult], format_: LintFormat) -> str:
    """The complete report as text."""
    found = [finding for result in results for finding in result.findings]
    ignored = [suppressed for result in results for suppressed in result.ignored]
    match format_:
        case LintFormat.PRETTY | LintFormat.TEXT:
            from io import StringIO

            file = StringIO()
            show(results, recorder(file))
            return file.getvalue()
        case LintFormat.JSON:
            rows = [diagnostic_json(finding) | {"ignored": None} for finding in found]
            for suppressed in ignored:
                why = {"reason": suppressed.reason, "by": "comment" if suppressed.in_source else "settings"}
                rows.append(diagnostic_json(suppressed.finding) | {"ignored": why})
            rows.sort(key=lambda row: (row["path"], row["line"], row["column"], row["code"]))
            return as_json(rows)
        case LintFormat.SARIF:
            from privtab.report.sarif import sarif

            return sarif(found, rules(), suppressed=ignored, texts={result.path: result.text for result in results})
        case LintFormat.GITHUB:
            from privtab.report.github import annotations

            return annotations(found)
        case LintFormat.JUNIT:
            from privtab.report.junit import junit

            return junit([_suite(result) for result in results], name="privtab lint")
        case _:
            assert_never(format_)


def save(results: Sequence[LintResult], format_: LintFormat, output: Path) -> None:
    """Write the report to a file atomically, and print the number of findings."""
    from privtab.cli._lint_pretty import summary

    write(output, report(results, format_).encode("utf-8", "backslashreplace"))
    err().print(f"{summary(results)}; written to {output}", style="dim", soft_wrap=True)


def rules() -> list[Rule]:
    """The catalogue of rules for reports."""
    return [
        Rule(code=code.code, name=code.name, severity=code.severity, summary=code.summary(), page=code.page())
        for code in codes().values()
    ]


def _suite(result: LintResult) -> Suite:
    cases = [_case(finding, result) for finding in result.findings]
    cases += [
        replace(_case(suppressed.finding, result), skipped=f"ignored: {suppressed.reason}")
        for suppressed in result.ignored
    ]
    if not result.failed():
        cases.append(Case(name="no finding that fails", classname=result.path, file=result.path))
    return Suite(name=result.path, cases=tuple(cases))


def _case(finding: Diagnostic, result: LintResult) -> Case:
    span = finding.span
    failure = None
    if result.fail_on.fails(finding.severity):
        lines = [f"{span.path}:{span.line}:{span.column}", finding.message]
        lines += [f"help: {finding.help}"] if finding.help else []
        failure = Failure(message=finding.message, text="\n".join(lines), kind=str(finding.severity))
    return Case(
        name=f"{finding.code} {finding.name} at {span.line}:{span.column}",
        classname=span.path,
        file=span.path,
        line=span.line,
        failure=failure,
        properties=(("severity", str(finding.severity)), ("message", finding.message)),
    )


def explain(word: str) -> None:
    """Print the page of a finding, by its code or name; `all` lists every code."""
    from privtab.cli._lint_pretty import show_page

    if word == "all":
        grid = table("code", "name", "severity")
        for code in codes().values():
            grid.add_row(code.code, code.name, str(code.severity), style=_style(code.severity))
        out().print(grid)
        return
    entry = codes().get(word.upper()) or next(
        (candidate for candidate in codes().values() if candidate.name == word), None
    )
    if entry is None:
        raise UsageError(f"`--explain {word}`: {_unknown(word)}")
    show_page(_page(entry), out())


def _page(code: CatalogueEntry) -> str:
    page = code.page()
    if not page:
        raise UsageError(f"this installation has no page for `{code.code}`")
    return page


def _style(severity: Severity) -> str:
    return {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}[severity]
