"""The work of `privtab replay`: open the moments that options name, and replay."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from privtab.cli._output import print_error
from privtab.cli._parameters import needing
from privtab.cli._registry_options import open_registry
from privtab.cli._stored import load_policy, load_rows, opened_store, running_store
from privtab.errors import UsageError
from privtab.source import read_text

if TYPE_CHECKING:
    from privtab.analysis.diff.nodes import Diff
    from privtab.logs.moments import Moments
    from privtab.logs.report import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What to replay, and by what."""

    logs: tuple[Path, ...]
    policy: str
    state: Path | None = None
    registry: str | None = None
    old_policy: str | None = None
    old_state: Path | None = None
    system: str | None = None
    metrics: tuple[Path, ...] = ()


def replayed(asked: Asked) -> Report:
    """Replay logs, and group what differs. Raises UsageError, FileError and what loading policies and states raises."""
    from privtab.logs.reading import batches
    from privtab.logs.replaying import replay
    from privtab.logs.report import report
    from privtab.logs.schema import Reading

    moments, reading = _moments(asked), Reading()
    metrics = [read_text(path) for path in asked.metrics]
    found = replay(batches(asked.logs, reading), moments, system=asked.system, reading=reading)
    return report(found, moments, _compared(moments), metrics=metrics)


def _moments(asked: Asked) -> Moments:
    with needing("replaying", "compiler", "registry", "store"):
        from privtab.logs.moments import KnownState, Moments, Policy, registered, stored

    program = load_policy(asked.policy)
    new_state = None if asked.state is None else KnownState(rows=load_rows(program, asked.state))
    moments = Moments(new=Policy.of(program), new_state=new_state)
    if asked.registry is not None:
        moments.policy, moments.state = registered(open_registry(asked.registry), program.system)
    old = moments.new if asked.old_policy is None else Policy.of(load_policy(asked.old_policy))
    if asked.old_policy is not None:
        moments.policy = lambda _: old
    if asked.old_state is not None:
        store = running_store(asked.old_state)
        if store is not None:
            moments.state, moments.label = stored(opened_store(store.removeprefix("store:")))
        else:
            known = KnownState(rows=load_rows(old.program, asked.old_state))
            moments.state = lambda _: known
    if moments.state is None and new_state is None:
        raise UsageError("no state: give `--registry`, or `--old-state`, or `--state`")
    if moments.policy is None or moments.state is None:
        missing = "--old-policy" if moments.policy is None else "--old-state"
        print_error(f"no `{missing}` or `--registry`: what changed since a decision counts as a difference, too")
    return moments


def _compared(moments: Moments) -> Diff | None:
    """The exact comparison with the policy of the last moment."""
    from privtab.analysis.diff import diff
    from privtab.registry.deploy.program import comparable

    earlier = moments.last_policy
    if earlier is None:
        return None
    return diff(comparable(earlier.program), comparable(moments.new.program))
