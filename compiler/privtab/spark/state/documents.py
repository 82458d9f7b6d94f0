"""Write a shard or the `people` part as JSON text, with its revision and bundle, byte for byte as `bundle.pack` does."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from privtab.bundle.archive import archive, json_bytes
from privtab.bundle.pack import REVISION_DIGITS
from privtab.ir.nodes import Program
from privtab.moments import parts_of
from privtab.spark.state.shards import RootHoldings
from privtab.spark.state.texts import Codes, Texts, in_order, is_ascii, joined, json_texts, large, nested, ranks
from privtab.state.shards import PEOPLE, roots, shard_name, shards

SHARDED = "sharded"
Part = Callable[[bool], list[bytes]]
"""Writes one member of a document, as ASCII or in UTF-8."""


def stamped(parts: Mapping[str, Part], *, ascii_: bool) -> tuple[str, bytes]:
    """The revision and the text of a document; `ascii_`: all its strings are ASCII, so both spellings are the same."""
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


@dataclass(slots=True)
class _JsonTexts:
    """The strings of a shard as JSON, computed once for all members of its document."""

    held: RootHoldings
    _written: dict[bool, tuple[Texts, Texts, Texts]] = field(default_factory=dict)

    def written(self, *, ascii_: bool) -> tuple[Texts, Texts, Texts]:
        """Keys and names as JSON, and for each name the object member `"name":true`."""
        if ascii_ not in self._written:
            names = json_texts(self.held.names, ascii_=ascii_)
            self._written[ascii_] = (json_texts(self.held.keys, ascii_=ascii_), names, joined(names, ":true"))
        return self._written[ascii_]


def root_document(program: Program, key: str, held: RootHoldings) -> tuple[str, bytes] | None:
    """The revision and the text of the shard of a root, None if nothing is held there; one with windows is made as for files."""
    if held.rows is None:
        return shard_document(held) if held.entities else None
    document = shards(program, held.rows).get(key)
    return None if document is None else (parts_of(document)[0]["revision"], json_bytes(document))


def shard_document(held: RootHoldings) -> tuple[str, bytes]:
    """The revision and the text of a shard."""
    spelt = _JsonTexts(held)
    parts: dict[str, Part] = {
        "allow": lambda a: _grants(spelt, "allow", ascii_=a),
        "deny": lambda a: _grants(spelt, "deny", ascii_=a),
        "owners": lambda a: _pairs(spelt, held.owners, ascii_=a),
        "members": lambda a: _pairs(spelt, held.members, ascii_=a),
    }
    return stamped(parts, ascii_=is_ascii(held.keys) and is_ascii(held.names))


def bundle_of(
    program: Program,
    key: str,
    revision: str,
    text: bytes,
    shards: int = 0,
    more: Mapping[str, Any] | None = None,
    *,
    windows: bool = False,
) -> bytes:
    """The bundle of a part from the text of its document; `more`: additional metadata."""
    metadata: dict[str, Any] = {"kind": "state", "system": program.system, "state": SHARDED, "shard": key}
    if key == PEOPLE:
        metadata["shards"] = shards
    metadata |= more or {}
    manifest = {
        "revision": revision,
        "roots": roots(program.system, key, windows=windows),
        "rego_version": 1,
        "metadata": metadata,
    }
    content = text if key == PEOPLE else b'{"at":{' + json_bytes(shard_name(key)) + b":" + text + b"}}"
    return archive({".manifest": json_bytes(manifest), f"privtab_state/{program.system}/data.json": content})


def _grants(spelt: _JsonTexts, effect: str, *, ascii_: bool) -> list[bytes]:
    """Privilege → entity → grantees; a role within a scope is followed by the entities of its rows."""
    held = spelt.held
    privilege, key, name = held.grants[effect]
    if not len(privilege) and not held.scoped[effect]:
        return [b"{}"]
    key_texts, _, leaves = spelt.written(ascii_=ascii_)
    leaf = rank = name
    scoped = held.scoped[effect]
    if scoped:
        number = {p: position for position, p in enumerate(held.privileges)}
        key_number = {k: position for position, k in enumerate(held.keys.to_pylist())}
        principals = list(dict.fromkeys(entry[2] for entry in scoped))
        names = held.names
        added = {p: len(names) + position for position, p in enumerate(principals)}
        own = [
            json.dumps(p, ensure_ascii=ascii_) + ":" + json.dumps(list(es), ensure_ascii=ascii_, separators=(",", ":"))
            for _, _, p, es in scoped
        ]
        leaf = np.concatenate([leaf, len(leaves) + np.arange(len(scoped))])
        privilege = np.concatenate([privilege, [number[p] for p, _, _, _ in scoped]]).astype(np.int64)
        key = np.concatenate([key, [key_number[k] for _, k, _, _ in scoped]]).astype(np.int64)
        name = np.concatenate([name, [added[p] for _, _, p, _ in scoped]]).astype(np.int64)
        rank, leaves = ranks(_appended(names, principals))[name], _appended(leaves, own)
    order = in_order(privilege, key, rank)
    levels = [
        (privilege[order], json_texts(large(held.privileges), ascii_=ascii_)),
        (key[order], key_texts),
    ]
    return nested(levels, (leaf[order], leaves))


def _pairs(spelt: _JsonTexts, pairs: tuple[Codes, Codes], *, ascii_: bool) -> list[bytes]:
    """Entity → names."""
    key, name = pairs
    if not len(key):
        return [b"{}"]
    key_texts, _, leaves = spelt.written(ascii_=ascii_)
    order = in_order(key, name)
    return nested([(key[order], key_texts)], (name[order], leaves))


def _appended(texts: Texts, more: Sequence[str]) -> Texts:
    import pyarrow as pa

    return pa.concat_arrays([texts, large(more)])
