"""Shards from Arrow tables are those of `bundle.pack`, byte for byte; nothing here needs a session."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest
from worlds import FEATURES, policy
from worlds import state as random_state

from privtab.bundle.pack import shard_bundles
from privtab.ir.nodes import Program
from privtab.pipeline import program_of
from privtab.request import Entity
from privtab.source import SourceFile
from privtab.spark.state.documents import bundle_of, shard_document
from privtab.spark.state.shards import ALLOW, DENY, MEMBER, OWNER, SCOPE, SUSPECT, Findings, by_root, held
from privtab.spark.state.texts import json_texts, large, nested
from privtab.state.names import unusable_name
from privtab.state.nodes import Assignment, Grant, State
from privtab.state.shards import PEOPLE, root_keys

SCHEMA = pa.schema([("root", pa.string()), ("part", pa.int8()), *((c, pa.string()) for c in "abcd")])
ODD = 'q"\\ü\u2028\x1f/€'


def rows(program: Program, state: State, suspects: bool) -> pa.Table:
    """The input of the workers; every other grant as a suspect where that is asked for."""
    root = root_keys(program)
    found: list[tuple[Any, ...]] = []
    for number, g in enumerate(state.grants):
        key = str(g.entity)
        # Worlds have names that no state may hold; such rows are refused where they are looked at, and stay as they are here.
        if suspects and number % 2 and not any(map(unusable_name, (key, g.grantee))):
            found.append((root(key), SUSPECT, g.grantee, g.effect.upper(), g.privilege, key))
        else:
            found.append((root(key), ALLOW if g.effect == "allow" else DENY, key, g.grantee, g.privilege, None))
    found += [(root(str(e)), OWNER, str(e), owner, None, None) for e, owner in state.owners]
    found += [(root(str(e)), MEMBER, str(e), user, None, None) for user, e in state.members]
    found += [
        (root(str(a.scope)), SCOPE, str(a.scope), f"role:{a.role}", None, None) for a in state.assignments if a.scope
    ]
    random.Random(1).shuffle(found)
    return pa.table({name: [row[at] for row in found] for at, name in enumerate(SCHEMA.names)}, schema=SCHEMA)


def built(program: Program, state: State, *, suspects: bool = False) -> dict[str, bytes]:
    """The bundles of all shards."""
    made: dict[str, bytes] = {}
    for root, table in by_root(rows(program, state, suspects)):
        findings = Findings()
        revision, text = shard_document(held(program, table, {}, findings, None))
        assert json.loads(text)["revision"] == revision
        made[root] = bundle_of(program, root, revision, text)
    return made


def without_empty(bundles: dict[str, bytes], wanted: dict[str, bytes]) -> dict[str, bytes]:
    """Roots where only a scope lies have no shard."""
    return {root: content for root, content in bundles.items() if root in wanted}


@pytest.mark.parametrize("features", [(), FEATURES], ids=["plain", "features"])
@pytest.mark.parametrize("seed", range(40))
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


@pytest.mark.parametrize("ascii_", [False, True])
def test_texts_are_escaped_as_json_does(ascii_: bool) -> None:
    texts = ["", "a", ODD, "\n", "\\n", '"', "\x7f", "\ud7ff", "\U0001d49c", *map(chr, range(40))]
    written = json_texts(large(texts), ascii_=ascii_).to_pylist()
    assert written == [json.dumps(text, ensure_ascii=ascii_) for text in texts]


def test_long_objects_are_put_together_from_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    value = {f"p{p}": {f"k{k}": {f"n{n}": True for n in range(3)} for k in range(5)} for p in range(4)}
    flat = [(p, k, n) for p in range(4) for k in range(5) for n in range(3)]
    columns = [np.array([row[at] for row in flat]) for at in range(3)]
    keys = [json_texts(large([f"{letter}{n}" for n in range(5)])) for letter in "pk"]
    leaves = large([f'"n{n}":true' for n in range(3)])
    for size in (1, 2, 7, 100):
        monkeypatch.setattr("privtab.spark.state.texts._ROWS", size)
        text = b"".join(nested([(columns[0], keys[0]), (columns[1], keys[1])], (columns[2], leaves)))
        assert text.decode() == json.dumps(value, separators=(",", ":"))
