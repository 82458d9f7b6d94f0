"""Shards from Arrow tables are those of `bundle.pack`, byte for byte; nothing here needs a session."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from seeds import seeds
from worlds import IN_SPARK, policy, timed
from worlds import state as random_state

from privtab.base import WINDOW_COLUMNS, Entity, SourceFile
from privtab.bundle import json_bytes, packed_shard, shard_bundles
from privtab.ir import Program
from privtab.pipeline import load_program
from privtab.state import (
    TABLE_COLUMNS,
    Assignment,
    CodedColumn,
    ColumnRows,
    Grant,
    PartText,
    State,
    from_tables,
    validate,
    with_derived_rows,
)
from privtab.state.shards import root_keys, shards
from privtab_spark.state.shards import RAW, SCOPE, Findings, by_root, root_state
from privtab_spark.state.tables import CELLS
from privtab_spark.state.worker import GRANTED, people_state

SCHEMA = pa.schema(
    [
        ("root", pa.string()),
        ("part", pa.int8()),
        *((c, pa.string()) for c in "abcd"),
        *((c, pa.string()) for c in WINDOW_COLUMNS),
    ]
)
ODD = 'q"\\ü\u2028\x1f/€'


def rows(program: Program, state: State) -> pa.Table:
    """The input of the workers, with `from` and `until` for a state with windows; every other effect in capitals."""
    root = root_keys(program)
    edges = {table: [window.cells() for window in state.windows_of(table)] for table in ("grants", "owners")}
    found: list[tuple[Any, ...]] = []
    for number, (g, own) in enumerate(zip(state.grants, edges["grants"], strict=True)):
        effect = g.effect.upper() if number % 2 else g.effect
        found.append((root(str(g.entity)), RAW, str(g.entity), g.grantee, g.privilege, effect, *own))
    for (e, owner), own in zip(state.owners, edges["owners"], strict=True):
        found.append((root(str(e)), RAW + 1, str(e), owner, None, None, *own))
    found += [(root(str(e)), RAW + 2, str(e), user, None, None, None, None) for user, e in state.members]
    found += [
        (root(str(a.scope)), SCOPE, str(a.scope), a.role, None, None, None, None)
        for a in dict.fromkeys(with_derived_rows(program, state).assignments)
        if a.scope
    ]
    random.Random(1).shuffle(found)
    names = [name for name in SCHEMA.names if state.windows or name not in WINDOW_COLUMNS]
    return pa.table({name: [row[SCHEMA.names.index(name)] for row in found] for name in names}).cast(
        pa.schema([SCHEMA.field(name) for name in names])
    )


def usable(program: Program, state: State) -> State:
    """The rows of a state that are valid: worlds have names that no state may hold, and rows that never hold."""
    return validate(program, from_tables(state.to_tables(), "state.json"), notes=False)[0]


@pytest.mark.parametrize("features", [(), IN_SPARK], ids=["plain", "features"])
@pytest.mark.parametrize("seed", seeds(range(20), quick=6))
def test_shards_with_windows_are_those_of_the_packer(seed: int, features: tuple[str, ...]) -> None:
    program = load_program(SourceFile.of("world.yaml", policy(seed, features=features)))
    world = usable(program, timed(random_state(program, seed), seed))
    bundles = built(program, world)
    expected = {root: content for root, content in shard_bundles(program, world).items() if root != PartText.PEOPLE}
    assert bundles == expected


@pytest.mark.parametrize("features", [(), IN_SPARK], ids=["plain", "features"])
@pytest.mark.parametrize("seed", seeds(range(20), quick=6))
def test_people_with_windows_are_those_of_the_packer(seed: int, features: tuple[str, ...]) -> None:
    program = load_program(SourceFile.of("world.yaml", policy(seed, features=features)))
    world = timed(random_state(program, seed), seed)
    parts = shards(program, world)
    part = PartText.of_state(
        program,
        people_state(program, people_rows(world)),
        PartText.PEOPLE,
        [key for key in parts if key != PartText.PEOPLE],
    )
    assert part is not None
    assert part.text == json_bytes(parts[PartText.PEOPLE])
    assert part.users == PartText.of(PartText.PEOPLE, parts[PartText.PEOPLE]).users
    assert (
        packed_shard(program.system, part, {"shards": len(parts) - 1}) == shard_bundles(program, world)[PartText.PEOPLE]
    )


def people_rows(state: State) -> pa.Table:
    """The input of the task that makes the people's part."""
    found: list[tuple[Any, ...]] = [("", "", *[None] * 6)]
    granted = sorted(state.distinct(("grants", "grantee"), ("owners", "owner")))
    found += [(GRANTED, who, *[None] * 6) for who in granted]
    for row, window in zip(state.assignments, state.windows_of("assignments"), strict=True):
        scope = (None, None) if row.scope is None else (row.scope.type, row.scope.id)
        found.append(("assignments", row.principal, row.role, *scope, None, *window.cells()))
    for (user, group), window in zip(state.memberships, state.windows_of("memberships"), strict=True):
        found.append(("memberships", user, group, *[None] * 3, *window.cells()))
    found += [("service_admins", user, *[None] * 6) for user in state.service_admins]
    for value in state.attributes:
        if value.user is not None:
            found.append(("attributes", value.attribute, value.value, value.user, None, None, None, None))
    names = ("part", *CELLS, *WINDOW_COLUMNS)
    return pa.table({name: pa.array([row[at] for row in found], pa.string()) for at, name in enumerate(names)})


def built(program: Program, state: State) -> dict[str, bytes]:
    """The bundles of all shards."""
    bundles: dict[str, bytes] = {}
    for root, table in by_root(rows(program, state)):
        findings: Findings = []
        part = PartText.of_state(program, root_state(program, table, {}, findings, None), root)
        assert not [row for row in findings if row["severity"] == "error"]
        if part is not None:
            bundles[root] = packed_shard(program.system, part, {})
    return bundles


@pytest.mark.parametrize("features", [(), IN_SPARK], ids=["plain", "features"])
@pytest.mark.parametrize("seed", seeds(range(40), quick=10))
def test_shards_of_random_worlds_are_those_of_the_packer(seed: int, features: tuple[str, ...]) -> None:
    program = load_program(SourceFile.of("world.yaml", policy(seed, features=features)))
    world = usable(program, random_state(program, seed))
    expected = {root: content for root, content in shard_bundles(program, world).items() if root != PartText.PEOPLE}
    assert built(program, world) == expected


def test_names_with_everything_that_json_escapes(shop: Program) -> None:
    name = ODD.replace("/", "%2F")
    world = State(
        grants=(
            Grant(grantee=f"role:{ODD}", effect="allow", privilege="EVERYTHING", entity=Entity("lake", name)),
            Grant(grantee=f"role:{ODD}", effect="allow", privilege="READ", entity=Entity("table", f"{name}/s/{name}")),
            Grant(grantee="user:\x00", effect="deny", privilege="SELECT", entity=Entity("schema", f"{name}/s")),
        ),
        assignments=(Assignment(principal="user:a", role=ODD, scope=Entity("schema", f"{name}/s")),),
        owners=((Entity("settings", f"{name}/s"), f"user:{ODD}"),),
        members=((ODD, Entity("lake", name)),),
    )
    bundles = shard_bundles(shop, world)
    for key, bundle in bundles.items():
        part = PartText.of_state(shop, by_columns(world), key, [f"lake:{name}"])
        assert part is not None
        more = {"shards": 1} if key == PartText.PEOPLE else {}
        assert packed_shard(shop.system, part, more) == bundle
    assert list(bundles) == [PartText.PEOPLE, f"lake:{name}"]


def by_columns(state: State) -> State:
    """The same rows in columns."""
    tables: Any = {
        table: ColumnRows(table, {c: CodedColumn.of_texts(state.column(table, c)) for c in columns.names})
        for table, columns in TABLE_COLUMNS.items()
    }
    return State(**tables)
