"""`register_function`: decisions as an SQL function, `SELECT may(user, 'load', path)`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from privtab.attributes import KINDS, requested
from privtab.errors import InvalidRequest, UsageError
from privtab.hints import hint
from privtab.spark.attribute_columns import COLUMN_TYPES, AttributeColumn, declared
from privtab.spark.following import REFRESH, FollowedState, check_refresh, followed
from privtab.spark.frames import flag_column
from privtab.spark.kernel import Layout, decided_codes
from privtab.spark.policies import OpenPolicy, PolicyLike, open_policy
from privtab.spark.preflight import check_executors
from privtab.spark.states import prepared

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from privtab.spark.shipping import ShippedBytes

ARGUMENTS = 3
"""The arguments before those that give attributes."""
_COLUMNS = ("user", "action", "type", "path")


def register_function(
    spark: SparkSession,
    policy: PolicyLike,
    state: Any,
    *,
    name: str = "may",
    type: str | None = None,  # noqa: A002  (as in Entity)
    flags: Iterable[str] = (),
    attributes: Iterable[str] = (),
    refresh: float | None = REFRESH,
) -> None:
    """Register an SQL function `may(user, action, resource)` in a session; it returns true or false, never null.

    `resource` is an entity, `'table:m/c/s/t'`, or with `type="table"` only the path. `flags` are set for all calls.
    `attributes`: those that further arguments give, in this order: `["request.mfa", "user.rank", "entity.color"]`. The result is
    false for arguments that form no valid request: a null, a malformed path, an operation that needs a second object.

    The function checks the state for changes, so that no answer is based on a check more than `refresh` seconds old; the state must
    be a path or an address that executors can reach. With `refresh=None`, any state that `decide` takes is read now, once.
    """
    check_refresh(refresh)
    opened = open_policy(policy)
    set_flags, given = _flags(opened, flags), _given(opened, attributes)
    if type is not None and type not in opened.vocabulary.chains:
        raise InvalidRequest(f"unknown entity type `{type}`" + hint(type, opened.vocabulary.chains))
    check_executors(spark)
    source = prepared(opened, state, spark).ship(spark) if refresh is None else followed(opened, state, refresh)
    layout = Layout(
        columns=(*_COLUMNS, *(str(attribute.column) for attribute in given)),
        constants=dict.fromkeys((flag_column(flag) for flag in set_flags), True),
        slots=(),
        flags=set_flags,
        given=given,
    )
    types = [opened.vocabulary.attributes.of(attribute.kind)[attribute.name].type for attribute in given]
    spark.udf.register(name, _function(source, layout, type, types))


def _flags(policy: OpenPolicy, flags: Iterable[str]) -> tuple[str, ...]:
    if isinstance(flags, str):
        raise UsageError(f"flags is the text `{flags}`: give a list of names")
    known = {f for shapes in policy.vocabulary.operations.values() for shape in shapes.values() for f in shape.flags}
    found = tuple(dict.fromkeys(flags))
    for flag in found:
        if flag not in known:
            raise InvalidRequest(f"unknown flag `{flag}`" + hint(flag, known))
    return found


def _given(policy: OpenPolicy, attributes: Iterable[str]) -> tuple[AttributeColumn, ...]:
    if isinstance(attributes, str):
        raise UsageError(f"attributes is the text `{attributes}`: give a list of names")
    found = []
    for number, place in enumerate(attributes):
        kind, _, name = place.partition(".")
        if kind not in KINDS:
            raise InvalidRequest(f"unknown attribute `{place}`: write KIND.NAME, as in request.mfa" + hint(kind, KINDS))
        requested(name, *declared(policy.vocabulary, kind))
        found.append(AttributeColumn(kind=kind, slot="", name=name, column=f"attribute_{number}"))
    return tuple(found)


def _function(source: ShippedBytes | FollowedState, layout: Layout, type_: str | None, types: Sequence[str]) -> Any:
    try:
        from pyspark.sql.pandas.functions import arrow_udf
    except ImportError:
        return _of_series(source, layout, type_, types)

    # Spark reads these annotations.
    def may(columns: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        from privtab.spark.functions import answers

        yield from answers(source, layout, type_, types, columns)

    return arrow_udf(may, "boolean")  # type: ignore[call-overload]


def _of_series(source: ShippedBytes | FollowedState, layout: Layout, type_: str | None, types: Sequence[str]) -> Any:
    """For Spark 4.0, which lacks `arrow_udf`."""
    import pandas as pd
    from pyspark.sql.pandas.functions import pandas_udf

    def may(*columns: pd.Series) -> pd.Series:
        from privtab.spark.functions import answers

        arrays = tuple(pa.array(column, from_pandas=True) for column in columns)
        parts = answers(source, layout, type_, types, iter([arrays]))
        return pd.Series([yes for part in parts for yes in part.to_pylist()])

    may.__annotations__ = dict.fromkeys(("columns", "return"), pd.Series)
    return pandas_udf(may, "boolean")  # type: ignore[call-overload]


# --- on executors ----------------------------------------------------------------------------------------------------


def answers(
    source: ShippedBytes | FollowedState,
    layout: Layout,
    type_: str | None,
    types: Sequence[str],
    columns: Iterable[tuple[pa.Array, ...]],
) -> Iterator[pa.Array]:
    """Whether each row is allowed; `columns` has the users, operations and resources of each batch, then attributes of some types."""
    requests = (
        (
            *_request(*(_texts(column) for column in part[:ARGUMENTS]), type_=type_),
            *(_values(part[n], types[n - ARGUMENTS], n + 1) for n in range(ARGUMENTS, len(part))),
        )
        for part in columns
    )
    for codes in decided_codes(source, layout, requests):
        yield pc.equal(codes, 0)


def _texts(column: pa.Array) -> pa.Array:
    """The column as strings, with null for invalid UTF-8."""
    from privtab.spark.kernel import readable

    return readable(column.cast(pa.string()))


def _values(column: pa.Array, type_: str, number: int) -> pa.Array:
    """The values of an attribute, the argument with a number; raises UsageError for a column of another type."""
    own = COLUMN_TYPES[type_]
    if not own.arrow_suits(column.type) and not pa.types.is_null(column.type):
        raise UsageError(f"argument {number} of the function is of the type `{column.type}`: {own.wanted} is wanted")
    return column.cast(own.arrow)


def _request(users: pa.Array, actions: pa.Array, resources: pa.Array, *, type_: str | None) -> tuple[pa.Array, ...]:
    users = pc.replace_substring_regex(users, "^user:", "")
    if type_ is not None:
        return users, actions, pa.repeat(pa.scalar(type_, pa.string()), len(users)), resources
    parts = pc.extract_regex(resources, r"(?s)^(?P<type>[^:]+):(?P<path>.*)$")
    return users, actions, pc.struct_field(parts, "type"), pc.struct_field(parts, "path")
