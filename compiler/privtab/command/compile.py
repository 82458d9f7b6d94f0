"""`privtab compile`: compile policy tables for OPA and the other engines."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from privtab import backends
from privtab.base.caching import no_collection
from privtab.base.errors import PolicyInvalid, UsageError
from privtab.base.records import dataclass
from privtab.base.worker import LARGE, beside
from privtab.command._files import STATE, json_text, state_files, write_outputs, write_state
from privtab.command._options import DoorOption, PartialOption, SigningOptions, load_state, open_doors
from privtab.command._output import Format, FormatOption, err, out, print_if_data, show_count, table
from privtab.command._parameters import PathsArgument, option

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from privtab.bundle.pack import Provenance
    from privtab.bundle.sign import SigningKey
    from privtab.ir.nodes import Program
    from privtab.pipeline import ResolvedPolicy

PANEL = "Start here"
WASM = "wasm"  # among the back ends of `--also`


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """The outputs of one policy, and its line in the printed table."""

    name: str
    program: Program
    files: dict[str, bytes]
    state: Mapping[str, bytes]
    """The bundle of the state, or the bundles of its shards and their list, by file name; empty without a state."""
    revision: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileOptions:
    """Options for the outputs of each policy."""

    as_name: Annotated[
        str | None, option("--as NAME", "Another name for the system, to run two versions in one OPA.")
    ] = None
    also: Annotated[
        list[str] | None,
        option(
            "--also BACKEND",
            f"Also write the output of this back end ({', '.join(backends.BACKENDS)}), in a folder named after it; wasm: "
            "bundles with the policy as WebAssembly, which needs OPA (privtab opa install).",
            names=lambda: (*backends.backend_names(), WASM),
        ),
    ] = None
    door: DoorOption = None
    sharded: Annotated[
        bool, option("--sharded", "Compile for a sharded state: one state bundle for each root entity.")
    ] = False


def run(
    paths: PathsArgument = None,
    *,
    output: Annotated[Path, option("--output -o DIR", "Output folder.")] = Path("build"),
    compiling: CompileOptions,
    state: Annotated[Path | None, option("--state -s STATE", "Also pack this state; takes a single policy.")] = None,
    allow_partial: PartialOption = False,
    sign: SigningOptions,
    format_: FormatOption = "text",
) -> None:
    """Compile policy tables into bundles, readable Rego, and the program as JSON.

    If any policy has errors, nothing is written. Files not written by this command are left alone.

    Example:
      privtab compile
      privtab compile cdap/final cdap/initial@use_cases -o build
      privtab compile gravitino/1.1.0 --as gravitino_next
      privtab compile cdap/final --also wasm
      privtab compile cdap/final --also describe
      privtab compile cdap/final --signing-key prod.pem --signature scope=prod
      privtab compile lake.yaml --sharded --state state.yaml
      privtab compile trino/476 --door trino
    """
    signing = sign.signing_key()
    for name in compiling.also or ():
        if name != WASM:
            backends.backend(name)  # before a policy is read
    from privtab.bundle.pack import Provenance
    from privtab.language.syntax.keys import policy_schema
    from privtab.pipeline import ChosenPolicy, policies_at, resolve_policy

    given = [ChosenPolicy.of(path) for path in paths or ()]
    plain = [chosen.policy for chosen in given if not chosen]
    policies = [ChosenPolicy(str(path)) for path in (policies_at(plain or None) if plain or not given else ())]
    policies += [chosen for chosen in given if chosen]
    if len(policies) > 1 and (compiling.as_name or compiling.door or state):
        raise UsageError(f"`--as`, `--door` and `--state` take a single policy; these are {len(policies)}")
    if compiling.as_name is not None:
        from privtab.client._protocol import check_system

        check_system(compiling.as_name)
    with no_collection(keep=True), err().spinner("checking", after=1.0):
        resolved = [resolve_policy(str(chosen), begin=True) for chosen in policies]
        programs = [policy.program for policy in resolved if policy.policy is not None]
        checks_first = state is not None or len(programs) < len(policies)
        if checks_first:
            _report_findings(resolved)
    files: dict[str, bytes] = {}
    if state is not None:
        loaded = load_state(programs[0], state, allow_partial=allow_partial).state
        made_of = Provenance.of(state, policy=f"{programs[0].system}/{programs[0].version}")
        files = state_files(programs[0], loaded, sharded=compiling.sharded, provenance=made_of, signing=signing)
    compiled: list[Compiled] = []
    try:
        with no_collection(keep=True), err().progress(len(programs)) as tell:
            for chosen, policy, program in zip(policies, resolved, programs, strict=True):
                origin = Provenance.of(policy.path, **chosen.chosen())
                compiled.append(_compile(program, compiling, origin, signing, files))
                tell()
    finally:
        # Checks of a large policy run beside this. If they find errors, these come before any of the compilation.
        if not checks_first:
            _report_findings(resolved)
    outputs: dict[str, dict[str, bytes]] = {}
    for result in compiled:
        if result.name in outputs:
            raise UsageError(f"two of the policies are `{result.name}`: their outputs would overwrite each other")
        outputs[result.name] = result.files
    outputs["schema"] = {"schema/policy.schema.json": json_text(policy_schema()).encode()}
    write_outputs(output, outputs, complete=paths is None)
    for result in compiled:
        if result.state:
            # Not in the list of outputs: the state changes separately, and the next compilation must not remove it.
            write_state(output / result.name, result.state)
            if STATE not in result.state:
                (output / result.name / STATE).unlink(missing_ok=True)
    _report(compiled, output, format_, signing.id if signing is not None else None)


def _report_findings(policies: Sequence[ResolvedPolicy]) -> None:
    """Print how many findings there are; if one is an error, print all and exit with code 1."""
    checked = [policy.check() for policy in policies]
    found = [finding for policy in checked for finding in policy.findings.kept]
    if any(policy.program is None for policy in checked):
        raise PolicyInvalid(found)
    show_count(found, "`privtab lint`")


def _compile(
    program: Program,
    options: CompileOptions,
    origin: Provenance,
    signing: SigningKey | None,
    state: Mapping[str, bytes],
) -> Compiled:
    from privtab.pipeline import backend_files, policy_artifacts

    started = time.perf_counter()
    opened = open_doors(program, options.door)
    artifacts = policy_artifacts(
        program, options.as_name, provenance=origin, sharded=options.sharded, parallel=True, doors=opened
    )
    name = f"{artifacts.name}/{program.version}" + (f"+{variant}" if (variant := origin.choices["variant"]) else "")
    files = {f"{name}/rego/{path}": text.encode() for path, text in artifacts.modules.items()}
    listing = beside(lambda: json_text(artifacts.program).encode(), large=len(program.rules) >= LARGE)
    files[f"{name}/policy.tar.gz"] = artifacts.bundle(signing)
    files[f"{name}/program.json"] = listing()
    for backend in options.also or ():
        backend_texts = backend_files(program, backend, artifacts) if backend != WASM else {}
        files |= {f"{name}/{backend}/{path}": text.encode() for path, text in backend_texts.items()}
    if WASM in (options.also or ()):
        from privtab.engines.opa.binary import build_wasm
        from privtab.pipeline import wasm_modules

        module = build_wasm(wasm_modules(program, options.as_name), artifacts.entrypoints)
        files[f"{name}/policy.wasm.tar.gz"] = artifacts.wasm_bundle(module, signing)
    return Compiled(
        name=name,
        program=program,
        files=files,
        state=state,
        revision=artifacts.revision,
        seconds=time.perf_counter() - started,
    )


def _report(compiled: Sequence[Compiled], output: Path, format_: Format, key_id: str | None) -> None:
    from privtab.bundle.pack import LISTING_FILE

    rows = [
        {
            "policy": result.name,
            "rules": len(result.program.rules),
            "rows": sum(rule.origin != "core" for rule in result.program.rules.values()),
            "bundle": str(output / result.name / "policy.tar.gz"),
            "bytes": len(result.files[f"{result.name}/policy.tar.gz"]),
            "revision": result.revision,
            "milliseconds": round(result.seconds * 1000),
            "state": next(
                (str(output / result.name / name) for name in (STATE, LISTING_FILE) if name in result.state), None
            ),
            "state_bytes": sum(len(result.state[name]) for name in result.state if name != LISTING_FILE) or None,
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
            console.print(f"{row['state']}  {row['state_bytes']:,} B")
    console.print(f"written to {output}/" + (f", signed with {key_id}" if key_id else ""), style="dim")
