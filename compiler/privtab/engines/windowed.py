"""The index of a state in which rows hold for a time: the index at one moment, and until when that is the same.

Windows only add to what holds at any time, a denial as well as a grant. So the index at a moment is a copy of the lasting one, with
the entries that are open added; both share what these do not concern.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from copy import copy
from typing import Any

from privtab.engines.index import OWNER, Index
from privtab.errors import PolicyError
from privtab.moments import FIRST, LAST, WINDOWED, Window, parts_of

_SHAPE_ERRORS = (KeyError, TypeError, AttributeError, ValueError)


class WindowedIndex:
    """A state with windows, from its bundle. It can be pickled."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        """Read `data.privtab_state.<system>`. Raises PolicyError if it is not an index."""
        try:
            lasting, windows = parts_of(document)
            self._read(Index(lasting), windows)
        except _SHAPE_ERRORS as error:
            raise PolicyError(f"the state is not an index: {error!r}") from error

    @classmethod
    def of(cls, combined: Index) -> WindowedIndex:
        """The index of the parts of a sharded state (`Index.of`), some of which have windows. Raises PolicyError."""
        found = cls.__new__(cls)
        try:
            found._read(combined, combined.windows)  # noqa: SLF001  (its own)
        except _SHAPE_ERRORS as error:
            raise PolicyError(f"the state is not an index: {error!r}") from error
        return found

    def _read(self, lasting: Index, windows: Mapping[str, Any]) -> None:
        self.lasting = lasting
        self._windows = windows
        self.revision: str = lasting.revision
        edges = {edge for spans in _spans(windows) for begin, end in spans for edge in (begin, end)}
        self._edges = sorted(edges - {FIRST, LAST})
        if not all(type(edge) is int and FIRST < edge < LAST for edge in self._edges):
            raise ValueError("the edge of a window is not a moment")
        self.at(FIRST)

    def window(self, moment: int) -> Window:
        """The time around a moment in which the index is the same."""
        position = bisect_right(self._edges, moment)
        return Window(
            self._edges[position - 1] if position else FIRST,
            self._edges[position] if position < len(self._edges) else LAST,
        )

    def at(self, moment: int) -> Index:
        """The index at a moment."""
        found = copy(self.lasting)
        found.windows = {}
        found.tables = {type_: dict(table) for type_, table in found.tables.items()}
        found.origins = dict(found.origins)
        for effect in ("allow", "deny"):
            for privilege, keys in self._windows[effect].items():
                bit = found.numbers.allowed(privilege) if effect == "allow" else found.numbers.denied(privilege)
                for key, holders in keys.items():
                    for principal, origins in holders.items():
                        open_origins = [origin for origin, spans in origins.items() if _is_open(spans, moment)]
                        if open_origins:
                            _add(found, key, principal, bit)
                            _add_origins(found, (effect, privilege, key, principal), open_origins)
        for key, owners in self._windows["owners"].items():
            for owner in _open_names(owners, moment):
                _add(found, key, owner, OWNER)
        found.below = _open_below(self._windows.get("below", {}), moment)
        found.owned_below = {
            key: dict.fromkeys(_open_names(owners, moment), True)
            for key, owners in self._windows.get("owned_below", {}).items()
        }
        found.users = _with_open(found.users, self._windows["principals"], moment)
        found.groups = _with_open(found.groups, self._windows["group_principals"], moment, own_prefix="group:")
        found.scoped = _more_scopes(found.scoped, self._windows["scoped"], moment)
        found.group_scoped = _more_scopes(found.group_scoped, self._windows["group_scoped"], moment)
        brought = dict(found.roles_of_roles)
        for role, times in self._windows.get("brought", {}).items():
            brought[role] = (*brought.get(role, ()), *_open_names(times, moment))
        found.roles_of_roles = brought
        return found


def is_windowed(document: Mapping[str, Any]) -> bool:
    """Whether the document at `data.privtab_state.<system>` is a state with windows."""
    return WINDOWED in document


def revision_of(document: Mapping[str, Any]) -> str | None:
    """The revision of a state, with or without windows."""
    found = document.get(WINDOWED, document)
    return found.get("revision") if isinstance(found, Mapping) else None


def _spans(value: Any) -> Iterator[list[list[int]]]:
    """Every list of times in nested maps."""
    if isinstance(value, Mapping):
        for part in value.values():
            yield from _spans(part)
    else:
        yield value


def _is_open(spans: list[list[int]], moment: int) -> bool:
    return any(begin <= moment < end for begin, end in spans)


def _open_names(times: Mapping[str, list[list[int]]], moment: int) -> list[str]:
    return [name for name, spans in times.items() if _is_open(spans, moment)]


def _open_below(windows: Mapping[str, Any], moment: int) -> dict[str, dict[str, dict[str, Any]]]:
    """What is held below entities at a moment: privilege → key → principal → for each row, those to whom it is denied."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for privilege, keys in windows.items():
        for key, holders in keys.items():
            for principal, rows in holders.items():
                entry = [_open_names(row["denied"], moment) for row in rows.values() if _is_open(row["times"], moment)]
                if entry:
                    found.setdefault(privilege, {}).setdefault(key, {})[principal] = entry
    return found


def _add(index: Index, key: str, principal: str, bit: int) -> None:
    """Add to what a principal holds on an entity, without changing the holders that the index shares."""
    type_, _, path = key.partition(":")
    table = index.table(type_)
    holders = table.get(path, {})
    table[path] = {**holders, principal: holders.get(principal, 0) | bit}


def _add_origins(index: Index, key: tuple[str, str, str, str], origins: list[str]) -> None:
    """The entities of the rows, for a role within a scope; other principals have their rows on the entity itself."""
    if key[3] in index.within:
        index.origins[key] = tuple(sorted({*index.origins.get(key, ()), *origins}))


def _with_open(
    listed: Mapping[str, tuple[str, ...]], windows: Mapping[str, Any], moment: int, *, own_prefix: str | None = None
) -> dict[str, tuple[str, ...]]:
    """The principals of each name, with those of the moment; a name without any has itself if it begins with `own_prefix`."""
    found = dict(listed)
    for name, times in windows.items():
        now_open = _open_names(times, moment)
        if now_open:
            principals = found.get(name, () if own_prefix is None else (f"{own_prefix}{name}",))
            found[name] = tuple(sorted({*principals, *now_open}))
    return found


def _more_scopes(
    listed: Mapping[str, Mapping[str, tuple[str, ...]]], windows: Mapping[str, Any], moment: int
) -> dict[str, Mapping[str, tuple[str, ...]]]:
    found = dict(listed)
    for name, scopes in windows.items():
        own = dict(found.get(name, {}))
        for scope, times in scopes.items():
            now_open = _open_names(times, moment)
            if now_open:
                own[scope] = tuple(sorted({*own.get(scope, ()), *now_open}))
        if own:
            found[name] = own
    return found
