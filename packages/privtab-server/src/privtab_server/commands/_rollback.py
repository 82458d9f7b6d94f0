"""`privtab registry rollback`: release the earlier revisions of a channel again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from privtab.base import ExitCode, UsageError
from privtab.command import argument, deliver, option, out, print_error
from privtab_server.commands._registry_options import no_channel, open_registry, stored_revision
from privtab_server.commands._rollout import (
    ReleaseOptions,
    ScopeOption,
    channel_json,
    print_late,
    signing_key,
    snapshot_json,
)

if TYPE_CHECKING:
    from privtab_server.registry.deploy.rollout import NextRevisions, Rollout
    from privtab_server.registry.nodes import Channel

MAX_RELEASE_DIGITS = 9
"""Maximum digits of the number of a release; revisions have 16 characters."""


def run(
    system: Annotated[str, argument("SYSTEM", "System, as its policy names it.")],
    *,
    release: ReleaseOptions,
    to: Annotated[
        str | None, option("--to REVISION|N", "A stored revision, a prefix of one, or the number of a release.")
    ] = None,
    only: Annotated[Literal["policy", "state"] | None, option("--only", "Only the policy or only the state.")] = None,
    signing_key: Annotated[
        Path | None,
        option("--signing-key FILE", "Sign again with this key, for verifiers that refuse older sequences; PEM."),
    ] = None,
    signature: ScopeOption = None,
) -> None:
    """Roll a channel back, and watch until every sidecar has activated the earlier release.

    Without `--to`, goes back to what ran before the last change, so doing it twice changes nothing. A running canary
    ends. Exits with 3 if a sidecar fails to activate.

    Example:
      privtab registry rollback lake --registry registry/ --channel prod
      privtab registry rollback lake -r registry/ --to 3f5a0c2be1d94f77 --why "orders were open to all"
      privtab registry rollback lake -r registry/ -c prod --to 1 --only policy
      privtab registry rollback lake -r registry/ -c prod --only state
    """
    release.waits()
    opened, channel = open_registry(release.registry), release.channel
    with release.reader() as read:
        signed = signing_key is not None or opened.requires_signatures()
        rollout = release.rollout(opened, system, read, signed=signed)
        before = rollout.current()
        if before.trouble:
            print_error(before.trouble)
        if before.sequence == 0:
            raise UsageError(no_channel(opened, f"{channel}/{system}"))
        goal = _target(rollout, before, to, policy=only == "policy", state=only == "state")
        if signing_key is not None:
            _sign_again(rollout, goal, before, signing_key, signature)
        started = time.perf_counter()
        after = before
        if goal.changes(before) or before.canary is not None or before.broken or signing_key is not None:
            after = rollout.release(goal, before, release.why or "rollback")
        if not release.quiet:
            changed = f"release {after.sequence}, {_describe_changes(before, after)}"
            unchanged = f"runs that already (release {before.sequence})"
            out().print(f"{channel}/{system}: {unchanged if after is before else changed}", style="bold")
        if after is before:
            rollout.update_mirror(before)
        snapshot = rollout.wait(before, after, "watching")
    if release.quiet:
        outcome = "unwatched" if snapshot is None else "back" if snapshot.complete else "late"
        seconds = round(time.perf_counter() - started, 3)
        report = {"outcome": outcome, "before": channel_json(before), "after": channel_json(after)}
        deliver({**report, "watched": snapshot_json(snapshot), "seconds": seconds})
    if snapshot is not None and not snapshot.complete:
        print_late(snapshot)
        raise SystemExit(ExitCode.EXTERNAL)


def _target(rollout: Rollout, now: Channel, to: str | None, *, policy: bool, state: bool) -> NextRevisions:
    """The revisions to release; raises UsageError if they never ran or are not stored."""
    from privtab_server.registry.deploy.rollout import NextRevisions, earlier_release, rollback_revisions

    if to is None:
        history = rollout.registry.history(rollout.channel, rollout.system)
        if (now.canary is not None or now.held) and not policy and not state:
            # The channel's revisions still run beside a canary, and if the last release is unreadable, they precede it.
            return NextRevisions()
        return rollback_revisions(earlier_release(history, now, policy=policy, state=state), policy=policy, state=state)
    if to.isdigit() and len(to) <= MAX_RELEASE_DIGITS:
        history = rollout.registry.history(rollout.channel, rollout.system)
        entry = next((release for release in history if release.sequence == int(to)), None)
        if entry is None:
            raise UsageError(f"{now.channel}/{now.system} has no release {to}: the last one is {now.sequence}")
        return rollback_revisions(entry, policy=policy, state=state)
    kinds = ("policy",) if policy and not state else ("state",) if state and not policy else ("policy", "state")
    found = stored_revision(rollout.registry, now.system, kinds, to)
    if found is not None:
        kind, identity = found
        return NextRevisions(policy=identity) if kind == "policy" else NextRevisions(state=identity)
    kind = " or ".join(kinds)
    raise UsageError(
        f"{rollout.registry.url} keeps no {kind} `{to}` of {now.system}: `privtab registry status --history` lists what ran"
    )


def _sign_again(rollout: Rollout, goal: NextRevisions, before: Channel, key: Path, signature: list[str] | None) -> None:

    registry, system = rollout.registry, rollout.system
    signing = signing_key(registry, str(key), signature, before)
    revisions = [("policy", goal.policy, ""), ("state", goal.state, "")]
    revisions += [("shard", identity, shard) for shard, identity in (goal.shards or {}).items()]
    for kind, identity, shard in revisions:
        if identity is not None:
            bundle = registry.read(registry.revision(system, kind, identity, shard))
            registry.put(signing.sign(bundle), resign=True)


def _describe_changes(before: Channel, after: Channel) -> str:
    changes = []
    if after.policy != before.policy:
        changes.append(f"policy {before.policy} → {after.policy}")
    if after.state != before.state:
        changes.append(f"state {before.state} → {after.state}")
    if dict(after.shards) != dict(before.shards):
        changes.append("the state's shards")
    if before.canary is not None:
        changes.append("the canary ended")
    if before.held and not changes:
        changes.append(f"all that ran at release {before.sequence}")
    return ", ".join(changes) or "signed again"
