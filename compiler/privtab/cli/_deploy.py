"""The steps and gates of `privtab deploy`, with their output."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import typer

from privtab.cli._deploy_show import (
    DeployReport,
    DeployRequest,
    WatchOptions,
    print_unless_json,
    show_canary_outcome,
    show_gate,
)
from privtab.cli._options import load_state, waivers_of
from privtab.cli._output import Format, out, print_error, print_if_data, print_json, show_diagnostics
from privtab.cli._rollout import print_late, progress_console, reader_of, registry_of, scope_of, token_of, watcher
from privtab.errors import UsageError
from privtab.exit_codes import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from privtab.bundle.sign import SigningKey
    from privtab.ir.nodes import Program
    from privtab.registry.deploy.canary import CanaryOutcome, CanaryPlan
    from privtab.registry.deploy.gates import Gate
    from privtab.registry.deploy.rollout import PackedBundles, Rollout
    from privtab.registry.nodes import Channel
    from privtab.registry.registry import Registry
    from privtab.state.nodes import State


def canary_plan(text: str, *, seconds: float, decisions: int, tolerance: float, quiet_ok: bool) -> CanaryPlan:
    """The plan of a canary from the options."""
    from privtab.registry.deploy.canary import CanaryPlan, part

    return CanaryPlan(part=part(text), seconds=seconds, decisions=decisions, tolerance=tolerance, quiet_ok=quiet_ok)


def to_channel(
    request: DeployRequest,
    registry_url: str | None,
    channel: str,
    watch: WatchOptions,
    canary: CanaryPlan | None,
    *,
    rollback: bool,
) -> None:
    """Run the gates, store the bundles, release them, and watch."""
    registry = registry_of(registry_url)
    if canary is not None and not watch.server:
        raise UsageError("`--canary` needs `--server URL`: it counts what the canary and the others decide")
    report = DeployReport()
    try:
        with reader_of(watch.server, watch.opas, watch.token_file, watch.ca) as read:
            code = _to_channel(request, registry, channel, watch, read, canary, report, rollback=rollback)
    finally:
        if request.format is Format.JSON and report.outcome:
            print_json(report.json())
    if code:
        raise typer.Exit(code)


def _to_channel(
    request: DeployRequest,
    registry: Registry,
    channel: str,
    watch: WatchOptions,
    read: Any,
    canary: CanaryPlan | None,
    report: DeployReport,
    *,
    rollback: bool,
) -> int:
    from privtab.registry.deploy.gates import state_gate
    from privtab.registry.deploy.rollout import Rollout, pack

    if request.signing_key is None and registry.requires_signatures():
        raise UsageError(
            f"{registry.url} accepts only signed bundles: give `--signing-key FILE`, or set $PRIVTAB_SIGNING_KEY"
        )
    program, path, loaded = run_file_gates(request, report)
    if program is None:
        return ExitCode.FINDINGS
    before = report.before = registry.channel(channel, program.system)
    if before.trouble:
        print_error(before.trouble)
    with report.step("diff"):
        report.gates.append(comparison_gate(request, registry, before, program, path))
    show_gate(report.gates[-1], request.format)
    if loaded is None and (before.state or before.shards):
        state_gate_result = state_gate(
            report.gates[-1].diff, keep=request.keep_state, in_shards=bool(before.shards), sharded=request.sharded
        )
        if state_gate_result is not None:
            report.gates.append(state_gate_result)
            show_gate(state_gate_result, request.format)
    if loaded is not None and (before.state or before.shards):
        with report.step("state diff"):
            report.gates.append(state_comparison_gate(request, registry, before, program, loaded[0]))
        show_gate(report.gates[-1], request.format)
    if not all(gate.passed for gate in report.gates):
        print_unless_json(request.format, "stopped; nothing was released", style="bold red")
        report.outcome = "stopped"
        return ExitCode.FINDINGS
    with report.step("pack"):
        packed = pack(
            program,
            path,
            state=loaded,
            sharded=request.sharded,
            signing=signing_key(request, registry, before),
            choices={"variant": request.variant, "readings": dict(request.readings)},
        )
    if request.dry_run:
        for bundle in packed.bundles():
            registry.check_signature(bundle)
        print_unless_json(
            request.format,
            f"would release to {channel}/{program.system} to policy {packed.revision}; nothing was released",
        )
        report.outcome = "dry-run"
        return ExitCode.OK
    rollout = Rollout(
        registry=registry,
        channel=channel,
        system=program.system,
        read=read,
        follow=watcher(progress_console(quiet=request.format is Format.JSON)),
        timeout=watch.timeout,
        expect=watch.expect,
        signed=request.signing_key is not None,
    )
    with ExitStack() as protection:
        exit_code = _store_and_release(request, rollout, packed, before, canary, report, protection)
    if exit_code is not None:
        return exit_code
    return _watch(request, rollout, before, report, rollback=rollback)


def _store_and_release(
    request: DeployRequest,
    rollout: Rollout,
    packed: PackedBundles,
    before: Channel,
    canary: CanaryPlan | None,
    report: DeployReport,
    protection: ExitStack,
) -> int | None:
    """Store and release, to a canary first if asked for; the exit code if that ends the deployment, else None."""
    with report.step("put"):
        target = rollout.put(packed, protection, resign=request.signing_key is not None)
    reason = release_reason(request, report.gates)
    if canary is not None and target.changes(before) and before.policy is not None and not before.held:
        outcome = _run_canary(request, rollout, target, before, reason, canary, report)
        if outcome is None or not outcome.good:
            return ExitCode.FINDINGS if outcome is not None else ExitCode.EXTERNAL
        running = report.after or before
    else:
        if canary is not None:
            print_unless_json(request.format, "no canary: there is no earlier release, or nothing changes", style="dim")
        running = before
    if not (target.changes(before) or before.canary or before.broken) and request.signing_key is None:
        report.after = before
        rollout.update_mirror(before)
        print_unless_json(
            request.format,
            f"{rollout.channel}/{rollout.system} runs this already ({before.sequence}); nothing to release",
        )
    else:
        with report.step("release"):
            report.after = rollout.release(target, running, reason)
        print_unless_json(
            request.format,
            f"{rollout.channel}/{rollout.system}: release {report.after.sequence}, policy {report.after.policy}",
            style="bold",
        )
        if not (report.after.state or report.after.shards):
            print_unless_json(
                request.format,
                "it has no state: decisions are unavailable until a state is released with `--state`",
                style="yellow",
            )
    return None


def _run_canary(
    request: DeployRequest,
    rollout: Rollout,
    target: Any,
    before: Channel,
    why: str,
    canary: CanaryPlan,
    report: DeployReport,
) -> CanaryOutcome | None:
    """Release to a canary and observe it. None if its sidecars did not activate it. If it fails, it is rolled back."""
    from privtab.registry.deploy.canary import nothing_to_compare, observe, sides
    from privtab.registry.nodes import Canary

    sides(replace(before, canary=Canary(policy=target.policy, state=target.state)))
    during = rollout.begin_canary(target, before, f"canary: {why}" if why else "canary", canary.part)
    report.after = during
    print_unless_json(
        request.format, f"canary of {canary.words}: release {during.sequence}, policy {target.policy}", style="bold"
    )
    console = progress_console(quiet=request.format is Format.JSON)
    try:
        with report.step("canary"), _interrupt_on_sigterm():
            snapshot = report.snapshots["canary"] = rollout.wait(before, during, "canary", canary=True)
            if snapshot is not None and snapshot.complete and snapshot.active and rollout.read is not None:
                lone_sidecars = rollout.count_if_all_in_canary(during)
                outcome = report.canary_outcome = (
                    nothing_to_compare(lone_sidecars, canary.quiet_ok)
                    if lone_sidecars
                    else observe(rollout.read, during, canary, console)
                )
                if outcome.good:
                    show_canary_outcome(outcome, request.format)
                    return outcome
    except BaseException:
        # On any error, even Ctrl-C, do not leave sidecars on an untested release.
        rollout.end_canary(during, "the canary was aborted")
        print_error("the canary was aborted: all sidecars get the previous release")
        raise
    report.after = rollout.end_canary(during, "the canary was refused")
    if report.canary_outcome is None:
        reason = (
            "no sidecar is in that part"
            if snapshot is not None and not snapshot.awaited
            else "the canary's sidecars did not activate it"
        )
        if snapshot is not None:
            print_late(snapshot)
    else:
        reason = report.canary_outcome.says
        show_canary_outcome(report.canary_outcome, request.format)
    print_unless_json(
        request.format,
        f"{reason}; all sidecars get what ran before (release {report.after.sequence})",
        style="bold red",
    )
    report.snapshots["back"] = rollout.wait(during, report.after, "back")
    report.outcome = "canary-refused"
    return report.canary_outcome


@contextmanager
def _interrupt_on_sigterm() -> Iterator[None]:
    """Let SIGTERM end the block like Ctrl-C, so that the canary is rolled back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _watch(request: DeployRequest, rollout: Rollout, before: Channel, report: DeployReport, *, rollback: bool) -> int:
    assert report.after is not None
    try:
        with report.step("watch"):
            snapshot = report.snapshots["all"] = rollout.wait(before, report.after, "watching")
    except KeyboardInterrupt:
        report.outcome = "unwatched"
        print_error(f"no longer watching: {rollout.channel}/{rollout.system} stays at release {report.after.sequence}")
        raise
    if snapshot is None:
        print_unless_json(
            request.format, "not watching: give `--server URL` or `--opa URL` to see every sidecar run it", style="dim"
        )
        report.outcome = "unwatched"
        return ExitCode.OK
    if snapshot.complete:
        report.outcome = "deployed"
        return ExitCode.OK
    print_late(snapshot)
    report.outcome = "late"
    if rollback and before.policy is not None:
        from privtab.registry.deploy.rollout import running_revisions

        after = rollout.release(running_revisions(before), report.after, f"back: {snapshot.summary}")
        print_unless_json(request.format, f"back to policy {after.policy}: release {after.sequence}", style="bold red")
        report.snapshots["back"] = rollout.wait(report.after, after, "back")
        report.after = after
        report.outcome = "rolled-back"
    return ExitCode.EXTERNAL


def push_to_opa(request: DeployRequest, url: str, token_file: Path | None, ca: Path | None) -> None:
    """`--push`: run the gates except the comparison, then push to a single OPA."""
    from privtab.pipeline import policy_artifacts
    from privtab.registry.deploy.push import push
    from privtab.state.index import index

    if request.sharded:
        raise UsageError("`--push` takes a whole state: leave `--sharded` off")
    report = DeployReport()
    program, _, loaded = run_file_gates(request, report)
    if program is None or not all(gate.passed for gate in report.gates):
        if request.format is Format.JSON:
            report.outcome = "stopped"
            print_json(report.json())
        elif program is not None:
            print_unless_json(request.format, "stopped; nothing was pushed", style="bold red")
        raise typer.Exit(ExitCode.FINDINGS)
    if request.dry_run:
        print_unless_json(request.format, f"would push policy {policy_artifacts(program).revision}; nothing was pushed")
        return
    document = None if loaded is None else dict(index(program, loaded[0]))
    trusted = None if ca is None else str(ca)
    pushed = push(url, policy_artifacts(program), document, token=token_of(token_file), ca=trusted)
    if print_if_data(
        request.format, {"outcome": "pushed", "gates": [gate.json() for gate in report.gates], "pushed": pushed.json()}
    ):
        return
    console = out()
    previous = f"{pushed.version_before} {pushed.policy_before}" if pushed.policy_before else "none"
    console.print(f"{url}: policy {previous} → {program.version} {pushed.policy}", soft_wrap=True)
    kinds = {"added": pushed.added, "replaced": pushed.replaced, "removed": pushed.removed}
    changes = [f"{len(modules)} {kind}" for kind, modules in kinds.items() if modules]
    console.print(f"modules: {', '.join(changes) or 'none changed'}", style="dim", soft_wrap=True)
    if pushed.state is not None:
        console.print(f"state: {pushed.state_before or 'none'} → {pushed.state}", soft_wrap=True)
    elif pushed.state_before is None:
        console.print(
            "there is no state: decisions are unavailable until a state is released with `--state`", style="yellow"
        )


def run_file_gates(
    request: DeployRequest, report: DeployReport
) -> tuple[Program | None, Path, tuple[State, Path] | None]:
    """Run the gates that only need files, showing each as it ends; the program is None if a failure stops at once."""
    from privtab.pipeline import find_policy
    from privtab.registry.deploy.gates import lint_gate, skipped, test_gate

    path = find_policy(request.policy)
    with report.step("lint"):
        gate, linted = lint_gate(path, variant=request.variant, readings=dict(request.readings))
    report.gates.append(gate)
    show_gate(gate, request.format)
    if linted.program is None:
        print_unless_json(request.format, "stopped; nothing was released", style="bold red")
        report.outcome = "stopped"
        return None, path, None
    loaded = None
    if request.state is not None:
        with report.step("state"):
            loaded = load_state(linted.program, request.state, allow_partial=request.allow_partial), request.state
    with report.step("tests"):
        if request.skip_tests is not None:
            gate = skipped("tests", request.skip_tests)
        else:
            engine = cast("Literal['reference', 'opa', 'both']", request.engine)
            gate = test_gate(path, variant=request.variant, readings=dict(request.readings), engine=engine)
    report.gates.append(gate)
    show_gate(gate, request.format)
    return linted.program, path, loaded


def comparison_gate(request: DeployRequest, registry: Registry, before: Channel, program: Program, path: Path) -> Gate:
    """The comparison with the channel's current release."""
    from privtab.registry.deploy.gates import diff_gate
    from privtab.registry.deploy.program import program_in

    running = None
    if before.policy is not None:
        name = f"{before.channel}: {before.policy}"
        bundle = registry.read(registry.revision(before.system, "policy", before.policy))
        running = program_in(bundle, name), name
    waivers, found = waivers_of(request.waivers)
    show_diagnostics(found)
    return diff_gate(
        running,
        program,
        fail_on=request.fail_on,
        waivers=waivers,
        today=datetime.now(tz=UTC).date(),
        shown=path.as_posix(),
    )


def state_comparison_gate(
    request: DeployRequest, registry: Registry, before: Channel, program: Program, after: State
) -> Gate:
    """The comparison with the channel's current state."""
    from privtab.cli._state_diff import comparison_progress
    from privtab.cli._stored import as_stored, rows_of_bundles, running_states
    from privtab.registry.deploy.gates import state_diff_gate
    from privtab.state.validate import validate

    shown = f"{before.channel}: {before.state or 'state in shards'}"
    # Rows with names that the new policy no longer knows decide nothing under it.
    running, _ = validate(program, rows_of_bundles(program, running_states(registry, before), shown))
    with comparison_progress() as tell:
        return state_diff_gate(
            program,
            as_stored(program, running),
            as_stored(program, after),
            fail_on=request.fail_on,
            accepted=request.accept_gains,
            tell=tell,
        )


def signing_key(request: DeployRequest, registry: Registry, before: Channel) -> SigningKey | None:
    """The key to sign with, for the next sequence of the channel; None without `--signing-key`."""
    from privtab.bundle.sign import SigningKey

    if request.signing_key is None:
        return None
    # Verifiers that check the order of bundles must accept this one as newer than all releases of the channel.
    return SigningKey.of(request.signing_key, scope=request.scope or scope_of(registry), sequence=before.last + 1)


def release_reason(request: DeployRequest, gates: Sequence[Gate]) -> str:
    """The reason stored in the history: the one given, and the gates that were skipped or waived."""
    from privtab.registry.deploy.gates import GateStatus

    reasons = [request.why] if request.why else []
    reasons += [f"{gate.name} {gate.says}" for gate in gates if gate.outcome is GateStatus.SKIPPED]
    reasons += [
        f"{row.verdict} and waived: {row.name} ({row.waived.who}: {row.waived.why})"
        for gate in gates
        if gate.diff is not None
        for row in gate.diff.changes
        if row.waived is not None
    ]
    return "; ".join(reasons)
