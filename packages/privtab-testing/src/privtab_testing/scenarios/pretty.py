"""Results for the terminal: failures with their rows, untested cells, unnoticed faults, and a line for each policy."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich.console import Console
from rich.table import Table
from rich.text import Text

from privtab.base import count
from privtab.ir import Rule
from privtab_testing.scenarios.prove import Cell
from privtab_testing.scenarios.results import Result, because
from privtab_testing.scenarios.run import Failure

MAX_FAILURES, MAX_OF_ENTRY = 20, 2
"""The most failures shown, in total and for one entry."""
MAX_ROWS, MAX_ROWS_OF_MANY = 5, 2
"""The most rows with untested cells, or with unnoticed faults, shown for a single policy, and for each of several."""
MAX_OF_ROW = 3
"""The most cells or faults that are shown for one row."""


def show(console: Console, results: Sequence[Result], *, verbose: bool) -> None:
    """Print some results."""
    for result in results:
        _failures(console, result, verbose=verbose)
    max_rows = None if verbose else MAX_ROWS if len(results) == 1 else MAX_ROWS_OF_MANY
    for result in results:
        _untested(console, result, max_rows)
        _survivors(console, result, max_rows)
        _undecided(console, result)
    console.print(_summary(results))
    _verdict(console, results)


def _failures(console: Console, result: Result, *, verbose: bool) -> None:
    remaining = len(result.failures) if verbose else MAX_FAILURES
    for _, group in groupby(result.failures, key=lambda failure: (failure.case.span, failure.fault)):
        entry_failures = list(group)
        limit = min(len(entry_failures) if verbose else MAX_OF_ENTRY, remaining)
        for failure in entry_failures[:limit]:
            _failure(console, result, failure)
        if limit < len(entry_failures) and limit:
            console.print(f"  and {len(entry_failures) - limit} more of this entry\n", style="dim")
        remaining -= limit
    if remaining <= 0 and not verbose and len(result.failures) > MAX_FAILURES:
        console.print(
            f"{len(result.failures)} failures in {result.short_name}; --verbose shows them all\n", style="dim"
        )


def _failure(console: Console, result: Result, failure: Failure) -> None:
    case = failure.case
    rule = result.rule(case)
    _print_hanging(console, "✗ ", Text(case.name, style="bold"), head_style="bold red")
    prefix = "" if failure.fault in {"decision", "engines"} else f"{failure.fault}: "
    source = rule.source_text
    reading = result.chosen_reading(case)
    facts = [
        ("expected", prefix + failure.expected),
        ("got", prefix + failure.got),
        *([("", because(failure))] if failure.fault == "decision" else []),
        *([("why", case.why)] if case.why else []),
        ("case", f"{case.span.path}:{case.span.line}:{case.span.column}"),
        ("row", f"{rule.span.path}:{rule.span.line}" + (f"  from {source}" if source else "")),
        *([("reading", f"{reading.span.path}:{reading.span.line}")] if reading is not None else []),
    ]
    for name, text in facts:
        _print_hanging(console, f"  {name:<10}", Text(text))
    for line in result.lines(case):
        console.print(Text(f"            {line}", style="cyan"), soft_wrap=True)
    console.print()


def _untested(console: Console, result: Result, max_rows: int | None) -> None:
    if result.coverage is None or not result.coverage.untested:
        return
    untested, totals = result.coverage.untested, result.coverage.by_rule()
    _heading(console, f"{result.short_name}: {len(untested):,} of {len(result.coverage.cells):,} cells untested")
    by_rule = [(totals[rule_id], list(map(_cell, cells))) for rule_id, cells in groupby(untested, lambda c: c.rule.id)]
    _rows(console, [(rule, f"{len(texts)} of {total}", texts) for (rule, total, _), texts in by_rule], max_rows)


def _survivors(console: Console, result: Result, max_rows: int | None) -> None:
    if result.score is None or not result.score.survived:
        return
    survived = result.score.survived
    _heading(console, f"{result.short_name}: {len(survived):,} of {result.score.mutants:,} faults that no case notices")
    by_rule = [list(mutants) for _, mutants in groupby(survived, lambda mutant: mutant.original.id)]
    rows = [(mutants[0].original, f"{len(mutants)}", [m.text for m in mutants]) for mutants in by_rule]
    _rows(console, rows, max_rows)


def _undecided(console: Console, result: Result) -> None:
    if not result.undecided:
        return
    _heading(console, f"{result.short_name}: not decided, and not counted")
    for rule in result.undecided:
        cells = result.coverage is not None and rule in result.coverage.undecided
        faults = result.score is not None and rule in result.score.undecided
        parts = " and ".join([*(["cells"] if cells else []), *(["faults"] if faults else [])])
        console.print(
            Text.assemble("  ", _row(rule), (f"  has more {parts} than the budget allows", "dim")), soft_wrap=True
        )
    console.print()


def _rows(console: Console, rows: Sequence[tuple[Rule, str, Sequence[str]]], max_rows: int | None) -> None:
    """The first few rows, each with a number and the first few texts about it, and how many more there are."""
    for rule, number, texts in rows[:max_rows]:
        console.print(Text.assemble("  ", _row(rule), (f"  {number}", "dim")), soft_wrap=True)
        shown = texts if max_rows is None else texts[:MAX_OF_ROW]
        for text in shown:
            _print_hanging(console, "      ", Text(text))
        if len(texts) > len(shown):
            console.print(f"      and {len(texts) - len(shown)} more", style="dim")
    if max_rows is not None and (more := len(rows) - max_rows) > 0:
        console.print(f"  and {more} more row{'' if more == 1 else 's'}; --verbose shows all", style="dim")
    console.print()


def _print_hanging(console: Console, head: str, body: Text, *, head_style: str = "dim") -> None:
    """Print a text after a head; on a terminal it is wrapped at words and indented below itself."""
    lines = list(body.wrap(console, max(20, console.width - len(head)))) if console.is_terminal else [body]
    for number, line in enumerate(lines):
        line.rstrip()
        margin = head if number == 0 else " " * len(head)
        console.print(Text.assemble((margin, head_style), line), soft_wrap=True)


def _heading(console: Console, text: str) -> None:
    console.print(Text(text, style="bold yellow"), soft_wrap=True)


def _row(rule: Rule) -> Text:
    return Text.assemble((f"{rule.entity}/{rule.operation}", "cyan"), (f"  {rule.span.path}:{rule.span.line}", "dim"))


def _cell(cell: Cell) -> str:
    return f"{cell.text}  ({cell.setting})" if cell.setting else cell.text


def _summary(results: Sequence[Result]) -> Table:
    failed = any(result.failures for result in results)
    has_coverage = any(result.coverage is not None for result in results)
    has_score = any(result.score is not None for result in results)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("policy", overflow="fold")
    names = ["cases", *(["failed"] if failed else []), *(["cells"] if has_coverage else [])]
    for name in (*names, *(["faults noticed", "equal"] if has_score else [])):
        table.add_column(name, justify="right")
    for result in results:
        coverage, score = result.coverage, result.score
        cells: list[Text | str] = [result.short_name, f"{len(result.cases):,}"]
        if failed:
            failed_cases = len(result.cases) - result.passed
            cells.append(Text(f"{failed_cases:,}", style="bold red" if failed_cases else "dim"))
        if has_coverage:
            cells.append("" if coverage is None else _share(coverage.percent, len(coverage.cells)))
        if has_score:
            cells.append("" if score is None else _share(score.percent, score.mutants))
            cells.append("" if score is None else f"{score.equivalent:,}")
        table.add_row(*cells)
    return table


def _share(percent: float, total: int) -> Text:
    return Text(f"{percent:.4g} % of {total:,}", style="green" if percent == 100 else "yellow")


def _verdict(console: Console, results: Sequence[Result]) -> None:
    cases = sum(len(result.cases) for result in results)
    failed = cases - sum(result.passed for result in results)
    seconds = sum(result.seconds for result in results)
    text = Text("\n")
    if failed:
        text.append(f"✗ {failed:,} of {cases:,} cases failed", style="bold red")
    elif cases:
        text.append(f"✓ {count(cases, 'case')} passed", style="bold green")
    else:
        text.append("no cases", style="bold yellow")
    text.append(f"  {seconds:.1f} s", style="dim")
    console.print(text)
