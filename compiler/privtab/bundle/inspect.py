"""Inspect a bundle: count what privtab's own kinds contain, and describe others as far as possible."""

from __future__ import annotations

import base64
import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, field, replace
from typing import Any

from privtab.base import strict_json
from privtab.base.errors import SignatureRefused
from privtab.base.moments import WINDOWED
from privtab.base.names import SCOPED
from privtab.base.records import dataclass
from privtab.base.signatures import LARGEST_SIGNATURES, PATCH, Trust, is_signature
from privtab.bundle.archive import MANIFEST_FILE, FileContent, archive_entries, check_values
from privtab.bundle.sign import BundleSource, opened, verify_bundle

WASM = ".wasm"
_PIECE = 1 << 20
PROGRAMS, STATES = "privtab_program", "privtab_state"
_OWN = ("kind", "system", "version", "provenance")
"""The metadata that an inspection has by themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file of a bundle."""

    name: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """The claims of a signature, and whether it verifies with the given keys."""

    key: str | None
    algorithm: str | None
    scope: str = ""
    sequence: int | None = None
    verified: bool | None = None
    """None if no key was given."""
    why: str | None = None
    """Why it does not verify."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """The result of inspecting a bundle."""

    kind: str
    """`policy`, `wasm`, `state`, `shard`, `people`, `delta`; `other` for bundles of other tools."""
    system: str | None
    version: str | None
    revision: str | None
    bytes: int
    sha256: str
    roots: tuple[str, ...]
    files: tuple[File, ...]
    counts: Mapping[str, int]
    provenance: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """The rest of the manifest's metadata."""
    signature: Signature | None = None

    def to_json(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def inspect(bundle: BundleSource, trust: Trust | None = None) -> Inspection:
    """Inspect a bundle; with `trust` also verify it. Raises BrokenBundle, FileError."""
    files: list[File] = []
    counts: Counter[str] = Counter()
    manifest: Mapping[str, Any] = {}
    signatures: bytes | None = None
    with opened(bundle) as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]  # it is an open file
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        for name, entry, content in archive_entries(file):
            files.append(File(name=name, bytes=entry.size))
            if name == MANIFEST_FILE:
                manifest = _object(content.read())
            elif is_signature(name):
                signatures = content.read(min(entry.size, LARGEST_SIGNATURES))
            else:
                # One file at a time: its content is freed before the next is read.
                counts.update(_counts(name, entry.size, content))
    metadata = _mapping(manifest.get("metadata"))
    return Inspection(
        kind=_kind(metadata, files),
        system=_text(metadata.get("system")),
        version=_text(metadata.get("version")),
        revision=_text(manifest.get("revision")),
        bytes=size,
        sha256=sha256,
        roots=tuple(str(root) for root in manifest.get("roots", [""]) if isinstance(root, str)),
        files=tuple(sorted(files, key=lambda file: file.name)),
        counts=dict(counts),
        provenance=_mapping(metadata.get("provenance")),
        metadata={name: metadata[name] for name in metadata if name not in _OWN},
        signature=_signature(bundle, signatures, trust),
    )


def _kind(metadata: Mapping[str, Any], files: list[File]) -> str:
    names = {file.name for file in files}
    kind = metadata.get("kind")
    if PATCH in names:
        return "delta"
    if kind == "state" and isinstance(shard := metadata.get("shard"), str):
        return "people" if shard == "people" else "shard"
    return kind if kind in ("policy", "wasm", "state") and _text(metadata.get("system")) else "other"


# --- counting --------------------------------------------------------------------------------------------------------


def _counts(name: str, size: int, content: FileContent) -> dict[str, int]:
    last = name.rpartition("/")[2]
    if name.endswith(".rego"):
        pieces = iter(lambda: content.read(_PIECE), b"")
        return {"modules": 1, "lines of Rego": sum(piece.count(b"\n") for piece in pieces)}
    if name.endswith(WASM):
        return {"bytes of WebAssembly": size}
    if last != "data.json":
        return {}
    counts: Counter[str] = Counter()
    text = content.read()
    check_values(name, text)
    for path, document in _documents(tuple(name.split("/")[:-1]), _object(text)):
        counts.update(_program(document) if path[0] == PROGRAMS else _state(document))
    return dict(counts)


def _documents(path: tuple[str, ...], value: Any) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """Programs and states in the data, each with its path; shards count as states."""
    if not isinstance(value, dict) or (path and path[0] not in (PROGRAMS, STATES)):
        return
    if len(path) == 2:
        yield path, value
        shards = value.get("at") if path[0] == STATES else None
        for shard in _mapping(shards).values():
            if isinstance(shard, dict):
                yield path, shard
    elif len(path) < 2:
        for key, child in value.items():
            yield from _documents((*path, key), child)


def _program(program: Mapping[str, Any]) -> dict[str, int]:
    parts = ("entities", "privileges", "sets", "roles")
    counts = {"rules": sum(len(_mapping(rows)) for rows in _mapping(program.get("rules")).values())}
    return counts | {part: len(program[part]) for part in parts if _mapping(program.get(part))}


def _state(state: Mapping[str, Any]) -> dict[str, int]:
    windowed = _mapping(state.get(WINDOWED))
    timed = _counted(_mapping(windowed.get("windows")))
    counts = _counted({**state, **windowed}) + timed
    for part, noun in _NAMED.items():
        both = _mapping(windowed.get(part)).keys() & _mapping(_mapping(windowed.get("windows")).get(part)).keys()
        counts[noun] -= len(both)  # they have something for a time, and something else at any time
    return dict(+counts) | {f"{noun} for a time": number for noun, number in timed.items()}


_NAMED = {
    "principals": "users with roles or groups",
    "group_principals": "groups with roles",
    "within": "roles within a scope",
    "service_admins": "service admins",
    "shards": "shards",
}


def _counted(parts: Mapping[str, Any]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for effect, noun in (("allow", "grants"), ("deny", "denials")):
        for entities in _mapping(parts.get(effect)).values():
            # A role within a scope has one more entry, with the entities of its rows, which is not another grant.
            principals = (str(name) for holders in _mapping(entities).values() for name in _mapping(holders))
            counts[noun] += sum(not principal.startswith(SCOPED) for principal in principals)
    for part, noun in (("owners", "owners"), ("members", "members")):
        counts[noun] += sum(len(_mapping(names)) for names in _mapping(parts.get(part)).values())
    for part, noun in _NAMED.items():
        counts[noun] += len(_mapping(parts.get(part)))
    return +counts


# --- signatures ------------------------------------------------------------------------------------------------------


def _signature(bundle: BundleSource, signatures: bytes | None, trust: Trust | None) -> Signature | None:
    claims = _unverified_claims(signatures) if signatures is not None else None
    if trust is None:
        return claims
    try:
        signed = verify_bundle(bundle, trust)
    except SignatureRefused as error:
        return replace(claims or Signature(key=None, algorithm=None), verified=False, why=str(error))
    return Signature(
        key=signed.key, algorithm=signed.algorithm, scope=signed.scope, sequence=signed.sequence, verified=True
    )


def _unverified_claims(signatures: bytes) -> Signature:
    """The claims of a signature, not verified."""
    tokens = _object(signatures).get("signatures")
    token = tokens[0] if isinstance(tokens, list) and tokens and isinstance(tokens[0], str) else ""
    header, claims = (_decoded(part) for part in (*token.split("."), "", "")[:2])
    sequence = claims.get("sequence")
    return Signature(
        key=_text(header.get("kid")) or _text(claims.get("keyid")),
        algorithm=_text(header.get("alg")),
        scope=_text(claims.get("scope")) or "",
        sequence=sequence if isinstance(sequence, int) else None,
    )


def _decoded(part: str) -> Mapping[str, Any]:
    try:
        return _object(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except ValueError:
        return {}


def _object(text: bytes) -> Mapping[str, Any]:
    """The JSON object in a text, or an empty one if it cannot be read: inspection shows what it can."""
    try:
        return _mapping(strict_json.strict_loads(text))
    except ValueError:
        return {}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
