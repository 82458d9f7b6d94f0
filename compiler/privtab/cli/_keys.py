"""`privtab bundle keys`: manage keys for signing bundles."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from privtab._staged import write
from privtab.cli._options import FormatOption
from privtab.cli._output import Format, out, print_error, print_if_data, print_json
from privtab.errors import BundleWriteError, UsageError

app = typer.Typer(help="Create and show keys for signing bundles.", no_args_is_help=True)


class Algorithm(StrEnum):
    """Algorithms of new keys."""

    ES256 = "ES256"
    RS256 = "RS256"


KeyArgument = Annotated[list[str], typer.Argument(metavar="KEY", help="PEM files with public or private keys.")]


@app.command("new")
def new(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="File for the private key, such as prod.pem.")],
    algorithm: Annotated[
        Algorithm, typer.Option("--algorithm", help="Signature algorithm; ES256 has small, fast signatures.")
    ] = Algorithm.ES256,
) -> None:
    """Create a key pair: a private key for signing bundles, and a public key (FILE with .pub.pem) for verifying them.

    Existing files are never overwritten. With PRIVTAB_SIGNING_KEY_PASSWORD the private key is encrypted.

    Example:

    \b
      privtab bundle keys new prod.pem
      PRIVTAB_SIGNING_KEY_PASSWORD=… privtab bundle keys new prod.pem --algorithm RS256
    """
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
        raise BundleWriteError(f"cannot write {path}: {error.strerror or error}") from error
    write(public, key.pem.encode())
    console = out()
    console.print(f"{path}  private, for signing: keep it where only your builds can read it", soft_wrap=True)
    console.print(f"{public}  public, for verifying; its id is {key.id}", soft_wrap=True)


@app.command("public")
def public(keys: KeyArgument) -> None:
    """Print public keys as PEM.

    Example:

    \b
      privtab bundle keys public prod.pem > prod.pub.pem
    """
    from privtab.bundle.sign import public_keys

    for key in public_keys(keys):
        out().print(key.pem.rstrip("\n"), soft_wrap=True)


@app.command("show")
def show(keys: KeyArgument, format_: FormatOption = Format.TEXT) -> None:
    """Show the ids and algorithms of keys.

    Example:

    \b
      privtab bundle keys show prod.pub.pem
    """
    from privtab.bundle.sign import public_keys

    rows = [{"id": key.id, "algorithms": list(key.algorithms), "file": key.where} for key in public_keys(keys)]
    if print_if_data(format_, rows):
        return
    for row in rows:
        out().print(f"{row['id']}  {', '.join(row['algorithms'])}  {row['file']}", soft_wrap=True)


@app.command("config")
def config(
    keys: KeyArgument,
    scope: Annotated[str, typer.Option("--scope", metavar="TEXT", help="Scope that signatures must have.")] = "",
    bundle: Annotated[
        list[str] | None,
        typer.Option("--bundle", metavar="NAME", help="Bundle name in OPA's configuration; repeatable."),
    ] = None,
) -> None:
    """Print the configuration that OPA needs to verify bundles: the keys, and `signing` of each bundle, as JSON.

    Several keys may be trusted at once, as during a rotation: a signature names its key. OPA takes one key or any, so
    `keyid` is left out then, and OPA before 1.21.3 accepts unsigned bundles.

    Example:

    \b
      privtab bundle keys config prod.pub.pem --scope prod
      privtab bundle keys config old.pub.pem new.pub.pem --bundle policy --bundle state
    """
    from privtab.bundle.sign import opa_configuration, public_keys

    configuration = opa_configuration(public_keys(keys), scope, bundle or ["policy", "state"])
    if len(configuration["keys"]) > 1:
        print_error("several keys, so no `keyid`: OPA before 1.21.3 accepts unsigned bundles with this configuration")
    print_json(configuration)
