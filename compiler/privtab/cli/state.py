"""`privtab state`: check who holds what, and pack it for OPA."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from privtab.cli._files import write
from privtab.cli._options import FormatOption, PartialOption, PolicyOption, VariantOption, load_state
from privtab.cli._output import Format, count, out, print_json, show_state_findings

app = typer.Typer(help="Check who holds what, and pack it for OPA.", no_args_is_help=True)

StateArgument = Annotated[
    Path, typer.Argument(metavar="STATE", help="A YAML or JSON file, or a folder with one file for each table.")
]


@app.command("validate")
def validate(
    state: StateArgument, policy: PolicyOption, variant: VariantOption = None, format_: FormatOption = Format.TEXT
) -> None:
    """Check the rows of a state against a policy.

    Exit code 1 where rows are wrong.

    Example:

    \b
      privtab state validate state.yaml --policy gravitino/1.1.0
      privtab state validate exports/ --policy cdap/final --format json
    """
    from privtab.pipeline import load_program
    from privtab.state.findings import to_json
    from privtab.state.load import load
    from privtab.state.nodes import TABLES
    from privtab.state.validate import validate as validated

    good, findings = validated(load_program(policy, variant=variant), load(state))
    if format_ is Format.JSON:
        print_json(to_json(findings))
    else:
        show_state_findings(findings)
        counts = ", ".join(count(len(getattr(good, name)), name.replace("_", " ")[:-1]) for name in TABLES)
        out().print(f"good rows: {counts}")
    if any(finding.severity == "error" for finding in findings):
        raise typer.Exit(1)


@app.command("pack")
def pack(
    state: StateArgument,
    policy: PolicyOption,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Where the bundle goes.")] = Path(
        "state.tar.gz"
    ),
    variant: VariantOption = None,
    allow_partial: PartialOption = False,
) -> None:
    """Build the state bundle that OPA loads beside the policy bundle.

    Example:

    \b
      privtab state pack state.yaml --policy gravitino/1.1.0 -o build/gravitino/1.1.0/state.tar.gz
    """
    from privtab.bundle.pack import state_bundle
    from privtab.pipeline import load_program

    program = load_program(policy, variant=variant)
    content = state_bundle(program, load_state(program, state, allow_partial=allow_partial))
    write(output, content)
    out().print(f"{output}  {len(content):,} bytes")
