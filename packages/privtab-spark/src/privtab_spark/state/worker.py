"""Make the bundles of a sharded state on executors, byte for byte as `bundle.pack`: validate, index, write and report.

Parts of roots are made from the rows of each; the rows of `people` are brought to one task.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as fn

from privtab.base import WINDOW_COLUMNS, FileError, Window
from privtab.bundle import json_bytes, packed_shard
from privtab.ir import Program
from privtab.state import CodedColumn, ColumnRows, PartText, State, StateFinding
from privtab_spark.frames import union
from privtab_spark.state.files import Root, place
from privtab_spark.state.schemas import CANONICAL, FINDINGS
from privtab_spark.state.shards import TABLES, Findings, by_root, granted, root_state, texts_of
from privtab_spark.state.tables import CELLS, cells, from_arrow, whole

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


RESULTS = f"`kind` string, `root` string, {FINDINGS}"


def build_shards(
    program: Program, root: Root, not_text: Mapping[str, Mapping[str, str]], orphans: str | None, batches: Iterator[Any]
) -> Iterator[Any]:
    """For `mapInArrow`: write the bundles of roots from their rows; returns reports, findings and the principals of grants and owners.

    If the rows have the columns `h` and `g`, also returns fingerprints, as `scan.fingerprints` over the same rows.
    """
    if (table := whole(batches)) is None:
        return
    for key, rows in by_root(table):
        findings: Findings = []
        state = root_state(program, rows, not_text, findings, orphans)
        counts = granted(program, state, findings)
        out = [
            {"kind": "finding", "root": key, "name": StateFinding.NAMES[row["code"]], "source": "", **row}
            for row in findings
        ]
        if "h" in rows.column_names:
            out.append({"kind": "fingerprint", "root": key, "row": json.dumps(_fingerprint(rows))})
        if part := PartText.of_state(program, state, key):
            timed = sum(own != Window() for windows in state.windows.values() for own in windows)
            keys = (texts_of(state, table, names[0]).array for table, names in TABLES.items())
            report = {
                **_written(program, root, part, {}, f"{file_name(key)}-{part.revision}"),
                "entities": len(pc.unique(pa.chunked_array(keys, pa.string()))), **counts,
                "owners": len(state.owners), "members": len(state.members), **({"timed": timed} if timed else {}),
            }  # fmt: skip
            out.append({"kind": "shard", "root": key, "row": json.dumps(report)})
        yield from _out(out)
        yield from _principals(key, state)


def _written(program: Program, root: Root, part: PartText, metadata: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Write the bundle of a part, and describe the written file."""
    content, file = packed_shard(program.system, part, metadata), f"bundles/{name}.tar.gz"
    root.write(file, content)
    return {
        "file": file, "revision": part.revision, "bytes": len(content), "json_bytes": len(part.text),
        "sha256": hashlib.sha256(content).hexdigest(),
    }  # fmt: skip


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
    kind, root = (pa.repeat(pa.scalar(text), len(names)) for text in ("principal", key))
    own = {"kind": kind, "root": root, "row": names}
    schema = _arrow_schema()
    columns = [own[field.name] if field.name in own else pa.nulls(len(names), field.type) for field in schema]
    yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _arrow_schema() -> Any:
    names = [part.split("`")[1] for part in RESULTS.split(", ")]
    return pa.schema([(name, pa.int64() if name == "rows" else pa.string()) for name in names])


def file_name(key: str) -> str:
    """A root key as part of a file name: readable and unique."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", key)[:60] + "-" + hashlib.sha256(key.encode()).hexdigest()[:10]


GRANTED = "granted"
"""The part with every principal that a grant or an owner names."""


def written_people(
    program: Program,
    tables: Mapping[str, DataFrame],
    granted: DataFrame,
    shards: Sequence[str],
    root: Root,
    more: Mapping[str, Any],
) -> dict[str, Any]:
    """Write the bundle of the part in one task, and return its report.

    `tables`: valid rows without duplicates of the tables that have any. `granted`: one column with every principal that a grant or
    an owner names. `more`: additional metadata, which do not affect the revision.
    """
    # A dummy row: without any rows, Spark would start no worker, and the bundle would not be written.
    parts = [_cells("", granted.sparkSession.range(1).select(fn.lit("").alias("a")), ("a",))]
    parts.append(_cells(GRANTED, granted, tuple(granted.columns)))
    for table, rows in tables.items():
        # The attributes of entities are in their shards.
        own = rows.filter("type is null") if table == "attributes" else rows
        parts.append(_cells(table, own, CANONICAL[table]))
    worker = partial(_write, program, list(shards), root, more)
    (row,) = union(*parts).coalesce(1).mapInArrow(worker, "report string").collect()
    report: dict[str, Any] = json.loads(row["report"])
    return report


def _cells(part: str, rows: DataFrame, names: Sequence[str]) -> DataFrame:
    """The rows of a table in a form in which the rows of all tables can be united."""
    edges = [
        (fn.col(name) if name in rows.columns else fn.lit(None).cast("string")).alias(name) for name in WINDOW_COLUMNS
    ]
    return rows.select(fn.lit(part).alias("part"), *cells(names), *edges)


def _write(
    program: Program, shards: list[str], root: Root, more: Mapping[str, Any], batches: Iterator[Any]
) -> Iterator[Any]:
    """For `mapInArrow` over one partition: write the bundle from the rows; the result is the report."""
    part = PartText.of_state(program, people_state(program, pa.Table.from_batches(batches)), PartText.PEOPLE, shards)
    assert part is not None
    mark = f"-{hashlib.sha256(json_bytes(more)).hexdigest()[:10]}" if more else ""
    metadata = {"shards": len(shards), **more}
    report = {
        **_written(program, root, part, metadata, f"people-{part.revision}{mark}"), "principals": part.users,
        **({"windows": True} if part.windows else {}), **({"further": list(part.further)} if part.further else {}),
    }  # fmt: skip
    yield pa.RecordBatch.from_pydict({"report": [json.dumps(report)]})


def people_state(program: Program, table: pa.Table) -> State:
    """The state of united rows; what grants and owners name is owners of an entity, which does not matter for the part."""
    tables: dict[str, Any] = {}
    for name in (*CANONICAL, GRANTED):
        rows = table.filter(pc.equal(table.column("part"), name))
        names = CANONICAL.get(name, (GRANTED,))
        window = WINDOW_COLUMNS if any(rows.column(edge).null_count < len(rows) for edge in WINDOW_COLUMNS) else ()
        tables[name] = rows.select([*CELLS[: len(names)], *window]).rename_columns([*names, *window])
    who = CodedColumn.of(tables.pop(GRANTED).column(GRANTED))
    entity = CodedColumn.repeated(f"{next(iter(program.entities))}:-", len(who))
    return replace(from_arrow(tables), owners=ColumnRows("owners", {"entity": entity, "owner": who}))


MANIFEST, PREVIOUS = "manifest.json", "manifest.previous.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """A complete build, as described by its manifest, and the changes of this run."""

    folder: str
    manifest: Mapping[str, Any]
    rebuilt: tuple[str, ...] = ()
    """Root keys of the shards that were rebuilt."""
    removed: tuple[str, ...] = ()
    people: bool = False
    """True if the `people` part changed."""
    signed: tuple[str, ...] = ()
    """The parts (`people`, root keys) that were signed in this run, or whose signatures were removed."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Duration by stage."""

    @property
    def shards(self) -> Mapping[str, Mapping[str, Any]]:
        """The file, revision, bytes, and numbers of rows of each root, by the root's key."""
        found: Mapping[str, Mapping[str, Any]] = self.manifest["shards"]
        return found

    @property
    def unchanged(self) -> bool:
        """True if this run changed nothing, because the previous build had the same rows and signatures."""
        return not (self.rebuilt or self.removed or self.people or self.signed)

    def file(self, key: str) -> Path | str:
        """The location of the bundle of `people` or of a root key."""
        part = self.manifest["people"] if key == "people" else self.shards[key]
        root = place(self.folder)
        return root.path(part["file"]) if root.local else f"{root.url}/{part['file']}"

    def findings(self, spark: SparkSession) -> DataFrame:
        """The findings about the rows, with the columns of `schemas.FINDINGS`."""
        rows = read_results(spark, place(self.folder), self.manifest["results"])
        return rows.filter("kind = 'finding'").drop("kind", "root")


def opened(folder: str | Path) -> Build:
    """The build in a folder; raises FileError if there is no complete one."""
    root = place(folder)
    manifest = root.read_json(MANIFEST)
    if manifest is None or manifest.get("kind") != "shards":
        raise FileError(f"no built state in {folder}: `{MANIFEST}` is missing or of another kind")
    return Build(folder=root.url, manifest=manifest)


def read_results(spark: SparkSession, root: Root, results: str) -> DataFrame:
    """The results of a build, from the workers and from the driver."""
    return spark.read.schema(RESULTS).option("recursiveFileLookup", "true").parquet(root.spark(results))
