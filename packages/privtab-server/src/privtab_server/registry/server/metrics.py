"""The metrics of a registry server, for Prometheus."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from privtab_server.registry.server.feeds import Feeds
from privtab_server.registry.server.fleet import FleetTracker, LastPoll
from privtab_server.registry.server.kept_logs import KeptLogs
from privtab_server.registry.server.sidecar import DesiredRevision, stream_name

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX = "privtab_registry_"
_STREAM = ("channel", "system", "kind")


class Metrics(Collector):
    """Counts what the server does, and reads the rest from feeds and fleet when scraped."""

    def __init__(self, feeds: Feeds, fleet: FleetTracker, kept_logs: KeptLogs | None = None) -> None:
        # Otherwise every counter has a second time series with its creation time.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._feeds, self._fleet, self._kept_logs = feeds, fleet, kept_logs
        self.registry = CollectorRegistry()
        self.served = self._counter("bundles_served", "Bundles sent.", _STREAM)
        self.bytes = self._counter("bytes_sent", "Bytes of bundles sent.", _STREAM)
        self.not_modified = self._counter("not_modified", "Requests answered with 304 Not Modified.", _STREAM)
        self.reports = self._counter("status_reports", "Status reports received.")
        self.logs = self._counter("decision_log_uploads", "Uploads of decision logs received.")
        self.refused = self._counter("refused", "Requests refused.", ("status",))
        self.polls = Gauge(f"{_PREFIX}long_polls", "Long polls that are waiting for a release.", registry=self.registry)
        self.activation = Histogram(
            f"{_PREFIX}activation_seconds",
            "Time from a release to the first request of a sidecar that runs it.",
            _STREAM,
            buckets=(0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60),
            registry=self.registry,
        )
        self.registry.register(self)

    def record_activation(self, desired: DesiredRevision, poll: LastPoll) -> None:
        """Record how long a sidecar took to what it has run since this request."""
        if not poll.replaced or poll.holds is None:
            return
        active = self._feeds.activity.of(stream_name(desired.channel, desired.kind, desired.shard), poll.holds)
        if active is not None and active.until is None:
            stream = desired.channel.channel, desired.channel.system, desired.kind
            self.activation.labels(*stream).observe(max(0.0, poll.since - active.since))

    def text(self) -> bytes:
        """All metrics in the text format."""
        return generate_latest(self.registry)

    def collect(self) -> Iterator[Metric]:
        """Metrics from feeds and fleet."""
        yield from self._storage()
        yield from self._channels()
        sidecars = _gauge("sidecars", "Sidecars by the revision that they run, which is empty before the first bundle.")
        for (stream, revision), number in sorted(self._fleet.sidecars_by_revision().items()):
            sidecars.add_sample(sidecars.name, _labels(stream) | {"revision": revision}, number)
        yield sidecars
        yield from self._lags()
        help_text = "Decisions in uploaded logs; each counts for its policy and for its state."
        yield _counts("decisions", help_text, ("revision", "answer"), _pairs(self._fleet.counts.total()))
        help_text = "Decisions in uploaded logs by row of the table."
        rules = self._fleet.rules.to_json().get("", {})
        yield _counts("rule_decisions", help_text, ("rule", "answer"), _pairs(rules))
        if (kept := self._kept_logs) is not None:
            yield _gauge("kept_log_bytes", "Bytes of the decision logs that are kept.", kept.used)
            yield _gauge("kept_log_limit_bytes", "Bytes at which uploads of them are refused.", kept.limit)
            yield _gauge("kept_log_waiting_bytes", "Bytes of uploads that wait to be written.", kept.waiting_bytes)
            yield _counts("kept_log_entries", "Entries of decision logs that were kept.", (), [((), kept.entries)])
            refused = [((reason,), number) for reason, number in kept.refused.items()]
            yield _counts("kept_log_refused", "Uploads that were not kept.", ("reason",), refused)

    def _storage(self) -> Iterator[Metric]:
        trouble = self._feeds.trouble
        stale = round(time.time() - trouble.since, 1) if trouble else 0
        yield _gauge("storage_ok", "1 while the storage answers.", int(trouble is None))
        yield _gauge("storage_stale_seconds", "Seconds since the storage last answered; 0 while it answers.", stale)
        help_text = "Failed requests to the storage."
        yield CounterMetricFamily(f"{_PREFIX}storage_errors", help_text, value=self._feeds.failures)

    def _channels(self) -> Iterator[Metric]:
        labels = ("channel", "system")
        sequence = _gauge("channel_sequence", "The number of the last release of a channel.", labels=labels)
        help_text = "Unreadable releases of a channel after the one that it serves."
        unreadable = _gauge("unreadable_releases", help_text, labels=labels)
        for key, known in sorted(self._feeds.channels.items()):
            sequence.add_metric(key, known.sequence)
            unreadable.add_metric(key, len(known.broken))
        yield sequence
        yield unreadable

    def _lags(self) -> Iterator[Metric]:
        labels = (*_STREAM, "sidecar")
        help_text = "The last release whose bundle a sidecar runs; 0: unknown."
        sequence = _gauge("sidecar_sequence", help_text, labels=labels)
        help_text = "Seconds for which a sidecar has run a revision that is no longer active."
        lag = _gauge("sidecar_lag_seconds", help_text, labels=labels)
        now = time.time()
        for name, stream, poll in sorted(self._fleet.polls(), key=lambda entry: entry[:2]):
            sidecar = _labels(stream) | {"sidecar": name}
            active = self._feeds.activity.of(stream, poll.holds or "")
            behind = poll.since if active is None else active.until
            current = poll.canary or behind is None
            sequence.add_sample(sequence.name, sidecar, 0 if active is None else active.sequence)
            lag.add_sample(lag.name, sidecar, 0 if current else round(now - (behind or now), 3))
        yield sequence
        yield lag

    def _counter(self, name: str, help_text: str, labels: tuple[str, ...] = ()) -> Counter:
        return Counter(f"{_PREFIX}{name}", help_text, labels, registry=self.registry)


def _labels(stream: str) -> dict[str, str]:
    """The labels of a bundle of a channel, from its `stream_name`: a shard's name may contain any character."""
    return dict(zip((*_STREAM, "shard"), stream.split("/", 3), strict=False))


def _pairs(nested: Mapping[str, Mapping[str, int]]) -> list[tuple[tuple[str, ...], int]]:
    return [((one, other), number) for one, inner in sorted(nested.items()) for other, number in sorted(inner.items())]


def _counts(name: str, meaning: str, labels: tuple[str, ...], cells: Iterable[tuple[tuple[str, ...], int]]) -> Metric:
    """A counter, from the values of its labels with their numbers."""
    found = CounterMetricFamily(f"{_PREFIX}{name}", meaning, labels=labels)
    for values, number in cells:
        found.add_metric(values, number)
    return found


def _gauge(
    name: str, help_text: str, value: float | None = None, labels: tuple[str, ...] | None = None
) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{_PREFIX}{name}", help_text, value=value, labels=labels)
