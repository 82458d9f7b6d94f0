"""The gates of `privtab deploy`, and what the release takes from them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from privtab.cli._deploy_request import DeployReport, DeployRequest
from privtab.cli._deploy_show import print_unless_json, show_gate
from privtab.cli._options import load_state, waivers_of
from privtab.cli._output import show_diagnostics
from privtab.cli._rollout import scope_of

if TYPE_CHECKING:
    from privtab.bundle.sign import SigningKey
    from privtab.ir.nodes import Program
    from privtab.registry.deploy.gates import Gate
    from privtab.registry.nodes import Channel
    from privtab.registry.registry import Registry
    from privtab.state.nodes import State


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
    from privtab.registry.deploy.gates import Outcome

    reasons = [request.why] if request.why else []
    reasons += [f"{gate.name} {gate.says}" for gate in gates if gate.outcome is Outcome.SKIPPED]
    reasons += [
        f"{row.verdict} and waived: {row.name} ({row.waived.who}: {row.waived.why})"
        for gate in gates
        if gate.diff is not None
        for row in gate.diff.changes
        if row.waived is not None
    ]
    return "; ".join(reasons)
