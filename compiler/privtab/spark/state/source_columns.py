"""The columns of a state's table as expressions on a source: as named, or as mapped under `columns`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as fn

from privtab.hints import did_you_mean
from privtab.spark import paths
from privtab.spark.state.configuration import listed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")


class Problems(Protocol):
    """Collects the errors of a configuration."""

    def wrong(self, where: str, message: str, advice: str | None = None) -> None:
        """Record an error."""

    def redacted(self, error: BaseException) -> str:
        """The text of an exception, without secrets."""


class SourceColumns:
    """Maps the columns of one source to those of a table."""

    def __init__(self, problems: Problems, frame: DataFrame) -> None:
        self.problems = problems
        self.frame = frame

    def columns(
        self,
        table: str,
        mapping: Mapping[str, Any],
        columns: Sequence[str],
        required: Sequence[str],
        *,
        refuse: bool,
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
        if refuse and not mapping:
            for name in dict.fromkeys(available):
                if name not in columns:
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
            return fn.concat(head, fn.lit(":"), paths.joined(path))
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
            near = did_you_mean(bare, self.frame.columns, cutoff=0.6)
            self.problems.wrong(
                where,
                f"unknown column `{bare}`",
                f"{near + '; ' if near else ''}the source has {listed(self.frame.columns)}",
            )
            return None
        column = fn.expr(text)
        try:
            self.frame.select(column).schema  # noqa: B018 - checks that the names can be resolved
        except AnalysisException as error:
            unknown = re.search(r"name `(.+?)` cannot be resolved", str(error))
            if unknown:
                name = unknown[1].replace("`.`", ".")
                near = did_you_mean(name, self.frame.columns, cutoff=0.6)
                advice = f"{near + '; ' if near else ''}the source has {listed(self.frame.columns)}"
                self.problems.wrong(where, f"unknown column `{name}` in `{text}`", advice)
            else:
                self.problems.wrong(where, f"`{text}`: {self.problems.redacted(error)}")
            return None
        except PySparkException as error:
            self.problems.wrong(where, f"`{text}`: {self.problems.redacted(error)}")
            return None
        return column


def _encoded(name: Column) -> Column:
    """A name encoded for paths. Wildcards are kept, to be reported, and so are names that are already encoded wildcards."""
    return fn.when(name.rlike(r"\A(?:[*?%]+|(?:%2A|%3F)+)\z"), name).otherwise(paths.encoded(name))
