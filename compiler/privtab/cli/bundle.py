"""`privtab bundle`: sign bundles, verify them, and look into them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from privtab._staged import write_pieces
from privtab.cli import _keys
from privtab.cli._app import rewrap_help
from privtab.cli._options import FormatOption
from privtab.cli._output import Format, fail_if, out, print_error, print_if_data, table
from privtab.cli._rollout import CaOption, OpaOption, ServerOption, TokenOption, reader_of
from privtab.cli._signing import (
    KeyIdOption,
    ScopeOption,
    SequenceOption,
    SigningKeyOption,
    VerificationKeyOption,
    signing_key,
    trust,
)
from privtab.errors import BrokenBundle, FileError, FleetError, SignatureRefused, UsageError
from privtab.plural import count

if TYPE_CHECKING:
    from privtab.bundle.inspect import Inspection, Signature
    from privtab.registry.deploy.nodes import Fleet
    from privtab.signatures import Trust

PANEL = "Ship"

app = typer.Typer(help="Sign bundles, verify them, and look into them.", no_args_is_help=True)
rewrap_help(_keys.app)
app.add_typer(_keys.app, name="keys")

FILES_SHOWN = 20
KINDS = {
    "policy": "policy",
    "wasm": "policy as WebAssembly",
    "state": "state",
    "shard": "state, a shard",
    "people": "state, the people's part",
    "delta": "delta",
    "other": "not one of privtab's",
}


@app.command("sign")
def sign(
    bundles: Annotated[list[Path], typer.Argument(metavar="BUNDLE", help="Bundles, as OPA loads them.")],
    key: SigningKeyOption = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="File for the signed bundle. (default: sign in place)"),
    ] = None,
    key_id: KeyIdOption = None,
    scope: ScopeOption = "",
    sequence: SequenceOption = None,
    algorithm: Annotated[
        str | None, typer.Option("--algorithm", metavar="NAME", help="RS256, PS256, … (default: by the key)")
    ] = None,
    format_: FormatOption = Format.TEXT,
) -> None:
    """Sign bundles, replacing any signature they have. Content and revision stay.

    Example:

    \b
      privtab bundle sign build/gravitino/1.1.0/policy.tar.gz --signing-key prod.pem --scope prod
      privtab bundle sign old.tar.gz --signing-key prod.pem --sequence 43 -o again.tar.gz
    """
    signing = signing_key(key, key_id, scope, sequence, algorithm)
    if signing is None:
        raise UsageError("give the key to sign with: `--signing-key FILE`")
    if output is not None and len(bundles) > 1:
        raise UsageError(f"`--output` takes a single bundle; these are {len(bundles)}")
    from privtab.bundle.sign import signed_pieces
    from privtab.bundle.verify import opened

    rows = []
    for bundle in bundles:
        target = output or bundle
        try:
            with opened(bundle) as file:
                size = write_pieces(target, signed_pieces(file, signing))
        except BrokenBundle as error:
            raise BrokenBundle(f"{bundle}: {error}") from None
        rows.append({"bundle": str(target), "bytes": size, "key": signing.id, "algorithm": signing.algorithm})
    if print_if_data(format_, rows):
        return
    for row in rows:
        out().print(
            f"{row['bundle']}  {row['bytes']:,} bytes, signed with {row['key']} ({row['algorithm']})", soft_wrap=True
        )


@app.command("verify")
def verify(
    bundles: Annotated[list[Path], typer.Argument(metavar="BUNDLE", help="Bundles, as OPA loads them.")],
    keys: VerificationKeyOption = None,
    scope: ScopeOption = "",
    newer_than: Annotated[
        str | None,
        typer.Option(
            "--newer-than",
            metavar="BUNDLE|N",
            help="Refuse bundles not newer than this bundle or sequence.",
        ),
    ] = None,
    server: ServerOption = None,
    opa: OpaOption = None,
    token_file: TokenOption = None,
    ca: CaOption = None,
    format_: FormatOption = Format.TEXT,
) -> None:
    """Verify the signatures of bundles and all their files, as OPA does.

    Exits with 1 if a bundle is refused: unsigned, signed by another key or for another scope, changed, with missing or
    additional files, not newer, or incomplete. With `--server` or `--opa`, also if a sidecar's OPA is older than 1.21.3,
    which may accept unsigned bundles.

    Example:

    \b
      privtab bundle verify policy.tar.gz --verification-key prod.pub.pem --scope prod
      privtab bundle verify new/state.tar.gz --verification-key prod.pub.pem --newer-than old/state.tar.gz
    """
    trusted = trust(keys, scope)
    if trusted is None:
        raise UsageError("give the key to verify with: `--verification-key FILE`")
    minimum_sequence = None if newer_than is None else _baseline_sequence(newer_than, trusted)
    rows = [_verify(bundle, trusted, minimum_sequence) for bundle in bundles]
    with reader_of(server, opa, token_file, ca) as read:
        rows += _unsafe(None if read is None else read())
    if not print_if_data(format_, rows):
        for row in rows:
            if row["verified"]:
                order = "" if row["sequence"] is None else f", sequence {row['sequence']}"
                out().print(
                    f"{row['bundle']}: signed with {row['key']} ({row['algorithm']}){order}, {row['files']} files",
                    soft_wrap=True,
                )
            elif "sidecar" in row:
                print_error(f"{row['sidecar']} {row['why']}")
            else:
                print_error(f"{row['bundle']} is refused: {row['why']}")
    fail_if(not all(row["verified"] for row in rows))


def _verify(bundle: Path, trusted: Trust, minimum_sequence: int | None) -> dict[str, Any]:
    from privtab.bundle.verify import verify as verified

    try:
        signed = verified(bundle, trusted, newer_than=minimum_sequence)
    except (SignatureRefused, BrokenBundle) as error:
        return {"bundle": str(bundle), "verified": False, "why": str(error)}
    return {
        "bundle": str(bundle),
        "verified": True,
        "key": signed.key,
        "algorithm": signed.algorithm,
        "scope": signed.scope,
        "sequence": signed.sequence,
        "files": len(signed.files),
    }


def _unsafe(fleet: Fleet | None) -> list[dict[str, Any]]:
    """The sidecars that may accept unsigned bundles. Raises FleetError if one cannot be read."""
    if fleet is None:
        return []
    if unread := [text for text in (fleet.problem, *(sidecar.problem for sidecar in fleet.sidecars)) if text]:
        raise FleetError("; ".join(unread))
    return [
        {"sidecar": sidecar.url or sidecar.id, "verified": False, "why": sidecar.verifier_problem}
        for sidecar in fleet.sidecars
        if sidecar.verifier_problem
    ]


def _baseline_sequence(baseline: str, trusted: Trust) -> int:
    """The sequence given as a number or by another bundle, whose signature must verify too; raises UsageError without one."""
    if baseline.isdecimal():
        return int(baseline)
    from privtab.bundle.verify import verify as verified

    try:
        sequence = verified(baseline, trusted).sequence
    except (SignatureRefused, BrokenBundle) as error:
        raise FileError(f"{baseline} is refused: {error}") from None
    if sequence is None:
        raise UsageError(
            f"the signature of {baseline} has no sequence, so its order is unknown: sign with `--sequence`"
        )
    return sequence


@app.command("inspect")
def inspect(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle, as OPA loads it.")],
    keys: VerificationKeyOption = None,
    scope: ScopeOption = "",
    format_: FormatOption = Format.TEXT,
) -> None:
    """Show the content of a bundle: its kind, origin, sizes and signature.

    With a key, exits with 1 if the signature is not valid.

    Example:

    \b
      privtab bundle inspect build/gravitino/1.1.0/policy.tar.gz
      privtab bundle inspect state.tar.gz --verification-key prod.pub.pem --format json
    """
    from privtab.bundle.inspect import inspect as inspected

    try:
        content = inspected(bundle, trust(keys, scope))
    except BrokenBundle as error:
        raise BrokenBundle(f"{bundle}: {error}") from None
    if not print_if_data(format_, {"bundle": str(bundle), **content.to_json()}):
        _show_content(bundle, content)
    fail_if(content.signature is not None and content.signature.verified is False)


def _show_content(bundle: Path, content: Inspection) -> None:
    grid = table("", "")
    grid.show_header = False
    grid.columns[0].style = "bold"
    grid.columns[0].no_wrap = True
    for name, value in _lines(bundle, content):
        grid.add_row(name, value)
    out().print(grid)


def _lines(bundle: Path, content: Inspection) -> list[tuple[str, str]]:
    kind = KINDS[content.kind]
    if content.kind == "shard":
        kind += f" ({content.metadata.get('shard')})"
    lines = [
        ("bundle", str(bundle)),
        ("kind", kind),
        ("system", " ".join(text for text in (content.system, content.version) if text)),
        ("revision", content.revision or "none"),
        ("roots", "\n".join(root or "all of data" for root in content.roots)),
        ("holds", "\n".join(_counted(number, noun) for noun, number in content.counts.items())),
        *_provenance(content.provenance),
        ("signature", _signature(content.signature)),
        ("size", f"{content.bytes:,} bytes, {sum(file.bytes for file in content.files):,} unpacked"),
        ("sha256", content.sha256),
    ]
    omitted = len(content.files) - FILES_SHOWN
    width = max((len(f"{file.bytes:,}") for file in content.files), default=0)
    names = [f"{file.bytes:>{width},}  {file.name}" for file in content.files[:FILES_SHOWN]]
    lines.append(("files", "\n".join(names + ([f"… and {count(omitted, 'more')}"] if omitted > 0 else []))))
    return [(name, value) for name, value in lines if value]


def _counted(number: int, noun: str) -> str:
    """`17 modules`, `1 service admin`."""
    singular = f"{noun[:-3]}y" if noun.endswith("ies") else noun.removesuffix("s")
    return f"{number:,} {singular if number == 1 else noun}"


def _provenance(document: Any) -> list[tuple[str, str]]:
    # In bundles of other tools it may have any shape.
    git, sources = (part if isinstance(part := document.get(name), dict) else {} for name in ("git", "sources"))
    commit = f"{git['commit']}{', with changes' if git.get('dirty') else ''}" if git.get("commit") else ""
    other_values = {name: value for name, value in document.items() if name not in ("compiler", "git", "sources")}
    return [
        ("made by", str(document.get("compiler", ""))),
        ("of", "\n".join(f"{name}  {str(digest)[:16]}…" for name, digest in sources.items())),
        ("commit", commit),
        *((name, str(value)) for name, value in other_values.items()),
    ]


def _signature(signature: Signature | None) -> str:
    if signature is None:
        return "none"
    if signature.verified is False and signature.key is None:
        return f"refused: {signature.why}"
    scope = f", scope {signature.scope}" if signature.scope else ""
    sequence = f", sequence {signature.sequence}" if signature.sequence is not None else ""
    text = f"{signature.algorithm} by {signature.key}{scope}{sequence}"
    if signature.verified is None:
        return f"{text}; not verified: give --verification-key"
    return f"{text}; verified" if signature.verified else f"{text}; refused: {signature.why}"
