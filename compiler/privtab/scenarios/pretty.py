"""Results for the terminal: failures with their rows, untested cells, unnoticed faults, and a line for each policy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from rich.console import Console
from rich.table import Table
from rich.text import Text

from privtab.ir.nodes import Rule
from privtab.ir.serialise import source_text
from privtab.scenarios.coverage import Cell
from privtab.scenarios.results import Result, because
from privtab.scenarios.run import Failure

SHOWN, SHOWN_OF_ENTRY = 20, 2
"""The most failures shown, in total and for one entry."""
SHOWN_ROWS, SHOWN_OF_MANY = 5, 2
"""The most rows with untested cells, or with unnoticed faults, shown for a single policy, and for each of several."""
SHOWN_OF_ROW = 3
"""How many cells or faults are shown for one row."""


def show(console: Console, results: Sequence[Result], *, verbose: bool) -> None:
    """Print some results."""
    for result in results:
        _failures(console, result, verbose=verbose)
    most = None if verbose else SHOWN_ROWS if len(results) == 1 else SHOWN_OF_MANY
    for result in results:
        _untested(console, result, most)
        _unseen(console, result, most)
        _undecided(console, result)
    console.print(_summary(results))
    _verdict(console, results)


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
    if left <= 0 and not verbose and len(result.failures) > SHOWN:
        console.print(f"{len(result.failures)} failures in {result.short}; --verbose shows them all\n", style="dim")


def _failure(console: Console, result: Result, failure: Failure) -> None:
    case = failure.case
    rule = result.rule(case)
    _hanging(console, "✗ ", Text(case.name, style="bold"), head_style="bold red")
    what = "" if failure.fault in {"decision", "engines"} else f"{failure.fault}: "
    source = source_text(rule.source)
    taken = result.taken(case)
    facts = [
        ("expected", what + failure.expected),
        ("got", what + failure.got),
        *([("", because(failure))] if failure.fault == "decision" else []),
        *([("why", case.why)] if case.why else []),
        ("case", f"{case.span.path}:{case.span.line}:{case.span.column}"),
        ("row", f"{rule.span.path}:{rule.span.line}" + (f"  from {source}" if source else "")),
        *([("reading", f"{taken.span.path}:{taken.span.line}")] if taken is not None else []),
    ]
    for name, text in facts:
        _hanging(console, f"  {name:<10}", Text(text))
    for line in result.lines(case):
        console.print(Text(f"            {line}", style="cyan"), soft_wrap=True)
    console.print()


def _untested(console: Console, result: Result, most: int | None) -> None:
    if result.coverage is None or not result.coverage.untested:
        return
    untested = result.coverage.untested
    totals = result.coverage.by_rule()
    _heading(console, f"{result.short}: {len(untested):,} of {len(result.coverage.cells):,} cells untested")
    rows = [(rule_id, list(cells)) for rule_id, cells in groupby(untested, key=lambda cell: cell.rule.id)]
    for rule_id, cells in rows[:most]:
        rule, total, _ = totals[rule_id]
        console.print(Text.assemble("  ", _row(rule), (f"  {len(cells)} of {total}", "dim")), soft_wrap=True)
        _some(console, [_cell(cell) for cell in cells], most)
    _rest(console, len(rows), most)


def _unseen(console: Console, result: Result, most: int | None) -> None:
    if result.score is None or not result.score.survived:
        return
    survived = result.score.survived
    _heading(console, f"{result.short}: {len(survived):,} of {result.score.mutants:,} faults that no case notices")
    rows = [(rule_id, list(some)) for rule_id, some in groupby(survived, key=lambda mutant: mutant.original.id)]
    for _, mutants in rows[:most]:
        console.print(Text.assemble("  ", _row(mutants[0].original), (f"  {len(mutants)}", "dim")), soft_wrap=True)
        _some(console, [mutant.text for mutant in mutants], most)
    _rest(console, len(rows), most)


def _undecided(console: Console, result: Result) -> None:
    if not result.undecided:
        return
    _heading(console, f"{result.short}: not decided, and not counted")
    for rule in result.undecided:
        cells = result.coverage is not None and rule in result.coverage.cut
        faults = result.score is not None and rule in result.score.cut
        what = " and ".join([*(["cells"] if cells else []), *(["faults"] if faults else [])])
        console.print(
            Text.assemble("  ", _row(rule), (f"  has more {what} than the budget allows", "dim")), soft_wrap=True
        )
    console.print()


def _some(console: Console, texts: Sequence[str], most: int | None) -> None:
    """The first few texts about a row, and how many more there are."""
    shown = texts if most is None else texts[:SHOWN_OF_ROW]
    for text in shown:
        _hanging(console, "      ", Text(text))
    if len(texts) > len(shown):
        console.print(f"      and {len(texts) - len(shown)} more", style="dim")


def _hanging(console: Console, head: str, body: Text, *, head_style: str = "dim") -> None:
    """Print a text after a head; on a terminal it is wrapped at words and indented below itself."""
    lines = list(body.wrap(console, max(20, console.width - len(head)))) if console.is_terminal else [body]
    for number, line in enumerate(lines):
        line.rstrip()
        before = head if number == 0 else " " * len(head)
        console.print(Text.assemble((before, head_style), line), soft_wrap=True)


def _heading(console: Console, text: str) -> None:
    console.print(Text(text, style="bold yellow"), soft_wrap=True)


def _rest(console: Console, rows: int, most: int | None) -> None:
    if most is not None and rows > most:
        console.print(
            f"  and {rows - most} more row{'' if rows - most == 1 else 's'}; --verbose shows all", style="dim"
        )
    console.print()


def _row(rule: Rule) -> Text:
    return Text.assemble((f"{rule.entity}/{rule.operation}", "cyan"), (f"  {rule.span.path}:{rule.span.line}", "dim"))


def _cell(cell: Cell) -> str:
    return f"{cell.text}  ({cell.setting})" if cell.setting else cell.text


def _summary(results: Iterable[Result]) -> Table:
    listed = list(results)
    failed = any(result.failures for result in listed)
    covered, scored = (any(r.coverage is not None for r in listed), any(r.score is not None for r in listed))
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("policy", overflow="fold")
    for name in (
        "cases",
        *(["failed"] if failed else []),
        *(["cells"] if covered else []),
        *(["faults noticed", "equal"] if scored else []),
    ):
        table.add_column(name, justify="right")
    for result in listed:
        cells: list[Text | str] = [result.short, f"{len(result.asked):,}"]
        if failed:
            wrong = len(result.asked) - result.passed
            cells.append(Text(f"{wrong:,}", style="bold red" if wrong else "dim"))
        if covered:
            coverage = result.coverage
            cells.append("" if coverage is None else _share(coverage.percent, len(coverage.cells)))
        if scored:
            score = result.score
            cells.append("" if score is None else _share(score.percent, score.mutants))
            cells.append("" if score is None else f"{score.equivalent:,}")
        table.add_row(*cells)
    return table


def _share(percent: float, whole: int) -> Text:
    return Text(f"{percent:.4g} % of {whole:,}", style="green" if percent == 100 else "yellow")


def _verdict(console: Console, results: Sequence[Result]) -> None:
    asked = sum(len(result.asked) for result in results)
    failed = asked - sum(result.passed for result in results)
    took = sum(result.seconds for result in results)
    said = Text("\n")
    if failed:
        said.append(f"✗ {failed:,} of {asked:,} cases failed", style="bold red")
    elif asked:
        said.append(f"✓ {asked:,} case{'' if asked == 1 else 's'} passed", style="bold green")
    else:
        said.append("no cases", style="bold yellow")
    said.append(f"  {took:.1f} s", style="dim")
    console.print(said)
