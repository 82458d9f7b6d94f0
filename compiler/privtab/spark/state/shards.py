"""Build the shard of a root entity from its rows, in one worker: deduplication, conflicts, index entries.

Strings are encoded as numbers once (Arrow dictionaries) and each row is packed into one number, so that `numpy.unique` sorts, counts
and deduplicates in one step. Rows are checked by the code for files (`row_checks`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pyarrow as pa

from privtab import arrow
from privtab.arrow import Codes, Truth
from privtab.ir.formula import uses_below
from privtab.ir.nodes import Program
from privtab.moments import ALWAYS, WINDOW
from privtab.request import Entity
from privtab.spark.state import row_checks
from privtab.spark.state.cross_row_checks import EFFECTS, CrossRowChecks, Findings
from privtab.spark.state.encoding import Texts, as_dictionary, as_plain, large, ranked, unique
from privtab.state.coded import CodedColumn
from privtab.state.large_index import given_privileges
from privtab.state.names import StateNames
from privtab.state.nodes import Assignment, AttributeRow, Effect, Grant, State
from privtab.state.principal_rows import scoped_entries
from privtab.state.raw import COLUMNS

TABLES: Mapping[str, tuple[str, ...]] = {
    "grants": ("entity", "grantee", "privilege", "effect"),
    "owners": ("entity", "owner"),
    "members": ("of", "user"),
}
"""The tables whose rows are stored in shards, and their columns, that with the entity first."""
AT_ONCE = 1_000_000
"""Rows that are checked at once."""
ALLOW, DENY, OWNER, MEMBER, SCOPE, ENTITY, ATTRIBUTE, RAW = range(8)
"""Kinds of input rows; an unchecked row of the n-th of TABLES is RAW + n."""
NOT_TEXT = RAW + len(TABLES)
"""The same of sources that have cells which are not text."""
INPUT = ("root", "part", "a", "b", "c", "d")
"""Grants: entity, grantee, privilege; owners and members: entity, principal; scopes: entity, role; attributes: entity, name, value;
unchecked rows: their raw cells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RootHoldings:
    """What is held at and below one root entity, as numbers of `privileges`, `keys` and `names`, which are sorted."""

    privileges: tuple[str, ...]
    keys: Texts
    names: Texts
    grants: Mapping[str, tuple[Codes, Codes, Codes]]
    """`allow` and `deny` → privilege, key, name."""
    scoped: Mapping[str, Sequence[tuple[str, str, str, tuple[str, ...]]]]
    """`allow` and `deny` → privilege, key, principal, entities of the rows."""
    owners: tuple[Codes, Codes]
    members: tuple[Codes, Codes]
    entities: int = 0
    timed: State = field(default_factory=State)
    """The grants and owners that hold for a time, with their windows."""
    rows: State | None = None
    """All rows as in a file, if the shard is made from them: some hold for a time, or the policy takes attributes from the state or looks below."""


def by_root(table: Any) -> Iterator[tuple[str, Any]]:
    """Split the rows of a partition by root, with names dictionary-encoded and the order of rows kept."""
    for position, field_ in enumerate(table.schema):
        if field_.name == "a":
            # Nearly all entities are distinct: encoding them for each root takes a fraction of the time of encoding all at once.
            table = table.set_column(position, "a", large(table.column(position)))
        elif field_.type == pa.string():
            table = table.set_column(position, field_.name, as_dictionary(table.column(position)))
    encoded = table.column("root").chunk(0) if table.num_rows else pa.array([], pa.string()).dictionary_encode()
    names = encoded.dictionary.to_pylist()
    if len(names) == 1:
        yield names[0], table
        return
    # Sorting 16-bit numbers takes a third of the time.
    codes = np.asarray(encoded.indices).astype(np.int16 if len(names) < 2**15 else np.int32)
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(len(names) + 1))
    table = table.combine_chunks()
    for number, name in enumerate(names):
        yield name, table.take(pa.array(order[bounds[number] : bounds[number + 1]]))


def root_holdings(
    program: Program, table: Any, not_text: Mapping[str, Mapping[str, str]], findings: Findings, orphans: str | None
) -> RootHoldings:
    """The rows of one root without duplicates; `orphans`: `report` or `quarantine` unlisted entities; None: none are listed."""
    table, timed_rows = _with_checked(program, table, not_text, findings)
    part = np.asarray(table.column("part").combine_chunks()).astype(np.int8)
    key_codes, keys = ranked(table.column("a"))
    name_codes, names = ranked(table.column("b"))
    grants = part <= DENY
    raw_codes, raws = ranked(table.column("c").filter(pa.array(grants)))
    listed = _listed(part, key_codes, len(keys), orphans)
    cross_row_checks = CrossRowChecks(
        findings=findings, keys=keys, names=names, raws=raws, listed=listed, orphans=orphans
    )

    columns = [part[grants].astype(np.int64), raw_codes, key_codes[grants], name_codes[grants]]
    effect, raw, key, name = cross_row_checks.distinct("grants", columns, (2, len(raws), len(keys), len(names)))
    granted = [effect, raw, key, name]
    privileges, (effect, privilege, key, name) = _resolved(program, raws, keys, effect, raw, key, name)
    if not StateNames(program).one_for_one:
        sizes = (2, len(privileges), len(keys), len(names))
        (effect, privilege, key, name), _ = unique([effect, privilege, key, name], sizes)
    found: dict[str, tuple[Codes, Codes, Codes]] = {}
    for number, which in ((ALLOW, "allow"), (DENY, "deny")):
        mask = effect == number
        found[which] = (privilege[mask], key[mask], name[mask])
    cross_row_checks.conflicts(found, privileges)

    pairs: dict[int, tuple[Codes, Codes]] = {}
    for number, title in ((OWNER, "owners"), (MEMBER, "members")):
        mask = part == number
        both = cross_row_checks.distinct(title, [key_codes[mask], name_codes[mask]], (len(keys), len(names)))
        pairs[number] = (both[0], both[1])
    mask = part == SCOPE
    (scopes, roles), _ = unique([key_codes[mask], name_codes[mask]], (len(keys), len(names)))
    texts = (large(EFFECTS), raws, keys, names)
    scoped = _scoped(program, granted, texts, scopes, roles)
    used = np.zeros(len(keys), bool)
    for codes in (*(g[1] for g in found.values()), *(p[0] for p in pairs.values())):
        used[codes] = True
    timed, rows = cross_row_checks.timed(timed_rows), None
    if timed.windows or program.attributes.from_origin("state") or uses_below(program):
        rows = _file_rows(
            timed,
            zip(*(_texts_of(codes, own) for codes, own in zip(granted, texts, strict=True)), strict=True),
            {
                table: zip(
                    *(_texts_of(codes, own) for codes, own in zip(both, (keys, names), strict=True)), strict=True
                )
                for table, both in (("owners", pairs[OWNER]), ("members", pairs[MEMBER]), ("scopes", (scopes, roles)))
            },
            _attributes(table.filter(pa.array(part == ATTRIBUTE))),
        )
    return RootHoldings(
        privileges=privileges, keys=keys, names=names, grants=found, scoped=scoped,
        owners=pairs[OWNER], members=pairs[MEMBER], entities=int(used.sum()),
        timed=timed, rows=rows,
    )  # fmt: skip


def _texts_of(codes: Codes, texts: Texts) -> list[str]:
    found: list[str] = texts.take(pa.array(codes)).to_pylist()
    return found


def _attributes(rows: Any) -> tuple[AttributeRow, ...]:
    cells = zip(*(as_plain(rows.column(name)).to_pylist() for name in "abc"), strict=True)
    return tuple(AttributeRow(entity=Entity.parse(key), attribute=name, value=value) for key, name, value in cells)


def _file_rows(
    timed: State,
    granted: Iterable[Sequence[str]],
    pairs: Mapping[str, Iterable[Sequence[str]]],
    attributes: tuple[AttributeRow, ...],
) -> State:
    """The rows of a root as in a file; `user:` holds the roles within scopes, for which only the scopes count."""
    grants = [
        Grant(grantee=name, effect=cast("Effect", effect), privilege=raw, entity=Entity.parse(key))
        for effect, raw, key, name in granted
    ]
    owners = [(Entity.parse(key), name) for key, name in pairs["owners"]]
    return State(
        grants=(*grants, *timed.grants),
        owners=(*owners, *timed.owners),
        members=tuple((name, Entity.parse(key)) for key, name in pairs["members"]),
        assignments=tuple(
            Assignment(principal="user:", role=role.removeprefix("role:"), scope=Entity.parse(scope))
            for scope, role in pairs["scopes"]
        ),
        attributes=attributes,
        windows={
            "grants": [ALWAYS] * len(grants) + list(timed.windows_of("grants")),
            "owners": [ALWAYS] * len(owners) + list(timed.windows_of("owners")),
        }
        if timed.windows
        else {},
    )


def _with_checked(
    program: Program, table: Any, not_text: Mapping[str, Mapping[str, str]], findings: Findings
) -> tuple[Any, list[tuple[str, Mapping[str, Any]]]]:
    """The table with its raw rows checked, and the valid rows that hold for a time, by table. Findings are recorded."""
    part = np.asarray(table.column("part").combine_chunks())
    timed: list[tuple[str, Mapping[str, Any]]] = []
    tables = [_plain(table.filter(pa.array(part < RAW)).select(["part", "a", "b", "c"]))]
    for number, (name, names) in enumerate(TABLES.items()):
        window = COLUMNS[name].window if WINDOW[0] in table.column_names else ()
        for first, kinds in ((RAW, {}), (NOT_TEXT, not_text.get(name, {}))):
            rows = table.filter(pa.array(part == first + number))
            rows = rows.select([*"abcd"[: len(names)], *window]).rename_columns([*names, *window])
            for start in range(0, rows.num_rows, AT_ONCE):
                raw = rows.slice(start, AT_ONCE)
                columns = {c: raw.column(c).combine_chunks() for c in raw.column_names}
                checked = row_checks.check(program, name, kinds, columns)
                if checked.timed.any():
                    own = pa.table(checked.canonical(name, WINDOW)).filter(pa.array(checked.timed))
                    timed += [(name, row) for row in own.to_pylist()]
                tables.append(_parts(name, checked, ~checked.timed))
                _note(name, checked, findings)
    return pa.concat_tables(tables), timed


def _plain(rows: Any) -> Any:
    """Rows without dictionaries."""
    columns = {name: as_plain(rows.column(name)) for name in rows.column_names}
    return pa.table({n: c if n == "part" else large(c) for n, c in columns.items()})


def _parts(table: str, checked: row_checks.CheckedBatch, chosen: Truth) -> Any:
    """Some of the valid rows, in the columns of the input."""
    columns = {name: column.rows(chosen) for name, column in checked.columns.items()}
    count = int(chosen.sum())
    part = np.full(count, MEMBER if table == "members" else OWNER, np.int8)
    if table == "grants" and count:
        effects = columns["effect"]
        part = np.array([ALLOW if name == "allow" else DENY for name in effects.names], np.int8)[effects.codes]
    cells = {
        name: large(columns[own].array).take(pa.array(columns[own].codes)) if count else pa.nulls(0, pa.large_string())
        for name, own in zip("abc", TABLES[table], strict=False)
    }
    cells.setdefault("c", pa.nulls(count, pa.large_string()))
    return pa.table({"part": pa.array(part), **cells})


def _note(table: str, checked: row_checks.CheckedBatch, findings: Findings) -> None:
    counted = Counter(
        (found.code, found.severity, found.message, found.help, cells)
        for cells, own in checked.findings
        for found in own
    )
    for (code, severity, message, advice, cells), rows in counted.items():
        findings.add(table, code, severity, message, advice, cells, rows)


def _listed(part: Any, keys: Codes, count: int, orphans: str | None) -> Any:
    """Whether each key is a listed entity; None if entities are not listed."""
    if orphans is None:
        return None
    found = np.zeros(count, bool)
    found[keys[part == ENTITY]] = True
    return found


def _resolved(
    program: Program, raws: Texts, keys: Texts, effect: Codes, raw: Codes, key: Codes, name: Codes
) -> tuple[tuple[str, ...], tuple[Codes, Codes, Codes, Codes]]:
    """Grants resolved by their effects and the types of their entities; privileges are numbered in sorted order."""
    effects = CodedColumn(effect, arrow.texts(EFFECTS))
    rows, granted = given_privileges(program, CodedColumn(raw, raws), CodedColumn(key, keys), effects)
    privileges = tuple(sorted(granted.names))
    number = np.array([privileges.index(p) for p in granted.names], np.int64)
    return privileges, (effect[rows], number[granted.codes], key[rows], name[rows])


def _scoped(
    program: Program, grants: Sequence[Codes], texts: Sequence[Texts], scopes: Codes, roles: Codes
) -> dict[str, list[tuple[str, str, str, tuple[str, ...]]]]:
    """By effect, (privilege, key, principal, entities of the rows) for each role within a scope.

    `texts`: those of effects, privileges as written, keys and names. `scopes` and `roles`: the assigned pairs, by key and name.
    """
    by_role: dict[str, dict[str, Entity]] = {}
    for role, scope in zip(_texts_of(roles, texts[3]), _texts_of(scopes, texts[2]), strict=True):
        by_role.setdefault(role, {})[scope] = Entity.parse(scope)
    of_roles = np.isin(grants[3], np.unique(roles))
    columns = [_texts_of(codes[of_roles], own) for codes, own in zip(grants, texts, strict=True)]
    rows = ((name, effect, raw, key) for effect, raw, key, name in zip(*columns, strict=True))
    found: dict[str, list[tuple[str, str, str, tuple[str, ...]]]] = {effect: [] for effect in EFFECTS}
    for (effect, *place), entities in sorted(scoped_entries(program, rows, by_role).items()):
        found[effect].append((place[0], place[1], place[2], tuple(sorted(entities))))
    return found
