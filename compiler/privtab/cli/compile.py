"""`privtab compile`: policy tables → what OPA and the other engines load."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from privtab.cli._files import json_text, write_outputs
from privtab.cli._options import FormatOption, PartialOption, ReadingOption, VariantOption, load_state, readings
from privtab.cli._output import Format, out, print_json, progress, show_diagnostics, table
from privtab.diagnostics import Diagnostic, in_order
from privtab.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privtab.ir.nodes import Program


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """The outputs of one policy, and what the table says of it."""

    name: str
    program: Program
    files: dict[str, bytes]
    revision: str
    seconds: float


def compile_policies(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH", help="Policies, by path, folder or name (cdap/final); policy_src/ where left off."
        ),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Where the outputs go.")] = Path(
        "build"
    ),
    as_name: Annotated[
        str | None,
        typer.Option("--as", metavar="NAME", help="Another name for the system, to run two versions in one OPA."),
    ] = None,
    variant: VariantOption = None,
    reading: ReadingOption = None,
    state: Annotated[
        Path | None, typer.Option("--state", "-s", metavar="STATE", help="Also pack this state; takes a single policy.")
    ] = None,
    allow_partial: PartialOption = False,
    format_: FormatOption = Format.TEXT,
) -> None:
    """Compile policy tables into bundles, readable Rego, and the program as JSON.

    Nothing is written where any policy has errors. Files that this command did not write stay as they are.

    Example:

    \b
      privtab compile
      privtab compile cdap/final policy_src/gravitino -o build
      privtab compile gravitino/1.1.0 --as gravitino_next --state state.yaml
    """
    policies = _policies(paths)
    if len(policies) > 1 and (as_name or variant or reading or state):
        raise UsageError(
            f"`--as`, `--variant`, `--reading` and `--state` take a single policy; these are {len(policies)}"
        )
    programs = _check(policies, variant, readings(reading), as_name)
    compiled: list[Compiled] = []
    with progress(len(programs)) as bar:
        for program in programs:
            compiled.append(_compile(program, variant, state, allow_partial=allow_partial))
            bar.advance(bar.task_ids[0])
    outputs = _by_name(compiled)
    outputs["schema"] = {"schema/policy.schema.json": _schema()}
    write_outputs(output, outputs, whole=paths is None)
    _report(compiled, output, format_)


def _policies(paths: Sequence[str] | None) -> list[Path]:
    """Policy files for what was given: files and folders that exist, else names that are looked up."""
    from privtab.pipeline import find_policies, find_policy

    found: dict[Path, None] = {}
    for given in paths or ["policy_src"]:
        path = Path(given)
        if path.is_dir():
            found |= dict.fromkeys(find_policies([path]))
        else:
            found[path if path.is_file() else find_policy(given)] = None
    if not found:
        raise UsageError(f"no policy file in {', '.join(paths or ['policy_src'])}")
    return list(found)


def _check(policies: Sequence[Path], variant: str | None, chosen: dict[str, str], as_name: str | None) -> list[Program]:
    """The programs of all policies; shows every finding, and ends with exit code 1 where one is an error."""
    from privtab.pipeline import check_policy, load_program

    found: list[Diagnostic] = []
    programs: list[Program] = []
    failed = False
    for policy in policies:
        program, diagnostics = check_policy(policy, variant=variant, readings=chosen)
        found += diagnostics
        if program is None:
            failed = True
        elif as_name is not None:
            programs.append(load_program(policy, variant=variant, readings=chosen, as_name=as_name))
        else:
            programs.append(program)
    show_diagnostics(in_order(found))
    if failed:
        raise typer.Exit(1)
    return programs


def _compile(program: Program, variant: str | None, state: Path | None, *, allow_partial: bool) -> Compiled:
    from privtab.backends.rego import render
    from privtab.bundle.pack import policy_bundle, policy_revision, state_bundle
    from privtab.ir.serialise import program_json

    started = time.perf_counter()
    name = f"{program.system}/{program.version}" + (f"+{variant}" if variant else "")
    files = {f"{name}/rego/{path}": text.encode() for path, text in render(program).items()}
    files[f"{name}/policy.tar.gz"] = policy_bundle(program)
    files[f"{name}/program.json"] = json_text(program_json(program)).encode()
    if state is not None:
        loaded = load_state(program, state, allow_partial=allow_partial)
        files[f"{name}/state.tar.gz"] = state_bundle(program, loaded)
    return Compiled(
        name=name,
        program=program,
        files=files,
        revision=policy_revision(program),
        seconds=time.perf_counter() - started,
    )


def _by_name(compiled: Sequence[Compiled]) -> dict[str, dict[str, bytes]]:
    outputs: dict[str, dict[str, bytes]] = {}
    for one in compiled:
        if one.name in outputs:
            raise UsageError(f"two of the policies are `{one.name}`: their outputs would overwrite each other")
        outputs[one.name] = one.files
    return outputs


def _schema() -> bytes:
    from privtab.syntax.schema import policy_schema

    return json_text(policy_schema()).encode()


def _report(compiled: Sequence[Compiled], output: Path, format_: Format) -> None:
    rows = [
        {
            "policy": one.name,
            "rules": len(one.program.rules),
            "rows": sum(rule.origin != "core" for rule in one.program.rules.values()),
            "bundle": str(output / one.name / "policy.tar.gz"),
            "bytes": len(one.files[f"{one.name}/policy.tar.gz"]),
            "revision": one.revision,
            "milliseconds": round(one.seconds * 1000),
        }
        for one in compiled
    ]
    if format_ is Format.JSON:
        print_json(rows)
        return
    shown = table("policy", "rows", "rules", "bundle", "revision", "time", right=("rows", "rules", "bundle", "time"))
    for row in rows:
        shown.add_row(
            str(row["policy"]),
            str(row["rows"]),
            str(row["rules"]),
            f"{row['bytes']:,} B",
            str(row["revision"])[:19],
            f"{row['milliseconds']} ms",
        )
    console = out()
    console.print(shown)
    console.print(f"written to {output}/", style="dim")
