"""The parts of rows that decide nothing.

A part is superfluous if the row holds in the same states without it, for all flags and types of a request. If either of
two parts can be dropped but not both, one is reported: preferably the one that its own `or` or `and` makes superfluous,
then the outer one, then the later one. All reported parts can be dropped together, and each of them alone.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, product
from math import prod
from typing import Literal

from privtab.base.caching import once
from privtab.base.errors import Undecided
from privtab.base.records import dataclass
from privtab.checks._parts import (
    PLACES,
    USES,
    Circuit,
    Node,
    Part,
    PartKind,
    PartLiterals,
    Path,
    RemovedPaths,
    nodes,
    outline,
    parts,
    tree,
)
from privtab.checks._view import View
from privtab.ir.exact import unrelated
from privtab.ir.nodes import ALWAYS, And, Atom, Atomic, Formula, Or, Rule, When
from privtab.ir.some_minimal_sets import superfluous_atoms
from privtab.ir.unroll import Levels, levels_that_matter, unrolled
from privtab.model import nodes as m

Why = Literal["twice", "same", "less", "others", "gate", "always", "row"]
"""Why a part is superfluous.

It is repeated, something beside it is equivalent or requires less, everything beside it together suffices, the gate
implies it, it requires nothing, or the row as a whole makes up for it.
"""

_CHOICES = 64
"""If the types of a row's objects have more combinations, they are not checked one by one but together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Superfluous:
    """A part that decides nothing, and why."""

    path: Path
    kind: PartKind
    spot: m.CellPart
    why: Why


@once
def superfluous(view: View) -> tuple[Superfluous, ...]:
    """The parts of rows that decide nothing."""
    return tuple(_superfluous(view))


def _superfluous(view: View) -> Iterator[Superfluous]:
    bodies: dict[int, list[m.Row]] = {}
    for row in view.policy.rows.values():
        bodies.setdefault(id(row.decl.body), []).append(row)
    by_shape: dict[Hashable, dict[Path, Why] | None] = {}
    for rows in bodies.values():
        key = tuple((outline(row.requires), outline(row.each), view.shape_of(view.rule(row)).number) for row in rows)
        if by_shape.get(key) == {}:
            continue  # nothing in rows like these is superfluous
        cells = [((0, row.requires), (1, row.each)) for row in rows]
        roots = [[tree(cell, (n,)) for n, cell in of_row if cell is not None] for of_row in cells]
        candidates = [part for root in roots[0] for node in nodes(root) for part in parts(node)]
        if key not in by_shape:
            by_shape[key] = _reasons(view, rows, roots, candidates) if candidates else {}
        reasons = by_shape[key]
        if reasons is None:
            view.undecided(rows[0], "P310", "P328")
        else:
            yield from (_superfluous_part(part, reasons[part.path]) for part in candidates if part.path in reasons)


def _reasons(view: View, rows: list[m.Row], roots: list[list[Node]], candidates: list[Part]) -> dict[Path, Why] | None:
    """The superfluous parts of rows with one body, and why; None if undecided."""
    reasons = None if view.program.nests else _absorbed(view, rows, roots, candidates)
    if reasons is not None:
        return reasons
    try:
        return {part.path: part.why for part in _Body(view, rows, roots, candidates).found()}
    except Undecided:
        return None


def _absorbed(view: View, rows: list[m.Row], roots: list[list[Node]], candidates: list[Part]) -> dict[Path, Why] | None:
    """The parts that atoms beside them absorb, if there are no other superfluous parts and all rows agree."""
    first, *others = (_absorbed_in_row(view, row, row_roots) for row, row_roots in zip(rows, roots, strict=True))
    candidate_paths = {part.path for part in candidates}
    return (
        first
        if first is not None and candidate_paths.issuperset(first) and all(other == first for other in others)
        else None
    )


def _superfluous_part(part: Part, reason: Why) -> Superfluous:
    return Superfluous(path=part.path, kind=part.kind, spot=part.spot, why=reason)


def _levels(view: View, rule: Rule) -> Iterator[tuple[int, Levels] | None]:
    """The levels of the objects for which parts are compared, with the most that matter; None where no type nests."""
    if not view.program.nests:
        yield None
        return
    condition = rule.item_condition
    most = levels_that_matter((view.program, condition), (view.program, condition))
    for levels in unrolled(view.program).requests([condition], most):
        yield most, levels


class _RowShape:
    """A row for one kind of request: the possible types of its objects, their levels, and whether the last name is omitted."""

    def __init__(
        self,
        view: View,
        rule: Rule,
        roots: list[Node],
        types: Mapping[str, Collection[str]],
        unnamed: str | None,
        levels: tuple[int, Levels] | None = None,
    ) -> None:
        self.roots, self.types = roots, types
        self.named = unnamed is None
        self.nodes = {node.path: node for root in roots for node in nodes(root)}
        cells = [rule.gate, rule.requires, *([rule.each] if self.named and rule.each is not None else [])]
        conditions = [formula for formula in cells if formula != ALWAYS]
        # Without the last name, parts that differ may become equal: what is left of a condition says nothing about them.
        self.independent = levels is None and self.named and unrelated(view.exact.semantics, conditions, types)
        """True if all parts are about different things, so that none is superfluous."""
        if not self.independent:
            self.circuit = Circuit(view, types, unnamed, levels)
            self.reader = PartLiterals(view.lowering, self.circuit)
            self.gate = self.circuit.leaf(rule.gate)
            self.complete = self.total(frozenset())

    def total(self, removed: RemovedPaths) -> int:
        """The literal of everything that the request requires."""
        return self.circuit.all_of([self.gate, *(self.reader.value(root, removed) for root in self.roots)])

    def equal(self, literal: int, other: int) -> bool:
        return self.circuit.implies(literal, other) and self.circuit.implies(other, literal)

    def always(self) -> Iterator[Path]:
        """The paths of every `or` that holds for all who pass the gate; their parts are left to another finding."""
        for path, node in self.nodes.items():
            if node.kind == "alternative" and self.circuit.implies(self.gate, self.reader.value(node)):
                yield path

    def idle(self, always: frozenset[Path]) -> set[Path]:
        """The parts that the row does not need, each considered alone."""
        found: set[Path] = set()
        values = [self.reader.value(root) for root in self.roots]
        for i, root in enumerate(self.roots):
            self._idle(root, self.circuit.all_of([self.gate, *values[:i], *values[i + 1 :]]), always, found)
        return found

    def _idle(self, node: Node, relevant: int, always: frozenset[Path], found: set[Path]) -> None:
        """Add to `found`. `relevant`: a literal that holds where the row holds if and only if the node does."""
        circuit = self.circuit
        if node.shape in ("leaf", "when"):
            for part in node.parts:
                self._idle(part, circuit.all_of([relevant, circuit.solver.flag(node.flag)]), always, found)
            return
        value = self.reader.value(node)
        reportable = node.path not in always
        if not reportable:
            relevant = self.gate if self.named else -circuit.true
        for axis in (USES, PLACES) if node.grid else (USES,):
            literals = self.reader.part_values(node, axis=axis)
            every = node.shape == "all" or (node.shape == "all-grid" and axis == USES)
            before, after = self._joined(list(literals.values()), every=every)
            for i, path in enumerate(literals):
                others = (circuit.all_of if every else circuit.any_of)([before[i], after[i + 1]])
                without = others
                if node.shape == "all-grid" and axis == PLACES:
                    without = self.reader.value(node, frozenset({path}))
                # Without a part, an `and` requires less and an `or` requires more.
                weaker, stronger = (without, value) if every else (value, without)
                if reportable and not circuit.possible(relevant, weaker, -stronger):
                    found.add(path)
                if not node.grid and node.parts[i].shape != "leaf":
                    part_relevant = (others if every else -others) if reportable else circuit.true
                    self._idle(node.parts[i], circuit.all_of([relevant, part_relevant]), always, found)

    def _joined(self, literals: list[int], *, every: bool) -> tuple[list[int], list[int]]:
        """The joins of the first literals, for each number of them; and of the last, by the index of their first."""
        join, neutral = (self.circuit.all_of, self.circuit.true) if every else (self.circuit.any_of, -self.circuit.true)

        def join_two(left: int, right: int) -> int:
            return join([left, right])

        return (
            list(accumulate(literals, join_two, initial=neutral)),
            list(accumulate(reversed(literals), join_two, initial=neutral))[::-1],
        )


class _Body:
    """The rows of one body, which applies to several types or operations."""

    def __init__(self, view: View, rows: list[m.Row], all_roots: list[list[Node]], candidates: list[Part]) -> None:
        self.shapes: list[_RowShape] = []
        self.candidates = candidates
        view.exact.solver.renew()
        for row, roots in zip(rows, all_roots, strict=True):
            rule = view.rule(row)
            one_by_one = prod(len(w.types) for w in rule.withs) <= _CHOICES
            choices = [[(type_,) for type_ in w.types] if one_by_one else [w.types] for w in rule.withs]
            for chosen in product(*choices):
                types = dict(zip((w.name for w in rule.withs), chosen, strict=True))
                for levels in _levels(view, rule):
                    self.shapes.append(_RowShape(view, rule, roots, types, None, levels))
                    if rule.each is not None and row.requires is not None:
                        call = [root for root in roots if root.path == (0,)]
                        self.shapes.append(_RowShape(view, rule, call, types, rule.entity, levels))
        self.lowering = view.lowering

    def found(self) -> Iterator[Superfluous]:
        """The parts that are superfluous in all rows, in the order of the file."""
        self.independent = [shape for shape in self.shapes if shape.independent]
        self.shapes = [shape for shape in self.shapes if not shape.independent]
        if not self.shapes:
            return
        always: dict[int, set[Path]] = {}  # on every level of the objects of some types
        for shape in self.shapes:
            if shape.named:
                found = set(shape.always())
                always[id(shape.types)] = always.get(id(shape.types), found) & found
        self.always = frozenset[Path]().union(*always.values())
        idle = self._superfluous_alone()
        if not idle:
            return
        removed: dict[Path, Why] = {}
        for part in sorted(idle, key=lambda part: _ORDER.index(part.kind)):
            if (
                not _inside(part, removed)
                and (reason := self._local_reason(part, removed))
                and self._unchanged(part, removed)
            ):
                removed[part.path] = reason
        changed = True
        while changed:
            changed = False
            for part in sorted(idle, key=_outer_first):
                if _inside(part, removed):
                    continue
                if part.kind != "condition" and not _PartContext(self.shapes[0], part, frozenset(removed)).rest:
                    continue  # the last one of a list that cannot be empty
                if self._unchanged(part, removed):
                    removed[part.path] = "row"
                    changed = True
        for part in self.candidates:
            if part.path in removed and not _inside(part, removed.keys() - {part.path}):
                yield _superfluous_part(part, removed[part.path])

    def _superfluous_alone(self) -> list[Part]:
        independent_cells = {root.path[0] for shape in self.independent for root in shape.roots}
        remaining = [part for part in self.candidates if part.path[0] not in independent_cells]
        for shape in self.shapes:
            if remaining:
                idle, cells = shape.idle(self.always), {root.path[0] for root in shape.roots}
                remaining = [part for part in remaining if part.path in idle or part.path[0] not in cells]
        return remaining

    def _unchanged(self, part: Part, removed: Mapping[Path, Why]) -> bool:
        """Return whether the rows, and the parts of each `or` that always holds, are unchanged."""
        without = frozenset((*removed, part.path))
        for shape in self.shapes:
            if not shape.equal(shape.total(without), shape.complete):
                return False
            for path in self.always if shape.named else ():
                for inner in shape.nodes[path].parts if path in shape.nodes else ():
                    values = (
                        shape.reader.value(inner, removed_paths) for removed_paths in (without, frozenset[Path]())
                    )
                    if not shape.equal(*(shape.circuit.all_of([shape.gate, value]) for value in values)):
                        return False
        return True

    def _local_reason(self, part: Part, removed: Mapping[Path, Why]) -> Why | None:
        """Why its own `or`, `and` or term makes a part superfluous; None if it does not."""
        contexts = [_PartContext(shape, part, frozenset(removed)) for shape in self.shapes if shape.named]
        if part.kind == "condition":
            if all(context.implied_by([]) for context in contexts):
                return "always" if all(context.always_holds() for context in contexts) else "gate"
            return "others" if all(context.implied_by(context.rest.values()) for context in contexts) else None
        rest = contexts[0].rest
        if not rest or not all(context.implies_any(context.rest.values()) for context in contexts):
            return None
        sufficient = [path for path in rest if all(path in context.implied_others for context in contexts)]
        if any(all(context.repeats(path) for context in contexts) for path in sufficient):
            return "twice"
        if any(all(context.implied_by([context.rest[path]]) for context in contexts) for path in sufficient):
            return "same"
        return "less" if sufficient else "others"


class _PartContext:
    """A part and the remaining parts beside it, for one kind of request."""

    def __init__(self, shape: _RowShape, part: Part, removed: RemovedPaths) -> None:
        self._shape = shape
        self._part = part
        self._node = shape.nodes[part.node.path]
        self._axis = PLACES if self._node.grid and part.kind == "object" else USES
        self.rest = shape.reader.part_values(self._node, removed, self._axis)
        self.literal = self.rest.pop(part.path)
        if self.rest and self._node.shape == "all-grid" and self._axis == PLACES:
            # Different objects may provide different privileges, so compare with the term without this object.
            self.literal = shape.reader.value(self._node, removed)
            self.rest = {part.path: shape.reader.value(self._node, removed | {part.path})}

    def implied_by(self, others: Iterable[int]) -> bool:
        """Return whether the others, with the gate, imply the part."""
        circuit = self._shape.circuit
        return circuit.implies(circuit.all_of([self._shape.gate, *others]), self.literal)

    def always_holds(self) -> bool:
        return self._shape.circuit.implies(self._shape.circuit.true, self.literal)

    def implies_any(self, others: Iterable[int]) -> bool:
        """Return whether at least one of the others holds wherever the part does."""
        circuit = self._shape.circuit
        return circuit.implies(circuit.all_of([self._shape.gate, self.literal]), circuit.any_of(others))

    @cached_property
    def implied_others(self) -> frozenset[Path]:
        """The others that each hold wherever the part does."""
        circuit = self._shape.circuit
        implied = circuit.implied(circuit.all_of([self._shape.gate, self.literal]), self.rest.values())
        return frozenset(path for path, value in self.rest.items() if value in implied)

    def repeats(self, path: Path) -> bool:
        """Return whether another part is the same condition, regardless of aliases and parentheses."""
        return path != self._part.path and self._formulas(path) == self._formulas(self._part.path)

    def _formulas(self, path: Path) -> list[Formula]:
        formula = self._shape.reader.lowering.formula
        if not self._node.grid:
            return [formula(self._node.parts[path[-1]].condition)]
        grid = self._node.grid
        return [formula(c) for c in (grid[path[-1]] if self._axis == USES else [row[path[-1]] for row in grid])]


def _inside(part: Part, removed: Collection[Path]) -> bool:
    """Return whether a part lies in a dropped one."""
    return part.path in removed or any(part.path[:length] in removed for length in range(1, len(part.path)))


_ORDER: tuple[PartKind, ...] = ("alternative", "object", "privilege", "condition")


def _outer_first(part: Part) -> tuple[int, list[int]]:
    """Sort outer parts before inner ones, and later parts before earlier ones."""
    return len(part.path), [-step for step in part.path]


def _absorbed_in_row(view: View, row: m.Row, roots: Sequence[Node]) -> dict[Path, Why] | None:
    """All superfluous parts of a row and why; None if other parts are related too, so that the solver has to decide.

    Takes linear time, where the solver takes a question for each part.
    """
    if row.each is not None and row.requires is not None:
        return None  # a request without the last name has another condition
    removed: dict[Path, Why] = {}
    for root in roots:
        for node in nodes(root):
            if node.shape in ("all", "any"):
                removed |= _absorbed_parts(view, node, every=node.shape == "all")
    rule = view.rule(row)
    remaining = [_without(view, root, removed) for root in roots]
    types = {slot.name: slot.types for slot in rule.withs}
    conditions = remaining if rule.gate == ALWAYS else [rule.gate, *remaining]
    return removed if unrelated(view.exact.semantics, conditions, types) else None


def _absorbed_parts(view: View, node: Node, *, every: bool) -> dict[Path, Why]:
    """The atoms of an `and` or an `or` that another one beside them absorbs; of two equal atoms, the later one."""
    first: dict[Atom, Path] = {}
    removed: dict[Path, Why] = {}
    for part in node.parts:
        formula = view.lowering.formula(part.condition) if part.shape == "leaf" else None
        if isinstance(formula, Atomic) and first.setdefault(formula, part.path) != part.path:
            removed[part.path] = "others" if every else "twice"
    for atom in superfluous_atoms(view.canonical, first, every=every):
        removed[first[atom]] = "others" if every else "less"
    return removed


def _without(view: View, node: Node, removed: Collection[Path]) -> Formula:
    if node.shape == "when":
        return When(flag=node.flag, body=_without(view, node.parts[0], removed))
    if node.shape in ("all", "any"):
        remaining = tuple(_without(view, part, removed) for part in node.parts if part.path not in removed)
        return And(parts=remaining) if node.shape == "all" else Or(parts=remaining)
    return view.lowering.formula(node.condition)
