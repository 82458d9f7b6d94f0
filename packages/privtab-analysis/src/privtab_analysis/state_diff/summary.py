"""The changed access of a difference, grouped for people: by the rows that made it, by subjects, by operations."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from itertools import islice
from typing import Any

from privtab.base import count, dataclass
from privtab.ir import RESOURCE, value_text
from privtab_analysis.state_diff.entities import EntityClass
from privtab_analysis.state_diff.nodes import ChangedAccess, ChangedRow, StateDiff
from privtab_analysis.state_diff.subjects import ANY_OTHER

NAMES = 5
"""The most names that a line lists; the others are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Numbers of permissions: of combinations of a subject, an operation and an entity."""

    permissions: int
    subjects: int
    sensitive: int

    def text(self, verb: str) -> str:
        """`gained: 12 permissions of 3 users, 2 of them sensitive`."""
        if not self.permissions:
            return f"{verb}: nothing"
        sensitive = f", {self.sensitive:,} of them sensitive" if self.sensitive else ""
        return f"{verb}: {count(self.permissions, 'permission')} of {count(self.subjects, 'user')}{sensitive}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Operations that changed for the same subjects, on the same entities."""

    subjects: str
    operations: str
    entities: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The changes because of the same rows."""

    gained: bool
    rows: tuple[ChangedRow, ...]
    permissions: int
    lines: tuple[Line, ...]


def totals(diff: StateDiff, *, gained: bool) -> Totals:
    """The numbers of gained or lost permissions."""
    found = [change for change in diff.access if change.gained is gained]
    return Totals(
        permissions=sum(change.count for change in found),
        subjects=len({subject for change in found for subject in change.subjects}),
        sensitive=sum(change.count for change in found if change.sensitive),
    )


def headline(diff: StateDiff) -> str:
    """`3 rows changed: 2 added, 1 removed`."""
    added = sum(row.added for row in diff.rows)
    removed = len(diff.rows) - added
    words = [f"{n:,} {word}" for n, word in ((added, "added"), (removed, "removed")) if n]
    return f"{count(len(diff.rows), 'row')} changed: {', '.join(words)}" if words else "no row changed"


def groups(diff: StateDiff) -> list[Group]:
    """The changed access by the rows that made it, gains first; the most permissions first."""
    by_rows: dict[tuple[bool, tuple[ChangedRow, ...]], list[ChangedAccess]] = defaultdict(list)
    for change in diff.access:
        by_rows[change.gained, change.rows].append(change)
    found = [
        Group(
            gained=gained,
            rows=rows,
            permissions=sum(change.count for change in access),
            lines=tuple(_lines(access)),
        )
        for (gained, rows), access in by_rows.items()
    ]
    return sorted(found, key=lambda group: (not group.gained, -group.permissions))


def operation_text(change: ChangedAccess) -> str:
    """`load`; `[table/create]` for a call that names no item; with its flags, and whether it is sensitive."""
    name = f"[{change.rule.entity}/{change.rule.operation}]" if change.unnamed else change.rule.operation
    flags = f" with {' and '.join(change.flags)}" if change.flags else ""
    given = " and ".join(_given_texts(change))
    return f"{name}{flags}{f' if {given}' if given else ''}{' (sensitive)' if change.sensitive else ''}"


def _given_texts(change: ChangedAccess) -> Iterator[str]:
    """The values that a request gives, as conditions: `request.mfa = true`."""
    given = change.given
    for owner, values in [
        ("user", given.user),
        ("entity", given.entity),
        ("request", given.request),
        *given.with_.items(),
    ]:
        yield from (f"{owner}.{name} = {value_text(value)}" for name, value in values.items())


def names_text(names: Iterable[str], count: int) -> str:
    """Some names, and how many there are besides."""
    shown = list(islice(names, NAMES))
    return ", ".join(shown) + (f" and {count - len(shown):,} more" if count > len(shown) else "")


def subject_text(subject: str) -> str:
    """`alice`, or `group:hr`."""
    if subject == ANY_OTHER:
        return "everyone else"
    return subject.removeprefix("user:")


def _lines(access: Iterable[ChangedAccess]) -> Iterable[Line]:
    operations: dict[tuple[object, ...], list[ChangedAccess]] = defaultdict(list)
    for change in access:
        objects = tuple((slot, found.type, found.spans) for slot, found in change.objects.items())
        operations[change.subjects, change.entities.type, change.entities.spans, objects].append(change)
    alike: dict[tuple[tuple[str, ...], str, tuple[str, ...]], list[ChangedAccess]] = defaultdict(list)
    for same in operations.values():
        names = ", ".join(dict.fromkeys(operation_text(change) for change in same))
        alike[same[0].subjects, names, tuple(same[0].objects)].append(same[0])
    for (_, names, _), same in alike.items():
        subjects = same[0].subjects
        yield Line(
            subjects=names_text(map(subject_text, subjects), len(subjects)),
            operations=names,
            entities=names_text(_entities(same), sum(change.places for change in same)),
        )


def _entities(access: Iterable[ChangedAccess]) -> Iterable[str]:
    for change in access:
        for requested in change.requested_objects(NAMES):
            # A call without an item is shown at the entity that contains the items.
            id_ = requested[RESOURCE].id
            in_state = change.vocabulary.shapes[change.rule.entity].names_container(id_)
            resource = id_ if in_state else f"{change.entities.type}:{id_}" if change.entities.type else "(the root)"
            objects = [f"{slot}={entity}" for slot, entity in requested.items() if slot != RESOURCE]
            yield " ".join([resource, *(["with", *objects] if objects else [])])


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
    return {
        "change": "added" if row.added else "removed",
        "table": row.table,
        "row": dict(row.cells),
        "text": row.text,
        "place": row.place and asdict(row.place),
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
