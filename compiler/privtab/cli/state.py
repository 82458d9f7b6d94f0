"""`privtab state`: validate a state and pack it for OPA."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from privtab._staged import write
from privtab.cli import _spark_state, _state_diff, _state_import, _state_push
from privtab.cli._options import (
    AtOption,
    FormatOption,
    PartialOption,
    PolicyOption,
    VariantOption,
    load_state,
    moment_of,
)
from privtab.cli._output import Format, fail_if, out, print_if_data, show_state_findings
from privtab.cli._signing import KeyIdOption, ScopeOption, SequenceOption, SigningKeyOption, signing_key
from privtab.errors import UsageError
from privtab.formats import STATE_HELP
from privtab.plural import count

if TYPE_CHECKING:
    from privtab.bundle.provenance import Provenance
    from privtab.bundle.sign import SigningKey
    from privtab.ir.nodes import Program
    from privtab.state.nodes import State

PANEL = "Grant"

app = typer.Typer(help="Validate, compare, import, pack and push states: who holds what.", no_args_is_help=True)

StateArgument = Annotated[Path, typer.Argument(metavar="STATE", help=STATE_HELP)]


def counts(state: State) -> str:
    """The number of rows in each table of a state."""
    from privtab.state.nodes import TABLES

    found = [count(len(getattr(state, name)), name.replace("_", " ")[:-1]) for name in TABLES if name != "attributes"]
    if state.attributes:
        found.append(count(len(state.attributes), "attribute"))
    if state.entities:
        found.append(f"{len(state.entities):,} {'entity' if len(state.entities) == 1 else 'entities'}")
    return ", ".join(found)


@app.command("validate")
def validate(
    state: StateArgument, policy: PolicyOption, variant: VariantOption = None, format_: FormatOption = Format.TEXT
) -> None:
    """Validate the rows of a state against a policy.

    Exits with 1 if any row is invalid.

    Example:

    \b
      privtab state validate state.yaml --policy gravitino/1.1.0
      privtab state validate exports/ --policy cdap/final --format json
    """
    from privtab.cli._stored import load_policy, load_rows
    from privtab.state.findings import to_json
    from privtab.state.validate import validate as validated

    program = load_policy(policy, variant=variant)
    good, findings = validated(program, load_rows(program, state))
    if not print_if_data(format_, to_json(findings)):
        show_state_findings(findings)
        out().print(f"good rows: {counts(good)}")
    fail_if(any(finding.severity == "error" for finding in findings))


@app.command("lint")
def lint(
    state: StateArgument,
    policy: PolicyOption,
    soon: Annotated[str, typer.Option("--soon", metavar="TIME", help="Report rows that end within this time.")] = "14d",
    at: AtOption = None,
    variant: VariantOption = None,
    format_: FormatOption = Format.TEXT,
) -> None:
    """Find valid rows that are probably mistakes: expired, unused, superfluous.

    Exits with 1 for any finding except notes.

    Example:

    \b
      privtab state lint state.yaml --policy gravitino/1.1.0
      privtab state lint exports/ --policy cdap/final --soon 30d --format json
    """
    from privtab.cli._stored import load_policy, load_rows
    from privtab.state.findings import in_order, to_json
    from privtab.state.lint import duration
    from privtab.state.lint import lint as linted
    from privtab.state.validate import validate_with_places

    moment = moment_of(at)
    try:
        within = duration(soon)
    except ValueError as error:
        raise UsageError(f"`--soon`: {error}") from None
    program = load_policy(policy, variant=variant)
    good, places, findings = validate_with_places(program, load_rows(program, state))
    found = in_order([*findings, *linted(program, good, places, at=moment, soon=within)])
    if not print_if_data(format_, to_json(found)):
        show_state_findings(found)
        out().print(f"{count(len(found), 'finding')} in {counts(good)}")
    fail_if(any(finding.severity != "note" for finding in found))


@app.command("pack")
def pack(
    state: StateArgument,
    policy: PolicyOption,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="File for the bundle.")] = Path(
        "state.tar.gz"
    ),
    variant: VariantOption = None,
    allow_partial: PartialOption = False,
    shards: Annotated[
        bool,
        typer.Option(
            "--shards",
            help="Write one bundle for each root entity and one for principals, into a folder (compile --sharded).",
        ),
    ] = False,
    key: SigningKeyOption = None,
    key_id: KeyIdOption = None,
    scope: ScopeOption = "",
    sequence: SequenceOption = None,
) -> None:
    """Build the state bundle that OPA loads beside the policy bundle.

    Example:

    \b
      privtab state pack state.yaml --policy gravitino/1.1.0 -o build/gravitino/1.1.0/state.tar.gz
      privtab state pack exports/ --policy gravitino/1.1.0 --signing-key prod.pem --sequence 812
      privtab state pack exports/ --policy gravitino/1.1.0 --shards -o build/shards
    """
    signing = signing_key(key, key_id, scope, sequence)
    from privtab.bundle.pack import state_bundle
    from privtab.bundle.provenance import provenance
    from privtab.cli._stored import load_policy

    program = load_policy(policy, variant=variant)
    good = load_state(program, state, allow_partial=allow_partial)
    made_of = provenance(state, policy=f"{program.system}/{program.version}")
    if shards:
        _pack_shards(program, good, output, made_of, signing)
        return
    content = state_bundle(program, good, provenance=made_of, signing=signing)
    write(output, content)
    signed = "" if signing is None else f", signed with {signing.id}"
    out().print(f"{output}  {len(content):,} bytes: {counts(good)}{signed}", soft_wrap=True)


def _pack_shards(program: Program, good: State, output: Path, made_of: Provenance, signing: SigningKey | None) -> None:
    from privtab.bundle.pack import shard_bundles
    from privtab.cli._shards import show_shards, write_shards

    if output.is_file() or output.name.endswith(".tar.gz"):
        raise UsageError(f"`--shards` writes several bundles: give a folder, not {output}")
    show_shards(output, write_shards(output, shard_bundles(program, good, provenance=made_of, signing=signing)))


_spark_state.add_to(app)
_state_import.add_to(app)
_state_push.add_to(app)
_state_diff.add_to(app)
