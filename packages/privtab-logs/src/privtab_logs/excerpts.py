"""The rows of a state that concern one caller, and decisions by these rows alone.

A decision depends on no rows but those that name a principal of its caller, on where entities lie, and on attributes
(docs/decisions/0250). So a state with some rows less is decided by the few rows of each caller, by the reference.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from privtab.base import Request, Window
from privtab.ir import ByType, Feature, Leaf, Program
from privtab.reference import EvaluationContext, Reference
from privtab.state import (
    GROUP_PREFIX,
    ROLE_PREFIX,
    TABLE_COLUMNS,
    ColumnRows,
    Places,
    RowLocation,
    State,
    locations,
    lying_in,
)
from privtab_analysis.caller import listing
from privtab_analysis.provenance import Provenance

USER = "user:"
OF_PRINCIPALS = {
    "service_admins": ("user", USER),
    "owners": ("owner", ""),
    "grants": ("grantee", ""),
    "assignments": ("principal", ""),
    "memberships": ("user", USER),
    "members": ("user", USER),
}
"""The tables whose rows name who holds something: the column, and what its names lack to be principals."""
Row: TypeAlias = int
"""A row of a state: its number among the rows of all these tables."""
Rows: TypeAlias = frozenset[Row]
Caller: TypeAlias = tuple[str, tuple[str, ...]]
"""A user, and the groups that their requests bring."""


class StateRows:
    """The rows of the state of one moment, numbered, by the principals that they name."""

    TABLES = tuple(OF_PRINCIPALS)

    def __init__(self, program: Program, state: State) -> None:
        self.program = program
        self.whole = state.plain("what a log used, which is asked of the state of one moment,")
        self.cells: list[tuple[str | None, ...]] = []
        self._begins: list[int] = []
        self.by_principal: dict[str, list[Row]] = defaultdict(list)
        self.numbers: dict[str, range] = {}
        for table, (column, prefix) in OF_PRINCIPALS.items():
            begin = len(self.cells)
            self._begins.append(begin)
            self.cells += state.table(table).cells()
            self.numbers[table] = range(begin, len(self.cells))
            for number, name in enumerate(state.column(table, column), begin):
                self.by_principal[principal_named(str(name), prefix)].append(number)
        self._paths: list[str | None] = [None] * len(self.cells)
        for table in ("grants", "owners"):
            for row, key in zip(self.numbers[table], state.column(table, "entity"), strict=True):
                self._paths[row] = str(key).partition(":")[2]
        self.containers = {
            row: f"{prefix}{self.cells[row][1]}"
            for table, prefix in (("memberships", GROUP_PREFIX), ("assignments", ROLE_PREFIX))
            for row in self.numbers[table]
        }
        """The group or the role that a row puts its principal into."""
        self.scoped = {row for row in self.numbers["assignments"] if self.cells[row][2] is not None}
        """The assignments within a scope."""
        self.denials = {row for row in self.numbers["grants"] if self.cells[row][1] == "deny"}
        self._asks_below = Feature.BELOW.used_by(program)
        self._locations = locations(program, state)

    def __len__(self) -> int:
        return len(self.cells)

    def table(self, row: Row) -> str:
        """The table of a row."""
        return self.TABLES[bisect_right(self._begins, row) - 1]

    def place(self, row: Row) -> tuple[str, int]:
        """The table of a row, and its number there."""
        table = self.table(row)
        return table, row - self.numbers[table].start

    def named(self, row: Row) -> dict[str, str]:
        """The cells of a row by column."""
        table = self.table(row)
        columns = self.whole.table(table).columns
        return {name: text for name, text in zip(columns, self.cells[row], strict=True) if text is not None}

    def holder(self, row: Row) -> str:
        """The principal that a row names."""
        table = self.table(row)
        column, prefix = OF_PRINCIPALS[table]
        position = list(self.whole.table(table).columns).index(column)
        return principal_named(str(self.cells[row][position]), prefix)

    def about(self, principals: Iterable[str], without: Collection[Row] = ()) -> set[Row]:
        """The rows that name some principals, or what these are in or hold at any distance; `without`: some rows."""
        waiting, seen, found = [*principals], set(principals), set[Row]()
        while waiting:
            for row in self.by_principal.get(waiting.pop(), ()):
                if row in without:
                    continue
                found.add(row)
                container = self.containers.get(row)
                if container is not None and container not in seen:
                    seen.add(container)
                    waiting.append(container)
        return found

    def of_caller(self, caller: Caller, without: Collection[Row] = ()) -> set[Row]:
        """The rows that concern a caller."""
        user, groups = caller
        everyones = self.program.semantics.everyones
        return self.about({f"{USER}{user}", *(f"{GROUP_PREFIX}{group}" for group in (*groups, *everyones))}, without)

    def concerning(self, rows: Iterable[Row], requests: Iterable[Request]) -> Iterable[Row]:
        """Return the rows of a caller that can matter for some requests: grants and owners of other entities are left out."""
        if self._asks_below:
            return rows
        paths = {""}
        for request in requests:
            for entity in (request.resource, *request.with_.values()):
                own = entity.id.removesuffix("/")
                while own not in paths:
                    paths.add(own)
                    own = own.rpartition("/")[0]
                if self.program.flat:
                    paths.update(key.partition(":")[2] for key in self._locations.find(entity) or ())
        return (row for row in rows if self._paths[row] is None or self._paths[row] in paths)

    def excerpt(self, rows: Iterable[Row]) -> Excerpt:
        """Make an excerpt of some rows."""
        by_table: dict[str, list[Row]] = {}
        for row in sorted(rows):
            by_table.setdefault(self.table(row), []).append(row)
        tables: Any = {
            table: ColumnRows.of(table, [self.cells[row] for row in listed]) for table, listed in by_table.items()
        }
        others: Any = {table: getattr(self.whole, table) for table in TABLE_COLUMNS if table not in OF_PRINCIPALS}
        state = lying_in(self.program, State(**tables, **others), self.whole)
        return Excerpt(self.program, state, by_table)


def principal_named(name: str, prefix: str) -> str:
    """The principal of a cell; a group in a group is written as such."""
    return name if not prefix or name.startswith(GROUP_PREFIX) else f"{prefix}{name}"


def caller_of(request: Request) -> Caller:
    """The caller of a request."""
    return request.user, tuple(request.groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class Witnesses:
    """The rows through which a request is allowed. `chains`: for each minimal set that holds, the chains of rows of each atom.

    Any chain suffices for its atom. `used`: every row of any chain.
    """

    chains: tuple[tuple[tuple[Rows, ...], ...], ...]
    used: Rows

    def best(self, rank: Mapping[Row, int]) -> Rows:
        """Return the witness whose first row to be removed comes as late as possible, by rank; rows without a rank are never removed."""

        def first(rows: Iterable[Row]) -> float:
            return min((rank.get(row, LAST) for row in rows), default=LAST)

        def chosen(atoms: tuple[tuple[Rows, ...], ...]) -> Rows:
            return frozenset[Row]().union(*(max(chains, key=lambda c: (first(c), -len(c))) for chains in atoms))

        return max(map(chosen, self.chains), key=lambda rows: (first(rows), -len(rows)))


LAST = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Numbers(Places):
    """The numbers of rows, in the place of their positions in files."""

    numbers: Mapping[str, Sequence[Row]]

    def of(self, table: str, number: int) -> RowLocation | None:
        found = self.numbers.get(table)
        return None if found is None else RowLocation(path="", table=table, row=found[number])

    def window(self, table: str, number: int) -> Window:  # noqa: ARG002  (overridden)
        return Window()


class Excerpt:
    """Some rows of a state, and decisions using these rows."""

    def __init__(self, program: Program, state: State, numbers: Mapping[str, Sequence[Row]]) -> None:
        self.reference = Reference(program, state)
        self.state = state
        self._places = _Numbers(numbers=numbers)
        self._links = frozenset(row for table in ("memberships", "assignments") for row in numbers.get(table, ()))
        self._all = frozenset(row for listed in numbers.values() for row in listed)
        self._known: dict[object, Provenance] = {}
        semantics = program.semantics
        self._many_links = bool(semantics.hierarchy or semantics.everyones or "request" in semantics.groups)
        """True if a caller can be a principal in several ways by one row."""

    def allows(self, request: Request) -> bool:
        """Return whether a request, whose names were checked, is allowed."""
        evaluation = EvaluationContext(self.reference, request)
        rule = self.reference.program.rules[request.resource.type, request.action]
        return not evaluation.unheld and evaluation.holds(evaluation.condition(rule))

    def witnesses(self, request: Request) -> Witnesses:
        """Find the rows through which an allowed request is allowed, as `privtab explain` does."""
        evaluation = EvaluationContext(self.reference, request)
        key = caller_of(request), request.active_roles
        if key not in self._known:
            self._known[key] = Provenance(evaluation, self.state, self._places)
        shortest = self._known[key].about(evaluation)
        every = shortest.about(evaluation, every_link=True)
        rule = self.reference.program.rules[request.resource.type, request.action]
        listed = listing(evaluation, rule, evaluation.condition(rule))
        found: list[tuple[tuple[Rows, ...], ...]] = []
        used: set[Row] = set()
        for atoms in listed.sets:
            held = tuple(self._chains(shortest, atom) for atom in atoms)
            if all(held):
                found.append(held)
                all_chains = (self._chains(every, atom) for atom in atoms) if self._many_links else held
                used.update(row for chains in all_chains for chain in chains for row in chain)
        if request.active_roles is not None:
            # The caller has to hold each of the roles that the request names.
            used |= self._links
            found = [(*atoms, (self._links,)) for atoms in found]
        if not listed.complete or not found:
            return Witnesses(chains=(((self._all,),),), used=self._all)
        return Witnesses(chains=tuple(found), used=frozenset(used))

    def _chains(self, provenance: Provenance, leaf: Leaf) -> tuple[Rows, ...]:
        """The chains of rows through which an atom holds; none if it does not."""
        assert not isinstance(leaf, ByType), "a request gives every object its type"
        chains = ((step.place for step in chain) for chain in provenance.of(leaf))
        found = tuple(dict.fromkeys(frozenset(place.row for place in chain if place is not None) for chain in chains))
        return found or ((self._all,) if provenance.evaluation.why(leaf) is not None else ())
