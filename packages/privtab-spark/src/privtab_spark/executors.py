"""Decide whole DataFrames through a client in each executor: an OPA, or bundles evaluated in process.

For policies or states that are available only to a decision point. The distinct requests of a chunk of rows are sent in batches.
"""

from __future__ import annotations

import os
import pickle
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, TypeAlias, Unpack

import numpy as np
import pyarrow as pa

from privtab.base import LEFT_OUT, NOT_SET, DecisionError, Entity, InvalidRequest, Request, UsageError, Vocabulary
from privtab.client import Asker, Embedded
from privtab.client import connect as connect_to
from privtab.engines import GivenColumns, Unevaluated
from privtab_spark.arguments import RequestArguments, read_arguments
from privtab_spark.attribute_columns import values
from privtab_spark.deciding import AnswerNames
from privtab_spark.distinct import distinct_requests
from privtab_spark.frames import Frame, flag_column, opened
from privtab_spark.kernel import CODES, NO_ANSWER, Layout, mapped, readable
from privtab_spark.preflight import check_executors
from privtab_spark.refresh import REFRESH, check_refresh
from privtab_spark.shipping import WorkerCache

Connect: TypeAlias = "str | os.PathLike[str] | Asker | Callable[[], Asker]"
"""The argument of `privtab.connect`, a client, or a function without arguments that makes one in the executor."""
ROWS = 1 << 15
"""Rows in a chunk."""
STRICT_MAX_STALENESS = 1.0
"""Seconds for which bundles that are checked for each chunk stay valid while the check fails."""
_UNANSWERED = CODES.index(NO_ANSWER)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PortableDecisionPoint:
    """The decision point, in a form that can be sent to executors."""

    key: str
    where: str | None = None
    pickled: bytes | None = field(default=None, repr=False)
    """The client, or the function that makes it, pickled."""
    on_error: str = "fail"
    refresh: float | None = None
    """Seconds after which bundles must have been checked again; None: they are never checked again."""


def decide_with(
    df: Frame,
    connect: Connect,
    *,
    on_error: Literal["fail", "deny"] = "fail",
    rows: int = ROWS,
    allowed: str = "allowed",
    reason: str = "reason",
    refresh: float | None = REFRESH,
    **arguments: Unpack[RequestArguments],
) -> Frame:
    """Like `decide`, but through a decision point: executors send it the distinct requests of each chunk of `rows`.

    `connect`: the address of an OPA or the location of bundles, reachable from the executors; a client; or a function that makes
    one, such as `lambda: Embedded("/bundles")`. The driver uses it too, to read the names of the policy. `on_error`:
    `fail` ends the job with the client's error; `deny` denies the rows that got no answer, with the reason `no answer`.

    On a stream, bundles are checked for changes, so that no answer is based on a check more than `refresh` seconds old. An OPA
    polls for its bundles itself. Raises UsageError for a client that never checks its bundles again.
    """
    if on_error not in ("fail", "deny"):
        raise UsageError(f"on_error is `{on_error}`: it is `fail` or `deny`")
    check_refresh(refresh)
    frame, to_caller = opened(df, (allowed, reason))
    names = AnswerNames(allowed, reason).checked(frame)
    point = _point(connect, on_error, refresh if frame.isStreaming else None)
    client = _client(point)
    if frame.isStreaming and refresh is not None:
        _check_followed(client)
    vocabulary = client.vocabulary()
    request = read_arguments(frame, vocabulary, **arguments, taken=names[:2])
    check_executors(frame.sparkSession, "requests")
    layout = Layout.of(request, rows)
    coded = mapped(request, partial(codes, point, vocabulary, layout), rows)
    return to_caller(names.answered(request, coded))


def _point(connect: Connect, on_error: str, refresh: float | None) -> _PortableDecisionPoint:
    if isinstance(connect, str | os.PathLike):
        where = os.fspath(connect)
        return _PortableDecisionPoint(key=f"{where} {refresh}", where=where, on_error=on_error, refresh=refresh)
    if not (isinstance(connect, Asker) or callable(connect)):
        raise UsageError(f"{connect!r} is not a client: give an address, a client, or a function that makes one")
    from pyspark import cloudpickle

    pickled: bytes = cloudpickle.dumps(connect)  # type: ignore[no-untyped-call]
    return _PortableDecisionPoint(key=uuid.uuid4().hex, pickled=pickled, on_error=on_error)


def _check_followed(client: Asker) -> None:
    """Raise UsageError for an Embedded that never checks its bundles again."""
    if isinstance(client, Embedded) and client.still:
        raise UsageError(
            "the Embedded of a stream keeps its first bundles: give it `refresh=`, give the location of the bundles "
            "instead, or pass `refresh=None` to accept this"
        )


# --- on executors ----------------------------------------------------------------------------------------------------

_CLIENTS: WorkerCache[str, Asker] = WorkerCache(lambda client: client.close())


def _client(point: _PortableDecisionPoint) -> Asker:
    """The client of this process for a decision point."""
    return _CLIENTS.get(point.key, lambda: _open_client(point))


def _open_client(point: _PortableDecisionPoint) -> Asker:
    if point.where is not None:
        found = connect_to(point.where)
        if point.refresh is None or not isinstance(found, Embedded):
            return found
        return Embedded(point.where, refresh=point.refresh / 2, max_staleness=point.refresh or STRICT_MAX_STALENESS)
    assert point.pickled is not None
    unpickled = pickle.loads(point.pickled)  # noqa: S301  (pickled by our driver)
    client = unpickled if isinstance(unpickled, Asker) else unpickled()
    if not isinstance(client, Asker):
        raise UsageError(f"`connect` made a {type(client).__name__}, which is not a client")
    return client


def codes(point: _PortableDecisionPoint, vocabulary: Vocabulary, layout: Layout, columns: list[pa.Array]) -> pa.Array:
    """The codes of requests in the columns of a layout; `vocabulary` is the one that the driver read."""
    columns = [readable(column) for column in columns]
    # Rows with lists are not deduplicated here; the client sends equal requests only once anyway.
    no_lists = not any(pa.types.is_nested(column.type) for column in columns)
    distinct_rows = distinct_requests(columns) if no_lists and columns else None
    if distinct_rows is not None:
        columns = [column.take(pa.array(distinct_rows[0])) for column in columns]
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    found = [_request(layout, dict(zip(layout.columns, row, strict=True)), vocabulary) for row in rows]
    request_codes = iter(_decide_requests(point, [item for item in found if isinstance(item, Request)]))
    row_codes = (next(request_codes) if isinstance(item, Request) else item + 1 for item in found)
    decided = np.fromiter(row_codes, np.int8, len(found))
    return pa.array(decided if distinct_rows is None else decided[distinct_rows[1]])


def _decide_requests(point: _PortableDecisionPoint, requests: list[Request]) -> list[int]:
    """The code of each request; either all requests of a chunk are answered or none."""
    if not requests:
        return []
    try:
        return [int(yes is not True) for yes in _client(point).check_many(requests)]
    except DecisionError:
        if point.on_error != "deny":
            raise
        return [_UNANSWERED] * len(requests)


def _request(layout: Layout, row: Mapping[str, Any], vocabulary: Vocabulary) -> Request | int:
    """A row as a request, or the reason that it is not one, by its number."""
    cells = {**layout.constants, **row}
    user, action, kind, path = (cells.get(name) for name in ("user", "action", "type", "path"))
    if action is None or kind is None:
        return Unevaluated.NULL
    shape = vocabulary.operations.get(kind, {}).get(action)
    if shape is None:
        return Unevaluated.UNKNOWN
    if shape.missing_flags(layout.flags):
        return Unevaluated.FLAG
    withs: dict[str, Entity] = {}
    for slot, types in shape.withs.items():
        if LEFT_OUT in types and cells.get(f"with_{slot}_path") is None:
            continue
        if slot not in layout.slots:
            return Unevaluated.WITH
        slot_type, slot_path = cells[f"with_{slot}_type"], cells[f"with_{slot}_path"]
        if slot_type is None:
            return Unevaluated.NULL
        if slot_type not in types:
            return Unevaluated.WITH
        withs[slot] = Entity(slot_type, slot_path)
    groups, roles = cells.get("groups"), cells.get("active_roles")
    if not user or path is None or any(entity.id is None for entity in withs.values()):
        return Unevaluated.NULL
    if any(
        name in cells and (names is None or not all(names))
        for name, names in (("groups", groups), ("active_roles", roles))
    ):
        return Unevaluated.NULL
    request = Request(
        user=user,
        action=action,
        resource=Entity(kind, path),
        with_=withs,
        groups=tuple(groups or ()),
        active_roles=None if roles is None else tuple(roles),
        flags=frozenset(f"{n}{NOT_SET}" if cells[flag_column(n)] is False else n for n in layout.flags),
    )
    if layout.given:
        given = GivenColumns.read(values(layout.given, cells), vocabulary.attributes)
        types_by_slot = {"": kind, **{slot: entity.type for slot, entity in withs.items()}}
        [attributes] = given.of_types(vocabulary.attributes, types_by_slot).rows(1)
        request = replace(request, attributes=attributes)
        try:
            vocabulary.check_attributes(request)
        except InvalidRequest:
            return Unevaluated.ATTRIBUTE
    try:
        vocabulary.check(request)
    except InvalidRequest as error:
        message = str(error)
        if shape.needs_active_role and not roles and not message.startswith("malformed"):
            return Unevaluated.NO_ROLE
        malformed = Unevaluated.MALFORMED if message.startswith("malformed path") else Unevaluated.NAME
        return malformed if message.startswith("malformed") else Unevaluated.DEPTH
    return request
