"""Shards from Arrow tables are those of `bundle.pack`, byte for byte; nothing here needs a session."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from seeds import seeds
from worlds import IN_SPARK, policy, timed
from worlds import state as random_state

from privtab.bundle.archive import json_bytes
from privtab.bundle.pack import shard_bundles
from privtab.ir.nodes import Program
from privtab.moments import WINDOW, edge_texts
from privtab.pipeline import program_of
from privtab.request import Entity
from privtab.source import SourceFile
from privtab.spark.state.cross_row_checks import Findings
from privtab.spark.state.principals import people_of_rows
from privtab.spark.state.shards import ALLOW, DENY, MEMBER, OWNER, RAW, SCOPE, by_root, root_holdings
from privtab.spark.state.worker import bundle_of, root_document, shard_document
from privtab.state.hierarchy import closed
from privtab.state.names import unusable_name
from privtab.state.nodes import Assignment, Grant, State
from privtab.state.shards import PEOPLE, root_keys, shards

SCHEMA = pa.schema([("root", pa.string()), ("part", pa.int8()), *((c, pa.string()) for c in "abcd")])
ODD = 'q"\\ü\u2028\x1f/€'


def rows(program: Program, state: State, suspects: bool, assigned: State | None = None) -> pa.Table:
    """The input of the workers; every other grant as a suspect where that is asked for. `assigned` has the assignments."""
    root = root_keys(program)
    found: list[tuple[Any, ...]] = []
    for number, g in enumerate(state.grants):
        key = str(g.entity)
        # Worlds have names that no state may hold; such rows are refused where they are looked at, and stay as they are here.
        if suspects and number % 2 and not any(map(unusable_name, (key, g.grantee))):
            found.append((root(key), RAW, key, g.grantee, g.privilege, g.effect.upper()))
        else:
            found.append((root(key), ALLOW if g.effect == "allow" else DENY, key, g.grantee, g.privilege, None))
    found += [(root(str(e)), OWNER, str(e), owner, None, None) for e, owner in state.owners]
    found += [(root(str(e)), MEMBER, str(e), user, None, None) for user, e in state.members]
    found += [
        (root(str(a.scope)), SCOPE, str(a.scope), f"role:{a.role}", None, None)
        for a in closed(program, assigned or state).assignments
        if a.scope
    ]
    random.Random(1).shuffle(found)
    return pa.table({name: [row[at] for row in found] for at, name in enumerate(SCHEMA.names)}, schema=SCHEMA)


def timed_rows(program: Program, state: State) -> pa.Table:
    """The input of the workers for a state with windows, with `from` and `until`; scopes are those of all assignments."""
    root = root_keys(program)
    edges = {table: [edge_texts(window) for window in state.windows_of(table)] for table in ("grants", "owners")}
    found: list[tuple[Any, ...]] = []
    for g, own in zip(state.grants, edges["grants"], strict=True):
        found.append((root(str(g.entity)), RAW, str(g.entity), g.grantee, g.privilege, g.effect, *own))
    for (e, owner), own in zip(state.owners, edges["owners"], strict=True):
        found.append((root(str(e)), RAW + 1, str(e), owner, None, None, *own))
    always = rows(program, replace(state, grants=(), owners=(), windows={}), suspects=False, assigned=state).to_pylist()
    found += [tuple(row.get(name) for name in (*SCHEMA.names, *WINDOW)) for row in always]
    schema = pa.schema([*SCHEMA, *((name, pa.string()) for name in WINDOW)])
    return pa.table({name: [row[at] for row in found] for at, name in enumerate(schema.names)}, schema=schema)


def usable(state: State) -> State:
    """The rows of a state whose names a state may hold."""
    grants = [g for g in state.grants if not any(map(unusable_name, (str(g.entity), g.grantee)))]
    owners = [(e, owner) for e, owner in state.owners if not any(map(unusable_name, (str(e), owner)))]
    return replace(state, grants=tuple(grants), owners=tuple(owners))


def holding(state: State) -> State:
    """The rows of a state that hold at some time: others are errors."""
    rows, windows = {}, {}
    for table, of_table in state.windows.items():
        kept = [at for at, window in enumerate(of_table) if window.begin < window.end]
        rows[table] = tuple(getattr(state, table)[at] for at in kept)
        windows[table] = [of_table[at] for at in kept]
    return replace(state, **rows, windows=windows)


@pytest.mark.parametrize("features", [(), IN_SPARK], ids=["plain", "features"])
@pytest.mark.parametrize("seed", seeds(range(20), quick=6))
def test_shards_with_windows_are_those_of_the_packer(seed: int, features: tuple[str, ...]) -> None:
    program = program_of(SourceFile.of("world.yaml", policy(seed, features=features)))
    world = holding(timed(usable(random_state(program, seed)), seed))
    bundles: dict[str, bytes] = {}
    for root, table in by_root(timed_rows(program, world)):
        findings = Findings()
        shard = root_holdings(program, table, {}, findings, None)
        assert not [row for row in findings.rows if row["severity"] == "error"]
        if document := root_document(program, root, shard):
            bundles[root] = bundle_of(program, root, *document)
    expected = {root: content for root, content in shard_bundles(program, world).items() if root != PEOPLE}
    assert bundles == expected


@pytest.mark.parametrize("features", [(), IN_SPARK], ids=["plain", "features"])
@pytest.mark.parametrize("seed", seeds(range(20), quick=6))
def test_people_with_windows_are_those_of_the_packer(seed: int, features: tuple[str, ...]) -> None:
    program = program_of(SourceFile.of("world.yaml", policy(seed, features=features)))
    world = timed(random_state(program, seed), seed)
    parts = shards(program, world)
    of_people = replace(world, grants=(), owners=(), members=(), windows={
        table: windows for table, windows in world.windows.items() if table in {"assignments", "memberships"}
    })  # fmt: skip
    granted = sorted(world.distinct(("grants", "grantee"), ("owners", "owner")))
    document = people_of_rows(program, of_people, granted, [key for key in parts if key != PEOPLE])
    assert document.text == json_bytes(parts[PEOPLE])
    bundle = bundle_of(program, PEOPLE, document.revision, document.text, len(parts) - 1, windows=document.windows)
    assert bundle == shard_bundles(program, world)[PEOPLE]


def built(program: Program, state: State, *, suspects: bool = False) -> dict[str, bytes]:
    """The bundles of all shards."""
    bundles: dict[str, bytes] = {}
    for root, table in by_root(rows(program, state, suspects)):
        findings = Findings()
        revision, text = shard_document(root_holdings(program, table, {}, findings, None))
        assert json.loads(text)["revision"] == revision
        bundles[root] = bundle_of(program, root, revision, text)
    return bundles


def without_empty(bundles: dict[str, bytes], expected: dict[str, bytes]) -> dict[str, bytes]:
    """Roots where only a scope lies have no shard."""
    return {root: content for root, content in bundles.items() if root in expected}


@pytest.mark.parametrize("features", [(), IN_SPARK], ids=["plain", "features"])
@pytest.mark.parametrize("seed", seeds(range(40), quick=10))
def test_shards_of_random_worlds_are_those_of_the_packer(seed: int, features: tuple[str, ...]) -> None:
    program = program_of(SourceFile.of("world.yaml", policy(seed, features=features)))
    world = random_state(program, seed)
    expected = {root: content for root, content in shard_bundles(program, world).items() if root != PEOPLE}
    for suspects in (False, True):
        assert without_empty(built(program, world, suspects=suspects), expected) == expected


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
    expected = {root: content for root, content in shard_bundles(shop, world).items() if root != PEOPLE}
    assert built(shop, world) == expected
    assert list(expected) == [f"lake:{name}"]
