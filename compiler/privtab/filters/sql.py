"""Filters as SQL: the condition of a WHERE for columns with the names of a path, printed by SQLGlot, with bound parameters.

What databases compare otherwise than a request does is made the same: collations that fold case or pad with blanks are not asked,
and names that no request can have (empty ones, control characters) are among no "other" names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal, TypeAlias

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from privtab.characters import RANGES
from privtab.errors import UnsupportedError, UsageError
from privtab.filters.expression import OneOf, fold
from privtab.hints import hint

if TYPE_CHECKING:
    from privtab.filters.filter import Filter

ParameterStyle: TypeAlias = Literal["qmark", "format", "pyformat", "named", "numeric", "dollar"]
"""How parameters are written: `?`, `%s`, `%(p1)s`, `:p1`, `:1` (PEP 249) or `$1`."""
MOST_INLINE = 2_000
"""The most names that a condition lists unless the caller says otherwise."""

_CLASS_X = "[" + "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in RANGES) + "]"
_CLASS_U = "[" + "".join(rf"\u{max(first, 1):04x}-\u{last:04x}" for first, last in RANGES) + "]"
_CLASS_RAW = "*[" + "".join(f"{chr(max(first, 1))}-{chr(last)}" for first, last in RANGES[:-1]) + "]*"
_MARK = "\ue000"
"""Where a parameter stands, until the text is printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How a database compares texts byte by byte. In its templates, `:c` is a column and `:v` a parameter."""

    name: str
    """As SQLGlot calls it."""
    column: str
    value: str = ":v"
    unusable: str
    """True for a text with a character that no name has; `:v` is `pattern`."""
    pattern: str = _CLASS_X
    style: ParameterStyle = "qmark"


DIALECTS: Mapping[str, Dialect] = {
    "postgres": Dialect(
        name="postgres",
        column='CAST(:c AS TEXT) COLLATE "C"',
        unusable='REGEXP_LIKE(CAST(:c AS TEXT) COLLATE "C", :v)',
        pattern=_CLASS_U,
        style="format",
    ),
    "mysql": Dialect(
        name="mysql",
        column="CAST(CONVERT(:c USING utf8mb4) AS BINARY)",
        value="CAST(CONVERT(:v USING utf8mb4) AS BINARY)",
        unusable="REGEXP_INSTR(CONVERT(:c USING utf8mb4), :v) > 0",
        style="format",
    ),
    "sqlite": Dialect(
        name="sqlite",
        column="CAST(:c AS TEXT) COLLATE BINARY",
        # GLOB ends at U+0000 and takes U+FFFE and U+FFFF for U+FFFD.
        unusable="(CAST(:c AS TEXT) GLOB :v OR INSTR(:c, CHAR(0)) + INSTR(:c, CHAR(65534)) + INSTR(:c, CHAR(65535)) > 0)",
        pattern=_CLASS_RAW,
    ),
    "duckdb": Dialect(
        name="duckdb", column="CAST(:c AS TEXT) COLLATE C", unusable="REGEXP_MATCHES(CAST(:c AS TEXT), :v)"
    ),
    "spark": Dialect(
        name="spark", column="CAST(:c AS STRING) COLLATE UTF8_BINARY", unusable="CAST(:c AS STRING) RLIKE :v"
    ),
    "trino": Dialect(name="trino", column="CAST(:c AS VARCHAR)", unusable="REGEXP_LIKE(CAST(:c AS VARCHAR), :v)"),
    "snowflake": Dialect(
        name="snowflake",
        column="COLLATE(CAST(:c AS VARCHAR), '')",
        unusable="REGEXP_INSTR(CAST(:c AS VARCHAR), :v) > 0",
        style="format",
    ),
    "bigquery": Dialect(
        name="bigquery",
        column="COLLATE(CAST(:c AS STRING), '')",
        unusable="REGEXP_CONTAINS(CAST(:c AS STRING), :v)",
    ),
}
_OTHER_NAMES = {"mariadb": "mysql", "postgresql": "postgres", "databricks": "spark"}


@dataclass(frozen=True, slots=True)
class Sql:
    """The text of a condition, and the values of its parameters in their order."""

    text: str
    parameters: tuple[str, ...]
    names: tuple[str, ...]
    """The names of the parameters."""

    @property
    def named(self) -> dict[str, str]:
        """The parameters by name, for the styles `named` and `pyformat`."""
        return dict(zip(self.names, self.parameters, strict=True))


def dialect(name: str) -> Dialect:
    """A dialect by name. Raises UsageError for an unknown one."""
    known = _OTHER_NAMES.get(name.lower(), name.lower())
    if known not in DIALECTS:
        raise UsageError(
            f"no dialect `{name}`: there are {', '.join((*DIALECTS, *_OTHER_NAMES))}" + hint(name, DIALECTS)
        )
    return DIALECTS[known]


def sql(
    filter_: Filter,
    dialect_name: str,
    columns: Mapping[str, str],
    *,
    style: ParameterStyle | None = None,
    prefix: str = "p",
    most: int = MOST_INLINE,
    pretty: bool = False,
) -> Sql:
    """The condition of a WHERE.

    `columns`: the column of each level, as `t.name`. `style`: how parameters are written, by default as the usual driver of the
    database wants them. `most`: the most names that are listed; a filter with more is refused with UnsupportedError.
    """
    target = dialect(dialect_name)
    mapped = {level: column_of(text, target) for level, text in filter_.mapped(columns).items()}
    if filter_.size > most:
        raise UnsupportedError(
            f"the filter lists {filter_.size:,} names, more than {most:,}: join a table of them (`rows`), or allow more"
        )
    values: list[str] = []
    tree = fold(
        filter_.expression,
        lambda one: _one_of(one, mapped[one.level], target, values),
        lambda parts: exp.and_(*parts) if parts else exp.true(),
        lambda parts: exp.or_(*parts) if parts else exp.false(),
    )
    if isinstance(tree, exp.Or):
        tree = exp.paren(tree)  # whatever stands beside it in a WHERE
    return _with_parameters(tree.sql(target.name, pretty=pretty), values, style or target.style, prefix)


def column_of(text: str, target: Dialect) -> exp.Expr:
    """The column that a text names, in the dialect's spelling. Raises UsageError for anything else, such as an expression."""
    try:
        found = sqlglot.parse_one(text, dialect=target.name)
    except SqlglotError as error:
        raise UsageError(
            f"`{text}` is not the name of a column in {target.name}: {str(error).splitlines()[0]}"
        ) from None
    if not isinstance(found, exp.Column) or _MARK in text:
        raise UsageError(f"`{text}` is not the name of a column in {target.name}: write `name` or `table.name`")
    return found


def quoted(name: str, dialect_name: str) -> str:
    """The name of a column as a dialect quotes it."""
    return exp.column(name, quoted=True).sql(dialect(dialect_name).name)


def _one_of(one: OneOf, column: exp.Expr, target: Dialect, values: list[str]) -> exp.Expr:
    def value(text: str) -> exp.Expr:
        values.append(text)
        return exp.Var(this=_MARK)

    exact = _filled(target.column, target.name, c=column)
    listed: exp.Expr | None = None
    if one.names:
        bound = [_filled(target.value, target.name, v=value(name)) for name in one.names]
        listed = exp.In(this=exact, expressions=bound) if len(bound) > 1 else exp.EQ(this=exact, expression=bound[0])
    if not one.other:
        return listed or exp.false()
    parts: list[exp.Expr] = [exp.not_(listed)] if listed is not None else []
    parts.append(exp.NEQ(this=exact.copy(), expression=exp.Literal.string("")))
    parts.append(exp.not_(_filled(target.unusable, target.name, c=column, v=value(target.pattern))))
    return exp.and_(*parts)


@cache
def _template(text: str, dialect_name: str) -> exp.Expr:
    return sqlglot.parse_one(text, dialect=dialect_name)


def _filled(text: str, dialect_name: str, **parts: exp.Expr) -> exp.Expr:
    return exp.replace_placeholders(_template(text, dialect_name), **parts)


def _with_parameters(text: str, values: Sequence[str], style: ParameterStyle, prefix: str) -> Sql:
    """Write the parameters where their marks stand."""
    names = tuple(f"{prefix}{number}" for number in range(1, len(values) + 1))
    written: Callable[[int], str] = {
        "qmark": lambda _: "?",
        "format": lambda _: "%s",
        "pyformat": lambda at: f"%({names[at]})s",
        "named": lambda at: f":{names[at]}",
        "numeric": lambda at: f":{at + 1}",
        "dollar": lambda at: f"${at + 1}",
    }[style]
    pieces = text.split(_MARK)
    assert len(pieces) == len(values) + 1, "each parameter stands once"
    if style in ("format", "pyformat"):
        pieces = [piece.replace("%", "%%") for piece in pieces]
    marked = [pieces[0], *(f"{written(at)}{piece}" for at, piece in enumerate(pieces[1:]))]
    return Sql("".join(marked), tuple(values), names)
