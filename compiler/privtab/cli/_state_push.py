"""`privtab state push`: the rows of a state as native privileges of another system."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from privtab._install import how_to_install
from privtab._resources import documents
from privtab.cli._options import (
    AtOption,
    FormatOption,
    PartialOption,
    PolicyOption,
    StateOption,
    VariantOption,
    load_state_and_places,
    moment_of,
)
from privtab.cli._output import Format, err, out, print_error, print_if_data, show_state_findings
from privtab.errors import UsageError
from privtab.exit_codes import ExitCode
from privtab.key_values import key_values
from privtab.plural import count
from privtab.source import read_text

if TYPE_CHECKING:
    from privtab.pushdown.run import PushReport

MAX_SHOWN = 20
"""How many lines of each list are shown."""


def push(
    document: Annotated[
        str,
        typer.Argument(
            metavar="DOCUMENT", help=f"Mapping document: a name ({', '.join(documents('mapping'))}) or a YAML file."
        ),
    ],
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="URL of the database or server, or a file of its policies.")
    ],
    policy: PolicyOption,
    state: StateOption,
    apply: Annotated[bool, typer.Option("--apply", help="Carry out what is shown.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Exit with 1 if the target differs from the state.")] = False,
    expand: Annotated[
        bool,
        typer.Option("--expand", help="Grant what follows from inheritance, denials and scopes, object by object."),
    ] = False,
    compare: Annotated[
        bool, typer.Option("--compare", help="Compare the decisions of policy and target; apply only if they agree.")
    ] = False,
    revoke_foreign: Annotated[
        bool, typer.Option("--revoke-foreign", help="Revoke also what privtab did not grant.")
    ] = False,
    allow_foreign: Annotated[
        bool, typer.Option("--allow-foreign", help="With --check: accept rights that privtab did not grant.")
    ] = False,
    name: Annotated[
        str | None,
        typer.Option("--as", metavar="NAME", help="Name that granted rights are recorded under. Default: the system."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Value that the mapping document needs; repeatable."),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option("--record", metavar="FILE", help="Record of granted rights, for targets that cannot keep it."),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", metavar="FILE", help="Bearer token for the target's server.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", metavar="NAME:VALUE", help="HTTP header to send; repeatable.")
    ] = None,
    at: AtOption = None,
    variant: VariantOption = None,
    allow_partial: PartialOption = False,
    format_: FormatOption = Format.TEXT,
) -> None:
    """Push a state to another system as native privileges.

    Shows what would change, and changes nothing without --apply. Rows that the system cannot express are findings, and stop the push.

    Example:

    \b
      privtab state push postgresql postgresql+psycopg://admin@db/sales -p postgresql/15 -s state.yaml
      privtab state push warehouse.yaml postgresql+psycopg://admin@db/sales -p lake.yaml -s store:grants.db --expand --apply
      privtab state push postgresql postgresql+psycopg://admin@db/sales -p postgresql/15 -s state.yaml --check --format json
    """
    if check and apply:
        raise UsageError("`--check` changes nothing: leave out `--apply`, or check afterwards")
    from privtab.cli._stored import load_policy

    try:
        from privtab.pushdown.document import load
        from privtab.pushdown.run import push as pushed
        from privtab.pushdown.target import Options
    except ImportError as error:
        raise UsageError(f"`privtab state push` needs {error.name}: {how_to_install('import')}") from error
    program = load_policy(policy, variant=variant)
    values = key_values(set_, "--set", example="metalake=prod")
    mapping = load(document, program, values)
    rows, places = load_state_and_places(program, state, allow_partial=allow_partial)
    if at is not None:
        moment = moment_of(at)
        rows, places = rows.at(moment), places.some(rows.held(moment))
    result = pushed(
        program,
        rows,
        mapping,
        target,
        pusher=name or program.system,
        options=Options(
            values=values,
            token=None if token_file is None else read_text(token_file).strip(),
            headers=key_values(header, "--header", "NAME:VALUE", example="X-Tenant:acme", allow_empty=True),
            record=record,
        ),
        places=places,
        expand=expand,
        revoke_foreign=revoke_foreign,
        compare=compare,
        apply=apply,
    )
    if not print_if_data(format_, _as_json(result)):
        _show(result)
    failed = bool(result.desired.findings or result.disagreements)
    if result.desired.findings:
        print_error(f"{count(len(result.desired.findings), 'row')} cannot be expressed: nothing is pushed")
    elif result.disagreements:
        print_error(
            f"the target would decide {count(len(result.disagreements), 'request')} otherwise: nothing is pushed"
        )
    elif check and (result.plan.changes or (result.drifted and not allow_foreign)):
        print_error(f"{result.where} differs from {state}")
        failed = True
    if failed:
        raise typer.Exit(ExitCode.FINDINGS)


def add_to(app: typer.Typer) -> None:
    """Add the command to `privtab state`."""
    app.command("push")(push)


def _as_json(result: PushReport) -> dict[str, Any]:
    from privtab.pushdown.rights import in_order
    from privtab.state.findings import to_json

    def listed(rights: Iterable[Any]) -> list[str]:
        return [str(right) for right in in_order(set(rights))]

    return {
        "target": result.where,
        "applied": result.applied,
        "drift": result.drifted,
        "create": sorted(map(str, result.plan.create)),
        "grant": listed(result.plan.grant),
        "revoke": listed(result.plan.revoke),
        "foreign": listed(result.plan.foreign),
        "requests": list(result.requests),
        "findings": to_json(result.desired.findings),
        "left_out": dict(result.desired.left_out),
        "outside": result.desired.outside,
        "absent": dict(result.desired.absent),
        "unread": list(result.unread),
        "unlimited": list(result.unlimited),
        "disagreements": None if result.disagreements is None else [str(d) for d in result.disagreements],
    }


def _show(result: PushReport) -> None:
    from privtab.pushdown.rights import in_order

    desired, plan = result.desired, result.plan
    if desired.findings:
        show_state_findings(desired.findings)
        return
    _list("left out", [f"{reason}: {count(number, 'row')}" for reason, number in desired.left_out.items()])
    _list("not there", [f"{what}: {count(number, 'right')}" for what, number in desired.absent.items()])
    if desired.outside:
        err().print(f"about entities elsewhere: {count(desired.outside, 'row')}")
    _list("not granted by privtab, and kept", [str(right) for right in in_order(set(plan.foreign))])
    _list("neither compared nor changed", list(result.unread))
    _list("decided otherwise", [str(disagreement) for disagreement in result.disagreements or ()])
    for request in result.requests:
        out().print(request, soft_wrap=True)
    numbers = [
        f"{len(things):,} to {verb}"
        for verb, things in (("create", plan.create), ("grant", plan.grant), ("revoke", plan.revoke))
        if things
    ]
    err().print(
        f"{result.where}: {', '.join(numbers) or 'nothing'}{', done' if numbers and result.applied else ''}",
        soft_wrap=True,
    )


def _list(title: str, lines: list[str]) -> None:
    if lines:
        err().print(f"{title}:")
        for line in lines[:MAX_SHOWN]:
            err().print(f"  {line}", soft_wrap=True)
        if len(lines) > MAX_SHOWN:
            err().print(f"  and {len(lines) - MAX_SHOWN:,} more; --format json lists all")
