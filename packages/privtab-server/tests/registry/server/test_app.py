"""The server's answers, one by one: ETags, long polls, bounds. Asked in process, of real storage."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from example_bundles import ExampleBundles
from in_process_registry import POLICY, STATE, figure, until, waiting, within

from privtab_server.errors import RegistryError
from privtab_server.registry import Canary, Channel, Registry
from privtab_server.registry.server import app as bodies
from privtab_server.registry.server.app import GZIP, LONG_POLL, ServerState
from privtab_server.registry.server.fleet import MOST_COUNTED, MOST_REFUSED, FleetTracker
from privtab_server.registry.server.sidecar import SidecarIdentity, in_canary


def test_bundles_come_with_an_etag_and_not_twice(registry: Registry, packed: ExampleBundles) -> None:
    async def body(client: httpx.AsyncClient, served: ServerState) -> None:
        first = await client.get(POLICY)
        assert (first.status_code, first.content, first.headers["content-type"]) == (200, packed.policies[0], GZIP)
        etag = first.headers["etag"]
        for tag in (etag, f"W/{etag}", f'{etag}, "older.1"'):
            again = await client.get(POLICY, headers={"If-None-Match": tag})
            assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
        other = await client.get(POLICY, headers={"If-None-Match": f'"newer.1", {etag}'})
        assert other.status_code == 200

    within(registry, body)


@pytest.mark.parametrize(
    "path",
    [
        "/channels/prod/shop/policy.tar.gz",
        "/channels/dev/none/policy.tar.gz",
        "/channels/dev/shop/wasm.tar.gz",
        "/channels/dev/shop/history.tar.gz",
        "/channels/../dev/policy.tar.gz",
        "/channels/%2e%2e/shop/policy.tar.gz",
        "/channels/dev%2fshop/x/policy.tar.gz",
        "/channels/dev/shop/shards/x.tar.gz",
        "/channels/dev/shop/policy.tar.gz/",
        "/etc/passwd",
        "/..%2f..%2fetc/passwd",
        "/blobs/%2e%2e/registry.json",
        "/blobs/.hidden",
        "/none",
    ],
)
def test_there_is_nothing_else(registry: Registry, path: str) -> None:
    async def body(client: httpx.AsyncClient, served: ServerState) -> None:
        assert (await client.get(path)).status_code == 404

    within(registry, body)


def test_only_some_channels_are_served(registry: Registry) -> None:
    async def body(client: httpx.AsyncClient, served: ServerState) -> None:
        assert (await client.get(POLICY)).status_code == 404

    within(registry, body, only=["prod"])


def test_a_long_poll_ends_with_the_release(registry: Registry, packed: ExampleBundles) -> None:
    new = registry.put(packed.policies[1]).id

    async def body(client: httpx.AsyncClient, served: ServerState) -> None:
        first = await client.get(POLICY, headers={"Prefer": "modes=snapshot,delta;wait=20"})
        assert first.headers["content-type"] == LONG_POLL
        condition = {"If-None-Match": first.headers["etag"]}
        short = await client.get(POLICY, headers={**condition, "Prefer": "wait=0"})
        assert short.status_code == 304
        polls = [asyncio.create_task(client.get(POLICY, headers={**condition, "Prefer": "wait=20"})) for _ in range(20)]
        await until(lambda: waiting(served) == 20)
        started = time.monotonic()
        await asyncio.to_thread(partial(registry.release, "dev", "shop", policy=new))
        answers = await asyncio.gather(*polls)
        assert time.monotonic() - started < 10, "long before the wait of 20 s ends"
        assert {(answer.status_code, answer.content) for answer in answers} == {(200, packed.policies[1])}
        assert waiting(served) == 0

    within(registry, body)


def test_a_long_poll_continues_while_nothing_changes(registry: Registry, packed: ExampleBundles) -> None:
    new = registry.put(packed.policies[1]).id

    async def body(client: httpx.AsyncClient, served: ServerState) -> None:
        etag = (await client.get(STATE)).headers["etag"]
        pending = client.get(STATE, headers={"If-None-Match": etag, "Prefer": "wait=1"})
        poll = asyncio.create_task(pending)
        await asyncio.sleep(0.1)
        await asyncio.to_thread(partial(registry.release, "dev", "shop", policy=new))
        started = time.monotonic()
        assert (await poll).status_code == 304
        assert time.monotonic() - started > 0.5

    within(registry, body)


def test_a_waiting_sidecar_enters_and_leaves_a_canary(registry: Registry, packed: ExampleBundles) -> None:
    new = registry.put(packed.policies[1]).id

    async def body(client: httpx.AsyncClient, served: ServerState) -> None:
        first = await client.get(STATE)
        headers = {"If-None-Match": first.headers["etag"], "Prefer": "wait=20", "X-Privtab-Instance": "one"}
        poll = asyncio.create_task(client.get(STATE, headers=headers))
        await until(lambda: waiting(served) == 1)
        known = served.fleet._known.peek((True, "one"))
        assert known is not None
        (poll_record,) = known.polls.values()
        await asyncio.to_thread(partial(registry.release, "dev", "shop", canary=Canary(policy=new)))
        await until(lambda: poll_record.canary)
        await asyncio.to_thread(partial(registry.release, "dev", "shop"))
        await until(lambda: not poll_record.canary)
        served.feeds.end()
        assert (await poll).status_code == 304

    within(registry, body)


def test_whole_bundles_are_sent_also_to_those_who_take_deltas(registry: Registry, packed: ExampleBundles) -> None:
    async def body(client: httpx.AsyncClient, served: ServerState) -> None:
        etag = (await client.get(STATE)).headers["etag"]
        before = registry.channel("dev", "shop").state
        new = registry.put(packed.states[1]).id
        await asyncio.to_thread(partial(registry.release, "dev", "shop", state=new))
        await until(lambda: served.feeds.channels["dev", "shop"].state != before)
        for tag in (etag, '"0123456789abcdef.0123456789abcdef"', "nonsense"):
            answer = await client.get(STATE, headers={"If-None-Match": tag, "Prefer": "modes=snapshot,delta"})
            assert answer.content == packed.states[1]
            assert answer.headers["etag"].startswith(f'"{new}.')
        assert figure(served, "bundles_served_total", channel="dev", system="shop", kind="state") == 4

    within(registry, body)


def test_reports_and_logs_are_taken_within_bounds(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "LARGEST", 10_000)
    monkeypatch.setattr(bodies, "LARGEST_UNPACKED", 50_000)
    gzipped = {"Content-Encoding": "gzip"}
    event = {"labels": {"id": "o"}, "path": "privtab/shop/allow", "result": True, "bundles": {"p": {"revision": "r1"}}}

    async def body(client: httpx.AsyncClient, served: ServerState) -> None:
        async def post(path: str, content: bytes, **headers: str) -> int:
            return (await client.post(path, content=content, headers=headers)).status_code

        assert await post("/logs", gzip.compress(json.dumps([event] * 3).encode()), **gzipped) == 200
        assert await post("/logs/audit", json.dumps([event, {}, {"path": "privtab/x/allow"}]).encode()) == 200
        assert await post("/status", json.dumps({"labels": {"id": "o"}}).encode()) == 200
        assert await post("/status/zone", json.dumps({"labels": {"id": "o"}}).encode()) == 200
        for path, content, headers, status in (
            ("/status", b"{}", {}, 400),
            ("/status", b"[]", {}, 400),
            ("/logs", b"{}", {}, 400),
            ("/logs", b"nonsense", {}, 400),
            ("/status", b'{"labels": {"id": "a"}, "labels": {"id": "b"}, "bundles": {}}', {}, 400),
            ("/logs", b"[" * 9000, {}, 400),
            ("/logs", b"nonsense", gzipped, 400),
            ("/logs", gzip.compress(b"[]")[:-6], gzipped, 400),
            ("/logs", gzip.compress(b"[]") * 2, gzipped, 400),
            ("/logs", gzip.compress(b"[]") + gzip.compress(b""), gzipped, 400),
            ("/logs", gzip.compress(b"[]") + b"x", gzipped, 400),
            ("/status", gzip.compress(b"{}") * 2, gzipped, 400),
            ("/logs", json.dumps([7, event]).encode(), {}, 400),
            ("/logs", json.dumps([event, [event]]).encode(), {}, 400),
            ("/logs", json.dumps([event, None]).encode(), {}, 400),
            ("/logs", b"[" + b" " * 10_000, {}, 413),
            ("/logs", gzip.compress(b" " * 1_000_000), gzipped, 413),
            ("/logs", b"x", {"Content-Encoding": "br"}, 415),
        ):
            assert await post(path, content, **headers) == status, (content[:20], headers)
        assert served.fleet.counts.to_json() == {
            "r1": {"other": {"allow": 4}},
            "unknown": {"other": {"undefined": 1}},
        }
        assert [sidecar["id"] for sidecar in served.fleet.sidecars()] == ["o"]

    within(registry, body)


def test_the_fleet_is_listed_by_channel(registry: Registry, packed: ExampleBundles) -> None:
    registry.release("prod", "shop", policy=registry.put(packed.policies[1]).id)

    async def body(client: httpx.AsyncClient, served: ServerState) -> None:
        for name, channel in (("a", "dev"), ("b", "prod")):
            await client.get(f"/channels/{channel}/shop/policy.tar.gz", headers={"X-Privtab-Instance": name})
        for question, ids in (
            ("", ["a", "b"]),
            ("?channel=dev", ["a"]),
            ("?channel=prod&system=shop", ["b"]),
            ("?system=x", []),
        ):
            found = (await client.get(f"/fleet{question}")).json()
            assert [sidecar["id"] for sidecar in found["sidecars"]] == ids
        found = (await client.get("/fleet?channel=dev")).json()
        assert [Channel(**{**document, "canary": None}) for document in map(without_version, found["channels"])] == [
            registry.channel("dev", "shop")
        ]
        (only,) = found["sidecars"]
        assert only["feeds"]["dev/shop/policy"]["holds"] is None
        assert not only["current"]

    within(registry, body)


def without_version(channel: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in channel.items() if name not in ("privtab_channel", "last", "trouble")}


def test_a_storage_that_never_answered_is_no_registry(tmp_path: Path) -> None:
    class Down(Registry):
        def channel(self, channel: str, system: str) -> Channel:  # noqa: ARG002
            raise RegistryError("down")

        def channels(self) -> list[Channel]:
            raise RegistryError("down")

    async def body(client: httpx.AsyncClient, served: ServerState) -> None:
        assert (await client.get(POLICY)).status_code == 503
        assert (await client.get("/health")).status_code == 503
        assert "privtab_registry_storage_ok 0" in (await client.get("/metrics")).text

    within(Down(Registry.open(str(tmp_path)).store), body)


def test_a_release_is_announced_only_when_its_bundle_can_be_sent(registry: Registry, packed: ExampleBundles) -> None:
    new = registry.put(packed.policies[1])
    lost = [True]
    blob = registry.blob

    def reading(digest: str) -> bytes:
        if digest == new.digest and lost[0]:
            raise RegistryError("lost")
        return blob(digest)

    registry.blob = reading  # type: ignore[method-assign]

    async def body(client: httpx.AsyncClient, served: ServerState) -> None:
        assert (await client.get(POLICY)).content == packed.policies[0]
        await asyncio.to_thread(partial(Registry(registry.store).release, "dev", "shop", policy=new.id))
        await asyncio.sleep(0.3)
        stale = await client.get(POLICY)
        assert stale.content == packed.policies[0]
        assert "x-privtab-stale" in stale.headers
        lost[0] = False
        await until(lambda: served.feeds.channels["dev", "shop"].policy == new.id)
        assert (await client.get(POLICY)).content == packed.policies[1]
        await until(lambda: served.feeds.trouble is None)  # told when the whole look has ended

    within(registry, body)


def test_a_share_is_always_the_same_and_grows() -> None:
    names = [f"sidecar-{at}" for at in range(2000)]

    def those(share: float, policy: str = "p2") -> set[str]:
        channel = Channel(
            channel="dev", system="shop", sequence=1, policy="p1", canary=Canary(policy=policy, share=share)
        )
        return {name for name in names if in_canary(channel, SidecarIdentity(instance=name, labels={}))}

    tenth, half = those(0.1), those(0.5)
    assert 140 < len(tenth) < 260
    assert 900 < len(half) < 1100
    assert tenth < half < those(1.0) == set(names)
    assert those(0.1, "p3") != tenth
    channel = Channel(channel="dev", system="shop", policy="p1", canary=Canary(policy="p2"))
    assert not in_canary(channel, SidecarIdentity(instance="", labels={}))


def test_memory_has_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    from privtab_server.registry.server import decisions
    from privtab_server.registry.server import fleet as module

    monkeypatch.setattr(module, "MOST_SIDECARS", 500)
    fleet = FleetTracker()
    for at in range(MOST_REFUSED * 3):
        fleet.record_refusal(SidecarIdentity(instance=str(at), labels={}), "1.2.3.4", "/", 401, "no")
    assert len(fleet.refusals()) == MOST_REFUSED
    for at in range(module.MOST_SIDECARS + 50):
        fleet.record_status(
            SidecarIdentity(instance=f"{at:05}", labels={}), "1.2.3.4", {"bundles": {str(i): {} for i in range(3)}}
        )
    assert len(fleet.sidecars()) == module.MOST_SIDECARS
    for at in range(3_000):
        event = {
            "path": "privtab/x/allow",
            "result": True,
            "input": {"resource": {"type": f"t{at}"}, "action": {"name": "a"}},
        }
        fleet.record_counts(
            SidecarIdentity(instance="00100", labels={}),
            "",
            decisions.count_decisions([event | {"bundles": {"p": {"revision": f"r{at % 300}"}}}]),
        )
    counts = fleet.counts.to_json()
    assert len(counts) == 100
    assert sum(map(len, counts.values())) <= 1_000


def test_reports_of_thousands_of_sidecars_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    from privtab_server.registry.server import decisions
    from privtab_server.registry.server import fleet as module

    monkeypatch.setattr(module, "MOST_CHARACTERS", 1_000_000)
    monkeypatch.setattr(decisions, "MOST_PAIRS", 500)
    fleet = FleetTracker()
    wordy = {"message": "x" * 10_000, "code": "y" * 10_000}
    for at in range(50):
        fleet.record_status(
            SidecarIdentity(instance=f"made-up-{at}", labels={}), "", {"bundles": {str(i): wordy for i in range(300)}}
        )
    assert 1 <= len(fleet.sidecars()) < 10
    assert len(json.dumps(fleet.sidecars())) < 3_000_000
    for at in range(500):
        event = {"path": "privtab/x/allow", "input": {"resource": {"type": f"t{at}"}, "action": {"name": "a"}}}
        fleet.record_counts(
            SidecarIdentity(instance="a", labels={f"made-up-{at}": "1"}),
            "",
            decisions.count_decisions(
                [
                    event | {"bundles": {"p": {"revision": f"r{at % 7}"}}},
                    event | {"bundles": {"p": {"revision": str(at)}}},
                ]
            ),
        )
    (sidecar,) = (known for known in fleet.sidecars() if known["id"] == "a")
    assert len(sidecar["decisions"]) == MOST_COUNTED
    assert sidecar["labels"] == {"made-up-499": "1"}
    assert sum(map(len, fleet.counts.to_json().values())) <= 500


def test_a_false_status_of_one_sidecar_does_not_change_others(registry: Registry) -> None:
    async def body(client: httpx.AsyncClient, served: ServerState) -> None:
        assert (await client.post("/status", content=r'{"labels": {"id": "\ud800"}, "bundles": {}}')).status_code == 400
        report = r'{"labels": {"id": "\u001b[31m"}, "bundles": {"p": {"code": "\u202e", "message": "\u001b]0;x\u0007", "size": 1e999}}}'
        assert (await client.post("/status", content=report)).status_code == 200
        found = await client.get("/fleet")
        assert found.status_code == 200
        (sidecar,) = json.loads(found.text, parse_constant=pytest.fail)["sidecars"]
        assert sidecar["id"].isprintable()
        assert sidecar["bundles"]["p"]["message"] == r"\x1b]0;x\x07"
        assert sidecar["bundles"]["p"]["size"] is None

    within(registry, body)


def test_a_long_decision_log_blocks_no_other_request(registry: Registry) -> None:
    event = {"labels": {"id": "o"}, "path": "privtab/shop/decisions", "result": [True, False] * 200_000}
    log = gzip.compress(json.dumps([event]).encode(), 1)

    async def body(client: httpx.AsyncClient, served: ServerState) -> None:
        sending = asyncio.create_task(client.post("/logs", content=log, headers={"Content-Encoding": "gzip"}))
        answered = 0
        while not sending.done():
            assert (await client.get("/health")).status_code == 200
            answered += 1
            await asyncio.sleep(0.001)
        assert (await sending).status_code == 200
        assert answered > 1
        assert served.fleet.counts.to_json() == {"unknown": {"other": {"allow": 200_000, "deny": 200_000}}}

    within(registry, body)


def test_silent_sidecars_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = FleetTracker(forget=10)
    fleet.record_status(SidecarIdentity(instance="a", labels={}), "", {})
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 9)
    fleet.record_status(SidecarIdentity(instance="b", labels={}), "", {})
    monkeypatch.setattr(time, "time", lambda: now + 12)
    assert [sidecar["id"] for sidecar in fleet.sidecars()] == ["b"]
