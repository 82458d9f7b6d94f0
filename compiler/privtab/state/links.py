"""Links between groups, and between roles: none may lie on a cycle or in too long a chain.

The result does not depend on the order of the rows, so it is the same for files and for Spark.

Groups in groups and roles held by roles have rows that follow from those of a state (docs/decisions/0222). `closed` appends these.
So whatever looks one row far finds all that a principal holds: the reference, every index, the analyses.

An index and Spark's tables hold every privilege that a row gives. Read again as rows, what a privilege implies would be expanded a
second time, and implication is one step. So `as_written` leaves out the rows that others give.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Generic, TypeAlias, TypeVar

from privtab.base.errors import UsageError
from privtab.base.moments import ALWAYS, Window
from privtab.base.records import dataclass
from privtab.base.request import Entity
from privtab.ir.declarations import HierarchyKind
from privtab.ir.names import privilege_names
from privtab.ir.nodes import Program
from privtab.state.located import locations
from privtab.state.names import RowProblem
from privtab.state.nodes import State
from privtab.state.raw import TABLE_COLUMNS, RawState

MOST_LINKS = 64
"""Limit on the length of a chain of groups, or of roles."""
MOST_DERIVED = 20_000_000
"""Limit on the rows that follow from the rows of a state."""
GROUP_PREFIX = "group:"
"""The beginning of a group as a principal: `f"{GROUP_PREFIX}hr"`."""
ROLE_PREFIX = "role:"
"""The beginning of a role as a principal: `f"{ROLE_PREFIX}analyst"`."""
Link: TypeAlias = tuple[str, str]
"""A member and what contains it: (`group:eu`, `group:all`), (`role:engineer`, `role:reader`)."""

LINK_COLUMNS: Mapping[HierarchyKind, tuple[str, str, str, str]] = {
    "groups": ("memberships", "user", "group", GROUP_PREFIX),
    "roles": ("assignments", "principal", "role", ROLE_PREFIX),
}
"""By kind, as in `table, member, container, prefix = LINK_COLUMNS["groups"]`: the table, the columns of the member and of what contains it, and the prefix of both."""
SMALL = 64
"""Principals on a cycle up to which each of its rows is reported with a cycle of its own."""


def holding_roles(program: Program, raw: RawState) -> set[str]:
    """The roles that rows say to hold others, as `role:…`."""
    if "roles" not in program.semantics.hierarchy:
        return set()
    rows = raw.rows.get("assignments", ())
    columns = getattr(rows, "columns", None)
    principals = columns["principal"].names if columns else (row.cells["principal"] for row in rows)
    return {principal for principal in principals if principal.startswith(ROLE_PREFIX)}


def invalid_links(kind: HierarchyKind, links: Iterable[Link]) -> dict[Link, RowProblem]:
    """The links that lie on a cycle or make a chain too long, and why.

    >>> [problem.code for problem in invalid_links("groups", [("group:a", "group:b"), ("group:b", "group:a")]).values()]
    ['S186', 'S186']
    """
    once = sorted(set(links))
    found: dict[Link, RowProblem] = {}
    components = _components(once)
    number = {name: at for at, component in enumerate(components) for name in component}
    inside: dict[int, list[Link]] = defaultdict(list)
    for link in once:
        if number[link[0]] == number[link[1]]:
            inside[number[link[0]]].append(link)
    for at, own in inside.items():
        found |= _cycle(kind, components[at], own)
    verb = "contain" if kind == "groups" else "hold"
    for link in _too_long([link for link in once if link not in found]):
        message = f"`{link[0]}` begins a chain of more than {MOST_LINKS} {kind} that {verb} each other"
        found[link] = RowProblem("S184", message, f"{MOST_LINKS} is the most")
    return found


def _cycle(kind: HierarchyKind, component: Collection[str], links: Sequence[Link]) -> Iterator[tuple[Link, RowProblem]]:
    """The problem of each link inside a component."""
    advice = "remove one of the rows of the cycle"
    what = "contain each other" if kind == "groups" else "hold each other"
    above: dict[str, list[str]] = defaultdict(list)
    for member, container in links:
        above[member].append(container)
    for link in links:
        if len(component) > SMALL:
            message = f"{len(component):,} {kind} {what}, `{link[0]}` and `{link[1]}` among them"
        elif link[0] == link[1]:
            message = f"`{link[0]}` {'contains' if kind == 'groups' else 'holds'} itself"
        else:
            names = [link[0], *_path(above, link[1], link[0])]
            message = f"the {kind} {what}: {' → '.join(f'`{name}`' for name in names)}"
        yield link, RowProblem("S186", message, advice)


def _path(above: Mapping[str, Sequence[str]], begin: str, end: str) -> list[str]:
    """A shortest chain from one principal to another that it leads to."""
    before = {begin: ""}
    waiting = deque([begin])
    while end not in before:
        name = waiting.popleft()
        for other in above[name]:
            if other not in before:
                before[other] = name
                waiting.append(other)
    found = [end]
    while found[-1] != begin:
        found.append(before[found[-1]])
    return found[::-1]


def _components(links: Iterable[Link]) -> list[set[str]]:
    """The strongly connected components, by Kosaraju's algorithm without recursion."""
    forth: dict[str, list[str]] = defaultdict(list)
    back: dict[str, list[str]] = defaultdict(list)
    for member, container in links:
        forth[member].append(container)
        back[container].append(member)
    left: list[str] = []
    """Names in the order in which a search leaves them."""
    seen: set[str] = set()
    for first in list(forth):
        stack = [(first, iter(forth[first]))] if first not in seen else []
        seen.add(first)
        while stack:
            name, others = stack[-1]
            other = next((other for other in others if other not in seen), None)
            if other is None:
                left.append(name)
                stack.pop()
            else:
                seen.add(other)
                stack.append((other, iter(forth.get(other, ()))))
    found: list[set[str]] = []
    placed: set[str] = set()
    for first in reversed(left):
        if first not in placed:
            component = {first}
            waiting = [first]
            placed.add(first)
            while waiting:
                for other in back.get(waiting.pop(), ()):
                    if other not in placed:
                        placed.add(other)
                        component.add(other)
                        waiting.append(other)
            found.append(component)
    return found


def _too_long(links: Sequence[Link]) -> Iterator[Link]:
    """The links below which a chain of MOST_LINKS begins; the links have no cycle."""
    above: dict[str, list[str]] = defaultdict(list)
    below: dict[str, list[str]] = defaultdict(list)
    for member, container in links:
        above[member].append(container)
        below[container].append(member)
    open_ = {name: len(others) for name, others in above.items()}
    height: dict[str, int] = {}
    """The links of the longest chain from a name upwards, without those left out."""
    waiting = [name for name in below if name not in above]
    while waiting:
        name = waiting.pop()
        for member in below.get(name, ()):
            if height.get(name, 0) + 1 > MOST_LINKS:
                yield member, name
            else:
                height[member] = max(height.get(member, 0), height.get(name, 0) + 1)
            open_[member] -= 1
            if not open_[member]:
                waiting.append(member)


M = TypeVar("M", bound=Hashable)


class TransitiveContainers(Generic[M]):
    """The containers of a principal at any distance, each with the marks of the links joined."""

    def __init__(self, links: Iterable[tuple[str, str, M]], join: Callable[[M, M], M | None]) -> None:
        """`links`: a member, its container, and a mark of the link: a window, a scope, or both.

        `join`: the mark of two links together; None if they never count together.
        """
        self.links: dict[str, list[tuple[str, M]]] = defaultdict(list)
        for member, container, mark in links:
            self.links[member].append((container, mark))
        self._join = join
        self._known: dict[str, tuple[tuple[str, M], ...]] = {}
        self._size = 0

    def of(self, member: str) -> tuple[tuple[str, M], ...]:
        """The containers of a principal, each with its marks. Ends for cycles, too: joined marks are from a finite set."""
        found = self._known.get(member)
        if found is None:
            seen = dict.fromkeys(self.links.get(member, ()))
            waiting = deque(seen)
            while waiting:
                container, mark = waiting.popleft()
                for above, own in self.links.get(container, ()):
                    both = self._join(mark, own)
                    if both is not None and (above, both) not in seen:
                        seen[above, both] = None
                        waiting.append((above, both))
                check_size(self._size + len(seen))
            found = self._known[member] = tuple(seen)
            self._size += len(found)
        return found

    def through(self, container: str, mark: M) -> Iterator[tuple[str, M]]:
        """The containers, beside a principal, of every holder of a link with this mark to the principal; each with the marks joined."""
        for above, own in self.of(container):
            both = self._join(mark, own)
            if both is not None:
                yield above, both


def check_size(rows: int) -> None:
    """Raise UsageError if too many rows follow from the rows of a state."""
    if rows > MOST_DERIVED:
        raise UsageError(
            f"more than {rows:,} rows follow from groups in groups and roles held by roles; {MOST_DERIVED:,} is the most"
        )


class ScopeOverlap:
    """The common part of scopes of assignments, as keys; None is everywhere.

    For example:

        ScopeOverlap(locations.keys).both("schema:hive/sales", None)  # (True, "schema:hive/sales")
    """

    def __init__(self, keys: Callable[[Entity], list[str]]) -> None:
        """`keys`: the keys on the path of an entity."""
        self._keys = keys
        self._known: dict[str, frozenset[str]] = {}

    def both(self, first: str | None, second: str | None) -> tuple[bool, str | None]:
        """Return whether two scopes have entities in common, and the scope of these: the one inside the other."""
        if first is None or second is None:
            return True, second if first is None else first
        if second in self._path(first):
            return True, first
        return first in self._path(second), second

    def _path(self, scope: str) -> frozenset[str]:
        found = self._known.get(scope)
        if found is None:
            found = self._known[scope] = frozenset(self._keys(Entity.parse(scope)))
        return found


@dataclass(frozen=True, slots=True)
class RoleLimits:
    """The way in which a role is held: within a scope, or everywhere if it is None, and when."""

    scope: str | None
    window: Window = ALWAYS


def joined(first: Window, second: Window) -> Window | None:
    """The time in which two links hold; None if there is none."""
    begin, end = max(first.begin, second.begin), min(first.end, second.end)
    return Window(begin, end) if begin < end else None


def roles_from(
    links: Iterable[tuple[str, str, RoleLimits]], keys: Callable[[Entity], list[str]]
) -> TransitiveContainers[RoleLimits]:
    """The roles that a role holds, from the links: `role:…`, the name of a role that it holds, and how; `keys`: as ScopeOverlap."""
    overlap = ScopeOverlap(keys)

    def join(first: RoleLimits, second: RoleLimits) -> RoleLimits | None:
        common, scope = overlap.both(first.scope, second.scope)
        window = joined(first.window, second.window)
        return RoleLimits(scope, window) if common and window is not None else None

    return TransitiveContainers(((holder, f"{ROLE_PREFIX}{role}", how) for holder, role, how in links), join)


def with_derived_rows(program: Program, state: State) -> State:
    """The state with the rows that follow from groups in groups and roles held by roles, after its own rows.

    The state itself for a policy without a hierarchy. Raises UsageError if too many rows follow.

        with_derived_rows(program, state).memberships
    """
    kinds = program.semantics.hierarchy
    if not kinds:
        return state
    key = ("closed", kinds, tuple(program.entities.values()))
    found: State | None = state.derived.get(key)
    if found is None:
        found = state.derived[key] = _closed(program, state)
        found.derived[key] = found
    return found


def _closed(program: Program, state: State) -> State:
    for kind, table in (("groups", "memberships"), ("roles", "assignments")):
        if kind in program.semantics.hierarchy:
            _, _, container, prefix = LINK_COLUMNS[kind]
            follow = derived_rows(table, _links(state, kind), locations(program, state).keys)
            column = state.column(table, container)
            rows = column.where(name for name in column.names if follow.reach.of(f"{prefix}{name}"))
            state = _longer(state, table, dict.fromkeys(follow(_texts(state, table, rows)))) if rows else state
    return state


Texts: TypeAlias = tuple[str | None, ...]
"""The cells of a row of `memberships` or `assignments`, but for its window; an entity is `type:path`."""


def derived_rows(table: str, links: Iterable[tuple[Texts, Window]], keys: Callable[[Entity], list[str]]) -> Following:
    """The rows that follow from rows of `memberships` or `assignments`, given the rows whose member is a group, or a role.

    `keys`: the keys on the path of an entity.

        follow = derived_rows("memberships", links, locations.keys)
        list(follow(rows))
    """
    if table == "memberships":
        contained = ((str(member), f"{GROUP_PREFIX}{group}", window) for (member, group), window in links)
        return Following(table, TransitiveContainers(contained, joined))
    held = ((str(p), str(role), RoleLimits(scope, window)) for (p, role, scope), window in links)
    return Following(table, roles_from(held, keys))


class Following:
    """The rows that follow from rows of a table, each with its window."""

    def __init__(self, table: str, reach: TransitiveContainers[Any]) -> None:
        self.reach = reach
        self._derive = self._memberships if table == "memberships" else self._assignments

    def __call__(self, rows: Iterable[tuple[Texts, Window]]) -> Iterator[tuple[Texts, Window]]:
        """The rows that follow. Raises UsageError if they are too many."""
        count = 0
        for cells, window in rows:
            for found in self._derive(cells, window):
                yield found
                count += 1
            check_size(count)

    def _memberships(self, cells: Texts, window: Window) -> Iterator[tuple[Texts, Window]]:
        user, group = cells
        for above, both in self.reach.through(f"{GROUP_PREFIX}{group}", window):
            yield (user, above.removeprefix(GROUP_PREFIX)), both

    def _assignments(self, cells: Texts, window: Window) -> Iterator[tuple[Texts, Window]]:
        principal, outer, scope = cells
        for role, limits in self.reach.through(f"{ROLE_PREFIX}{outer}", RoleLimits(scope, window)):
            yield (principal, role.removeprefix(ROLE_PREFIX), limits.scope), limits.window


def _links(state: State, kind: HierarchyKind) -> Iterator[tuple[Texts, Window]]:
    """The rows between two groups, or two roles."""
    table, member, _, prefix = LINK_COLUMNS[kind]
    members = state.column(table, member)
    rows = _texts(state, table, members.where(name for name in members.names if name.startswith(prefix)))
    return ((cells, window) for cells, window in rows if window.begin < window.end)


def _texts(state: State, table: str, rows: Sequence[int]) -> Iterator[tuple[Texts, Window]]:
    windows = state.windows_of(table)
    texts = state.texts(table, *TABLE_COLUMNS[table].names, rows=rows)
    return zip(texts, (windows[row] for row in rows), strict=True)


def _longer(state: State, table: str, rows: Mapping[tuple[Texts, Window], None]) -> State:
    """The state with more rows in a table, each with its window; without those that it has, unless these are many."""
    own = state.table(table)
    known = () if own.coded else set(_texts(state, table, range(len(own))))
    new = [row for row in rows if row not in known]
    longer: dict[str, Any] = {table: own.with_more([cells for cells, _ in new])}
    windows = dict(state.windows)
    if table in windows or any(window != ALWAYS for _, window in new):
        windows[table] = (*state.windows_of(table), *(window for _, window in new))
    return replace(state, windows=windows, **longer)


def as_written(program: Program, state: State) -> State:
    """A state whose index is the one that holds exactly the privileges of these rows, each for its own window.

    A row that allows a privilege is kept where everything that the privilege implies there is allowed as well: the row that gave
    it is among those, and none of them gives more.

        validate(program, from_tables(as_written(program, state), "the state"))
    """
    if not program.implies:
        return state
    names = privilege_names(program)
    windows = state.windows_of("grants")
    windows_of: dict[tuple[str, str], dict[str, list[Window]]] = defaultdict(lambda: defaultdict(list))
    for grant, window in zip(state.grants, windows, strict=True):
        if grant.effect == "allow":
            windows_of[grant.grantee, str(grant.entity)][grant.privilege].append(window)
    rows, kept_windows = [], []
    for grant, window in zip(state.grants, windows, strict=True):
        if grant.effect == "deny":
            rows.append(grant)
            kept_windows.append(window)
            continue
        others = windows_of[grant.grantee, str(grant.entity)]
        granted = names.privileges_of(grant.privilege, grant.entity.type, "allow")
        for part in _parts(window, [other for listed in others.values() for other in listed]):
            if all(any(other.covers(part) for other in others.get(p, ())) for p in granted):
                rows.append(grant)
                kept_windows.append(part)
    timed = (
        {**state.windows, "grants": tuple(kept_windows)}
        if any(window != ALWAYS for window in kept_windows)
        else state.windows
    )
    return replace(state, grants=tuple(rows), windows=timed)


def _parts(window: Window, others: list[Window]) -> list[Window]:
    """A window, divided where another one begins or ends."""
    edges = sorted({window.begin, window.end, *(e for o in others for e in o if window.begin < e < window.end)})
    return [Window(*pair) for pair in pairwise(edges)]
