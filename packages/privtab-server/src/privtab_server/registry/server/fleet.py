"""The known sidecars, from their status reports, requests for bundles, and decision logs.

Kept only in memory: they report again with every request for bundles, so that a restarted server knows them within the
time of one long poll.
"""

from __future__ import annotations

import json
import time
from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from privtab.base import RecentlyUsed, UsageError
from privtab_server.registry import names
from privtab_server.registry.nodes import timestamp
from privtab_server.registry.server.decisions import CountedEvents, Counts, RunningCanary
from privtab_server.registry.server.sidecar import DesiredRevision, SidecarIdentity, sanitize, stream_name, valid_labels

MOST_COUNTED = 10
"""Maximum revisions of one sidecar whose decisions are counted."""
LONGEST_TEXT = 500


@dataclass(slots=True)
class LastPoll:
    """The last request of a sidecar for one bundle."""

    desired: str
    holds: str | None
    """The revision that it runs: OPA sends an ETag only once a bundle is active."""
    canary: bool
    polled: float
    since: float
    """The time when the sidecar first had this revision."""
    waiting: int = 0
    replaced: bool = False
    """True if it had another revision with the request before."""


@dataclass(slots=True)
class KnownSidecar:
    """A sidecar that has requested bundles or sent reports."""

    id: str
    named: bool = True
    """True if its requests have a name; otherwise OPA generated an id, which is only in its reports."""
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
    """Places where the sidecar requested bundles, as `channel/system` whether or not that exists, and when."""
    counts: Counts = field(default_factory=lambda: Counts(most=MOST_COUNTED))

    @property
    def characters(self) -> int:
        """The size of what sidecars can send: labels, places and reports."""
        labels = self.reported_labels, self.header_labels
        kept: tuple[Mapping[str, Any], ...] = (*labels, self.requested_places, *self.bundles.values())
        return len(self.id) + sum(len(name) + len(str(text)) for part in kept for name, text in part.items())

    @property
    def labels(self) -> dict[str, str]:
        """The labels from its reports and from its headers."""
        return {**self.reported_labels, **self.header_labels}


def sidecar_json(known: KnownSidecar, polls: Mapping[str, LastPoll]) -> dict[str, Any]:
    """A sidecar as the server shows it; `polls`: its requests that count."""
    return {
        "id": known.id,
        "named": known.named,
        "labels": known.labels,
        "address": known.address,
        "last_seen": timestamp(known.last_seen),
        "seconds_unseen": round(time.time() - known.last_seen, 1),
        "reported": timestamp(known.last_report) if known.last_report else None,
        "current": bool(polls) and all(poll.holds == poll.desired for poll in polls.values()),
        "feeds": {
            stream: {
                "wanted": poll.desired,
                "holds": poll.holds,
                "since": timestamp(poll.since),
                "asked": timestamp(poll.polled),
                "canary": poll.canary,
                "waiting": poll.waiting > 0,
            }
            for stream, poll in sorted(polls.items())
        },
        "bundles": known.bundles,
        "decisions": known.counts.total(),
    }


STATUS = {
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
"""Fields of a bundle in OPA's status, and their names here."""


def bundle_status(status: Mapping[str, Any]) -> dict[str, Any]:
    """OPA's status of a bundle with simpler names; OPA's zero time becomes null."""
    found: dict[str, Any] = {}
    for name, our_name in STATUS.items():
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


MOST_SIDECARS = 10_000
MOST_REFUSED = 100
MOST_BUNDLES = 200
"""Maximum number of bundles of one sidecar."""
MOST_PLACES = 50
"""Maximum channels recorded for one sidecar or one address."""
MOST_CHARACTERS = 64 << 20
"""Maximum characters kept of all reports; the sidecars unseen for longest are dropped first."""


class FleetTracker:
    """All known sidecars; sidecars unseen for long are forgotten."""

    def __init__(self, *, forget: float = 900.0) -> None:
        self.started = time.time()
        self.counts = Counts()
        self.rules = Counts()
        """Counts of all revisions together: each decision once."""
        self._forget = forget
        # The key says whether the name was given or generated by OPA, so that one cannot be taken for the other.
        self._known: RecentlyUsed[tuple[bool, str], KnownSidecar] = RecentlyUsed(
            MOST_SIDECARS, weight=lambda known: known.characters, heaviest=MOST_CHARACTERS
        )
        self._nameless: RecentlyUsed[str, dict[str, float]] = RecentlyUsed(MOST_SIDECARS)
        """Places where sidecars without a name requested bundles, by address."""
        self._canary_decisions: dict[str, tuple[str, Counts]] = {}
        """Start of the count of a canary, and its decisions, by `channel/system`."""
        self._refused: deque[dict[str, Any]] = deque(maxlen=MOST_REFUSED)

    # --- input ---

    def record_channel_request(self, identity: SidecarIdentity, address: str, channel: str, system: str) -> None:
        """Record that a sidecar requests bundles of a channel, whether or not it exists."""
        try:
            place = f"{names.checked('the channel', channel)}/{names.checked('the system', system)}"
        except UsageError:
            return
        if identity.instance:
            requested = self._update(identity, identity.instance, address).requested_places
        else:
            requested = self._nameless.get(address) or {}
            self._nameless.put(address, requested)
        requested.pop(place, None)
        requested[place] = time.time()
        while len(requested) > MOST_PLACES:
            del requested[next(iter(requested))]

    def record_poll(
        self, identity: SidecarIdentity, address: str, desired: DesiredRevision, held_etag: str | None
    ) -> LastPoll | None:
        """Record a request for a bundle with the ETag of the sidecar's active bundle; None for a sidecar without a name."""
        if not identity.instance:
            return None
        known = self._update(identity, identity.instance, address)
        revision = sanitize((held_etag or "").strip('"').rpartition(".")[0]) or None
        stream = stream_name(desired.channel, desired.kind, desired.shard)
        poll = known.polls.get(stream)
        now = time.time()
        if poll is None:
            if len(known.polls) >= MOST_BUNDLES:
                return None
            poll = known.polls[stream] = LastPoll(desired.id, revision, desired.canary, now, now)
        poll.replaced = None not in (poll.holds, revision) and poll.holds != revision
        if poll.holds != revision:
            poll.since = now
        poll.desired, poll.holds, poll.canary, poll.polled = desired.id, revision, desired.canary, now
        return poll

    def record_status(self, identity: SidecarIdentity, address: str, report: Any) -> bool:
        """Record OPA's status; returns False if it is not one."""
        if not isinstance(report, dict):
            return False
        labels = valid_labels(report.get("labels"))
        name = identity.instance or labels.get("id", "")
        if not name:
            return False
        known = self._update(identity, name, address, labels)
        known.last_report = time.time()
        bundles = report.get("bundles")
        if isinstance(bundles, dict):
            known.bundles = {
                sanitize(str(bundle)): bundle_status(status)
                for bundle, status in list(bundles.items())[:MOST_BUNDLES]
                if isinstance(status, dict)
            }
        self._known.put((known.named, known.id), known)
        return True

    def record_counts(
        self,
        identity: SidecarIdentity,
        address: str,
        counts_by_id: Mapping[str, CountedEvents] | None,
        canaries: Collection[RunningCanary] = (),
    ) -> bool:
        """Add the result of `decisions.count_decisions` for the same canaries; returns False if it was not a decision log."""
        self._count_canaries(canaries)
        for reported_id, events in (counts_by_id or {}).items():
            name = identity.instance or reported_id
            known = self._update(identity, name, address, events.labels) if name else None
            for (revisions, rule, answer), number in events.counts.items():
                self.rules.add("", rule, answer, number)
                for revision in revisions:
                    self.counts.add(revision, rule, answer, number)
                    if known is not None:
                        known.counts.add(revision, "", answer, number)
            for (place, revisions, rule, answer), number in events.canary_counts.items():
                # A revision may be active in several channels; the requests of a named sidecar tell which one it reads.
                if place in self._canary_decisions and (
                    known is None or not known.named or place in known.requested_places
                ):
                    for revision in revisions:
                        self._canary_decisions[place][1].add(revision, rule, answer, number)
        return counts_by_id is not None

    def _count_canaries(self, canaries: Collection[RunningCanary]) -> None:
        """Count for these canaries only, from now on."""
        starts = {canary.place: canary.since for canary in canaries}
        for place in [place for place, (since, _) in self._canary_decisions.items() if starts.get(place) != since]:
            del self._canary_decisions[place]
        for place, since in starts.items():
            self._canary_decisions.setdefault(place, (since, Counts()))

    def record_refusal(
        self, identity: SidecarIdentity, address: str, path: str, status: int, why: str, token: str = ""
    ) -> None:
        """Record a refused request; `token`: the name of its token, if known."""
        sender = {"instance": identity.instance, "token": token, "address": address}
        entry = {**sender, "path": path[:200], "status": status, "why": why}
        for previous in self._refused:
            if entry.items() <= previous.items():
                previous |= {"times": previous["times"] + 1, "last": time.time()}
                return
        self._refused.append({**entry, "times": 1, "last": time.time()})

    def touch(self, identity: SidecarIdentity) -> None:
        """Record that a sidecar is still present."""
        known = self._known.get((True, identity.instance))
        if known is not None:
            known.last_seen = time.time()

    # --- output ---

    def sidecars(self, places: Mapping[str, Collection[str]] = MappingProxyType({})) -> list[dict[str, Any]]:
        """All known sidecars, sorted by name. `places`: where each revision is or was active, as `channel/system`."""
        self._forget_silent()
        found = []
        for known in sorted(self._known.values(), key=lambda known: (known.id, known.named)):
            reads, certain = self._reads(known, places)
            found.append(sidecar_json(known, self._current_polls(known)) | {"reads": reads, "certain": certain})
        return found

    def canaries_in_progress(self, canaries: Collection[RunningCanary]) -> dict[str, dict[str, Any]]:
        """The decisions since the begin of each canary in progress, by `channel/system`."""
        self._count_canaries(canaries)
        counted = self._canary_decisions.items()
        return {place: {"since": since, "decisions": counts.to_json()} for place, (since, counts) in counted}

    def refusals(self) -> list[dict[str, Any]]:
        """The refused requests, most recent last."""
        refused = sorted(self._refused, key=lambda entry: entry["last"])
        return [{**entry, "last": timestamp(entry["last"])} for entry in refused]

    def polls(self) -> Iterator[tuple[str, str, LastPoll]]:
        """The named sidecars, the bundles that each requests, as `channel/system/kind`, and its last request for it."""
        self._forget_silent()
        for known in self._known.values():
            if known.named:
                for stream, poll in self._current_polls(known).items():
                    yield known.id, stream, poll

    def sidecars_by_revision(self) -> dict[tuple[str, str], int]:
        """(bundle of a channel, revision) → number of sidecars that run it; "" for no revision."""
        self._forget_silent()
        polls = (poll for known in self._known.values() for poll in self._current_polls(known).items())
        return Counter((stream, poll.holds or "") for stream, poll in polls)

    def _update(
        self, identity: SidecarIdentity, name: str, address: str, labels: Mapping[str, str] | None = None
    ) -> KnownSidecar:
        key = bool(identity.instance), name
        known = self._known.get(key)
        if known is None:
            known = KnownSidecar(name, named=bool(identity.instance))
        known.header_labels = identity.labels
        known.reported_labels = labels or known.reported_labels
        known.address, known.last_seen = address, time.time()
        self._known.put(key, known)
        return known

    def _forget_silent(self) -> None:
        oldest = time.time() - self._forget
        for key, known in list(self._known.items()):
            if known.last_seen > oldest or any(poll.waiting for poll in known.polls.values()):
                return
            self._known.pop(key)

    def _current_polls(self, known: KnownSidecar) -> dict[str, LastPoll]:
        """Return the sidecar's current requests: it may have been configured to read another channel."""
        oldest = time.time() - self._forget
        return {stream: poll for stream, poll in known.polls.items() if poll.waiting or poll.polled > oldest}

    def _reads(self, known: KnownSidecar, places: Mapping[str, Collection[str]]) -> tuple[list[str], bool]:
        """Return the channels that a sidecar reads, as `channel/system`, and whether that is certain.

        A named sidecar reads the channels that it requests. Without a name, its revisions are matched with the channels in which they are
        active and with nameless requests from its address. If several channels of a system remain, it is uncertain.
        """
        oldest = time.time() - self._forget
        requested = known.requested_places if known.named else self._nameless.peek(known.address) or {}
        requested_places = {place for place, requested_at in requested.items() if requested_at > oldest}
        waiting = (stream.split("/", 2) for stream, entry in known.polls.items() if entry.waiting)
        requested_places |= {f"{channel}/{system}" for channel, system, _ in waiting}
        if known.named and requested_places:
            return sorted(requested_places), True
        revisions = [str(entry["revision"]) for entry in known.bundles.values() if entry.get("revision")]
        active_places = {place for revision in revisions for place in places.get(revision, ())}
        if not active_places:
            return sorted(requested_places), len(requested_places) == 1
        found: list[str] = []
        systems = {place.partition("/")[2] for place in active_places}
        for system in systems:
            by_request, by_revision = (
                {place for place in candidates if place.partition("/")[2] == system}
                for candidates in (requested_places, active_places)
            )
            found += by_request & by_revision or by_request or by_revision
        return sorted(found), len(found) == len(systems)
