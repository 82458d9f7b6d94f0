"""The Grafana dashboard of the examples: every metric and every label in it is one that a registry server or an OPA has."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path

import httpx
import requests
from checkout import ROOT
from example_bundles import program
from in_process_registry import POLICY, within
from prometheus_client.parser import text_string_to_metric_families

from privtab.engines import OpaServer
from privtab.state import from_tables
from privtab_logs import reading
from privtab_logs.moments import KnownState, Moments, Policy
from privtab_logs.replaying import replay
from privtab_logs.report import prometheus, report
from privtab_logs.schema import Reading
from privtab_server.registry import Registry
from privtab_server.registry.server.app import ServerState
from privtab_server.registry.server.kept_logs import KeptLogs

DASHBOARD = ROOT / "examples" / "grafana" / "decisions.json"
_SELECTED = re.compile(r"\b([a-z][a-z0-9]*(?:_[a-z0-9]+)+)(\{[^}]*\})?(?=[\[)\s]|$)")
_BY = re.compile(r"\bby \(([^)]*)\)")
_FUNCTIONS = {"histogram_quantile"}


def expressions() -> list[str]:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


def metrics_of(text: str) -> dict[str, set[str]]:
    """By name of a series, the labels that its samples have; of a family without samples, its names alone."""
    found: dict[str, set[str]] = defaultdict(set)
    for family in text_string_to_metric_families(text):
        ending = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(family.type, [""])
        for name in (f"{family.name}{end}" for end in ending):
            found[name] |= {"le"} if name.endswith("_bucket") else set()
        for sample in family.samples:
            found[sample.name] |= set(sample.labels)
    return found


def replayed(folder: Path) -> str:
    """The metrics of a replay with a difference."""
    old, empty = Policy.of(program(folder)), KnownState(rows=from_tables({}, "state"))
    request = {
        "subject": {"type": "user", "id": "ann"},
        "action": {"name": "read"},
        "resource": {"type": "item", "id": "s/a/i"},
    }
    log = folder / "log.json"
    log.write_text(json.dumps({"decision_id": "1", "path": "privtab/shop/allow", "input": request, "result": True}))
    moments = Moments(new=old, policy=lambda _: old, state=lambda _: empty)
    return prometheus(report(replay(reading.batches([log], Reading()), moments), moments, None))


def test_every_metric_of_the_dashboard_exists(registry: Registry, opa_binary: Path, tmp_path: Path) -> None:
    known: dict[str, set[str]] = {}
    answers: set[str] = set()
    kept: dict[str, int] = {}

    async def body(client: httpx.AsyncClient, served: ServerState) -> None:
        named = {"X-Privtab-Instance": "one"}
        await client.get(POLICY, headers=named)
        revisions = {"policy": {"revision": "r1"}}
        entries = [{"path": "privtab/shop/allow", "result": answer, "bundles": revisions} for answer in (True, False)]
        await client.post("/logs", json=entries, headers=named)
        await client.post("/logs", json={}, headers=named)
        assert served.kept_logs is not None
        served.kept_logs.limit = 0
        await client.post("/logs", json=entries, headers=named)
        text = (await client.get("/metrics")).text
        known.update(metrics_of(text))
        kept.update(entries=served.kept_logs.entries, refused=served.kept_logs.refused["failed"])
        assert 'kept_log_refused_total{reason="failed"} 1' in text
        answers.update(re.findall(r'decisions_total\{answer="(\w+)"', text))

    within(registry, body, kept_logs=KeptLogs(tmp_path / "logs", 1 << 20))
    with OpaServer(binary=opa_binary) as opa:
        requests.post(f"{opa.url}/v1/data", json={}, timeout=30)
        known.update(metrics_of(requests.get(f"{opa.url}/metrics", timeout=30).text))
    assert kept == {"entries": 2, "refused": 1}
    known.update(metrics_of(replayed(tmp_path)))
    used: set[str] = set()
    for expression in expressions():
        without_labels = re.sub(r"\{[^}]*\}", "", _BY.sub("", expression))
        names = {name for name, _ in _SELECTED.findall(without_labels)} - _FUNCTIONS
        assert names, expression
        assert names <= known.keys(), expression
        used |= names
        labels = {label.strip() for group in _BY.findall(expression) for label in group.split(",")}
        of_names = set().union(*(known[name] for name in names))
        if "activation_seconds" not in expression:  # none was observed yet, so it has no labels
            assert labels <= of_names, expression
        assert set(re.findall(r'answer="(\w+)"', expression)) <= answers
    assert len(used) >= 15
