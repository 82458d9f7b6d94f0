"""`decide`: adds decisions, and the effects of success, to the rows of a DataFrame."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack, cast

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (the conventional name)

from privtab.base import Change, UsageError, Vocabulary
from privtab.ir import RESOURCE
from privtab_spark.arguments import (
    ColumnLike,
    FlagsLike,
    RequestArguments,
    RequestColumns,
    ResourceLike,
    read_arguments,
)
from privtab_spark.attribute_columns import AttributesLike
from privtab_spark.choose import Limits, choose_plan, with_workers
from privtab_spark.choose import begin as prepare_ahead
from privtab_spark.frames import Frame, free, opened
from privtab_spark.kernel import answer_columns, decide_by_kernel
from privtab_spark.moments import Moment, at_moment, each_moment, is_column
from privtab_spark.policies import OpenPolicy, PolicyLike, open_policy
from privtab_spark.preflight import begin, check_executors
from privtab_spark.refresh import REFRESH, followed
from privtab_spark.states import drop_cached, prepared, spark_state, timed_rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


NO_TIME = "null"
"""The reason for a row whose time is null."""
log = logging.getLogger("privtab.spark")


class BatchArguments(RequestArguments, total=False):
    """The keyword arguments of `decide`, for functions that pass them on; `decide` defines the defaults."""

    plan: str
    limits: Limits | None
    allowed: str
    reason: str
    effects: str | None
    at: Moment | Column


def decide(
    df: Frame,
    policy: PolicyLike,
    state: Any,
    *,
    subject: ColumnLike,
    action: ColumnLike,
    resource: ResourceLike,
    with_: Mapping[str, ResourceLike] | None = None,
    flags: FlagsLike = (),
    groups: ColumnLike | None = None,
    active_roles: ColumnLike | None = None,
    attributes: AttributesLike | None = None,
    plan: str = "auto",
    limits: Limits | None = None,
    allowed: str = "allowed",
    reason: str = "reason",
    effects: str | None = None,
    refresh: float | None = REFRESH,
    at: Moment | Column = None,
) -> Frame:
    """The rows of `df` with two more columns: `allowed`, never null, and `reason`, null for allowed rows.

    `subject`: the column of user names. `action`: the operation of all rows, or a Column of operations. `resource`: a column of
    entities `type:path`, or (type of all rows, column of paths). `with_`: further objects by name, each like `resource`. `flags`:
    names of flags that are set for all rows, or a mapping from name to value. `groups`: a column of arrays, for policies that take
    groups from requests. `active_roles`: the same, for policies whose requests name active roles. `attributes`: as in
    `Client.check`, with a column in the place of each value: `{"request": {"mfa": "mfa"}, "with": {"to": {"team": F.col("team")}}}`; True,
    False, a number or a list is the value of all rows, null is no value. `reason` is `not granted` for a denied request, otherwise it says why the row is not a valid request.

    `effects`: the name of a further column, with what success changes: an array, empty for denied rows, with a struct for each effect:
    its text in `effect`, and whether (`action`) it adds to a `table` of the state or removes from it which `row`, or the rows `about`
    which principal. Not where a type nests or ids are flat.

    `state`: a SparkState, a State, a mapping of DataFrames, or the path of rows or of a bundle; it is read now, once. `plan`:
    `kernel`, `portions` or `auto`, which chooses by the size of the state (`privtab_spark.plan` and the log say which and why).
    `limits`: limits beyond which the state is divided into portions.

    A stream checks the state for changes: no answer is based on a check more than `refresh` seconds old; 0: checks for each chunk of
    rows; None: the state is read now, once. The state must be a path or an address that executors can reach; otherwise use
    `each_batch`.

    `at`: the time for which rows of the state with `from` or `until` count: a datetime with a time zone, a text such as
    2026-03-03T12:00Z, or a Column of timestamps with one for each row. Default: the time of this call, one for all rows; for a
    stream, the time at which a chunk of rows is decided.
    """
    new = (allowed, reason) if effects is None else (allowed, reason, effects)
    frame, to_caller = opened(df, new)
    names = AnswerNames(allowed, reason, effects).checked(frame)
    begin(frame.sparkSession)
    program = open_policy(policy)
    preparing = None
    if not (frame.isStreaming or is_column(at)):
        preparing = prepare_ahead(program, state, frame.sparkSession, plan=plan, limits=limits)
    arguments: RequestArguments = {
        "subject": subject, "action": action, "resource": resource, "with_": with_, "flags": flags, "groups": groups,
        "active_roles": active_roles, "attributes": attributes,
    }  # fmt: skip
    request = read_arguments(frame, program, **arguments, taken=new, again=effects is not None)
    if effects is not None:
        request = with_effects(request, program.json)
    check_time(frame, at)
    if is_column(at):
        timed = timed_rows(program, state, frame.sparkSession)
        if timed is None:
            raise UsageError("at is a column, and no row of the state has `from` or `until`: leave it out")

        def part(rows: DataFrame, state_: Any) -> DataFrame:
            return decide(
                rows, program, state_, **arguments, plan=plan, limits=limits, allowed=allowed, reason=reason, effects=effects,
                refresh=refresh,
            )  # fmt: skip

        def deny(rows: DataFrame) -> DataFrame:
            answer = {allowed: F.lit(False), reason: F.lit(NO_TIME)}  # noqa: FBT003
            return rows.withColumns(answer if effects is None else {**answer, effects: none()})

        return to_caller(each_moment(frame, cast("Column", at), timed, part, deny))

    if preparing is not None:
        preparing.join()

    def decide_by_state(state_: Any) -> DataFrame:
        choice = choose_plan(request, program, state_, plan=plan, limits=limits, refresh=refresh)
        if log.isEnabledFor(logging.INFO):
            said = with_workers(choice, frame.sparkSession)
            log.info("decide: %s", said, extra={"plan": choice.plan, "figures": dict(choice.figures)})
        if choice.selected:
            from privtab_spark.pruning import decide_pruned

            coded = decide_pruned(request, program, state_, choice, limits or Limits())
            if coded is not None:
                return names.answered(request, coded)
        if choice.plan == "portions":
            from privtab_spark.portions import decide_by_portions

            tables = spark_state(program, state_, frame.sparkSession)
            pin = limits is not None and limits.pin
            return names.answered(request, decide_by_portions(request, program, tables, pin=pin))
        return names.answered(request, _by_kernel(request, program, state_, refresh))

    return to_caller(
        at_moment(cast("Moment", at), state, decide_by_state, lambda message: log.info("decide: %s", message))
    )


def check_time(frame: DataFrame, at: object) -> None:
    """Raise UsageError for a time of a stream, whose rows are decided when they come."""
    if at is not None and frame.isStreaming:
        raise UsageError("a stream is decided at the time of each chunk of rows: leave `at` out")


def _by_kernel(request: RequestColumns, policy: OpenPolicy, state: Any, refresh: float | None) -> DataFrame:
    spark = request.frame.sparkSession
    if request.frame.isStreaming and refresh is not None:
        check_executors(spark)
        return decide_by_kernel(request, followed(policy, state, refresh))
    packed = prepared(policy, state, spark)
    check_executors(spark)
    return decide_by_kernel(request, packed.ship(spark))


class AnswerNames(NamedTuple):
    """The names of the columns that a decision adds."""

    allowed: str
    reason: str
    effects: str | None = None

    def checked(self, df: DataFrame) -> AnswerNames:
        """These; raises UsageError if a new column would have no name or the name of another column."""
        arguments: dict[str, Any] = self._asdict()
        if self.effects is None:
            del arguments["effects"]
        for argument, name in arguments.items():
            if not isinstance(name, str) or not name:
                raise UsageError(f"{argument} is {name!r}: give the name of the new column")
        taken = {name.lower() for name in df.columns}
        first: dict[str, str] = {}
        for argument, name in arguments.items():
            if name.lower() in taken:
                raise UsageError(f"the DataFrame has a column `{name}`: name the new one by `{argument}=`")
            if (other := first.setdefault(name.lower(), argument)) != argument:
                raise UsageError(f"`{other}` and `{argument}` are both `{name}`")
        return self

    def answered(self, request: RequestColumns, frame: DataFrame) -> DataFrame:
        """A frame with codes, with the columns of the answer; rows that are no valid requests are denied, independently of the plan's decision."""
        yes, why = answer_columns(request)
        if request.invalid_reason is not None:
            why = F.coalesce(request.invalid_reason, why)
            yes = yes & request.invalid_reason.isNull()
        answer = [yes.alias(self.allowed), why.alias(self.reason)]
        if self.effects is not None and request.effects is not None:
            answer.append(F.when(yes, F.col(request.effects)).otherwise(none()).alias(self.effects))
        return frame.select("*", *answer).drop(request.code, *request.hidden)


TYPE = "array<struct<effect: string, action: string, table: string, row: map<string, string>, about: string>>"
_ENTITY, _USER, _ROLE = "type:\0", "\1", "\2"
"""Placeholders for the entity, the user and the first active role of an effect that is not yet about a request."""


def with_effects(request: RequestColumns, program: Mapping[str, Any]) -> RequestColumns:
    """The requests with a hidden column of the effects that each has if it is allowed. Raises UsageError.

    `program`: its JSON.
    """
    name = free("__privtab_effects", [*request.frame.columns, request.code])
    frame = request.frame.select("*", _effects(request, program).alias(name))
    return replace(request, frame=frame, hidden=(*request.hidden, name), effects=name)


def none() -> Column:
    """No effects."""
    return F.array().cast(TYPE)


def _effects(request: RequestColumns, program: Mapping[str, Any]) -> Column:
    vocabulary = Vocabulary.from_program(program)
    if vocabulary.nested or vocabulary.flat:
        raise UsageError(
            "`effects` is not possible where a type nests or ids are flat: let a client decide the rows that are carried out"
        )
    # One `CASE`, since no row is of two rules: a `CASE` in the `else` of another would nest as deep as there are rules.
    found = F.when(F.lit(col=False), none())
    for condition, rule in _rules(request, program):
        if rule["effects"]:
            of_rule = F.array(*(_effect(request, vocabulary, effect) for effect in rule["effects"])).cast(TYPE)
            found = found.when(condition, of_rule)
    return found.otherwise(none())


def _rules(request: RequestColumns, program: Mapping[str, Any]) -> Iterator[tuple[Column, Mapping[str, Any]]]:
    """Each rule that may decide a row, with the condition that it is this one."""
    for type_, operations in program["rules"].items():
        for operation, rule in operations.items():
            condition = F.lit(col=True)
            for name, value in (("type", type_), ("action", operation)):
                if name in request.columns:
                    condition &= request.columns[name] == value
                elif request.constants[name] != value:
                    break
            else:
                yield condition, rule


def _effect(request: RequestColumns, vocabulary: Vocabulary, effect: Mapping[str, Any]) -> Column:
    """One effect as a struct, with what `Change` has."""
    target = effect["target"]
    type_ = target["type"]
    named = _entity(_path(request, target["slot"]), type_, vocabulary.chains[type_][-1][1])
    entity = F.coalesce(named, F.lit(type_))
    change = Change.of(f"{effect['text']} ({_ENTITY})", _USER, [_ROLE])
    row, about = F.lit(None), F.lit(None)
    if change.row is None:
        about = entity
    else:
        cells = [part for name, cell in change.row.items() for part in (F.lit(name), _cell(str(cell), named, request))]
        row = F.create_map(*cells)
    text = F.concat(F.lit(f"{effect['text']} ("), entity, F.lit(")"))
    return F.struct(
        text.alias("effect"),
        F.lit(change.action).alias("action"),
        F.lit(change.table).alias("table"),
        row.cast("map<string, string>").alias("row"),
        about.cast("string").alias("about"),
    )


def _path(request: RequestColumns, slot: str) -> Column:
    """The path of an object; null if the rows do not give it, which denies the operations that need it."""
    name = "path" if slot == RESOURCE else f"with_{slot}_path"
    return request.columns[name] if name in request.columns else F.lit(None).cast("string")


def _entity(path: Column, type_: str, depth: int) -> Column:
    """The entity of a type on a path; null if the path leaves off its name."""
    if depth == 0:
        return F.lit(f"{type_}:")
    names = F.length(path) - F.length(F.replace(path, F.lit("/"), F.lit(""))) + 1
    beginning = F.substring_index(path, "/", depth)
    is_named = (names >= depth) & (path != "") & ~beginning.endswith("/")
    return F.when(is_named, F.concat(F.lit(f"{type_}:"), beginning))


def _cell(text: str, entity: Column, request: RequestColumns) -> Column:
    if text == _ENTITY:
        return entity
    if text.endswith(_USER):
        return F.concat(F.lit(text.removesuffix(_USER)), request.columns["user"])
    if text.endswith(_ROLE):  # without the column, the operations that name a role as the owner are denied
        roles = request.columns.get("active_roles", F.array().cast("array<string>"))
        return F.concat(F.lit(text.removesuffix(_ROLE)), F.get(roles, 0))
    return F.lit(text)


def each_batch(
    write: Callable[[DataFrame, int], Any],
    policy: PolicyLike,
    state: str | os.PathLike[str] | Callable[[SparkSession], Any],
    **arguments: Unpack[BatchArguments],
) -> Callable[[DataFrame, int], None]:
    """A function for `foreachBatch` that decides each micro-batch by the current state and calls `write(decided, number)`.

    `state`: a path, whose files are checked for each micro-batch; or a function of the session that returns a state as `decide` takes
    it, `lambda spark: {"grants": spark.table("grants")}`, called for each micro-batch. Joins are also supported. A change after the
    beginning of a micro-batch takes effect in the next one. The other arguments are the arguments of `decide`, without `refresh`.
    """
    opened = open_policy(policy)
    if not (isinstance(state, str | os.PathLike) or callable(state)):
        raise UsageError(
            f"a {type(state).__name__} cannot change: give the path of a state, or a function of the session that gives one"
        )
    # A wrong argument fails here, not in the first micro-batch.
    inspect.signature(decide).bind(None, opened, state, **arguments)
    if "refresh" in arguments:
        raise TypeError("each_batch() takes no `refresh`: it reads the state for each micro-batch")

    def decide_batch(batch: DataFrame, number: int) -> None:
        current_state = state(batch.sparkSession) if callable(state) else state
        decided = decide(batch, opened, current_state, **arguments)
        try:
            write(decided, number)
        finally:
            if callable(state):
                drop_cached(current_state)

    return decide_batch
