"""The metrics of a registry server: names, kinds, help texts and labels are what dashboards are built on."""

from __future__ import annotations

import httpx
from example_bundles import ExampleBundles
from in_process_registry import POLICY, STATE, figure, until, within
from prometheus_client.parser import text_string_to_metric_families

from privtab_server.registry import Registry
from privtab_server.registry.server.app import ServerState

METRICS = {
    "bundles_served": ("counter", "Bundles sent.", {"channel", "system", "kind"}),
    "bytes_sent": ("counter", "Bytes of bundles sent.", {"channel", "system", "kind"}),
    "not_modified": ("counter", "Requests answered with 304 Not Modified.", {"channel", "system", "kind"}),
    "status_reports": ("counter", "Status reports received.", set()),
    "decision_log_uploads": ("counter", "Uploads of decision logs received.", set()),
    "refused": ("counter", "Requests refused.", {"status"}),
    "long_polls": ("gauge", "Long polls that are waiting for a release.", set()),
    "storage_ok": ("gauge", "1 while the storage answers.", set()),
    "storage_stale_seconds": ("gauge", "Seconds since the storage last answered; 0 while it answers.", set()),
    "storage_errors": ("counter", "Failed requests to the storage.", set()),
    "channel_sequence": ("gauge", "The number of the last release of a channel.", {"channel", "system"}),
    "unreadable_releases": (
        "gauge",
        "Unreadable releases of a channel after the one that it serves.",
        {"channel", "system"},
    ),
    "sidecars": (
        "gauge",
        "Sidecars by the revision that they run, which is empty before the first bundle.",
        {"channel", "system", "kind", "revision"},
    ),
    "activation_seconds": (
        "histogram",
        "Time from a release to the first request of a sidecar that runs it.",
        {"channel", "system", "kind"},
    ),
    "sidecar_sequence": (
        "gauge",
        "The last release whose bundle a sidecar runs; 0: unknown.",
        {"channel", "system", "kind", "sidecar"},
    ),
    "sidecar_lag_seconds": (
        "gauge",
        "Seconds for which a sidecar has run a revision that is no longer active.",
        {"channel", "system", "kind", "sidecar"},
    ),
    "decisions": (
        "counter",
        "Decisions in uploaded logs; each counts for its policy and for its state.",
        {"revision", "answer"},
    ),
    "rule_decisions": ("counter", "Decisions in uploaded logs by row of the table.", {"rule", "answer"}),
}


def test_names_kinds_help_and_labels_stay(registry: Registry) -> None:
    async def body(client: httpx.AsyncClient, served: ServerState) -> None:
        named = {"X-Privtab-Instance": b'one "of" many\n'.hex()}
        response = await client.get(POLICY, headers=named)
        assert (
            await client.get(POLICY, headers=named | {"If-None-Match": response.headers["etag"]})
        ).status_code == 304
        entry = {"path": "privtab/shop/allow", "result": True, "bundles": {"policy": {"revision": "r1"}}}
        assert (await client.post("/logs", json=[entry], headers=named)).status_code == 200
        assert (await client.post("/logs", json={}, headers=named)).status_code == 400
        answer = await client.get("/metrics")
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        families = {family.name: family for family in text_string_to_metric_families(answer.text)}
        assert set(families) == {f"privtab_registry_{name}" for name in METRICS}
        for name, (kind, says, labels) in METRICS.items():
            family = families[f"privtab_registry_{name}"]
            assert (family.type, family.documentation) == (kind, says)
            ending = "_total" if kind == "counter" else ""
            if kind == "histogram":  # None was observed yet.
                assert not family.samples
                continue
            assert {sample.name for sample in family.samples} == {f"privtab_registry_{name}{ending}"}, name
            assert all(set(sample.labels) == labels for sample in family.samples), name

        def value(name: str) -> float:
            (sample,) = families[f"privtab_registry_{name}"].samples
            return sample.value

        assert value("bundles_served") == value("not_modified") == value("decision_log_uploads") == 1
        assert value("bytes_sent") == len(response.content)
        assert value("refused") == value("storage_ok") == 1
        assert value("status_reports") == value("storage_errors") == value("long_polls") == 0

    within(registry, body)


def test_the_lag_of_a_sidecar_is_told(registry: Registry, packed: ExampleBundles) -> None:
    async def body(client: httpx.AsyncClient, served: ServerState) -> None:
        stream = {"channel": "dev", "system": "shop", "kind": "state"}
        named = {"X-Privtab-Instance": "one"}
        old = (await client.get(STATE, headers=named)).headers["etag"]
        await client.get(STATE, headers=named | {"If-None-Match": old})
        assert figure(served, "sidecar_sequence", **stream, sidecar="one") == 1
        assert figure(served, "sidecar_lag_seconds", **stream, sidecar="one") == 0
        registry.release("dev", "shop", state=registry.put(packed.states[1]).id)
        await until(lambda: served.feeds.channels["dev", "shop"].sequence == 2)
        new = (await client.get(STATE, headers=named | {"If-None-Match": old})).headers["etag"]
        assert figure(served, "sidecar_sequence", **stream, sidecar="one") == 1
        await until(lambda: (figure(served, "sidecar_lag_seconds", **stream, sidecar="one") or 0) > 0)
        assert figure(served, "activation_seconds_count", **stream) is None
        await client.get(STATE, headers=named | {"If-None-Match": new})
        assert figure(served, "sidecar_sequence", **stream, sidecar="one") == 2
        assert figure(served, "sidecar_lag_seconds", **stream, sidecar="one") == 0
        assert figure(served, "activation_seconds_count", **stream) == 1
        # What the server has never served has no number.
        await client.get(STATE, headers=named | {"If-None-Match": '"0123456789abcdef.0123456789abcdef"'})
        assert figure(served, "sidecar_sequence", **stream, sidecar="one") == 0

    within(registry, body)


def test_names_of_others_are_escaped(registry: Registry) -> None:
    """A shard may have any name; it must not end its label."""

    async def body(client: httpx.AsyncClient, served: ServerState) -> None:
        strange = 'a"b\\c/d'
        served.fleet.sidecars_by_revision = lambda: {(f"dev/shop/state/{strange}", "r1"): 2}  # type: ignore[method-assign]
        families = {f.name: f for f in text_string_to_metric_families((await client.get("/metrics")).text)}
        (sample,) = families["privtab_registry_sidecars"].samples
        assert sample.labels == {
            "channel": "dev",
            "system": "shop",
            "kind": "state",
            "revision": "r1",
            "shard": strange,
        }
        assert sample.value == 2

    within(registry, body)
