"""Process the rows of roots on an executor: validate, index, bundle byte for byte as `bundle.pack`, write, and report."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privtab.bundle.archive import archive
from privtab.bundle.pack import shard_files
from privtab.ir.nodes import Program
from privtab.moments import ALWAYS
from privtab.spark.state.files import Root
from privtab.spark.state.schemas import FINDINGS
from privtab.spark.state.shards import TABLES, Findings, by_root, granted, root_state, texts_of
from privtab.state.findings import CODES
from privtab.state.nodes import State
from privtab.state.shards import part_text

RESULTS = f"`kind` string, `root` string, {FINDINGS}"


def build_shards(
    program: Program, root: Root, not_text: Mapping[str, Mapping[str, str]], orphans: str | None, batches: Iterator[Any]
) -> Iterator[Any]:
    """For `mapInArrow`: write the bundles of roots from their rows; returns reports, findings and the principals of grants and owners.

    If the rows have the columns `h` and `g`, also returns fingerprints, as `scan.fingerprints` over the same rows.
    """
    found = [batch for batch in batches if batch.num_rows]
    if not found:
        return
    table = pa.Table.from_batches(found)
    del found
    for key, rows in by_root(table):
        findings = Findings()
        state = root_state(program, rows, not_text, findings, orphans)
        counts = granted(program, state, findings)
        out = [
            {"kind": "finding", "root": key, "name": CODES[row["code"]], "source": "", **row} for row in findings.rows
        ]
        if "h" in rows.column_names:
            out.append({"kind": "fingerprint", "root": key, "row": json.dumps(_fingerprint(rows))})
        if part := part_text(program, state, key):
            content = archive(shard_files(program.system, part, {}))
            file = f"bundles/{file_name(key)}-{part.revision}.tar.gz"
            root.write(file, content)
            timed = sum(own != ALWAYS for windows in state.windows.values() for own in windows)
            keys = (texts_of(state, table, names[0]).array for table, names in TABLES.items())
            report = {
                "file": file, "revision": part.revision, "bytes": len(content), "json_bytes": len(part.text),
                "sha256": hashlib.sha256(content).hexdigest(),
                "entities": len(pc.unique(pa.chunked_array(keys, pa.string()))), **counts,
                "owners": len(state.owners), "members": len(state.members), **({"timed": timed} if timed else {}),
            }  # fmt: skip
            out.append({"kind": "shard", "root": key, "row": json.dumps(report)})
        yield from _out(out)
        yield from _principals(key, state)


def _fingerprint(rows: Any) -> list[int]:
    """The number of rows with a hash, and the sums of the halves of the hashes and of their hashes."""
    sums = [len(rows.column("h").drop_null())]
    for name in ("h", "g"):
        hashes = np.asarray(rows.column(name).drop_null()).astype(np.int64).view(np.uint64)
        sums += [int((hashes & np.uint64(0xFFFFFFFF)).sum()), int((hashes >> np.uint64(32)).sum())]
    return sums


def _out(rows: list[dict[str, Any]]) -> Iterator[Any]:
    if rows:
        yield from pa.Table.from_pylist(rows, schema=_arrow_schema()).to_batches(max_chunksize=10_000)


def _principals(key: str, state: State) -> Iterator[Any]:
    """The principals that a grant or an owner of the shard names."""
    named = (texts_of(state, "grants", "grantee"), texts_of(state, "owners", "owner"))
    names = pc.unique(pa.chunked_array([column.array for column in named], pa.string()))
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
