"""`privtab compile`: compile policy tables for OPA and the other engines."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from privtab import backends
from privtab._staged import write
from privtab._worker import LARGE, beside
from privtab.cli._complete import policies
from privtab.cli._files import json_text, write_outputs
from privtab.cli._options import FormatOption, PartialOption, ReadingOption, VariantOption, load_state, readings
from privtab.cli._output import (
    Format,
    delayed_spinner,
    out,
    print_if_data,
    progress,
    show_count,
    show_diagnostics,
    table,
)
from privtab.cli._signing import KeyIdOption, ScopeOption, SequenceOption, SigningKeyOption, signing_key
from privtab.diagnostics import in_order
from privtab.errors import UsageError
from privtab.exit_codes import ExitCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from privtab.bundle.provenance import Provenance
    from privtab.bundle.sign import SigningKey
    from privtab.ir.nodes import Program
    from privtab.pipeline import ResolvedPolicy
    from privtab.state.nodes import State

PANEL = "Start here"

STATE = "state.tar.gz"
NAME = re.compile(r"[a-z][a-z0-9_]*")

if TYPE_CHECKING:

    class Backend(StrEnum):
        """One of `backends.BACKENDS`."""
else:
    Backend = StrEnum("Backend", {name.upper(): name for name in backends.BACKENDS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """The outputs of one policy, and its line in the printed table."""

    name: str
    program: Program
    files: dict[str, bytes]
    state: bytes | Mapping[str, bytes] | None
    """The bundle of the state, or the bundles of its shards."""
    revision: str
    seconds: float


def run(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH",
            help="Policies, by path, folder or name (cdap/final); all by default.",
            autocompletion=policies,
        ),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Output folder.")] = Path("build"),
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
    wasm: Annotated[
        bool,
        typer.Option(
            "--wasm", help="Also write bundles with the policy as WebAssembly; needs OPA (privtab opa install)."
        ),
    ] = False,
    also: Annotated[
        list[Backend] | None,
        typer.Option("--also", help="Also write the output of this back end, in a folder named after it."),
    ] = None,
    sharded: Annotated[
        bool,
        typer.Option("--sharded", help="Compile for a sharded state: one state bundle for each root entity."),
    ] = False,
    key: SigningKeyOption = None,
    key_id: KeyIdOption = None,
    scope: ScopeOption = "",
    sequence: SequenceOption = None,
    format_: FormatOption = Format.TEXT,
) -> None:
    """Compile policy tables into bundles, readable Rego, and the program as JSON.

    If any policy has errors, nothing is written. Files not written by this command are left alone.

    Example:

    \b
      privtab compile
      privtab compile cdap/final policy_src/gravitino -o build
      privtab compile gravitino/1.1.0 --as gravitino_next --state state.yaml
      privtab compile cdap/final --wasm
      privtab compile cdap/final --also stubs --also describe
      privtab compile cdap/final --signing-key prod.pem --scope prod
      privtab compile gravitino/1.1.0 --sharded --state state.yaml
    """
    signing = signing_key(key, key_id, scope, sequence)
    from privtab._collection import no_collection
    from privtab.bundle.provenance import provenance
    from privtab.pipeline import policies_at, resolve_policy

    policies = policies_at(paths)
    if len(policies) > 1 and (as_name or variant or reading or state):
        raise UsageError(
            f"`--as`, `--variant`, `--reading` and `--state` take a single policy; these are {len(policies)}"
        )
    if as_name is not None and not NAME.fullmatch(as_name):
        raise UsageError(f"`--as {as_name}`: a system's name is made of lower case letters, digits and `_`")
    with no_collection(keep=True), delayed_spinner("checking"):
        resolved = [resolve_policy(policy, variant=variant, readings=readings(reading)) for policy in policies]
        programs = [policy.program for policy in resolved if policy.policy is not None]
        checks_first = state is not None or len(programs) < len(policies)
        if checks_first:
            _report_findings(resolved)
    loaded = None if state is None else load_state(programs[0], state, allow_partial=allow_partial)
    compiled: list[Compiled] = []
    try:
        with no_collection(keep=True), progress(len(programs)) as bar:
            for policy, program in zip(policies, programs, strict=True):
                origin = provenance(policy, variant=variant, readings=readings(reading))
                state_content = _pack_state(program, state, loaded, signing, sharded=sharded)
                result = _compile(
                    program, as_name, variant, state_content, origin, signing, also or (), wasm=wasm, sharded=sharded
                )
                compiled.append(result)
                bar.advance(bar.task_ids[0])
    finally:
        # Checks of a large policy run beside this. If they find errors, these come before any of the compilation.
        if not checks_first:
            _report_findings(resolved)
    outputs = _by_name(compiled)
    outputs["schema"] = {"schema/policy.schema.json": _schema()}
    write_outputs(output, outputs, complete=paths is None)
    for result in compiled:
        if result.state is not None:
            # Not in the list of outputs: the state changes separately, and the next compilation must not remove it.
            _write_state(output / result.name, result.state)
    _report(compiled, output, format_, signing.id if signing is not None else None)


def _report_findings(policies: Sequence[ResolvedPolicy]) -> None:
    """Print how many findings there are; if one is an error, print all and exit with code 1."""
    checked = [policy.check() for policy in policies]
    found = [finding for policy in checked for finding in policy.findings.kept]
    if any(policy.program is None for policy in checked):
        show_diagnostics(in_order(found))
        raise typer.Exit(ExitCode.FINDINGS)
    show_count(found, "`privtab lint`")


def _compile(
    program: Program,
    as_name: str | None,
    variant: str | None,
    state: bytes | Mapping[str, bytes] | None,
    origin: Provenance,
    signing: SigningKey | None,
    also: Sequence[Backend],
    *,
    wasm: bool,
    sharded: bool,
) -> Compiled:
    from privtab.pipeline import backend_files, policy_artifacts

    started = time.perf_counter()
    artifacts = policy_artifacts(program, as_name, provenance=origin, sharded=sharded, parallel=True)
    name = f"{artifacts.name}/{program.version}" + (f"+{variant}" if variant else "")
    files = {f"{name}/rego/{path}": text.encode() for path, text in artifacts.modules.items()}
    listing = beside(lambda: json_text(artifacts.program).encode(), large=len(program.rules) >= LARGE)
    files[f"{name}/policy.tar.gz"] = artifacts.bundle(signing)
    files[f"{name}/program.json"] = listing()
    for backend in also:
        backend_texts = backend_files(program, backend, artifacts)
        files |= {f"{name}/{backend}/{path}": text.encode() for path, text in backend_texts.items()}
    if wasm:
        from privtab.opa.binary import build_wasm
        from privtab.pipeline import wasm_modules

        module = build_wasm(wasm_modules(program, as_name), artifacts.entrypoints)
        files[f"{name}/policy.wasm.tar.gz"] = artifacts.wasm_bundle(module, signing)
    return Compiled(
        name=name,
        program=program,
        files=files,
        state=state,
        revision=artifacts.revision,
        seconds=time.perf_counter() - started,
    )


def _pack_state(
    program: Program, path: Path | None, state: State | None, signing: SigningKey | None, *, sharded: bool
) -> bytes | Mapping[str, bytes] | None:
    from privtab.bundle.pack import shard_bundles, state_bundle
    from privtab.bundle.provenance import provenance

    if path is None or state is None:
        return None
    origin = provenance(path, policy=f"{program.system}/{program.version}")
    pack = shard_bundles if sharded else state_bundle
    return pack(program, state, provenance=origin, signing=signing)


def _write_state(folder: Path, state: bytes | Mapping[str, bytes]) -> None:
    """Write a state, whole or in shards, and remove the other form."""
    from privtab.cli._shards import remove_shards, write_shards

    if isinstance(state, bytes):
        write(folder / STATE, state)
        remove_shards(folder)
    else:
        write_shards(folder, state)
        (folder / STATE).unlink(missing_ok=True)


def _state_name(state: bytes | Mapping[str, bytes]) -> str:
    from privtab.bundle.shards import LISTING

    return STATE if isinstance(state, bytes) else LISTING


def _size(state: bytes | Mapping[str, bytes]) -> int:
    return len(state) if isinstance(state, bytes) else sum(map(len, state.values()))


def _by_name(compiled: Sequence[Compiled]) -> dict[str, dict[str, bytes]]:
    outputs: dict[str, dict[str, bytes]] = {}
    for result in compiled:
        if result.name in outputs:
            raise UsageError(f"two of the policies are `{result.name}`: their outputs would overwrite each other")
        outputs[result.name] = result.files
    return outputs


def _schema() -> bytes:
    from privtab.syntax.schema import policy_schema

    return json_text(policy_schema()).encode()


def _report(compiled: Sequence[Compiled], output: Path, format_: Format, key_id: str | None) -> None:
    rows = [
        {
            "policy": result.name,
            "rules": len(result.program.rules),
            "rows": sum(rule.origin != "core" for rule in result.program.rules.values()),
            "bundle": str(output / result.name / "policy.tar.gz"),
            "bytes": len(result.files[f"{result.name}/policy.tar.gz"]),
            "revision": result.revision,
            "milliseconds": round(result.seconds * 1000),
            "state": None if result.state is None else str(output / result.name / _state_name(result.state)),
            "state_bytes": None if result.state is None else _size(result.state),
            "signed": key_id,
        }
        for result in compiled
    ]
    if print_if_data(format_, rows):
        return
    grid = table("policy", "rows", "rules", "bundle", "revision", "time", right=("rows", "rules", "bundle", "time"))
    for row in rows:
        grid.add_row(
            str(row["policy"]),
            str(row["rows"]),
            str(row["rules"]),
            f"{row['bytes']:,} B",
            str(row["revision"])[:19],
            f"{row['milliseconds']} ms",
        )
    console = out()
    console.print(grid)
    for row in rows:
        if row["state"] is not None:
            console.print(f"{row['state']}  {row['state_bytes']:,} B", soft_wrap=True)
    console.print(f"written to {output}/" + (f", signed with {key_id}" if key_id else ""), style="dim")
