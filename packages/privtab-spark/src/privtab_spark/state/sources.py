"""Open the sources of a state's tables as named by a configuration; all errors in it are reported at once.

```yaml
tables:
  grants:
    format: parquet
    path: /lake/iam/grants
    columns:
      grantee: concat('role:', role_name)
      effect: {value: allow}
      privilege: upper(privilege)
      entity: {type: table, names: [metalake, catalog, schema, name]}
  memberships: {format: jdbc, options: {url: "jdbc:postgresql://db/iam", dbtable: user_groups, password: "${PGPASSWORD}"}}
entities: {table: iam.entities}
orphans: quarantine
```
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as fn

from privtab.base import WINDOW_COLUMNS, UsageError, did_you_mean, state_location
from privtab.state import TABLE_COLUMNS, TableFiles
from privtab_spark import columns
from privtab_spark.columns import without_padding
from privtab_spark.failures import unlogged
from privtab_spark.formats import SPARK
from privtab_spark.frames import is_frame, of_spark
from privtab_spark.state import configuration
from privtab_spark.state.configuration import folder_sources, label_of, listed, read_configuration, wrong_count
from privtab_spark.state.schemas import TABLES, windows_in

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


_TOP = ("tables", "entities", "orphans")
_KEYS = ("format", "path", "table", "query", "options", "schema", "columns", "where", "extra", "name")
LISTING = ("entity",)
"""The columns of a list of the entities that exist."""
_ORPHANS = ("report", "quarantine")
_DEFAULTS: Mapping[str, Mapping[str, str]] = {
    # As for other CSV files of a state: a header line in each, quotes doubled, and malformed lines are errors.
    "csv": {
        "header": "true",
        "enforceSchema": "false",
        "escape": '"',
        "multiLine": "true",
        "mode": "FAILFAST",
        "inferSchema": "false",
    },
    "json": {"primitivesAsString": "true", "mode": "FAILFAST"},
    # Otherwise the columns of any one file count, and `until` may be in another.
    "orc": {"mergeSchema": "true"},
    "parquet": {"mergeSchema": "true"},
}
_FILES = ("pathglobfilter", "recursivefilelookup", "modifiedbefore", "modifiedafter")
"""Options that choose among the files of a folder."""
_WHOLE: Mapping[str, str] = {"ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}
"""Settings that override the session's: otherwise Spark takes the rest of a broken or removed file for the whole."""
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSource:
    """One source of a table: rows with the table's raw columns as strings."""

    table: str
    rows: DataFrame
    label: str
    """The name of the source in findings, without secrets."""
    not_text: Mapping[str, str] = field(default_factory=dict)
    """Columns whose cells are not text, with their types; each cell is a finding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """All sources of a state."""

    tables: Mapping[str, tuple[TableSource, ...]]
    entities: DataFrame | None = None
    """All entities that exist, in one column `entity`; None if they are not listed."""
    orphans: str = "report"
    """The treatment of rows about unlisted entities: `report` or `quarantine`."""

    def window(self, *tables: str) -> tuple[str, ...]:
        """`from` and `until`, if rows of one of these tables may hold for a time."""
        return max((windows_in(source.rows) for table in tables for source in self.tables.get(table, ())), default=())


def with_same_columns(sources: Sequence[TableSource]) -> tuple[TableSource, ...]:
    """The sources of a table: `from` and `until` are in all of them if they are in any."""
    window = max((windows_in(source.rows) for source in sources), default=())
    none = dict.fromkeys(window, fn.lit(None).cast("string"))
    return tuple(
        source if windows_in(source.rows) == window else replace(source, rows=source.rows.withColumns(none))
        for source in sources
    )


def open_sources(spark: SparkSession, configuration: object, known_tables: Sequence[str] = TABLES) -> Sources:
    """Open the sources of the known tables in a configuration; raises UsageError with all errors in it, FileError for a missing file."""
    with ExitStack() as stack:
        opening = _Opening(spark, stack, known_tables)
        found = opening.all(opening.document(configuration))
    if opening.problems:
        lines = "".join(f"\n  {problem}" for problem in opening.problems)
        raise UsageError(f"{wrong_count(len(opening.problems))} in the sources of the state:{lines}")
    return found


class _Opening:
    """Opens the sources of one configuration and collects errors."""

    def __init__(self, spark: SparkSession, stack: ExitStack, known_tables: Sequence[str]) -> None:
        self.spark = spark
        self.known_tables = known_tables
        self.stack = stack
        self.problems: list[str] = []
        self.secrets: set[str] = set()
        self.base = Path()

    def document(self, configuration: object) -> Mapping[str, Any]:
        """The configuration as a mapping."""
        match configuration:
            case Mapping():
                return configuration
            case str() | Path():
                path, accepted = state_location(configuration)
                self.base = path if path.is_dir() else path.parent
                if path.is_dir():
                    return {"tables": folder_sources(self.spark, path, accepted, self.known_tables)}
                return read_configuration(path)
            case _:
                raise UsageError(f"a {type(configuration).__name__} is not a configuration: give a mapping or a path")

    def all(self, document: Mapping[str, Any]) -> Sources:
        """Open the sources of all tables and of the entities."""
        # Alone, `entities` is the table of that name, if the policy's states have it.
        if not set(document) & (set(_TOP) - set(self.known_tables)):
            document = {"tables": document}
        for key in document:
            self.known(str(key), "key", key, _TOP)
        tables = document.get("tables") or {}
        if not isinstance(tables, Mapping):
            self.wrong("tables", "must be a mapping from tables to sources")
            tables = {}
        found: dict[str, tuple[TableSource, ...]] = {}
        for table, source_options in tables.items():
            if not self.known("tables", "table", table, self.known_tables):
                continue
            parts = source_options if isinstance(source_options, list | tuple) else [source_options]
            if any(isinstance(part, Mapping) and part and set(part) <= set(TABLE_COLUMNS[table].all) for part in parts):
                advice = "rows in one file are for `privtab state validate` and `pack`; here `path: grants.csv` says where they are"
                self.wrong(table, "contains rows instead of a source", advice)
                continue
            opened = (
                self.source(table, part, TABLE_COLUMNS[table].all, TABLE_COLUMNS[table].required) for part in parts
            )
            found[table] = with_same_columns([source for source in opened if source is not None])
        entities = None
        if document.get("entities") is not None:
            entities = self.source("entities", document["entities"], LISTING, LISTING)
        orphans = document.get("orphans", "report")
        self.known("orphans", "value", orphans, _ORPHANS)
        ordered = {table: found[table] for table in self.known_tables if table in found}
        return Sources(tables=ordered, entities=None if entities is None else entities.rows, orphans=str(orphans))

    def source(
        self, table: str, source_options: object, columns: Sequence[str], required: Sequence[str]
    ) -> TableSource | None:
        """Open one source of a table; None if errors were reported."""
        source_options = of_spark(source_options)
        before = len(self.problems)
        mapping: Mapping[str, Any] = {}
        label = table
        frame: DataFrame | None
        if isinstance(source_options, Mapping):
            for key in source_options:
                self.known(table, "key", key, _KEYS)
            label = str(source_options.get("name") or label_of(table, source_options))
            mapping = source_options.get("columns") or {}
            frame = self.frame(table, source_options) if len(self.problems) == before else None
            extra = source_options.get("extra", "refuse")
            if not isinstance(extra, list) and extra not in {"refuse", "ignore"}:
                self.wrong(table, f"`extra` is `{extra}`", "write `ignore`, a list of columns, or leave it out")
        elif is_frame(source_options):
            frame, extra = cast("DataFrame", source_options), "refuse"
            label = "a DataFrame"
        elif isinstance(source_options, str):
            frame, extra = self.frame(table, {"table": source_options}), "refuse"
            label = source_options
        else:
            self.wrong(
                table, f"{source_options!r} is not a source", "give a mapping with a format and a path, or a DataFrame"
            )
            return None
        if frame is None:
            return None
        frame = without_padding(frame)
        ignored = frame.columns if extra == "ignore" else extra if isinstance(extra, list) else ()
        columns_ = SourceColumns(self, frame).columns(table, mapping, columns, required, ignored)
        if len(self.problems) > before:
            return None
        picked = frame.select(*columns_)
        types = {f.name: f.dataType.simpleString() for f in picked.schema.fields}
        not_text = {
            c: why
            for c, t in types.items()
            if (why := _rejected_type(t)) is not None and not (c in WINDOW_COLUMNS and t == "timestamp")
        }
        if columns == LISTING:
            return TableSource(table=table, rows=picked.select(fn.col("entity").cast("string")), label=label)
        return TableSource(table=table, rows=_raw(picked, table), label=label, not_text=not_text)

    def frame(self, table: str, source_options: Mapping[str, Any]) -> DataFrame | None:
        """The DataFrame of a source before its columns are mapped; None if errors were reported."""
        format_, path, name, query = (source_options.get(key) for key in ("format", "path", "table", "query"))
        options = {str(k): self.text(table, v) for k, v in (source_options.get("options") or {}).items()}
        if sum(part is not None for part in (name, query, path)) > 1:
            self.wrong(table, "has more than one of `path`, `table` and `query`", "keep one of them")
            return None
        if path is not None and format_ is None:
            format_ = TableFiles.format_of(self.base / str(path)) or SPARK.get(Path(str(path)).suffix.lower())
        if path is not None and format_ is None:
            self.wrong(table, f"`{path}` has no known format", "write `format: parquet`, or csv, json, delta, iceberg")
            return None
        if name is None and query is None and format_ is None:
            self.wrong(table, "names no source", "give `format` with `path` or `options`, or `table`, or `query`")
            return None
        before = len(self.problems)
        try:
            frame = self.opened(table, source_options, format_, options)
            if source_options.get("where") is not None and frame is not None:
                frame = frame.where(self.text(table, source_options["where"]))
            if frame is not None:
                frame.schema  # noqa: B018 - Connect opens a source only when its schema is requested
        except Exception as error:  # noqa: BLE001 - a missing driver is a Java exception of Spark's own bridge
            self.wrong(table, self.redacted(error), configuration.advice(format_, str(error)))
            return None
        return frame if len(self.problems) == before else None

    def opened(
        self, table: str, source_options: Mapping[str, Any], format_: object, options: dict[str, str]
    ) -> DataFrame | None:
        """The DataFrame of a source, without `where`."""
        if source_options.get("query") is not None:
            query = self.text(table, source_options["query"])
            if format_ is None:
                return self.spark.sql(query)
            return self.spark.read.format(str(format_)).options(**options, query=query).load()
        if source_options.get("table") is not None and format_ != "jdbc":
            return self.spark.read.options(**options).table(self.text(table, source_options["table"]))
        reader = self.spark.read.format(str(format_)).options(**{**_DEFAULTS.get(str(format_), {}), **options})
        if source_options.get("schema") is not None:
            reader = reader.schema(self.text(table, source_options["schema"]))
        if source_options.get("table") is not None:
            reader = reader.option("dbtable", self.text(table, source_options["table"]))
        if source_options.get("path") is None:
            return reader.load()
        path = self.text(table, source_options["path"])
        if not configuration.is_url(path) and not Path(path).is_absolute():
            path = str((self.base / path).resolve())
        if format_ in configuration.BARE and (versioned := configuration.versioned(self.spark, path)) is not None:
            self.wrong(
                table, f"`{source_options['path']}` is a table of {versioned}, whose files hold deleted rows, too",
                f"write `format: {versioned}`",
            )  # fmt: skip
            return None
        option_names = {name.lower() for name in options}
        if format_ in ("csv", "json") and not option_names & {"encoding", "charset"}:
            self.check_encoding(table, path, options)
        return reader.options(
            **{name: value for name, value in _WHOLE.items() if name.lower() not in option_names}
        ).load(path)

    def check_encoding(self, table: str, path: str, options: Mapping[str, str]) -> None:
        """Report a file with bytes that are not UTF-8: Spark would read each as U+FFFD."""
        choice = {name: value for name, value in options.items() if name.lower() in _FILES}
        lines = self.spark.read.options(**{**_WHOLE, **choice}).text(path)
        broken = lines.where(~fn.is_valid_utf8("value")).select(fn.col("_metadata.file_name")).take(1)
        if broken:
            self.wrong(
                table, f"`{broken[0][0]}` is not UTF-8", "give its encoding under `options`, or save it as UTF-8"
            )

    def text(self, where: str, value: object) -> str:
        """A setting with `${NAME}` replaced from the environment; the values are never shown."""

        def replaced(found: re.Match[str]) -> str:
            secret = os.environ.get(found[1])
            if secret is None:
                self.wrong(where, f"the environment has no `{found[1]}`")
                return ""
            if secret and not self.secrets:
                self.stack.enter_context(unlogged())
            if secret:
                self.secrets.add(secret)
            return secret

        return _VARIABLE.sub(replaced, str(value).lower() if isinstance(value, bool) else str(value))

    def redacted(self, error: BaseException) -> str:
        """The first useful line of an exception's text, without values from the environment."""
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
            # Py4J puts the exception into the second line.
            lines = [re.sub(r"^: (?:[\w$]+\.)+", "", lines[1])]
        text = lines[0] if lines else type(error).__name__
        for secret in sorted(self.secrets, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text.strip()

    def known(self, where: str, what: str, name: object, names: Sequence[str]) -> bool:
        """Return whether a name is one of the known names; otherwise records an error."""
        if name not in names:
            self.wrong(
                where, f"unknown {what} `{name}`", did_you_mean(str(name), names) or f"there are {listed(names)}"
            )
        return name in names

    def wrong(self, where: str, message: str, advice: str | None = None) -> None:
        """Record an error."""
        self.problems.append(f"{where}: {message}" + (f" ({advice})" if advice else ""))


def _rejected_type(data_type: str) -> str | None:
    """The type of a column whose cells cannot be read as text; None if they can."""
    accepted = ("string", "tinyint", "smallint", "int", "bigint", "void")
    return None if data_type in accepted or data_type.startswith(("varchar", "char")) else data_type


def _raw(df: DataFrame, table: str) -> DataFrame:
    """The columns of a table as strings, in their order; a missing column is null.

    `from` and `until` follow if there is one of them, timestamps as RFC 3339.
    """
    types = {field.name: field.dataType.simpleString() for field in df.schema.fields}
    window = WINDOW_COLUMNS if set(WINDOW_COLUMNS) & set(types) else ()

    def text(name: str) -> Column:
        if name not in types:
            return fn.lit(None).cast("string")
        if name in WINDOW_COLUMNS and types[name] == "timestamp":
            return fn.date_format(f"`{name}`", "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX")
        return fn.col(f"`{name}`").cast("string")

    return df.select(*(text(name).alias(name) for name in (*TABLE_COLUMNS[table].names, *window)))


_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")


class SourceColumns:
    """Maps the columns of one source to the columns of a table."""

    def __init__(self, problems: _Opening, frame: DataFrame) -> None:
        self.problems = problems
        self.frame = frame

    def columns(
        self,
        table: str,
        mapping: Mapping[str, Any],
        columns: Sequence[str],
        required: Sequence[str],
        ignored: Sequence[str],
    ) -> list[Column]:
        """An expression for each column of the table that the source has."""
        available = self.frame.columns
        found: list[Column] = []
        for name in mapping:
            if name not in columns:
                advice = did_you_mean(str(name), columns) or f"the columns of `{table}` are {listed(columns)}"
                self.problems.wrong(table, f"unknown column `{name}` under `columns`", advice)
        for name in columns:
            if name in mapping:
                column = self.expression(f"{table}.{name}", mapping[name])
                if column is not None:
                    found.append(column.alias(name))
            elif available.count(name) > 1:
                self.problems.wrong(table, f"column `{name}` occurs {available.count(name)} times")
            elif name in available:
                found.append(fn.col(f"`{name}`"))
            elif name in required:
                similar = did_you_mean(name, available) if not mapping else None
                advice = f"{similar}; " if similar else ""
                self.problems.wrong(table, f"column `{name}` is missing", f"{advice}the source has {listed(available)}")
        if not mapping:
            for name in dict.fromkeys(available):
                if name not in columns and name not in ignored:
                    advice = did_you_mean(name, columns) or "map the columns under `columns`, or write `extra: ignore`"
                    self.problems.wrong(table, f"unknown column `{name}`", advice)
        return found

    def expression(self, where: str, expression: object) -> Column | None:
        """The Column for a column name, an expression, a constant, or an entity made of names."""
        match expression:
            case str():
                return self.tried(where, expression)
            case int() if not isinstance(expression, bool):
                return fn.lit(str(expression))
            case {"value": value, **rest} if not rest:
                return fn.lit(None if value is None else str(value)).cast("string")
            case {"column": name, **rest} if not rest:
                return self.tried(where, f"`{name}`")
            case {"type": type_, "names": names, **rest} if not rest and isinstance(names, list | tuple):
                return self.entity(where, type_, names)
            case _:
                advice = "a column, an expression, {value: …}, or {type: …, names: [columns from the root down]}"
                self.problems.wrong(where, f"{expression!r} cannot be read", advice)
                return None

    def entity(self, where: str, type_: object, names: Sequence[object]) -> Column | None:
        """`type:path` from the columns with its names; if the type is an expression, trailing names may be null."""
        parts = [self.expression(where, name) for name in names]
        constant = isinstance(type_, str)
        head = fn.lit(type_) if constant else self.expression(where, type_)
        if head is None or not all(part is not None for part in parts):
            return None
        path = [_encoded(part.cast("string")) for part in parts if part is not None]
        if constant:
            return fn.concat(head, fn.lit(":"), columns.joined(path))
        gap = fn.expr("false")
        for upper, lower in pairwise(path):
            gap |= upper.isNull() & lower.isNotNull()
        return fn.when(~gap, fn.concat(head.cast("string"), fn.lit(":"), fn.concat_ws("/", *path)))

    def tried(self, where: str, text: str) -> Column | None:
        """The Column for an expression; None, with an error reported, if the source cannot resolve it."""
        if text in self.frame.columns:
            return fn.col(f"`{text}`")
        bare = text.strip("`")
        if _IDENTIFIER.fullmatch(bare) or text.startswith("`"):
            if bare in self.frame.columns:
                return fn.col(f"`{bare}`")
            self.unknown(where, bare)
            return None
        column = fn.expr(text)
        try:
            self.frame.select(column).schema  # noqa: B018 - checks that the names can be resolved
        except AnalysisException as error:
            unknown = re.search(r"name `(.+?)` cannot be resolved", str(error))
            if unknown:
                self.unknown(where, unknown[1].replace("`.`", "."), f" in `{text}`")
            else:
                self.problems.wrong(where, f"`{text}`: {self.problems.redacted(error)}")
            return None
        except PySparkException as error:
            self.problems.wrong(where, f"`{text}`: {self.problems.redacted(error)}")
            return None
        return column

    def unknown(self, where: str, name: str, place: str = "") -> None:
        """Record that the source has no such column."""
        near = did_you_mean(name, self.frame.columns, cutoff=0.6)
        advice = f"{near + '; ' if near else ''}the source has {listed(self.frame.columns)}"
        self.problems.wrong(where, f"unknown column `{name}`{place}", advice)


def _encoded(name: Column) -> Column:
    """A name encoded for paths. Wildcards are kept, to be reported, and so are names that are already encoded wildcards."""
    return fn.when(name.rlike(r"\A(?:[*?%]+|(?:%2A|%3F)+)\z"), name).otherwise(columns.encoded(name))
