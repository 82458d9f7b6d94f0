"""The parts of rows that decide nothing.

A part is superfluous if the row holds in the same states without it, for all flags and types of a request. If either of
two parts can be dropped but not both, one is reported: preferably the one that its own `or` or `and` makes superfluous,
then the outer one, then the later one. All reported parts can be dropped together, and each of them alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, product
from math import prod
from typing import TYPE_CHECKING, Literal

from privtab.checks._absorbed import absorbed
from privtab.checks._parts import PLACES, USES, Gone, Kind, Node, Part, PartLiterals, Path, nodes, parts, tree
from privtab.checks._truth import Circuit
from privtab.errors import Undecided
from privtab.ir.formula import unrelated
from privtab.ir.nodes import ALWAYS

if TYPE_CHECKING:
    from privtab.checks._view import View
    from privtab.ir.nodes import Formula, Rule
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
    kind: Kind
    spot: m.Spot
    why: Why


def superfluous(seen: View) -> Iterator[Superfluous]:
    """The superfluous parts of all rows; for a row for many types, those that are superfluous for every type."""
    bodies: dict[int, list[m.Row]] = {}
    for row in seen.policy.rows.values():
        bodies.setdefault(id(row.decl.body), []).append(row)
    for rows in bodies.values():
        roots = _roots(rows[0])
        listed = [part for root in roots for node in nodes(root) for part in parts(node)]
        if not listed:
            continue
        told = _absorbed(seen, rows, listed)
        if told is not None:
            yield from (_said(part, told[part.path]) for part in listed if part.path in told)
        else:
            try:
                yield from _Body(seen, rows, listed).found()
            except Undecided:
                seen.undecided(rows[0], "P310", "P328")


def _absorbed(seen: View, rows: list[m.Row], listed: list[Part]) -> dict[Path, Why] | None:
    """The parts that atoms beside them absorb, if there are no other superfluous parts and all rows agree."""
    first, *others = (absorbed(seen, row, _roots(row)) for row in rows)
    told = {part.path for part in listed}
    return first if first is not None and told.issuperset(first) and all(other == first for other in others) else None


def _said(part: Part, why: Why) -> Superfluous:
    return Superfluous(path=part.path, kind=part.kind, spot=part.spot, why=why)


def _roots(row: m.Row) -> list[Node]:
    return [tree(cell, (number,)) for number, cell in enumerate((row.requires, row.each)) if cell is not None]


class _RowShape:
    """A row for one kind of request: the possible types of its objects, and whether the last name is omitted."""

    def __init__(
        self, seen: View, rule: Rule, roots: list[Node], types: Mapping[str, Collection[str]], unnamed: str | None
    ) -> None:
        self.roots = roots
        self.named = unnamed is None
        self.nodes = {node.path: node for root in roots for node in nodes(root)}
        cells = [rule.gate, rule.requires, *([rule.each] if self.named and rule.each is not None else [])]
        asked = [formula for formula in cells if formula != ALWAYS]
        # Without the last name, parts that differ may become equal: what is left of a condition says nothing about them.
        self.apart = self.named and unrelated(seen.program, asked, types)
        """Whether all parts are about different things, so that none is superfluous."""
        if not self.apart:
            self.circuit = Circuit(seen, types, unnamed)
            self.reader = PartLiterals(seen.lowering, self.circuit)
            self.gate = self.circuit.leaf(rule.gate)
            self.whole = self.total(frozenset())

    def total(self, gone: Gone) -> int:
        """The literal of everything that the request requires."""
        return self.circuit.all_of([self.gate, *(self.reader.value(root, gone) for root in self.roots)])

    def equal(self, one: int, other: int) -> bool:
        """Whether two literals are equivalent."""
        return self.circuit.implies(one, other) and self.circuit.implies(other, one)

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

    def _idle(self, node: Node, matters: int, always: frozenset[Path], found: set[Path]) -> None:
        """`matters`: a literal that holds where the row holds if and only if the node does."""
        circuit = self.circuit
        if node.shape in ("leaf", "when"):
            for part in node.parts:
                self._idle(part, circuit.all_of([matters, circuit.solver.flag(node.flag)]), always, found)
            return
        value = self.reader.value(node)
        told = node.path not in always
        if not told:
            matters = self.gate if self.named else -circuit.true
        for axis in (USES, PLACES) if node.grid else (USES,):
            listed = self.reader.listed(node, axis=axis)
            every = node.shape == "all" or (node.shape == "all-grid" and axis == USES)
            before, after = self._joined(list(listed.values()), every=every)
            for i, path in enumerate(listed):
                others = (circuit.all_of if every else circuit.any_of)([before[i], after[i + 1]])
                left = others
                if node.shape == "all-grid" and axis == PLACES:
                    left = self.reader.value(node, frozenset({path}))
                # Without a part, an `and` requires less and an `or` requires more.
                more, less = (left, value) if every else (value, left)
                if told and not circuit.possible(matters, more, -less):
                    found.add(path)
                if not node.grid and node.parts[i].shape != "leaf":
                    reaches = (others if every else -others) if told else circuit.true
                    self._idle(node.parts[i], circuit.all_of([matters, reaches]), always, found)

    def _joined(self, own: list[int], *, every: bool) -> tuple[list[int], list[int]]:
        """The joins of the first literals, for each number of them; and of the last, by the index of their first."""
        join, nothing = (self.circuit.all_of, self.circuit.true) if every else (self.circuit.any_of, -self.circuit.true)

        def both(one: int, other: int) -> int:
            return join([one, other])

        return (
            list(accumulate(own, both, initial=nothing)),
            list(accumulate(reversed(own), both, initial=nothing))[::-1],
        )


class _Body:
    """The rows of one body, which applies to several types or operations."""

    def __init__(self, seen: View, rows: list[m.Row], listed: list[Part]) -> None:
        self.shapes: list[_RowShape] = []
        self.listed = listed
        seen.exact.solver.renew()
        for row in rows:
            rule, roots = seen.rule(row), _roots(row)
            alone = prod(len(w.types) for w in rule.withs) <= _CHOICES
            choices = [[(type_,) for type_ in w.types] if alone else [w.types] for w in rule.withs]
            for chosen in product(*choices):
                types = dict(zip((w.name for w in rule.withs), chosen, strict=True))
                self.shapes.append(_RowShape(seen, rule, roots, types, None))
                if rule.each is not None and row.requires is not None:
                    self.shapes.append(_RowShape(seen, rule, [r for r in roots if r.path == (0,)], types, rule.entity))
        self.lowering = seen.lowering

    def found(self) -> Iterator[Superfluous]:
        """The parts that are superfluous in all rows, in the order of the file."""
        self.apart = [face for face in self.shapes if face.apart]
        self.shapes = [face for face in self.shapes if not face.apart]
        if not self.shapes:
            return
        self.always = frozenset(path for face in self.shapes if face.named for path in face.always())
        idle = self._each_alone()
        if not idle:
            return
        gone: dict[Path, Why] = {}
        for part in sorted(idle, key=_as_told):
            if not _inside(part, gone) and (why := self._beside(part, gone)) and self._same(part, gone):
                gone[part.path] = why
        more = True
        while more:
            more = False
            for part in sorted(idle, key=_outer_first):
                if not _inside(part, gone) and not self._last(part, gone) and self._same(part, gone):
                    gone[part.path] = "row"
                    more = True
        for part in self.listed:
            if part.path in gone and not _inside(part, gone.keys() - {part.path}):
                yield _said(part, gone[part.path])

    def _each_alone(self) -> list[Part]:
        """The parts that are superfluous if nothing else is dropped."""
        asked = {root.path[0] for face in self.apart for root in face.roots}
        left = [part for part in self.listed if part.path[0] not in asked]
        for face in self.shapes:
            if left:
                idle, cells = face.idle(self.always), {root.path[0] for root in face.roots}
                left = [part for part in left if part.path in idle or part.path[0] not in cells]
        return left

    def _same(self, part: Part, gone: Mapping[Path, Why]) -> bool:
        """Whether the rows, and the parts of each `or` that always holds, are unchanged."""
        without = frozenset((*gone, part.path))
        for face in self.shapes:
            if not face.equal(face.total(without), face.whole):
                return False
            for path in self.always if face.named else ():
                for inner in face.nodes[path].parts if path in face.nodes else ():
                    values = (face.reader.value(inner, some) for some in (without, frozenset[Path]()))
                    if not face.equal(*(face.circuit.all_of([face.gate, value]) for value in values)):
                        return False
        return True

    def _last(self, part: Part, gone: Mapping[Path, Why]) -> bool:
        """Whether the part is the last one of a list that cannot be empty."""
        return not _conjunct(part) and not _PartContext(self.shapes[0], part, frozenset(gone)).rest

    def _beside(self, part: Part, gone: Mapping[Path, Why]) -> Why | None:
        """Why its own `or`, `and` or term makes a part superfluous; None if it does not."""
        views = [_PartContext(face, part, frozenset(gone)) for face in self.shapes if face.named]
        if _conjunct(part):
            if all(v.gives([]) for v in views):
                return "always" if all(v.open() for v in views) else "gate"
            return "others" if all(v.gives(v.rest.values()) for v in views) else None
        rest = views[0].rest
        if not rest or not all(v.enough(v.rest.values()) for v in views):
            return None
        by = [path for path in rest if all(path in v.enough_alone for v in views)]
        if any(all(v.twice(path) for v in views) for path in by):
            return "twice"
        if any(all(v.same(path) for v in views) for path in by):
            return "same"
        return "less" if by else "others"


class _PartContext:
    """A part and the remaining parts beside it, for one kind of request."""

    def __init__(self, face: _RowShape, part: Part, gone: Gone) -> None:
        self._face = face
        self._part = part
        self._node = face.nodes[part.node.path]
        self._axis = PLACES if self._node.grid and part.kind == "object" else USES
        self.rest = face.reader.listed(self._node, gone, self._axis)
        self.own = self.rest.pop(part.path)
        if self.rest and self._node.shape == "all-grid" and self._axis == PLACES:
            # Different objects may provide different privileges, so compare with the term without this object.
            self.own = face.reader.value(self._node, gone)
            self.rest = {part.path: face.reader.value(self._node, gone | {part.path})}

    def gives(self, others: Iterable[int]) -> bool:
        """Whether the others, with the gate, imply the part."""
        circuit = self._face.circuit
        return circuit.implies(circuit.all_of([self._face.gate, *others]), self.own)

    def open(self) -> bool:
        """Whether the part always holds."""
        return self._face.circuit.implies(self._face.circuit.true, self.own)

    def enough(self, others: Iterable[int]) -> bool:
        """Whether at least one of the others holds wherever the part does."""
        circuit = self._face.circuit
        return circuit.implies(circuit.all_of([self._face.gate, self.own]), circuit.any_of(others))

    @cached_property
    def enough_alone(self) -> frozenset[Path]:
        """The others that each hold wherever the part does."""
        circuit = self._face.circuit
        implied = circuit.implied(circuit.all_of([self._face.gate, self.own]), self.rest.values())
        return frozenset(path for path, value in self.rest.items() if value in implied)

    def same(self, path: Path) -> bool:
        """Whether the part holds wherever another one does."""
        circuit = self._face.circuit
        return circuit.implies(circuit.all_of([self._face.gate, self.rest[path]]), self.own)

    def twice(self, path: Path) -> bool:
        """Whether another part is the same condition, regardless of aliases and parentheses."""
        return path != self._part.path and self._words(path) == self._words(self._part.path)

    def _words(self, path: Path) -> list[Formula]:
        formula = self._face.reader.lowering.formula
        if not self._node.grid:
            return [formula(self._node.parts[path[-1]].condition)]
        grid = self._node.grid
        return [formula(c) for c in (grid[path[-1]] if self._axis == USES else [row[path[-1]] for row in grid])]


def _conjunct(part: Part) -> bool:
    return part.kind == "condition"


def _inside(part: Part, gone: Collection[Path]) -> bool:
    """Whether a part lies in a dropped one."""
    return part.path in gone or any(part.path[:length] in gone for length in range(1, len(part.path)))


_ORDER: tuple[Kind, ...] = ("alternative", "object", "privilege", "condition")


def _as_told(part: Part) -> int:
    return _ORDER.index(part.kind)


def _outer_first(part: Part) -> tuple[int, list[int]]:
    """Sort outer parts before inner ones, and later parts before earlier ones."""
    return len(part.path), [-step for step in part.path]
