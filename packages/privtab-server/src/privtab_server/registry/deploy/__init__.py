"""Deploy policies to sidecars and roll back: gates, releases, canaries, and the status of the fleet.

Here are the values that sidecars report, produced by readers and used by watches and tables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, TypeAlias

BundleKind: TypeAlias = Literal["policy", "state"]
KINDS: tuple[BundleKind, ...] = ("policy", "state")
OLDEST_VERIFIER = (1, 21, 3)
"""The first OPA that verifies every bundle whose configuration asks for it (GHSA-g2pf-6v5v-qcc8)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedBundle:
    """One bundle of a sidecar: its name in OPA's configuration, the active revision, since when, and the last error."""

    name: str
    revision: str | None
    since: datetime | None = None
    problem: str | None = None
    tried: str | None = None
    """The time of the sidecar's last request for the bundle, as it reports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """One bundle that a sidecar requests from a channel, and the revision that it runs."""

    channel: str
    system: str
    kind: str
    holds: str | None
    canary: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sidecar:
    """One OPA, from its report or its status API; `problem`: why it could not be read."""

    id: str
    labels: Mapping[str, str] = field(default_factory=dict)
    bundles: tuple[LoadedBundle, ...] = ()
    seen: datetime | None = None
    url: str | None = None
    problem: str | None = None
    feeds: tuple[Feed, ...] = ()
    """The sidecar's requests, if the server knows them."""
    places: tuple[str, ...] | None = None
    """Channels that the sidecar reads, as `channel/system`; None if unknown."""
    certain: bool = True
    """True if `places` is certain: for sidecars without a name, the server may not be able to tell."""

    @property
    def doubt(self) -> str:
        """A message if it is uncertain what it reads; empty otherwise."""
        if self.certain:
            return ""
        places = " or ".join(self.places or ()) or "no channel that is known"
        return f"cannot be told apart from others, it may read {places}: give it `X-Privtab-Instance`"

    def runs(self, revision: str) -> bool:
        """Return whether a bundle of that revision is active, by the sidecar's report or its request for a newer one."""
        requested = any(feed.holds == revision for feed in self.feeds)
        return requested or any(bundle.revision == revision for bundle in self.bundles)

    def canary(self, channel: str, system: str) -> bool:
        """Return whether the sidecar is served a canary."""
        return any(feed.canary for feed in self.feeds if (feed.channel, feed.system) == (channel, system))

    def reads(self, channel: str, system: str | None) -> bool:
        """Return whether the sidecar's bundles come from a channel; True if that is unknown."""
        if self.places is None and not self.feeds:
            return True
        places = (f"{feed.channel}/{feed.system}" for feed in self.feeds) if self.places is None else self.places
        read = (place.partition("/") for place in places)
        return any(read_channel == channel and system in {None, read_system} for read_channel, _, read_system in read)

    def loaded(self, kind: str, system: str) -> LoadedBundle | None:
        """The bundle whose name says that it has the policy or the state of a system, or None.

        If OPA has bundles of several systems, the name of the bundle contains the system's name.
        """
        named = [bundle for bundle in self.bundles if kind in re.split(r"[/_\s-]", bundle.name)]
        return next((bundle for bundle in named if system in bundle.name), named[0] if len(named) == 1 else None)

    @property
    def verifier_problem(self) -> str:
        """Return why the sidecar's OPA may accept unsigned bundles, by its reported version; empty if it does not."""
        version = self.labels.get("version", "")
        oldest = ".".join(map(str, OLDEST_VERIFIER))
        found = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
        if found is None:
            return f"does not report its version: to verify signatures, it must be OPA {oldest} or later"
        unsafe = (
            f"is OPA {version}, which may accept unsigned bundles (GHSA-g2pf-6v5v-qcc8): update it to {oldest} or later"
        )
        return "" if tuple(map(int, found.groups())) >= OLDEST_VERIFIER else unsafe

    @property
    def problems(self) -> tuple[str, ...]:
        """The problems, as text."""
        sidecar_problem = [self.problem] if self.problem else []
        return (*sidecar_problem, *(f"{bundle.name}: {bundle.problem}" for bundle in self.bundles if bundle.problem))


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleCount:
    """Numbers of decisions by one rule."""

    allowed: int = 0
    denied: int = 0
    undefined: int = 0

    @property
    def total(self) -> int:
        """The number of decisions."""
        return self.allowed + self.denied + self.undefined

    def share(self, of: Literal["allowed", "undefined"]) -> float:
        """The share of one kind of answer, from 0 to 1."""
        part: int = getattr(self, of)
        return part / self.total if self.total else 0.0

    def __add__(self, other: RuleCount) -> RuleCount:
        return RuleCount(**{name: getattr(self, name) + getattr(other, name) for name in RuleCount.__slots__})


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionCount(RuleCount):
    """The number of logged decisions for one revision of a policy or a state and one rule."""

    revision: str
    rule: str
    kind: str = ""
    """The kind of the revision: `policy`, `state`, `shard`; empty if the server does not know it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """All known sidecars, and the counts of decisions; `problem`: why this may be outdated."""

    sidecars: tuple[Sidecar, ...] = ()
    decision_counts: tuple[DecisionCount, ...] = ()
    problem: str | None = None
    started: str = ""
    """The time when the server started to count decisions."""
    canaries_in_progress: Mapping[str, tuple[str, tuple[DecisionCount, ...]]] = field(default_factory=dict)
    """Start of the canary, and the decisions of all sidecars since then, by `channel/system`."""
    trouble: tuple[str, ...] = ()
    """Problems with the histories of channels, from the server."""
    signed: bool = False
    """True if sidecars must verify signatures: the server's registry accepts signed bundles only, or an old OPA requires them."""
    refused: tuple[str, ...] = ()
    """Refused requests to the server, most recent last: `web-1: 401 … (/status, 12 times, last at …)`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredRevisions:
    """The revisions that sidecars should run; None: any."""

    policy: str | None = None
    state: str | None = None
    outdated: frozenset[str] = frozenset()
    """Revisions that they must no longer run. A sidecar may load only some shards of a state, none of which may be outdated."""
    signed: bool = False
    """True if they must verify signatures."""

    @property
    def revisions(self) -> tuple[str, ...]:
        """The revisions that each sidecar should run."""
        return tuple(revision for revision in (self.policy, self.state) if revision)


class SidecarProgress(StrEnum):
    """The progress of a sidecar towards the revisions that it should run."""

    ACTIVE = "active"
    WAITING = "waiting"
    REFUSED = "refused"
    """The sidecar refuses a bundle and reports why."""
    UNSAFE = "unsafe"
    """The sidecar must verify signatures, and its version may accept unsigned bundles."""
    SILENT = "silent"
    """The sidecar has not been seen for long."""
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarStatus:
    """A sidecar and its progress; `why` says what it runs instead, or why it refuses the bundle."""

    sidecar: Sidecar
    standing: SidecarProgress
    why: str = ""

    def json(self) -> dict[str, Any]:
        """As JSON."""
        return {"standing": str(self.standing), "why": self.why or None, **sidecar_json(self.sidecar)}


def sidecar_json(sidecar: Sidecar) -> dict[str, Any]:
    """A sidecar as JSON."""
    return {
        "id": sidecar.id,
        "url": sidecar.url,
        "labels": dict(sidecar.labels),
        "channels": sorted({f"{feed.channel}/{feed.system}" for feed in sidecar.feeds} | set(sidecar.places or ())),
        "certain": sidecar.certain,
        "canary": any(feed.canary for feed in sidecar.feeds),
        "last_seen": when(sidecar.seen),
        "problem": sidecar.problem,
        "bundles": {
            bundle.name: {"revision": bundle.revision, "active_since": when(bundle.since), "problem": bundle.problem}
            for bundle in sidecar.bundles
        },
    }


def when(moment: datetime | None) -> str | None:
    """A time as text, to the second."""
    return None if moment is None else moment.isoformat(timespec="seconds")


def parse_time(text: object) -> datetime | None:
    """Parse a time in RFC 3339, with any number of decimals; None for OPA's `never` and anything else."""
    if not isinstance(text, str) or text.startswith("0001-"):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


def sidecar_from_status(id_: str, status: Mapping[str, Any], **fields: Any) -> Sidecar:
    """A sidecar from the document of OPA's status API; parts of an unexpected shape are skipped."""
    bundles = sorted(mapping(status.get("bundles")).items())
    return Sidecar(
        id=id_,
        labels={str(name): str(value) for name, value in mapping(status.get("labels")).items()},
        bundles=tuple(_bundle_from_status(str(name), found) for name, found in bundles if isinstance(found, Mapping)),
        **fields,
    )


def mapping(value: Any) -> Mapping[str, Any]:
    """A value of JSON that should be an object; empty for any other."""
    return value if isinstance(value, Mapping) else {}


def _bundle_from_status(name: str, status: Mapping[str, Any]) -> LoadedBundle:
    return LoadedBundle(
        name=name,
        revision=str(status.get("active_revision") or "") or None,
        since=parse_time(status.get("last_successful_activation")),
        problem=problem_of(status),
        tried=str(status.get("last_request") or "") or None,
    )


def problem_of(status: Mapping[str, Any]) -> str | None:
    """Return the reason why OPA refuses a bundle; the last good one stays active."""
    message = status.get("message")
    if not status.get("code") and not message:
        return None
    errors = status.get("errors")
    details = map(_error_text, errors[:2] if isinstance(errors, list) else ())
    return "; ".join([str(message or status.get("code")), *(text for text in details if text not in str(message))])


def _error_text(error: object) -> str:
    if not isinstance(error, Mapping):
        return str(error)
    location = mapping(error.get("location"))
    prefix = f"{location['file']}:{location.get('row')}: " if location.get("file") else ""
    return f"{prefix}{error.get('message', '')}"
