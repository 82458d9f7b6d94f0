"""The gates of `privtab deploy`, and what the release takes from them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from privtab.cli._deploy_request import DeployReport, DeployRequest
from privtab.cli._deploy_show import say, show_gate
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


def checked(asked: DeployRequest, told: DeployReport) -> tuple[Program | None, Path, tuple[State, Path] | None]:
    """Run the gates that only need files, showing each as it ends; the program is None if a failure stops at once."""
    from privtab.pipeline import find_policy
    from privtab.registry.deploy.gates import lint_gate, skipped, test_gate

    path = find_policy(asked.policy)
    with told.step("lint"):
        gate, linted = lint_gate(path, variant=asked.variant, readings=dict(asked.readings))
    told.gates.append(gate)
    show_gate(gate, asked.format)
    if linted.program is None:
        say(asked.format, "stopped; nothing was released", style="bold red")
        told.outcome = "stopped"
        return None, path, None
    loaded = None
    if asked.state is not None:
        with told.step("state"):
            loaded = load_state(linted.program, asked.state, allow_partial=asked.allow_partial), asked.state
    with told.step("tests"):
        if asked.skip_tests is not None:
            gate = skipped("tests", asked.skip_tests)
        else:
            engine = cast("Literal['reference', 'opa', 'both']", asked.engine)
            gate = test_gate(path, variant=asked.variant, readings=dict(asked.readings), engine=engine)
    told.gates.append(gate)
    show_gate(gate, asked.format)
    return linted.program, path, loaded


def compared(asked: DeployRequest, registry: Registry, before: Channel, program: Program, path: Path) -> Gate:
    """The comparison with the channel's current release."""
    from privtab.registry.deploy.gates import diff_gate
    from privtab.registry.deploy.program import program_in

    running = None
    if before.policy is not None:
        name = f"{before.channel}: {before.policy}"
        kept = registry.read(registry.revision(before.system, "policy", before.policy))
        running = program_in(kept, name), name
    waivers, found = waivers_of(asked.waivers)
    show_diagnostics(found)
    return diff_gate(
        running,
        program,
        fail_on=asked.fail_on,
        waivers=waivers,
        today=datetime.now(tz=UTC).date(),
        shown=path.as_posix(),
    )


def signing_key(asked: DeployRequest, registry: Registry, before: Channel) -> SigningKey | None:
    """The key to sign with, for the next sequence of the channel; None without `--signing-key`."""
    from privtab.bundle.sign import SigningKey

    if asked.signing_key is None:
        return None
    # Verifiers that check the order of bundles must accept this one as newer than all releases of the channel.
    return SigningKey.of(asked.signing_key, scope=asked.scope or scope_of(registry), sequence=before.last + 1)


def why_released(asked: DeployRequest, gates: Sequence[Gate]) -> str:
    """The reason stored in the history: the one given, and the gates that were skipped or waived."""
    from privtab.registry.deploy.gates import Outcome

    said = [asked.why] if asked.why else []
    said += [f"{gate.name} {gate.says}" for gate in gates if gate.outcome is Outcome.SKIPPED]
    said += [
        f"{row.verdict} and waived: {row.name} ({row.waived.who}: {row.waived.why})"
        for gate in gates
        if gate.diff is not None
        for row in gate.diff.changes
        if row.waived is not None
    ]
    return "; ".join(said)
