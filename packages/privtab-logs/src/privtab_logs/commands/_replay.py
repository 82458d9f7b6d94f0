"""The work of `privtab replay`: open the moments that options name, and replay."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from privtab.base import STATE_HELP, UsageError, needing, read_text
from privtab.command import argument, load_policy, load_rows, option, print_error
from privtab_server.commands._registry_options import open_registry
from privtab_server.store_states import opened_store, running_store

if TYPE_CHECKING:
    from privtab.ir import Program
    from privtab_analysis.diff.nodes import Diff
    from privtab_logs.moments import Moments
    from privtab_logs.report import Report
    from privtab_logs.wrapped import Entries
    from privtab_server.registry import Registry
    from privtab_server.registry.deploy.gates import Gate


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """Decision logs, and how they are read."""

    logs: Annotated[
        list[Path], argument("LOGS", "Decision logs as OPA uploads or prints them: files, folders; or store:URL.")
    ]
    system: Annotated[
        str | None, option("--system NAME", "The package in the log. Default: the system of the policy.")
    ] = None
    mapping: Annotated[
        str | None,
        option("--mapping DOCUMENT", "Mapping document for another system's log: ranger, trino, or a file."),
    ] = None
    door: Annotated[
        str | None,
        option(
            "--door DOCUMENT",
            "The log is of an OPA that answers this door: trino, polaris, kafka, or a document of your own.",
        ),
    ] = None
    metrics: Annotated[
        list[Path] | None,
        option("--metrics FILE", "OPA's answer at /v1/status, with dropped entries; repeatable."),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """Options for the policy and the state that decide again, and for the recorded ones."""

    policy: Annotated[
        str,
        option(
            "--policy -p POLICY", "A policy by name (cdap/final), a path, a bundle, or registry:URL#CHANNEL[@RELEASE]."
        ),
    ]
    state: Annotated[Path | None, option("--state -s STATE", f"Another state, for all decisions. {STATE_HELP}")] = None
    registry: Annotated[
        str | None,
        option("--registry URL", "Registry with the policy and the state of each moment.", envvar="PRIVTAB_REGISTRY"),
    ] = None
    old_policy: Annotated[
        str | None, option("--old-policy POLICY", "The policy that decided, instead of the registry's.")
    ] = None
    old_state: Annotated[
        Path | None, option("--old-state STATE", "The state that decided; store:URL has each moment's.")
    ] = None


def replayed(options: ReplayOptions, log: LogOptions) -> Report:
    """Replay logs, and group what differs. Raises UsageError, FileError and what loading policies and states raises."""
    metrics = [read_text(path) for path in log.metrics or ()]
    entries = entries_of(log.mapping, log.door, options.old_policy or options.policy)
    return _report(log.logs, _moments(options), log.system, metrics, entries)


def replay_gate(
    logs: Sequence[Path],
    program: Program,
    state: Path | None,
    registry: Registry,
    accepted: str | None,
    *,
    incomplete: bool,
    empty: bool,
) -> Gate:
    """Fails for each logged decision that a deployment changes, or that is unexplained, unless that is accepted; and for what is not replayed, unless it is allowed."""
    from privtab_logs.moments import KnownState, Moments, Policy, registered
    from privtab_logs.report import EMPTY, summary
    from privtab_server.registry.deploy.gates import Gate, GateStatus

    started = time.perf_counter()
    moments = Moments(new=Policy.of(program))
    moments.policy, moments.state = registered(registry, program.system)
    if state is not None:
        moments.new_state = KnownState(rows=load_rows(program, state))
    found = _report(logs, moments, None, (), entries_of())
    says = "; ".join(summary(found))
    failing, outcome = found.failing(GATE, allow_incomplete=True, allow_empty=True), GateStatus.PASSED
    nothing = not found.replay.replayed
    if (failing and accepted is None) or (found.incomplete and not incomplete) or (nothing and not empty):
        outcome = GateStatus.FAILED
        says += "; `privtab replay` shows what differs" if failing and accepted is None else ""
        says += "" if incomplete or not found.incomplete else "; incomplete logs need `--accept incomplete-logs`"
        says += f"; {EMPTY}" if nothing and not empty else ""
    elif failing or found.incomplete or nothing:
        outcome = GateStatus.SKIPPED
        says = f"accepted: {accepted or ('empty logs' if nothing else 'incomplete logs')} ({says})"
    return Gate(name="replay", outcome=outcome, says=says, seconds=time.perf_counter() - started)


GATE = ("lost-in-use", "gained-in-use", "unexplained")
"""Words that stop a deployment."""


def _report(
    logs: Sequence[Path], moments: Moments, system: str | None, metrics: Sequence[str], entries: Entries
) -> Report:
    from privtab_logs.reading import batches
    from privtab_logs.replaying import replay
    from privtab_logs.report import report
    from privtab_logs.schema import Reading

    reading = Reading.beside(metrics)
    found = replay(batches(logs, reading, entries), moments, system=system, reading=reading)
    return report(found, moments, _compared(moments))


def entries_of(mapping: str | None = None, door: str | None = None, policy: str = "") -> Entries:
    """Return the reader of a log's entries: for OPA, for a mapping document, or for an OPA that answers a door of a policy."""
    if mapping is not None and door is not None:
        raise UsageError("give `--mapping` or `--door`")
    if door is not None:
        with needing("logs of doors", "compiler"):
            from privtab_connect.doors import document
            from privtab_logs.door import DoorLog

        program = load_policy(policy)
        return DoorLog(document.load(door, program), program).rows
    if mapping is None:
        from privtab_logs import opa

        return cast("Entries", opa.rows)
    with needing("logs of other systems", "import"):
        from privtab_logs import mapped
    return mapped.load(mapping, load_policy(policy).entities if policy else ()).rows


def _moments(options: ReplayOptions) -> Moments:
    with needing("replaying", "compiler", "registry", "store"):
        from privtab_logs.moments import KnownState, Moments, Policy, registered, stored

    program = load_policy(options.policy)
    new_state = None if options.state is None else KnownState(rows=load_rows(program, options.state))
    moments = Moments(new=Policy.of(program), new_state=new_state)
    if options.registry is not None:
        moments.policy, moments.state = registered(open_registry(options.registry), program.system)
    old = moments.new if options.old_policy is None else Policy.of(load_policy(options.old_policy))
    if options.old_policy is not None:
        moments.policy = lambda _: old
    if options.old_state is not None:
        store = running_store(options.old_state)
        if store is not None:
            moments.state, moments.label = stored(opened_store(store))
        else:
            known = KnownState(rows=load_rows(old.program, options.old_state))
            moments.state = lambda _: known
    if moments.state is None and new_state is None:
        raise UsageError("no state: give `--registry`, or `--old-state`, or `--state`")
    if moments.policy is None or moments.state is None:
        missing = "--old-policy" if moments.policy is None else "--old-state"
        print_error(f"no `{missing}` or `--registry`: what changed since a decision counts as a difference, too")
    return moments


def _compared(moments: Moments) -> Diff | None:
    """The exact comparison with the policy of the last moment."""
    from privtab_analysis.diff import comparable, diff

    earlier = moments.last_policy
    if earlier is None:
        return None
    return diff(comparable(earlier.program), comparable(moments.new.program))
