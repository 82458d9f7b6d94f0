"""Roll out revisions after the gates: put, release, watch until sidecars run them, and roll back if they do not activate them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from privtab.base import UsageError
from privtab.bundle import PolicyArtifacts, Provenance, SigningKey, shard_bundles, state_bundle
from privtab.ir import Program
from privtab.state import State
from privtab_server.registry import deploy
from privtab_server.registry.nodes import Canary, Channel
from privtab_server.registry.registry import Registry, StaticMirror

FleetReader = Callable[[], deploy.Fleet]
SILENT = timedelta(minutes=5)
"""Sidecars unseen for longer than this are not awaited. OPA reports with every answer to its long poll."""
PATIENCE = 10.0
"""Seconds for which sidecars may refuse a bundle before the watch gives up; they retry by themselves in that time."""
GRACE = 3.0
"""Seconds to wait if the server knows no sidecars: after a start it learns of them with their next report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSnapshot:
    """One reading of the fleet. The last one of a watch has `final`."""

    statuses: tuple[deploy.SidecarStatus, ...]
    seconds: float
    expected: int = 0
    problem: str | None = None
    final: bool = False

    @property
    def awaited(self) -> tuple[deploy.SidecarStatus, ...]:
        """Sidecars that the watch waits for: all but the silent ones."""
        return tuple(status for status in self.statuses if status.standing is not deploy.SidecarProgress.SILENT)

    @property
    def active(self) -> tuple[deploy.SidecarStatus, ...]:
        """Sidecars that run the desired revisions."""
        return tuple(status for status in self.statuses if status.standing is deploy.SidecarProgress.ACTIVE)

    @property
    def confirmed(self) -> tuple[deploy.SidecarStatus, ...]:
        """Active sidecars that are known to read the watched channel."""
        return tuple(status for status in self.active if status.sidecar.certain)

    @property
    def late(self) -> tuple[deploy.SidecarStatus, ...]:
        """Awaited sidecars that are not active."""
        return tuple(status for status in self.awaited if status.standing is not deploy.SidecarProgress.ACTIVE)

    @property
    def complete(self) -> bool:
        """Return whether all awaited sidecars are active."""
        return self.problem is None and not self.late and len(self.confirmed) >= self.expected

    @property
    def summary(self) -> str:
        """The snapshot as one line."""
        total = max(len(self.awaited), self.expected)
        text = f"{len(self.active)} of {total} sidecar{'' if total == 1 else 's'} active"
        if self.problem:
            return f"{text}; {self.problem}"
        if not self.awaited and not self.expected:
            return "no sidecar has reported yet"
        missing = total - len(self.awaited)
        text = f"{text}; {missing} never reported" if missing > 0 else text
        unsure = sum(not status.sidecar.certain for status in self.statuses)
        return f"{text}; {unsure} cannot be told apart" if unsure else text


def watch(
    read: FleetReader,
    desired: deploy.DesiredRevisions,
    system: str,
    *,
    timeout: float,
    expect: int = 0,
    every: float = 0.2,
    only: Callable[[deploy.Sidecar], bool] = lambda _: True,
) -> Iterator[FleetSnapshot]:
    """Read the fleet until it is complete or time is up; the last snapshot has `final`.

    `expect`: the minimum number of sidecars. `only`: selects the sidecars to watch.
    """
    started = time.monotonic()
    refused_since: float | None = None
    first_requests: dict[tuple[str, str], str | None] | None = None
    while True:
        fleet = read()
        now = time.monotonic()
        moment, watched = datetime.now(tz=UTC), filter(only, fleet.sidecars)
        statuses = tuple(judge(sidecar, desired, system, moment) for sidecar in watched)
        snapshot = FleetSnapshot(statuses=statuses, seconds=now - started, expected=expect, problem=fleet.problem)
        if first_requests is None:
            first_requests = dict(_last_requests(snapshot))
        stuck = bool(snapshot.late) and all(_still_refuses(status, first_requests) for status in snapshot.late)
        refused_since = (refused_since or now) if stuck else None
        given_up = refused_since is not None and now - refused_since > PATIENCE
        in_grace = not snapshot.awaited and not expect and now - started < min(GRACE, timeout)
        if (snapshot.complete and not in_grace) or given_up or now - started >= timeout:
            yield replace(snapshot, final=True)
            return
        yield snapshot
        time.sleep(min(every, max(0.0, started + timeout - now)))


def _last_requests(snapshot: FleetSnapshot) -> Iterator[tuple[tuple[str, str], str | None]]:
    """The time of each sidecar's last request for each bundle."""
    for status in snapshot.statuses:
        for bundle in status.sidecar.bundles:
            yield (status.sidecar.id, bundle.name), bundle.tried


def _still_refuses(status: deploy.SidecarStatus, first_requests: Mapping[tuple[str, str], str | None]) -> bool:
    """Return whether waiting is useless: a sidecar is unsafe, or refuses a bundle that it requested after the watch began.

    Earlier errors are about older bundles.
    """
    if status.standing is deploy.SidecarProgress.UNSAFE:
        return True
    return status.standing is deploy.SidecarProgress.REFUSED and any(
        bundle.problem is not None
        and (bundle.tried is None or bundle.tried != first_requests.get((status.sidecar.id, bundle.name)))
        for bundle in status.sidecar.bundles
    )


def judge(
    sidecar: deploy.Sidecar, desired: deploy.DesiredRevisions, system: str, now: datetime
) -> deploy.SidecarStatus:
    """The progress of one sidecar."""
    standing, why = _progress(sidecar, desired, system, now)
    return deploy.SidecarStatus(sidecar=sidecar, standing=standing, why="; ".join(filter(None, why)))


def _progress(
    sidecar: deploy.Sidecar, desired: deploy.DesiredRevisions, system: str, now: datetime
) -> tuple[deploy.SidecarProgress, Sequence[str]]:
    """The progress of a sidecar, and why."""
    if sidecar.problem is not None:
        return deploy.SidecarProgress.UNREACHABLE, [sidecar.problem]
    is_silent = sidecar.seen is not None and now - sidecar.seen > SILENT
    if desired.signed and not is_silent and (why := sidecar.verifier_problem):
        return deploy.SidecarProgress.UNSAFE, [why]
    missing = [revision for revision in desired.revisions if not sidecar.runs(revision)]
    old = [bundle for bundle in sidecar.bundles if bundle.revision in desired.outdated]
    if not missing and not old:
        # It may refuse a later bundle, which is not watched but displayed.
        return deploy.SidecarProgress.ACTIVE, [*sidecar.problems, sidecar.doubt]
    if sidecar.seen is not None and is_silent:
        return deploy.SidecarProgress.SILENT, [f"silent for {age(now - sidecar.seen)}"]
    if sidecar.problems:
        return deploy.SidecarProgress.REFUSED, sidecar.problems
    return deploy.SidecarProgress.WAITING, [_running_instead(sidecar, desired, system, missing, old), sidecar.doubt]


def _running_instead(
    sidecar: deploy.Sidecar,
    desired: deploy.DesiredRevisions,
    system: str,
    missing: Sequence[str],
    old: Sequence[deploy.LoadedBundle],
) -> str:
    running = [f"{bundle.name} {bundle.revision}" for bundle in old]
    kinds: tuple[tuple[deploy.BundleKind, str | None], ...] = (("policy", desired.policy), ("state", desired.state))
    for kind, revision in kinds:
        loaded = sidecar.loaded(kind, system)
        if revision in missing and loaded not in old:
            running.append(f"{kind} {loaded.revision}" if loaded is not None and loaded.revision else f"no {kind}")
    return f"still runs {', '.join(running)}"


def age(span: timedelta) -> str:
    """`3 s`, `4 min`, `2 h`, `5 d`."""
    seconds = max(0, int(span.total_seconds()))
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


# --- releases --------------------------------------------------------------------------------------------------------


Follow = Callable[[Iterator[FleetSnapshot], str], FleetSnapshot]
"""Displays the snapshots of a watch under a title and returns the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedBundles:
    """Bundles ready to be stored; without a state the channel keeps its current one."""

    system: str
    policy: bytes
    revision: str
    """The policy's revision."""
    state: bytes | None = None
    shards: Mapping[str, bytes] | None = None

    def bundles(self) -> list[bytes]:
        """All bundles."""
        return [self.policy, *([self.state] if self.state is not None else []), *(self.shards or {}).values()]


@dataclass(frozen=True, slots=True, kw_only=True)
class NextRevisions:
    """The revisions to release; kinds that are None stay."""

    policy: str | None = None
    state: str | None = None
    shards: Mapping[str, str] | None = None

    def changes(self, channel: Channel) -> bool:
        """Return whether the channel runs other revisions."""
        return (
            (self.policy is not None and self.policy != channel.policy)
            or (self.state is not None and self.state != channel.state)
            or (self.shards is not None and dict(self.shards) != dict(channel.shards))
        )


def pack(
    program: Program,
    artifacts: PolicyArtifacts,
    *,
    state: tuple[State, Path] | None,
    sharded: bool = False,
    signing: SigningKey | None = None,
) -> PackedBundles:
    """Pack the bundles of a compiled policy and its state, the rows and their source."""
    packed = PackedBundles(system=program.system, policy=artifacts.bundle(signing), revision=artifacts.revision)
    if state is None:
        return packed
    rows, path = state
    origin = Provenance.of(path, policy=f"{program.system}/{program.version}")
    if sharded:
        return replace(packed, shards=shard_bundles(program, rows, provenance=origin, signing=signing))
    return replace(packed, state=state_bundle(program, rows, provenance=origin, signing=signing))


def running_revisions(channel: Channel) -> NextRevisions:
    """The revisions that a channel runs, for a rollback; raises UsageError if there are none."""
    if channel.sequence == 0 or channel.policy is None:
        raise UsageError(f"nothing ran on {channel.channel}/{channel.system} before: there is nothing to go back to")
    shards = dict(channel.shards) or None
    return NextRevisions(policy=channel.policy, state=None if shards else channel.state, shards=shards)


def desired_revisions(before: Channel, after: Channel, *, canary: bool = False) -> deploy.DesiredRevisions:
    """Return the revisions that sidecars should run after a release."""
    new_revisions, old_revisions = after.runs(canary=canary), before.runs()
    return deploy.DesiredRevisions(
        policy=new_revisions.get(("policy", "")),
        state=new_revisions.get(("state", "")),
        outdated=frozenset(old_revisions.values()) - frozenset(new_revisions.values()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One channel of one system, its registry, and how its sidecars are watched; `read` is None to skip watching."""

    registry: Registry
    channel: str
    system: str
    read: FleetReader | None
    follow: Follow
    timeout: float = 60.0
    expect: int = 0
    signed: bool = False
    """True if sidecars must verify signatures."""
    seconds: dict[str, float] = field(default_factory=dict)

    def current(self) -> Channel:
        """The current release of the channel."""
        return self.registry.channel(self.channel, self.system)

    def put(self, packed: PackedBundles, hold: ExitStack, *, resign: bool = False) -> NextRevisions:
        """Store the bundles, protected from removal until `hold` is closed; `resign` replaces stored signatures."""

        def put(bundle: bytes) -> str:
            return self.registry.put(bundle, resign=resign, hold=hold).id

        return NextRevisions(
            policy=put(packed.policy),
            state=None if packed.state is None else put(packed.state),
            shards=None if packed.shards is None else {key: put(bundle) for key, bundle in packed.shards.items()},
        )

    def release(self, revisions: NextRevisions, before: Channel, why: str) -> Channel:
        """Release other revisions to the channel; raises RegistryConflict after a concurrent release."""
        new: dict[str, Any] = {name: getattr(revisions, name) for name in revisions.__slots__}
        return self.registry.release(self.channel, self.system, **new, why=why, expect=before.last)

    def update_mirror(self, current: Channel) -> None:
        """Update the copies for static servers, in case an earlier writer died before writing them."""
        copies = StaticMirror(self.registry)
        if self.registry.store.writable and copies.stale(current):
            copies.refresh(current)

    def begin_canary(self, revisions: NextRevisions, before: Channel, why: str, part: Canary) -> Channel:
        """Release other revisions to a part of the sidecars."""
        shards = dict(revisions.shards or {})
        canary = replace(part, policy=revisions.policy, state=revisions.state, shards=shards)
        return self.registry.release(self.channel, self.system, why=why, expect=before.last, canary=canary)

    def end_canary(self, channel: Channel, why: str) -> Channel:
        """End the canary: its sidecars run the channel's revisions again."""
        return self.registry.release(self.channel, self.system, why=why, expect=channel.last)

    def wait(self, before: Channel, after: Channel, title: str, *, canary: bool = False) -> FleetSnapshot | None:
        """Watch until all sidecars, or all in the canary, run the desired revisions; None if `read` is None."""
        if self.read is None:
            return None
        desired = replace(desired_revisions(before, after, canary=canary), signed=self.signed)
        snapshots = watch(
            self.read,
            desired,
            self.system,
            timeout=self.timeout,
            expect=0 if canary else self.expect,
            only=lambda sidecar: self._awaited(sidecar, after if canary else None),
        )
        return self.follow(snapshots, title)

    def count_if_all_in_canary(self, channel: Channel) -> int:
        """The number of sidecars if all of them are in the canary, which leaves none to compare with; otherwise 0."""
        if self.read is None:
            return 0
        now = datetime.now(tz=UTC)
        watched = (one for one in self.read().sidecars if one.problem is None and self._awaited(one, None))
        present = [one for one in watched if one.seen is None or now - one.seen <= SILENT]
        return len(present) if all(self._awaited(one, channel) for one in present) else 0

    def _awaited(self, sidecar: deploy.Sidecar, channel: Channel | None) -> bool:
        """Return whether a release concerns a sidecar; with `channel`, which has a canary, only sidecars in the canary."""
        if channel is None:
            return sidecar.reads(self.channel, self.system)
        from privtab_server.registry.server.sidecar import SidecarIdentity, in_canary

        # The same choice as the server's, to include sidecars that have not polled since the release.
        return (
            bool(sidecar.feeds)
            and sidecar.reads(self.channel, self.system)
            and in_canary(channel, SidecarIdentity(instance=sidecar.id, labels=sidecar.labels))
        )


def earlier_release(history: list[Channel], current: Channel, *, policy: bool, state: bool) -> Channel:
    """The last release with another policy, another state, or either if neither is given.

    Raises UsageError if there was none.
    """
    either = policy == state
    for entry in reversed(history):
        if entry.canary is not None or entry.policy is None or entry.sequence >= current.sequence:
            continue
        other_policy = entry.policy != current.policy
        other_state = (entry.state, dict(entry.shards)) != (current.state, dict(current.shards))
        if (other_policy and (policy or either)) or (other_state and (state or either)):
            return entry
    kind = "state" if state and not policy else "policy" if policy and not state else "revision"
    raise UsageError(
        f"{current.channel}/{current.system} has run no other {kind} before: there is nothing to go back to"
    )


def rollback_revisions(release: Channel, *, policy: bool, state: bool) -> NextRevisions:
    """The revisions of an earlier release; with only `policy` or `state` set, the other one stays."""
    either = policy == state
    revisions = running_revisions(release)
    return NextRevisions(
        policy=revisions.policy if policy or either else None,
        state=revisions.state if state or either else None,
        shards=revisions.shards if state or either else None,
    )
