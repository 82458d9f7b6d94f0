"""`privtab inspect`: show the content of a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from privtab.cli._options import FormatOption
from privtab.cli._output import Format, count, fail_if, out, printed, table
from privtab.cli._signing import ScopeOption, VerificationKeyOption, trust
from privtab.errors import BrokenBundle

if TYPE_CHECKING:
    from privtab.bundle.inspect import Inspected, Signature

PANEL = "Ship"

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


def run(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle, as OPA loads it.")],
    keys: VerificationKeyOption = None,
    scope: ScopeOption = "",
    format_: FormatOption = Format.TEXT,
) -> None:
    """Show the content of a bundle: its kind, origin, sizes and signature.

    With a key, exits with 1 if the signature is not valid.

    Example:

    \b
      privtab inspect build/gravitino/1.1.0/policy.tar.gz
      privtab inspect state.tar.gz --verification-key prod.pub.pem --format json
    """
    from privtab.bundle.inspect import inspect as inspected

    try:
        found = inspected(bundle, trust(keys, scope))
    except BrokenBundle as error:
        raise BrokenBundle(f"{bundle}: {error}") from None
    if not printed(format_, {"bundle": str(bundle), **found.to_json()}):
        _show(bundle, found)
    fail_if(found.signature is not None and found.signature.verified is False)


def _show(bundle: Path, found: Inspected) -> None:
    shown = table("", "")
    shown.show_header = False
    shown.columns[0].style = "bold"
    shown.columns[0].no_wrap = True
    for name, value in _lines(bundle, found):
        shown.add_row(name, value)
    out().print(shown)


def _lines(bundle: Path, found: Inspected) -> list[tuple[str, str]]:
    kind = KINDS[found.kind]
    if found.kind == "shard":
        kind += f" ({found.metadata.get('shard')})"
    lines = [
        ("bundle", str(bundle)),
        ("kind", kind),
        ("system", " ".join(text for text in (found.system, found.version) if text)),
        ("revision", found.revision or "none"),
        ("roots", "\n".join(root or "all of data" for root in found.roots)),
        ("holds", "\n".join(_counted(number, noun) for noun, number in found.counts.items())),
        *_provenance(found.provenance),
        ("signature", _signature(found.signature)),
        ("size", f"{found.bytes:,} bytes, {sum(file.bytes for file in found.files):,} unpacked"),
        ("sha256", found.sha256),
    ]
    more = len(found.files) - FILES_SHOWN
    width = max((len(f"{file.bytes:,}") for file in found.files), default=0)
    names = [f"{file.bytes:>{width},}  {file.name}" for file in found.files[:FILES_SHOWN]]
    lines.append(("files", "\n".join(names + ([f"… and {count(more, 'more')}"] if more > 0 else []))))
    return [(name, value) for name, value in lines if value]


def _counted(number: int, noun: str) -> str:
    """`17 modules`, `1 service admin`."""
    singular = f"{noun[:-3]}y" if noun.endswith("ies") else noun.removesuffix("s")
    return f"{number:,} {singular if number == 1 else noun}"


def _provenance(told: Any) -> list[tuple[str, str]]:
    # In bundles of other tools it may have any shape.
    git, sources = (part if isinstance(part := told.get(name), dict) else {} for name in ("git", "sources"))
    commit = f"{git['commit']}{', with changes' if git.get('dirty') else ''}" if git.get("commit") else ""
    chosen = {name: value for name, value in told.items() if name not in ("compiler", "git", "sources")}
    return [
        ("made by", str(told.get("compiler", ""))),
        ("of", "\n".join(f"{name}  {str(digest)[:16]}…" for name, digest in sources.items())),
        ("commit", commit),
        *((name, str(value)) for name, value in chosen.items()),
    ]


def _signature(signature: Signature | None) -> str:
    if signature is None:
        return "none"
    if signature.verified is False and signature.key is None:
        return f"refused: {signature.why}"
    scope = f", scope {signature.scope}" if signature.scope else ""
    order = f", sequence {signature.sequence}" if signature.sequence is not None else ""
    said = f"{signature.algorithm} by {signature.key}{scope}{order}"
    if signature.verified is None:
        return f"{said}; not verified: give --verification-key"
    return f"{said}; verified" if signature.verified else f"{said}; refused: {signature.why}"
