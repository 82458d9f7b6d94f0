"""Figures of a registry server in the text format of Prometheus."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from privtab.registry.nodes import Channel
from privtab.registry.server.feeds import Feeds
from privtab.registry.server.fleet import Fleet

_STREAM = ("channel", "system", "kind")
COUNTERS: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "served": ("privtab_registry_bundles_served_total", "Bundles sent.", (*_STREAM, "mode")),
    "bytes": ("privtab_registry_bytes_sent_total", "Bytes of bundles sent.", (*_STREAM, "mode")),
    "not_modified": ("privtab_registry_not_modified_total", "Requests that nothing new was there for.", _STREAM),
    "reports": ("privtab_registry_status_reports_total", "Status reports taken.", ()),
    "logs": ("privtab_registry_decision_log_uploads_total", "Uploads of decision logs taken.", ()),
    "refused": ("privtab_registry_refused_total", "Requests refused.", ("status",)),
}
"""Key of a counter → its name, what it says, its labels."""


def text(feeds: Feeds, fleet: Fleet, counted: Mapping[tuple[str, ...], int], polls: int) -> str:
    """All figures."""
    return "\n".join([*_counters(counted), *_gauges(feeds, fleet, polls), *_decisions(fleet)]) + "\n"


def _counters(counted: Mapping[tuple[str, ...], int]) -> Iterator[str]:
    for key, (name, says, labels) in COUNTERS.items():
        yield from _head(name, says, "counter")
        found = {values[1:]: number for values, number in sorted(counted.items()) if values[0] == key}
        if not labels:
            found = found or {(): 0}
        for values, number in found.items():
            yield _line(name, dict(zip(labels, values, strict=True)), number)


def _gauges(feeds: Feeds, fleet: Fleet, polls: int) -> Iterator[str]:
    yield from _one("long_polls", "Sidecars that wait for something new.", polls)
    yield from _one("storage_ok", "1 while the storage answers.", int(feeds.trouble is None))
    stale = time.time() - feeds.trouble.since if feeds.trouble else 0
    yield from _one("storage_stale_seconds", "For how long the storage has not answered.", round(stale, 1))
    yield from _one("storage_errors_total", "Times that the storage did not answer.", feeds.failures, "counter")
    name = "privtab_registry_channel_sequence"
    yield from _head(name, "Releases of a channel.", "gauge")
    for known in _channels(feeds):
        yield _line(name, {"channel": known.channel, "system": known.system}, known.sequence)
    name = "privtab_registry_unreadable_switches"
    yield from _head(name, "Releases of a channel, from what runs on, that are there and cannot be read.", "gauge")
    for known in _channels(feeds):
        yield _line(name, {"channel": known.channel, "system": known.system}, len(known.broken))
    name = "privtab_registry_sidecars"
    yield from _head(name, "Sidecars by what they run; revision is empty where they run nothing yet.", "gauge")
    for (stream, revision), number in sorted(fleet.holding().items()):
        channel, system, kind, *shard = stream.split("/", 3)  # A shard's name may hold anything.
        labels = {"channel": channel, "system": system, "kind": kind, "revision": revision}
        yield _line(name, labels | ({"shard": shard[0]} if shard else {}), number)


def _decisions(fleet: Fleet) -> Iterator[str]:
    name = "privtab_registry_decisions_total"
    yield from _head(
        name, "Decisions in the logs that sidecars sent; each counts for its policy and for its state.", "counter"
    )
    for revision, answers in sorted(fleet.counts.total().items()):
        for answer, number in sorted(answers.items()):
            yield _line(name, {"revision": revision, "answer": answer}, number)


def _channels(feeds: Feeds) -> list[Channel]:
    return [channel for _, channel in sorted(feeds.channels.items())]


def _one(name: str, says: str, value: float, kind: str = "gauge") -> Iterator[str]:
    yield from _head(f"privtab_registry_{name}", says, kind)
    yield _line(f"privtab_registry_{name}", {}, value)


def _head(name: str, says: str, kind: str) -> Iterator[str]:
    yield f"# HELP {name} {says}"
    yield f"# TYPE {name} {kind}"


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    return f"{name}{{{shown}}} {value}" if shown else f"{name} {value}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
