"""Watching: who is waited for, who is not, and what is said of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from privtab_server.registry.deploy import (
    DesiredRevisions,
    Feed,
    Fleet,
    LoadedBundle,
    Sidecar,
    SidecarProgress,
    parse_time,
    sidecar_from_status,
)
from privtab_server.registry.deploy import rollout as watching
from privtab_server.registry.deploy.fleet import fleet_of
from privtab_server.registry.deploy.rollout import FleetSnapshot, age, judge, watch

NOW = datetime.now(tz=UTC)
WANTED = DesiredRevisions(policy="new", state="same")


def sidecar(name: str = "one", policy: str | None = "new", problem: str | None = None, **more: object) -> Sidecar:
    bundles = (
        LoadedBundle(name="policy", revision=policy, problem=problem),
        LoadedBundle(name="state", revision="same"),
    )
    return Sidecar(**{"id": name, "bundles": bundles, "seen": datetime.now(tz=UTC), **more})  # type: ignore[arg-type]


def read(*fleets: Iterable[Sidecar] | Fleet) -> Callable[[], Fleet]:
    """One fleet after the other, the last one for ever."""
    left = [fleet if isinstance(fleet, Fleet) else Fleet(sidecars=tuple(fleet)) for fleet in fleets]
    return lambda: left.pop(0) if len(left) > 1 else left[0]


def last(looks: Iterable[FleetSnapshot]) -> FleetSnapshot:
    found = list(looks)
    assert [look.final for look in found] == [False] * (len(found) - 1) + [True]
    return found[-1]


@pytest.mark.parametrize(
    ("version", "why"),
    [
        (
            "1.21.2",
            "is OPA 1.21.2, which may accept unsigned bundles (GHSA-g2pf-6v5v-qcc8): update it to 1.21.3 or later",
        ),
        ("0.70.0", "is OPA 0.70.0, which"),
        ("1.21.3", ""),
        ("1.22.4-envoy-1", ""),
        ("2.0.0", ""),
        ("", "does not report its version: to verify signatures, it must be OPA 1.21.3 or later"),
    ],
)
def test_an_opa_that_accepts_unsigned_bundles_is_unsafe_where_they_must_be_signed(version: str, why: str) -> None:
    seen = sidecar(labels={"version": version})
    assert judge(seen, WANTED, "shop", NOW).standing is SidecarProgress.ACTIVE
    signed = replace(WANTED, signed=True)
    found = judge(seen, signed, "shop", NOW)
    assert found.standing is (SidecarProgress.UNSAFE if why else SidecarProgress.ACTIVE)
    assert found.why.startswith(why)
    watched = last(watch(read([seen]), signed, "shop", timeout=0.1))
    assert watched.complete is not bool(why)


@pytest.mark.parametrize(
    ("seen", "standing", "why"),
    [
        (sidecar(), SidecarProgress.ACTIVE, ""),
        (sidecar(policy="old"), SidecarProgress.WAITING, "still runs policy old"),
        (sidecar(policy=None), SidecarProgress.WAITING, "still runs no policy"),
        (sidecar(policy="old", problem="bad signature"), SidecarProgress.REFUSED, "policy: bad signature"),
        (sidecar(problem="a later one is broken"), SidecarProgress.ACTIVE, "policy: a later one is broken"),
        (sidecar(policy="old", seen=NOW - timedelta(minutes=20)), SidecarProgress.SILENT, "silent for 20 min"),
        (sidecar(problem=None, bundles=(), seen=None), SidecarProgress.WAITING, "still runs no policy, no state"),
        (Sidecar(id="x", problem="no answer"), SidecarProgress.UNREACHABLE, "no answer"),
    ],
)
def test_progress_of_a_sidecar(seen: Sidecar, standing: SidecarProgress, why: str) -> None:
    found = judge(seen, WANTED, "shop", NOW)
    assert (found.standing, found.why) == (standing, why)


def test_no_shard_may_be_an_old_one() -> None:
    shards = (
        LoadedBundle(name="policy", revision="new"),
        LoadedBundle(name="a", revision="a1"),
        LoadedBundle(name="b", revision="b2"),
    )
    expected = DesiredRevisions(policy="new", outdated=frozenset({"a1", "b1"}))
    found = judge(Sidecar(id="x", bundles=shards, seen=NOW), expected, "shop", NOW)
    assert (found.standing, found.why) == (SidecarProgress.WAITING, "still runs a a1")


def test_the_revision_in_a_sidecar_s_request_counts_too() -> None:
    feed = Feed(channel="dev", system="shop", kind="policy", holds="new")
    assert judge(sidecar(policy="old", feeds=(feed,)), WANTED, "shop", NOW).standing is SidecarProgress.ACTIVE


def test_a_watch_ends_when_the_last_one_comes() -> None:
    both = [sidecar("one"), sidecar("two")]
    look = last(watch(read([sidecar("one", "old"), sidecar("two", "old")], [both[0], sidecar("two", "old")], both),
                      WANTED, "shop", timeout=20, every=0))  # fmt: skip
    assert look.complete
    assert look.summary == "2 of 2 sidecars active"


def test_time_is_up_and_the_late_one_is_named() -> None:
    look = last(watch(read([sidecar("one"), sidecar("two", "old")]), WANTED, "shop", timeout=0.2, every=0.05))
    assert not look.complete
    assert [(waiting.sidecar.id, waiting.why) for waiting in look.late] == [("two", "still runs policy old")]


def test_sidecars_that_are_silent_for_long_are_not_waited_for() -> None:
    gone = sidecar("gone", "old", seen=NOW - timedelta(hours=1))
    look = last(watch(read([sidecar(), gone]), WANTED, "shop", timeout=20, every=0))
    assert look.complete
    assert len(look.statuses) == 2


def test_a_bundle_that_all_refuse_ends_the_watch_before_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "PATIENCE", 0.1)
    look = last(watch(read([sidecar("one", "old", "broken")]), WANTED, "shop", timeout=60, every=0.02))
    assert look.seconds < 30
    assert not look.complete


def test_refusals_before_the_release_do_not_count_against_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "PATIENCE", 0.05)

    def tried(at: str) -> Sidecar:
        return Sidecar(id="one", bundles=(LoadedBundle(name="policy", revision="old", problem="not found", tried=at),))

    look = last(watch(read([tried("1")]), WANTED, "shop", timeout=0.4, every=0.02))
    assert look.seconds >= 0.4
    look = last(watch(read([tried("1")], [tried("2")]), WANTED, "shop", timeout=60, every=0.02))
    assert look.seconds < 30


def test_an_unknown_fleet_is_awaited_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "GRACE", 0.1)
    look = last(watch(read([]), WANTED, "shop", timeout=60, every=0.02))
    assert look.complete
    assert look.summary == "no sidecar has reported yet"


def test_sidecars_that_must_be_there_are_waited_for() -> None:
    look = last(watch(read([sidecar()]), WANTED, "shop", timeout=0.2, every=0.05, expect=2))
    assert not look.complete
    assert look.summary == "1 of 2 sidecars active; 1 never reported"


def test_a_server_that_does_not_answer_completes_nothing() -> None:
    old = Fleet(sidecars=(sidecar(),), problem="no answer")
    assert not last(watch(read(old), WANTED, "shop", timeout=0.2, every=0.05)).complete
    assert last(watch(read(old, [sidecar()]), WANTED, "shop", timeout=20, every=0)).complete


def test_a_sidecar_of_another_channel_is_passed_over() -> None:
    dev = Feed(channel="dev", system="shop", kind="policy", holds="old")
    prod = sidecar("prod", "old", feeds=(Feed(channel="prod", system="shop", kind="policy", holds="old"),))
    assert not prod.reads("dev", "shop")
    assert sidecar(feeds=(dev,)).reads("dev", "shop")
    assert sidecar().reads("dev", "shop"), "nobody knows"
    look = last(watch(read([sidecar(), prod]), WANTED, "shop", timeout=20, only=lambda s: s.reads("dev", "shop")))
    assert look.complete


def test_opa_s_own_report_is_read() -> None:
    status = {
        "labels": {"id": "7", "zone": "a"},
        "bundles": {
            "shop-policy": {
                "active_revision": "r1",
                "last_successful_activation": "2026-11-21T12:21:56.786476194Z",
                "code": "bundle_error",
                "message": "1 error occurred",
                "errors": [{"message": "rego_parse_error", "location": {"file": "a.rego", "row": 3}}, "other"],
            },
            "x-policy": {"active_revision": "", "last_successful_activation": "0001-01-01T00:00:00Z"},
            "broken": "no object",
        },
    }
    found = sidecar_from_status("one", status)
    assert dict(found.labels)["zone"] == "a"
    policy = found.loaded("policy", "shop")
    assert policy is not None
    assert policy.revision == "r1"
    assert policy.since is not None
    assert policy.problem == "1 error occurred; a.rego:3: rego_parse_error; other"
    assert found.loaded("state", "shop") is None
    assert found.bundles[1].since is None


@pytest.mark.parametrize(
    "status", [{}, {"labels": 1, "bundles": [1]}, {"bundles": {"p": {"errors": "text", "code": 7}}}]
)
def test_a_report_of_another_shape_is_passed_over(status: dict[str, object]) -> None:
    assert sidecar_from_status("one", status).id == "one"


@pytest.mark.parametrize("text", [None, 3, "", "yesterday", "2026-01-01T00:00:00", "0001-01-01T00:00:00Z"])
def test_an_invalid_moment_is_none(text: object) -> None:
    assert parse_time(text) is None


@pytest.mark.parametrize(
    ("seconds", "expected"), [(-5, "0 s"), (59, "59 s"), (600, "10 min"), (9000, "2 h"), (9e5, "10 d")]
)
def test_ages_are_written_for_people(seconds: float, expected: str) -> None:
    assert age(timedelta(seconds=seconds)) == expected


def test_a_server_with_a_wrong_clock_marks_no_sidecar_silent() -> None:
    """Else nobody would be waited for, and a deployment would be done at once."""
    entry = {"id": "one", "last_seen": "2001-01-01T00:00:00.000Z", "bundles": {"policy": {"revision": "old"}}}
    feeds = {"dev/shop/policy": {"holds": "old", "waiting": False}}
    fleet = fleet_of({"sidecars": [entry | {"feeds": feeds, "seconds_unseen": 2.0}]})
    assert judge(fleet.sidecars[0], WANTED, "shop", datetime.now(tz=UTC)).standing is SidecarProgress.WAITING
    fleet = fleet_of({"sidecars": [entry | {"feeds": feeds, "seconds_unseen": 2000.0}]})
    assert judge(fleet.sidecars[0], WANTED, "shop", datetime.now(tz=UTC)).standing is SidecarProgress.SILENT


@pytest.mark.parametrize("waiting", [True, False])
def test_a_sidecar_that_polls_has_reached_the_server(waiting: bool) -> None:
    gone = 'request failed: Get "http://h/channels/dev/shop/state.tar.gz": dial tcp: connect: connection refused'
    other = gone.replace("dev/shop", "prod/shop")
    state = {"revision": "same", "message": gone, "code": "bundle_error"}
    bundles = {"state": state, "theirs": {"message": other, "code": "bundle_error"}}
    feeds = {"dev/shop/state": {"holds": "same", "waiting": waiting}}
    [asking] = fleet_of({"sidecars": [{"id": "one", "bundles": bundles, "feeds": feeds}]}).sidecars
    assert asking.problems == ((f"theirs: {other}",) if waiting else (f"state: {gone}", f"theirs: {other}"))


@pytest.mark.parametrize("reported", [None, "older"])
def test_an_error_that_it_reported_before_it_loaded_a_bundle_is_over(reported: str | None) -> None:
    entry = {"revision": reported, "code": "bundle_error", "message": "server replied with Not Found"}
    bundles = {"policy": {"revision": None}, "state": entry}
    feeds = {f"dev/shop/{kind}": {"holds": holds} for kind, holds in (("policy", "old"), ("state", "same"))}
    [asking] = fleet_of({"sidecars": [{"id": "one", "bundles": bundles, "feeds": feeds}]}).sidecars
    found = judge(asking, WANTED, "shop", NOW)
    assert (found.standing, found.why) == (SidecarProgress.WAITING, "still runs policy old")
