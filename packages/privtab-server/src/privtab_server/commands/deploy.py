"""`privtab deploy`: check a policy, release it, and watch the sidecars."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from privtab.base import ExitCode, UsageError, load_plugin
from privtab.command import (
    PolicyArguments,
    SigningKeyOption,
    deliver,
    err,
    load_rows,
    load_state,
    open_doors,
    option,
    print_error,
    show_findings,
)
from privtab_analysis.commands._failing import EMPTY, INCOMPLETE, accepted
from privtab_analysis.commands._waivers import WaiversOption, waivers_of
from privtab_analysis.state_diff.rows import as_stored
from privtab_server.addresses import token_or_variable
from privtab_server.commands._registry_options import open_registry, written_options
from privtab_server.commands._rollout import (
    CanaryOptions,
    DeployReport,
    ReleaseOptions,
    ScopeOption,
    interrupt_on_sigterm,
    print_late,
    show_canary_outcome,
    signing_key,
)
from privtab_server.registry_states import running_states

if TYPE_CHECKING:
    from privtab.ir import Program
    from privtab.state import State
    from privtab_server.registry.deploy.canary import CanaryOutcome, CanaryPlan
    from privtab_server.registry.deploy.gates import Gate
    from privtab_server.registry.deploy.rollout import PackedBundles, Rollout
    from privtab_server.registry.nodes import Channel
    from privtab_server.registry.registry import Registry

PANEL = "Start here"
NO_STATE = "decisions are unavailable until a state is released with `--state`"

PARTIAL = "partial-state"
"""Wrong rows of the state, which are left out."""
REASONS = ("untested", "kept-state", "gains", "replay")
"""What a release may be made in spite of, for a reason that the channel's history keeps."""
KINDS = (INCOMPLETE, EMPTY, "quiet-canary", PARTIAL)
NOT_PUSHED = (
    "--canary", "--canary-limit", "--signing-key", "--signature", "--registry", "--channel", "--server", "--opa", "--wait", "--why",
    "--sharded", "--replay", "--waivers", "--rollback-on-failure",
)  # fmt: skip
"""The options about releases and gates, which `--push` has none of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployOptions(PolicyArguments):
    """Options for what is deployed, and for its gates."""

    door: Annotated[
        list[str] | None, option("--door DOCUMENT", "Also answer another system in its own form; repeatable.")
    ] = None
    state: Annotated[Path | None, option("--state -s STATE", "Also deploy this state. (default: the channel's)")] = None
    fail_on: Annotated[
        Literal["wider", "any", "none"],
        option("--fail-on wider|any|none", "Changes that stop the deployment unless waived."),
    ] = "wider"
    waivers: WaiversOption = None
    accept: Annotated[
        list[str] | None,
        option(
            "--accept KIND[=WHY]",
            f"Release in spite of this: {', '.join(f'{name}=WHY' for name in REASONS)}, {', '.join(KINDS)}; repeatable.",
        ),
    ] = None
    replay: Annotated[
        list[Path] | None,
        option("--replay LOGS", "Decision logs to replay: stop if an answer in them would change; repeatable."),
    ] = None
    engine: Annotated[
        Literal["reference", "opa", "both"],
        option("--engine reference|opa|both", "Engine that answers the scenarios."),
    ] = "reference"
    sharded: Annotated[bool, option("--sharded", "Shard the state: one bundle for each root entity.")] = False
    rollback: Annotated[bool, option("--rollback-on-failure", "Roll back if any sidecar fails to activate.")] = False
    dry_run: Annotated[bool, option("--dry-run", "Run the gates only: store and release nothing.")] = False
    signing_key: SigningKeyOption = None
    signature: ScopeOption = None
    push: Annotated[
        str | None, option("--push URL", "Push straight into a running OPA, for development; no registry.")
    ] = None

    def accepted(self) -> dict[str, str]:
        """What the release is made in spite of, with reasons. Raises UsageError."""
        return accepted(self.accept, KINDS, REASONS)


def run(deploy: DeployOptions, canary: CanaryOptions, release: ReleaseOptions) -> None:
    """Check a policy, release it to a channel, and watch until every sidecar has activated it.

    Gates: lint findings, scenarios, the changes to the policy and the state that the channel runs, and with `--replay` what
    they change for logged decisions. Exits with 1 if a gate or the canary stops the deployment; then nothing was released, or
    it was rolled back. Exits with 3 if a sidecar fails to activate, and says which and why.

    Example:
      privtab deploy lake.yaml --registry registry/ --state state.yaml
      privtab deploy gravitino/1.1.0 -r s3://bundles -c prod --server https://registry:8080 --wait sidecars=12
      privtab deploy lake.yaml -r registry/ --server http://127.0.0.1:8080 --canary zone=a,10% --why "orders can be read"
      privtab deploy lake.yaml -r registry/ --dry-run
      privtab deploy lake.yaml --state state.yaml --push http://127.0.0.1:8181
    """
    kinds = deploy.accepted()
    release.waits()
    report = DeployReport(quiet=release.quiet)
    if deploy.push is not None:
        written = written_options(deploy) | written_options(canary) | written_options(release)
        excluded = {name: written.get(name) for name in NOT_PUSHED} | {"--fail-on": deploy.fail_on == "any"}
        excluded |= {f"--accept {kind}": kind not in ("untested", PARTIAL) for kind in kinds}
        for name, value in excluded.items():
            if value:
                raise UsageError(f"`--push` goes to one OPA, without {name}: leave that off")
        deployed: Callable[[], int] = partial(_push, deploy, release, deploy.push, report)
    else:
        plan = canary.plan(quiet_ok="quiet-canary" in kinds)
        registry = open_registry(release.registry)
        if plan is not None and not release.server:
            raise UsageError("`--canary` needs `--server URL`: it counts what the canary and the others decide")
        deployed = _Deployment(deploy, release, registry, plan, report).run
    try:
        code = deployed()
    finally:
        if release.quiet and report.outcome:
            deliver(report.json())
    if code:
        raise SystemExit(code)


def _file_gates(deploy: DeployOptions, report: DeployReport) -> tuple[Program | None, Path, tuple[State, Path] | None]:
    """Run the gates that only need files, showing each as it ends; the program is None if a failure stops at once."""
    from privtab.pipeline import ChosenPolicy, find_policy
    from privtab_server.registry.deploy.gates import lint_gate, skipped, test_gate

    named = ChosenPolicy.of(deploy.policy)
    path = find_policy(named.policy)
    with report.step("lint"):
        gate, program = lint_gate(path, **named.chosen())
    report.ended(gate)
    if program is None:
        report.stop("stopped; nothing was released")
        return None, path, None
    loaded = None
    if deploy.state is not None:
        with report.step("state"):
            loaded = load_state(program, deploy.state, allow_partial=PARTIAL in deploy.accepted()).state, deploy.state
    with report.step("tests"):
        if (why := deploy.accepted().get("untested")) is not None:
            gate = skipped("tests", why)
        else:
            gate = test_gate(path, engine=deploy.engine, **named.chosen())
    report.ended(gate)
    return program, path, loaded


def _push(deploy: DeployOptions, release: ReleaseOptions, url: str, report: DeployReport) -> int:
    """Run the gates except the comparison, then push to a single OPA; returns the exit code."""
    from privtab.pipeline import policy_artifacts
    from privtab.state import index_document
    from privtab_server.registry.deploy.push import push

    program, _, loaded = _file_gates(deploy, report)
    if program is None or not report.all_passed:
        if program is not None:
            report.stop("stopped; nothing was pushed")
        return ExitCode.FINDINGS
    artifacts = policy_artifacts(program, doors=open_doors(program, deploy.door))
    if deploy.dry_run:
        report.tell(f"would push policy {artifacts.revision}; nothing was pushed")
        report.outcome = "dry-run"
        return ExitCode.OK
    document = None if loaded is None else dict(index_document(program, loaded[0]))
    token = token_or_variable(release.token)
    pushed = report.pushed = push(url, artifacts, document, token=token, ca=release.trusted())
    report.outcome = "pushed"
    previous = f"{pushed.version_before} {pushed.policy_before}" if pushed.policy_before else "none"
    report.tell(f"{url}: policy {previous} → {program.version} {pushed.policy}")
    kinds = {"added": pushed.added, "replaced": pushed.replaced, "removed": pushed.removed}
    changes = [f"{len(modules)} {kind}" for kind, modules in kinds.items() if modules]
    report.tell(f"modules: {', '.join(changes) or 'none changed'}", style="dim")
    if pushed.state is not None:
        report.tell(f"state: {pushed.state_before or 'none'} → {pushed.state}")
    elif pushed.state_before is None:
        report.tell(f"there is no state: {NO_STATE}", style="yellow")
    return ExitCode.OK


@dataclass(frozen=True)
class _Deployment:
    """One deployment to a channel: the gates, the bundles, the canary, the release, the watch."""

    options: DeployOptions
    release: ReleaseOptions
    registry: Registry
    canary: CanaryPlan | None
    report: DeployReport

    def run(self) -> int:
        """Run the gates, store the bundles, release them, and watch; returns the exit code."""
        from privtab.bundle import Provenance
        from privtab.pipeline import ChosenPolicy, policy_artifacts
        from privtab_server.registry.deploy.rollout import pack

        with self.release.reader() as read:
            signed = self.options.signing_key is not None
            if not signed and self.registry.requires_signatures():
                raise UsageError(
                    f"{self.registry.url} accepts only signed bundles: give `--signing-key FILE`, or set $PRIVTAB_SIGNING_KEY"
                )
            program, path, loaded = _file_gates(self.options, self.report)
            if program is None:
                return ExitCode.FINDINGS
            before = self.report.before = self.registry.channel(self.release.channel, program.system)
            if before.trouble:
                print_error(before.trouble)
            opened = open_doors(program, self.options.door)
            self._compare(before, program, path, None if loaded is None else loaded[0], {door.name for door in opened})
            if self.options.replay:
                self._replay(self.options.replay, program)
            if not self.report.all_passed:
                self.report.stop("stopped; nothing was released")
                return ExitCode.FINDINGS
            with self.report.step("pack"):
                key = self.options.signing_key
                made = Provenance.of(path, **ChosenPolicy.of(self.options.policy).chosen())
                packed = pack(
                    program,
                    policy_artifacts(program, sharded=self.options.sharded, provenance=made, doors=opened),
                    state=loaded,
                    sharded=self.options.sharded,
                    signing=None if key is None else signing_key(self.registry, key, self.options.signature, before),
                )
            if self.options.dry_run:
                for bundle in packed.bundles():
                    self.registry.check_signature(bundle)
                target = f"{self.release.channel}/{packed.system}"
                self.report.tell(f"would release policy {packed.revision} to {target}; nothing was released")
                self.report.outcome = "dry-run"
                return ExitCode.OK
            rollout = self.release.rollout(self.registry, program.system, read, signed=signed)
            with ExitStack() as protection:
                exit_code = self._store_and_release(rollout, packed, before, protection)
            return self._watch(rollout, before) if exit_code is None else exit_code

    def _compare(
        self, before: Channel, program: Program, path: Path, loaded: State | None, opened: Collection[str]
    ) -> None:
        """Run the gates that compare the policy and the state with the channel's."""
        from privtab_server.registry.deploy.gates import state_gate

        report, options = self.report, self.options
        with report.step("diff"):
            gate = self._comparison(before, program, path, opened)
        report.ended(gate)
        if not (before.state or before.shards):
            return
        if loaded is not None:
            with report.step("state diff"):
                state_comparison = self._state_comparison(before, program, loaded)
            report.ended(state_comparison)
            return
        kept = state_gate(
            gate.diff, keep=options.accepted().get("kept-state"), in_shards=bool(before.shards), sharded=options.sharded
        )
        if kept is not None:
            report.ended(kept)

    def _replay(self, logs: list[Path], program: Program) -> None:
        """Run the gate that decides logged requests again."""
        kinds = self.options.accepted()
        allowed = {"incomplete": INCOMPLETE in kinds, "empty": EMPTY in kinds}
        gate = load_plugin("privtab.gates", "replay").replay_gate
        with self.report.step("replay"):
            ran = gate(logs, program, self.options.state, self.registry, kinds.get("replay"), **allowed)
        self.report.ended(ran)

    def _comparison(self, before: Channel, program: Program, path: Path, opened: Collection[str]) -> Gate:
        """The comparison with the channel's current release; what other systems lose is said besides."""
        from privtab.bundle import program_in
        from privtab_server.registry.deploy.gates import FailingOn, diff_gate

        running = None
        if before.policy is not None:
            name = f"{before.channel}: {before.policy}"
            bundle = self.registry.read(self.registry.revision(before.system, "policy", before.policy))
            released, document = program_in(bundle, name)
            running = released, name
            if closed := sorted({*document.get("doors", ())}.difference(opened)):
                print_error(
                    f"{name} answers other systems by the doors {', '.join(closed)}, which are not given: these would be denied everything"
                )
        waivers, found = waivers_of(self.options.waivers)
        show_findings(found)
        return diff_gate(
            running,
            program,
            fail_on=FailingOn(self.options.fail_on),
            waivers=waivers,
            today=datetime.now(tz=UTC).date(),
            shown=path.as_posix(),
        )

    def _state_comparison(self, before: Channel, program: Program, after: State) -> Gate:
        """The comparison with the channel's current state."""
        from privtab.state import validate
        from privtab_server.registry.deploy.gates import FailingOn, state_diff_gate

        shown = f"{before.channel}: {before.state or 'state in shards'}"
        # Rows with names that the new policy no longer knows decide nothing under it.
        running, _ = validate(program, load_rows(program, shown, running_states(self.registry, before)))
        with err().progress(1, "comparing users") as tell:
            return state_diff_gate(
                program,
                as_stored(program, running),
                as_stored(program, after),
                fail_on=FailingOn(self.options.fail_on),
                accepted=self.options.accepted().get("gains"),
                tell=tell,
            )

    def _store_and_release(
        self, rollout: Rollout, packed: PackedBundles, before: Channel, protection: ExitStack
    ) -> int | None:
        """Store and release, to a canary first if asked for; the exit code if that ends the deployment, else None."""
        report, signed = self.report, self.options.signing_key is not None
        with report.step("put"):
            target = rollout.put(packed, protection, resign=signed)
        reason = self._release_reason()
        running = before
        if self.canary is not None and target.changes(before) and before.policy is not None and not before.held:
            outcome = self._run_canary(self.canary, rollout, target, before, reason)
            if outcome is None or not outcome.good:
                return ExitCode.FINDINGS if outcome is not None else ExitCode.EXTERNAL
            running = report.after or before
        elif self.canary is not None:
            report.tell("no canary: there is no earlier release, or nothing changes", style="dim")
        name = f"{rollout.channel}/{rollout.system}"
        if not (target.changes(before) or before.canary or before.broken) and not signed:
            report.after = before
            rollout.update_mirror(before)
            report.tell(f"{name} runs this already ({before.sequence}); nothing to release")
            return None
        with report.step("release"):
            report.after = rollout.release(target, running, reason)
        report.tell(f"{name}: release {report.after.sequence}, policy {report.after.policy}", style="bold")
        if not (report.after.state or report.after.shards):
            report.tell(f"it has no state: {NO_STATE}", style="yellow")
        return None

    def _release_reason(self) -> str:
        """The reason stored in the history: the one given, and the gates that were skipped or waived."""
        from privtab_server.registry.deploy.gates import GateStatus

        reasons = [self.release.why] if self.release.why else []
        reasons += [f"{gate.name} {gate.says}" for gate in self.report.gates if gate.outcome is GateStatus.SKIPPED]
        reasons += [
            f"{row.verdict} and waived: {row.name} ({row.waived.who}: {row.waived.why})"
            for gate in self.report.gates
            if gate.diff is not None
            for row in gate.diff.changes
            if row.waived is not None
        ]
        return "; ".join(reasons)

    def _run_canary(
        self, canary: CanaryPlan, rollout: Rollout, target: Any, before: Channel, why: str
    ) -> CanaryOutcome | None:
        """Release to a canary and observe it. None if its sidecars did not activate it. If it fails, it is rolled back."""
        from privtab_server.registry.deploy.canary import sides
        from privtab_server.registry.nodes import Canary

        report = self.report
        sides(replace(before, canary=Canary(policy=target.policy, state=target.state)))
        during = rollout.begin_canary(target, before, f"canary: {why}" if why else "canary", canary.part)
        report.after = during
        report.tell(f"canary of {canary.words}: release {during.sequence}, policy {target.policy}", style="bold")
        try:
            with report.step("canary"), interrupt_on_sigterm():
                self._observe(canary, rollout, before, during)
                outcome = report.canary_outcome
                if outcome is not None and outcome.good:
                    show_canary_outcome(outcome, report)
                    return outcome
        except BaseException:
            # On any error, even Ctrl-C, do not leave sidecars on an untested release.
            rollout.end_canary(during, "the canary was aborted")
            print_error("the canary was aborted: all sidecars get the previous release")
            raise
        report.after = rollout.end_canary(during, "the canary was refused")
        snapshot = report.snapshots["canary"]
        if outcome is not None:
            reason = outcome.says
            show_canary_outcome(outcome, report)
        elif snapshot is None or snapshot.awaited:
            reason = "the canary's sidecars did not activate it"
        else:
            reason = "no sidecar is in that part"
        if outcome is None and snapshot is not None:
            print_late(snapshot)
        text = f"{reason}; all sidecars get what ran before (release {report.after.sequence})"
        report.tell(text, style="bold red")
        report.snapshots["back"] = rollout.wait(during, report.after, "back")
        report.outcome = "canary-refused"
        return outcome

    def _observe(self, canary: CanaryPlan, rollout: Rollout, before: Channel, during: Channel) -> None:
        """Wait for the sidecars of a canary, and compare what they decide with the others."""
        from privtab_server.registry.deploy.canary import nothing_to_compare, observe

        snapshot = self.report.snapshots["canary"] = rollout.wait(before, during, "canary", canary=True)
        if snapshot is None or not (snapshot.complete and snapshot.active) or rollout.read is None:
            return
        if lone_sidecars := rollout.count_if_all_in_canary(during):
            self.report.canary_outcome = nothing_to_compare(lone_sidecars, canary.quiet_ok)
        else:
            self.report.canary_outcome = observe(rollout.read, during, canary, None if self.release.quiet else err())

    def _watch(self, rollout: Rollout, before: Channel) -> int:
        report = self.report
        assert report.after is not None
        try:
            with report.step("watch"):
                snapshot = report.snapshots["all"] = rollout.wait(before, report.after, "watching")
        except KeyboardInterrupt:
            report.outcome = "unwatched"
            name = f"{rollout.channel}/{rollout.system}"
            print_error(f"no longer watching: {name} stays at release {report.after.sequence}")
            raise
        if snapshot is None:
            report.tell("not watching: give `--server URL` or `--opa URL` to see every sidecar run it", style="dim")
            report.outcome = "unwatched"
            return ExitCode.OK
        if snapshot.complete:
            report.outcome = "deployed"
            return ExitCode.OK
        print_late(snapshot)
        report.outcome = "late"
        if self.options.rollback and before.policy is not None:
            from privtab_server.registry.deploy.rollout import running_revisions

            after = rollout.release(running_revisions(before), report.after, f"back: {snapshot.summary}")
            report.tell(f"back to policy {after.policy}: release {after.sequence}", style="bold red")
            report.snapshots["back"] = rollout.wait(report.after, after, "back")
            report.after = after
            report.outcome = "rolled-back"
        return ExitCode.EXTERNAL
