"""The outcome for a person: failures with their rows first, then one line for each policy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from rich.console import Console
from rich.table import Table
from rich.text import Text

from privtab.ir.explain import source_text
from privtab.scenarios.results import Result, because
from privtab.scenarios.rows import row_lines
from privtab.scenarios.run import Failure

SHOWN, SHOWN_OF_ENTRY = 20, 2
"""Failures that are shown at once, and of those that one entry brings."""


def show(console: Console, results: Sequence[Result], *, verbose: bool) -> None:
    """Everything that there is to say about some results."""
    for result in results:
        _failures(console, result, verbose=verbose)
    _summary(console, results)


def _failures(console: Console, result: Result, *, verbose: bool) -> None:
    left = len(result.failures) if verbose else SHOWN
    for _, group in groupby(result.failures, key=lambda failure: (failure.case.span, failure.fault)):
        some = list(group)
        most = min(len(some) if verbose else SHOWN_OF_ENTRY, left)
        for failure in some[:most]:
            _failure(console, result, failure)
        if most < len(some) and most:
            console.print(f"  and {len(some) - most} more of this entry\n", style="dim")
        left -= most
    hidden = len(result.failures)
    if left <= 0 and not verbose and hidden > SHOWN:
        console.print(f"{hidden} cases failed; --verbose shows them all\n", style="dim")


def _failure(console: Console, result: Result, failure: Failure) -> None:
    case = failure.case
    rule = result.rule(case)
    console.print(Text.assemble(("✗ ", "bold red"), (case.name, "bold")), soft_wrap=True)
    facts: list[tuple[str, str]] = [("at", f"{case.span.path}:{case.span.line}:{case.span.column}")]
    facts += [("why", case.why)] if case.why else []
    what = "" if failure.fault in {"decision", "engines"} else f"{failure.fault} "
    facts.append(("expected", what + failure.expected))
    facts.append(("got", what + failure.got + (f": {because(failure)}" if failure.fault == "decision" else "")))
    source = source_text(rule.source)
    facts.append(("row", f"{rule.span.path}:{rule.span.line}" + (f"  from {source}" if source else "")))
    for name, text in facts:
        console.print(Text.assemble(("  " + name.ljust(10), "dim"), text), soft_wrap=True)
    for line in row_lines(rule.span):
        console.print(Text("    " + line, style="cyan"), soft_wrap=True)
    console.print()


def _summary(console: Console, results: Iterable[Result]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("policy", overflow="fold")
    for name in ("cases", "passed", "failed"):
        table.add_column(name, justify="right")
    for result in results:
        failed = len(result.asked) - result.passed
        table.add_row(
            result.plan.subject.title,
            f"{len(result.asked):,}",
            f"{result.passed:,}",
            Text(f"{failed:,}", style="bold red" if failed else "dim"),
        )
    console.print(table)
