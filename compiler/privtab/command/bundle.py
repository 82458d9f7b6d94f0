"""`privtab bundle`: sign bundles, verify them, look into them, and manage the keys for it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from privtab.base.errors import BrokenBundle, FileError, UsageError
from privtab.base.printable import count
from privtab.base.staged import write_file
from privtab.command._options import SigningOptions, VerificationOptions
from privtab.command._output import (
    FormatOption,
    deliver,
    fail_if,
    out,
    print_error,
    print_if_data,
    print_rows,
    table,
)
from privtab.command._parameters import argument, option
from privtab.command._typer import Commands

if TYPE_CHECKING:
    from privtab.bundle.inspect import Inspection, Signature

PANEL = "Ship"

app = Commands(help="Sign bundles, verify them, and look into them.", no_args_is_help=True)

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
def sign_bundles(
    bundles: Annotated[list[Path], argument("BUNDLE", "Bundles, as OPA loads them.")],
    *,
    sign: SigningOptions,
    output: Annotated[
        Path | None, option("--output -o FILE", "File for the signed bundle. (default: sign in place)")
    ] = None,
    format_: FormatOption = "text",
) -> None:
    """Sign bundles, replacing any signature they have. Content and revision stay.

    Example:
      privtab bundle sign build/lake/1/policy.tar.gz --signing-key prod.pem --signature scope=prod
      privtab bundle sign state.tar.gz --signing-key prod.pem --signature sequence=43 -o again.tar.gz
    """
    signing = sign.signing_key()
    if signing is None:
        raise UsageError("give the key to sign with: `--signing-key FILE`")
    if output is not None and len(bundles) > 1:
        raise UsageError(f"`--output` takes a single bundle; these are {len(bundles)}")
    from privtab.bundle.sign import opened, signed_pieces

    rows = []
    for bundle in bundles:
        target = output or bundle
        try:
            with opened(bundle) as file:
                size = write_file(target, signed_pieces(file, signing), in_place=True)
        except BrokenBundle as error:
            raise BrokenBundle(f"{bundle}: {error}") from None
        rows.append({"bundle": str(target), "bytes": size, "key": signing.id, "algorithm": signing.algorithm})
    print_rows(
        format_,
        rows,
        lambda row: f"{row['bundle']}  {row['bytes']:,} bytes, signed with {row['key']} ({row['algorithm']})",
    )


@app.command("inspect")
def inspect(
    bundle: Annotated[Path, argument("BUNDLE", "A bundle, as OPA loads it.")],
    verification: VerificationOptions,
    format_: FormatOption = "text",
) -> None:
    """Show the content of a bundle: its kind, origin, sizes and signature.

    With a key, exits with 1 if the signature is not valid.

    Example:
      privtab bundle inspect build/lake/1/policy.tar.gz
      privtab bundle inspect state.tar.gz --verification-key prod.pub.pem --format json
    """
    from privtab.bundle.inspect import inspect as inspected

    try:
        content = inspected(bundle, verification.trust())
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


@app.command("keys")
def keys(
    files: Annotated[list[str], argument("FILE…", "PEM files with public or private keys.")],
    new: Annotated[
        Literal["ES256", "RS256"] | None,
        option("--new", "Create a key pair in FILE; signatures of ES256 are small and fast."),
    ] = None,
    scope: Annotated[str, option("--scope TEXT", "With `--format opa`: scope that signatures must have.")] = "",
    bundle: Annotated[
        list[str] | None, option("--bundle NAME", "With `--format opa`: name of a bundle there; repeatable.")
    ] = None,
    format_: Annotated[
        Literal["text", "json", "pem", "opa"],
        option("--format", "Ids and algorithms, or the public keys as PEM, or OPA's configuration."),
    ] = "text",
) -> None:
    """Show keys for signing bundles, or create a pair: FILE, private, and FILE with .pub.pem, public, for verifying.

    Existing files are never overwritten. With PRIVTAB_SIGNING_KEY_PASSWORD the private key is encrypted.

    `--format opa` prints the configuration that OPA needs to verify bundles: the keys, and `signing` of each bundle. Several keys
    may be trusted at once, as during a rotation: a signature names its key. OPA takes one key or any, so `keyid` is left out
    then, and OPA before 1.21.3 accepts unsigned bundles.

    Example:
      privtab bundle keys release.pem --new ES256
      privtab bundle keys prod.pub.pem
      privtab bundle keys prod.pem --format pem > prod.pub.pem
      privtab bundle keys prod.pub.pem next.pub.pem --format opa --scope prod --bundle policy --bundle state
    """
    from privtab.bundle.sign import opa_configuration, public_keys

    if format_ != "opa" and (scope or bundle):
        raise UsageError("`--scope` and `--bundle` are parts of OPA's configuration: give `--format opa`")
    if new is not None:
        if len(files) > 1 or format_ != "text":
            raise UsageError("`--new` creates one key pair: give one FILE, and no `--format`")
        _create_keys(Path(files[0]), new)
        return
    found = public_keys(files)
    match format_:
        case "pem":
            for key in found:
                out().print(key.pem.rstrip("\n"))
        case "opa":
            configuration = opa_configuration(found, scope, bundle or ["policy", "state"])
            if len(configuration["keys"]) > 1:
                print_error(
                    "several keys, so no `keyid`: OPA before 1.21.3 accepts unsigned bundles with this configuration"
                )
            deliver(configuration, numbered=False)
        case "text" | "json":
            rows = [{"id": key.id, "algorithms": list(key.algorithms), "file": key.where} for key in found]
            print_rows(format_, rows, lambda row: f"{row['id']}  {', '.join(row['algorithms'])}  {row['file']}")


def _create_keys(path: Path, algorithm: str) -> None:
    from privtab.bundle.sign import new_key

    public = path.with_suffix(".pub.pem")
    for file in (path, public):
        if file.exists():
            raise UsageError(f"{file} is there already: keys are not written over")
    private, key = new_key(algorithm)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as secret:
            secret.write(private)
    except OSError as error:
        raise FileError(f"cannot write {path}: {error.strerror or error}") from error
    write_file(public, key.pem.encode())
    console = out()
    console.print(f"{path}  private, for signing: keep it where only your builds can read it")
    console.print(f"{public}  public, for verifying; its id is {key.id}")
