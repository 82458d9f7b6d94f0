"""`privtab deploy`: check a policy, release it, and watch the sidecars."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from privtab.cli._options import (
    WAIVERS,
    FormatOption,
    PartialOption,
    PolicyArgument,
    ReadingOption,
    VariantOption,
    readings,
)
from privtab.cli._output import Format
from privtab.cli._rollout import (
    CaOption,
    ChannelOption,
    ExpectOption,
    OpaOption,
    RegistryOption,
    ServerOption,
    TimeoutOption,
    TokenOption,
    WhyOption,
)
from privtab.cli._signing import ScopeOption, SigningKeyOption
from privtab.errors import UsageError

if TYPE_CHECKING:
    from privtab.registry.deploy.gates import FailingOn

PANEL = "Start here"


def run(
    policy: PolicyArgument,
    registry: RegistryOption = None,
    channel: ChannelOption = "dev",
    state: Annotated[
        Path | None,
        typer.Option("--state", "-s", metavar="STATE", help="State to deploy too. (default: keep the channel's)"),
    ] = None,
    server: ServerOption = None,
    opa: OpaOption = None,
    fail_on: Annotated[
        str, typer.Option("--fail-on", metavar="wider|any|none", help="Changes that stop the deployment unless waived.")
    ] = "wider",
    waivers: Annotated[
        Path | None,
        typer.Option(
            "--waivers", metavar="FILE", help="File of waivers: changes that are intended.", show_default=str(WAIVERS)
        ),
    ] = None,
    skip_tests: Annotated[
        str | None, typer.Option("--skip-tests", metavar="WHY", help="Skip the scenarios; records the reason.")
    ] = None,
    keep_state: Annotated[
        str | None,
        typer.Option(
            "--keep-state",
            metavar="WHY",
            help="Keep the running state although its names changed; records the reason.",
        ),
    ] = None,
    accept_gains: Annotated[
        str | None,
        typer.Option(
            "--accept-gains",
            metavar="WHY",
            help="Release a state by which users gain sensitive operations; records the reason.",
        ),
    ] = None,
    engine: Annotated[
        str, typer.Option("--engine", metavar="reference|opa|both", help="Engine that answers the scenarios.")
    ] = "reference",
    variant: VariantOption = None,
    reading: ReadingOption = None,
    sharded: Annotated[
        bool, typer.Option("--sharded", help="Shard the state: one bundle for each root entity.")
    ] = False,
    canary: Annotated[
        str | None,
        typer.Option(
            "--canary",
            metavar="PART",
            help="Deploy to some sidecars first: 10%, zone=a, or app=web,25%; needs --server.",
        ),
    ] = None,
    canary_seconds: Annotated[
        float, typer.Option("--canary-seconds", min=0, metavar="SECONDS", help="Maximum time to compare the canary.")
    ] = 60.0,
    canary_decisions: Annotated[
        int, typer.Option("--canary-decisions", min=1, metavar="N", help="Number of canary decisions to compare.")
    ] = 200,
    canary_tolerance: Annotated[
        float,
        typer.Option(
            "--canary-tolerance", min=0, max=1, metavar="SHARE", help="Maximum change of a rule's allow share."
        ),
    ] = 0.02,
    canary_quiet: Annotated[
        bool, typer.Option("--canary-quiet-ok", help="Continue if the canary made too few decisions.")
    ] = False,
    timeout: TimeoutOption = 60.0,
    expect: ExpectOption = 0,
    rollback: Annotated[
        bool, typer.Option("--rollback-on-failure", help="Roll back if any sidecar fails to activate.")
    ] = False,
    why: WhyOption = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Run the gates only: store and release nothing.")] = False,
    signing_key: SigningKeyOption = None,
    scope: ScopeOption = "",
    push: Annotated[
        str | None,
        typer.Option("--push", metavar="URL", help="Push straight into a running OPA, for development; no registry."),
    ] = None,
    allow_partial: PartialOption = False,
    token_file: TokenOption = None,
    ca: CaOption = None,
    format_: FormatOption = Format.TEXT,
) -> None:
    """Check a policy, release it to a channel, and watch until every sidecar has activated it.

    Gates: lint findings, scenarios, and the changes to the policy and the state that the channel runs. Exits with 1 if
    a gate or the canary stops the deployment; then nothing was released, or it was rolled back. Exits with 3 if a
    sidecar fails to activate, and says which and why.

    Example:

    \b
      privtab deploy gravitino/1.1.0 --registry registry/ --state policy_src/gravitino/state.yaml
      privtab deploy gravitino/1.1.0 -r s3://bundles -c prod --server https://registry:8080 --expect 12
      privtab deploy my.yaml -r registry/ --canary zone=a,10% --rollback-on-failure --why "orders can be read"
      privtab deploy my.yaml -r registry/ --dry-run
      privtab deploy my.yaml --state state.yaml --push http://127.0.0.1:8181
    """
    from privtab.cli import _deploy
    from privtab.cli._deploy_show import DeployRequest, WatchOptions

    request = DeployRequest(
        policy=policy,
        variant=variant,
        readings=readings(reading),
        state=state,
        allow_partial=allow_partial,
        sharded=sharded,
        fail_on=_failing(fail_on),
        waivers=waivers,
        skip_tests=_reason(skip_tests, "--skip-tests"),
        keep_state=_reason(keep_state, "--keep-state"),
        accept_gains=_reason(accept_gains, "--accept-gains"),
        engine=_engine(engine),
        signing_key=signing_key or None,
        scope=scope,
        dry_run=dry_run,
        why=why,
        format=format_,
    )
    if push is not None:
        if unsupported := [name for name, value in (("--canary", canary), ("--scope", scope)) if value]:
            raise UsageError(f"`--push` goes to one OPA, without {unsupported[0]}: leave that off")
        _deploy.push_to_opa(request, push, token_file, ca)
        return
    watch = WatchOptions(
        server=server, opas=tuple(opa or ()), token_file=token_file, ca=ca, timeout=timeout, expect=expect
    )
    plan = None
    if canary is not None:
        plan = _deploy.canary_plan(
            canary,
            seconds=canary_seconds,
            decisions=canary_decisions,
            tolerance=canary_tolerance,
            quiet_ok=canary_quiet,
        )
    _deploy.to_channel(request, registry, channel, watch, plan, rollback=rollback)


def _failing(word: str) -> FailingOn:
    from privtab.registry.deploy.gates import FailingOn

    if word not in set(FailingOn):
        raise UsageError(f"`--fail-on {word}`: there are {', '.join(FailingOn)}")
    return FailingOn(word)


def _reason(text: str | None, option: str) -> str | None:
    if text is not None and not text.strip():
        raise UsageError(f"`{option}`: say why; the reason is kept in the channel's history")
    return text


def _engine(word: str) -> str:
    if word not in {"reference", "opa", "both"}:
        raise UsageError(f"`--engine {word}`: there are reference, opa, both")
    return word
