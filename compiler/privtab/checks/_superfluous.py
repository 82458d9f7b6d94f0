"""The parts of rows without which they decide the same.

A part is superfluous if the row, whatever the flags and types of a request, holds in the same states without it. Two parts may
be so only one without the other: one of them is told of, rather that which its own `or` or `and` makes superfluous, then the
outer one, then the later one. All that is told of can be dropped together, and each of it alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, product
from math import prod
from typing import TYPE_CHECKING, Literal

from privtab.checks._parts import PLACES, USES, Gone, Kind, Node, Part, PartLiterals, Path, nodes, parts, tree
from privtab.checks._truth import Circuit
from privtab.errors import Undecided
from privtab.ir.formula import unrelated, without_name
from privtab.ir.nodes import ALWAYS

if TYPE_CHECKING:
    from privtab.checks._view import View
    from privtab.ir.nodes import Formula, Rule
    from privtab.model import nodes as m

Why = Literal["twice", "same", "less", "others", "gate", "always", "row"]
"""It stands there twice; something beside it says the same; one that asks for less does; all beside it do together; the gate
does; it asks for nothing; or the row as a whole makes up for it."""

_CHOICES = 64
"""Where the objects of a row may have more types, one after the other, they are looked at together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Superfluous:
    """A part that decides nothing, and why."""

    path: Path
    kind: Kind
    spot: m.Spot
    why: Why


def superfluous(seen: View) -> Iterator[Superfluous]:
    """Those of all rows; a row for many types may say too much for one of them: what all could do without is found."""
    bodies: dict[int, list[m.Row]] = {}
    for row in seen.policy.rows.values():
        bodies.setdefault(id(row.decl.body), []).append(row)
    for rows in bodies.values():
        roots = _roots(rows[0])
        listed = [part for root in roots for node in nodes(root) for part in parts(node)]
        if listed:
            try:
                yield from _Body(seen, rows, listed).found()
            except Undecided:
                seen.undecided(rows[0], "P310", "P328")


def _roots(row: m.Row) -> list[Node]:
    return [tree(cell, (number,)) for number, cell in enumerate((row.requires, row.each)) if cell is not None]


class _RowShape:
    """A row as one kind of request meets it: the types that its objects may have, and whether the last name is left off."""

    def __init__(
        self, seen: View, rule: Rule, roots: list[Node], types: Mapping[str, Collection[str]], unnamed: str | None
    ) -> None:
        self.roots = roots
        self.named = unnamed is None
        self.nodes = {node.path: node for root in roots for node in nodes(root)}
        cells = [rule.gate, rule.requires, *([rule.each] if self.named and rule.each is not None else [])]
        asked = [formula for formula in cells if formula != ALWAYS]
        if unnamed is not None:
            asked = [without_name(seen.program, formula, unnamed) for formula in asked]
        self.apart = unrelated(seen.program, asked, types)
        """Whether nothing is superfluous, all parts asking about different things."""
        if not self.apart:
            self.circuit = Circuit(seen, types, unnamed)
            self.reader = PartLiterals(seen.lowering, self.circuit)
            self.gate = self.circuit.leaf(rule.gate)
            self.whole = self.total(frozenset())

    def total(self, gone: Gone) -> int:
        """What the request needs."""
        return self.circuit.all_of([self.gate, *(self.reader.value(root, gone) for root in self.roots)])

    def equal(self, one: int, other: int) -> bool:
        """Whether two conditions are one."""
        return self.circuit.implies(one, other) and self.circuit.implies(other, one)

    def always(self) -> Iterator[Path]:
        """Every `or` that holds for all who pass the gate: nothing in it is needed, which is another finding."""
        for path, node in self.nodes.items():
            if node.kind == "alternative" and self.circuit.implies(self.gate, self.reader.value(node)):
                yield path

    def idle(self, always: frozenset[Path]) -> set[Path]:
        """The parts that the row could do without, each alone."""
        found: set[Path] = set()
        values = [self.reader.value(root) for root in self.roots]
        for i, root in enumerate(self.roots):
            self._idle(root, self.circuit.all_of([self.gate, *values[:i], *values[i + 1 :]]), always, found)
        return found

    def _idle(self, node: Node, matters: int, always: frozenset[Path], found: set[Path]) -> None:
        """`matters`: holds where the row holds if and only if the node does."""
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
                # Without a part an `and` asks for less, and an `or` for more.
                more, less = (left, value) if every else (value, left)
                if told and not circuit.possible(matters, more, -less):
                    found.add(path)
                if not node.grid and node.parts[i].shape != "leaf":
                    reaches = (others if every else -others) if told else circuit.true
                    self._idle(node.parts[i], circuit.all_of([matters, reaches]), always, found)

    def _joined(self, own: list[int], *, every: bool) -> tuple[list[int], list[int]]:
        """All or any of the first literals, for each number of them; and of the last, by the first that is among them."""
        join, nothing = (self.circuit.all_of, self.circuit.true) if every else (self.circuit.any_of, -self.circuit.true)

        def both(one: int, other: int) -> int:
            return join([one, other])

        return (
            list(accumulate(own, both, initial=nothing)),
            list(accumulate(reversed(own), both, initial=nothing))[::-1],
        )


class _Body:
    """The rows of one body, which say the same of several types or operations."""

    def __init__(self, seen: View, rows: list[m.Row], listed: list[Part]) -> None:
        self.faces: list[_RowShape] = []
        self.listed = listed
        seen.exact.solver.renew()
        for row in rows:
            rule, roots = seen.rule(row), _roots(row)
            alone = prod(len(w.types) for w in rule.withs) <= _CHOICES
            choices = [[(type_,) for type_ in w.types] if alone else [w.types] for w in rule.withs]
            for chosen in product(*choices):
                types = dict(zip((w.name for w in rule.withs), chosen, strict=True))
                self.faces.append(_RowShape(seen, rule, roots, types, None))
                if rule.each is not None and row.requires is not None:
                    self.faces.append(_RowShape(seen, rule, [r for r in roots if r.path == (0,)], types, rule.entity))
        self.lowering = seen.lowering

    def found(self) -> Iterator[Superfluous]:
        """What the rows could all do without, in the order of the file."""
        self.apart = [face for face in self.faces if face.apart]
        self.faces = [face for face in self.faces if not face.apart]
        if not self.faces:
            return
        self.always = frozenset(path for face in self.faces if face.named for path in face.always())
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
                yield Superfluous(path=part.path, kind=part.kind, spot=part.spot, why=gone[part.path])

    def _each_alone(self) -> list[Part]:
        """The parts that the rows could do without if nothing else changed."""
        asked = {root.path[0] for face in self.apart for root in face.roots}
        left = [part for part in self.listed if part.path[0] not in asked]
        for face in self.faces:
            if left:
                idle, cells = face.idle(self.always), {root.path[0] for root in face.roots}
                left = [part for part in left if part.path in idle or part.path[0] not in cells]
        return left

    def _same(self, part: Part, gone: Mapping[Path, Why]) -> bool:
        """Whether the rows, and what stands in an `or` that always holds, are what they were."""
        without = frozenset((*gone, part.path))
        for face in self.faces:
            if not face.equal(face.total(without), face.whole):
                return False
            for path in self.always if face.named else ():
                for inner in face.nodes[path].parts if path in face.nodes else ():
                    values = (face.reader.value(inner, some) for some in (without, frozenset[Path]()))
                    if not face.equal(*(face.circuit.all_of([face.gate, value]) for value in values)):
                        return False
        return True

    def _last(self, part: Part, gone: Mapping[Path, Why]) -> bool:
        """Whether it is all that is left of a list of which some must be left."""
        return not _conjunct(part) and not _PartContext(self.faces[0], part, frozenset(gone)).rest

    def _beside(self, part: Part, gone: Mapping[Path, Why]) -> Why | None:
        """Why its own `or`, `and` or term makes it superfluous; None if it does not."""
        views = [_PartContext(face, part, frozenset(gone)) for face in self.faces if face.named]
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
    """A part and what is left beside it, as one kind of request meets them."""

    def __init__(self, face: _RowShape, part: Part, gone: Gone) -> None:
        self._face = face
        self._part = part
        self._node = face.nodes[part.node.path]
        self._axis = PLACES if self._node.grid and part.kind == "object" else USES
        self.rest = face.reader.listed(self._node, gone, self._axis)
        self.own = self.rest.pop(part.path)
        if self.rest and self._node.shape == "all-grid" and self._axis == PLACES:
            # One object must do for one privilege, another may for the next: what counts is the term without it.
            self.own = face.reader.value(self._node, gone)
            self.rest = {part.path: face.reader.value(self._node, gone | {part.path})}

    def gives(self, others: Iterable[int]) -> bool:
        """Whether others, with the gate, ask for the part."""
        circuit = self._face.circuit
        return circuit.implies(circuit.all_of([self._face.gate, *others]), self.own)

    def open(self) -> bool:
        """Whether the part always holds."""
        return self._face.circuit.implies(self._face.circuit.true, self.own)

    def enough(self, others: Iterable[int]) -> bool:
        """Whether some of the others holds wherever the part does."""
        circuit = self._face.circuit
        return circuit.implies(circuit.all_of([self._face.gate, self.own]), circuit.any_of(others))

    @cached_property
    def enough_alone(self) -> frozenset[Path]:
        """The others that hold, each alone, wherever the part does."""
        circuit = self._face.circuit
        implied = circuit.implied(circuit.all_of([self._face.gate, self.own]), self.rest.values())
        return frozenset(path for path, value in self.rest.items() if value in implied)

    def same(self, path: Path) -> bool:
        """Whether the part holds wherever another one does."""
        circuit = self._face.circuit
        return circuit.implies(circuit.all_of([self._face.gate, self.rest[path]]), self.own)

    def twice(self, path: Path) -> bool:
        """Whether the other says it in the same words, aliases and parentheses apart."""
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
    """Whether a part lies in one that is gone."""
    return part.path in gone or any(part.path[:length] in gone for length in range(1, len(part.path)))


_ORDER: tuple[Kind, ...] = ("alternative", "object", "privilege", "condition")


def _as_told(part: Part) -> int:
    return _ORDER.index(part.kind)


def _outer_first(part: Part) -> tuple[int, list[int]]:
    """The outer before the inner, the later before the earlier."""
    return len(part.path), [-step for step in part.path]
