"""Read and check a bundle from its bytes before it is stored."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

from privtab.bundle.archive import json_bytes
from privtab.bundle.bounds import read_object
from privtab.bundle.stream import entries
from privtab.errors import BrokenBundle, BundleRefused, UsageError
from privtab.moments import WINDOWED
from privtab.registry import names
from privtab.registry.nodes import DEEPEST, too_deep
from privtab.signatures import PATCH, SIGNATURES

MANIFEST = ".manifest"
_PROGRAMS, _STATES = "privtab_program", "privtab_state"
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A valid bundle."""

    system: str
    kind: str
    id: str
    shard: str
    digest: str
    content: str
    """SHA-256 of its files, without signatures and the provenance in the manifest."""
    size: int
    signed: bool
    metadata: Mapping[str, Any]


def read(packed: bytes) -> Bundle:
    """Read a bundle of privtab; raises BundleRefused if it is invalid or does not match its revision."""
    hashes: dict[str, str] = {}
    manifest: dict[str, Any] | None = None
    revisions: dict[str, object] = {}
    signed = False
    try:
        for path, _, file in entries(io.BytesIO(packed)):
            if path == MANIFEST:
                manifest = read_object(path, file.read(), BundleRefused)
                if too_deep(manifest):
                    raise BundleRefused(f"its manifest is nested more than {DEEPEST} times")
            elif path == SIGNATURES:
                signed = True
            elif path.startswith((f"{_PROGRAMS}/", f"{_STATES}/")) and path.endswith("/data.json"):
                text = file.read()
                hashes[path] = hashlib.sha256(text).hexdigest()
                revisions[path] = _revision(path, read_object(path, text, BundleRefused))
            else:
                hashes[path] = _digest(file)
    except BrokenBundle as error:
        raise BundleRefused(str(error)) from None
    if manifest is None:
        raise BundleRefused("it has no manifest")
    if PATCH in hashes:
        raise BundleRefused("it is a delta: keep whole bundles")
    return _checked(packed, manifest, hashes, revisions, signed=signed)


def _checked(
    packed: bytes,
    manifest: dict[str, Any],
    hashes: Mapping[str, str],
    revisions: Mapping[str, object],
    *,
    signed: bool,
) -> Bundle:
    metadata = manifest.get("metadata")
    if not isinstance(metadata, dict):
        raise BundleRefused("its manifest has no metadata: it is not a bundle of privtab")
    kind, system, identity = metadata.get("kind"), metadata.get("system"), manifest.get("revision")
    shard = metadata.get("shard", "")
    if not isinstance(shard, str):
        raise BundleRefused("the shard in its manifest must be a string")
    kind = "shard" if kind == "state" and shard else kind
    try:
        names.checked_kind(str(kind))
        names.checked("the system", str(system))
        names.checked("the revision", str(identity or ""))
    except UsageError as error:
        raise BundleRefused(f"its manifest is not one of privtab: {error}") from None
    if not revisions:
        raise BundleRefused(f"it is a bundle of kind `{kind}` and holds neither a program nor a state")
    for path, revision in revisions.items():
        if revision != identity:
            raise BundleRefused(f"its revision is `{identity}`, `{path}` says `{revision}`")
    manifest_fields = {name: value for name, value in manifest.items() if name != "metadata"} | {
        "kind": kind,
        "system": system,
    }
    hashed = {"files": dict(sorted(hashes.items())), "manifest": manifest_fields, "shard": shard}
    return Bundle(
        system=str(system),
        kind=str(kind),
        id=str(identity),
        shard=shard,
        digest=hashlib.sha256(packed).hexdigest(),
        content=hashlib.sha256(json_bytes(hashed)).hexdigest(),
        size=len(packed),
        signed=signed,
        metadata=metadata,
    )


def _revision(path: str, document: Mapping[str, Any]) -> object:
    """The revision recorded in a program or a state; that of a shard is two levels deeper."""
    if path.startswith(_STATES) and isinstance(document.get(WINDOWED), dict):
        document = document[WINDOWED]
    parts = document.get("at")
    if path.startswith(_STATES) and "revision" not in document and isinstance(parts, dict) and len(parts) == 1:
        (document,) = parts.values()
    return document.get("revision") if isinstance(document, dict) else None


def _digest(file: BinaryIO) -> str:
    digest = hashlib.sha256()
    while piece := file.read(_PIECE):
        digest.update(piece)
    return digest.hexdigest()
