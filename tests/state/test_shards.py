from __future__ import annotations

import json
from pathlib import Path

import bundle_service
import generated_programs
import pytest
import worlds
from hypothesis import given, settings
from hypothesis import strategies as st
from seeds import seeds
from whole_states import merged

from privtab import pipeline
from privtab.base.errors import UnsupportedError
from privtab.base.moments import ALWAYS
from privtab.base.moments import parts_of as windows_of
from privtab.base.request import Entity
from privtab.base.shard_names import HELD, shard_name
from privtab.bundle.archive import json_bytes
from privtab.engines.index import Index
from privtab.engines.python import PythonEngine
from privtab.ir.formula import uses_below
from privtab.ir.nodes import Program
from privtab.ir.serialise import program_json
from privtab.reference.evaluate import Reference
from privtab.state.index import index_document, revision
from privtab.state.nodes import Assignment, Grant, State
from privtab.state.shards import BY_NAME, PartText, content, root_keys, shards

NAMES = st.text(st.sampled_from("ab!%~/012 é"), min_size=1, max_size=6)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Program:
    path = tmp_path_factory.mktemp("lake") / "lake.yaml"
    path.write_text(bundle_service.LAKE)
    return pipeline.load_program(path)


def grant(entity: str, grantee: str = "user:ann", privilege: str = "READ") -> Grant:
    return Grant(grantee=grantee, effect="allow", privilege=privilege, entity=Entity.parse(entity))


def test_all_shards_of_a_small_state(lake: Program) -> None:
    state = State(
        grants=(grant("lake:m"), grant("table:m/z/t", "role:r", "WRITE"), grant("zone:n/z")),
        owners=((Entity.parse("table:n/z/t"), "user:ben"),),
        members=(("ann", Entity.parse("lake:o")),),
        assignments=(Assignment(principal="user:ben", role="r"),),
    )
    found = shards(lake, state)
    assert list(found) == [PartText.PEOPLE, "lake:m", "lake:n", "lake:o"]
    stamps = {key: document.pop("revision") for key, document in found.items()}
    assert found == {
        PartText.PEOPLE: {
            "shards": {"lake:m": True, "lake:n": True, "lake:o": True},
            "principals": {"ann": "user:ann", "ben": "role:r\nuser:ben"},
            **{part: {} for part in BY_NAME if part != "principals"},
        },
        "lake:m": {
            "allow": {"READ": {"lake:m": {"user:ann": True}}, "WRITE": {"table:m/z/t": {"role:r": True}}},
            "deny": {},
            "owners": {},
            "members": {},
        },
        "lake:n": {
            "allow": {"READ": {"zone:n/z": {"user:ann": True}}},
            "deny": {},
            "owners": {"table:n/z/t": {"user:ben": True}},
            "members": {},
        },
        "lake:o": {"allow": {}, "deny": {}, "owners": {}, "members": {"lake:o": {"ann": True}}},
    }
    assert stamps == {key: revision(document) for key, document in found.items()}


def test_an_empty_state_has_people_and_no_shards(lake: Program) -> None:
    found = shards(lake, State())
    assert list(found) == [PartText.PEOPLE]
    assert found[PartText.PEOPLE]["shards"] == {}


def test_a_change_below_one_root_changes_that_shard_alone(lake: Program) -> None:
    before = shards(lake, State(grants=(grant("table:m/z/t"), grant("table:n/z/t"))))
    after = shards(lake, State(grants=(grant("table:m/z/t"), grant("table:m/z/u"), grant("table:n/z/t"))))
    assert [key for key in before if before[key] != after[key]] == ["lake:m"]


@pytest.mark.parametrize("seed", range(40))
def test_the_parts_together_are_the_whole_index(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "world.yaml"
    path.write_text(worlds.policy(seed))
    program = pipeline.load_program(path)
    state = worlds.state(program, seed)
    whole, parts = index_document(program, state), shards(program, state)
    assert json_bytes(merged(parts)) == json_bytes(whole)
    other = State(
        members=state.members[::-1],
        memberships=state.memberships[::-1],
        assignments=state.assignments[::-1],
        grants=state.grants[::-1],
        owners=state.owners[::-1],
        service_admins=state.service_admins[::-1],
    )
    assert {key: json_bytes(part) for key, part in parts.items()} == {
        key: json_bytes(part) for key, part in shards(program, other).items()
    }
    root = root_keys(program)
    for key in parts.keys() - {PartText.PEOPLE}:
        assert set(parts[key]) == {"revision", *HELD}
        entities_of_part = [*parts[key]["owners"], *parts[key]["members"]]
        entities_of_part += [
            k for effect in ("allow", "deny") for entities in parts[key][effect].values() for k in entities
        ]
        assert entities_of_part
        assert {root(k) for k in entities_of_part} == {key}


@pytest.mark.parametrize("seed", seeds(range(20), quick=4))
def test_what_is_held_below_is_in_the_shard_of_its_root(seed: int) -> None:
    program = generated_programs.program(seed, "below", *(("nested",) if seed % 2 else ("attributes",)))
    state = worlds.state(program, seed)
    whole, parts = index_document(program, state), shards(program, state)
    assert len(parts) == 1 or json_bytes(merged(parts)) == json_bytes(whole)
    root = root_keys(program)
    for key in parts.keys() - {PartText.PEOPLE}:
        of_privileges = parts[key].get("below", {}).values()
        keys = [*parts[key].get("owned_below", ()), *(k for entities in of_privileges for k in entities)]
        assert {root(k) for k in keys} <= {key}
    # An engine that has the parts decides as one that has the whole.
    loaded = json.loads(
        json.dumps({**parts[PartText.PEOPLE], "at": {shard_name(k): parts[k] for k in parts if k != PartText.PEOPLE}})
    )
    document = json.loads(json.dumps(program_json(program, pipeline.optimised(program))))
    engine, reference = PythonEngine(document, Index(loaded)), Reference(program, state)
    for request in worlds.requests(program, seed, 40):
        assert engine.allow(request) is reference.decide(request).allowed, request


def test_rows_that_hold_for_a_time_are_refused_where_a_policy_looks_below() -> None:
    program = next(p for p in (generated_programs.program(seed, "below") for seed in range(20)) if uses_below(p))
    states = (worlds.timed(worlds.state(program, seed), seed) for seed in range(20))
    state = next(state for state in states if windows_of(index_document(program, state))[1])
    with pytest.raises(UnsupportedError, match="does not support rows with `from` or `until` for policies with"):
        shards(program, state)


@pytest.mark.parametrize("seed", range(40))
def test_the_parts_of_a_state_with_windows_are_its_whole_index_and_only_those_concerned_have_windows(
    seed: int, tmp_path: Path
) -> None:
    path = tmp_path / "world.yaml"
    path.write_text(worlds.policy(seed))
    program = pipeline.load_program(path)
    state = worlds.timed(worlds.state(program, seed), seed)
    found = shards(program, state)
    windows = {key: windows_of(part)[1] for key, part in found.items()}
    if any(windows.values()):
        assert json_bytes(merged(found)) == json_bytes(index_document(program, state))
    root = root_keys(program)
    for entity, window in zip(state.column("owners", "entity"), state.windows_of("owners"), strict=True):
        assert window == ALWAYS or window.begin >= window.end or windows[root(str(entity))]
    for part, own in zip(found.values(), windows.values(), strict=True):
        assert ("windowed" in part) == bool(own)
        assert not own or any(own.values())


def test_shards_that_the_people_do_not_name_are_left_out(lake: Program) -> None:
    parts = shards(lake, State(grants=(grant("lake:m"), grant("lake:n"))))
    fewer = shards(lake, State(grants=(grant("lake:m"),)))
    assert merged({**parts, PartText.PEOPLE: fewer[PartText.PEOPLE]}) == index_document(
        lake, State(grants=(grant("lake:m"),))
    )


@given(first=NAMES, second=NAMES)
@settings(max_examples=300)
def test_names_of_shards_have_no_escapes_and_are_different(first: str, second: str) -> None:
    assert not set("%~") & set(shard_name(first))
    assert (shard_name(first) == shard_name(second)) == (first == second)


def test_roots_do_not_overlap(lake: Program) -> None:
    parts = shards(lake, bundle_service.unusual_state(1, roots=30))
    all_roots = [root for key in parts for root in PartText.roots("lake", key)]
    assert len(set(all_roots)) == len(all_roots)
    assert not [(a, b) for a in all_roots for b in all_roots if a != b and f"{b}/".startswith(f"{a}/")]
    for key, document in parts.items():
        (first, *_) = PartText.roots("lake", key)
        at: object = {"privtab_state": {"lake": content(key, document)}}
        for name in first.split("/"):
            assert isinstance(at, dict)
            at = at[name]
