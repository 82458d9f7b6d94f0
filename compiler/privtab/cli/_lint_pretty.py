"""Print findings as text: by file, each with its source line, and counts by code at the end."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.padding import Padding
from rich.text import Text

from privtab.cli._output import print_fast
from privtab.cli._table import wrapped
from privtab.diagnostics import Diagnostic, Severity, Span, shown_columns
from privtab.plural import count

if TYPE_CHECKING:
    from rich.console import Console

    from privtab.lint.settings import LintResult

MAX_WIDTH = 120
"""Maximum width of prose."""
_INDENT = 10
_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.NOTE: "bold cyan"}
_LINE_END = re.compile(r"\r\n|\n|\r")
_CODE = re.compile(r"`[^`]+`")
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")


def show(results: Sequence[LintResult], console: Console) -> None:
    """Print every finding, then the summary."""
    width = min(console.width, MAX_WIDTH)
    texts = {result.path: _LINE_END.split(result.text) for result in results}
    for result in results:
        if result.findings:
            console.print(Text(result.path, style="bold underline"), soft_wrap=True)
            for finding in result.findings:
                _finding(finding, texts, console, width)
                print_fast(console)
    console.print(summary(results), style="bold" if any(result.findings for result in results) else "", soft_wrap=True)
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


def show_page(page: str, console: Console) -> None:
    """Print the page of a finding, with prose wrapped and examples unchanged."""
    width = min(console.width, MAX_WIDTH)
    for block in re.split(r"\n{2,}", page.strip()):
        if block.startswith("```"):
            lines = [line for line in block.splitlines() if not line.startswith("```")]
            for line in lines:
                console.print(Text(f"    {line}".rstrip(), style="cyan"), soft_wrap=True)
        elif block.startswith("#"):
            console.print(Text(block.lstrip("# "), style="bold"))
        else:
            text = _LINK.sub(r"\1", block)
            console.print(_prose(text if text.startswith(("-", "|")) else " ".join(text.split())), width=width)
        if not block.startswith("#") or block.startswith("# "):
            console.print()


def _finding(finding: Diagnostic, texts: dict[str, list[str]], console: Console, width: int) -> None:
    position = f"{finding.span.line}:{finding.span.column}"
    headline = (
        Text("  ").append(f"{position:<8}", style="dim").append(str(finding.severity), style=_STYLES[finding.severity])
    )
    print_fast(console, headline.append(f" {finding.code} ").append(finding.name, style="dim"), wrap=False)
    _print_indented(_prose(finding.message), console, width)
    _excerpt(finding.span, texts, console, width)
    for related in finding.related:
        file = "" if related.span.path == finding.span.path else f"{related.span.path}:"
        position = f"{file}{related.span.line}:{related.span.column}" if file else f"line {related.span.line}"
        _print_indented(Text(f"{position}: ", style="dim").append_text(_prose(related.message)), console, width)
        _excerpt(related.span, texts, console, width)
    if finding.help:
        _print_indented(Text("help: ", style="bold").append_text(_prose(finding.help)), console, width)


def _print_indented(text: Text, console: Console, width: int) -> None:
    plain, available = text.plain, width - _INDENT
    if console.color_system is None and plain and plain.isascii() and plain.isprintable():
        size = min(len(plain), available)
        for line in wrapped(plain, available):
            print_fast(console, " " * _INDENT + line.ljust(size), wrap=False)
    else:
        console.print(Padding(text, (0, 0, 0, _INDENT), expand=False), width=width)


def _prose(text: str) -> Text:
    """Prose with the user's own text, which is in backticks, in bold."""
    rich_text = Text(text, style="none")
    for match in _CODE.finditer(text):
        rich_text.stylize("bold not dim", *match.span())
    return rich_text


def _excerpt(span: Span, texts: dict[str, list[str]], console: Console, width: int) -> None:
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
    if len(line) > available or cell_len(line) > available:
        offset = max(0, min(start - available // 3, len(line) - available + 1))
        line = (
            ("…" if offset else "")
            + line[offset + bool(offset) : offset + available - 1]
            + ("…" if offset + available - 1 < len(line) else "")
        )
        start, end = start - offset, min(end - offset, len(line))
    bar = Text(" " * _INDENT).append("│ ", style="blue")
    carets = " " * cell_len(line[:start]) + "^" * max(1, cell_len(line[start:end]))
    print_fast(console, bar.copy().append(line), wrap=False)
    print_fast(console, bar.copy().append(carets, style="bold blue"), wrap=False)


def _codes(results: Sequence[LintResult], console: Console) -> None:
    """Print the number of findings by code, most frequent first, and where to read more."""
    counts = Counter(
        (finding.code, finding.name, finding.severity) for result in results for finding in result.findings
    )
    if not counts:
        return
    digits = max(len(str(number)) for number in counts.values())
    for (code, name, severity), number in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        row = Text(f"  {number:>{digits}}  ").append(code, style=_STYLES[severity]).append(f"  {name}", style="dim")
        console.print(row, soft_wrap=True)
    first_code = next(finding.code for result in results for finding in result.findings)
    console.print(f"`privtab lint --explain {first_code}` says what it means and what to write instead", style="dim")
