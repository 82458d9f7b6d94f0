"""`privtab registry rollback`: any revision, in one command."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sidecar_fleet import POLICY, STATE, WIDER, SidecarFleet, outcome

from privtab.command._app import run
from privtab_server.registry import Registry
from privtab_server.registry.nodes import Canary, Channel

Privtab = Callable[..., Any]
MORE = STATE.replace("user:ann", "user:zoe")


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[SidecarFleet]:
    with SidecarFleet(tmp_path) as sidecars:
        yield sidecars


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three releases: a policy and a state, another policy, another state."""
    fleet = SidecarFleet(tmp_path_factory.mktemp("past"))
    for text, state in ((POLICY, STATE), (WIDER, None), (WIDER, MORE)):
        fleet.policy.write_text(text, encoding="utf-8")
        fleet.state.write_text(state or STATE, encoding="utf-8")
        arguments = ["--state", str(fleet.state)] if state else []
        assert run(["deploy", str(fleet.policy), "-r", fleet.registry, "--fail-on", "none", *arguments]) == 0
    return fleet.folder


@pytest.fixture
def run_before(past: Path, fleet: SidecarFleet) -> list[Channel]:
    shutil.copytree(past, fleet.folder, dirs_exist_ok=True)
    history = Registry.open(fleet.registry).history("dev", "shop")
    assert len({entry.policy for entry in history}) == len({entry.state for entry in history}) == 2
    return history


def now(fleet: SidecarFleet) -> tuple[str | None, str | None]:
    channel = Registry.open(fleet.registry).channel("dev", "shop")
    return channel.policy, channel.state


def back(privtab: Privtab, fleet: SidecarFleet, *more: object) -> Any:
    return privtab("registry", "rollback", "shop", "-r", fleet.registry, *map(str, more))


def test_to_what_ran_before_the_last_change_and_forth_again(
    privtab: Privtab, fleet: SidecarFleet, run_before: list[Channel]
) -> None:
    first, second, third = run_before
    ran = back(privtab, fleet)
    assert ran.code == 0, ran.err
    assert f"dev/shop: release 4, state {third.state} → {second.state}" in ran.out
    assert now(fleet) == (second.policy, second.state)
    back(privtab, fleet)
    assert now(fleet) == (third.policy, third.state)
    back(privtab, fleet, "--only", "policy")
    assert now(fleet) == (first.policy, third.state)
    back(privtab, fleet, "--only", "state", "--why", "a wrong import")
    assert now(fleet) == (first.policy, first.state)
    assert Registry.open(fleet.registry).channel("dev", "shop").why == "a wrong import"


def test_to_any_revision_and_to_any_release(privtab: Privtab, fleet: SidecarFleet, run_before: list[Channel]) -> None:
    first, _, third = run_before
    assert back(privtab, fleet, "--to", first.policy).code == 0
    assert now(fleet) == (first.policy, third.state)
    assert back(privtab, fleet, "--to", first.state, "--only", "state").code == 0
    assert now(fleet) == (first.policy, first.state)
    assert back(privtab, fleet, "--to", "3").code == 0
    assert now(fleet) == (third.policy, third.state)
    assert back(privtab, fleet, "--to", "1", "--only", "policy").code == 0
    assert now(fleet) == (first.policy, third.state)
    again = back(privtab, fleet, "--to", first.policy)
    assert "runs that already" in again.out
    assert Registry.open(fleet.registry).channel("dev", "shop").sequence == 7


def test_the_beginning_of_a_revision_is_enough(
    privtab: Privtab, fleet: SidecarFleet, run_before: list[Channel]
) -> None:
    first, _, third = run_before
    ran = back(privtab, fleet, "--to", str(first.policy)[:10])
    assert ran.code == 0, ran.err
    assert now(fleet) == (first.policy, third.state)
    ran = back(privtab, fleet, "--to", "", "--only", "policy")
    assert ran.code == 2
    assert "keeps no policy `` of shop" in ran.err


def test_a_canary_that_is_under_way_ends(privtab: Privtab, fleet: SidecarFleet, run_before: list[Channel]) -> None:
    first, _, third = run_before
    registry = Registry.open(fleet.registry)
    registry.release("dev", "shop", canary=Canary(policy=first.policy, share=0.5))
    ran = back(privtab, fleet)
    assert "the canary ended" in ran.out
    assert now(fleet) == (third.policy, third.state)
    assert registry.channel("dev", "shop").canary is None


@pytest.mark.slow
def test_every_sidecar_is_watched(privtab: Privtab, fleet: SidecarFleet, run_before: list[Channel]) -> None:
    first, _, _ = run_before
    fleet.serve()
    fleet.sidecar("one")
    fleet.sidecar("two")
    fleet.wait(lambda: [fleet.decides(name, "olga") for name in fleet.urls] == [True, True])
    watch = ["--server", fleet.server, "--wait", "seconds=40", "--wait", "sidecars=2"]
    ran = back(privtab, fleet, "--to", "1", *watch, "--format", "json")
    assert ran.code == 0, ran.err
    report = outcome(ran.out)
    assert (report["outcome"], report["watched"]["active"], report["after"]["policy"]) == ("back", 2, first.policy)
    assert [fleet.decides(name, user) for name in fleet.urls for user in ("ann", "olga")] == [True, False] * 2
    fleet.end("two", kill=True)
    ran = back(privtab, fleet, *watch[:2], "--wait", "seconds=1")
    assert ran.code == 3
    assert "two: waiting" in ran.err


def test_a_rollback_is_signed_anew(privtab: Privtab, fleet: SidecarFleet) -> None:
    from privtab.base import Trust
    from privtab.bundle import verify_bundle

    key = fleet.folder / "key.pem"
    assert privtab("bundle", "keys", key, "--new", "ES256").code == 0
    public = next(path for path in fleet.folder.glob("*.pem") if path != key)
    for text in (POLICY, WIDER):
        fleet.policy.write_text(text, encoding="utf-8")
        ran = privtab("deploy", fleet.policy, "-r", fleet.registry, "--fail-on", "none", "--signing-key", key)
        assert ran.code == 0, ran.err
    assert back(privtab, fleet, "--signing-key", key).code == 0
    registry = Registry.open(fleet.registry)
    channel = registry.channel("dev", "shop")
    bundle = registry.read(registry.revision("shop", "policy", str(channel.policy)))
    assert verify_bundle(bundle, Trust.of([public.read_text(encoding="utf-8")], "")).sequence == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--to", "9"], "has no release 9: the last one is 3"),
        (["--to", "ffffffffffffffff"], "keeps no policy or state `ffffffffffffffff`"),
        (["--to", "../../etc"], "keeps no policy or state"),
        (["--to", ""], "keeps no policy or state ``"),
        (["--to", "", "--only", "state"], "keeps no state ``"),
        (["--channel", "prod"], "has no channel prod/shop; there are: dev/shop"),
    ],
)
def test_releases_that_do_not_exist_are_refused(
    privtab: Privtab, fleet: SidecarFleet, run_before: list[Channel], options: list[str], message: str
) -> None:
    ran = back(privtab, fleet, *options)
    assert ran.code == 2
    assert message in ran.err
    assert Registry.open(fleet.registry).channel("dev", "shop").sequence == len(run_before)


def test_rollback_without_an_earlier_release(privtab: Privtab, fleet: SidecarFleet) -> None:
    ran = privtab("deploy", fleet.policy, "-r", fleet.registry)
    assert ran.code == 0
    assert "it has no state: decisions are unavailable until a state is released with `--state`" in ran.out
    ran = back(privtab, fleet)
    assert ran.code == 2
    assert "no other revision before" in ran.err
