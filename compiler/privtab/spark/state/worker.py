"""Process the rows of roots on an executor: validate, index, bundle byte for byte as `bundle.pack`, write, and report."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from privtab.arrow import Codes
from privtab.bundle.archive import archive, json_bytes
from privtab.ir.nodes import Program
from privtab.moments import parts_of
from privtab.spark.state.cross_row_checks import Findings
from privtab.spark.state.encoding import in_order, large, ranks
from privtab.spark.state.files import Root
from privtab.spark.state.schemas import FINDINGS
from privtab.spark.state.shards import RootHoldings, by_root, root_holdings
from privtab.state.findings import CODES
from privtab.state.json_columns import Level, Part, stamped
from privtab.state.shards import PEOPLE, roots, shard_name, shards

RESULTS = f"`kind` string, `root` string, {FINDINGS}"


def build_shards(
    program: Program, root: Root, not_text: Mapping[str, Mapping[str, str]], orphans: str | None, batches: Iterator[Any]
) -> Iterator[Any]:
    """For `mapInArrow`: write the bundles of roots from their rows; returns reports, findings and the principals of grants and owners.

    If the rows have the column `h`, also returns fingerprints, as `scan.fingerprints` over the same rows.
    """
    found = [batch for batch in batches if batch.num_rows]
    if not found:
        return
    table = pa.Table.from_batches(found)
    del found
    for key, rows in by_root(table):
        findings = Findings()
        shard = root_holdings(program, rows, not_text, findings, orphans)
        out = [
            {"kind": "finding", "root": key, "name": CODES[row["code"]], "source": "", **row} for row in findings.rows
        ]
        if "h" in rows.column_names:
            out.append({"kind": "fingerprint", "root": key, "row": json.dumps(_fingerprint(rows))})
        if document := root_document(program, key, shard):
            revision, text = document
            content = bundle_of(program, key, revision, text)
            file = f"bundles/{file_name(key)}-{revision}.tar.gz"
            root.write(file, content)
            report = {
                "file": file, "revision": revision, "bytes": len(content), "json_bytes": len(text),
                "sha256": hashlib.sha256(content).hexdigest(), "entities": shard.entities,
                "allow": len(shard.grants["allow"][0]), "deny": len(shard.grants["deny"][0]),
                "owners": len(shard.owners[0]), "members": len(shard.members[0]),
                **({"timed": len(shard.timed.grants) + len(shard.timed.owners)} if shard.timed.windows else {}),
            }  # fmt: skip
            out.append({"kind": "shard", "root": key, "row": json.dumps(report)})
        yield from _out(out)
        yield from _principals(key, shard)


def _fingerprint(rows: Any) -> list[int]:
    """The number of rows with a hash, and the sums of the halves of the hashes and of their hashes."""
    hashes = np.asarray(rows.column("h").drop_null()).astype(np.int64).view(np.uint64)
    sums = [len(hashes)]
    for values in (hashes, hashed(hashes)):
        sums += [int((values & np.uint64(0xFFFFFFFF)).sum()), int((values >> np.uint64(32)).sum())]
    return sums


def hashed(values: Any) -> Any:
    """XXH64 of 64-bit numbers with the seed 42, as in Spark's `xxhash64`.

    Source: the specification of xxHash by Y. Collet, https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md.

    >>> hashed(np.array([7], np.uint64)).view(np.int64)
    array([-2864211556195259663])
    """
    first, second, third, fourth, fifth = (
        np.uint64(prime)
        for prime in (
            0x9E3779B185EBCA87,
            0xC2B2AE3D27D4EB4F,
            0x165667B19E3779F9,
            0x85EBCA77C2B2AE63,
            0x27D4EB2F165667C5,
        )
    )

    def rotated(numbers: Any, by: int) -> Any:
        return (numbers << np.uint64(by)) | (numbers >> np.uint64(64 - by))

    with np.errstate(over="ignore"):
        found = np.uint64(42) + fifth + np.uint64(8)
        found = rotated(found ^ (rotated(values * second, 31) * first), 27) * first + fourth
        found = (found ^ (found >> np.uint64(33))) * second
        found = (found ^ (found >> np.uint64(29))) * third
        return found ^ (found >> np.uint64(32))


def _out(rows: list[dict[str, Any]]) -> Iterator[Any]:
    if rows:
        yield from pa.Table.from_pylist(rows, schema=_arrow_schema()).to_batches(max_chunksize=10_000)


def _principals(key: str, shard: RootHoldings) -> Iterator[Any]:
    """The principals that a grant or an owner of the shard names."""
    named = np.zeros(len(shard.names), bool)
    for codes in (*(grants[2] for grants in shard.grants.values()), shard.owners[1]):
        named[codes] = True
    names = shard.names.filter(pa.array(named)).cast(pa.string())
    timed = {grant.grantee for grant in shard.timed.grants} | {owner for _, owner in shard.timed.owners}
    if timed:
        names = pa.concat_arrays([names, pa.array(sorted(timed), pa.string())])
    if not len(names):
        return
    count, schema = len(names), _arrow_schema()
    columns = [
        pa.array(["principal"] * count) if field.name == "kind"
        else pa.array([key] * count) if field.name == "root"
        else names if field.name == "row"
        else pa.nulls(count, field.type)
        for field in schema
    ]  # fmt: skip
    yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _arrow_schema() -> Any:
    names = [part.split("`")[1] for part in RESULTS.split(", ")]
    return pa.schema([(name, pa.int64() if name == "rows" else pa.string()) for name in names])


def file_name(key: str) -> str:
    """A root key as part of a file name: readable and unique."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", key)[:60] + "-" + hashlib.sha256(key.encode()).hexdigest()[:10]


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
