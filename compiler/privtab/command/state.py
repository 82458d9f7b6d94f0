"""`privtab state`: validate a state and pack it for OPA."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, Annotated

from privtab.base import strict_json
from privtab.base.errors import UsageError
from privtab.base.files import STATE_HELP
from privtab.base.printable import count
from privtab.base.staged import write_file
from privtab.command._files import STATE, load_rows, row_counts, state_files, write_state
from privtab.command._options import AtOption, PartialOption, PolicyOptions, SigningOptions, load_state
from privtab.command._output import (
    FormatOption,
    fail_if,
    out,
    print_if_data,
    show_findings,
)
from privtab.command._parameters import argument, option
from privtab.command._typer import Commands
from privtab.state.nodes import ALL_TABLES

if TYPE_CHECKING:
    from privtab.state.nodes import State

PANEL = "Grant"

app = Commands(help="Validate, import, pack and push states: who holds what.", no_args_is_help=True)

StateArgument = Annotated[Path, argument("STATE", STATE_HELP)]


def counts(state: State) -> str:
    """The number of rows in each table of a state."""
    rows = {table: len(getattr(state, table)) for table in ALL_TABLES}
    return row_counts({table: n for table, n in rows.items() if n or table not in ("attributes", "entities")})


@app.command("validate")
def validate(
    state: StateArgument,
    policy: PolicyOptions,
    *,
    lint: Annotated[bool, option("--lint", "Also find valid rows that are probably mistakes.")] = False,
    soon: Annotated[
        str | None, option("--soon TIME", "With `--lint`: rows that end within this time. (default: 14d)")
    ] = None,
    at: AtOption = None,
    format_: FormatOption = "text",
) -> None:
    """Validate the rows of a state against a policy.

    Exits with 1 if any row is invalid. With `--lint`, also for rows that are expired, unused or superfluous, and for any other
    finding except notes.

    Example:
      privtab state validate sample:gravitino --policy gravitino/1.1.0
      privtab state validate state/ --policy lake.yaml --format json
      privtab state validate state/ --policy lake.yaml --lint --soon 30d
    """
    from privtab.state.lint import duration
    from privtab.state.lint import lint as linted
    from privtab.state.load import validate_with_places

    if not lint and (soon is not None or at is not None):
        raise UsageError("`--soon` and `--at` are about valid rows: give `--lint`")
    try:
        within = duration("14d" if soon is None else soon)
    except ValueError as error:
        raise UsageError(f"`--soon`: {error}") from None
    program = policy.program()
    good, places, findings = validate_with_places(program, load_rows(program, state, samples=True))
    if lint:
        moment = time_ns() if at is None else at
        findings = tuple(sorted([*findings, *linted(program, good, places, at=moment, soon=within)]))
    if not print_if_data(format_, [finding.to_json() for finding in findings]):
        show_findings(findings)
        out().print(f"{count(len(findings), 'finding')} in {counts(good)}" if lint else f"good rows: {counts(good)}")
    fail_if(any(finding.severity == "error" or (lint and finding.severity != "note") for finding in findings))


@app.command("pack")
def pack(
    state: StateArgument,
    policy: PolicyOptions,
    *,
    output: Annotated[Path, option("--output -o FILE", "File for the bundle.")] = Path("state.tar.gz"),
    allow_partial: PartialOption = False,
    shards: Annotated[
        bool,
        option(
            "--shards",
            "Write one bundle for each root entity and one for principals, into a folder (compile --sharded).",
        ),
    ] = False,
    sign: SigningOptions,
) -> None:
    """Build the state bundle that OPA loads beside the policy bundle.

    Example:
      privtab state pack state.yaml --policy lake.yaml -o build/lake/1/state.tar.gz
      privtab state pack state/ --policy lake.yaml --signing-key prod.pem --signature sequence=812
      privtab state pack state/ --policy lake.yaml --shards -o build/shards
    """
    signing = sign.signing_key()
    from privtab.bundle.pack import Provenance

    program = policy.program()
    good = load_state(program, state, allow_partial=allow_partial).state
    made_of = Provenance.of(state, policy=f"{program.system}/{program.version}")
    if shards and (output.is_file() or output.name.endswith(".tar.gz")):
        raise UsageError(f"`--shards` writes several bundles: give a folder, not {output}")
    files = state_files(program, good, sharded=shards, provenance=made_of, signing=signing)
    if shards:
        write_state(output, files)
        _show_shards(output, files)
        return
    write_file(output, files[STATE])
    signed = "" if signing is None else f", signed with {signing.id}"
    out().print(f"{output}  {len(files[STATE]):,} bytes: {counts(good)}{signed}")


def _show_shards(folder: Path, files: Mapping[str, bytes]) -> None:
    from privtab.bundle.pack import LISTING_FILE

    listing = strict_json.strict_loads(files[LISTING_FILE])
    rows = [listing["people"], *listing["shards"].values()]
    total = sum(row["bytes"] for row in rows)
    largest = sorted(listing["shards"].items(), key=lambda item: (-item[1]["bytes"], item[0]))
    out().print(f"{folder}/  {total:,} bytes: people {rows[0]['bytes']:,}, {count(len(largest), 'shard')}")
    for key, row in largest[:10]:
        out().print(f"  {row['file']}  {row['bytes']:,} bytes: {key}")
    if len(largest) > 10:
        out().print(f"  and {len(largest) - 10} smaller ones")
