"""Releases that are there and cannot be read: what is whole goes on, it is said, and nobody is stopped."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from example_bundles import ExampleBundles

from privtab_server.errors import RegistryConflict, RegistryError
from privtab_server.registry import Canary, Channel, Registry, names
from privtab_server.registry.maintenance import check, sweep
from privtab_server.registry.nodes import encoded


@pytest.fixture
def ran(registry: Registry, packed: ExampleBundles) -> list[Channel]:
    """Two releases."""
    ids = [registry.put(policy).id for policy in packed.policies]
    return [registry.release("dev", "shop", policy=policy) for policy in ids]


def spoil(registry: Registry, sequence: int, *, copy: str = "") -> None:
    """Break the entry of a release; `copy`: what becomes of the copy of the last one (`older`, `gone`)."""
    registry.store.replace(names.entry("dev", "shop", sequence), b'{"privtab_channel": 1, "chan')
    path = "channels/dev/shop/channel.json"
    if copy == "older":
        older = registry.store.read(names.entry("dev", "shop", sequence - 1))
        registry.store.replace(path, older)
    elif copy == "gone":
        registry.store.remove(path)


def test_a_complete_release_is_served_from_its_copy(registry: Registry, ran: list[Channel]) -> None:
    spoil(registry, 2)
    found = registry.channel("dev", "shop")
    assert (found.sequence, found.policy, found.held, found.lost) == (2, ran[1].policy, False, False)
    assert "release 2 cannot be read (channels/dev/shop/history/00000002.json is broken" in found.trouble
    assert "check --repair` restores it" in found.trouble
    assert registry.newer(found) == found
    assert [entry.sequence for entry in registry.history("dev", "shop")] == [1, 2]
    [problem] = check(registry).problems
    assert "its copy is intact" in problem.message
    assert check(registry, repair=True).problems[0].repaired
    assert registry.channel("dev", "shop") == ran[1]
    assert check(registry).problems == ()


@pytest.mark.parametrize("copy", ["older", "gone"])
def test_an_incomplete_release_is_skipped_and_its_number_is_not_reused(
    registry: Registry, ran: list[Channel], copy: str
) -> None:
    spoil(registry, 2, copy=copy)
    found = registry.channel("dev", "shop")
    assert (found.sequence, found.last, found.policy) == (1, 2, ran[0].policy)
    assert (found.held, found.lost) == (True, copy == "gone")
    assert "until the next release, which will be 3" in found.trouble
    assert registry.channels() == [found]
    assert registry.newer(ran[0]) == found, "also for whoever knew the one before"
    for known in (ran[1], registry.confirm(ran[1])):
        assert registry.newer(known).policy == ran[1].policy, "and who knew it goes on with it"
    with pytest.raises(RegistryError, match="it is unknown which bundles are needed"):
        sweep(registry)
    with pytest.raises(RegistryConflict, match=r"at release 2 \(which cannot be read\), no longer at 1"):
        registry.release("dev", "shop", policy=ran[1].policy, expect=1)
    after = registry.release("dev", "shop", expect=2, why="on with it")
    assert (after.sequence, after.policy, after.trouble) == (3, ran[0].policy, "")
    assert registry.channel("dev", "shop") == after
    assert [entry.sequence for entry in registry.history("dev", "shop")] == [1, 3]
    assert [release.sequence for release in registry.unreadable_releases("dev", "shop")] == [2]
    assert [problem.path[-13:] for problem in check(registry).problems] == ["00000002.json"]
    assert sweep(registry).kept == 2


def test_several_and_all(registry: Registry, ran: list[Channel], packed: ExampleBundles) -> None:
    registry.release("dev", "shop", policy=ran[0].policy)
    for sequence in (2, 3):
        spoil(registry, sequence, copy="older")
    registry.store.remove("channels/dev/shop/channel.json")
    assert sorted(registry.channel("dev", "shop").broken) == [2, 3]
    spoil(registry, 1)
    found = registry.channel("dev", "shop")
    assert (found.sequence, found.last) == (0, 3)
    assert registry.channels() == [found]
    after = registry.release("dev", "shop", policy=ran[1].policy, canary=None)
    assert (after.sequence, after.policy) == (4, ran[1].policy)


@pytest.mark.parametrize(
    "harm",
    [
        {"digests": None},
        {"policy": 5},
        {"policy": "0123456789abcdef"},
        {"shards": {"people": "0123456789abcdef"}},
        {"shards": {"people": None}},
        {"when": 7},
        {"sequence": "2"},
        {"sequence": 7},
        {"channel": "prod"},
        {"privtab_channel": None},
        {"canary": {"policy": None, "state": None, "shards": {}, "share": "all", "labels": {}}},
    ],
)
def test_an_entry_of_another_shape_cannot_be_read(registry: Registry, ran: list[Channel], harm: dict[str, Any]) -> None:
    registry.store.replace(names.entry("dev", "shop", 2), encoded(ran[1].to_json() | harm))
    assert registry.channel("dev", "shop").broken.keys() == {2}


def test_entries_of_a_newer_privtab_are_not_broken(registry: Registry, ran: list[Channel]) -> None:
    registry.store.replace(names.entry("dev", "shop", 2), encoded(ran[1].to_json() | {"privtab_channel": 2}))
    looks: tuple[Callable[[], object], ...] = (
        lambda: registry.channel("dev", "shop"),
        lambda: registry.release("dev", "shop", policy=ran[0].policy),
    )
    for look in looks:
        with pytest.raises(RegistryError, match="of version 2, which this version of privtab does not support"):
            look()


def test_unavailable_storage_is_no_damaged_release(
    registry: Registry, ran: list[Channel], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = registry.store.read

    def reading(path: str) -> bytes:
        if path.endswith("00000002.json"):
            raise RegistryError("input/output error")
        return read(path)

    monkeypatch.setattr(registry.store, "read", reading)
    with pytest.raises(RegistryError, match="input/output error"):
        registry.channel("dev", "shop")


def test_a_canary_in_an_unreadable_release(registry: Registry, ran: list[Channel]) -> None:
    registry.release("dev", "shop", canary=Canary(policy=ran[0].policy))
    spoil(registry, 3, copy="older")
    assert registry.channel("dev", "shop").canary is None
    assert registry.release("dev", "shop").sequence == 4


def test_commands_go_on_and_say_so(registry: Registry, ran: list[Channel], capsys: pytest.CaptureFixture[str]) -> None:
    from privtab.command._app import run

    spoil(registry, 2, copy="older")
    message = "dev/shop: release 2 cannot be read"
    for command, code in (
        (["registry", "status", "shop", "-r", registry.url, "-c", "dev", "--history", "9"], 3),
        (["registry", "check", registry.url], 1),
        (["registry", "status", "-r", registry.url], 3),
        (["registry", "status", "-r", registry.url, "--check"], 3),
    ):
        assert run(command) == code, command
        printed = capsys.readouterr()
        assert "cannot be read" in printed.err, command
        if code != 1:
            assert message in printed.err
    assert run(["registry", "status", "-r", registry.url, "--format", "json"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert (document["good"], document["channels"][0]["release"]) == (False, 1)
    assert document["trouble"][0].startswith(message)
    assert run(["registry", "rollback", "shop", "-r", registry.url]) == 0
    printed = capsys.readouterr()
    assert message in printed.err
    assert "dev/shop: release 3, all that ran at release 1" in printed.out
    assert registry.channel("dev", "shop").policy == ran[0].policy
    assert run(["registry", "status", "-r", registry.url, "--check"]) == 0


def test_a_deployment_goes_on(
    registry: Registry, ran: list[Channel], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import example_bundles

    from privtab.command._app import run

    spoil(registry, 2, copy="older")
    path = tmp_path / "shop.yaml"
    path.write_text(example_bundles.POLICY.format(version="1", read=example_bundles.READS), encoding="utf-8")
    assert run(["deploy", str(path), "-r", registry.url, "--accept", "untested=there are none"]) == 0, (
        "the same as at release 1, and yet it is switched"
    )
    printed = capsys.readouterr()
    assert "release 2 cannot be read" in printed.err
    assert "dev/shop: release 3" in printed.out
    assert registry.channel("dev", "shop").policy == ran[0].policy
