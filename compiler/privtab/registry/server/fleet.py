"""The sidecars, as they tell of themselves: by status reports, by what they ask for, by their decision logs.

Only in memory: they report again with every look for bundles, so that a server that was restarted knows them within the
time of one long poll.
"""

from __future__ import annotations

import json
import time
from collections import OrderedDict, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from privtab.errors import UsageError
from privtab.registry import names
from privtab.registry.server import decisions
from privtab.registry.server.decisions import CountedEvents, Counts, RunningCanary
from privtab.registry.server.desired_revision import DesiredRevision, SidecarIdentity
from privtab.registry.server.sanitize import sanitize, texts

MOST_SIDECARS = 10_000
MOST_REFUSED = 100
MOST_BUNDLES = 200
"""Of one sidecar."""
MOST_COUNTED = 10
"""Revisions of one sidecar whose decisions are counted."""
MOST_PLACES = 50
"""Channels that one sidecar, or one address, is known to have asked for."""
LONGEST_TEXT = 500
MOST_CHARACTERS = 64 << 20
"""Of what all sidecars told; who was not heard of for longest goes first."""


@dataclass(slots=True)
class LastPoll:
    """What a sidecar last asked for of one stream."""

    wanted: str
    holds: str | None
    """The revision that it runs: OPA names one only once it is active."""
    canary: bool
    at: float
    since: float
    """When it first held what it holds."""
    waiting: int = 0


@dataclass(slots=True)
class KnownSidecar:
    """A sidecar."""

    id: str
    named: bool = True
    """Whether it gave itself a name with its requests; else OPA made one up, and only its reports have it."""
    told: Mapping[str, str] = field(default_factory=dict)
    """The labels of its last report."""
    said: Mapping[str, str] = field(default_factory=dict)
    """Those of the headers of its last request, which go first."""
    address: str = ""
    seen: float = 0.0
    reported: float = 0.0
    bundles: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: dict[str, LastPoll] = field(default_factory=dict)
    sought: dict[str, float] = field(default_factory=dict)
    """Where it asked for bundles, as `channel/system`, whether there are such or not; and when."""
    counts: Counts = field(default_factory=lambda: Counts(most=MOST_COUNTED))
    characters: int = 0

    @property
    def labels(self) -> dict[str, str]:
        """As it reports them, and as its headers say them."""
        return {**self.told, **self.said}


class Fleet:
    """All of them; those that are not heard of for long are forgotten."""

    def __init__(self, *, forget: float = 900.0) -> None:
        self.started = time.time()
        self.counts = Counts()
        self._forget = forget
        # What an OPA calls itself is no name of a sidecar: none can be taken for another by it.
        self._known: OrderedDict[tuple[bool, str], KnownSidecar] = OrderedDict()
        self._nameless: OrderedDict[str, dict[str, float]] = OrderedDict()
        """By address, where those without a name asked for bundles."""
        self._tried: dict[str, tuple[str, Counts]] = {}
        """By `channel/system`: since when a canary is counted there, and what was decided."""
        self._characters = 0
        self._refused: deque[dict[str, Any]] = deque(maxlen=MOST_REFUSED)

    # --- what comes in ---

    def seeks(self, sidecar: SidecarIdentity, address: str, channel: str, system: str) -> None:
        """A sidecar looks for bundles of a channel, which there may be or not."""
        try:
            place = f"{names.checked('the channel', channel)}/{names.checked('the system', system)}"
        except UsageError:
            return
        if sidecar.instance:
            sought = self._see(sidecar, sidecar.instance, address).sought
        else:
            sought = self._nameless.setdefault(address, {})
            self._nameless.move_to_end(address)
            while len(self._nameless) > MOST_SIDECARS:
                self._nameless.popitem(last=False)
        sought.pop(place, None)
        sought[place] = time.time()
        while len(sought) > MOST_PLACES:
            del sought[next(iter(sought))]

    def asks(
        self, sidecar: SidecarIdentity, address: str, wanted: DesiredRevision, held: str | None
    ) -> LastPoll | None:
        """A sidecar looks for a bundle and shows the ETag of what it runs."""
        if not sidecar.instance:
            return None
        known = self._see(sidecar, sidecar.instance, address)
        holds = sanitize((held or "").strip('"').rpartition(".")[0]) or None
        stream = f"{wanted.channel.channel}/{wanted.channel.system}/{wanted.kind}"
        stream += f"/{wanted.shard}" if wanted.shard else ""
        before = known.asked.get(stream)
        now = time.time()
        if before is None:
            if len(known.asked) >= MOST_BUNDLES:
                return None
            before = known.asked[stream] = LastPoll(wanted.id, holds, wanted.canary, now, now)
        if before.holds != holds:
            before.since = now
        before.wanted, before.holds, before.canary, before.at = wanted.id, holds, wanted.canary, now
        return before

    def reports(self, sidecar: SidecarIdentity, address: str, report: Any) -> bool:
        """OPA's status; False where it is none."""
        if not isinstance(report, dict):
            return False
        labels = texts(report.get("labels"))
        name = sidecar.instance or labels.get("id", "")
        if not name:
            return False
        known = self._see(sidecar, name, address, labels)
        known.reported = time.time()
        bundles = report.get("bundles")
        if isinstance(bundles, dict):
            known.bundles = {
                sanitize(str(bundle)): _bundle(status)
                for bundle, status in list(bundles.items())[:MOST_BUNDLES]
                if isinstance(status, dict)
            }
        self._weigh(known)
        return True

    def decided(self, sidecar: SidecarIdentity, address: str, events: Any) -> bool:
        """OPA's decision log; False where it is none."""
        return self.counted(sidecar, address, decisions.tally(events))

    def counted(
        self,
        sidecar: SidecarIdentity,
        address: str,
        tallied: Mapping[str, CountedEvents] | None,
        begun: Collection[RunningCanary] = (),
    ) -> bool:
        """A decision log that `decisions.tally` went through, with the same canaries; False where it was none."""
        self._try(begun)
        for own, one in (tallied or {}).items():
            name = sidecar.instance or own
            known = self._see(sidecar, name, address, one.labels) if name else None
            for (by, rule, answer), number in one.counts.items():
                for revision in by:
                    self.counts.add(revision, rule, answer, number)
                    if known is not None:
                        known.counts.add(revision, "", answer, number)
            for (place, by, rule, answer), number in one.tried.items():
                # A revision may run in several channels; whose sidecar this is, its name tells.
                if place in self._tried and (known is None or not known.named or place in known.sought):
                    for revision in by:
                        self._tried[place][1].add(revision, rule, answer, number)
        return tallied is not None

    def _try(self, begun: Collection[RunningCanary]) -> None:
        """Count for these canaries from now on, and for no others."""
        wanted = {canary.place: canary.since for canary in begun}
        for place in [place for place, (since, _) in self._tried.items() if wanted.get(place) != since]:
            del self._tried[place]
        for place, since in wanted.items():
            self._tried.setdefault(place, (since, Counts()))

    def refused(
        self, sidecar: SidecarIdentity, address: str, path: str, status: int, why: str, token: str = ""
    ) -> None:
        """Somebody was turned away; `token`: whose token they showed, where it is known."""
        told = {
            "instance": sidecar.instance,
            "token": token,
            "address": address,
            "path": path[:200],
            "status": status,
            "why": why,
        }
        for before in self._refused:
            if all(before[name] == value for name, value in told.items()):
                before["times"] += 1
                before["last"] = time.time()
                return
        self._refused.append({**told, "times": 1, "last": time.time()})

    def touch(self, sidecar: SidecarIdentity) -> None:
        """A sidecar is there still."""
        known = self._known.get((True, sidecar.instance))
        if known is not None:
            known.seen = time.time()
            self._known.move_to_end((True, known.id))

    # --- what is told ---

    def sidecars(self, places: Mapping[str, Collection[str]] = MappingProxyType({})) -> list[dict[str, Any]]:
        """All that are known, by name. `places`: where each revision runs or ran, as `channel/system`."""
        self._clean()
        found = []
        for known in sorted(self._known.values(), key=lambda known: (known.id, known.named)):
            here, certain = self._reads(known, places)
            found.append(_told(known, self._live(known)) | {"reads": here, "certain": certain})
        return found

    def trials(self, begun: Collection[RunningCanary]) -> dict[str, dict[str, Any]]:
        """What was decided since canaries began that are under way, by `channel/system`."""
        self._try(begun)
        return {
            place: {"since": since, "decisions": counts.to_json()} for place, (since, counts) in self._tried.items()
        }

    def turned_away(self) -> list[dict[str, Any]]:
        """Who was refused, the last one last."""
        return [
            {**one, "last": _time(one["last"])} for one in sorted(self._refused, key=lambda refused: refused["last"])
        ]

    def holding(self) -> dict[tuple[str, str], int]:
        """(stream, revision) → how many sidecars run it; "" for none."""
        self._clean()
        found: dict[tuple[str, str], int] = {}
        for known in self._known.values():
            for stream, asked in self._live(known).items():
                key = stream, asked.holds or ""
                found[key] = found.get(key, 0) + 1
        return found

    def _see(
        self, sidecar: SidecarIdentity, name: str, address: str, told: Mapping[str, str] | None = None
    ) -> KnownSidecar:
        key = bool(sidecar.instance), name
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = KnownSidecar(name, named=bool(sidecar.instance))
        known.said = sidecar.labels
        known.told = told or known.told
        known.address, known.seen = address, time.time()
        self._known.move_to_end(key)
        self._weigh(known)
        return known

    def _weigh(self, known: KnownSidecar) -> None:
        """Bound what all of them take together."""
        parts: list[Mapping[str, Any]] = [known.told, known.said, known.sought, *known.bundles.values()]
        characters = len(known.id) + sum(len(name) + len(str(text)) for part in parts for name, text in part.items())
        self._characters += characters - known.characters
        known.characters = characters
        while len(self._known) > MOST_SIDECARS or (self._characters > MOST_CHARACTERS and len(self._known) > 1):
            self._characters -= self._known.popitem(last=False)[1].characters

    def _clean(self) -> None:
        oldest = time.time() - self._forget
        while self._known:
            key, known = next(iter(self._known.items()))
            if known.seen > oldest or any(asked.waiting for asked in known.asked.values()):
                return
            self._characters -= known.characters
            del self._known[key]

    def _live(self, known: KnownSidecar) -> dict[str, LastPoll]:
        """What it asks for still: it may have been told to read another channel."""
        oldest = time.time() - self._forget
        return {stream: one for stream, one in known.asked.items() if one.waiting or one.at > oldest}

    def _reads(self, known: KnownSidecar, places: Mapping[str, Collection[str]]) -> tuple[list[str], bool]:
        """Which channels a sidecar reads, as `channel/system`, and whether that is sure.

        By what it asked for under its name. Without one its reports are known, and what somebody without a name asked for
        from its address; and by its revisions where they run. Where that leaves several channels of a system, nobody can say.
        """
        oldest = time.time() - self._forget
        sought = known.sought if known.named else self._nameless.get(known.address, {})
        asked = {place for place, at in sought.items() if at > oldest}
        asked |= {"/".join(stream.split("/", 2)[:2]) for stream, one in known.asked.items() if one.waiting}
        if known.named and asked:
            return sorted(asked), True
        runs = [str(one["revision"]) for one in known.bundles.values() if one.get("revision")]
        told = {place for revision in runs for place in places.get(revision, ())}
        if not told:
            return sorted(asked), len(asked) == 1
        found: list[list[str]] = []
        for system in sorted({place.partition("/")[2] for place in told}):
            here, there = ({place for place in some if place.partition("/")[2] == system} for some in (asked, told))
            found.append(sorted(here & there or here or there))
        return sorted(place for some in found for place in some), all(len(some) == 1 for some in found)


def sidecar(instance: str | None, labels: str | None) -> SidecarIdentity:
    """Who asks, from the headers: a name, and labels as `app=x,zone=y`. What is none is left out."""
    name = (instance or "").strip()
    found: dict[str, str] = {}
    for part in (labels or "")[:4000].split(",")[:50]:
        key, equals, value = part.partition("=")
        if equals and key.strip():
            found[sanitize(key.strip())] = sanitize(value.strip())
    return SidecarIdentity(instance=name if len(name) <= 200 and name.isprintable() else "", labels=found)


def _told(known: KnownSidecar, live: Mapping[str, LastPoll]) -> dict[str, Any]:
    return {
        "id": known.id,
        "named": known.named,
        "labels": known.labels,
        "address": known.address,
        "last_seen": _time(known.seen),
        "seconds_unseen": round(time.time() - known.seen, 1),
        "reported": _time(known.reported) if known.reported else None,
        "current": bool(live) and all(asked.holds == asked.wanted for asked in live.values()),
        "feeds": {
            stream: {
                "wanted": asked.wanted,
                "holds": asked.holds,
                "since": _time(asked.since),
                "asked": _time(asked.at),
                "canary": asked.canary,
                "waiting": asked.waiting > 0,
            }
            for stream, asked in sorted(live.items())
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


def _bundle(status: Mapping[str, Any]) -> dict[str, Any]:
    """OPA's status of a bundle under plain names; times that never were are null."""
    found: dict[str, Any] = {}
    for name, ours in _STATUS.items():
        value = status.get(name)
        if isinstance(value, str):
            value = sanitize(value, LONGEST_TEXT, one_line=False) if not value.startswith("0001-01-01") else None
        elif isinstance(value, int | float) and not abs(value) < 2**63:  # Nor is NaN.
            value = None
        found[ours] = value if isinstance(value, str | int | float | None) and value != "" else None
    errors = status.get("errors")
    found["errors"] = [_short(error) for error in errors[:5]] if isinstance(errors, list) else []
    return found


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return sanitize(text, LONGEST_TEXT, one_line=False)


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
