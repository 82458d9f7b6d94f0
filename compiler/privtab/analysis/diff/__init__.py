"""The semantic diff of two programs: an exact verdict on every operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from privtab.analysis.diff.compare import Comparison, cell
from privtab.analysis.diff.declared import compare_declared
from privtab.analysis.diff.nodes import Declared, Detail, Diff, Named, Pair, RowChange, Verdict
from privtab.analysis.diff.renames import Renames, recognise
from privtab.analysis.diff.worker import Worker, helpers
from privtab.ir.nodes import Program

ENOUGH_FOR_ONE = 100
"""The number of operations that one process compares in the time that it takes to start another process."""
__all__ = ["Declared", "Diff", "RowChange", "Verdict", "diff"]


def diff(before: Program, after: Program, *, shown: tuple[str, str] | None = None, renames: bool = True) -> Diff:
    """Compare every operation of either program, and what else the files declare differently.

    `shown`: the names of the two sides for display. `renames`: recognise renamed things and compare them under the new
    name.
    """
    found = recognise(before, after) if renames else Renames()
    earlier = found.names.program(before, found.aliases) if found.names else before
    declared = (*_renamed(found), *compare_declared(earlier, after))
    comparison = Comparison(earlier, after, declared)
    was = {found.names.pair(*pair): pair for pair in before.rules}
    rows = _rows(lambda pair: _row(comparison, pair, was, found), _pairs(earlier, after), comparison)
    names = shown or (f"{before.system}/{before.version}", f"{after.system}/{after.version}")
    return Diff(
        before=Named(shown=names[0], system=before.system, version=before.version),
        after=Named(shown=names[1], system=after.system, version=after.version),
        rows=tuple(rows),
        declared=declared,
    )


def _rows(row: Callable[[Pair], RowChange], pairs: Sequence[Pair], comparison: Comparison) -> list[RowChange]:
    """The rows; if many need comparison, child processes take a share."""
    asked = [pair for pair in pairs if comparison.both(pair) and not comparison.same(pair)]
    shares = min(helpers() + 1, len(asked) // ENOUGH_FOR_ONE)
    if shares < 2:
        return list(map(row, pairs))
    # Interleaved, because neighbouring rows need a similar amount of work.
    children = [Worker.start(lambda share=asked[n::shares]: list(map(row, share))) for n in range(1, shares)]  # type: ignore[misc]
    done = {pair: row(pair) for pair in asked[::shares]}
    for n, child in enumerate(children, start=1):
        done |= zip(asked[n::shares], child.result(), strict=True)
    return [done.get(pair) or row(pair) for pair in pairs]


def _pairs(before: Program, after: Program) -> list[Pair]:
    """Every operation, by entity in the order of the later file; removed operations come last within their entity."""
    types = list(dict.fromkeys([*after.entities, *before.entities]))
    order = {type_: place for place, type_ in enumerate(types)}
    return sorted(dict.fromkeys([*after.rules, *before.rules]), key=lambda pair: order[pair[0]])


def _row(comparison: Comparison, pair: Pair, was: dict[Pair, Pair], found: Renames) -> RowChange:
    before, after = comparison.before.rules.get(pair), comparison.after.rules.get(pair)
    if before is None or after is None:
        return RowChange(
            entity=pair[0],
            operation=pair[1],
            verdict=Verdict.ADDED if before is None else Verdict.REMOVED,
            before=None if before is None else cell(comparison.before, before),
            after=None if after is None else cell(comparison.after, after),
            was=None if was.get(pair, pair) == pair else was[pair],
        )
    row = comparison.row(pair)
    old = was[pair]
    if old == pair:
        return row
    by = found.operations_by.get(old) or f"{old[0]} is {pair[0]} now"
    renamed = Verdict.RENAMED if row.verdict is Verdict.EQUAL else row.verdict
    return replace(row, verdict=renamed, was=old, recognised=by)


def _renamed(found: Renames) -> Iterator[Declared]:
    for old, new in found.names.types.items():
        yield Declared(
            kind="type",
            name=new,
            verdict=Verdict.RENAMED,
            was=old,
            recognised=found.types_by[old],
            details=(Detail(what="", before=old, after=new),),
        )
    for old, new in found.names.privileges.items():
        yield Declared(
            kind="privilege",
            name=new,
            verdict=Verdict.RENAMED,
            was=old,
            recognised=found.privileges_by[old],
            details=(Detail(what="", before=old, after=new),),
        )
