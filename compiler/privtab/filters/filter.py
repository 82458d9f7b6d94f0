"""A filter: what one user may see of a type, for databases and data frames."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Unpack

from privtab import moments
from privtab.attributes import Scalar
from privtab.engines.rows import RowEngine
from privtab.errors import DecisionUnavailable, InvalidRequest, UnsupportedError, UsageError
from privtab.filters import expression as expressions
from privtab.filters.expression import EVERYTHING, NOTHING, Expression, Value, all_of, any_of
from privtab.filters.regions import Beginning, regions
from privtab.filters.values import choices
from privtab.hints import hint
from privtab.moments import ALWAYS, LAST, Window
from privtab.request import Entity, Request

if TYPE_CHECKING:
    from pyspark.sql import Column
    from sqlalchemy import TextClause

    from privtab.filters.sql import Sql, SqlOptions


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Where a user may do an operation, as an expression over the names on the paths of a type; exactly where `check` allows it."""

    user: str
    action: str
    type: str
    levels: tuple[str, ...] = ()
    """The type of each name on a path, from the root to the last."""
    expression: Expression = EVERYTHING
    attributes: tuple[str, ...] = ()
    """The attributes of the entity that count. One that has no column has no value."""
    bounds: Mapping[str, int] = field(default_factory=dict)
    """The most names of the level that nests, if one does: its column holds a path, `a/b`, in which each name is encoded."""
    beginnings: tuple[Beginning, ...] | None = field(default=None, repr=False)
    """The same as beginnings of paths, for `rows`; None if these cannot say it."""
    window: Window = ALWAYS
    """The time in which this counts: at its end, some row of the state begins or ends to hold."""
    revision: str | None = None
    """The revision of the state."""

    def rows(self, key: str | None = None) -> Iterator[tuple[object, ...]]:
        """The rows of a table that `sql` asks instead of listing names, in the order of `columns_of_rows`.

        `key`: how the rows of this filter are told from those of others; by default, the user, the operation and the type. Raises
        UnsupportedError for what only a condition with the names can say.
        """
        if self.beginnings is None:
            raise UnsupportedError(f"rows cannot say where `{self.action}` is allowed on `{self.type}`: list the names")
        for names, allowed in self.beginnings:
            padding = [None] * (len(self.levels) - len(names))
            yield (self.key if key is None else key, len(names), int(allowed), *names, *padding)

    @property
    def columns_of_rows(self) -> tuple[str, ...]:
        """The columns of `rows`: which filter, how many names, whether what begins so is allowed (1) or not (0), and the names."""
        return ("filter", "depth", "allowed", *(f"name{number}" for number in range(1, len(self.levels) + 1)))

    @property
    def key(self) -> str:
        """What tells the rows of a filter from those of others, unless the caller says otherwise."""
        return f"{self.user} {self.action} {self.type}"

    @property
    def nothing(self) -> bool:
        """Whether there is nothing to see, whatever there is."""
        return self.expression == NOTHING

    @cached_property
    def size(self) -> int:
        """How many names the expression lists."""
        return expressions.size(self.expression)

    def allows(self, *names: str | None, **attributes: object) -> bool:
        """Whether an entity with these names, unencoded and from the root down, and these attributes is allowed; None is none."""
        if len(names) != len(self.levels):
            raise UsageError(f"a `{self.type}` has the levels {', '.join(self.levels)}: give a name for each")
        return expressions.holds(self.expression, dict(zip(self.levels, names, strict=True)), self.bounds, attributes)

    def sql(self, dialect: str, columns: Mapping[str, str], **options: Unpack[SqlOptions]) -> Sql:
        """The condition of a WHERE in a dialect, and the values of its parameters.

        `columns`: the column of each level, as `t.name`. UsageError: a column that is none, or a level without one.
        UnsupportedError: it would list more names than `most`.
        """
        from privtab.filters.sql import sql

        options.setdefault("key", self.key)
        return sql(
            self.expression, dialect, self.mapped(columns), bounds=self.bounds, beginnings=self.beginnings, **options
        )

    def sqlalchemy(self, dialect: str, columns: Mapping[str, Any], **options: Unpack[SqlOptions]) -> TextClause:
        """The condition for `Select.where` of SQLAlchemy; `columns`: a column or its text for each level. The rest as of `sql`.

        `prefix` tells the parameters of several filters in one statement apart.
        """
        from privtab.filters.columns import sqlalchemy_clause, sqlalchemy_names

        options.setdefault("prefix", "privtab_")
        options["style"] = "named"
        where = self.sql(dialect, sqlalchemy_names(columns, dialect), **options)
        return sqlalchemy_clause(where.text, where.named)

    def spark(self, columns: Mapping[str, Any]) -> Column:
        """The condition for `DataFrame.where` of PySpark, Classic or Connect; `columns`: a column or its name for each level."""
        from privtab.filters.columns import spark_column

        return spark_column(self.expression, self.mapped(columns), self.bounds)

    def to_json(self) -> dict[str, Any]:
        """As JSON: the expression over the levels, and until when it counts."""
        found: dict[str, Any] = {
            "user": self.user,
            "action": self.action,
            "type": self.type,
            "levels": list(self.levels),
            **({"attributes": list(self.attributes)} if self.attributes else {}),
            "where": expressions.to_json(self.expression),
        }
        if self.window.end != LAST:
            found["until"] = moments.text(self.window.end)
        return found if self.revision is None else {**found, "revision": self.revision}

    def mapped(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        """The column of each level. Raises UsageError if one is missing, or is that of no level."""
        if self.expression == EVERYTHING:
            return dict(columns)
        for name in columns:
            if name not in (*self.levels, *self.attributes):
                what = "level or attribute" if self.attributes else "level"
                raise UsageError(
                    f"`{name}` is no {what} of a `{self.type}`" + hint(name, (*self.levels, *self.attributes))
                )
        if missing := [level for level in self.levels if level not in columns]:
            raise UsageError(
                f"no column for {', '.join(missing)}: a `{self.type}` has the levels {', '.join(self.levels)}"
            )
        return {name: columns[name] for name in (*self.levels, *self.attributes) if name in columns}


def _allowed(
    engine: RowEngine, request: Request, examples: Sequence[Entity], given: Mapping[str, Scalar]
) -> Sequence[int]:
    """The positions of the entities on which a request is allowed if each has these attributes."""
    if not given:
        return engine.visible(request, examples)
    attributes = replace(request.attributes, entity=given)
    requests = (replace(request, resource=example, attributes=attributes) for example in examples)
    return [position for position, asked in enumerate(requests) if engine.allow(asked)]


def filter_of(engine: RowEngine, request: Request, window: Window = ALWAYS) -> Filter:
    """Where a request is allowed, whatever entity of its resource's type it names; the names in the request were checked.

    Raises UnsupportedError for types that cannot be mapped to columns, DecisionUnavailable if shards of the state are missing.
    """
    if engine.index.missing:
        raise DecisionUnavailable(
            f"a filter needs the whole state: the shard of `{min(engine.index.missing)}` is missing"
        )
    if request.attributes.entity:
        raise InvalidRequest(
            "a filter is about many entities: their attributes come from columns, not from the request"
        )
    found = regions(engine, request)
    values: tuple[Value, ...] = ()
    by_answers: dict[tuple[bool, ...], list[Expression]] = {}
    for values, given in choices(engine, request, found.examples):
        positions = set(_allowed(engine, request, found.examples, given))
        allowed = tuple(position in positions for position in range(len(found.examples)))
        by_answers.setdefault(allowed, []).append(all_of(values))
    conditions = (all_of([any_of(ways), found.expression(allowed)]) for allowed, ways in by_answers.items())
    beginnings = None
    if not values:  # then all have the same answers
        with suppress(UnsupportedError):
            beginnings = tuple(found.beginnings(next(iter(by_answers))))
    attributes = tuple(sorted({value.attribute for value in values}))
    if both := next((name for name in attributes if name in found.levels), None):
        raise UnsupportedError(
            f"`{both}` is an attribute and a level of a `{request.resource.type}`: columns cannot tell them apart"
        )
    return Filter(
        user=request.user,
        action=request.action,
        type=request.resource.type,
        levels=found.levels,
        bounds=found.bounds,
        attributes=attributes,
        expression=any_of(conditions),
        beginnings=beginnings,
        window=window,
        revision=engine.index.revision,
    )
