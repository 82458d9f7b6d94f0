"""The steps of `privtab deploy`, with their output."""

from __future__ import annotations

import signal
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from privtab.cli._deploy_gates import checked, compared, signing_key, why_released
from privtab.cli._deploy_request import DeployReport, DeployRequest, WatchOptions
from privtab.cli._deploy_show import say, show_gate, show_trial
from privtab.cli._output import Format, complain, out, print_json, printed
from privtab.cli._rollout import (
    complain_late,
    progress_console,
    reader_of,
    registry_of,
    token_of,
    watcher,
)
from privtab.errors import UsageError
from privtab.exit_codes import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from privtab.registry.deploy.canary_analysis import CanaryOutcome, CanaryPlan
    from privtab.registry.deploy.rollout import Packed, Rollout
    from privtab.registry.nodes import Channel
    from privtab.registry.registry import Registry


def trial(text: str, *, seconds: float, decisions: int, tolerance: float, quiet_ok: bool) -> CanaryPlan:
    """The plan of a canary from the options."""
    from privtab.registry.deploy.canary import part
    from privtab.registry.deploy.canary_analysis import CanaryPlan

    return CanaryPlan(part=part(text), seconds=seconds, decisions=decisions, tolerance=tolerance, quiet_ok=quiet_ok)


def to_channel(
    asked: DeployRequest,
    registry_url: str | None,
    channel: str,
    watched: WatchOptions,
    canary: CanaryPlan | None,
    *,
    rollback: bool,
) -> None:
    """Run the gates, store the bundles, release them, and watch."""
    registry = registry_of(registry_url)
    if canary is not None and not watched.server:
        raise UsageError("`--canary` needs `--server URL`: it counts what the canary and the others decide")
    told = DeployReport()
    try:
        with reader_of(watched.server, watched.opas, watched.token_file, watched.ca) as read:
            code = _to_channel(asked, registry, channel, watched, read, canary, told, rollback=rollback)
    finally:
        if asked.format is Format.JSON and told.outcome:
            print_json(told.json())
    if code:
        raise typer.Exit(code)


def _to_channel(
    asked: DeployRequest,
    registry: Registry,
    channel: str,
    watched: WatchOptions,
    read: Any,
    canary: CanaryPlan | None,
    told: DeployReport,
    *,
    rollback: bool,
) -> int:
    from privtab.registry.deploy.gates import state_gate
    from privtab.registry.deploy.rollout import Rollout, pack

    if asked.signing_key is None and registry.trust() is not None:
        raise UsageError(
            f"{registry.url} accepts only signed bundles: give `--signing-key FILE`, or set $PRIVTAB_SIGNING_KEY"
        )
    program, path, loaded = checked(asked, told)
    if program is None:
        return ExitCode.FINDINGS
    before = told.before = registry.channel(channel, program.system)
    if before.trouble:
        complain(before.trouble)
    with told.step("diff"):
        told.gates.append(compared(asked, registry, before, program, path))
    show_gate(told.gates[-1], asked.format)
    if loaded is None and (before.state or before.shards):
        kept = state_gate(
            told.gates[-1].diff, keep=asked.keep_state, in_shards=bool(before.shards), sharded=asked.sharded
        )
        if kept is not None:
            told.gates.append(kept)
            show_gate(kept, asked.format)
    if not all(gate.passed for gate in told.gates):
        say(asked.format, "stopped; nothing was released", style="bold red")
        told.outcome = "stopped"
        return ExitCode.FINDINGS
    with told.step("pack"):
        packed = pack(
            program,
            path,
            state=loaded,
            sharded=asked.sharded,
            signing=signing_key(asked, registry, before),
            choices={"variant": asked.variant, "readings": dict(asked.readings)},
        )
    if asked.dry_run:
        for bundle in packed.bundles():
            registry.check_signature(bundle)
        say(
            asked.format,
            f"would release to {channel}/{program.system} to policy {packed.revision}; nothing was released",
        )
        told.outcome = "dry-run"
        return ExitCode.OK
    rollout = Rollout(
        registry=registry,
        channel=channel,
        system=program.system,
        read=read,
        follow=watcher(progress_console(quiet=asked.format is Format.JSON)),
        timeout=watched.timeout,
        expect=watched.expect,
    )
    with ExitStack() as hold:
        ended = _switched(asked, rollout, packed, before, canary, told, hold)
    if ended is not None:
        return ended
    return _watch(asked, rollout, before, told, rollback=rollback)


def _switched(
    asked: DeployRequest,
    rollout: Rollout,
    packed: Packed,
    before: Channel,
    canary: CanaryPlan | None,
    told: DeployReport,
    hold: ExitStack,
) -> int | None:
    """Store and release, to a canary first if asked for; the exit code if that ends the deployment, else None."""
    with told.step("put"):
        to = rollout.put(packed, hold, resign=asked.signing_key is not None)
    why = why_released(asked, told.gates)
    if canary is not None and to.changes(before) and before.policy is not None and not before.held:
        ended = _run_canary(asked, rollout, to, before, why, canary, told)
        if ended is None or not ended.good:
            return ExitCode.FINDINGS if ended is not None else ExitCode.EXTERNAL
        switched_from = told.after or before
    else:
        if canary is not None:
            say(asked.format, "no canary: there is no earlier release, or nothing changes", style="dim")
        switched_from = before
    if not (to.changes(before) or before.canary or before.broken) and asked.signing_key is None:
        told.after = before
        rollout.settle(before)
        say(
            asked.format,
            f"{rollout.channel}/{rollout.system} runs this already ({before.sequence}); nothing to release",
        )
    else:
        with told.step("switch"):
            told.after = rollout.release(to, switched_from, why)
        say(
            asked.format,
            f"{rollout.channel}/{rollout.system}: release {told.after.sequence}, policy {told.after.policy}",
            style="bold",
        )
        if not (told.after.state or told.after.shards):
            say(
                asked.format,
                "it has no state: decisions are unavailable until a state is released with `--state`",
                style="yellow",
            )
    return None


def _run_canary(
    asked: DeployRequest, rollout: Rollout, to: Any, before: Channel, why: str, canary: CanaryPlan, told: DeployReport
) -> CanaryOutcome | None:
    """Release to a canary and observe it. None if its sidecars did not activate it. If it fails, it is rolled back."""
    from privtab.registry.deploy.canary_analysis import nothing_to_compare, observe, sides
    from privtab.registry.nodes import Canary

    sides(replace(before, canary=Canary(policy=to.policy, state=to.state)))
    during = rollout.begin_canary(to, before, f"canary: {why}" if why else "canary", canary.part)
    told.after = during
    say(asked.format, f"canary of {canary.words}: release {during.sequence}, policy {to.policy}", style="bold")
    console = progress_console(quiet=asked.format is Format.JSON)
    try:
        with told.step("canary"), _ended_by_signal():
            look = told.looks["canary"] = rollout.wait(before, during, "canary", canary=True)
            if look is not None and look.complete and look.active and rollout.read is not None:
                everybody = rollout.alone(during)
                ended = told.trial = (
                    nothing_to_compare(everybody, canary.quiet_ok)
                    if everybody
                    else observe(rollout.read, during, canary, console)
                )
                if ended.good:
                    show_trial(ended, asked.format)
                    return ended
    except BaseException:
        # On any error, even Ctrl-C, do not leave sidecars on an untested release.
        rollout.end_canary(during, "the canary was aborted")
        complain("the canary was aborted: all sidecars get the previous release")
        raise
    told.after = rollout.end_canary(during, "the canary was refused")
    if told.trial is None:
        reason = (
            "no sidecar is in that part"
            if look is not None and not look.awaited
            else "the canary's sidecars did not activate it"
        )
        if look is not None:
            complain_late(look)
    else:
        reason = told.trial.says
        show_trial(told.trial, asked.format)
    say(asked.format, f"{reason}; all sidecars get what ran before (release {told.after.sequence})", style="bold red")
    told.looks["back"] = rollout.wait(during, told.after, "back")
    told.outcome = "canary-refused"
    return told.trial


@contextmanager
def _ended_by_signal() -> Iterator[None]:
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


def _watch(asked: DeployRequest, rollout: Rollout, before: Channel, told: DeployReport, *, rollback: bool) -> int:
    assert told.after is not None
    try:
        with told.step("watch"):
            look = told.looks["all"] = rollout.wait(before, told.after, "watching")
    except KeyboardInterrupt:
        told.outcome = "unwatched"
        complain(f"no longer watching: {rollout.channel}/{rollout.system} stays at release {told.after.sequence}")
        raise
    if look is None:
        say(asked.format, "not watching: give `--server URL` or `--opa URL` to see every sidecar run it", style="dim")
        told.outcome = "unwatched"
        return ExitCode.OK
    if look.complete:
        told.outcome = "deployed"
        return ExitCode.OK
    complain_late(look)
    told.outcome = "late"
    if rollback and before.policy is not None:
        from privtab.registry.deploy.rollout import same_as

        after = rollout.release(same_as(before), told.after, f"back: {look.summary}")
        say(asked.format, f"back to policy {after.policy}: release {after.sequence}", style="bold red")
        told.looks["back"] = rollout.wait(told.after, after, "back")
        told.after = after
        told.outcome = "rolled-back"
    return ExitCode.EXTERNAL


def into_opa(asked: DeployRequest, url: str, token_file: Path | None) -> None:
    """`--push`: run the gates except the comparison, then push to a single OPA."""
    from privtab.pipeline import policy_artifacts
    from privtab.registry.deploy.push import push
    from privtab.state.index import index

    if asked.sharded:
        raise UsageError("`--push` takes a whole state: leave `--sharded` off")
    told = DeployReport()
    program, _, loaded = checked(asked, told)
    if program is None or not all(gate.passed for gate in told.gates):
        if asked.format is Format.JSON:
            told.outcome = "stopped"
            print_json(told.json())
        elif program is not None:
            say(asked.format, "stopped; nothing was pushed", style="bold red")
        raise typer.Exit(ExitCode.FINDINGS)
    if asked.dry_run:
        say(asked.format, f"would push policy {policy_artifacts(program).revision}; nothing was pushed")
        return
    document = None if loaded is None else dict(index(program, loaded[0]))
    pushed = push(url, policy_artifacts(program), document, token=token_of(token_file))
    if printed(
        asked.format, {"outcome": "pushed", "gates": [gate.json() for gate in told.gates], "pushed": pushed.json()}
    ):
        return
    console = out()
    old = f"{pushed.version_before} {pushed.policy_before}" if pushed.policy_before else "none"
    console.print(f"{url}: policy {old} → {program.version} {pushed.policy}", soft_wrap=True)
    kinds = {"added": pushed.added, "replaced": pushed.replaced, "removed": pushed.removed}
    words = [f"{len(modules)} {kind}" for kind, modules in kinds.items() if modules]
    console.print(f"modules: {', '.join(words) or 'none changed'}", style="dim", soft_wrap=True)
    if pushed.state is not None:
        console.print(f"state: {pushed.state_before or 'none'} → {pushed.state}", soft_wrap=True)
    elif pushed.state_before is None:
        console.print(
            "there is no state: decisions are unavailable until a state is released with `--state`", style="yellow"
        )
