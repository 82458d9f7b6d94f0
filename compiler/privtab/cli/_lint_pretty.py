"""Print findings as text: by file, each with its source line, and counts by code at the end."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.padding import Padding
from rich.text import Text

from privtab.cli._output import count
from privtab.diagnostics import Diagnostic, Severity, Span
from privtab.diagnostics_render import shown_columns

if TYPE_CHECKING:
    from rich.console import Console

    from privtab.cli._lint import Linted

WIDEST = 120
"""Maximum width of prose."""
_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.NOTE: "bold cyan"}
_LINE_END = re.compile(r"\r\n|\n|\r")
_CODE = re.compile(r"`[^`]+`")
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")


def show(linted: Sequence[Linted], console: Console) -> None:
    """Print every finding, then the summary."""
    width = min(console.width, WIDEST)
    texts = {one.path: _LINE_END.split(one.text) for one in linted}
    for one in linted:
        if one.kept:
            console.print(Text(one.path, style="bold underline"), soft_wrap=True)
            for finding in one.kept:
                _finding(finding, texts, console, width)
                console.print()
    console.print(summary(linted), style="bold" if any(one.kept for one in linted) else "", soft_wrap=True)
    _codes(linted, console)


def summary(linted: Sequence[Linted]) -> str:
    """`10 warnings and 2 notes in 5 of 6 policies, 1 ignored`."""
    found = Counter(finding.severity for one in linted for finding in one.kept)
    ignored = sum(len(one.ignored) for one in linted)
    tail = f", {ignored} ignored" if ignored else ""
    every = count(len(linted), "policy", "policies")
    if not found:
        return f"{every}, no findings{tail}"
    said = [count(found[kind], str(kind)) for kind in Severity if found[kind]]
    kinds = " and ".join(filter(None, (", ".join(said[:-1]), said[-1])))
    files = sum(bool(one.kept) for one in linted)
    where = every if files == len(linted) else f"{files} of {every}"
    return f"{kinds} in {where}{tail}"


def show_page(page: str, console: Console) -> None:
    """Print the page of a finding, with prose wrapped and examples unchanged."""
    width = min(console.width, WIDEST)
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
    place = f"{finding.span.line}:{finding.span.column}"
    head = Text("  ").append(f"{place:<8}", style="dim").append(str(finding.severity), style=_STYLES[finding.severity])
    console.print(head.append(f" {finding.code} ").append(finding.name, style="dim"), soft_wrap=True)
    _said(_prose(finding.message), console, width)
    _excerpt(finding.span, texts, console, width)
    for related in finding.related:
        file = "" if related.span.path == finding.span.path else f"{related.span.path}:"
        place = f"{file}{related.span.line}:{related.span.column}" if file else f"line {related.span.line}"
        _said(Text(f"{place}: ", style="dim").append_text(_prose(related.message)), console, width)
        _excerpt(related.span, texts, console, width)
    if finding.help:
        _said(Text("help: ", style="bold").append_text(_prose(finding.help)), console, width)


def _said(text: Text, console: Console, width: int) -> None:
    console.print(Padding(text, (0, 0, 0, 10), expand=False), width=width)


def _prose(text: str) -> Text:
    """Prose with the user's own text, which is in backticks, in bold."""
    shown = Text(text, style="none")
    for found in _CODE.finditer(text):
        shown.stylize("bold not dim", *found.span())
    return shown


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
    room = max(width - 12, 20)
    if len(line) > room or cell_len(line) > room:
        cut = max(0, min(start - room // 3, len(line) - room + 1))
        line = (
            ("…" if cut else "") + line[cut + bool(cut) : cut + room - 1] + ("…" if cut + room - 1 < len(line) else "")
        )
        start, end = start - cut, min(end - cut, len(line))
    bar = Text(" " * 10).append("│ ", style="blue")
    carets = " " * cell_len(line[:start]) + "^" * max(1, cell_len(line[start:end]))
    console.print(bar.copy().append(line), soft_wrap=True)
    console.print(bar.copy().append(carets, style="bold blue"), soft_wrap=True)


def _codes(linted: Sequence[Linted], console: Console) -> None:
    """Print the number of findings by code, most frequent first, and where to read more."""
    found = Counter((f.code, f.name, f.severity) for one in linted for f in one.kept)
    if not found:
        return
    wide = max(len(str(number)) for number in found.values())
    for (code, name, severity), number in sorted(found.items(), key=lambda item: (-item[1], item[0])):
        row = Text(f"  {number:>{wide}}  ").append(code, style=_STYLES[severity]).append(f"  {name}", style="dim")
        console.print(row, soft_wrap=True)
    first = next(f.code for one in linted for f in one.kept)
    console.print(f"`privtab lint --explain {first}` says what it means and what to write instead", style="dim")
