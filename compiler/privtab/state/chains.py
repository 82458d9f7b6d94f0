"""The containers of a principal at any distance, by links between groups or between roles."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from privtab.base.errors import UsageError
from privtab.base.moments import ALWAYS, Window
from privtab.base.request import Entity

MOST_LINKS = 64
"""Limit on the length of a chain of groups, or of roles."""
MOST_DERIVED = 20_000_000
"""Limit on the rows that follow from the rows of a state."""
GROUP_PREFIX = "group:"
"""The beginning of a group as a principal: `f"{GROUP_PREFIX}hr"`."""
ROLE_PREFIX = "role:"
"""The beginning of a role as a principal: `f"{ROLE_PREFIX}analyst"`."""

M = TypeVar("M", bound=Hashable)


class TransitiveContainers(Generic[M]):
    """The containers of a principal at any distance, each with the marks of the links joined."""

    def __init__(self, links: Mapping[str, Iterable[tuple[str, M]]], join: Callable[[M, M], M | None]) -> None:
        """`links`: member → what contains it, each with a mark of the link: a window, a scope, or both.

        `join`: the mark of two links together; None if they never count together.
        """
        self.links = links
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


def containers(links: Iterable[tuple[str, str, M]], join: Callable[[M, M], M | None]) -> TransitiveContainers[M]:
    """The containers of principals, from the links: a member, its container, and a mark; `join`: as TransitiveContainers."""
    found: dict[str, list[tuple[str, M]]] = defaultdict(list)
    for member, container, mark in links:
        found[member].append((container, mark))
    return TransitiveContainers(found, join)


def roles_from(
    links: Iterable[tuple[str, str, RoleLimits]], keys: Callable[[Entity], list[str]]
) -> TransitiveContainers[RoleLimits]:
    """The roles that a role holds, from the links: `role:…`, the name of a role that it holds, and how; `keys`: as ScopeOverlap."""
    overlap = ScopeOverlap(keys)

    def join(first: RoleLimits, second: RoleLimits) -> RoleLimits | None:
        common, scope = overlap.both(first.scope, second.scope)
        window = joined(first.window, second.window)
        return RoleLimits(scope, window) if common and window is not None else None

    return containers(((holder, f"{ROLE_PREFIX}{role}", how) for holder, role, how in links), join)
