"""A shard or the people's part as JSON text, its revision and its bundle: byte for byte as `bundle.pack` makes them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from privtab.bundle.archive import archive, json_bytes
from privtab.bundle.pack import REVISION_DIGITS
from privtab.ir.nodes import Program
from privtab.spark.state.shards import Held
from privtab.spark.state.texts import Codes, Texts, is_ascii, joined, json_texts, large, nested, ranks
from privtab.state.shards import PEOPLE, roots, shard_name

SHARDED = "sharded"
Part = Callable[[bool], list[bytes]]
"""Writes one member of a document, as ASCII or in UTF-8."""


def stamped(parts: Mapping[str, Part], *, ascii_: bool) -> tuple[str, bytes]:
    """The revision and the text of a document; `ascii_`: all its texts are ASCII, so both spellings are one."""
    digest = hashlib.sha256()
    written = {name: part(False) for name, part in parts.items()}  # noqa: FBT003 - the one argument of a Part
    spelt = written if ascii_ else {name: part(True) for name, part in parts.items()}  # noqa: FBT003
    for piece in _members(spelt):
        digest.update(piece)
    revision = digest.hexdigest()[:REVISION_DIGITS]
    return revision, b"".join(_members({**written, "revision": [json.dumps(revision).encode()]}))


def _members(parts: Mapping[str, Sequence[bytes]]) -> Iterable[bytes]:
    separator = b"{"
    for name in sorted(parts):
        yield separator + json.dumps(name).encode() + b":"
        yield from parts[name]
        separator = b","
    yield b"}"


def shard_document(held: Held) -> tuple[str, bytes]:
    """The revision and the text of a shard."""
    parts: dict[str, Part] = {
        "allow": lambda a: _grants(held, "allow", ascii_=a),
        "deny": lambda a: _grants(held, "deny", ascii_=a),
        "owners": lambda a: _pairs(held, held.owners, ascii_=a),
        "members": lambda a: _pairs(held, held.members, ascii_=a),
    }
    return stamped(parts, ascii_=is_ascii(held.keys) and is_ascii(held.names))


def bundle_of(program: Program, key: str, revision: str, text: bytes, shards: int = 0) -> bytes:
    """The bundle of a part from the text of its document."""
    metadata: dict[str, Any] = {"kind": "state", "system": program.system, "state": SHARDED, "shard": key}
    if key == PEOPLE:
        metadata["shards"] = shards
    manifest = {"revision": revision, "roots": roots(program.system, key), "rego_version": 1, "metadata": metadata}
    content = text if key == PEOPLE else b'{"at":{' + json_bytes(shard_name(key)) + b":" + text + b"}}"
    return archive({".manifest": json_bytes(manifest), f"privtab_state/{program.system}/data.json": content})


def _grants(held: Held, effect: str, *, ascii_: bool) -> list[bytes]:
    """Privilege → entity → grantees; a role within a scope with the entities of its rows."""
    privilege, key, name = held.grants[effect]
    names, leaves = held.names, joined(json_texts(held.names, ascii_=ascii_), ":true")
    leaf = name
    scoped = held.scoped[effect]
    if scoped:
        number = {p: at for at, p in enumerate(held.privileges)}
        key_number = {k: at for at, k in enumerate(held.keys.to_pylist())}
        principals = list(dict.fromkeys(entry[2] for entry in scoped))
        added = {p: len(names) + at for at, p in enumerate(principals)}
        own = [
            json.dumps(p, ensure_ascii=ascii_) + ":" + json.dumps(list(es), ensure_ascii=ascii_, separators=(",", ":"))
            for _, _, p, es in scoped
        ]
        leaf = np.concatenate([leaf, len(leaves) + np.arange(len(scoped))])
        privilege = np.concatenate([privilege, [number[p] for p, _, _, _ in scoped]]).astype(np.int64)
        key = np.concatenate([key, [key_number[k] for _, k, _, _ in scoped]]).astype(np.int64)
        name = np.concatenate([name, [added[p] for _, _, p, _ in scoped]]).astype(np.int64)
        names, leaves = _together(names, principals), _together(leaves, own)
    key_rank = ranks(held.keys)
    order = np.lexsort((ranks(names)[name], key_rank[key], privilege))
    levels = [
        (privilege[order], json_texts(large(held.privileges), ascii_=ascii_)),
        (key[order], json_texts(held.keys, ascii_=ascii_)),
    ]
    return nested(levels, (leaf[order], leaves))


def _pairs(held: Held, pairs: tuple[Codes, Codes], *, ascii_: bool) -> list[bytes]:
    """Entity → names."""
    key, name = pairs
    order = np.lexsort((ranks(held.names)[name], ranks(held.keys)[key])) if len(key) else np.zeros(0, np.int64)
    leaves = joined(json_texts(held.names, ascii_=ascii_), ":true")
    return nested([(key[order], json_texts(held.keys, ascii_=ascii_))], (name[order], leaves))


def _together(texts: Texts, more: Sequence[str]) -> Texts:
    import pyarrow as pa

    return pa.concat_arrays([texts, large(more)])
