"""`privtab lint`: report findings in policy files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, assert_never

from privtab.base.caching import no_collection
from privtab.base.diagnostics import LINE_END, Diagnostic, FindingKind, Severity, Span, shown_columns
from privtab.base.errors import UsageError
from privtab.base.lazy import pattern
from privtab.base.printable import count
from privtab.base.records import dataclass
from privtab.checks._every import codes, unknown
from privtab.checks.lint.settings import FailOn, LintFormat, Settings
from privtab.command._layout import wrapped
from privtab.command._output import deliver, err, fail_if, out, table
from privtab.command._parameters import PathsArgument, option, words_of
from privtab.language.report import CaseResult, SuiteResult, SuppressedFinding, github_annotations, junit, sarif

if TYPE_CHECKING:
    from privtab.command._terminal import Terminal

PANEL = "Start here"

FindingFilter = Callable[[Diagnostic], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class LintResult:
    """The result for one file: its text, its findings, the ignored ones, and the severity from which it fails."""

    path: str
    text: str
    findings: tuple[Diagnostic, ...]
    ignored: tuple[SuppressedFinding, ...]
    settings: Settings
    fail_on: FailOn

    def failed(self) -> bool:
        """True if a finding fails the run."""
        return any(self.fail_on.fails(finding.severity) for finding in self.findings)


def run(
    paths: PathsArgument = None,
    format_: Annotated[
        LintFormat | None, option("--format", "Output format; `text` is `pretty`.", show_default="pretty")
    ] = None,
    fail_on: Annotated[
        FailOn | None, option("--fail-on", "Lowest severity that fails the run.", show_default="error")
    ] = None,
    select: Annotated[
        list[str] | None, option("--select CODE", "Only these findings, and errors; `P31` means P310 to P319.")
    ] = None,
    ignore: Annotated[list[str] | None, option("--ignore CODE", "Skip these findings.")] = None,
    output: Annotated[Path | None, option("--output -o FILE", "Write the report to a file.")] = None,
    config: Annotated[Path | None, option("--config FILE", "Settings file, instead of the privtab.toml found.")] = None,
    explain: Annotated[str | None, option("--explain CODE", "Print what a finding means; `all` lists them.")] = None,
) -> None:
    """Report all findings in policy files, sorted by position.

    Exits with 1 if there are errors, or findings of the severity that `--fail-on` names. Settings come from
    privtab.toml, or `[tool.privtab.lint]` in pyproject.toml, in a folder above the policy. `policies` there lists where
    policies lie; without it, policy_src/.

    Example:
      privtab lint
      privtab lint cdap/final --fail-on warning
      privtab lint my.yaml --select P310,P305 --format json
      privtab lint --format sarif -o lint.sarif
      privtab lint --explain P310
    """
    from privtab.pipeline import policies_at

    if explain is not None:
        explain_code(explain)
        return
    is_selected = selection(select, ignore)
    with no_collection(keep=True), err().spinner("checking", after=1.0):
        results = check(policies_at(paths), config, is_selected, fail_on)
    format_ = format_ or (results[0].settings.format if results else None) or LintFormat.PRETTY
    deliver(report(results, format_), output)
    if output is not None:
        err().print(f"{summary(results)}; written to {output}", style="dim")
    elif format_ not in (LintFormat.PRETTY, LintFormat.TEXT) and any(result.settings.file for result in results):
        err().print(summary(results), style="dim")
    fail_if(any(result.failed() for result in results))


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
    found: set[str] = set()
    for word in words_of(options) or options:
        matching = {
            entry.code for entry in codes().values() if entry.code.startswith(word.upper() or "-") or entry.name == word
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
    from privtab.checks.lint.settings import read_settings
    from privtab.pipeline import resolve_policy

    settings = None if config is None else read_settings(config)
    results: list[LintResult] = []
    for policy in policies:
        result = resolve_policy(policy, parallel=True).check(settings)
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


def report(results: Sequence[LintResult], format_: LintFormat) -> object:
    """The complete report."""
    found = [finding for result in results for finding in result.findings]
    ignored = [suppressed for result in results for suppressed in result.ignored]
    match format_:
        case LintFormat.PRETTY | LintFormat.TEXT:
            return lambda console: show(results, console)
        case LintFormat.JSON:
            rows = [finding.to_json() | {"ignored": None} for finding in found]
            for suppressed in ignored:
                why = {"reason": suppressed.reason, "by": "comment" if suppressed.in_source else "settings"}
                rows.append(suppressed.finding.to_json() | {"ignored": why})
            rows.sort(key=lambda row: (row["path"], row["line"], row["column"], row["code"]))
            return rows
        case LintFormat.SARIF:
            summaries: dict[FindingKind, str] = {code: code.summary() for code in codes().values()}
            pages = {code.code: code.page() for code in codes().values()}
            texts = {result.path: result.text for result in results}
            return sarif(found, summaries, pages=pages, suppressed=ignored, texts=texts)
        case LintFormat.GITHUB:
            return github_annotations(found)
        case LintFormat.JUNIT:
            return junit([_suite(result) for result in results], name="privtab lint")
        case _:
            assert_never(format_)


def _suite(result: LintResult) -> SuiteResult:
    cases = [_case(finding, result) for finding in result.findings]
    cases += [
        replace(_case(suppressed.finding, result), skipped=f"ignored: {suppressed.reason}")
        for suppressed in result.ignored
    ]
    if not result.failed():
        cases.append(CaseResult(name="no finding that fails", classname=result.path, file=result.path))
    return SuiteResult(name=result.path, cases=tuple(cases))


def _case(finding: Diagnostic, result: LintResult) -> CaseResult:
    span = finding.span
    lines = [f"{span.path}:{span.line}:{span.column}", finding.message]
    lines += [f"help: {finding.help}"] if finding.help else []
    return CaseResult(
        name=f"{finding.code} {finding.name} at {span.line}:{span.column}",
        classname=span.path,
        file=span.path,
        line=span.line,
        failure=finding.message if result.fail_on.fails(finding.severity) else None,
        details="\n".join(lines),
        failure_kind=str(finding.severity),
        properties=(("severity", str(finding.severity)), ("message", finding.message)),
    )


def explain_code(word: str) -> None:
    """Print the page of a finding, by its code or name; `all` lists every code."""
    if word == "all":
        grid = table("code", "name", "severity")
        for code in codes().values():
            style = _STYLES[code.severity].removeprefix("bold ")
            grid.add_row(code.code, code.name, str(code.severity), style=style)
        out().print(grid)
        return
    entry = codes().get(word.upper()) or next(
        (candidate for candidate in codes().values() if candidate.name == word), None
    )
    if entry is None:
        raise UsageError(f"`--explain {word}`: {_unknown(word)}")
    page = entry.page()
    if not page:
        raise UsageError(f"this installation has no page for `{entry.code}`")
    show_page(page, out())


MAX_WIDTH = 120
"""Maximum width of prose."""
_INDENT = 10
_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.NOTE: "bold cyan"}
_CODE = pattern(r"`[^`]+`")
_LINK = pattern(r"\[([^\]]+)\]\([^)]+\)")


def show(results: Sequence[LintResult], console: Terminal) -> None:
    """Print every finding, then the summary."""
    width = min(console.width, MAX_WIDTH)
    texts = {result.path: LINE_END.split(result.text) for result in results}
    for result in results:
        if result.findings:
            console.print_styled((result.path, "bold underline"))
            for finding in result.findings:
                _finding(finding, texts, console, width)
                console.print()
    console.print(summary(results), style="bold" if any(result.findings for result in results) else "")
    _codes(results, console)


def summary(results: Sequence[LintResult]) -> str:
    """`10 warnings and 2 notes in 5 of 6 policies, 1 ignored`."""
    counts = Counter(finding.severity for result in results for finding in result.findings)
    ignored = sum(len(result.ignored) for result in results)
    suffix = f", {ignored} ignored" if ignored else ""
    suffix += "".join(sorted({result.settings.shown for result in results}))
    all_policies = count(len(results), "policy", "policies")
    if not counts:
        return f"{all_policies}, no findings{suffix}"
    parts = [count(counts[severity], str(severity)) for severity in Severity if counts[severity]]
    kinds = " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
    files = sum(bool(result.findings) for result in results)
    where = all_policies if files == len(results) else f"{files} of {all_policies}"
    return f"{kinds} in {where}{suffix}"


def show_page(page: str, console: Terminal) -> None:
    """Print the page of a finding, with prose wrapped and examples unchanged."""
    width = min(console.width, MAX_WIDTH)
    from rich.text import Text

    for block in re.split(r"\n{2,}", page.strip()):
        if block.startswith("```"):
            lines = [line for line in block.splitlines() if not line.startswith("```")]
            for line in lines:
                console.print(Text(f"    {line}".rstrip(), style="cyan"))
        elif block.startswith("#"):
            console.print(Text(block.lstrip("# "), style="bold"))
        else:
            text = _LINK.sub(r"\1", block)
            parts = _prose(text if text.startswith(("-", "|")) else " ".join(text.split()))
            console.print(Text.assemble(*parts), width=width)
        if not block.startswith("#") or block.startswith("# "):
            console.print()


def _finding(finding: Diagnostic, texts: dict[str, list[str]], console: Terminal, width: int) -> None:
    position = f"{finding.span.line}:{finding.span.column}"
    console.print_styled(
        "  ",
        (f"{position:<8}", "dim"),
        (str(finding.severity), _STYLES[finding.severity]),
        f" {finding.code} ",
        (finding.name, "dim"),
    )
    _print_indented(_prose(finding.message), console, width)
    _excerpt(finding.span, texts, console, width)
    for related in finding.related:
        file = "" if related.span.path == finding.span.path else f"{related.span.path}:"
        position = f"{file}{related.span.line}:{related.span.column}" if file else f"line {related.span.line}"
        _print_indented([f"{position}: ", *_prose(related.value)], console, width, style="dim")
        _excerpt(related.span, texts, console, width)
    if finding.help:
        _print_indented(["help: ", *_prose(finding.help)], console, width, style="bold")


def _print_indented(parts: Sequence[str | tuple[str, str]], console: Terminal, width: int, style: str = "") -> None:
    plain, available = "".join(part if isinstance(part, str) else part[0] for part in parts), width - _INDENT
    if console.color_system is None and plain and plain.isascii() and plain.isprintable():
        size = min(len(plain), available)
        for line in wrapped(plain, available):
            console.print(" " * _INDENT + line.ljust(size))
        return
    from rich.padding import Padding
    from rich.text import Text

    console.print(Padding(Text.assemble(*parts, style=style), (0, 0, 0, _INDENT), expand=False), width=width)


def _prose(text: str) -> list[str | tuple[str, str]]:
    """The parts of prose, with the user's own text, which is in backticks, in bold."""
    parts: list[str | tuple[str, str]] = []
    place = 0
    for match in _CODE.finditer(text):
        parts += [text[place : match.start()], (match[0], "bold not dim")]
        place = match.end()
    return [*parts, text[place:]]


def _excerpt(span: Span, texts: dict[str, list[str]], console: Terminal, width: int) -> None:
    """Print the first line of a span without indentation, with carets below; a long line is cut around the span."""
    lines = texts.get(span.path, [])
    if not 1 <= span.line <= len(lines) or not lines[span.line - 1].strip():
        return
    line = lines[span.line - 1].replace("\t", " ")
    end = max(span.column, span.end_column - 1 if span.end_line == span.line else len(line.rstrip()))
    line, start, end = shown_columns(line, span.column - 1, end)
    margin = min(len(line) - len(line.lstrip()), start)
    line, start, end = line[margin:].rstrip(), start - margin, end - margin
    available = max(width - 12, 20)
    if len(line) > available or _cells(line) > available:
        offset = max(0, min(start - available // 3, len(line) - available + 1))
        line = (
            ("…" if offset else "")
            + line[offset + bool(offset) : offset + available - 1]
            + ("…" if offset + available - 1 < len(line) else "")
        )
        start, end = start - offset, min(end - offset, len(line))
    carets = " " * _cells(line[:start]) + "^" * max(1, _cells(line[start:end]))
    for text, style in ((line, ""), (carets, "bold blue")):
        console.print_styled(" " * _INDENT, ("│ ", "blue"), (text, style))


def _cells(text: str) -> int:
    """The columns that a text takes on a terminal."""
    if text.isascii() and text.isprintable():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _codes(results: Sequence[LintResult], console: Terminal) -> None:
    """Print the number of findings by code, most frequent first, and where to read more."""
    counts = Counter(
        (finding.code, finding.name, finding.severity) for result in results for finding in result.findings
    )
    if not counts:
        return
    digits = max(len(str(number)) for number in counts.values())
    for (code, name, severity), number in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        console.print_styled(f"  {number:>{digits}}  ", (code, _STYLES[severity]), (f"  {name}", "dim"))
    first_code = next(finding.code for result in results for finding in result.findings)
    console.print(f"`privtab lint --explain {first_code}` says what it means and what to write instead", style="dim")
