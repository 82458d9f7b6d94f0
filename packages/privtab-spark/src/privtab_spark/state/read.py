"""Read and validate the sources of a state: valid rows, the privileges that they grant, invalid rows with findings, and counts."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as fn

from privtab.base import WINDOW_COLUMNS, FileError, StateInvalid, UsageError, state_location
from privtab.ir import Program
from privtab.state import (
    TABLE_COLUMNS,
    RawReader,
    RowLocation,
    State,
    StateFinding,
    StateNames,
    UsedParts,
    validate,
)
from privtab_spark.frames import row_counts, union
from privtab_spark.preflight import begin, check_executors
from privtab_spark.shipping import ShippedBytes
from privtab_spark.state import files, row_checks, schemas
from privtab_spark.state.conflicts import ConflictingRows, conflicting_rows, shipped_places
from privtab_spark.state.plain_scans import PlainScan
from privtab_spark.state.sources import Sources, TableSource, open_sources
from privtab_spark.state.tables import PACKED, SparkState, TimedTables, collected, names_of, unpacked

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


FORMAT = 1
KIND = "tables"
TIMED_KIND = "tables-with-windows"
"""Another kind, since reading such tables without their windows would make rights for a time lasting ones."""
SHOWN = 20
"""Most findings that an exception has; all of them are in `Read.findings`."""


def read_state(spark: SparkSession, configuration: object, policy: object) -> Read:
    """Open the sources of a state and check their columns; rows are read lazily.

    `configuration`: a mapping from table names to DataFrames or to sources, the path of a YAML or JSON file with such a mapping
    (see `docs/reference/state.md`), or a folder with one file or folder for each table. Raises UsageError with all errors in the
    configuration at once, or if there is no table.
    """
    program = schemas.program_of(policy)
    begin(spark)
    sources = open_sources(spark, configuration, schemas.tables_of(program))
    if not sources.tables:
        where = state_location(configuration)[0] if isinstance(configuration, str | Path) else None
        tables = ", ".join(TABLE_COLUMNS)
        message = f"has no table of a state; the tables are {tables}, and one may be empty: `grants: []`"
        raise UsageError(f"{where or 'the configuration of the state'} {message}")
    return Read(spark=spark, program=program, sources=sources)


@dataclass(frozen=True, kw_only=True)
class Read:
    """A state that is read by Spark; every part of it is a lazily evaluated DataFrame."""

    spark: SparkSession
    program: Program
    sources: Sources
    _wrong: dict[str, ConflictingRows | None] = field(default_factory=dict, init=False, compare=False, repr=False)
    """The rows that conflict with others, by table, once they were looked for."""

    def _valid(self, table: str) -> DataFrame:
        """The rows of a table that are valid by themselves, with canonical columns."""
        frames = [self._examined(source).filter("__good") for source in self.sources.tables.get(table, ())]
        if not frames:
            return self.spark.createDataFrame([], schemas.schema(table))
        return union(*frames, missing=True).drop("__good", "__findings", "__row")

    def _examined(self, source: TableSource) -> DataFrame:
        """The rows of a source as returned by `row_checks.examine`."""
        table = source.table
        check_executors(self.spark)
        worker = partial(row_checks.examine, self.program, table, dict(source.not_text), self._places_for(table))
        return source.rows.mapInArrow(worker, row_checks.examined_schema(table, schemas.windows_in(source.rows)))

    def good(self, table: str) -> DataFrame:
        """The valid rows of a table without duplicates, with unresolved privileges; includes orphans unless quarantined."""
        return self.listed(table, self.counted(table).drop("rows"))

    def tables(self) -> dict[str, DataFrame]:
        """The valid rows of every table."""
        return {table: self.good(table) for table in schemas.tables_of(self.program)}

    def findings(self) -> DataFrame:
        """All findings about rows; rows with a finding of severity `error` are invalid."""
        found = [part for table in self.sources.tables for part in self._findings(table)]
        return union(*found) if found else self.spark.createDataFrame([], schemas.FINDINGS)

    def findings_of(self, table: str, counted: DataFrame | None = None) -> DataFrame:
        """The findings about the rows of one table; `counted`: the result of `counted`, if already computed."""
        return union(*self._findings(table, counted))

    def counted(self, table: str) -> DataFrame:
        """The distinct valid rows of a table, including orphans, with the number of equal rows (`rows`)."""
        rows = self._valid(table)
        names = [fn.col(name) for name in (*schemas.CANONICAL[table], *schemas.windows_in(rows))]
        if table == "entities":  # the name for people is no part of what a row says
            return rows.groupBy(*names[:-1]).agg(fn.min("name").alias("name"), fn.count(fn.lit(1)).alias("rows"))
        return rows.groupBy(*names).agg(fn.count(fn.lit(1)).alias("rows"))

    def listed(self, table: str, rows: DataFrame) -> DataFrame:
        """The rows, without orphans if orphans are quarantined."""
        rows = self._with_others(table, rows, "left_anti")
        return self._known(table, rows, "left_semi") if self.sources.orphans == "quarantine" else rows

    def quarantined(self) -> DataFrame:
        """The findings about invalid rows."""
        return self.findings().filter("severity = 'error'")

    def summary(self) -> DataFrame:
        """Numbers of rows by table and finding, with code `good` for valid rows: table, code, name, severity, rows."""
        good = [
            self.good(table).groupBy().count().select(
                fn.lit(table).alias("table"), fn.lit("good").alias("code"), fn.lit("good-rows").alias("name"),
                fn.lit("note").alias("severity"), fn.col("count").alias("rows"),
            )
            for table in schemas.tables_of(self.program)
        ]  # fmt: skip
        counted = self.findings().groupBy("table", "code", "name", "severity").agg(fn.sum("rows").alias("rows"))
        return union(*good, counted).orderBy("table", "code")

    def check(self) -> None:
        """Raise StateInvalid if an invalid row may affect a denial: leaving it out could widen access."""
        check_quarantined(self.program, self.quarantined())

    def state(self, *, allow_partial: bool = False) -> SparkState:
        """The valid rows for the plans; raises StateInvalid if an invalid row may affect a denial, unless `allow_partial`.

        Raises HasWindows for a table with `from` or `until`; its `state` gives the rows of a moment.
        """
        if not allow_partial:
            self.check()
        tables = self.tables()
        tables["grants"] = granted_privileges(self.program, tables["grants"]).distinct()
        return TimedTables.without_windows(
            SparkState(
                tables=tables,
                quarantined=self.quarantined(),
                system=self.program.system,
                names=names_of(self.program),
            )
        )

    @cached_property
    def raw_counts(self) -> Mapping[str, int]:
        """The number of rows of each table before any of them is checked, counted once; many sources know it without reading."""
        plain = {table: [scan.count() for scan in scans] for table, scans in self._scans.items()}
        known = {table: sum(filter(None, counts)) for table, counts in plain.items() if None not in counts}
        tables = {t: self.sources.tables.get(t, ()) for t in schemas.tables_of(self.program) if t not in known}
        counts = known | row_counts({table: [source.rows for source in own] for table, own in tables.items()})
        return {table: counts[table] for table in schemas.tables_of(self.program)}

    @cached_property
    def _scans(self) -> Mapping[str, Sequence[PlainScan]]:
        """The tables whose sources are all plain scans of files."""
        found = {table: [PlainScan.of(source.rows) for source in own] for table, own in self.sources.tables.items()}
        return {table: scans for table, own in found.items() if len(scans := [*filter(None, own)]) == len(own) > 0}

    @property
    def by_driver(self) -> bool:
        """True if all rows are in files that the driver reads by itself, and can be checked like rows of files."""
        return self.plain and self._scans.keys() == self.sources.tables.keys()

    @property
    def plain(self) -> bool:
        """True if the rows can be checked like rows of files: all cells are text, and no list says which entities exist."""
        sources = [source for of_table in self.sources.tables.values() for source in of_table]
        return self.sources.entities is None and not any(source.not_text for source in sources)

    def raw(self, table: str) -> DataFrame:
        """The unchecked rows of all sources of a table that has any."""
        return union(*(source.rows for source in self.sources.tables[table]))

    def local(self, selected: Mapping[str, DataFrame] | None = None) -> State:
        """The valid rows in this process: each source is read once, and its rows are checked here, by columns.

        For a `plain` state. `selected`: for some tables, the rows to take of all, as `packed`. Raises StateInvalid if an invalid row may
        affect a denial.
        """
        reader = RawReader()
        for table, sources in self.sources.tables.items():
            if selected is not None and table in selected:
                found = unpacked(selected[table])
                if found is None:
                    continue
            elif (found := self._scanned(table)) is None:
                check_executors(self.spark)
                rows = self.raw(table)
                found = collected(rows) if self.raw_counts[table] > PACKED else rows.toArrow()
            label = ", ".join(source.label for source in sources)
            columns = dict(zip(found.column_names, found.columns, strict=True))
            row_checks.read_rows(reader, label, table, {}, columns)
        state, findings = validate(self.program, reader.done(), notes=False)
        if wrong := [finding for finding in findings if finding.stops(self.program)]:
            unnumbered = (replace(f, place=replace(f.place, row=0)) for f in wrong[:SHOWN])
            raise StateInvalid(tuple(unnumbered), StateFinding.MAY_DENY)
        return state

    def _scanned(self, table: str) -> pa.Table | None:
        """The unchecked rows of a table, read here from the files of plain scans; None if Spark is to read them."""
        parts = [scan.table() for scan in self._scans.get(table, ())]
        return pa.concat_tables(parts) if parts and all(part is not None for part in parts) else None

    def write(self, folder: str | Path, format: str = "parquet") -> dict[str, Any]:  # noqa: A002 - as in Spark
        """Write valid rows and findings to a folder, and a manifest last, so that readers see all old or all new tables.

        Returns the manifest.
        """
        root = files.place(folder)
        data = f"data-{uuid.uuid4().hex[:12]}"
        frames = {table: self.good(table) for table in self.sources.tables}
        frames["findings"] = self.findings()
        files.at_once(
            [partial(frame.write.format(format).save, root.spark(f"{data}/{name}")) for name, frame in frames.items()]
        )
        windows = {table: schemas.windows_in(frame) for table, frame in frames.items()}
        findings = self.spark.read.format(format).schema(schemas.FINDINGS).load(root.spark(f"{data}/findings"))
        none = fn.lit(None).cast("string")
        good = [
            self.spark.read.format(format).schema(schemas.schema(table)).load(root.spark(f"{data}/{table}")).select(
                fn.lit(table).alias("table"), none.alias("code"), none.alias("severity"), fn.lit(1).cast("bigint").alias("rows"))
            for table in frames if table != "findings"
        ]  # fmt: skip
        findings_and_rows = union(findings.select("table", "code", "severity", "rows"), *good)
        counted = findings_and_rows.groupBy("table", "code", "severity").agg(fn.sum("rows").alias("rows")).collect()
        counts = dict.fromkeys(schemas.tables_of(self.program), 0) | {
            r["table"]: r["rows"] for r in counted if r["code"] is None
        }
        manifest = {
            "format": FORMAT,
            "kind": TIMED_KIND if any(windows.values()) else KIND,
            "system": self.program.system,
            "version": self.program.version,
            "names": names_of(self.program),
            "data": data,
            "files": format,
            "windows": sorted(table for table, window in windows.items() if window),
            "rows": counts,
            "findings": sorted([r["table"], r["code"], r["severity"], r["rows"]] for r in counted if r["code"]),
        }
        before = root.read_json(schemas.MANIFEST)
        root.write(schemas.MANIFEST, (json.dumps(manifest, indent=2, sort_keys=True) + "\n").encode())
        if before is not None and before.get("data") != data:
            root.remove(str(before["data"]))
        return manifest

    def _with_others(self, table: str, rows: DataFrame, how: str) -> DataFrame:
        """The rows that are right together with the others (`left_anti`), or the wrong rows (`inner`), with the problem."""
        if table not in self._wrong:
            counted = self.counted(table) if table in self.sources.tables else None
            self._wrong[table] = None if counted is None else conflicting_rows(self.program, table, counted)
        wrong = self._wrong[table]
        if wrong is None:
            return rows if how == "left_anti" else rows.limit(0)
        return wrong.joined(rows, "left_anti" if how == "left_anti" else "inner")

    def _places_for(self, table: str) -> ShippedBytes | None:
        """The places of entities with flat ids, for rows about them; None for the table of places itself, and without such ids."""
        if table == "entities" or not self.program.flat:
            return None
        return self._places

    @cached_property
    def _places(self) -> ShippedBytes:
        return shipped_places(self.spark, self.good("entities"))

    def _known(self, table: str, rows: DataFrame, how: str) -> DataFrame:
        """The rows whose entity is listed in the entities (`left_semi`) or is not (`left_anti`)."""
        entities, columns = self.sources.entities, _place_columns(table)
        if entities is None or columns is None:
            return rows if how == "left_semi" else rows.limit(0)
        type_, path = columns
        placed = rows.filter(fn.col(type_).isNotNull())
        known = entities.select(
            fn.substring_index("entity", ":", 1).alias("__type"),
            fn.expr("substr(entity, instr(entity, ':') + 1)").alias("__path"),
        ).distinct()
        found = placed.join(known, (fn.col(type_) == fn.col("__type")) & (fn.col(path) == fn.col("__path")), how)
        if how == "left_semi" and table in ("assignments", "attributes"):
            return rows.filter(fn.col(type_).isNull()).unionAll(found)
        return found

    def _findings(self, table: str, counted: DataFrame | None = None) -> list[DataFrame]:
        """Findings about single rows, by source, and findings about several rows together, for the whole table."""
        found: list[DataFrame] = []
        for source in self.sources.tables[table]:
            said = self._examined(source).select(
                fn.explode("__findings").alias("finding"), fn.col("__row").alias("row")
            )
            rows = said.groupBy("finding", "row").agg(fn.count(fn.lit(1)).alias("rows"))
            found.append(shaped(rows.select("finding.*", "row", "rows"), table, source.label))
        counted = self.counted(table) if counted is None else counted
        label = ", ".join(source.label for source in self.sources.tables[table])
        repeated_message = f"the row says the same as another of `{table}`"
        repeated = counted.filter("rows > 1").withColumn("rows", fn.col("rows") - 1)
        found.append(report(repeated, "S160", "warning", fn.lit(repeated_message), "leave it out", table, label))
        if self.sources.entities is not None and _place_columns(table) is not None:
            severity = "error" if self.sources.orphans == "quarantine" else "warning"
            orphans = self._known(table, counted, "left_anti")
            type_, path = _place_columns(table) or ("", "")
            message = fn.format_string("`%s:%s` is not among the entities", type_, path)
            found.append(report(orphans, "S114", severity, message, "remove the row, or name the entity", table, label))
        if table == "grants" and self.program.semantics.deny != "none":
            found.append(self._conflicts(counted, label))
        if table == "assignments":
            found += self._similar_declared_role(counted, label)
        bad = self._with_others(table, counted, "inner")
        wrong = self._wrong.get(table)
        for code in () if wrong is None else wrong.codes:
            rows = bad.filter(fn.col("code") == code)
            found.append(report(rows, code, "error", fn.col("message"), fn.col("help"), table, label))
        return found

    def _conflicts(self, counted: DataFrame, label: str) -> DataFrame:
        """Findings for privileges that a grantee is both allowed and denied on the same entity."""
        keys = ["grantee", "privilege", "type", "path"]
        grants = granted_privileges(self.program, counted.drop("rows"))
        effects = grants.groupBy(*keys).agg(fn.countDistinct("effect").alias("effects"))
        one = {"effect": fn.lit("deny"), "rows": fn.lit(1).cast("bigint")}
        both = effects.filter("effects > 1").withColumns(one)
        message = fn.format_string("`%s` is allowed and denied `%s` here", "grantee", "privilege")
        return report(both, "S163", "warning", message, "the denial counts: leave one of them out", "grants", label)

    def _similar_declared_role(self, counted: DataFrame, label: str) -> list[DataFrame]:
        """Findings for roles without grants whose names are similar to names of declared roles."""
        program = self.program
        if not program.roles or UsedParts.of(program).holds:
            return []
        naming = ((self.good("grants"), "grantee"), (self.good("owners"), "owner"), (counted, "principal"))
        mentioned = union(*(rows.select(fn.col(column).alias("who")) for rows, column in naming))
        lone = counted.select("role").distinct().filter(~fn.col("role").isin(list(program.roles)))
        silent = lone.join(mentioned, fn.concat(fn.lit("role:"), fn.col("role")) == fn.col("who"), "left_anti")
        advised = silent.mapInArrow(partial(_advise, program), "`nearly` string, `advice` string")
        both = counted.join(advised, fn.col("role") == fn.col("nearly"), "inner")
        message = fn.format_string("role `%s` is not declared, and no row grants it anything", "role")
        return [report(both, "S152", "warning", message, fn.col("advice"), "assignments", label)]


def shaped(frame: DataFrame, table: str, label: str) -> DataFrame:
    """Select the columns of FINDINGS from a frame of findings."""
    names = fn.create_map(*(fn.lit(part) for pair in StateFinding.NAMES.items() for part in pair))
    return frame.select(
        fn.lit(table).alias("table"), fn.col("code"), fn.try_element_at(names, fn.col("code")).alias("name"),
        fn.col("severity"), fn.col("message"), fn.col("help"), fn.col("row"), fn.col("rows"), fn.lit(label).alias("source"),
    )  # fmt: skip


def report(
    frame: DataFrame, code: str, severity: str, message: Column, advice: str | Column, table: str, label: str
) -> DataFrame:
    """One finding for each row of a frame with canonical columns and `rows`."""
    finding_rows = frame.select(
        fn.lit(code).alias("code"), fn.lit(severity).alias("severity"), message.alias("message"),
        (fn.lit(advice) if isinstance(advice, str) else advice).alias("help"),
        _raw_json(table, schemas.windows_in(frame)).alias("row"), fn.col("rows"),
    )  # fmt: skip
    return shaped(finding_rows, table, label)


def _raw_json(table: str, window: Sequence[str]) -> Column:
    """The raw cells of a canonical row as JSON, in their canonical spelling."""
    columns: list[Column] = []
    for name in schemas.CANONICAL[table]:
        if name.endswith("type"):
            raw = name[: -len("_type")] or schemas.entity_column(table) or ""
            columns.append(fn.concat(fn.col(name), fn.lit(":"), fn.col(name[:-4] + "path")).alias(raw))
        elif not name.endswith("path"):
            columns.append(fn.col(name))
    return fn.to_json(fn.struct(*columns, *(fn.col(name) for name in window)))


def finding_of(row: Mapping[str, Any]) -> StateFinding:
    """A row of FINDINGS as a StateFinding."""
    return StateFinding(
        place=RowLocation(path=row["source"] or "", table=row["table"], row=0),
        message=row["message"],
        code=row["code"],
        severity=row["severity"],
        help=row["help"],
        row=json.loads(row["row"] or "{}"),
    )


def check_quarantined(program: Program, quarantined: DataFrame) -> None:
    """Raise StateInvalid if one of the invalid rows may affect a denial."""
    if program.semantics.deny == "none" and not program.filters:
        return
    effect = fn.lower(fn.get_json_object("row", "$.effect"))
    wrong = quarantined.filter(
        ((fn.col("table") == "grants") & ((effect != "allow") | effect.isNull()))
        | fn.col("table").isin("assignments", "memberships")
        | (fn.lit(bool(program.filters)) & (fn.col("table") != "entities"))
    )
    stopping = wrong.limit(SHOWN).collect()
    if stopping:
        raise StateInvalid(tuple(finding_of(row.asDict()) for row in stopping), StateFinding.MAY_DENY)


def read_written(spark: SparkSession, folder: str | Path, policy: object, *, allow_partial: bool = False) -> SparkState:
    """The tables that `Read.write` wrote last.

    Raises FileError if there are no complete tables, UsageError if they were written for another system or for a policy with other
    names, StateInvalid if an invalid row may affect a denial, unless `allow_partial`, and HasWindows as `Read.state`.
    """
    program = schemas.program_of(policy)
    root = files.place(folder)
    manifest = root.read_json(schemas.MANIFEST)
    if manifest is None or manifest.get("kind") not in {KIND, TIMED_KIND}:
        raise FileError(f"no tables of a state in {folder}: `{schemas.MANIFEST}` is missing or of another kind")
    data, format_ = str(manifest["data"]), str(manifest["files"])
    reader = spark.read.format(format_)
    columns = {
        t: schemas.schema(t, WINDOW_COLUMNS if t in manifest.get("windows", ()) else ())
        for t in schemas.tables_of(program)
    }
    tables = {
        t: reader.schema(columns[t]).load(root.spark(f"{data}/{t}"))
        if manifest["rows"].get(t)
        else spark.createDataFrame([], columns[t])
        for t in columns
    }
    findings = spark.read.format(format_).schema(schemas.FINDINGS).load(root.spark(f"{data}/findings"))
    tables["grants"] = granted_privileges(program, tables["grants"]).distinct()
    counts = {table: rows for table, rows in manifest["rows"].items() if table != "grants"}
    quarantined = findings.filter("severity = 'error'")
    state = SparkState(
        tables=tables, quarantined=quarantined, system=manifest["system"], names=manifest.get("names"), _counts=counts
    ).check_policy(program)
    if not allow_partial and any(severity == "error" for _, _, severity, _ in manifest["findings"]):
        check_quarantined(program, quarantined)
    return TimedTables.without_windows(state)


def _place_columns(table: str) -> tuple[str, str] | None:
    """The columns of a canonical table with the type and path of an entity, if it has any."""
    names = schemas.CANONICAL[table]
    found = [n for n in names if n.endswith("type")]
    return (found[0], found[0][:-4] + "path") if found else None


def _advise(program: Program, batches: Any) -> Any:
    """For `mapInArrow`: the names of roles that are similar to declared ones, with advice."""
    import pyarrow as pa

    names = StateNames(program)
    for batch in batches:
        advised = [(role, names.similar_declared_role(role)) for role in batch.column(0).to_pylist()]
        pairs = [(role, advice) for role, advice in advised if advice is not None]
        columns = [pa.array([pair[position] for pair in pairs], pa.string()) for position in (0, 1)]
        yield pa.RecordBatch.from_arrays(columns, names=["nearly", "advice"])


def granted_privileges(program: Program, grants: DataFrame) -> DataFrame:
    """Grants resolved to the privileges that they allow or deny on the type of their entity, as `PrivilegeNames.given`."""
    names = StateNames(program)
    if names.one_for_one:
        return grants
    stands: dict[str, list[str]] = {}
    resolved = [*program.aliases, *program.sets, *(p.name for p in program.privileges.values() if p.implies)]
    for name, type_, effect in product(resolved, program.entities, ("allow", "deny")):
        privileges_there = names.privileges_of(name, type_, effect)
        if privileges_there:
            stands[f"{name}\n{type_}\n{effect}"] = list(privileges_there)
    is_resolved = fn.col("privilege").isin(resolved)
    as_map = fn.create_map(*(part for key, ps in stands.items() for part in (fn.lit(key), fn.array(*map(fn.lit, ps)))))
    found = fn.try_element_at(as_map, fn.concat_ws("\n", fn.col("privilege"), fn.col("type"), fn.col("effect")))
    privileges = fn.when(is_resolved, fn.coalesce(found, fn.array().cast("array<string>"))).otherwise(
        fn.array(fn.col("privilege"))
    )
    columns = [fn.explode(privileges).alias("privilege") if c == "privilege" else fn.col(c) for c in grants.columns]
    return grants.select(*columns)
