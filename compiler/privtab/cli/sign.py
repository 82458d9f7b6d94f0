"""`privtab sign`: sign existing bundles."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from privtab._staged import write_pieces
from privtab.cli._options import FormatOption
from privtab.cli._output import Format, out, print_if_data
from privtab.cli._signing import KeyIdOption, ScopeOption, SequenceOption, SigningKeyOption, signing_key
from privtab.errors import BrokenBundle, UsageError

PANEL = "Ship"


def run(
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
      privtab sign build/gravitino/1.1.0/policy.tar.gz --signing-key prod.pem --scope prod
      privtab sign old.tar.gz --signing-key prod.pem --sequence 43 -o again.tar.gz
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
