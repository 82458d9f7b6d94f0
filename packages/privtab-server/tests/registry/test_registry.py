"""Revisions that never change, and channels that switch in one step, on every kind of storage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from example_bundles import ExampleBundles

from privtab.base import UsageError
from privtab_server.errors import RegistryConflict, RegistryError
from privtab_server.registry import Canary, Channel, Registry, names


def test_stored_bundles_are_unchanged(any_registry: Registry, packed: ExampleBundles) -> None:
    revision = any_registry.put(packed.policies[0])
    assert (revision.system, revision.kind, revision.size) == ("shop", "policy", len(packed.policies[0]))
    assert revision.metadata["version"] == "1"
    assert any_registry.read(revision) == packed.policies[0]
    assert any_registry.revision("shop", "policy", revision.id) == revision
    assert any_registry.put(packed.policies[0]) == revision
    assert any_registry.revisions("shop") == [revision]
    state = any_registry.put(packed.states[0])
    assert any_registry.revisions("shop", "state") == [state]
    assert any_registry.revisions("other") == []
    with pytest.raises(RegistryError, match="keeps no state revision `0000`"):
        any_registry.revision("shop", "state", "0000")


@pytest.mark.slow
def test_a_channel_serves_its_release_and_keeps_its_history(any_registry: Registry, packed: ExampleBundles) -> None:
    policies = [any_registry.put(policy).id for policy in packed.policies]
    state = any_registry.put(packed.states[0]).id
    assert any_registry.channel("dev", "shop") == Channel(channel="dev", system="shop")
    first = any_registry.release("dev", "shop", policy=policies[0], state=state, why="begin", by="ann", expect=0)
    second = any_registry.release("dev", "shop", policy=policies[1], expect=first.sequence)
    assert (second.sequence, second.policy, second.state) == (2, policies[1], state)
    assert any_registry.channel("dev", "shop") == second
    assert any_registry.history("dev", "shop") == [first, second]
    assert (first.why, first.by) == ("begin", "ann")
    assert any_registry.channels() == [second]
    with pytest.raises(RegistryConflict, match="at release 2"):
        any_registry.release("dev", "shop", policy=policies[0], expect=first.sequence)
    assert any_registry.channel("prod", "shop").sequence == 0


def test_static_servers_find_what_runs(any_registry: Registry, packed: ExampleBundles) -> None:
    for policy, state in zip(packed.policies, packed.states, strict=False):
        any_registry.release("dev", "shop", policy=any_registry.put(policy).id, state=any_registry.put(state).id)
        assert any_registry.store.read("channels/dev/shop/policy.tar.gz") == policy
        assert any_registry.store.read("channels/dev/shop/state.tar.gz") == state
    document = json.loads(any_registry.store.read("channels/dev/shop/channel.json"))
    assert document == any_registry.channel("dev", "shop").to_json()


@pytest.mark.slow
def test_a_state_in_shards(any_registry: Registry, packed: ExampleBundles) -> None:
    whole = any_registry.put(packed.states[0]).id
    plain, policy = any_registry.put(packed.policies[0]).id, any_registry.put(packed.sharded).id
    any_registry.release("dev", "shop", policy=plain, state=whole)
    revisions = {key: any_registry.put(bundle) for key, bundle in packed.shards.items()}
    assert {revision.shard: revision.id for revision in any_registry.revisions("shop", "shard")} == {
        key: revision.id for key, revision in revisions.items()
    }
    parts = {key: revision.id for key, revision in revisions.items()}
    unfits: list[dict[str, Any]] = [{"shards": parts}, {"policy": policy}, {"canary": Canary(policy=policy)}]
    for unfit in unfits:
        with pytest.raises(UsageError, match="release both together"):
            any_registry.release("dev", "shop", **unfit)
    current = any_registry.release("dev", "shop", policy=policy, shards=parts)
    assert current.state is None
    assert "state.tar.gz" not in any_registry.store.names("channels/dev/shop")
    for key, bundle in packed.shards.items():
        assert any_registry.store.read(f"channels/dev/shop/{names.served_path('shard', key)}") == bundle
    again = any_registry.release("dev", "shop", policy=plain, state=whole)
    assert (again.state, again.shards) == (whole, {})
    assert any_registry.store.names("channels/dev/shop/shards") == []


def test_a_canary_stands_beside_and_ends(any_registry: Registry, packed: ExampleBundles) -> None:
    old, new = (any_registry.put(policy).id for policy in packed.policies)
    with pytest.raises(UsageError, match="a canary needs a channel with a policy"):
        any_registry.release("dev", "shop", canary=Canary(policy=new))
    any_registry.release("dev", "shop", policy=old)
    tried = any_registry.release("dev", "shop", canary=Canary(policy=new, share=0.25, labels={"zone": "a"}))
    assert any_registry.channel("dev", "shop") == tried
    assert tried.policy == old
    assert tried.runs(canary=True) == {("policy", ""): new}
    assert any_registry.store.read("channels/dev/shop/policy.tar.gz") == packed.policies[0]
    assert any_registry.release("dev", "shop", policy=new).canary is None


def test_a_release_of_the_same_bundles_is_none(registry: Registry, packed: ExampleBundles) -> None:
    with pytest.raises(UsageError, match="nothing to release"):
        registry.release("dev", "shop")
    with pytest.raises(RegistryError, match="keeps no policy"):
        registry.release("dev", "shop", policy="0123456789abcdef")
    assert registry.channel("dev", "shop").sequence == 0
    for share in (0, -1, 1.5):
        with pytest.raises(UsageError, match="share"):
            registry.release("dev", "shop", canary=Canary(policy="x", share=share))


def test_many_releases_are_found_without_the_copy(registry: Registry, packed: ExampleBundles, tmp_path: Path) -> None:
    ids = [registry.put(policy).id for policy in packed.policies]
    for at in range(23):
        registry.release("dev", "shop", policy=ids[at % 2], expect=at)
    copy = tmp_path / "registry/channels/dev/shop/channel.json"
    for damage in (copy.unlink, lambda: copy.write_text("{"), lambda: copy.write_text('{"sequence": 3}')):
        damage()
        assert registry.channel("dev", "shop").sequence == 23
    assert [entry.sequence for entry in registry.history("dev", "shop")] == list(range(1, 24))


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "a..b", "/etc", "a\n", "ä", ".hidden", "x" * 65, "a."])
def test_names_lead_nowhere_else(registry: Registry, name: str) -> None:
    for ask in (
        lambda: registry.channel(name, "shop"),
        lambda: registry.channel("dev", name),
        lambda: registry.revisions(name),
        lambda: registry.revision("shop", "policy", name),
        lambda: registry.release(name, "shop", policy="x"),
        lambda: registry.release("dev", "shop", policy=name or "..", state=".."),
    ):
        with pytest.raises(UsageError):
            ask()


def test_unknown_kinds(registry: Registry) -> None:
    with pytest.raises(UsageError, match="kinds are policy, state, shard, wasm"):
        registry.revisions("shop", "delta")


def test_a_place_with_other_things_is_none(tmp_path: Path, packed: ExampleBundles) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(UsageError, match=r"not empty: it contains thesis\.tex"):
        Registry.open(str(tmp_path)).put(packed.policies[0])


def test_damaged_bundles_are_found_and_repaired_by_storing_again(
    registry: Registry, packed: ExampleBundles, tmp_path: Path
) -> None:
    revision = registry.put(packed.policies[0])
    path = tmp_path / "registry" / names.blob(revision.digest)
    for harm in (lambda: path.write_bytes(packed.policies[0][:-1]), path.unlink):
        harm()
        with pytest.raises(RegistryError, match="put it again"):
            registry.read(revision)
        registry.put(packed.policies[0])
        assert registry.read(revision) == packed.policies[0]


def test_a_sweep_removes_the_remains_of_writers(registry: Registry, packed: ExampleBundles, tmp_path: Path) -> None:
    import os

    from privtab_server.registry.maintenance import sweep

    registry.release("dev", "shop", policy=registry.put(packed.policies[0]).id)
    folder = tmp_path / "registry/channels/dev/shop"
    for name, old in ((".new-old", 7200), (".new-young", 0)):
        (folder / name).write_bytes(b"half")
        at = (folder / name).stat().st_mtime - old
        os.utime(folder / name, (at, at))
    assert sweep(registry).abandoned_files == ("channels/dev/shop/.new-old",)
    sweep(registry, remove=True)
    assert sorted(path.name for path in folder.glob(".new-*")) == [".new-young"]


def test_a_release_whose_copies_fail_has_one_error(registry: Registry, packed: ExampleBundles, tmp_path: Path) -> None:
    first, second = (registry.put(policy).id for policy in packed.policies)
    registry.release("dev", "shop", policy=first)
    copy = tmp_path / "registry/channels/dev/shop/policy.tar.gz"
    copy.unlink()
    copy.mkdir()
    with pytest.raises(RegistryError, match="dev/shop is at release 2 now, but its copies"):
        registry.release("dev", "shop", policy=second)
    assert registry.channel("dev", "shop").policy == second
