"""OpenTelemetry: a span for every call, metrics, and propagation of the trace to OPA. Needs the extra `otel`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from privtab.base import needing
from privtab.client import Hook, Outcome, Question
from privtab_web.trace import trace_headers

with needing("privtab_web.otel", "otel"):
    from opentelemetry import context, metrics, trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

if TYPE_CHECKING:
    from contextvars import Token

__all__ = ["Telemetry"]

NAME = "privtab"
BOUNDARIES = (0.00001, 0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Histogram buckets in seconds, from an engine in process to a call that timed out."""
_W3C = TraceContextTextMapPropagator()


class Telemetry(Hook):
    """Spans and metrics of a client: `Client(url, hooks=[Telemetry()])`.

    Providers default to the global ones. `identities` adds the user and the resource's path to spans; groups, further
    objects, tokens and error messages are never included.
    """

    def __init__(
        self,
        *,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
        identities: bool = False,
    ) -> None:
        self._identities = identities
        self._tracer = trace.get_tracer(NAME, tracer_provider=tracer_provider)
        meter = metrics.get_meter(NAME, meter_provider=meter_provider)
        self._decisions = meter.create_counter("privtab.decisions", "{decision}", "decisions by their outcome")
        self._errors = meter.create_counter("privtab.errors", "{call}", "calls that ended without a decision, by error")
        self._hits = meter.create_counter("privtab.cache.hits", "{decision}", "decisions that a kept answer gave")
        self._duration = meter.create_histogram(
            "privtab.duration", "s", "how long calls took", explicit_bucket_boundaries_advisory=BOUNDARIES
        )

    def __getstate__(self) -> dict[str, Any]:
        """The settings from which another process builds its copy, with the global providers."""
        return {"identities": self._identities}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def before(self, question: Question) -> object:
        """Start a span in the current or an incoming trace, and make it the current one."""
        parent = None
        if trace_headers() and not trace.get_current_span().get_span_context().is_valid:
            parent = _W3C.extract(trace_headers())
        kind = trace.SpanKind.CLIENT if question.engine == "opa" else trace.SpanKind.INTERNAL
        span = self._tracer.start_span(f"privtab.{question.kind}", parent, kind)
        return span, context.attach(trace.set_span_in_context(span, parent))

    def after(self, question: Question, outcome: Outcome, begun: object) -> None:
        """End the span and record metrics."""
        if isinstance(begun, tuple):
            self._end_span(question, outcome, *begun)
        self._count(question, outcome)

    def headers(self) -> Mapping[str, str]:
        """The current span as `traceparent` and `tracestate`; baggage is not sent."""
        carrier: dict[str, str] = {}
        _W3C.inject(carrier)
        return carrier

    def _end_span(self, question: Question, outcome: Outcome, span: trace.Span, token: Token[context.Context]) -> None:
        context.detach(token)
        if span.is_recording():
            values = outcome.fields(question, identities=self._identities)
            seconds = values.pop("seconds")
            error = values.pop("error", None)
            span.set_attributes({f"privtab.{name}": value for name, value in values.items()})
            span.set_attribute("privtab.seconds", seconds)
            if error is not None:
                # Its message may contain text from the caller or OPA.
                span.set_attribute("error.type", error)
                span.set_status(trace.StatusCode.ERROR)
        span.end()

    def _count(self, question: Question, outcome: Outcome) -> None:
        common = {"privtab.kind": question.kind, "privtab.engine": question.engine, "privtab.mode": question.mode}
        if outcome.system is not None:
            common["privtab.system"] = outcome.system
        self._duration.record(outcome.seconds, common | {"privtab.outcome": outcome.word(question)})
        if outcome.error is not None:
            self._errors.add(1, common | {"error.type": type(outcome.error).__name__})
            return
        for name, number in (("allow", outcome.allowed), ("deny", question.count - outcome.allowed)):
            if number:
                self._decisions.add(number, common | {"privtab.outcome": name})
        if outcome.cached:
            self._hits.add(outcome.cached, common)
