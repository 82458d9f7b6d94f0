"""What a channel's next release runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from privtab.errors import RegistryError, UsageError
from privtab.registry import names, preflight, records
from privtab.registry.nodes import BrokenRecord, Canary, Channel, Revision, pin

if TYPE_CHECKING:
    from privtab.registry.registry import Registry


def next_release(
    registry: Registry,
    before: Channel,
    policy: str | None,
    state: str | None,
    shards: Mapping[str, str] | None,
    canary: Canary | None,
) -> Channel:
    """The release that follows `before`, with the digests of its bundles; arguments and errors as `Registry.release`."""
    if state is not None and shards is not None:
        raise UsageError("a state is whole or in shards, not both")
    if not (policy or state or shards or canary or before.canary or (before.held and before.sequence)):
        raise UsageError("nothing to release: name a policy, a state or a canary")
    if canary is not None:
        preflight.check_canary(canary)
    after = replace(
        before,
        sequence=before.last + 1,
        policy=policy or before.policy,
        state=state or (None if shards is not None else before.state),
        shards=dict(shards if shards is not None else {} if state else before.shards),
        canary=canary,
        broken={},
        lost=False,
    )
    digests: dict[str, str] = {}
    for (kind, shard), identity in [*after.runs().items(), *after.runs(canary=True).items()]:
        key = pin(kind, identity, shard)
        if key not in digests:
            digests[key] = _digest(registry, before, key, kind, identity, shard)
    if not after.policy and canary is not None and canary.policy:
        raise UsageError("a canary needs a channel with a policy: release one first")
    preflight.check_layouts(after, lambda policy: _policy(registry, after, policy))
    return replace(after, digests=digests)


def _digest(registry: Registry, before: Channel, key: str, kind: str, identity: str, shard: str) -> str:
    """The digest of a revision."""
    try:
        return registry.revision(before.system, kind, identity, shard).digest
    except RegistryError:
        # An active revision stays, even if its record is lost.
        if key in before.digests:
            return before.digests[key]
        raise


def _policy(registry: Registry, after: Channel, identity: str) -> Revision | None:
    """The record of a policy, or None if it is unreadable."""
    try:
        return records.revision_at(registry.store, names.revision(after.system, "policy", identity))
    except BrokenRecord:
        return None
