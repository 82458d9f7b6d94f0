"""Make a delta bundle for every part that differs between two builds, and verify that base plus delta equals the full bundle."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privtab.spark.state.builds import MANIFEST, PREVIOUS, opened
from privtab.spark.state.files import Root, place
from privtab.state.shards import PEOPLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LISTING = "deltas.json"
FOLDER = "deltas"
ROWS = (
    "`key` string, `kind` string, `file` string, `base` string, `revision` string, `bytes` bigint, `full` bigint, "
    "`operations` bigint"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deltas:
    """The differences between two builds, by part (`people` or a root key)."""

    folder: str
    rows: tuple[Mapping[str, Any], ...]
    """`kind`: `delta`; `full` if a delta is impossible or not smaller; `new`; `removed`. `bytes` is 0 if there is no delta."""

    @property
    def verified_count(self) -> int:
        """The number of deltas, all of which were verified."""
        return sum(row["kind"] == "delta" for row in self.rows)


def deltas(
    spark: SparkSession, folder: str | Path, *, base: str | Path | None = None, output: str | Path | None = None
) -> Deltas:
    """Deltas from the build in `base`, or from the previous one in the same folder, to the build in `folder`.

    Executors make them and verify that base plus delta equals the full bundle. They are written to `deltas/` below `output`
    (default: `folder`) and listed in `deltas.json`, which is written last. Raises FileError if a build is missing.
    """
    new = opened(folder)
    old = opened(folder, PREVIOUS) if base is None else opened(base, MANIFEST)
    before = {PEOPLE: old.manifest["people"], **old.shards}
    after = {PEOPLE: new.manifest["people"], **new.shards}
    out = place(output if output is not None else folder)
    pairs = [
        (key, before[key]["file"], before[key]["revision"], part["file"], part["revision"])
        for key, part in after.items()
        if key in before and before[key]["revision"] != part["revision"]
    ]
    rows: list[dict[str, Any]] = [
        _row(key, "new", "", part["revision"], part["bytes"]) for key, part in after.items() if key not in before
    ]
    rows += [_row(key, "removed", part["revision"], "", 0) for key, part in before.items() if key not in after]
    if pairs:
        schema = "`key` string, `old` string, `base` string, `new` string, `revision` string"
        frame = spark.createDataFrame(pairs, schema).repartition(min(len(pairs), 200), "key")
        worker = partial(_deltas_of_shards, place(old.folder), place(new.folder), out)
        rows += [row.asDict() for row in frame.mapInArrow(worker, ROWS).collect()]
    rows.sort(key=lambda row: (row["key"] != PEOPLE, row["key"]))
    listed = {"base": old.manifest["revision"], "revision": new.manifest["revision"], "parts": rows}
    written_files = {row["file"] for row in rows}
    out.write(LISTING, (json.dumps(listed, indent=1, ensure_ascii=False, sort_keys=True) + "\n").encode())
    for name in out.names(FOLDER):
        if f"{FOLDER}/{name}" not in written_files:
            out.remove(f"{FOLDER}/{name}")
    return Deltas(folder=out.url, rows=tuple(rows))


def _deltas_of_shards(old: Root, new: Root, out: Root, batches: Iterator[Any]) -> Iterator[Any]:
    """For `mapInArrow`: write the deltas of pairs of bundles."""
    import pyarrow as pa

    from privtab.bundle.delta import contents, delta_for, verify_delta
    from privtab.spark.state.worker import file_name

    for batch in batches:
        rows: list[dict[str, Any]] = []
        for pair in batch.to_pylist():
            base, full = old.read(pair["old"]), new.read(pair["new"])
            if base is None or full is None:
                missing = pair["old"] if base is None else pair["new"]
                raise FileNotFoundError(f"the bundle {missing} is gone: another build has taken the place of this one")
            delta = delta_for(base, full)
            if delta is None:
                rows.append(_row(pair["key"], "full", pair["base"], pair["revision"], len(full)))
                continue
            verify_delta(base, delta, full)
            file = f"{FOLDER}/{file_name(pair['key'])}-{pair['base']}-{pair['revision']}.tar.gz"
            out.write(file, delta)
            row = _row(pair["key"], "delta", pair["base"], pair["revision"], len(full))
            rows.append(row | {"file": file, "bytes": len(delta), "operations": len(contents(delta).patch)})
        if rows:
            yield from pa.Table.from_pylist(rows).to_batches()


def _row(key: str, kind: str, base: str, revision: str, full: int) -> dict[str, Any]:
    return {
        "key": key, "kind": kind, "file": "", "base": base, "revision": revision, "bytes": 0, "full": full,
        "operations": 0,
    }  # fmt: skip
