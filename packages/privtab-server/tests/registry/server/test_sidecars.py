"""Real OPA processes at a registry's server."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from authzen_server import Server
from buckets import bucket
from example_bundles import ExampleBundles
from sidecars import Opa, configuration, until

from privtab import Embedded
from privtab.base import DecisionUnavailable
from privtab.bundle.archive import contents
from privtab_server.registry import Canary, Registry

pytestmark = pytest.mark.slow

SIDECAR, WRONG, OPERATOR = "sidecar-token-0123456789", "sidecar-token-9876543210", "operator-token-0123456789"


def runs(opa: Opa, registry: Registry, channel: str = "dev") -> bool:
    current = registry.channel(channel, "shop")
    return opa.revision("policy") == current.policy and opa.revision("state") == current.state


def answered(opa: Opa, code: str) -> bool:
    """Whether an OPA tells that its server gave this status."""
    return str((opa.status() or {}).get("bundles", {}).get("policy", {}).get("http_code")) == code


def fleet(server: Server, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = server.get("/fleet", **more).json()
    return {sidecar["id"]: sidecar for sidecar in found["sidecars"]} | {"": found}


def test_a_release_arrives_at_an_opa_that_waits_for_it(
    serving: Any, opas: Any, registry: Registry, packed: ExampleBundles
) -> None:
    server = serving()
    (opa,) = opas(configuration(server.url, instance="one", labels="app=web,zone=a"))
    until(lambda: runs(opa, registry))
    assert not opa.allows("ben", "read", "s/a/i")
    until(lambda: all(feed["waiting"] for feed in fleet(server)["one"]["feeds"].values()))

    registry.release("dev", "shop", state=registry.put(packed.states[1]).id)
    until(lambda: opa.allows("ben", "read", "s/a/i"))
    assert opa.data("privtab_state") == contents(packed.states[1]).data["privtab_state"]

    registry.release("dev", "shop", policy=registry.put(packed.policies[1]).id)
    until(lambda: opa.allows("olga", "read", "s/a/i"))

    until(lambda: fleet(server)["one"]["current"])
    current = registry.channel("dev", "shop")
    until(lambda: fleet(server)["one"]["bundles"]["policy"]["revision"] == current.policy)
    report = fleet(server)["one"]
    assert report["labels"]["app"] == "web"
    assert report["feeds"]["dev/shop/state"]["holds"] == current.state
    assert report["bundles"]["state"]["revision"] == current.state
    assert report["bundles"]["state"]["activated"] is not None
    assert report["bundles"]["state"]["code"] is None

    # Back again: what ran before is as new as anything else.
    registry.release(
        "dev", "shop", policy=registry.history("dev", "shop")[0].policy, state=registry.history("dev", "shop")[0].state
    )
    assert until(lambda: runs(opa, registry)) < 1.5
    assert not opa.allows("olga", "read", "s/a/i") or opa.allows("olga", "write", "s/a/i")
    assert opa.data("privtab_state") == contents(packed.states[0]).data["privtab_state"]


def test_embedded_does_not_take_a_server_without_storage_for_news(
    serving: Any, registry: Registry, tmp_path: Path
) -> None:
    feed = f"{serving().url}/channels/dev/shop"
    bounded, unbounded = (
        Embedded(f"{feed}/policy.tar.gz", state=f"{feed}/state.tar.gz", refresh=0, max_staleness=most)
        for most in (0.5, None)
    )
    assert bounded.check("ann", "read", "item:s/a/i")
    storage = Path(registry.url)
    storage.rename(tmp_path / "away")
    with pytest.raises(DecisionUnavailable, match=r"has not known for .* whether there are newer ones"):
        until(lambda: not bounded.check("ann", "read", "item:s/a/i"))
    assert unbounded.check("ann", "read", "item:s/a/i")
    (tmp_path / "away").rename(storage)

    def answers() -> bool:
        with suppress(DecisionUnavailable):
            return bounded.check("ann", "read", "item:s/a/i")
        return False

    until(answers)


def test_a_way_back_is_sent_to_those_who_ran_it_before(
    serving: Any, opas: Any, registry: Registry, packed: ExampleBundles
) -> None:
    server = serving()
    (opa,) = opas(configuration(server.url, instance="one", superseded_etag_ttl_seconds=300))
    until(lambda: runs(opa, registry))
    old, new = registry.channel("dev", "shop"), registry.put(packed.policies[1]).id
    for policy in (new, old.policy, new, old.policy):
        registry.release("dev", "shop", policy=policy)
        until(lambda: runs(opa, registry), 5)


def test_decisions_are_counted_by_revision_rule_and_answer(serving: Any, opas: Any, registry: Registry) -> None:
    server = serving()
    (opa,) = opas(configuration(server.url, instance="one"))
    until(lambda: runs(opa, registry))
    current = registry.channel("dev", "shop")
    for user, times in (("ann", 3), ("nobody", 2)):
        for _ in range(times):
            opa.allows(user, "read", "s/a/i")
    request = {
        "subject": {"type": "user", "id": "ann"},
        "action": {"name": "write"},
        "resource": {"type": "item", "id": "s/a/i"},
    }
    whole = {"requests": [request, request]}
    for rule, question in (("decision", request), ("check", request), ("explained", whole), ("decisions", whole)):
        opa.session.post(f"{opa.url}/v1/data/privtab/shop/{rule}", json={"input": question}, timeout=5)
    opa.session.post(f"{opa.url}/v1/data/privtab_program/shop/revision", json={}, timeout=5)
    counts = {"shop/item/read": {"allow": 3, "deny": 2}, "shop/item/write": {"deny": 6}}
    until(lambda: fleet(server)[""]["decisions"].get(current.policy) == counts)
    assert fleet(server)[""]["decisions"][current.state] == counts
    assert fleet(server)["one"]["decisions"][current.policy] == {"allow": 3, "deny": 8}
    assert (
        f'privtab_registry_decisions_total{{answer="allow",revision="{current.policy}"}} 3.0'
        in server.get("/metrics").text
    )


def test_a_canary_goes_to_those_that_it_is_for(
    serving: Any, opas: Any, registry: Registry, packed: ExampleBundles
) -> None:
    server = serving()
    a, b, unnamed = opas(
        configuration(server.url, instance="a", labels="zone=north"),
        configuration(server.url, instance="b", labels="zone=south"),
        configuration(server.url),
    )
    for opa in (a, b, unnamed):
        until(partial(runs, opa, registry))
    old, new = registry.channel("dev", "shop").policy, registry.put(packed.policies[1]).id
    registry.release("dev", "shop", canary=Canary(policy=new, labels={"zone": "south"}))
    until(lambda: b.revision() == new)
    time.sleep(0.5)
    assert (a.revision(), unnamed.revision()) == (old, old)
    until(lambda: fleet(server)["b"]["feeds"]["dev/shop/policy"]["canary"])
    assert fleet(server)["b"]["current"]
    registry.release("dev", "shop", policy=new)
    for opa in (a, b, unnamed):
        until(lambda opa=opa: opa.revision() == new)  # type: ignore[misc]
    assert {sidecar["labels"].get("zone") for sidecar in fleet(server)[""]["sidecars"]} == {"north", "south", None}
    assert {(sidecar["named"], *sidecar["reads"], sidecar["certain"]) for sidecar in fleet(server)[""]["sidecars"]} == {
        (True, "dev/shop", True),
        (False, "dev/shop", True),
    }


def test_without_long_polls_the_same(serving: Any, opas: Any, registry: Registry, packed: ExampleBundles) -> None:
    server = serving()
    (opa,) = opas(configuration(server.url, instance="one", wait=None))
    until(lambda: runs(opa, registry))
    registry.release("dev", "shop", state=registry.put(packed.states[2]).id)
    assert until(lambda: runs(opa, registry)) < 4
    assert 'waiting": true' not in json.dumps(fleet(server)["one"])
    until(lambda: 'not_modified_total{channel="dev"' in server.get("/metrics").text)


def test_a_state_in_shards(serving: Any, opas: Any, registry: Registry, packed: ExampleBundles) -> None:
    from privtab_server.registry.names import served_path

    shards = {key: registry.put(bundle).id for key, bundle in packed.shards.items()}
    registry.release("dev", "shop", policy=registry.put(packed.sharded).id, shards=shards)
    server = serving()
    expected = {
        "policy": "policy.tar.gz",
        "people": served_path("shard", "people"),
        "s": served_path("shard", "site:s"),
    }
    (opa,) = opas(configuration(server.url, instance="one", files=expected))
    until(lambda: opa.revision("s") == shards["site:s"] and opa.revision("people") == shards["people"])
    until(lambda: opa.allows("ben", "read", "s/a/i"))
    assert fleet(server)["one"]["feeds"]["dev/shop/shard/site:s"]["holds"] == shards["site:s"]


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text(f"fleet  {SIDECAR}  sidecar  instance=goo*\nops  {OPERATOR}  operator\n")
    return path


def test_a_wrong_token_is_refused_and_seen(serving: Any, opas: Any, registry: Registry, tokens: Path) -> None:
    server = serving("--token-file", tokens)
    operator = {"headers": {"Authorization": f"Bearer {OPERATOR}"}}
    good, thief, wrong, none, other = opas(
        configuration(server.url, instance="good", token=SIDECAR),
        configuration(server.url, instance="bad", token=SIDECAR),
        configuration(server.url, instance="wrong", token=WRONG),
        configuration(server.url, instance="none"),
        configuration(server.url, instance="other", token=OPERATOR),
    )
    until(lambda: runs(good, registry))
    for opa, code in ((thief, "403"), (wrong, "401"), (none, "401"), (other, "403")):
        until(partial(answered, opa, code))
        assert opa.data("privtab") is None
        assert opa.session.get(f"{opa.url}/health?bundles=true", timeout=5).status_code == 500
    for path, token, status in (
        ("/fleet", SIDECAR, 403),
        ("/metrics", "", 401),
        ("/revisions/", SIDECAR, 403),
        ("/fleet", OPERATOR, 200),
        ("/health", "", 200),
    ):
        assert server.get(path, headers={"Authorization": f"Bearer {token}"} if token else {}).status_code == status, (
            path
        )
    found = fleet(server, **operator)
    refused = {refusal["instance"]: refusal for refusal in found[""]["refused"] if refusal["instance"]}
    assert set(refused) == {"bad", "wrong", "none", "other"}
    assert (refused["bad"]["token"], refused["bad"]["status"]) == ("fleet", 403)
    assert refused["wrong"]["status"] == 401
    assert [sidecar["id"] for sidecar in found[""]["sidecars"]] == ["good"]
    assert 'privtab_registry_refused_total{status="401"}' in server.get("/metrics", **operator).text
    assert "wrong was refused" in server.log.read_text()
    assert WRONG not in server.log.read_text()
    read = Registry.open(server.url, token=OPERATOR)
    assert read.channel("dev", "shop") == registry.channel("dev", "shop")
    assert read.revisions("shop") == registry.revisions("shop")
    assert read.history("dev", "shop") == registry.history("dev", "shop")


def test_tls_with_an_authority_of_ones_own(serving: Any, opas: Any, registry: Registry, tmp_path: Path) -> None:
    from certificates import make

    files = make(tmp_path)
    server = serving("--tls", f"cert={files.certificate}", "--tls", f"key={files.key}")
    trusts, not_ = opas(
        configuration(server.url, instance="trusts", authority=files.authority),
        configuration(server.url, instance="does-not"),
    )
    until(lambda: runs(trusts, registry))
    until(lambda: "x509" in str((not_.status() or {}).get("bundles", {}).get("policy", {}).get("message")))
    assert [sidecar["id"] for sidecar in fleet(server, verify=str(files.authority))[""]["sidecars"]] == ["trusts"]


def test_sidecars_survive_a_killed_server(
    serving: Any, opas: Any, registry: Registry, packed: ExampleBundles, tmp_path: Path
) -> None:
    server = serving()
    port = server.url.rpartition(":")[2]
    (opa,) = opas(configuration(server.url, instance="one"))
    until(lambda: runs(opa, registry))
    server.stop(signal.SIGKILL)
    registry.release("dev", "shop", policy=registry.put(packed.policies[1]).id)
    time.sleep(0.5)
    assert opa.allows("ann", "read", "s/a/i")
    until(lambda: "refused" in str(opa.status()["bundles"]["policy"].get("message")))
    again = serving("--listen", port)
    assert until(lambda: runs(opa, registry), 15) < 10
    # Nothing of the fleet is kept on disk: sidecars tell again.
    until(lambda: "one" in fleet(again) and fleet(again)["one"]["current"])
    until(lambda: fleet(again)["one"]["bundles"]["policy"]["code"] is None)


def test_open_long_polls_do_not_hold_up_an_end(serving: Any, opas: Any, registry: Registry) -> None:
    server = serving()
    (opa,) = opas(configuration(server.url, instance="one", wait=300))
    until(lambda: runs(opa, registry))
    until(lambda: all(feed["waiting"] for feed in fleet(server)["one"]["feeds"].values()))
    started = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - started < 60, "the polls would wait for 300 s"
    assert opa.allows("ann", "read", "s/a/i")


def test_failing_storage_is_reported_and_served_releases_continue(
    serving: Any, opas: Any, registry: Registry, packed: ExampleBundles, tmp_path: Path
) -> None:
    server = serving("--limit", "poll=0.1")
    (opa,) = opas(configuration(server.url, instance="one", wait=2))
    until(lambda: runs(opa, registry))
    folder, away = Path(registry.url), tmp_path / "away"
    folder.rename(away)
    folder.write_text("not a folder any more")
    until(lambda: not fleet(server)[""]["server"]["storage"]["ok"])
    assert server.get("/health").json() == {"status": "stale"}
    (late,) = opas(configuration(server.url, instance="late", wait=2))
    until(lambda: late.revision("policy") == opa.revision("policy") and late.revision("state") == opa.revision("state"))
    folder.unlink()
    away.rename(folder)
    registry.release("dev", "shop", state=registry.put(packed.states[1]).id)
    until(lambda: runs(opa, registry))
    until(lambda: fleet(server)[""]["server"]["storage"]["ok"])


def test_out_of_a_bucket(serving: Any, opas: Any, packed: ExampleBundles, s3: str) -> None:
    place = uuid.uuid4().hex
    options = bucket(s3, place)
    registry = Registry.open(f"s3://{place}/registry", **options)
    registry.release("dev", "shop", policy=registry.put(packed.policies[0]).id, state=registry.put(packed.states[0]).id)
    server = serving(
        url=f"{registry.url}?{urlencode({key: json.dumps(value) for key, value in options.items()}, quote_via=quote)}"
    )
    (opa,) = opas(configuration(server.url, instance="one"))
    until(lambda: runs(opa, registry))
    registry.release("dev", "shop", state=registry.put(packed.states[1]).id)
    assert until(lambda: runs(opa, registry)) < 3


def test_a_static_server_does_too(opas: Any, registry: Registry, packed: ExampleBundles) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1", "--directory", registry.url]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        config = configuration(f"http://127.0.0.1:{port}", wait=None)
        (opa,) = opas({name: part for name, part in config.items() if name in ("services", "bundles")})
        until(lambda: opa.data("privtab_state/shop/revision") == registry.channel("dev", "shop").state)
        registry.release(
            "dev", "shop", policy=registry.put(packed.policies[1]).id, state=registry.put(packed.states[1]).id
        )
        until(lambda: opa.data("privtab_state/shop/revision") == registry.channel("dev", "shop").state)
        until(lambda: opa.allows("olga", "read", "s/a/i"))
    finally:
        process.terminate()
        process.wait(10)
