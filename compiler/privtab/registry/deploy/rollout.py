"""Roll out revisions after the gates: put, release, watch, and roll back if sidecars do not activate them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from privtab.bundle.pack import shard_bundles, state_bundle
from privtab.bundle.provenance import provenance
from privtab.bundle.sign import SigningKey, signed
from privtab.errors import UsageError
from privtab.ir.nodes import Program
from privtab.pipeline import policy_artifacts
from privtab.registry.deploy.nodes import DesiredRevisions, Sidecar
from privtab.registry.deploy.watch import SILENT, FleetReader, FleetSnapshot, watch
from privtab.registry.nodes import Canary, Channel
from privtab.registry.registry import Registry, StaticMirror
from privtab.state.nodes import State

Follow = Callable[[Iterator[FleetSnapshot], str], FleetSnapshot]
"""Displays the snapshots of a watch under a title and returns the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedBundles:
    """Bundles ready to be stored; without a state the channel keeps its current one."""

    system: str
    policy: bytes
    revision: str
    """Of the policy."""
    state: bytes | None = None
    shards: Mapping[str, bytes] | None = None

    def bundles(self) -> list[bytes]:
        """All bundles."""
        return [self.policy, *([self.state] if self.state is not None else []), *(self.shards or {}).values()]


@dataclass(frozen=True, slots=True, kw_only=True)
class NextRevisions:
    """The revisions to release; those that are None stay."""

    policy: str | None = None
    state: str | None = None
    shards: Mapping[str, str] | None = None

    def changes(self, channel: Channel) -> bool:
        """Whether the channel runs other revisions."""
        return (
            (self.policy is not None and self.policy != channel.policy)
            or (self.state is not None and self.state != channel.state)
            or (self.shards is not None and dict(self.shards) != dict(channel.shards))
        )


def pack(
    program: Program,
    policy: Path,
    *,
    state: tuple[State, Path] | None,
    sharded: bool = False,
    signing: SigningKey | None = None,
    choices: Mapping[str, Any] | None = None,
) -> PackedBundles:
    """Pack the bundles of a policy and its state. `policy`: its file; `state`: the rows and their source."""
    artifacts = policy_artifacts(program, sharded=sharded, provenance=provenance(policy, **(choices or {})))
    packed = PackedBundles(system=program.system, policy=artifacts.bundle(signing), revision=artifacts.revision)
    if state is None:
        return packed
    rows, path = state
    shards = None
    whole_state = None
    if sharded:
        unsigned = shard_bundles(program, rows)
        shards = unsigned if signing is None else {key: signed(bundle, signing) for key, bundle in unsigned.items()}
    else:
        whole_state = state_bundle(
            program,
            rows,
            provenance=provenance(path, policy=f"{program.system}/{program.version}"),
            signing=signing,
        )
    return PackedBundles(
        system=packed.system, policy=packed.policy, revision=packed.revision, state=whole_state, shards=shards
    )


def running_revisions(channel: Channel) -> NextRevisions:
    """The revisions that a channel runs, for a rollback; raises UsageError if there are none."""
    if channel.sequence == 0 or channel.policy is None:
        raise UsageError(f"nothing ran on {channel.channel}/{channel.system} before: there is nothing to go back to")
    shards = dict(channel.shards) or None
    return NextRevisions(policy=channel.policy, state=None if shards else channel.state, shards=shards)


def desired_revisions(before: Channel, after: Channel, *, canary: bool = False) -> DesiredRevisions:
    """What sidecars should run after a release."""
    new_revisions, old_revisions = after.runs(canary=canary), before.runs()
    return DesiredRevisions(
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
    """Whether sidecars must verify signatures."""
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
        return self.registry.release(
            self.channel,
            self.system,
            policy=revisions.policy,
            state=revisions.state,
            shards=revisions.shards,
            why=why,
            expect=before.last,
        )

    def update_mirror(self, current: Channel) -> None:
        """Update the copies for static servers, in case an earlier writer died before writing them."""
        copies = StaticMirror(self.registry)
        if self.registry.store.writable and copies.stale(current):
            copies.refresh(current)

    def begin_canary(self, revisions: NextRevisions, before: Channel, why: str, part: Canary) -> Channel:
        """Release other revisions to a part of the sidecars."""
        canary = Canary(
            policy=revisions.policy,
            state=revisions.state,
            shards=dict(revisions.shards or {}),
            share=part.share,
            labels=part.labels,
        )
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
        watched = [
            sidecar for sidecar in self.read().sidecars if sidecar.problem is None and self._awaited(sidecar, None)
        ]
        present = [sidecar for sidecar in watched if sidecar.seen is None or now - sidecar.seen <= SILENT]
        return len(present) if all(self._awaited(sidecar, channel) for sidecar in present) else 0

    def _awaited(self, sidecar: Sidecar, channel: Channel | None) -> bool:
        """Whether a release concerns a sidecar; with `channel`, which has a canary, only those in the canary."""
        if channel is None:
            return sidecar.reads(self.channel, self.system)
        from privtab.registry.server.desired_revision import SidecarIdentity, in_canary

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
