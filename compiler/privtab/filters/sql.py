"""Filters as SQL: the condition of a WHERE for columns with the names of a path, printed by SQLGlot, with bound parameters.

What databases compare otherwise than a request does is made the same, on both sides of a comparison: collations that fold case or
pad with blanks are not asked, values of another type than the attribute's are none, and names that no request can have (empty ones,
control characters) are among no "other" names. Plain comparisons stand beside, where indexes serve them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache
from typing import Literal, TypeAlias, TypedDict

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from privtab.base.attributes import MOST_TEXT
from privtab.base.errors import UnsupportedError, UsageError
from privtab.base.hints import hint
from privtab.base.names import RANGES
from privtab.base.records import dataclass
from privtab.filters.columns import SPARK_TYPES
from privtab.filters.expression import (
    CLASS,
    EDITION,
    SEPARATOR,
    Expression,
    Leaf,
    OneOf,
    Paths,
    Value,
    fold,
    longest,
    open_levels,
    path_pattern,
    size,
)

ParameterStyle: TypeAlias = Literal["qmark", "format", "pyformat", "named", "numeric", "dollar"]
"""The style of parameters: `?`, `%s`, `%(p1)s`, `:p1`, `:1` (PEP 249) or `$1`."""
Form: TypeAlias = Literal["inline", "joined"]
MOST_INLINE_NAMES = 2_000
"""The most names that a condition lists unless the caller says otherwise."""

_CLASS_U = "[" + "".join(rf"\u{max(first, 1):04x}-\u{last:04x}" for first, last in RANGES) + "]"
_CLASS_RAW = "*[" + "".join(f"{chr(max(first, 1))}-{chr(last)}" for first, last in RANGES[:-1]) + "]*"
_MARK = "\ue000"
"""A placeholder for a parameter, until the text is printed."""
_WHOLE = "FLOOR(:c) = :c"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The comparison of texts byte by byte in a database. In its templates, `:c` is a column and `:v` a parameter."""

    name: str
    """As SQLGlot calls it."""
    column: str
    """The column's text, on either side of a comparison."""
    value: str = ":v"
    bytes: bool = False
    """True if the compared text is one of bytes, also to functions."""
    typed: Mapping[str, str] = field(default_factory=lambda: {"integer": _WHOLE})
    """Tests of a value for a type of attributes, unless the database itself refuses to compare it with such."""
    finds: str
    """A test of a text for something that matches the regular expression `:v`."""
    unusable: str = ""
    """A test of a text for a character that no name has: what matches `pattern`, unless the database needs other words."""
    pattern: str = CLASS
    flags: str = ""
    """The beginning of patterns, so that case counts."""
    unordered: bool = False
    """True if expensive conditions may be evaluated first, unless CASE forbids it."""
    style: ParameterStyle = "qmark"


DIALECTS: Mapping[str, Dialect] = {
    "postgres": Dialect(
        name="postgres",
        column='CAST(:c AS TEXT) COLLATE "C"',
        # Names and domains of texts, and enumerations, are of these categories.
        typed={
            "integer": _WHOLE,
            "text": "(SELECT typcategory FROM pg_catalog.pg_type WHERE oid = PG_TYPEOF(:c)) IN ('S', 'E')",
        },
        finds='REGEXP_LIKE(CAST(:c AS TEXT) COLLATE "C", :v)',
        pattern=_CLASS_U,
        unordered=True,
        style="format",
    ),
    "mysql": Dialect(
        name="mysql",
        # Bytes on both sides: results of a subquery are kept by what stands before IN, compared as its collation does.
        column="CAST(CONVERT(:c USING utf8mb4) AS BINARY)",
        value="CAST(CONVERT(:v USING utf8mb4) AS BINARY)",
        bytes=True,
        # Texts become numbers where they are compared with such. Only JSON tells what they were.
        typed={
            "integer": f"CHARSET(:c) = 'binary' AND REGEXP_INSTR(JSON_ARRAY(:c), '^[[]-?[0-9.e+]+]$') > 0 AND {_WHOLE}",
            "bool": "CHARSET(:c) = 'binary' AND JSON_ARRAY(:c) IN ('[0]', '[1]', '[false]', '[true]')",
            "text": "CHARSET(:c) <> 'binary'",
        },
        finds="REGEXP_INSTR(CONVERT(:c USING utf8mb4), :v) > 0",
        flags="(?-i)",
        style="format",
    ),
    "sqlite": Dialect(
        name="sqlite",
        column="CAST(:c AS TEXT) COLLATE BINARY",
        typed={
            "integer": "TYPEOF(:c) IN ('integer', 'real') AND CAST(:c AS INTEGER) = :c",
            "bool": "TYPEOF(:c) = 'integer'",
            "text": "TYPEOF(:c) = 'text'",
        },
        # SQLite knows no regular expressions but those of a function that an application gives it.
        finds="CAST(:c AS TEXT) REGEXP :v",
        # Most names are printable ASCII, which is found out sooner. GLOB ends at U+0000 and takes U+FFFE and U+FFFF for U+FFFD.
        unusable=(
            "(CAST(:c AS TEXT) GLOB '*[^ -~]*' AND (CAST(:c AS TEXT) GLOB :v OR INSTR(:c, CHAR(65534)) + INSTR(:c, CHAR(65535)) > 0)"
            " OR INSTR(:c, CHAR(0)) > 0)"
        ),
        pattern=_CLASS_RAW,
    ),
    "duckdb": Dialect(
        name="duckdb",
        column="CAST(:c AS TEXT) COLLATE C",
        typed={
            "integer": _WHOLE,
            "bool": "TYPEOF(:c) = 'BOOLEAN'",
            "text": "TYPEOF(:c) = 'VARCHAR' OR TYPEOF(:c) LIKE 'ENUM(%'",
        },
        finds="REGEXP_MATCHES(CAST(:c AS TEXT), :v)",
    ),
    "spark": Dialect(
        name="spark",
        column="CAST(:c AS STRING) COLLATE UTF8_BINARY",
        typed={
            "integer": f"TYPEOF(:c) RLIKE '{SPARK_TYPES['integer']}' AND {_WHOLE}",
            "bool": "TYPEOF(:c) = 'boolean'",
            "text": f"TYPEOF(:c) RLIKE '{SPARK_TYPES['text']}'",
        },
        finds="CAST(:c AS STRING) RLIKE :v",
    ),
    "trino": Dialect(
        name="trino",
        column="CAST(:c AS VARCHAR)",
        typed={"integer": _WHOLE, "text": "TYPEOF(:c) LIKE 'varchar%'"},
        finds="REGEXP_LIKE(CAST(:c AS VARCHAR), :v)",
    ),
    "snowflake": Dialect(
        name="snowflake",
        column="COLLATE(CAST(:c AS VARCHAR), '')",
        typed={
            "integer": f"TYPEOF(TO_VARIANT(:c)) IN ('INTEGER', 'DECIMAL', 'DOUBLE') AND {_WHOLE}",
            "bool": "TYPEOF(TO_VARIANT(:c)) = 'BOOLEAN'",
            "text": "TYPEOF(TO_VARIANT(:c)) = 'VARCHAR'",
        },
        finds="REGEXP_INSTR(CAST(:c AS VARCHAR), :v) > 0",
        style="format",
    ),
    "bigquery": Dialect(
        name="bigquery",
        column="COLLATE(CAST(:c AS STRING), '')",
        typed={"integer": _WHOLE, "text": """SUBSTR(FORMAT('%T', :c), 1, 1) IN ('"', "'")"""},
        finds="REGEXP_CONTAINS(CAST(:c AS STRING), :v)",
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
    form: Form = "inline"
    """The form of the names: listed, or looked up in a table."""

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


class SqlOptions(TypedDict, total=False):
    """Options for writing a condition."""

    style: ParameterStyle | None
    """The style of parameters; None: as the usual driver of the database wants them."""
    prefix: str
    """The beginning of parameters' names, before their number."""
    most: int | None
    """The most names that are listed; None: 2,000."""
    table: str | None
    """A table with `Filter.rows`, which is asked where more would be listed."""
    key: str | None
    """The key of the filter's rows in the table."""
    pretty: bool
    """True for a text of several lines."""


def sql(
    expression: Expression,
    dialect_name: str,
    columns: Mapping[str, str],
    *,
    bounds: Mapping[str, int],
    beginnings: Iterable[tuple[tuple[str, ...], bool]] | None,
    edition: str,
    style: ParameterStyle | None = None,
    prefix: str = "p",
    most: int | None = None,
    table: str | None = None,
    key: str | None = None,
    pretty: bool = False,
) -> Sql:
    """The condition of a WHERE; arguments as of `Filter.sql` and `SqlOptions`.

    `columns`: the columns of all levels, in their order. `bounds`, `beginnings`, `edition`: as in `Filter`.
    """
    target = dialect(dialect_name)
    mapped = {level: column_of(text, target) for level, text in columns.items()}
    values: list[str] = []
    count = size(expression)
    most = MOST_INLINE_NAMES if most is None else most
    rows = None
    if count > most:
        more = f"the filter lists {count:,} names, more than {most:,}"
        if table is None:
            raise UnsupportedError(f"{more}: give a `table` with its rows, or allow more")
        if beginnings is None:
            raise UnsupportedError(f"{more}, which rows cannot say: allow more")
        rows = _Rows(column_of(table, target), str(key))
        expression = longest(tuple(mapped), beginnings)

    def leaf(one: Leaf) -> exp.Expr:
        if isinstance(one, Value):
            return _value(one, mapped.get(one.attribute), target, values)
        levels = one.levels if isinstance(one, Paths) else (one.level,)
        texts = _Texts(tuple(mapped[level] for level in levels), target, values)
        if isinstance(one, Paths):
            return texts.among([SEPARATOR.join(path) for path in one.paths], rows, other=one.other)
        return _one_of(one, texts, rows)

    def all_of(parts: list[exp.Expr]) -> exp.Expr:
        said = [part for part in parts if part != exp.true()]
        return _all(said) if said else exp.true()

    # A filter whose rows are not there, or follow from something else, allows nothing. Parameters are written in their order.
    there = [] if rows is None else list(rows.there(edition, target, values))
    tree = fold(expression, leaf, all_of, lambda parts: _any(parts) if parts else exp.false())
    tree = _all((*there, tree))
    still_open = open_levels(expression)
    if unlisted := [level for level in mapped if level in still_open]:
        bounded = [(mapped[level], bounds[level]) for level in unlisted if level in bounds]
        valid = _all(_Texts(tuple(mapped[level] for level in unlisted), target, values).valid(bounded))
        if target.unordered and tree != exp.true():
            tree = exp.Case(ifs=[exp.If(this=tree, true=valid)], default=exp.false())
        else:
            tree = all_of([tree, valid])
    if isinstance(tree, exp.Or):
        tree = exp.paren(tree, copy=False)  # whatever stands beside it in a WHERE
    form: Form = "inline" if rows is None else "joined"
    return _with_parameters(tree.sql(target.name, pretty=pretty), values, style or target.style, prefix, form)


def column_of(text: str, target: Dialect) -> exp.Column:
    """The column that a text names, in the dialect's spelling. Raises UsageError for anything else, such as an expression."""
    try:
        found = sqlglot.parse_one(text, dialect=target.name)
        again = sqlglot.parse_one(found.sql(target.name), dialect=target.name)
    except SqlglotError as error:
        raise UsageError(
            f"`{text}` is not the name of a column in {target.name}: {str(error).splitlines()[0]}"
        ) from None
    column = found if isinstance(found, exp.Column) and found == again and _MARK not in text else None
    # A quoted name with a dot may be read as several, which are no texts then.
    if column is not None and all(isinstance(part.this, str) for part in column.parts):
        return column
    raise UsageError(f"`{text}` is not the name of a column in {target.name}: write `name` or `table.name`")


@dataclass(frozen=True, slots=True)
class _Rows:
    """A table with `Filter.rows` of several filters."""

    table: exp.Expr
    key: str

    def there(self, edition: str, target: Dialect, values: list[str]) -> Iterator[exp.Expr]:
        """The conditions that the rows are of this edition, and none of another."""
        for other in (False, True):
            found = self.select([exp.Literal.number(1)], target, values, {"depth": EDITION})
            said = _Texts((exp.column("name1"),), target, values).among([edition], other=other)
            exists = exp.Exists(this=found.where(said, copy=False))
            yield _not(exists) if other else exists

    def select(
        self, what: Sequence[exp.Expr], target: Dialect, values: list[str], conditions: Mapping[str, int]
    ) -> exp.Select:
        """Select values from the rows of the filter in which columns have these numbers."""
        key = exp.column("filter")
        same = _Texts((key,), target, values).among([self.key])
        values.append(self.key)
        return (
            exp.select(*what)
            .from_(exp.to_table(self.table.sql(target.name), dialect=target.name))
            # The first condition finds rows by an index of the table, also those of keys that its collation folds.
            .where(same, key.eq(exp.Var(this=_MARK)), *(exp.column(name).eq(n) for name, n in conditions.items()))
        )


def quoted_identifier(name: str, dialect_name: str) -> str:
    """The name of a column as a dialect quotes it.

    >>> quoted_identifier("order", "mysql")
    '`order`'
    """
    return exp.column(name, quoted=True).sql(dialect(dialect_name).name)


@dataclass(frozen=True, slots=True)
class _Texts:
    """Writes conditions on columns, together, with texts, which are bound."""

    columns: tuple[exp.Expr, ...]
    target: Dialect
    values: list[str]

    def exact(self, columns: Sequence[exp.Expr], between: exp.Expr | None = None) -> exp.Expr:
        """The columns' texts joined, to be compared byte by byte; unknown if one is."""
        texts = [_filled(self.target.column, self.target.name, c=column) for column in columns]
        found = texts[0]
        for text in texts[1:]:
            found = found if between is None else exp.DPipe(this=found, expression=between.copy())
            found = exp.DPipe(this=found, expression=text)
        return found if len(texts) == 1 else exp.paren(found, copy=False)

    @property
    def path(self) -> exp.Expr:
        """The columns as one text. No name has the separator: what else is like a path of names has as many of them, so the same names."""
        return self.exact(self.columns, exp.Chr(expressions=[exp.Literal.number(ord(SEPARATOR))]))

    def value(self, text: exp.Expr) -> exp.Expr:
        """The expression with which columns are compared."""
        return _filled(self.target.value, self.target.name, v=text)

    def filled(self, template: str, text: str, column: exp.Expr) -> exp.Expr:
        """A template with a column and a text."""
        self.values.append(text)
        return _filled(template, self.target.name, c=column, v=exp.Var(this=_MARK))

    def among(
        self, texts: Sequence[str], rows: _Rows | None = None, compared: exp.Expr | None = None, *, other: bool = False
    ) -> exp.Expr:
        """The condition that a value, by default the path, is one of these; with `rows`, of the paths that are allowed there, or not."""
        compared = compared or self.path
        if rows is not None:
            depth = len(self.columns)
            names = tuple(exp.column(f"name{number}") for number in range(1, depth + 1))
            stored = _Texts(names, self.target, self.values).path
            select = rows.select([stored], self.target, self.values, {"depth": depth, "allowed": int(not other)})
            found: exp.Expr = exp.In(this=compared, query=exp.Subquery(this=select))
        else:
            self.values.extend(texts)
            # SQLGlot would take longer to print thousands of parameters than databases take to look at a million rows.
            listed = exp.Var(this=", ".join([self.value(exp.Var(this=_MARK)).sql(self.target.name)] * len(texts)))
            one = len(texts) == 1
            found = exp.EQ(this=compared, expression=listed) if one else exp.In(this=compared, expressions=[listed])
        return _not(found) if other else found

    def usable(self) -> exp.Expr:
        """The condition that the texts have no character that names and values cannot have."""
        pattern = self.target.flags + self.target.pattern
        column = self.exact(self.columns) if len(self.columns) > 1 else self.columns[0]
        return _not(exp.paren(self.filled(self.target.unusable or self.target.finds, pattern, column), copy=False))

    def valid(self, bounded: Iterable[tuple[exp.Expr, int]]) -> Iterator[exp.Expr]:
        """The conditions that make the texts names; texts of `bounded` columns are paths of at most so many."""
        for column in self.columns:
            yield exp.NEQ(this=self.exact([column]), expression=self.value(exp.Literal.string("")))
        yield self.usable()
        for column, most in bounded:
            pattern = f"{self.target.flags}^{path_pattern(most)}$"
            yield exp.paren(self.filled(self.target.finds, pattern, column))


def _value(one: Value, column: exp.Expr | None, target: Dialect, values: list[str]) -> exp.Expr:
    """A condition on an attribute; one without a column has no value."""
    if column is None:
        return exp.true() if one.absent else exp.false()
    is_null = exp.Is(this=column.copy(), expression=exp.Null())
    if one.absent:
        return is_null
    typed = [_filled(target.typed[one.type], target.name, c=column)] if one.type in target.typed else []
    if one.between is not None:
        low, high = map(exp.Literal.number, one.between)
        return _all((exp.Between(this=column.copy(), low=low, high=high), *typed))
    if one.type != "text":
        return _all((exp.In(this=column.copy(), expressions=[exp.convert(value) for value in one.values]), *typed))
    texts = _Texts((column,), target, values)
    listed = [texts.among([str(value) for value in one.values])] if one.values else []
    if not one.other:
        return _all((*listed, *typed))
    short = exp.LTE(this=exp.Length(this=exp.cast(column, "text")), expression=exp.Literal.number(MOST_TEXT))
    return _all((_not(is_null), *map(_not, listed), texts.usable(), short, *typed))


def _one_of(one: OneOf, texts: _Texts, rows: _Rows | None) -> exp.Expr:
    target = texts.target
    if rows is not None:
        return texts.among(one.names, rows, other=one.other) if one.names else exp.true()
    listed = [texts.among(one.names)] if one.names else []
    by_length: dict[int, list[str]] = {}
    for path in one.above:
        begin = f"{path}/"
        by_length.setdefault(len(begin.encode()) if target.bytes else len(begin), []).append(begin)
    for length, begins in sorted(by_length.items()):
        numbers = map(exp.Literal.number, (1, length))
        listed.append(texts.among(begins, None, exp.func("SUBSTR", texts.path, *numbers, dialect=target.name)))
    if one.other:
        return _all(map(_not, listed)) if listed else exp.true()
    return _any(listed) if listed else exp.false()


@cache
def _template(text: str, dialect_name: str) -> exp.Expr:
    return sqlglot.parse_one(text, dialect=dialect_name)


def _filled(text: str, dialect_name: str, **parts: exp.Expr) -> exp.Expr:
    copies = {name: part.copy() for name, part in parts.items()}
    return exp.replace_placeholders(_template(text, dialect_name), **copies)


# Parts are joined as they are: SQLGlot would copy all of them for each.


def _all(parts: Iterable[exp.Expr]) -> exp.Expr:
    return exp.and_(*parts, copy=False)


def _any(parts: Iterable[exp.Expr]) -> exp.Expr:
    return exp.or_(*parts, copy=False)


def _not(part: exp.Expr) -> exp.Expr:
    return exp.not_(part, copy=False)


def _with_parameters(text: str, values: Sequence[str], style: ParameterStyle, prefix: str, form: Form) -> Sql:
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
    return Sql("".join(marked), tuple(values), names, form)
