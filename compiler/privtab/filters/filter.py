"""A filter: what one user may see of a type, for databases and data frames."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from privtab import moments
from privtab.engines.rows import RowEngine
from privtab.errors import DecisionUnavailable, InvalidRequest, UsageError
from privtab.filters import expression as expressions
from privtab.filters.expression import EVERYTHING, NOTHING, Expression
from privtab.filters.regions import regions
from privtab.hints import hint
from privtab.moments import ALWAYS, LAST, Window
from privtab.request import Request

if TYPE_CHECKING:
    from privtab.filters.sql import Sql


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Where a user may do an operation, as an expression over the names on the paths of a type; exactly where `check` allows it."""

    user: str
    action: str
    type: str
    levels: tuple[str, ...]
    """The type of each name on a path, from the root to the last."""
    expression: Expression
    bounds: Mapping[str, int] = field(default_factory=dict)
    """The most names of the level that nests, if one does: its column holds a path, `a/b`, in which each name is encoded."""
    window: Window = ALWAYS
    """The time in which this counts: at its end, some row of the state begins or ends to hold."""
    revision: str | None = None
    """The revision of the state."""

    @property
    def nothing(self) -> bool:
        """Whether there is nothing to see, whatever there is."""
        return self.expression == NOTHING

    @cached_property
    def size(self) -> int:
        """How many names the expression lists."""
        return expressions.size(self.expression)

    def allows(self, *names: str | None) -> bool:
        """Whether an entity with these names, unencoded and from the root down, is allowed; None is no name."""
        if len(names) != len(self.levels):
            raise UsageError(f"a `{self.type}` has the levels {', '.join(self.levels)}: give a name for each")
        return expressions.holds(self.expression, dict(zip(self.levels, names, strict=True)), self.bounds)

    def sql(self, dialect: str, columns: Mapping[str, str], **options: Any) -> Sql:
        """The condition of a WHERE in a dialect, and the values of its parameters: `filters.sql.sql`."""
        from privtab.filters.sql import sql

        return sql(self, dialect, columns, **options)

    def to_json(self) -> dict[str, Any]:
        """As JSON: the expression over the levels, and until when it counts."""
        found: dict[str, Any] = {
            "user": self.user,
            "action": self.action,
            "type": self.type,
            "levels": list(self.levels),
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
            if name not in self.levels:
                raise UsageError(f"`{name}` is no level of a `{self.type}`" + hint(name, self.levels))
        if missing := [level for level in self.levels if level not in columns]:
            raise UsageError(
                f"no column for {', '.join(missing)}: a `{self.type}` has the levels {', '.join(self.levels)}"
            )
        return {level: columns[level] for level in self.levels}


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
    allowed = [False] * len(found.examples)
    for position in engine.visible(request, found.examples):
        allowed[position] = True
    return Filter(
        user=request.user,
        action=request.action,
        type=request.resource.type,
        levels=found.levels,
        bounds=found.bounds,
        expression=found.expression(allowed),
        window=window,
        revision=engine.index.revision,
    )
