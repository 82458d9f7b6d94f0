"""A narrower state: without the rows that the allows of a log do not need.

Rows are removed one after another, the largest rights first, each if every allow of the log is kept without it. So no row that is left
and that could be removed is superfluous: when it was looked at, an allow was lost without it, and since then there are only fewer rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from privtab.base import Entity
from privtab.ir import Has, Program, on_entity, reached_atoms
from privtab.state import ROLE_PREFIX, ScopeOverlap, State, StateNames, UsedParts, locations
from privtab_analysis.rights import by_ownership
from privtab_analysis.state_diff.chosen import without_rows
from privtab_logs.excerpts import USER, Row, StateRows
from privtab_logs.usage import Needs, Tell, Usage, decided

CARRIES = "carries a denial"
DENIAL = "denies"
FILTERS = "decides a row filter or a column mask"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Rows to remove. Of rows that stay although they could be removed: `needed`, each with an allow that is lost without it."""

    removed: tuple[Row, ...]
    state: State
    needed: Mapping[Row, int] = field(default_factory=dict)
    kept: Mapping[Row, str] = field(default_factory=dict)
    """The other rows that stay, and why."""


def removal_order(
    program: Program, rows: StateRows, protected: Mapping[Row, str], ends: Collection[Row] = ()
) -> list[Row]:
    """The rows that may be removed, in the order in which that is tried: rights before memberships, larger ones first.

    Rows that end by themselves (`ends`) come first of all. `protected`: rows that stay, and why.
    """
    names, keys = StateNames(program), locations(program, rows.whole).keys
    sizes: dict[tuple[str, str], int] = {}

    def depth(key: str) -> int:
        return len(keys(Entity.parse(key)))

    def size(row: Row, table: str) -> tuple[int, ...]:
        cells = rows.named(row)
        match table:
            case "grants":
                key = cells["privilege"], cells["entity"].partition(":")[0]
                if key not in sizes:
                    sizes[key] = len(names.privileges_of(*key, "allow"))
                kind = ("user", "group", "role").index(cells["grantee"].partition(":")[0])
                return kind, depth(cells["entity"]), -sizes[key]
            case "owners":
                return (depth(cells["entity"]),)
            case "assignments":
                return (cells["principal"].startswith(USER), depth(cells["scope"]) if "scope" in cells else 0)
            case _:
                return ()

    order: list[tuple[bool, int, tuple[int, ...], Row]] = []
    for number, (table, numbers) in enumerate(rows.numbers.items()):
        order += [
            (row not in ends, number, size(row, table), row)
            for row in numbers
            if row not in protected and row not in rows.denials
        ]
    return [row for *_, row in sorted(order)]


def propose(
    program: Program,
    found: Usage,
    order: Collection[Row],
    protected: Mapping[Row, str],
    *,
    ever: StateRows | None = None,
    tell: Tell | None = None,
) -> Proposal:
    """The rows that can be removed so that every allow of a log is kept, and nobody gains anything, then or later.

    `ever`: the rows of every moment, if rows hold for a time.
    Raises AssertionError if the engine in process decides any request of the log otherwise than the reference: then nothing is proposed.
    """
    reduction = _Reduction(found, _Denials(program, found.rows, ever))
    reduction.run(order, tell)
    removed = reduction.removed
    kept = {**protected, **reduction.carrying}
    kept |= dict.fromkeys(found.rows.denials, DENIAL)
    state = without_rows(found.rows.whole, map(found.rows.place, removed))
    _prove(program, found, state)
    return Proposal(removed=tuple(sorted(removed)), state=state, needed=reduction.needed, kept=kept)


def _prove(program: Program, found: Usage, state: State) -> None:
    """Decide the whole log by the narrower state, with the other engine."""
    asked = [*found.allows, *found.denials]
    answers = decided(program, state, [found.log[number].request for number in asked])
    wrong = [found.log[n] for n, answer in zip(asked, answers, strict=True) if answer != found.log[n].allowed]
    if wrong:
        raise AssertionError(f"{len(wrong)} requests would be decided otherwise, such as {wrong[0].request.to_json()}")


class _Reduction:
    """Removes rows one by one."""

    def __init__(self, found: Usage, denials: _Denials) -> None:
        self.found = found
        self.removed: set[Row] = set()
        self.needed: dict[Row, int] = dict(found.needed)
        self.carrying: dict[Row, str] = {}
        self._needs = Needs(found)
        self._denials = denials

    def run(self, order: Collection[Row], tell: Tell | None) -> None:
        """Remove what can be; what carries a denial is looked at again as long as rights go, since it then may matter no longer."""
        ranks = {row: number for number, row in enumerate(order)}
        left = [row for row in order if row not in self.needed]
        while left:
            before = len(self.removed)
            self.carrying = {}
            for done, row in enumerate(left):
                if tell is not None:
                    tell(done, len(left))
                if row not in self.found.seen and self._is_free(row):
                    self.removed.add(row)
                elif row in self.found.seen:
                    self._try(row, ranks)
            if len(self.removed) == before:
                break
            left = list(self.carrying)

    def _is_free(self, row: Row) -> bool:
        if row in self._denials.of_filters:
            self.carrying[row] = FILTERS
        elif self._denials.would_lift(row, self.removed):
            self.carrying[row] = CARRIES
        return row not in self.carrying

    def _try(self, row: Row, ranks: Mapping[Row, int]) -> None:
        lost = self._needs.lost(row, self.removed)
        if lost is not None:
            self.needed[row] = lost
        elif self._is_free(row):
            for caller, numbers in list(self._needs.affected(row)):
                excerpt = self._needs.without(caller, self.removed, row)
                for number in numbers:
                    witness = excerpt.witnesses(self.found.log[number].request).best(ranks)
                    self._needs.move(number, witness, self.found.witnesses[number])
                    self.found.witnesses[number] = witness
            self.removed.add(row)


class _Denials:
    """Denials that removing a row could lift, and filters that it could take away: if users might gain something, the row stays.

    Denials are never removed themselves, nor memberships in what gives nothing else. What is said here errs on one side: a denial is
    taken to matter wherever a privilege that it denies is given otherwise, on an entity that contains the other or lies in it; to be lifted
    unless it applies through links without a scope as well; and to matter if any row may hold at another time.
    """

    def __init__(self, program: Program, rows: StateRows, ever: StateRows | None) -> None:
        self._program = program
        self._ever = ever
        self._rows = rows
        self._names = StateNames(program)
        self._overlap = ScopeOverlap(locations(program, rows.whole).keys)
        self._from_requests = "request" in program.semantics.groups
        self._gives: dict[str, bool] = {}
        self._carried: dict[str, set[Row]] = {}
        self._allows: dict[Row, tuple[frozenset[str], str | None]] = {}
        self._privileges: dict[tuple[str, str, str], frozenset[str]] = {}

    def would_lift(self, row: Row, removed: set[Row]) -> bool:
        """Return whether removing the row might lift a denial, where other rows are removed already."""
        container = self._rows.containers.get(row)
        if container is not None and self._ever is not None:
            return not self._ever.denials.isdisjoint(self._ever.about([container]))
        if container is None or not self._of(container):
            return False
        holder = self._rows.holder(row)
        if not holder.startswith(USER) or self._from_requests or self._only_denies(container):
            return True
        removed.add(row)
        caller = holder.removeprefix(USER), ()
        left = self._rows.of_caller(caller, removed)
        removed.discard(row)
        everywhere = left
        if not left.isdisjoint(self._rows.scoped):
            own = self._rows.of_caller(caller)
            everywhere = self._rows.of_caller(caller, (own - left) | self._rows.scoped & own)
        lifted = self._of(container).difference(everywhere)
        return any(self._matters(denial, left) for denial in lifted)

    @cached_property
    def of_filters(self) -> frozenset[Row]:
        """The rows on which it may depend who gets which row filter or column mask, or its SQL.

        No allow tells that they are needed, and whoever loses a filter may see more by the next one.
        """
        rules = [self._program.rules[one.entity, one.operation] for one in self._program.filters]
        asked = {on_entity(atom) for rule in rules for atom in reached_atoms(self._program, rule.item_condition)}
        rights = asked.union(*(by_ownership(self._program, atom) for atom in asked))
        tables = {right.kind.table for right in rights} - {""}
        privileges = {atom.privilege for atom in asked if isinstance(atom, Has)}
        found = {row for row in range(len(self._rows)) if not privileges.isdisjoint(self._allowed(row)[0])}
        for table in tables - {"grants"}:
            found.update(self._rows.numbers[table])
        whole = bool(UsedParts.of(self._program).for_filters)
        bring = {c: whole or not found.isdisjoint(self._rows.about([c])) for c in {*self._rows.containers.values()}}
        return frozenset(found.union(row for row, container in self._rows.containers.items() if bring[container]))

    def _only_denies(self, principal: str) -> bool:
        """Return whether a principal gives only denials: a group of suspended users denies whatever they may be granted one day."""
        if principal not in self._gives:
            rows = (row for row in self._rows.about([principal]) if row not in self._rows.containers)
            self._gives[principal] = any(row not in self._rows.denials for row in rows) or (
                principal.removeprefix(ROLE_PREFIX) in self._program.roles
            )
        return not self._gives[principal]

    def _of(self, principal: str) -> set[Row]:
        """The denials that a principal brings."""
        if principal not in self._carried:
            found = self._rows.about([principal])
            self._carried[principal] = self._rows.denials.intersection(found)
        return self._carried[principal]

    def _matters(self, denial: Row, left: Collection[Row]) -> bool:
        denied, place = self._named(denial, "deny")
        return any(
            not privileges.isdisjoint(denied) and self._overlap.both(key, place)[0]
            for privileges, key in map(self._allowed, left)
        )

    def _allowed(self, row: Row) -> tuple[frozenset[str], str | None]:
        if row not in self._allows:
            denies = row in self._rows.denials
            self._allows[row] = (frozenset(), None) if denies else self._named(row, "allow")
        return self._allows[row]

    def _named(self, row: Row, effect: str) -> tuple[frozenset[str], str | None]:
        """The privileges that a row names, and on what entity; None for anywhere: roles that are declared with privileges."""
        cells, table = self._rows.cells[row], self._rows.table(row)
        if table == "assignments":
            declared = self._program.roles.get(str(cells[1]))
            grants = () if declared is None else declared.grants
            return frozenset(privilege for _, privileges in grants for privilege in privileges), None
        if table != "grants":
            return frozenset(), None
        _, _, name, place = map(str, cells)
        key = name, place.partition(":")[0], effect
        if key not in self._privileges:
            self._privileges[key] = frozenset(self._names.privileges_of(*key))
        return self._privileges[key], place
