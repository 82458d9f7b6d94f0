"""The journal of a store as a log: each change that somebody asked for was decided, and allowed."""

from __future__ import annotations

from collections.abc import Iterator

from privtab.logs import opa
from privtab.logs.opa import Row
from privtab.logs.schema import SCHEMA, STORE, Reading
from privtab.store.journal import Journal

ORIGIN = "store"


def rows(location: str, reading: Reading) -> Iterator[Row]:
    """The decisions of a store at `store:URL`; `state_revision` is the number of the change before which each was made."""
    journal = Journal.open(location.removeprefix(STORE))
    reading.files += 1
    for entry in journal.log():
        if not {"subject", "action", "resource"} <= entry.request.keys():
            reading.other["change that was not decided"] += 1
            continue
        event = {
            "decision_id": entry.request_id or str(entry.number),
            "path": f"privtab/{journal.system}/decision",
            "input": entry.request,
            "result": entry.decision,
            "timestamp": entry.at,
        }
        for row in opa.rows(event, f"{location}:{entry.number}", reading):
            cells = dict(zip(SCHEMA.names, row, strict=True))
            yield tuple((cells | {"origin": ORIGIN, "state_revision": str(entry.number - 1)}).values())
