"""`privtab inspect`: show the content of a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from privtab.cli._options import FormatOption
from privtab.cli._output import Format, fail_if, out, print_if_data, table
from privtab.cli._signing import ScopeOption, VerificationKeyOption, trust
from privtab.errors import BrokenBundle
from privtab.plural import count

if TYPE_CHECKING:
    from privtab.bundle.inspect import Inspection, Signature

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
        content = inspected(bundle, trust(keys, scope))
    except BrokenBundle as error:
        raise BrokenBundle(f"{bundle}: {error}") from None
    if not print_if_data(format_, {"bundle": str(bundle), **content.to_json()}):
        _show(bundle, content)
    fail_if(content.signature is not None and content.signature.verified is False)


def _show(bundle: Path, content: Inspection) -> None:
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
