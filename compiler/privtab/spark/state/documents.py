"""Write a shard or the `people` part as JSON text, with its revision and bundle, byte for byte as `bundle.pack` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from privtab.arrow import Codes
from privtab.bundle.archive import archive, json_bytes
from privtab.ir.nodes import Program
from privtab.moments import parts_of
from privtab.spark.state.encoding import in_order, large, ranks
from privtab.spark.state.shards import RootHoldings
from privtab.state.json_columns import Level, Part, stamped
from privtab.state.shards import PEOPLE, roots, shard_name, shards

SHARDED = "sharded"


def root_document(program: Program, key: str, holdings: RootHoldings) -> tuple[str, bytes] | None:
    """The revision and the text of the shard of a root, None if nothing is held there; one with windows is made as for files."""
    if holdings.rows is None:
        return shard_document(holdings) if holdings.entities else None
    document = shards(program, holdings.rows).get(key)
    return None if document is None else (parts_of(document)[0]["revision"], json_bytes(document))


def shard_document(holdings: RootHoldings) -> tuple[str, bytes]:
    """The revision and the text of a shard."""
    return stamped(
        {
            "allow": _grants(holdings, "allow"),
            "deny": _grants(holdings, "deny"),
            "owners": _pairs(holdings, holdings.owners),
            "members": _pairs(holdings, holdings.members),
        }
    )


def bundle_of(
    program: Program,
    key: str,
    revision: str,
    text: bytes,
    shards: int = 0,
    more: Mapping[str, Any] | None = None,
    *,
    windows: bool = False,
    further: Sequence[str] = (),
) -> bytes:
    """The bundle of a part from the text of its document; `more`: additional metadata; `windows` and `further`: as in `roots`."""
    metadata: dict[str, Any] = {"kind": "state", "system": program.system, "state": SHARDED, "shard": key}
    if key == PEOPLE:
        metadata["shards"] = shards
    metadata |= more or {}
    manifest = {
        "revision": revision,
        "roots": roots(program.system, key, windows=windows, further=further),
        "rego_version": 1,
        "metadata": metadata,
    }
    content = text if key == PEOPLE else b'{"at":{' + json_bytes(shard_name(key)) + b":" + text + b"}}"
    return archive({".manifest": json_bytes(manifest), f"privtab_state/{program.system}/data.json": content})


def _grants(holdings: RootHoldings, effect: str) -> Part:
    """Privilege → entity → grantees; a role within a scope is followed by the entities of its rows."""
    privilege, key, name = holdings.grants[effect]
    rank, names, leaf = name, holdings.names, np.zeros(len(name), np.int64)
    scoped = holdings.scoped[effect]
    if scoped:
        number = {p: position for position, p in enumerate(holdings.privileges)}
        key_number = {k: position for position, k in enumerate(holdings.keys.to_pylist())}
        principals = list(dict.fromkeys(entry[2] for entry in scoped))
        added = {p: len(names) + position for position, p in enumerate(principals)}
        leaf = np.concatenate([leaf, 1 + np.arange(len(scoped))])
        privilege = np.concatenate([privilege, [number[p] for p, _, _, _ in scoped]]).astype(np.int64)
        key = np.concatenate([key, [key_number[k] for _, k, _, _ in scoped]]).astype(np.int64)
        name = np.concatenate([name, [added[p] for _, _, p, _ in scoped]]).astype(np.int64)
        names = pa.concat_arrays([names, large(principals)])
        rank = ranks(names)[name]
    order = in_order(privilege, key, rank)
    leaves = (leaf[order], [list(entities) for _, _, _, entities in scoped]) if scoped else None
    levels = (
        Level(large(holdings.privileges), '"', '":{', "}},"),
        Level(holdings.keys, '"', '":{', "},"),
        Level(names, '"', '":' if scoped else '":true', ","),
    )
    rows = (privilege[order], key[order], name[order])
    return Part(lambda: [rows], levels, "}}", leaves)


def _pairs(holdings: RootHoldings, pairs: tuple[Codes, Codes]) -> Part:
    """Entity → names."""
    order = in_order(*pairs)
    rows = tuple(column[order] for column in pairs)
    levels = (Level(holdings.keys, '"', '":{', "},"), Level(holdings.names, '"', '":true', ","))
    return Part(lambda: [rows], levels, "}")
