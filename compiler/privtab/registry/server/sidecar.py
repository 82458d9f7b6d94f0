"""One sidecar: what it requested and reported, and how the server shows it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from privtab.registry.server.decisions import Counts
from privtab.registry.server.desired_revision import SidecarIdentity
from privtab.registry.server.sanitize import sanitize

MOST_COUNTED = 10
"""Maximum revisions of one sidecar whose decisions are counted."""
LONGEST_TEXT = 500
_AGENT = re.compile(r"Open[ -]Policy[ -]Agent/([\w.+-]{1,50})(?: |$)", re.ASCII)


@dataclass(slots=True)
class LastPoll:
    """The last request of a sidecar for one bundle."""

    desired: str
    holds: str | None
    """The revision that it runs: OPA sends an ETag only once a bundle is active."""
    canary: bool
    polled: float
    since: float
    """When it first had this revision."""
    waiting: int = 0
    replaced: bool = False
    """Whether it had another revision with the request before."""


@dataclass(slots=True)
class KnownSidecar:
    """A sidecar."""

    id: str
    named: bool = True
    """Whether its requests have a name; otherwise OPA generated an id, which is only in its reports."""
    reported_labels: Mapping[str, str] = field(default_factory=dict)
    """The labels of its last report."""
    header_labels: Mapping[str, str] = field(default_factory=dict)
    """The labels in the headers of its last request, which take precedence."""
    address: str = ""
    last_seen: float = 0.0
    last_report: float = 0.0
    bundles: dict[str, dict[str, Any]] = field(default_factory=dict)
    polls: dict[str, LastPoll] = field(default_factory=dict)
    requested_places: dict[str, float] = field(default_factory=dict)
    """Where it requested bundles, as `channel/system` whether or not that exists, and when."""
    counts: Counts = field(default_factory=lambda: Counts(most=MOST_COUNTED))
    characters: int = 0

    @property
    def labels(self) -> dict[str, str]:
        """The labels from its reports and from its headers."""
        return {**self.reported_labels, **self.header_labels}


def sidecar_identity(instance: str | None, labels: str | None, agent: str | None = None) -> SidecarIdentity:
    """The sidecar's identity from headers: a name, and labels as `app=x,zone=y`. Invalid parts are dropped.

    `agent`: OPA's User-Agent, whose version becomes a label, as in OPA's reports.
    """
    name = (instance or "").strip()
    found: dict[str, str] = {}
    for part in (labels or "")[:4000].split(",")[:50]:
        key, equals, value = part.partition("=")
        if equals and key.strip():
            found[sanitize(key.strip())] = sanitize(value.strip())
    if version := _AGENT.match(agent or ""):
        found["version"] = version[1]
    return SidecarIdentity(instance=name if len(name) <= 200 and name.isprintable() else "", labels=found)


def sidecar_json(known: KnownSidecar, polls: Mapping[str, LastPoll]) -> dict[str, Any]:
    """A sidecar as the server shows it; `polls`: its requests that count."""
    return {
        "id": known.id,
        "named": known.named,
        "labels": known.labels,
        "address": known.address,
        "last_seen": time_text(known.last_seen),
        "seconds_unseen": round(time.time() - known.last_seen, 1),
        "reported": time_text(known.last_report) if known.last_report else None,
        "current": bool(polls) and all(poll.holds == poll.desired for poll in polls.values()),
        "feeds": {
            stream: {
                "wanted": poll.desired,
                "holds": poll.holds,
                "since": time_text(poll.since),
                "asked": time_text(poll.polled),
                "canary": poll.canary,
                "waiting": poll.waiting > 0,
            }
            for stream, poll in sorted(polls.items())
        },
        "bundles": known.bundles,
        "decisions": known.counts.total(),
    }


_STATUS = {
    "active_revision": "revision",
    "last_successful_activation": "activated",
    "last_successful_download": "downloaded",
    "last_successful_request": "answered",
    "last_request": "requested",
    "type": "type",
    "size": "size",
    "code": "code",
    "message": "message",
    "http_code": "http_code",
}


def bundle_status(status: Mapping[str, Any]) -> dict[str, Any]:
    """OPA's status of a bundle with simpler names; OPA's zero time becomes null."""
    found: dict[str, Any] = {}
    for name, our_name in _STATUS.items():
        value = status.get(name)
        if isinstance(value, str):
            value = sanitize(value, LONGEST_TEXT, one_line=False) if not value.startswith("0001-01-01") else None
        elif isinstance(value, int | float) and not abs(value) < 2**63:  # Excludes NaN too.
            value = None
        found[our_name] = value if isinstance(value, str | int | float | None) and value != "" else None
    errors = status.get("errors")
    found["errors"] = [_error_text(error) for error in errors[:5]] if isinstance(errors, list) else []
    return found


def _error_text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return sanitize(text, LONGEST_TEXT, one_line=False)


def time_text(seconds: float) -> str:
    """Seconds since 1970 as RFC 3339 in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
