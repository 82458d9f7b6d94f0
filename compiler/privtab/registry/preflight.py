"""Checks of a release before it is made."""

from __future__ import annotations

from collections.abc import Callable

from privtab.errors import UsageError
from privtab.registry.nodes import Canary, Channel, Revision


def check_canary(canary: Canary) -> None:
    """Raise UsageError for a canary without revisions or with an invalid share."""
    if not 0 < canary.share <= 1:
        raise UsageError(f"a canary's share must be above 0 and at most 1, not {canary.share:g}")
    if not (canary.policy or canary.state or canary.shards):
        raise UsageError("a canary needs its own policy or state: name it")


def check_layouts(after: Channel, record_of: Callable[[str], Revision | None]) -> None:
    """Raise UsageError if a policy that reads a sharded state would find a whole one, or vice versa.

    It could then not decide anything. `record_of`: returns the record of a policy, or None if it is lost.
    """
    for canary in (False, True):
        runs = after.runs(canary=canary)
        kinds = {kind for kind, _ in runs}
        policy = record_of(runs["policy", ""]) if "policy" in kinds and len(kinds) > 1 else None
        if policy is not None and (policy.metadata.get("state") == "sharded") != ("shard" in kinds):
            expected, released = ("whole", "in shards") if "shard" in kinds else ("in shards", "whole")
            raise UsageError(
                f"policy {policy.id} reads a state that is {expected}, and {after.channel}/{after.system} would run one that "
                f"is {released}: release both together"
            )
