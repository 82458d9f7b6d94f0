"""The work of `privtab lint`: select findings and report them in each format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from privtab._staged import write
from privtab.cli._output import as_json, diagnostic_json, err, out, recorder, table
from privtab.diagnostics import Diagnostic, Severity
from privtab.errors import UsageError
from privtab.lint.codes import Code, codes, unknown
from privtab.lint.settings import FailOn, LintFormat, Settings
from privtab.report.nodes import Case, Failure, Rule, Suite, Suppressed

if TYPE_CHECKING:
    from rich.console import Console

Wanted = Callable[[Diagnostic], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Linted:
    """The result for one file: its text, its findings, the ignored ones, and the severity from which it fails."""

    path: str
    text: str
    kept: tuple[Diagnostic, ...]
    ignored: tuple[Suppressed, ...]
    settings: Settings
    fail_on: FailOn

    def failed(self) -> bool:
        """Whether a finding fails the run."""
        return any(self.fail_on.fails(finding.severity) for finding in self.kept)


def selection(select: Sequence[str] | None, ignore: Sequence[str] | None) -> Wanted:
    """A predicate for the selected findings, always with errors that stop a policy. Raises UsageError for unknown codes."""
    chosen = _chosen(select, "--select")
    dropped = _chosen(ignore, "--ignore") or frozenset()
    if fixed := sorted(code for code in dropped if not codes()[code].may_go):
        raise UsageError(f"`--ignore {fixed[0]}`: an error that stops a policy cannot be ignored")

    def wanted(finding: Diagnostic) -> bool:
        known = codes().get(finding.code)
        if known is not None and not known.may_go:
            return True
        return (chosen is None or finding.code in chosen) and finding.code not in dropped

    return wanted


def _chosen(given: Sequence[str] | None, option: str) -> frozenset[str] | None:
    if not given:
        return None
    words = [word.strip() for text in given for word in text.split(",") if word.strip()]
    found: set[str] = set()
    for word in words:
        of = {c.code for c in codes().values() if c.code.startswith(word.upper()) or c.name == word}
        if not of:
            raise UsageError(f"`{option} {word}`: {_unknown(word)}")
        found |= of
    return frozenset(found)


def _unknown(word: str) -> str:
    message, help_, _ = unknown(word)
    return f"{message}: {help_}"


def check(policies: Sequence[Path], config: Path | None, wanted: Wanted, fail_on: FailOn | None) -> list[Linted]:
    """Check every policy with the settings of `config` or those above the file, and keep the selected findings."""
    from privtab.lint.config import read_settings
    from privtab.pipeline import lint_policy

    settings = None if config is None else read_settings(config)
    linted: list[Linted] = []
    for policy in policies:
        checked = lint_policy(policy, settings=settings)
        linted.append(
            Linted(
                path=checked.source.path,
                text=checked.source.text,
                kept=tuple(finding for finding in checked.judged.kept if wanted(finding)),
                ignored=tuple(one for one in checked.judged.ignored if wanted(one.finding)),
                settings=checked.settings,
                fail_on=fail_on or checked.settings.fail_on or FailOn.ERROR,
            )
        )
    return sorted(linted, key=lambda one: one.path)


def show(linted: Sequence[Linted], console: Console) -> None:
    """Print the findings as text."""
    from privtab.cli._lint_pretty import show as pretty

    pretty(linted, console)


def report(linted: Sequence[Linted], format_: LintFormat) -> str:
    """The complete report as text."""
    found = [finding for one in linted for finding in one.kept]
    ignored = [one for file in linted for one in file.ignored]
    match format_:
        case LintFormat.PRETTY | LintFormat.TEXT:
            from io import StringIO

            file = StringIO()
            show(linted, recorder(file))
            return file.getvalue()
        case LintFormat.JSON:
            rows = [diagnostic_json(finding) | {"ignored": None} for finding in found]
            for one in ignored:
                why = {"reason": one.reason, "by": "comment" if one.in_source else "settings"}
                rows.append(diagnostic_json(one.finding) | {"ignored": why})
            rows.sort(key=lambda row: (row["path"], row["line"], row["column"], row["code"]))
            return as_json(rows)
        case LintFormat.SARIF:
            from privtab.report.sarif import sarif

            return sarif(found, rules(), suppressed=ignored, texts={one.path: one.text for one in linted})
        case LintFormat.GITHUB:
            from privtab.report.github import annotations

            return annotations(found)
        case LintFormat.JUNIT:
            from privtab.report.junit import junit

            return junit([_suite(one) for one in linted], name="privtab lint")
        case _:
            assert_never(format_)


def save(linted: Sequence[Linted], format_: LintFormat, output: Path) -> None:
    """Write the report to a file atomically, and print the number of findings."""
    from privtab.cli._lint_pretty import summary

    write(output, report(linted, format_).encode("utf-8", "backslashreplace"))
    err().print(f"{summary(linted)}; written to {output}", style="dim", soft_wrap=True)


def rules() -> list[Rule]:
    """The catalogue of rules for reports."""
    return [
        Rule(code=one.code, name=one.name, severity=one.severity, summary=one.summary(), page=one.page())
        for one in codes().values()
    ]


def _suite(one: Linted) -> Suite:
    cases = [_case(finding, one) for finding in one.kept]
    cases += [replace(_case(hidden.finding, one), skipped=f"ignored: {hidden.reason}") for hidden in one.ignored]
    if not one.failed():
        cases.append(Case(name="no finding that fails", classname=one.path, file=one.path))
    return Suite(name=one.path, cases=tuple(cases))


def _case(finding: Diagnostic, of: Linted) -> Case:
    span = finding.span
    failure = None
    if of.fail_on.fails(finding.severity):
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
        listed = table("code", "name", "severity")
        for code in codes().values():
            listed.add_row(code.code, code.name, str(code.severity), style=_style(code.severity))
        out().print(listed)
        return
    found = codes().get(word.upper()) or next((c for c in codes().values() if c.name == word), None)
    if found is None:
        raise UsageError(f"`--explain {word}`: {_unknown(word)}")
    show_page(_page(found), out())


def _page(code: Code) -> str:
    page = code.page()
    if not page:
        raise UsageError(f"this installation has no page for `{code.code}`")
    return page


def _style(severity: Severity) -> str:
    return {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}[severity]
