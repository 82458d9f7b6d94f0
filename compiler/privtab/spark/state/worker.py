"""What an executor does with the rows of some roots: judge, index, bundle, write, and say what it found."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from privtab.ir.nodes import Program
from privtab.spark.state.documents import bundle_of, shard_document
from privtab.spark.state.files import Root
from privtab.spark.state.schemas import FINDINGS
from privtab.spark.state.shards import Findings, Held, by_root, held
from privtab.state.findings import CODES

RESULTS = f"`kind` string, `root` string, {FINDINGS}"


def work_on(
    program: Program, root: Root, not_text: Mapping[str, Mapping[str, str]], orphans: str | None, batches: Iterator[Any]
) -> Iterator[Any]:
    """For `mapInArrow`: the rows of some roots → their bundles, written; reports, findings and who is granted anything.

    With the columns `h` and `g`, fingerprints too: those of `scan.fingerprints` over the same rows.
    """
    found = [batch for batch in batches if batch.num_rows]
    if not found:
        return
    table = pa.Table.from_batches(found)
    del found
    for key, rows in by_root(table):
        findings = Findings()
        shard = held(program, rows, not_text, findings, orphans)
        out = [
            {"kind": "finding", "root": key, "name": CODES[row["code"]], "source": "", **row} for row in findings.rows
        ]
        if "h" in rows.column_names:
            out.append({"kind": "fingerprint", "root": key, "row": json.dumps(_fingerprint(rows))})
        if shard.entities:
            revision, text = shard_document(shard)
            content = bundle_of(program, key, revision, text)
            file = f"bundles/{file_name(key)}-{revision}.tar.gz"
            root.write(file, content)
            report = {
                "file": file, "revision": revision, "bytes": len(content), "json_bytes": len(text),
                "sha256": hashlib.sha256(content).hexdigest(), "entities": shard.entities,
                "allow": len(shard.grants["allow"][0]), "deny": len(shard.grants["deny"][0]),
                "owners": len(shard.owners[0]), "members": len(shard.members[0]),
            }  # fmt: skip
            out.append({"kind": "shard", "root": key, "row": json.dumps(report)})
        yield from _out(out)
        yield from _principals(key, shard)


def _fingerprint(rows: Any) -> list[int]:
    """How many rows have hashes, and the sums of their halves."""
    sums = [rows.num_rows - rows.column("h").null_count]
    for name in ("h", "g"):
        values = np.asarray(rows.column(name).drop_null()).astype(np.int64).view(np.uint64)
        sums += [int((values & np.uint64(0xFFFFFFFF)).sum()), int((values >> np.uint64(32)).sum())]
    return sums


def _out(rows: list[dict[str, Any]]) -> Iterator[Any]:
    if rows:
        yield from pa.Table.from_pylist(rows, schema=_arrow_schema()).to_batches(max_chunksize=10_000)


def _principals(key: str, shard: Held) -> Iterator[Any]:
    """Everyone that a grant or an owner of the shard names."""
    codes = np.unique(np.concatenate([*(g[2] for g in shard.grants.values()), shard.owners[1]]))
    if not len(codes):
        return
    names = shard.names.take(pa.array(codes)).cast(pa.string())
    count, wanted = len(names), _arrow_schema()
    columns = [
        pa.array(["principal"] * count) if field.name == "kind"
        else pa.array([key] * count) if field.name == "root"
        else names if field.name == "row"
        else pa.nulls(count, field.type)
        for field in wanted
    ]  # fmt: skip
    yield pa.RecordBatch.from_arrays(columns, schema=wanted)


def _arrow_schema() -> Any:
    names = [part.split("`")[1] for part in RESULTS.split(", ")]
    return pa.schema([(name, pa.int64() if name == "rows" else pa.string()) for name in names])


def file_name(key: str) -> str:
    """A root key as part of a file's name: readable, and no two alike."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", key)[:60] + "-" + hashlib.sha256(key.encode()).hexdigest()[:10]
