"""Filters as expressions of SQLAlchemy, of PySpark and of Ibis."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from hashlib import sha256
from itertools import groupby
from operator import and_, or_
from typing import TYPE_CHECKING, Any

from privtab.base.attributes import MOST_TEXT
from privtab.base.errors import UsageError
from privtab.filters.expression import CLASS, SEPARATOR, Expression, Leaf, Paths, Value, fold, open_levels, path_pattern

if TYPE_CHECKING:
    from pyspark.sql import Column
    from sqlalchemy import TextClause

SPARK_TYPES = {
    "integer": "^(tinyint|smallint|int|bigint|float|double|decimal.*)$",
    "bool": "^boolean$",
    "text": "^(string|varchar|char)",
}
"""The names of Spark's types whose values can be of a type of attributes: regular expressions."""


def spark_column(expression: Expression, columns: Mapping[str, Any], bounds: Mapping[str, int]) -> Column:
    """The condition for `DataFrame.where`; `columns`: a column or its name for each level. Texts are compared byte by byte."""
    from pyspark.sql import functions as F  # noqa: N812  (the conventional name)

    given = {level: F.col(column) if isinstance(column, str) else column for level, column in columns.items()}

    def value(one: Value) -> Column:
        if one.attribute not in given:
            return F.lit(one.absent)
        column = given[one.attribute]
        if one.absent:
            return column.isNull()
        typed = F.typeof(column).rlike(SPARK_TYPES[one.type])
        if one.type == "text":
            text = F.collate(column.cast("string"), "UTF8_BINARY")
            listed = text.isin(list(one.values)) & typed
            return typed & ~listed & ~text.rlike(CLASS) & (F.length(text) <= MOST_TEXT) if one.other else listed
        if one.type == "integer":
            typed &= F.floor(column) == column
        return typed & (column.between(*one.between) if one.between else column.isin(list(one.values)))

    def text(level: str) -> Column:
        return F.collate(given[level].cast("string"), "UTF8_BINARY")

    def leaf(one: Leaf) -> Column:
        if isinstance(one, Value):
            return value(one)
        if isinstance(one, Paths):
            path = F.concat(*[part for level in one.levels for part in (F.lit(SEPARATOR), text(level))][1:])
            listed = path.isin([SEPARATOR.join(names) for names in one.paths])
        else:
            below = (text(one.level).startswith(f"{path}/") for path in one.above)
            listed = reduce(or_, below, text(one.level).isin(list(one.names)) if one.names else F.lit(False))  # noqa: FBT003
        return ~listed if one.other else listed

    def valid(level: str) -> Column:
        found = (text(level) != "") & ~text(level).rlike(CLASS)
        return found & text(level).rlike(f"^{path_pattern(bounds[level])}$") if level in bounds else found

    true, false = F.lit(True), F.lit(False)  # noqa: FBT003
    found = fold(expression, leaf, lambda parts: reduce(and_, parts, true), lambda parts: reduce(or_, parts, false))
    return reduce(and_, map(valid, sorted(open_levels(expression))), found)


def ibis_expression(expression: Expression, columns: Mapping[str, Any], bounds: Mapping[str, int]) -> Any:
    """The condition for `Table.filter`; `columns`: a column of the table for each level.

    Ibis knows no collations, so digests are compared: texts that a collation folds have different digests.
    """
    import ibis

    def digest(column: Any) -> Any:
        return column.cast("string").hexdigest("sha256")

    def among(column: Any, texts: Iterable[object]) -> Any:
        return digest(column).isin([sha256(str(text).encode()).hexdigest() for text in texts])

    def value(one: Value) -> Any:
        column = columns.get(one.attribute)
        if column is None:
            return ibis.literal(one.absent)
        if one.absent:
            return column.isnull()
        type_ = column.type()
        whole = type_.is_integer() or type_.is_floating() or type_.is_decimal()
        if not {"integer": whole, "bool": type_.is_boolean(), "text": type_.is_string()}[one.type]:
            return ibis.literal(False)  # noqa: FBT003
        if one.type == "text":
            short = column.length() <= MOST_TEXT
            listed = among(column, one.values)
            return ~listed & ~column.re_search(CLASS) & short if one.other else listed
        listed = column.between(*one.between) if one.between else column.isin(list(one.values))
        return listed & (column.floor() == column) if one.type == "integer" else listed

    def path(levels: Sequence[str], paths: Iterable[tuple[str, ...]]) -> Any:
        """A condition that the names are one of the paths, of which paths with one beginning are together."""
        if len(levels) == 1:
            return among(columns[levels[0]], (name for (name,) in paths))
        return reduce(
            or_,
            (
                among(columns[levels[0]], [name]) & path(levels[1:], [names[1:] for names in inner])
                for name, inner in groupby(paths, key=lambda names: names[0])
            ),
        )

    def leaf(one: Leaf) -> Any:
        if isinstance(one, Value):
            return value(one)
        if isinstance(one, Paths):
            listed = path(one.levels, one.paths)
        else:
            column = columns[one.level].cast("string")
            listed = among(column, one.names) if one.names else ibis.literal(False)  # noqa: FBT003
            for above in one.above:
                begin = f"{above}/"
                listed |= among(column.substr(0, len(begin)), [begin])
        return ~listed if one.other else listed

    def valid(level: str) -> Any:
        text = columns[level].cast("string")
        found = (text.length() > 0) & ~text.re_search(CLASS)
        return found & text.re_search(f"^{path_pattern(bounds[level])}$") if level in bounds else found

    true, false = ibis.literal(True), ibis.literal(False)  # noqa: FBT003
    found = fold(expression, leaf, lambda parts: reduce(and_, parts, true), lambda parts: reduce(or_, parts, false))
    return reduce(and_, map(valid, sorted(open_levels(expression))), found)


def sqlalchemy_names(columns: Mapping[str, Any], dialect: str) -> dict[str, str]:
    """The text of each column; columns that are texts stay."""
    from sqlalchemy.dialects import registry

    def text(column: Any) -> str:
        if isinstance(column, str):
            return column
        compiled = registry.load({"postgres": "postgresql"}.get(dialect, dialect))()
        return str(column.compile(dialect=compiled))

    found = {level: text(column) for level, column in columns.items()}
    if wrong := next((text for text in found.values() if ":" in text), None):
        raise UsageError(f"the column `{wrong}` has a colon, which stands for a parameter in SQLAlchemy")
    return found


def sqlalchemy_clause(text: str, parameters: Mapping[str, str]) -> TextClause:
    """The condition for `Select.where`, with its parameters."""
    from sqlalchemy import text as clause

    return clause(f"({text})").bindparams(**parameters)
