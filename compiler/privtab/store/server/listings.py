"""What a store's server lists: rows, names, the journal, and what authorises rows."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from typing import Any

from privtab.serving.endpoint import HttpError
from privtab.store.guarded import GuardedStore
from privtab.store.page import journal_page
from privtab.store.schema import row_id
from privtab.store.server.calls import Call, JsonResponse, Malformed
from privtab.store.server.openapi import MOST_LISTED, TABLES

NAMES = {"users": "user", "groups": "group", "roles": "role"}
"""The listings of principals, and the column that names each."""


def list_rows(tables: Sequence[str], guarded: GuardedStore, call: Call) -> JsonResponse:
    """The rows that the caller may see, sorted by table and content, page by page."""
    number, found = guarded.visible(call.user, tables, call.query.get("about"))
    rows = [{"table": table, "id": row_id(row), "row": dict(row)} for table, listed in found.items() for row in listed]
    rows.sort(key=lambda entry: (entry["table"], json.dumps(entry["row"])))
    return _page(call, number, "rows", rows, lambda entry: f"{entry['table']} {json.dumps(entry['row'])}")


def list_names(kind: str, guarded: GuardedStore, call: Call) -> JsonResponse:
    """The names in the rows that the caller may see."""
    number, found = guarded.visible(call.user, TABLES)
    names: set[str] = set()
    for row in (row for listed in found.values() for row in listed):
        if kind == "entities":
            names |= {row[name] for name in ("entity", "of", "scope", "parent") if name in row}
            continue
        column = NAMES[kind]
        names |= {row[column].removeprefix(f"{column}:")} if column in row and ":" not in row[column] else set()
        cells = (row[name] for name in ("grantee", "principal", "owner", "user") if name in row)
        names |= {cell.removeprefix(f"{column}:") for cell in cells if cell.startswith(f"{column}:")}
    if (type_ := call.query.get("type")) is not None:
        names = {name for name in names if name.startswith(f"{type_}:")}
    return _page(call, number, kind, sorted(names), str)


def _page(call: Call, number: int, name: str, items: list[Any], key: Callable[[Any], str]) -> JsonResponse:
    """One page of sorted items: those after the cursor, which names the last one that was read."""
    text = call.query.get("limit", "100")
    if not text.isdecimal() or not text.isascii() or len(text) > 6 or not 1 <= int(text) <= MOST_LISTED:
        raise Malformed(f"`limit` is a number from 1 to {MOST_LISTED}")
    after = _cursor(call.query.get("after"))
    later = items if after is None else [item for item in items if key(item) > after]
    page = later[: int(text)]
    more = len(later) > len(page)
    next_ = base64.urlsafe_b64encode(key(page[-1]).encode()).decode() if more else None
    return 200, {"number": number, name: page, "next": next_}


def _cursor(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        return base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True).decode()
    except (ValueError, binascii.Error):
        raise Malformed("`after` is the `next` of an earlier page") from None


def authority(guarded: GuardedStore, call: Call) -> JsonResponse:
    """Which operation authorises which rows."""
    del call
    authority = guarded.authority
    types = guarded.program.entities
    deleting = {type_: operation for type_ in types if (operation := authority.deleting(type_)) is not None}
    return 200, {"system": guarded.program.system, "rows": authority.to_json(), "delete": deleting}


def journal(guarded: GuardedStore, call: Call) -> JsonResponse:
    """The changes after a number, for auditors."""
    _check_auditor(guarded, call.user)
    text = call.query.get("after", "0")
    if not text.isdecimal() or not text.isascii() or len(text) > 18:
        raise Malformed("`after` is the number of a change")
    entries = guarded.store.log(int(text), MOST_LISTED)
    return 200, {"entries": [entry.to_json() for entry in entries]}


def page(guarded: GuardedStore, user: str) -> str:
    """The newest changes as an HTML page, for auditors."""
    _check_auditor(guarded, user)
    store = guarded.store
    entries = store.log(max(0, store.head().number - MOST_LISTED))
    return journal_page(entries, store.system, store.database.shown)


def _check_auditor(guarded: GuardedStore, user: str) -> None:
    if user not in guarded.auditors:
        raise HttpError(403, f"user:{user} is no auditor: `privtab serve store --auditor` names them")
