"""The difference between two states as JSON, with the keys that docs/reference/state-diff.md describes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from itertools import islice
from typing import Any

from privtab.analysis.state_diff.entities import EntityClass
from privtab.analysis.state_diff.nodes import ChangedAccess, ChangedRow, StateDiff
from privtab.analysis.state_diff.summary import totals

MOST_NAMES = 1_000
"""The most names in one list unless more are asked for; each list has its count beside it."""


def state_diff_json(diff: StateDiff, *, policy: bool = True, most: int = MOST_NAMES) -> dict[str, Any]:
    """The difference. `policy`: whether decisions were compared; `most`: the most names in a list, 0 for all."""
    numbers = {row: number for number, row in enumerate(diff.rows)}
    changes = Counter((row.table, row.added) for row in diff.rows)
    return {
        "summary": {
            "added": sum(row.added for row in diff.rows),
            "removed": sum(not row.added for row in diff.rows),
            "tables": {
                table: {"added": changes[table, True], "removed": changes[table, False]}
                for table in dict.fromkeys(row.table for row in diff.rows)
            },
            "gained": asdict(totals(diff, gained=True)) if policy else None,
            "lost": asdict(totals(diff, gained=False)) if policy else None,
            "complete": not diff.undecided,
        },
        "rows": [_row(row) for row in diff.rows],
        "access": [_access(change, numbers, most or None) for change in diff.access] if policy else None,
        "undecided": list(diff.undecided),
        "notes": list(diff.notes),
    }


def _row(row: ChangedRow) -> dict[str, Any]:
    place = row.place
    where = None
    if place is not None:
        where = {"path": place.path, "table": place.table, "row": place.row, "line": place.line}
    return {
        "change": "added" if row.added else "removed",
        "table": row.table,
        "row": dict(row.cells),
        "text": row.text,
        "place": where,
    }


def _access(change: ChangedAccess, numbers: Mapping[ChangedRow, int], most: int | None) -> dict[str, Any]:
    return {
        "change": "gained" if change.gained else "lost",
        "rule": change.rule.id,
        "operation": change.rule.operation,
        "unnamed": change.unnamed,
        "flags": list(change.flags),
        "attributes": change.given.to_json(),
        "sensitive": change.sensitive,
        "subjects": {"count": len(change.subjects), "names": list(change.subjects[:most])},
        "entities": _class(change.entities, most),
        "with": {slot: _class(found, most) for slot, found in change.objects.items()},
        "permissions": change.count,
        "rows": [numbers[row] for row in change.rows],
    }


def _class(found: EntityClass, most: int | None) -> dict[str, Any]:
    return {"count": found.count, "names": [str(entity) for entity in islice(found, most)]}
