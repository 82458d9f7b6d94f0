"""The semantic diff of two programs: an exact verdict on every operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from privtab.base import Worker
from privtab.ir import Program, Tool
from privtab_analysis.diff.compare import Comparison, cell
from privtab_analysis.diff.declared import compare_declared
from privtab_analysis.diff.nodes import (
    DeclarationChange,
    DeclarationKind,
    Detail,
    Diff,
    Pair,
    PolicyName,
    RowChange,
    Verdict,
)
from privtab_analysis.diff.renames import Renames, declared_renames

MIN_PAIRS_PER_PROCESS = 100
"""The number of operations that one process compares in the time that it takes to start another process."""
__all__ = ["DeclarationChange", "Diff", "RowChange", "Verdict", "comparable", "diff"]


def diff(
    before: Program,
    after: Program,
    *,
    shown: tuple[str, str] | None = None,
    renames: Mapping[str, str] | None = None,
) -> Diff:
    """Compare every operation of both programs, and the other declarations of their files.

    `shown`: the names of the two sides for display. `renames`: changed names, old to new, besides the changes that the later policy
    declares: of types, privileges, or `type/operation`. They are compared under the new name.
    """
    for program in (before, after):
        Tool.DIFF.check(program)
    recognised = declared_renames(before, after, renames)
    renamed_before = recognised.names.program(before, recognised.aliases) if recognised.names else before
    declared = (*_renamed(recognised), *compare_declared(renamed_before, after))
    comparison = Comparison(renamed_before, after, declared)
    old_pairs = {recognised.names.pair(*pair): pair for pair in before.rules}
    rows = _rows(lambda pair: _row(comparison, pair, old_pairs, recognised), _pairs(renamed_before, after), comparison)
    names = shown or (f"{before.system}/{before.version}", f"{after.system}/{after.version}")
    return Diff(
        before=PolicyName(shown=names[0], system=before.system, version=before.version),
        after=PolicyName(shown=names[1], system=after.system, version=after.version),
        rows=tuple(rows),
        declared=declared,
    )


def comparable(program: Program) -> Program:
    """A program as read back from its own bundle, with positions in its file: two such programs differ only if the bundles do."""
    from privtab.base import strict_loads
    from privtab.bundle import json_bytes
    from privtab.ir import program_from_json, program_json
    from privtab.pipeline import optimised

    # Go through the bundle's JSON, so that types and operations have its order on both sides.
    document = strict_loads(json_bytes(program_json(program, optimised(program))))
    restored = program_from_json(document, f"{program.system}/{program.version}")
    return replace(
        restored, rules={pair: replace(rule, span=program.rules[pair].span) for pair, rule in restored.rules.items()}
    )


def _rows(row: Callable[[Pair], RowChange], pairs: Sequence[Pair], comparison: Comparison) -> list[RowChange]:
    """The rows; if many need comparison, child processes take a share."""
    to_compare = [pair for pair in pairs if comparison.in_both(pair) and not comparison.same(pair)]
    shares = min(Worker.spare() + 1, len(to_compare) // MIN_PAIRS_PER_PROCESS)
    if shares < 2:
        return list(map(row, pairs))
    # Interleaved, because neighbouring rows need a similar amount of work.
    children = [Worker.start(lambda share=to_compare[i::shares]: list(map(row, share))) for i in range(1, shares)]  # type: ignore[misc]
    results = {pair: row(pair) for pair in to_compare[::shares]}
    for i, child in enumerate(children, start=1):
        results |= zip(to_compare[i::shares], child.result(), strict=True)
    return [results.get(pair) or row(pair) for pair in pairs]


def _pairs(before: Program, after: Program) -> list[Pair]:
    """Every operation, by entity in the order of the later file; removed operations come last within their entity."""
    types = list(dict.fromkeys([*after.entities, *before.entities]))
    order = {type_: position for position, type_ in enumerate(types)}
    return sorted(dict.fromkeys([*after.rules, *before.rules]), key=lambda pair: order[pair[0]])


def _row(comparison: Comparison, pair: Pair, old_pairs: dict[Pair, Pair], recognised: Renames) -> RowChange:
    before, after = comparison.before.rules.get(pair), comparison.after.rules.get(pair)
    if before is None or after is None:
        return RowChange(
            entity=pair[0],
            operation=pair[1],
            verdict=Verdict.ADDED if before is None else Verdict.REMOVED,
            before=None if before is None else cell(comparison.before, before),
            after=None if after is None else cell(comparison.after, after),
            was=None if old_pairs.get(pair, pair) == pair else old_pairs[pair],
        )
    row = comparison.row(pair)
    old_pair = old_pairs[pair]
    if old_pair == pair:
        return row
    reason = recognised.operations_by.get(old_pair) or f"{old_pair[0]} is {pair[0]} now"
    verdict = Verdict.RENAMED if row.verdict is Verdict.EQUAL else row.verdict
    return replace(row, verdict=verdict, was=old_pair, recognised=reason)


def _renamed(recognised: Renames) -> Iterator[DeclarationChange]:
    names = recognised.names
    kinds: tuple[tuple[DeclarationKind, Mapping[str, str], Mapping[str, str]], ...] = (
        ("type", names.types, recognised.types_by),
        ("privilege", names.privileges, recognised.privileges_by),
    )
    for kind, changed, by in kinds:
        for old, new in changed.items():
            details = (Detail(what="", before=old, after=new),)
            yield DeclarationChange(
                kind=kind, name=new, verdict=Verdict.RENAMED, was=old, recognised=by[old], details=details
            )
