"""Spans, metrics, logs and trace headers of real calls; and nothing secret in any of them."""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import requests
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from privtab import AccessDenied, AsyncClient, Client, DecisionError, Entity, Request
from privtab.client import Embedded
from privtab.engines import OpaServer
from privtab_web.log import DecisionLog
from privtab_web.otel import Telemetry
from privtab_web.trace import TraceHeaders, trace_context

MARK = "m4rk3r"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Watching:
    """A Telemetry whose spans and figures stay in memory."""

    def __init__(self, *, identities: bool = False) -> None:
        self._spans = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        meters = MeterProvider(metric_readers=[self._reader])
        self.hook = Telemetry(tracer_provider=self.tracers, meter_provider=meters, identities=identities)

    def spans(self) -> list[ReadableSpan]:
        found = list(self._spans.get_finished_spans())
        self._spans.clear()
        return found

    def figures(self) -> dict[tuple[str, str], int]:
        """(metric, outcome or error) → how many."""
        data = self._reader.get_metrics_data()
        assert data is not None
        found: dict[tuple[str, str], int] = {}
        for metric in data.resource_metrics[0].scope_metrics[0].metrics:
            for point in metric.data.data_points:
                attributes = point.attributes or {}
                label = str(attributes.get("privtab.outcome") or attributes.get("error.type") or "")
                value = getattr(point, "value", None)
                key = (metric.name, label)
                found[key] = found.get(key, 0) + int(point.count if value is None else value)  # type: ignore[union-attr]
        return found

    def text(self) -> str:
        return "\n".join(span.to_json() for span in self._spans.get_finished_spans())


@pytest.fixture
def watching() -> Watching:
    return Watching()


@pytest.fixture
def sent() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """A server in OPA's place that keeps the headers it was sent."""
    found: list[dict[str, str]] = []

    class Keeps(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.append({name.lower(): value for name, value in self.headers.items()})
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(500)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_POST = do_GET  # noqa: N815  (the base class calls it so)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class calls it so
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Keeps)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", found
    server.shutdown()
    server.server_close()


def requests_of(*users: str) -> list[Request]:
    return [Request(user=user, action="read", resource=Entity("dataset", "web/salaries")) for user in users]


def test_a_span_has_the_request_and_the_decision(opa: OpaServer, watching: Watching) -> None:
    with Client(opa.url, system="studio", hooks=[watching.hook]) as client:
        client.check("ann", "read", "dataset:web/salaries")
        with pytest.raises(AccessDenied) as denied:
            client.require("ben", "read", "dataset:web/salaries")
        client.check_many(requests_of("ann", "ben", "cleo"))
        with pytest.raises(DecisionError):
            client.check("ann", "raed", "dataset:web/salaries")
        revision = client.revision().policy
    check, require, many, wrong = watching.spans()
    assert check.name == "privtab.check"
    assert check.kind is trace.SpanKind.CLIENT
    assert check.attributes is not None
    attributes = dict(check.attributes)
    assert attributes.pop("privtab.decision_id")
    assert float(str(attributes.pop("privtab.seconds"))) > 0
    assert attributes == {
        "privtab.kind": "check",
        "privtab.engine": "opa",
        "privtab.mode": "enforce",
        "privtab.system": "studio",
        "privtab.action": "read",
        "privtab.type": "dataset",
        "privtab.rule": "studio/dataset/read",
        "privtab.revision": revision,
        "privtab.outcome": "allow",
        "privtab.count": 1,
        "privtab.allowed": 1,
        "privtab.cached": 0,
    }
    assert require.attributes is not None
    assert require.attributes["privtab.decision_id"] == denied.value.decision.id
    assert require.attributes["privtab.outcome"] == "deny"
    assert require.status.status_code is trace.StatusCode.UNSET, "a denial is an answer"
    assert many.attributes is not None
    assert (many.attributes["privtab.outcome"], many.attributes["privtab.allowed"]) == ("mixed", 1)
    assert wrong.attributes is not None
    assert wrong.attributes["error.type"] == "InvalidRequest"
    assert wrong.status.status_code is trace.StatusCode.ERROR
    assert (wrong.status.description, wrong.events) == (None, ())
    assert not trace.get_current_span().get_span_context().is_valid, "no span is left open"


def test_users_and_resources_are_on_spans_where_that_is_configured(client: Embedded, bundles: Any) -> None:
    watching = Watching(identities=True)
    with Embedded(*bundles, hooks=[watching.hook]) as embedded:
        embedded.check("ann", "read", "dataset:web/salaries")
    (span,) = watching.spans()
    assert span.kind is trace.SpanKind.INTERNAL
    assert span.attributes is not None
    assert span.attributes["privtab.user"] == "ann"
    assert span.attributes["privtab.resource"] == "dataset:web/salaries"


def test_metrics_count_decisions_errors_time_and_kept_answers(opa: OpaServer, watching: Watching) -> None:
    with Client(opa.url, system="studio", cache_size=100, hooks=[watching.hook]) as client:
        client.check("ann", "read", "dataset:web/salaries")
        client.check("ann", "read", "dataset:web/salaries")
        client.check_many(requests_of("ann", "ben", "ann", "ben"))
        client.check_many(requests_of("ben", "ben", "cleo"))
        with pytest.raises(DecisionError):
            client.check("ann", "raed", "dataset:web/salaries")
    with (
        Client("http://127.0.0.1:9", system="studio", retries=0, hooks=[watching.hook]) as client,
        pytest.raises(DecisionError),
    ):
        client.check("ann", "read", "dataset:web/salaries")
    assert watching.figures() == {
        ("privtab.decisions", "allow"): 4,
        ("privtab.decisions", "deny"): 5,
        ("privtab.errors", "InvalidRequest"): 1,
        ("privtab.errors", "DecisionUnavailable"): 1,
        ("privtab.cache.hits", ""): 5,
        ("privtab.duration", "allow"): 2,
        ("privtab.duration", "mixed"): 1,
        ("privtab.duration", "deny"): 1,
        ("privtab.duration", "error"): 2,
    }


def test_kept_answers_are_counted_for_checks_that_go_together(opa: OpaServer, watching: Watching) -> None:
    async def run() -> None:
        async with AsyncClient(opa.url, system="studio", cache_size=100, hooks=[watching.hook]) as client:
            await client.check("ann", "read", "dataset:web/a")
            await asyncio.gather(*(client.check("ann", "read", f"dataset:web/{name}") for name in "abc"))

    asyncio.run(run())
    cached = [span.attributes["privtab.cached"] for span in watching.spans() if span.attributes is not None]
    assert sorted(map(str, cached)) == ["0", "0", "0", "1"]


def test_the_current_span_is_sent_as_traceparent(sent: Any, watching: Watching) -> None:
    url, headers = sent
    tracer = watching.tracers.get_tracer("test")

    async def run() -> None:
        async with AsyncClient(url, system="studio", retries=0, hooks=[watching.hook]) as client:
            with pytest.raises(DecisionError):
                await client.check("ann", "read", "dataset:web/a")

    with tracer.start_as_current_span("service") as service:
        with Client(url, system="studio", retries=0, hooks=[watching.hook]) as client, pytest.raises(DecisionError):
            client.check("ann", "read", "dataset:web/a")
        asyncio.run(run())
    first, second, _ = watching.spans()
    for span, header in zip((first, second), headers, strict=True):
        assert span.parent is not None
        assert span.parent.span_id == service.get_span_context().span_id
        context = span.get_span_context()
        assert context is not None
        assert header["traceparent"].startswith(f"00-{context.trace_id:032x}-{context.span_id:016x}-")


def test_a_trace_that_is_followed_is_carried_on_with_and_without_a_library(sent: Any, watching: Watching) -> None:
    url, headers = sent
    for hook in (TraceHeaders(), watching.hook):
        with (
            Client(url, system="studio", retries=0, hooks=[hook]) as client,
            trace_context(PARENT, "vendor=1"),
            pytest.raises(DecisionError),
        ):
            client.check("ann", "read", "dataset:web/a")
    plain, spanned = headers
    assert (plain["traceparent"], plain["tracestate"]) == (PARENT, "vendor=1")
    (span,) = watching.spans()
    assert span.parent is not None
    assert f"{span.parent.span_id:016x}" == PARENT.split("-")[2]
    assert spanned["traceparent"].split("-")[1] == PARENT.split("-")[1]
    assert spanned["traceparent"] != PARENT


@pytest.mark.parametrize(
    "wrong",
    [None, "", "nonsense", PARENT.upper(), "ff" + PARENT[2:], f"{PARENT}\r\nX: y", "00-" + "0" * 32 + PARENT[35:]],
)
def test_an_invalid_trace_context_is_left_out(sent: Any, wrong: Any) -> None:
    url, headers = sent
    with Client(url, system="studio", retries=0, hooks=[TraceHeaders()]) as client:
        with trace_context(wrong, "vendor=1"), pytest.raises(DecisionError):
            client.check("ann", "read", "dataset:web/a")
        with trace_context(PARENT, "a\nb"), pytest.raises(DecisionError):
            client.check("ann", "read", "dataset:web/a")
    assert "traceparent" not in headers[0]
    assert "tracestate" not in headers[1]


def test_opa_joins_the_trace_and_logs_it(bundles: Any, tmp_path: Path, watching: Watching) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "decision_logs: {console: true}\ndistributed_tracing: {type: http, address: '127.0.0.1:9'}\n", encoding="utf-8"
    )
    log = tmp_path / "opa.log"
    with (
        OpaServer(bundles, config=config, log=log) as opa,
        Client(opa.url, system="studio", hooks=[watching.hook]) as client,
    ):
        decision = client.decide("ann", "read", "dataset:web/salaries")
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    (logged,) = [line for line in lines if line.get("decision_id") == decision.id]
    (span,) = watching.spans()
    context = span.get_span_context()
    assert context is not None
    assert logged["trace_id"] == f"{context.trace_id:032x}"


def test_a_call_that_is_cancelled_leaves_no_span_open(opa: OpaServer, watching: Watching) -> None:
    async def run() -> None:
        async with AsyncClient(opa.url, system="studio", hooks=[watching.hook]) as client:
            task = asyncio.create_task(client.check("ann", "read", "dataset:web/a"))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(run())
    (span,) = watching.spans()
    assert span.attributes is not None
    assert span.attributes["error.type"] == "CancelledError"


def test_a_client_with_telemetry_travels_to_another_process(opa: OpaServer, watching: Watching) -> None:
    with Client(opa.url, system="studio", hooks=[watching.hook, DecisionLog()]) as client:
        copy = pickle.loads(pickle.dumps(client))  # noqa: S301  (our own)
    with copy:
        assert copy.check("ann", "read", "dataset:web/salaries")


def test_the_log_has_a_record_for_each_call_with_its_parts(client: Embedded, bundles: Any, caplog: Any) -> None:
    caplog.set_level(logging.INFO)
    hooks = [DecisionLog(denied=logging.WARNING), DecisionLog("audit", identities=False)]
    with Embedded(*bundles, hooks=hooks) as embedded:
        embedded.check("ann", "read", "dataset:web/salaries")
        embedded.check("ben", "read", "dataset:web/salaries")
        with pytest.raises(DecisionError):
            embedded.check("ben", "raed", "dataset:web/salaries")
    full = [r for r in caplog.records if r.name == "privtab.decisions"]
    assert [r.levelname for r in full] == ["INFO", "WARNING", "ERROR"]
    assert "user:ben read dataset:web/salaries: deny" in full[1].getMessage()
    parts = full[1].privtab
    assert {name: parts[name] for name in ("user", "outcome", "rule", "count")} == {
        "user": "ben",
        "outcome": "deny",
        "rule": "studio/dataset/read",
        "count": 1,
    }
    for record in (r for r in caplog.records if r.name == "audit"):
        assert not re.search(r"ben|ann|salaries", record.getMessage())
        assert {"user", "resource"}.isdisjoint(record.privtab)


def test_nothing_secret_is_in_logs_spans_or_figures(
    opa: OpaServer, bundles: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, sent: Any
) -> None:
    """Tokens, cookies and groups are marked, in every kind of call, with every kind of end."""
    caplog.set_level(logging.DEBUG)
    secret = f"token-{MARK}"
    token_file = tmp_path / "token"
    token_file.write_text(secret, encoding="utf-8")
    watching = Watching(identities=True)
    hooks = [watching.hook, DecisionLog(), TraceHeaders()]
    arguments: dict[str, Any] = {"groups": [f"group-{MARK}"], "with_": {"to": "project:web"}, "flags": ["replace"]}
    session = requests.Session()
    session.cookies.set("session", f"cookie-{MARK}")
    clients: list[Any] = [
        Client(opa.url, system="studio", token=secret, hooks=hooks),
        Client(opa.url, system="studio", token_file=token_file, hooks=hooks, mode="observe"),
        Client(opa.url, system="studio", token=secret, session=session, hooks=hooks),
        Client("http://127.0.0.1:9", system="studio", token=secret, retries=1, total=0.3, hooks=hooks),
        Client(sent[0], system="studio", token=secret, retries=1, hooks=hooks),
        Embedded(*bundles, hooks=hooks),
    ]
    messages: list[str] = []
    for client in clients:
        messages += [repr(client), str(client.status())]
        calls: tuple[Callable[[Any], object], ...] = (
            lambda c: c.check("ann", "copy", "dataset:web/a", **arguments),
            lambda c: c.require("ben", "copy", "dataset:web/salaries", **arguments),
            lambda c: c.decide("ann", "read", "dataset:web/a", groups=[f"group-{MARK}"]),
            lambda c: c.check_many([Request(user="ann", action="read", resource=Entity("dataset", "web/a"))]),
            lambda c: c.visible("ann", "list", "dataset", ["web/a"], groups=[f"group-{MARK}"]),
            lambda c: c.filter("ann", "read", ["dataset:web/a"], groups=[f"group-{MARK}"]),
            lambda c: c.check("ann", "raed", "dataset:web/a", **arguments),
            lambda c: c.check("ann", "read", "dataset:web/a", groups=f"group-{MARK}"),
        )
        for call in calls:
            try:
                call(client)
            except DecisionError as error:
                if not isinstance(error, AccessDenied):
                    messages.append(f"{error!r} {error}")
        client.close()

    async def run() -> None:
        async with AsyncClient(opa.url, system="studio", token=secret, hooks=hooks) as asking:
            await asking.check("ann", "copy", "dataset:web/a", **arguments)
            messages.append(repr(asking))

    asyncio.run(run())
    assert any(MARK in headers.get("authorization", "") for headers in sent[1]), "the token was sent"
    logged = caplog.text + "\n".join(str(vars(record)) for record in caplog.records)
    assert "studio/dataset/copy" in logged
    assert watching.spans()
    for text in (logged, watching.text(), "\n".join(messages), str(watching.figures())):
        assert MARK not in text
