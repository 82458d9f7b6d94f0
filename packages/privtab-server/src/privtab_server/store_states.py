"""States of stores: `store:grants.db`, now, and `store:grants.db@2026-03-03T12:00Z` or `@12` at a moment of the journal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from privtab.base import UsageError, WrongTime, parse_moment
from privtab_server.addresses import STORE, with_slashes

if TYPE_CHECKING:
    from privtab.client import BundleLocation
    from privtab.ir import Program
    from privtab.state import RawState
    from privtab_server.store.authority import Authority
    from privtab_server.store.journal import Journal

_MOMENT = re.compile(r"(?P<url>.+?)(?:@(?P<at>[0-9]+|[0-9]{4}-[0-9]{2}-[0-9]{2}[^@/]*))?", re.DOTALL)
_NOT_A_MOMENT = re.compile(r"(?P<url>[^:]+://[^/]*/[^@]*)@(?P<at>.*)", re.DOTALL)


def rows(program: Program | None, location: str) -> RawState:
    """The rows of a store, now or at a moment."""
    from privtab.state import from_tables

    system, tables = rows_of_store(*_store_and_moment(location))
    if program is not None and system != program.system:
        raise UsageError(f"{location} is a store of {system}, and the policy is of {program.system}")
    return from_tables(tables, location)


def opened(location: str) -> BundleLocation:
    """The running state of a store, for engines that follow its changes. Raises ImportError where an extra is missing."""
    from privtab_server.store.location import StoreLocation

    return StoreLocation(location)


def authority(program: Program, authorise: Iterable[str]) -> Authority:
    """Return the operations that authorise changes in a store with these options. Raises ImportError where an extra is missing."""
    from privtab_server.store.authority import Authority

    return Authority(program, authorise)


def keep_rows(
    location: str,
    table: str,
    columns: Sequence[str],
    rows: Iterable[tuple[object, ...]],
    key: str,
    revision: str | None,
) -> None:
    """Keep the rows of a filter in a table of a store's database. Raises ImportError where an extra is missing."""
    from privtab_server.store.database import keep_rows as keep

    keep(location, table, columns, rows, key, revision)


def running_store(state: Path) -> str | None:
    """The location of a store, for a client that follows its changes; None for other states, and for a store at a moment."""
    if not str(state).startswith(STORE):
        return None
    url, at = _store_and_moment(str(state))
    return None if at is not None else f"{STORE}{url}"


def _store_and_moment(location: str) -> tuple[str, str | None]:
    """The address of a store, and the moment in `store:URL[@MOMENT]`. Raises UsageError."""
    found = _MOMENT.fullmatch(location.removeprefix(STORE))
    if found is None:
        raise UsageError(
            f"`{location}`: write store:PATH, as in store:grants.db, with @TIME or @N for an earlier moment"
        )
    if found["url"].startswith("sqlite:"):
        raise UsageError(f"`{location}`: write the path alone, as in store:grants.db or store:/srv/grants.db")
    url = with_slashes(found["url"])
    if found["at"] is None:
        _check_no_moment(url)
    return url, found["at"]


def _check_no_moment(url: str) -> None:
    """Raise UsageError for the address of a store with `@` and a text that is no moment; names of files may contain `@`."""
    _check_store_extra()
    from privtab_server.store.database import file_before_at

    if "://" in url:
        found = _NOT_A_MOMENT.fullmatch(url)
        store = None if found is None else found["url"]
    else:
        store = file_before_at(url)
    if store is not None:
        raise UsageError(
            f"`{url[len(store) + 1 :]}` is not a moment: write {STORE}{store}@2026-03-03T12:00:00Z for a time, or {STORE}{store}@12 "
            "for the number of a change, as `privtab store show --after 0` shows them"
        )


def rows_of_store(url: str, at: str | None) -> tuple[str, dict[str, list[dict[str, str]]]]:
    """The system of a store, and its rows: now, after a change given by number, or at a time."""
    store = opened_store(url)
    if at is None or at.isdecimal():
        return store.system, store.rows(number=None if at is None else int(at))
    try:
        return store.system, store.rows(moment=parse_moment(at))
    except WrongTime as error:
        raise UsageError(f"`{at}` {error}; {error.help}") from None


def opened_store(url: str) -> Journal:
    """A store to read."""
    _check_store_extra()
    from privtab_server.store.journal import Journal

    return Journal.open(url)


def _check_store_extra() -> None:
    """Raise UsageError if what stores need is not installed."""
    from privtab.base import needing

    with needing("a store", "store"):
        import privtab_server.store  # noqa: F401
