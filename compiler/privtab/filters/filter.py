"""A filter: what one user may see of a type, for databases and data frames."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from functools import cached_property
from hashlib import sha256
from itertools import compress
from typing import TYPE_CHECKING, Any, Unpack
from urllib.parse import quote

from privtab.base import moments
from privtab.base.attributes import Scalar
from privtab.base.errors import DecisionUnavailable, InvalidRequest, UnsupportedError, UsageError
from privtab.base.hints import hint
from privtab.base.moments import ALWAYS, FIRST, LAST, Window
from privtab.base.names import encode_name
from privtab.base.records import dataclass
from privtab.base.request import Request
from privtab.engines.rows import RowEngine
from privtab.filters import expression as expressions
from privtab.filters.concern import Concern, concern
from privtab.filters.expression import EDITION, EVERYTHING, NOTHING, Expression, Value, all_of, any_of
from privtab.filters.regions import Beginning, Regions, regions
from privtab.filters.values import choices, comparisons

if TYPE_CHECKING:
    from pyspark.sql import Column
    from sqlalchemy import TextClause

    from privtab.filters.sql import Sql, SqlOptions


@dataclass(frozen=True, kw_only=True)
class Filter:
    """The entities on which a user may do an operation, as an expression over the names on the paths of a type; exactly where `check` allows it.

    Example: `filter_of(engine, request).sql("postgresql", columns)`.
    """

    user: str
    action: str
    type: str
    system: str = ""
    version: str = ""
    policy: str | None = None
    """The revision of the policy."""
    context: str = ""
    """A digest of what else the request says, if anything: flags, groups, objects, active roles, attributes."""
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

    def rows(self, key: str | None = None) -> Iterator[tuple[Any, ...]]:
        """The rows of a table that `sql` asks instead of listing names, in the order of `columns_of_rows`.

        `key`: tells the rows of this filter from other filters' rows, by default the property. Raises UnsupportedError for what
        only a condition with the names can say.
        """
        if self.beginnings is None:
            raise UnsupportedError(f"rows cannot say where `{self.action}` is allowed on `{self.type}`: list the names")
        key = self.key if key is None else key
        for names, allowed in self.beginnings:
            yield (key, len(names), int(allowed), *names, *[None] * (len(self.levels) - len(names)))
        # Comes last, so that nothing is allowed until all rows are there.
        yield (key, EDITION, 0, *[self.edition, *[None] * len(self.levels)][: len(self.levels)])

    def among(self, paths: Sequence[str]) -> Sequence[str]:
        """The allowed paths, among sorted paths of entities; raises UnsupportedError as `rows`."""
        allowed = bytearray(len(paths))
        _edition, *rows = sorted(self.rows(), key=lambda row: row[1])
        for _, depth, allows, *names in rows:
            path = "/".join(encode_name(str(name)) for name in names[:depth])
            whole = depth == len(self.levels)
            begin, end = (path, f"{path}\0") if whole else (f"{path}/", f"{path}0")  # `0` follows on `/`
            first, last = (bisect_left(paths, begin), bisect_left(paths, end)) if depth else (0, len(paths))
            allowed[first:last] = bytes([allows]) * (last - first)
        return list(compress(paths, allowed))

    @property
    def columns_of_rows(self) -> tuple[str, ...]:
        """The columns of `rows`: which filter, how many names, whether what begins so is allowed (1) or not (0), and the names."""
        return ("filter", "depth", "allowed", *(f"name{number}" for number in range(1, len(self.levels) + 1)))

    @property
    def key(self) -> str:
        """The key of a filter's rows, unless the caller gives another: the policy, and the question."""
        policy = f"{self.system}/{quote(self.version)}"  # so no blank but those of the user's name divides otherwise
        return f"{policy} {self.user} {self.action} {self.type}" + (f" #{self.context}" if self.context else "")

    @property
    def edition(self) -> str:
        """The basis of a filter's rows: the revisions of the policy and the state, and until when they count."""
        until = "" if self.window.end == LAST else f" until {moments.moment_text(self.window.end)}"
        return f"{self.policy or ''} {self.revision or ''}{until}"

    @property
    def nothing(self) -> bool:
        """True if there is nothing to see, in any state of the entities."""
        return self.expression == NOTHING

    @cached_property
    def size(self) -> int:
        """The number of names that the expression lists."""
        return expressions.size(self.expression)

    def allows(self, *names: str | None, **attributes: object) -> bool:
        """Return whether an entity with these names, unencoded and from the root down, and these attributes is allowed; None is none."""
        if len(names) != len(self.levels):
            raise UsageError(f"a `{self.type}` has the levels {', '.join(self.levels)}: give a name for each")
        return expressions.holds(self.expression, dict(zip(self.levels, names, strict=True)), self.bounds, attributes)

    def quoted_levels(self, dialect: str) -> dict[str, str]:
        """The column of each level that is named as the level is, as a dialect quotes it: for `sql`."""
        from privtab.filters.sql import quoted_identifier

        return {level: quoted_identifier(level, dialect) for level in self.levels}

    def sql(self, dialect: str, columns: Mapping[str, str], **options: Unpack[SqlOptions]) -> Sql:
        """The condition of a WHERE in a dialect, and the values of its parameters.

        `columns`: the column of each level, as `t.name`. UsageError: a column that is none, or a level without one.
        UnsupportedError: it would list more names than `most`.
        """
        from privtab.filters.sql import sql

        options.setdefault("key", self.key)
        return sql(
            self.expression,
            dialect,
            self.mapped(columns),
            bounds=self.bounds,
            beginnings=self.beginnings,
            edition=self.edition,
            **options,
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

    def ibis(self, columns: Mapping[str, Any]) -> Any:
        """The condition for `Table.filter` of Ibis, in back ends with SHA-256 (DuckDB, Spark); `columns`: a column for each level."""
        from privtab.filters.columns import ibis_expression

        return ibis_expression(self.expression, self.mapped(columns), self.bounds)

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
            found["until"] = moments.moment_text(self.window.end)
        return found if self.revision is None else {**found, "revision": self.revision}

    def mapped(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        """The column of each level. Raises UsageError if one is missing, or is that of no level."""
        if self.expression == EVERYTHING:
            return dict(columns)
        known = (*self.levels, *self.attributes)
        if unknown := [name for name in columns if name not in known]:
            what = "level or attribute" if self.attributes else "level"
            raise UsageError(f"`{unknown[0]}` is no {what} of a `{self.type}`" + hint(unknown[0], known))
        if missing := ", ".join(level for level in self.levels if level not in columns):
            raise UsageError(f"no column for {missing}: a `{self.type}` has the levels {', '.join(self.levels)}")
        return {name: columns[name] for name in known if name in columns}


@dataclass(frozen=True, kw_only=True)
class Question:
    """The question to an engine from which a filter follows: about each of the examples, once for each choice of attributes."""

    program: Mapping[str, Any]
    request: Request
    concern: Concern
    found: Regions
    choices: tuple[tuple[tuple[Value, ...], Mapping[str, Scalar]], ...]

    @classmethod
    def of(cls, engine: RowEngine, request: Request, concern: Concern) -> Question:
        """The question about a request whose names were checked; of the engine, only the program counts.

        Raises UnsupportedError for types that cannot be mapped to columns.
        """
        if request.attributes.entity:
            raise InvalidRequest(
                "a filter is about many entities: their attributes come from columns, not from the request"
            )
        compared = comparisons(engine, request)
        found = regions(engine.reader, request, concern, compared)
        chosen = tuple(choices(engine.reader, request, concern, compared))
        if both := next((value.attribute for value in chosen[0][0] if value.attribute in found.levels), None):
            raise UnsupportedError(
                f"`{both}` is an attribute and a level of a `{request.resource.type}`: columns cannot tell them apart"
            )
        return cls(program=engine.program, request=request, concern=concern, found=found, choices=chosen)

    def requests(self, given: Mapping[str, Scalar]) -> Iterator[Request]:
        """The requests about the examples, if each has these attributes."""
        attributes = replace(self.request.attributes, entity=given)
        return (replace(self.request, resource=example, attributes=attributes) for example in self.found.examples)

    def answered(self, answers: Iterable[Collection[int]], begin: int = FIRST) -> Filter:
        """The filter, from the positions of the examples that are allowed, for each choice."""
        found, by_answers = self.found, dict[tuple[bool, ...], list[Expression]]()
        for (values, _), positions in zip(self.choices, map(frozenset, answers), strict=True):
            allowed = tuple(position in positions for position in range(len(found.examples)))
            by_answers.setdefault(allowed, []).append(all_of(values))
        beginnings = None
        attributes = tuple(sorted({value.attribute for value in self.choices[0][0]}))
        if not attributes:  # then there is one choice
            with suppress(UnsupportedError):
                beginnings = tuple(found.beginnings(next(iter(by_answers))))
        said = self.request.to_json()
        besides = [part for part in (said.get("context"), said["subject"].get("properties")) if part]
        return Filter(
            system=self.program["system"],
            version=self.program["version"],
            policy=self.program.get("revision"),
            context=sha256(json.dumps(besides, sort_keys=True).encode()).hexdigest()[:16] if besides else "",
            user=self.request.user,
            action=self.request.action,
            type=self.request.resource.type,
            levels=found.levels,
            bounds=found.bounds,
            attributes=attributes,
            expression=any_of(all_of([any_of(ways), found.expression(a)]) for a, ways in by_answers.items()),
            beginnings=beginnings,
            window=Window(begin, self.concern.end),
            revision=self.concern.revision,
        )


def filter_of(engine: RowEngine, request: Request, window: Window = ALWAYS) -> Filter:
    """The filter of a request for all entities of its resource's type; the names in the request were checked.

    Raises UnsupportedError for types that cannot be mapped to columns, DecisionUnavailable if shards of the state are missing.

        filter_of(engine, request).sql("postgresql", columns)
    """
    if engine.index.missing:
        raise DecisionUnavailable(
            f"a filter needs the whole state: the shard of `{min(engine.index.missing)}` is missing"
        )
    question = Question.of(engine, request, concern(engine, request, window.end))

    def allowed(given: Mapping[str, Scalar]) -> Collection[int]:
        if not given:
            return engine.visible(request, question.found.examples)
        return [position for position, asked in enumerate(question.requests(given)) if engine.allow(asked)]

    return question.answered((allowed(given) for _, given in question.choices), window.begin)
