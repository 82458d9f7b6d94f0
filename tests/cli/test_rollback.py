"""`privtab rollback`: any revision, in one command."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sidecar_fleet import POLICY, STATE, WIDER, Rig, outcome

from privtab.cli._app import run
from privtab.registry import Registry
from privtab.registry.nodes import Canary, Channel

Privtab = Callable[..., Any]
MORE = STATE.replace("user:ann", "user:zoe")


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with Rig(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three releases: a policy and a state, another policy, another state."""
    rig = Rig(tmp_path_factory.mktemp("past"))
    for text, state in ((POLICY, STATE), (WIDER, None), (WIDER, MORE)):
        rig.policy.write_text(text, encoding="utf-8")
        rig.state.write_text(state or STATE, encoding="utf-8")
        given = ["--state", str(rig.state)] if state else []
        assert run(["deploy", str(rig.policy), "-r", rig.registry, "--fail-on", "none", *given]) == 0
    return rig.folder


@pytest.fixture
def run_before(past: Path, rig: Rig) -> list[Channel]:
    shutil.copytree(past, rig.folder, dirs_exist_ok=True)
    history = Registry.open(rig.registry).history("dev", "shop")
    assert len({entry.policy for entry in history}) == len({entry.state for entry in history}) == 2
    return history


def now(rig: Rig) -> tuple[str | None, str | None]:
    channel = Registry.open(rig.registry).channel("dev", "shop")
    return channel.policy, channel.state


def back(privtab: Privtab, rig: Rig, *more: object) -> Any:
    return privtab("rollback", "shop", "-r", rig.registry, *map(str, more))


def test_to_what_ran_before_the_last_change_and_forth_again(
    privtab: Privtab, rig: Rig, run_before: list[Channel]
) -> None:
    first, second, third = run_before
    ran = back(privtab, rig)
    assert ran.code == 0, ran.err
    assert f"dev/shop: release 4, state {third.state} → {second.state}" in ran.out
    assert now(rig) == (second.policy, second.state)
    back(privtab, rig)
    assert now(rig) == (third.policy, third.state)
    back(privtab, rig, "--policy")
    assert now(rig) == (first.policy, third.state)
    back(privtab, rig, "--state", "--why", "a wrong import")
    assert now(rig) == (first.policy, first.state)
    assert Registry.open(rig.registry).channel("dev", "shop").why == "a wrong import"


def test_to_any_revision_and_to_any_switch(privtab: Privtab, rig: Rig, run_before: list[Channel]) -> None:
    first, _, third = run_before
    assert back(privtab, rig, "--to", first.policy).code == 0
    assert now(rig) == (first.policy, third.state)
    assert back(privtab, rig, "--to", first.state, "--state").code == 0
    assert now(rig) == (first.policy, first.state)
    assert back(privtab, rig, "--to", "3").code == 0
    assert now(rig) == (third.policy, third.state)
    assert back(privtab, rig, "--to", "1", "--policy").code == 0
    assert now(rig) == (first.policy, third.state)
    again = back(privtab, rig, "--to", first.policy)
    assert "runs that already" in again.out
    assert Registry.open(rig.registry).channel("dev", "shop").sequence == 7


def test_the_beginning_of_a_revision_is_enough(privtab: Privtab, rig: Rig, run_before: list[Channel]) -> None:
    first, _, third = run_before
    ran = back(privtab, rig, "--to", str(first.policy)[:10])
    assert ran.code == 0, ran.err
    assert now(rig) == (first.policy, third.state)
    ran = back(privtab, rig, "--to", "", "--policy")
    assert ran.code == 2
    assert "several revisions of shop begin with ``" in ran.err


def test_a_canary_that_is_under_way_ends(privtab: Privtab, rig: Rig, run_before: list[Channel]) -> None:
    first, _, third = run_before
    registry = Registry.open(rig.registry)
    registry.release("dev", "shop", canary=Canary(policy=first.policy, share=0.5))
    ran = back(privtab, rig)
    assert "the canary ended" in ran.out
    assert now(rig) == (third.policy, third.state)
    assert registry.channel("dev", "shop").canary is None


@pytest.mark.slow
def test_every_sidecar_is_watched(privtab: Privtab, rig: Rig, run_before: list[Channel]) -> None:
    first, _, _ = run_before
    rig.serve()
    rig.sidecar("one")
    rig.sidecar("two")
    rig.wait(lambda: [rig.decides(name, "olga") for name in rig.urls] == [True, True])
    watch = ["--server", rig.server, "--timeout", "40", "--expect", "2"]
    ran = back(privtab, rig, "--to", "1", *watch, "--format", "json")
    assert ran.code == 0, ran.err
    told = outcome(ran.out)
    assert (told["outcome"], told["watched"]["active"], told["after"]["policy"]) == ("back", 2, first.policy)
    assert [rig.decides(name, user) for name in rig.urls for user in ("ann", "olga")] == [True, False] * 2
    rig.end("two", kill=True)
    ran = back(privtab, rig, *watch[:2], "--timeout", "1")
    assert ran.code == 3
    assert "two: waiting" in ran.err


def test_a_rollback_is_signed_anew(privtab: Privtab, rig: Rig) -> None:
    from privtab.bundle.verify import verify
    from privtab.signatures import Trust

    key = rig.folder / "key.pem"
    assert privtab("keys", "new", key).code == 0
    public = next(path for path in rig.folder.glob("*.pem") if path != key)
    for text in (POLICY, WIDER):
        rig.policy.write_text(text, encoding="utf-8")
        ran = privtab("deploy", rig.policy, "-r", rig.registry, "--fail-on", "none", "--signing-key", key)
        assert ran.code == 0, ran.err
    assert back(privtab, rig, "--signing-key", key).code == 0
    registry = Registry.open(rig.registry)
    channel = registry.channel("dev", "shop")
    kept = registry.read(registry.revision("shop", "policy", str(channel.policy)))
    assert verify(kept, Trust.of([public.read_text(encoding="utf-8")], "")).sequence == 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--to", "9"], "has no release 9: the last one is 3"),
        (["--to", "ffffffffffffffff"], "keeps no policy or state `ffffffffffffffff`"),
        (["--to", "../../etc"], "keeps no policy or state"),
        (["--channel", "prod"], "runs nothing at prod/shop: there is dev/shop"),
    ],
)
def test_what_never_was(privtab: Privtab, rig: Rig, run_before: list[Channel], options: list[str], said: str) -> None:
    ran = back(privtab, rig, *options)
    assert ran.code == 2
    assert said in ran.err
    assert Registry.open(rig.registry).channel("dev", "shop").sequence == len(run_before)


def test_where_nothing_ran_before(privtab: Privtab, rig: Rig) -> None:
    ran = privtab("deploy", rig.policy, "-r", rig.registry)
    assert ran.code == 0
    assert "it has no state: every answer is unavailable until `--state` gives one" in ran.out
    ran = back(privtab, rig)
    assert ran.code == 2
    assert "no other revision before" in ran.err
