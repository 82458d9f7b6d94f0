"""Changes to a state that may turn a denial into an allow, and the smallest sets of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import TypeAlias, assert_never

from privtab.base import Entity, dataclass
from privtab.ir import Has
from privtab.state import Assignment, Grant, State
from privtab_analysis.rights import Right, key_of, row_giving

STEPS = 2_000_000
"""The most pairs of sets that are compared for one question, in some tenths of a second."""
MAX_LISTED = 25
"""The most sets that are kept at one place, if there are too many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Give:
    """The caller is given a right by a row; a grant on an ancestor in `also_at` has the same result.

    `to`: a new role or group is given it, and the caller is in it, where users may not have it themselves.
    """

    right: Right
    also_at: tuple[Entity, ...] = ()
    to: str = "user"

    @property
    def table(self) -> str:
        """The table of the row."""
        return self.right.kind.table

    @property
    def privilege(self) -> str | None:
        """The privilege that is granted; None if it is another right."""
        return self.right.privilege if isinstance(self.right, Has) else None

    @property
    def entity(self) -> Entity | None:
        """The entity of the right; None if it is about none."""
        key = key_of(self.right)
        return Entity.parse(key) if key else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign:
    """The caller is assigned the role, within a scope if the role requires one."""

    role: str
    scope: Entity | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddToGroup:
    """The caller is added to the group."""

    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveDenial:
    """A denial is removed from the state."""

    row: Grant


Change: TypeAlias = Give | Assign | AddToGroup | RemoveDenial
Changes: TypeAlias = frozenset[Change]


def change_text(change: Change, user: str) -> str:
    """Describe a change in words."""
    match change:
        case Give():
            return _giving_text(change, user)
        case Assign():
            scope = "" if change.scope is None else f" within {change.scope}"
            return f"assign role:{change.role} to user:{user}{scope}"
        case AddToGroup():
            return f"add user:{user} to group:{change.group}"
        case RemoveDenial():
            row = change.row
            return f"remove the denial of {row.privilege} at {row.entity} to {row.grantee}"
        case _:
            assert_never(change)


def _giving_text(change: Give, user: str) -> str:
    match change.table:
        case "grants":
            to = f"user:{user}" if change.to == "user" else f"a new {change.to} of user:{user}"
            return f"grant {change.privilege} at {change.entity} to {to}"
        case "owners" if change.to != "user":
            return f"make a new {change.to} owner of {change.entity}, and {_TAKE_IN[change.to]} user:{user}"
        case "owners":
            return f"make user:{user} owner of {change.entity}"
        case "members":
            return f"make user:{user} a member of {change.entity}"
        case table:
            assert table == "service_admins", table
            return f"make user:{user} a service admin"


def change_kind(change: Change) -> str:
    """The kind of a change, as a stable key."""
    match change:
        case Give():
            return change.table.removesuffix("s").replace("_", " ")
        case Assign():
            return "role"
        case AddToGroup():
            return "group"
        case RemoveDenial():
            return "remove denial"
        case _:
            assert_never(change)


def apply(state: State, user: str, changes: Iterable[Change]) -> State:
    """Return the state with the changes made for a user."""
    before = state
    for change in changes:
        match change:
            case Give():
                name = user if change.to == "user" else _new(before, change.to, user)
                to = {change.table: f"{change.to}:{name}"}
                row = row_giving(change.right, change.entity, user=user, to=to)
                if row is not None:
                    state = state.with_row(*row)
                if change.to == "role":
                    state = state.with_row("assignments", Assignment(principal=f"user:{user}", role=name))
                elif change.to == "group":
                    state = state.with_row("memberships", (user, name))
            case Assign():
                assignment = Assignment(principal=f"user:{user}", role=change.role, scope=change.scope)
                state = state.with_row("assignments", assignment)
            case AddToGroup():
                state = state.with_row("memberships", (user, change.group))
            case RemoveDenial():
                state = replace(state, grants=tuple(grant for grant in state.grants if grant != change.row))
            case _:
                assert_never(change)
    return state


def _new(state: State, kind: str, user: str) -> str:
    """The name of a role or a group of a user that is none of the state's."""
    taken = state.distinct(
        ("assignments", "role"), ("memberships", "group"), ("owners", "owner"), ("grants", "grantee")
    )
    name = f"new {kind} of {user}"
    while not taken.isdisjoint((name, f"{kind}:{name}")):
        name += "_"
    return name


_TAKE_IN: Mapping[str, str] = {"role": "assign it to", "group": "add"}


def in_order(found: Iterable[Changes]) -> tuple[tuple[Change, ...], ...]:
    """Sets of changes, fewest first."""
    ordered = [tuple(sorted(way, key=order)) for way in found]
    return tuple(sorted(ordered, key=lambda way: (len(way), [order(change) for change in way])))


class SmallestChanges:
    """Computes smallest sets of changes within a budget; `truncated` tells whether some were left out."""

    def __init__(self) -> None:
        self.truncated = False
        self._remaining = STEPS

    def of(self, sets: Iterable[Changes]) -> frozenset[Changes]:
        """The sets that contain no other set; only a few of them if there are too many to compare."""
        candidates = list(dict.fromkeys(sets))
        if len(candidates) ** 2 // 2 > self._remaining:
            self.truncated = True
            candidates = self.first(candidates)
        minimal: list[Changes] = []
        for candidate in sorted(candidates, key=len):
            self._remaining -= len(minimal)
            if not any(smaller <= candidate for smaller in minimal):
                minimal.append(candidate)
        return frozenset(minimal)

    def in_order(self, sets: Iterable[Changes]) -> tuple[tuple[Change, ...], ...]:
        """The sets that contain no other set, fewest changes first; at most `MAX_LISTED` if some were left out."""
        found = in_order(self.of(sets))
        return found[:MAX_LISTED] if self.truncated else found

    def unions(self, first: frozenset[Changes], second: frozenset[Changes]) -> frozenset[Changes]:
        """The smallest unions of a set of each side."""
        if (len(first) * len(second)) ** 2 // 2 <= self._remaining:
            return self.of(first_set | second_set for first_set in first for second_set in second)
        self.truncated = True
        return self.of(islice(self._pairs(self.first(first), self.first(second)), 4 * MAX_LISTED))

    @staticmethod
    def _pairs(first: list[Changes], second: list[Changes]) -> Iterator[Changes]:
        """Unions, with the smallest sets of both sides first."""
        for _, i, j in sorted((i + j, i, j) for i in range(len(first)) for j in range(len(second))):
            yield first[i] | second[j]

    @staticmethod
    def first(sets: Iterable[Changes]) -> list[Changes]:
        """`MAX_LISTED` of the sets, fewest changes first."""
        return [frozenset(way) for way in in_order(sets)[:MAX_LISTED]]


_RANK: Mapping[str, int] = {
    kind: n for n, kind in enumerate(("remove denial", "grant", "role", "group", "owner", "member", "service admin"))
}


def order(change: Change) -> tuple[int, str]:
    """The sort key of a change: its kind, then its text."""
    return _RANK[change_kind(change)], change_text(change, "")
