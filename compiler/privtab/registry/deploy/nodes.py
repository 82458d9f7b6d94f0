"""What sidecars report: values only; readers make them, watchers and tables read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, TypeAlias

Kind: TypeAlias = Literal["policy", "state"]
KINDS: tuple[Kind, ...] = ("policy", "state")


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """One bundle of a sidecar: its name in OPA's configuration, what is active, since when, and what went wrong last."""

    name: str
    revision: str | None
    since: datetime | None = None
    problem: str | None = None
    tried: str | None = None
    """When it was last asked for, as the sidecar says it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """One bundle that a sidecar asks a channel for, and the revision that it says it runs."""

    channel: str
    system: str
    kind: str
    holds: str | None
    canary: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sidecar:
    """One OPA, as it reported or was asked; `problem`: why it could not be asked."""

    id: str
    labels: Mapping[str, str] = field(default_factory=dict)
    bundles: tuple[Loaded, ...] = ()
    seen: datetime | None = None
    url: str | None = None
    problem: str | None = None
    feeds: tuple[Feed, ...] = ()
    """What it asks for, where the server knows."""
    places: tuple[str, ...] | None = None
    """Which channels it reads, as `channel/system`; None where nobody says so."""
    certain: bool = True
    """Whether that is sure: of sidecars without a name the server may not be able to tell."""

    @property
    def doubt(self) -> str:
        """That nobody can tell what it reads, in words; empty where somebody can."""
        if self.certain:
            return ""
        where = " or ".join(self.places or ()) or "no channel that is known"
        return f"cannot be told apart from others, it may read {where}: give it `X-Privtab-Instance`"

    def runs(self, revision: str) -> bool:
        """Whether a bundle of that revision is active, by its report or by what it says when it looks for a newer one."""
        held = any(feed.holds == revision for feed in self.feeds)
        return held or any(bundle.revision == revision for bundle in self.bundles)

    def canary(self, channel: str, system: str) -> bool:
        """Whether it is served what only a part of the fleet gets."""
        return any(s.canary for s in self.feeds if (s.channel, s.system) == (channel, system))

    def reads(self, channel: str, system: str | None) -> bool:
        """Whether its bundles come from a channel; where nobody knows where they come from, they may."""
        if self.places is not None:
            return any(
                place.partition("/")[0] == channel and system in {None, place.partition("/")[2]}
                for place in self.places
            )
        return not self.feeds or any(s.channel == channel and system in {None, s.system} for s in self.feeds)

    def loaded(self, kind: Kind, system: str) -> Loaded | None:
        """The bundle that has the policy or the state of a system, by its name; None where no name says so.

        Where OPA has bundles of several systems, the system's name is in the bundle's.
        """
        named = [
            b for b in self.bundles if kind in b.name.replace("/", " ").replace("-", " ").replace("_", " ").split()
        ]
        return next((b for b in named if system in b.name), named[0] if len(named) == 1 else None)

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong, in words."""
        own = [self.problem] if self.problem else []
        return (*own, *(f"{bundle.name}: {bundle.problem}" for bundle in self.bundles if bundle.problem))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Decisions that were logged, by the revision of a policy or a state, and by rule."""

    revision: str
    rule: str
    kind: str = ""
    """What the revision is of: `policy`, `state`, `shard`; empty where the server does not know it."""
    allowed: int = 0
    denied: int = 0
    undefined: int = 0

    @property
    def asked(self) -> int:
        """How many there were."""
        return self.allowed + self.denied + self.undefined


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Every sidecar that is known, and what was decided; `problem`: why this may be old."""

    sidecars: tuple[Sidecar, ...] = ()
    tallies: tuple[Tally, ...] = ()
    problem: str | None = None
    started: str = ""
    """When the server began to count decisions."""
    trials: Mapping[str, tuple[str, tuple[Tally, ...]]] = field(default_factory=dict)
    """By `channel/system` since when a canary is under way there, and what its sidecars and the others decided from then on."""
    trouble: tuple[str, ...] = ()
    """What is wrong with the histories of channels, as the server sees them."""
    refused: tuple[str, ...] = ()
    """Who the server does not let in, the last one last: `web-1: 401 … (/status, 12 times, last at …)`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredRevisions:
    """The revisions that sidecars are to run; None: whichever."""

    policy: str | None = None
    state: str | None = None
    outdated: frozenset[str] = frozenset()
    """What they must not run any more. A sidecar may load some shards of a state only, and none of them may be an old one."""

    @property
    def revisions(self) -> tuple[str, ...]:
        """Those that each of them is to run."""
        return tuple(revision for revision in (self.policy, self.state) if revision)


class SidecarProgress(StrEnum):
    """How far a sidecar is."""

    ACTIVE = "active"
    WAITING = "waiting"
    REFUSED = "refused"
    """It has something against a bundle, and says what."""
    SILENT = "silent"
    """It has not been heard of for long."""
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarStatus:
    """A sidecar and how far it is; `why` says what it runs instead, or what it has against it."""

    sidecar: Sidecar
    standing: SidecarProgress
    why: str = ""

    def json(self) -> dict[str, Any]:
        """For a program."""
        return {"standing": str(self.standing), "why": self.why or None, **sidecar_json(self.sidecar)}


def sidecar_json(sidecar: Sidecar) -> dict[str, Any]:
    """A sidecar for a program."""
    return {
        "id": sidecar.id,
        "url": sidecar.url,
        "labels": dict(sidecar.labels),
        "channels": sorted({f"{s.channel}/{s.system}" for s in sidecar.feeds} | set(sidecar.places or ())),
        "certain": sidecar.certain,
        "canary": any(s.canary for s in sidecar.feeds),
        "last_seen": when(sidecar.seen),
        "problem": sidecar.problem,
        "bundles": {
            b.name: {"revision": b.revision, "active_since": when(b.since), "problem": b.problem}
            for b in sidecar.bundles
        },
    }


def when(moment: datetime | None) -> str | None:
    """A moment as text, to the second."""
    return None if moment is None else moment.isoformat(timespec="seconds")


def moment_of(text: object) -> datetime | None:
    """The moment of a text in RFC 3339, with as many decimals as OPA writes; None for OPA's `never` and for anything else."""
    if not isinstance(text, str) or text.startswith("0001-"):
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def reported(id_: str, status: Mapping[str, Any], **more: Any) -> Sidecar:
    """A sidecar from the document of OPA's status API; what has another shape is passed over."""
    labels, bundles = status.get("labels"), status.get("bundles")
    labels = {str(k): str(v) for k, v in labels.items()} if isinstance(labels, Mapping) else {}
    bundles = bundles if isinstance(bundles, Mapping) else {}
    return Sidecar(
        id=id_,
        labels=labels,
        bundles=tuple(_loaded(str(name), one) for name, one in sorted(bundles.items()) if isinstance(one, Mapping)),
        **more,
    )


def _loaded(name: str, status: Mapping[str, Any]) -> Loaded:
    return Loaded(
        name=name,
        revision=str(status.get("active_revision") or "") or None,
        since=moment_of(status.get("last_successful_activation")),
        problem=problem_of(status),
        tried=str(status.get("last_request") or "") or None,
    )


def problem_of(status: Mapping[str, Any]) -> str | None:
    """What OPA has against a bundle; it keeps the last good one meanwhile."""
    message = status.get("message")
    if not status.get("code") and not message:
        return None
    errors = status.get("errors")
    more = [_error_text(e) for e in errors[:2]] if isinstance(errors, Sequence) and not isinstance(errors, str) else []
    words = [str(message or status.get("code")), *(text for text in more if text not in str(message))]
    return "; ".join(words)


def _error_text(error: object) -> str:
    if not isinstance(error, Mapping):
        return str(error)
    place = error.get("location")
    at = f"{place.get('file')}:{place.get('row')}: " if isinstance(place, Mapping) and place.get("file") else ""
    return f"{at}{error.get('message', '')}"
