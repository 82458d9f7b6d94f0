"""The metrics of a store's server, for Prometheus."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from privtab import moments
from privtab.errors import StoreError
from privtab.store.store import Outcome
from privtab.store.view import View

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX = "privtab_store_"


class Metrics(Collector):
    """Counts the changes that this server makes and refuses, and reads the store's last change when scraped."""

    def __init__(self, view: View) -> None:
        # Otherwise every counter has a second time series with its creation time.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._view = view
        self.registry = CollectorRegistry()
        self.changes = self._counter("changes", "Changes made through this server.")
        self.repeated = self._counter("repeated", "Requests that an earlier one with the same key had done.")
        self.refused = self._counter("refused", "Requests refused, by kind of error.", ("kind",))
        self.seconds = Histogram(
            f"{_PREFIX}change_seconds",
            "Time from a request for a change to its commit.",
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10),
            registry=self.registry,
        )
        self.registry.register(self)

    def record(self, outcome: Outcome, seconds: float) -> None:
        """Count what a request for a change did, and how long that took."""
        (self.repeated if outcome.repeated else self.changes).inc()
        self.seconds.observe(seconds)

    def text(self) -> bytes:
        """All metrics in the text format."""
        return generate_latest(self.registry)

    def collect(self) -> Iterator[Metric]:
        """What the database says, and what this server's decisions know of it."""
        number, lag, answers = 0, 0.0, 1
        known = self._view.known
        try:
            number = self._view.journal.head().number
            unseen = self._view.journal.log(known, 1)
            lag = max(0.0, time.time() - moments.exact(unseen[0].at) / 1e9) if unseen else 0.0
        except StoreError:
            answers = 0
        yield _gauge("database_ok", "1 while the database answers.", answers)
        if answers:
            yield _gauge("change_number", "The number of the last change of the store, by any process.", number)
            yield _gauge(
                "unseen_changes", "Changes that this server has not read since it was last asked.", number - known
            )
            yield _gauge("lag_seconds", "For how long the first of these has been there.", round(lag, 3))

    def _counter(self, name: str, help_text: str, labels: tuple[str, ...] = ()) -> Counter:
        return Counter(f"{_PREFIX}{name}", help_text, labels, registry=self.registry)


def _gauge(name: str, help_text: str, value: float) -> Any:
    return GaugeMetricFamily(f"{_PREFIX}{name}", help_text, value=value)
