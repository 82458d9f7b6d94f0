"""The parts of conditions: parts of an `or` and an `and`, and the privileges and objects that a term lists; and the circuits of their values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Literal, TypeAlias, assert_never

from privtab.base.records import dataclass
from privtab.checks._view import View
from privtab.ir import nodes as ir
from privtab.ir.formula import without_name
from privtab.ir.unroll import Levels, unrolled
from privtab.language.syntax.nodes import ConditionCell, Tables
from privtab.model import nodes as m
from privtab.model.lower import Lowering
from privtab.model.nodes import first_spot, flat


class Circuit:
    """Conditions as literals, for some types of the `with` objects.

    `unnamed`: the type of a resource whose last name is omitted. `levels`: where types nest, the most levels that matter, and the levels
    on the paths of the objects. Raises Undecided if a question is too expensive.
    """

    def __init__(
        self,
        view: View,
        types: Mapping[str, Collection[str]],
        unnamed: str | None = None,
        levels: tuple[int, Levels] | None = None,
    ) -> None:
        self._program, exact = view.program, view.exact
        self._unnamed = unnamed
        self._at: Callable[[ir.Formula], ir.Formula] | None = None
        if levels is not None:
            most, at = levels
            unrolling = unrolled(view.program)
            self._program, exact = unrolling.at_most(most), view.exact.at_most(most)
            self._at = partial(unrolling.formula, levels=at)
            self._unnamed = unnamed and unrolling.at(unnamed, at.get(ir.RESOURCE, 1))
            types = {slot: [unrolling.at(t, at.get(slot, 1)) for t in of_slot] for slot, of_slot in types.items()}
        self.solver = exact.solver
        self.true = self.solver.true
        self._requests = self.solver.requests(types)
        self.all_of = self.solver.all_of
        self.any_of = self.solver.any_of

    def leaf(self, formula: ir.Formula) -> int:
        """The literal of a condition."""
        if self._at is not None:
            formula = self._at(formula)
        if self._unnamed is not None:
            formula = without_name(self._program, formula, self._unnamed)
        return self.solver.literal(formula)

    def when(self, flag: str, value: int) -> int:
        """The literal of a value that is required only if the flag is set."""
        return self.any_of([-self.solver.flag(flag), value])

    def possible(self, *literals: int) -> bool:
        """Return whether all literals hold in some state, for some request."""
        return self.solver.possible([*literals, self._requests])

    def implies(self, literal: int, other: int) -> bool:
        """Return whether the other literal holds wherever the first one does."""
        return literal == other or not self.possible(literal, -other)

    def implied(self, literal: int, others: Iterable[int]) -> frozenset[int]:
        """The other literals that hold wherever the first one does."""
        return self.solver.implied([literal, self._requests], tuple(others))


PartKind = Literal["alternative", "condition", "object", "privilege"]
Path: TypeAlias = tuple[int, ...]
"""The path to a node or a part: the number of the cell (`requires`, `each`), then the number of a part at each step."""
RemovedPaths: TypeAlias = frozenset[Path]
USES, PLACES = 0, 1
"""The first step into a grid."""


@dataclass(slots=True, kw_only=True)
class Node:
    """A condition split into parts; a term with several privileges on several objects is a grid."""

    path: Path
    shape: Literal["leaf", "all", "any", "when", "all-grid", "any-grid"]
    condition: m.Condition
    kind: PartKind = "condition"
    """The kind of its parts; for a grid, of its privileges."""
    parts: tuple[Node, ...] = ()
    flag: str = ""
    grid: tuple[tuple[m.Condition, ...], ...] = ()
    """A row for each privilege, a column for each object."""
    spots: tuple[m.CellPart | None, ...] = ()
    """The spots of the parts, for a grid the spots of its privileges; None for parts that are not checked."""
    place_spots: tuple[m.CellPart, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of a node."""

    path: Path
    kind: PartKind
    spot: m.CellPart
    node: Node


def with_implied(policy: m.Policy, privileges: Iterable[str], type_: str | None = None) -> tuple[str, ...]:
    """Privileges and the privileges that grants of them give as well, on a type or anywhere."""
    own = tuple(privileges)
    implied = (p for name in own for p in policy.privileges[name].implies)
    return tuple(dict.fromkeys((*own, *(p for p in implied if type_ is None or type_ in policy.privileges[p].on))))


def tree(condition: m.Condition, path: Path) -> Node:
    """The parts of a condition; nested parentheses of the same operator are flattened."""
    match condition:
        case m.AnyOf() | m.AllOf(parts=[_, *_]):
            shape: Literal["any", "all"] = "any" if isinstance(condition, m.AnyOf) else "all"
            listed = list(flat(condition, type(condition)))
            return Node(
                path=path,
                shape=shape,
                kind="alternative" if shape == "any" else "condition",
                condition=condition,
                parts=tuple(tree(part, (*path, i)) for i, part in enumerate(listed)),
                spots=tuple(first_spot(part) for part in listed),
            )
        case m.Required(body=body, flag=flag):
            return Node(path=path, shape="when", condition=condition, parts=(tree(body, (*path, 0)),), flag=flag)
        case m.HoldsPrivilege(uses=[_, _, *_], places=[_, _, *_]):
            return _grid(condition, path)
        case m.HoldsPrivilege(uses=[_, _, *_] as uses, every=every):
            return Node(
                path=path,
                shape="all" if every else "any",
                kind="condition" if every else "privilege",
                condition=condition,
                parts=tuple(_leaf(replace(condition, uses=(use,)), (*path, i)) for i, use in enumerate(uses)),
                spots=_use_spots(condition),
            )
        case (
            m.HoldsPrivilege(places=[_, _, *_] as places)
            | m.Related(places=[_, _, *_] as places)
            | m.CanDo(places=[_, _, *_] as places)
            | m.Named(places=[_, _, *_] as places)
        ):
            return Node(
                path=path,
                shape="any",
                kind="object",
                condition=condition,
                parts=tuple(_leaf(replace(condition, places=(p,)), (*path, i)) for i, p in enumerate(places)),
                spots=tuple(place.spot for place in places),
            )
        case _:
            return _leaf(condition, path)


def outline(condition: m.Condition | None) -> Hashable:
    """Outline the nodes of a condition without building them; equal where the parts have the same paths and kinds.

    With a row's shape, it tells which part of its condition each leaf is.
    """
    match condition:
        case m.AnyOf() | m.AllOf():
            return type(condition), *map(outline, flat(condition, type(condition)))
        case m.Required(body=body, flag=flag):
            return flag, outline(body)
        case m.HoldsPrivilege(uses=uses, places=places, every=every):
            checked = tuple(spot is None for spot in _use_spots(condition)) if any(use.is_set for use in uses) else ()
            return every, len(places), *(len(use.members) for use in uses), checked
        case m.Related(places=places) | m.CanDo(places=places) | m.Named(places=places):
            return len(places)
        case _:
            return condition is None


def _leaf(condition: m.Condition, path: Path) -> Node:
    return Node(path=path, shape="leaf", condition=condition)


def _grid(term: m.HoldsPrivilege, path: Path) -> Node:
    return Node(
        path=path,
        shape="all-grid" if term.every else "any-grid",
        kind="condition" if term.every else "privilege",
        condition=term,
        grid=tuple(tuple(replace(term, uses=(u,), places=(p,)) for p in term.places) for u in term.uses),
        spots=_use_spots(term),
        place_spots=tuple(place.spot for place in term.places),
    )


def _use_spots(term: m.HoldsPrivilege) -> tuple[m.CellPart | None, ...]:
    """The spots of the privileges; None for a set listed beside its members, which tables do on purpose."""

    def lists_members_of(use: m.PrivilegeUse, other: m.PrivilegeUse) -> bool:
        members, other_members = frozenset(use.members), frozenset(other.members)
        return (use.is_set or other.is_set) and (members <= other_members if term.every else other_members <= members)

    return tuple(
        None if any(lists_members_of(candidate, o) for o in term.uses if o is not candidate) else candidate.spot
        for candidate in term.uses
    )


def nodes(node: Node) -> Iterator[Node]:
    """The node and all nodes inside it, outer nodes first."""
    yield node
    for part in node.parts:
        yield from nodes(part)


def parts(node: Node) -> Iterator[Part]:
    """The direct parts of a node that can be superfluous, last first."""
    grid = bool(node.grid)
    for i in reversed(range(len(node.place_spots))):
        yield Part(path=(*node.path, PLACES, i), kind="object", spot=node.place_spots[i], node=node)
    for i in reversed(range(len(node.spots))):
        spot = node.spots[i]
        if spot is not None:
            yield Part(path=(*node.path, *([USES] if grid else []), i), kind=node.kind, spot=spot, node=node)


class PartLiterals:
    """The literals of nodes, with some parts removed."""

    def __init__(self, lowering: Lowering, circuit: Circuit) -> None:
        self.lowering = lowering
        self.circuit = circuit
        self._complete: dict[Path, int] = {}
        self._last_above: tuple[RemovedPaths, RemovedPaths] = (frozenset(), frozenset())

    def value(self, node: Node, removed: RemovedPaths = frozenset()) -> int:
        """The literal of a node."""
        changed = node.path in self._above(removed)
        if changed or node.path not in self._complete:
            value = self._value(node, removed)
            if changed:
                return value
            self._complete[node.path] = value
        return self._complete[node.path]

    def _above(self, removed: RemovedPaths) -> RemovedPaths:
        """The paths of the removed parts and of everything that contains them; the last result is cached."""
        if self._last_above[0] is not removed:
            self._last_above = (
                removed,
                frozenset(path[:length] for path in removed for length in range(1, len(path) + 1)),
            )
        return self._last_above[1]

    def _value(self, node: Node, removed: RemovedPaths) -> int:
        match node.shape:
            case "leaf":
                return self._leaf(node.path, node.condition)
            case "when":
                return self.circuit.when(node.flag, self.value(node.parts[0], removed))
            case "all" | "all-grid":
                return self.circuit.all_of(self.part_values(node, removed).values())
            case "any" | "any-grid":
                return self.circuit.any_of(self.part_values(node, removed).values())
            case _:
                assert_never(node.shape)

    def part_values(self, node: Node, removed: RemovedPaths = frozenset(), axis: int = USES) -> dict[Path, int]:
        """The literals of the remaining parts, by their paths; for a grid the literals of its privileges or of its objects."""
        if not node.grid:
            return {part.path: self.value(part, removed) for part in node.parts if part.path not in removed}
        rows = [(*node.path, USES, i) for i in range(len(node.spots))]
        columns = [(*node.path, PLACES, i) for i in range(len(node.place_spots))]
        remaining = [row for row in rows if row not in removed], [column for column in columns if column not in removed]
        return {
            path: self.circuit.any_of(
                self._leaf((*pair[USES], pair[PLACES][-1]), node.grid[pair[USES][-1]][pair[PLACES][-1]])
                for other in remaining[1 - axis]
                for pair in [(path, other) if axis == USES else (other, path)]
            )
            for path in remaining[axis]
        }

    def _leaf(self, path: Path, condition: m.Condition) -> int:
        if path not in self._complete:
            self._complete[path] = self.circuit.leaf(self.lowering.formula(condition))
        return self._complete[path]


def condition_cells(tables: Tables) -> Iterator[ConditionCell]:
    """The cells of all conditions in a file: the gate, named ones, and the conditions of rows, readings and variants."""
    yield from tables.semantics.gates
    yield from (decl.condition for decl in tables.conditions)
    yield from (cell for row in tables.all_rows for body in row.bodies for cell in body.conditions)
