"""Decide by joins only, for states too large for an executor.

Each part of a request (the entities above its resource, the resource, every `with` object) depends on the user and a piece of a
path. What the user holds there is computed once for each distinct pair and joined to the rows as bits, over which a condition
decides. Where requests repeat, each distinct request is decided once: everything that it needs is found in one pass over them.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812  (the conventional name)

from privtab.errors import UsageError
from privtab.ir.support import Tool, check_support
from privtab.spark.frames import flag_column
from privtab.spark.joins.below import BLOCKED
from privtab.spark.joins.callers import IS_ACTIVE, USER_AS_HOLDER, holders, holds_active_roles, principals_of
from privtab.spark.joins.conditions import ConditionWriter
from privtab.spark.joins.figures import Figures, JoinLimits, measured
from privtab.spark.joins.flat import with_whole_path
from privtab.spark.joins.holdings import HOLDER, KEY, PRINCIPAL, VALUES, word
from privtab.spark.joins.keys import further
from privtab.spark.joins.keys import steps as steps_at
from privtab.spark.joins.places import ABOVE, Layout, PathEntity, layout
from privtab.spark.joins.prepare import PreparedTables, prepare
from privtab.spark.joins.rows import (
    CASE,
    HIDDEN,
    REASON,
    USER,
    ColumnNames,
    kind,
    located_slots,
    piece,
    plain,
    prepared,
    reason,
    whole,
)
from privtab.spark.joins.text import both, chosen, either, literal, one_of, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from privtab.spark.attribute_columns import AttributeColumn
    from privtab.spark.policies import OpenPolicy, PolicyLike
    from privtab.spark.state.tables import SparkState

NOT_GRANTED = "not granted"
CHANGED = "changed between reads"
"""The reason of a denied row that was missing when holdings were looked up: the rows are read several times and may have changed."""
LOOKED_UP, MAY_DENY, PLACE_EXISTS = (HIDDEN + name for name in ("seen", "may_deny", "there"))


def decide_by_joins(
    requests: DataFrame,
    policy: PolicyLike,
    state: SparkState,
    *,
    constants: Mapping[str, str | bool] | None = None,
    given: Sequence[AttributeColumn] = (),
    figures: Figures | None = None,
    limits: JoinLimits | None = None,
) -> DataFrame:
    """`requests` with `allowed` (never null) and `reason` (null where allowed).

    `requests` has the canonical columns of requests, except those that `constants` gives for all rows; other columns are kept.
    `given`: the attributes that rows give, with their columns in `requests`.
    `figures`: known figures of the rows; None: they are first estimated by a count.
    """
    return joins_for(requests, policy, state, constants, limits, given).decide(requests, figures)


def joins_for(
    requests: DataFrame,
    policy: PolicyLike,
    state: SparkState,
    constants: Mapping[str, str | bool] | None,
    limits: JoinLimits | None,
    given: Sequence[AttributeColumn] = (),
) -> Joins:
    """The joins for requests with the columns of a DataFrame; raises UsageError for a stream or the state of another policy."""
    from privtab.spark.policies import open_policy

    if requests.isStreaming:
        raise UsageError("joins cannot follow the state of a stream: decide each micro-batch by `each_batch`")
    opened = open_policy(policy)
    check_support(opened.as_program, Tool.SPARK_JOINS)
    state.check_policy(opened)
    # Groups and active roles are taken from requests only if the policy says so.
    ignored = set() if opened.vocabulary.request_groups else {"groups"}
    ignored |= set() if opened.vocabulary.active_roles else {"active_roles"}
    names = ColumnNames(
        columns=frozenset(requests.columns) - ignored, constants=dict(constants or {}), given=tuple(given)
    )
    names = replace(names, located=frozenset(located_slots(opened.vocabulary, names)))
    return Joins.of(opened, names, state, limits or JoinLimits())


class Joins:
    """Decides requests with given columns and constants by one state."""

    def __init__(self, compiled: Layout, names: ColumnNames, holdings: PreparedTables, limits: JoinLimits) -> None:
        self.layout = compiled
        self.names = names
        self.holdings = holdings
        self.limits = limits
        self.used: dict[str, dict[tuple[int, int | None], None]] = {}
        """By part, the pairs (number of a place, word) that conditions read; without a word, `BLOCKED`."""
        texts = ConditionWriter(compiled, names, self._bits_column)
        self.conditions = [texts.case(case) for case in compiled.cases]
        self.masks = texts.masks
        self.denials = texts.denials
        self.reads_principals = texts.reads_principals
        self.lookups = texts.comparisons.lookups()
        """The keys by which values of attributes are looked up."""

    @classmethod
    def of(cls, policy: OpenPolicy, names: ColumnNames, state: SparkState, limits: JoinLimits) -> Joins:
        """Compile the operations that requests with these names may use, and prepare the state."""
        return cls(compile_for(policy.json, names), names, prepare(policy, state, limits), limits)

    def _bits_column(self, part: str, type_: str, place: PathEntity, number: int | None) -> str:
        position = self.layout.specs[part][type_].index(place)
        self.used.setdefault(part, {})[position, number] = None
        return _column(part, position, number)

    def decide(self, requests: DataFrame, figures: Figures | None) -> DataFrame:
        """The rows with the columns `allowed` and `reason`."""
        rows = plain(requests, self.names)
        if figures is None:
            figures = self.measure(rows)
        if not self.decides_distinct_requests(figures):
            return self._decided(rows, figures)
        keys = self.names.keys(self.layout)
        requests = rows.select(*keys).distinct()
        answers = self._answers(requests) if self.used else self._decided(requests, figures)
        return self._joined(rows, answers.toDF(*(_answer(name) for name in (*keys, "allowed", "reason"))), keys)

    def measure(self, rows: DataFrame) -> Figures:
        """Estimate the number of distinct requests, and of distinct keys of each part that are looked up."""
        requests = prepared(self._with_whole_paths(rows), self.layout, self.names)
        keys = {part: self.keys(part) for part in self.used}
        if self._sends("places"):
            for part in filter(self._single, self.used):
                requests = self._with_place(requests, part, self.masks, PLACE_EXISTS + part)
                keys[part].append(PLACE_EXISTS + part)
        return measured(requests, self.names.keys(self.layout), keys)

    def decides_distinct_requests(self, figures: Figures) -> bool:
        """Whether each distinct request is decided once and the answers are broadcast to the rows."""
        return figures.repeated and self.limits.broadcasts(figures.requests, 160)

    def _joined(self, rows: DataFrame, answers: DataFrame, keys: list[str]) -> DataFrame:
        """Rows with the answers to their requests. A null in a column that every request needs matches no answer."""
        never_null = ("user", "action", "type", "path")
        same_request = both(f"{quoted(k)} {'=' if k in never_null else '<=>'} {_answer(k)}" for k in keys)
        found = rows.join(F.broadcast(answers), F.expr(same_request), "left")
        allowed, answer_reason = _answer("allowed"), _answer("reason")
        invalid_reason = reason(self.layout, self.names)
        no_answer = f"coalesce({invalid_reason}, {literal(CHANGED)})"
        final_reason = (
            f"CASE WHEN {allowed} THEN null WHEN {answer_reason} IS NOT NULL THEN {answer_reason} ELSE {no_answer} END"
        )
        caller_columns = [F.col(quoted(name)) for name in rows.columns]
        return found.select(
            *caller_columns,
            F.expr(f"coalesce({allowed}, false)").alias("allowed"),
            F.expr(final_reason).alias("reason"),
        )

    def _answers(self, requests: DataFrame) -> DataFrame:
        """Decide distinct requests in one pass, so that the rows are not read once more for each part.

        A request keeps at least one row until its bits are aggregated: outer joins drop none.
        """
        first_steps = dict(zip(self.used, itertools.accumulate(map(self._width, self.used), initial=0), strict=False))
        arrays = ", ".join(f"coalesce({self._steps(part, first)}, array())" for part, first in first_steps.items())
        located = self._with_whole_paths(requests)
        rows = prepared(located, self.layout, self.names)
        names = [*located.columns, USER, *self.names.lists.values()]
        steps = rows.select(*names, F.expr(f"inline_outer(concat({arrays}))").alias("at", KEY))
        columns = {
            _column(part, position, number): (first_steps[part] + position, number)
            for part, pairs in self.used.items()
            for position, number in pairs
        }
        found = self._held_at_existing(steps, located.columns, columns)
        decided = self._with_lookups(prepared(found, self.layout, self.names), rows)
        return self._answered(decided, requests.columns, "true")

    def _with_lookups(self, rows: DataFrame, requests: DataFrame) -> DataFrame:
        """Rows with the values of attributes and the principals of callers that conditions read; `requests`: rows with the same callers."""
        for number, key in enumerate(self.lookups):
            values = self._side("values").withColumnRenamed(VALUES, f"{VALUES}_{number}")
            rows = rows.withColumn(KEY, F.expr(key)).join(values, KEY, "left").drop(KEY)
        if not self.reads_principals:
            return rows
        principals, caller = principals_of(requests, self.names, self._side("principals"))
        few = self._sends("principals") and not self.names.has("groups")
        return rows.join(F.broadcast(principals) if few else principals, caller, "left")

    def _with_whole_paths(self, requests: DataFrame) -> DataFrame:
        """Requests with the whole paths of objects that may have flat ids."""
        for slot in sorted(self.names.located):
            type_, path = self.names.type_of(slot), self.names.path_of(slot)
            located = self._side("located")
            requests = with_whole_path(requests, self.layout.vocabulary, type_, path, located, whole(slot))
        return requests

    def _width(self, part: str) -> int:
        """The most places of a part."""
        return max(map(len, self.layout.specs[part].values()))

    def _decided(self, requests: DataFrame, figures: Figures) -> DataFrame:
        """Decide each row, without combining equal requests."""
        rows = prepared(self._with_whole_paths(requests), self.layout, self.names)
        decided = self._with_lookups(rows, rows)
        for part in self.used:
            found = self._part(rows, part)
            if self.broadcasts_part(part, figures):
                found = F.broadcast(found)
            decided = decided.join(found, self.keys(part), "left")
            if self.denials and self._single(part):
                decided = self._with_place(decided, part, self.denials, MAY_DENY + part)
        return self._answered(decided, requests.columns, self._complete())

    def broadcasts_part(self, part: str, figures: Figures) -> bool:
        """Whether the holdings found for a part are broadcast, so that the rows need not be shuffled."""
        bounded = all(number is not None for _, number in self.used[part])
        return bounded and self.limits.broadcasts(figures.of(part), 100 + 8 * len(self.used[part]))

    def keys(self, part: str) -> list[str]:
        """The columns that a part depends on."""
        kinds = [kind(part)] if len(self.layout.specs[part]) > 1 else []
        return [USER, *self.names.lists.values(), *kinds, piece(part)]

    def _single(self, part: str) -> bool:
        """Whether a part has only one place for each type."""
        return all(
            len(places) == 1 and not (places[0].several or places[0].optional)
            for places in self.layout.specs[part].values()
        )

    def _with_place(self, rows: DataFrame, part: str, masks: Mapping[int, int], name: str) -> DataFrame:
        """Rows with a column `name`, true if any principal holds anything of `masks` at the single place of a part, else null."""
        places = self._side("places", masks).select(KEY, F.lit(col=True).alias(name))
        key = F.expr(self._steps(part)).getItem(0).getField("key")
        return rows.withColumn(KEY, key).join(places, KEY, "left").drop(KEY)

    def _part(self, rows: DataFrame, part: str) -> DataFrame:
        """The holdings at the places of a part: its keys, and a column for each place and word.

        If there are denials, no join may drop a key: a key without a row in the result was not looked up, and its request is
        denied (`_complete`). A single place may be dropped if no principal holds anything there, which follows from the state
        alone.
        """
        keys = self.keys(part)
        keys_of_part = rows.where(f"{piece(part)} IS NOT NULL AND {USER} IS NOT NULL").select(*keys)
        places = self._side("places", self.masks).select(KEY)
        columns = {_column(part, *pair): pair for pair in self.used[part]}
        if self._single(part):
            steps = keys_of_part.select("*", F.expr(f"({self._steps(part)})[0]").alias("step"))
            steps = steps.selectExpr(*keys, "step.at AS at", f"step.key AS {KEY}").join(places, KEY, "left_semi")
            found = self._held(steps.distinct(), keys, columns)
        else:
            # Where a type nests, a key may have no places.
            inline = "inline_outer" if self.layout.reader.nested else "inline"
            steps = keys_of_part.distinct().select("*", F.expr(f"{inline}({self._steps(part)})").alias("at", KEY))
            if self.denials:
                found = self._held_at_existing(steps, keys, columns)
            else:
                found = self._held(steps.join(places, KEY, "left_semi"), keys, columns)
        return found.withColumn(LOOKED_UP + part, F.expr("true"))

    def _steps(self, part: str, first: int = 0) -> str:
        """SQL array of the places of a part, each with its number, counted from `first`, and its key."""
        types_by_steps: dict[str, list[str]] = {}
        for type_, places in self.layout.specs[part].items():
            further_names = further(piece(part), self.layout.reader.shapes[type_], above=part == ABOVE)
            types_by_steps.setdefault(steps_at(piece(part), places, further_names, first), []).append(type_)
        if len(types_by_steps) == 1:
            return next(iter(types_by_steps))
        return chosen(((one_of(kind(part), types), steps) for steps, types in types_by_steps.items()), "null")

    def _held_at_existing(
        self, steps: DataFrame, keys: Sequence[str], columns: Mapping[str, tuple[int, int | None]]
    ) -> DataFrame:
        """As `_held`, for all of `steps`: where no principal holds anything, none is looked up, but no key is dropped."""
        places = self._side("places", self.masks).select(KEY, F.lit(col=True).alias(PLACE_EXISTS))
        steps = steps.join(places, KEY, "left")
        return self._held(steps, keys, columns, "left", f"{PLACE_EXISTS} IS NOT NULL")

    def _held(
        self,
        steps: DataFrame,
        keys: Sequence[str],
        columns: Mapping[str, tuple[int, int | None]],
        join_type: str | None = None,
        condition: str = "true",
    ) -> DataFrame:
        """Aggregate the bits by `keys`, as columns for (number of a step, word).

        `condition`: whether any principal holds anything at a row's place; if not, none is looked up.
        """
        if self.names.has("groups"):
            holders_ = f"coalesce(CASE WHEN {condition} THEN {holders(self.names)} END, array(cast(null AS string)))"
            steps = steps.select("*", F.expr(f"explode({holders_})").alias(HOLDER))
        else:
            steps = steps.withColumn(HOLDER, F.expr(f"CASE WHEN {condition} THEN {USER_AS_HOLDER} END"))
        join_type = join_type or ("left" if self.denials else "inner")
        found = steps.join(self._side("principals"), HOLDER, join_type)
        found = found.join(self._side("held", self.masks), [PRINCIPAL, KEY], join_type)
        held = [F.expr(self._at(*column)).alias(name) for name, column in columns.items()]
        return found.groupBy(*keys).agg(*held)

    def _at(self, position: int, number: int | None) -> str:
        """SQL aggregate of a word of what principals hold at a place, or of `BLOCKED`; roles that are not active allow nothing."""
        narrows = self.names.has("active_roles")
        if number is None:
            condition = both([f"at = {position}", *([IS_ACTIVE] if narrows else [])])
            return f"flatten(collect_list(CASE WHEN {condition} THEN {BLOCKED} END))"
        value, of_roles = word(number), self.layout.numbers.of_roles(number)
        if narrows and self.masks[number] & of_roles:
            value = f"CASE WHEN {IS_ACTIVE} THEN {value} ELSE {value} & ~{of_roles}L END"
        return f"bit_or(CASE WHEN at = {position} THEN {value} ELSE 0L END)"

    def _complete(self) -> str:
        """SQL condition that every place with possible denials was looked up."""
        if not self.denials:
            return "true"
        column_of_part = {part: f"{MAY_DENY}{part}" if self._single(part) else piece(part) for part in self.used}
        return both(f"({column} IS NULL OR {LOOKED_UP}{part} IS NOT NULL)" for part, column in column_of_part.items())

    def _side(self, name: str, masks: Mapping[int, int] | None = None) -> DataFrame:
        """A table derived from the state, restricted to rows with any of the bits in `masks`; broadcast if it is small."""
        frame: DataFrame = getattr(self.holdings, name)
        if masks is not None:
            frame = frame.where(either(f"({word(n)} & {mask}L) <> 0L" for n, mask in sorted(masks.items())))
        return F.broadcast(frame) if self._sends(name) else frame

    def _sends(self, name: str) -> bool:
        """Whether a table derived from the state is broadcast."""
        return self.holdings.sizes[name] <= self.limits.broadcast

    def _answered(self, decided: DataFrame, columns: Sequence[str], complete: str) -> DataFrame:
        """The `columns` with the answers. `complete`: SQL condition that everything was looked up."""
        conditions = self.conditions
        if len(conditions) == 1:
            holds = conditions[0]
        else:
            holds = chosen(((f"{CASE} = {number}", text) for number, text in enumerate(conditions)), "false")
        if self.names.has("active_roles"):
            holds = both([holds, holds_active_roles()])
        allowed = f"coalesce({REASON} IS NULL AND {complete} AND {holds}, false)"
        caller_columns = [F.col(quoted(name)) for name in columns]
        denial_reason = (
            f"coalesce({REASON}, CASE WHEN NOT {complete} THEN {literal(CHANGED)} END, {literal(NOT_GRANTED)})"
        )
        answered = decided.select(
            *caller_columns, F.expr(denial_reason).alias(REASON), F.expr(allowed).alias(f"{HIDDEN}allowed")
        )
        final_reason = f"CASE WHEN NOT {HIDDEN}allowed THEN {REASON} END"
        return answered.select(
            *caller_columns, F.col(f"{HIDDEN}allowed").alias("allowed"), F.expr(final_reason).alias("reason")
        )


def compile_for(program: Mapping[str, Any], names: ColumnNames) -> Layout:
    """The layout of the operations that requests with these names may use."""
    flags = {
        flag: names.flag(flag_column(flag))
        for rules in program["rules"].values()
        for rule in rules.values()
        for flag in rule["flags"]
    }
    action, type_ = names.constants.get("action"), names.constants.get("type")
    return layout(
        program,
        action=action if isinstance(action, str) else None,
        type_=type_ if isinstance(type_, str) else None,
        flags=flags,
        attributes=bool(names.given),
    )


def _answer(name: str) -> str:
    return f"{HIDDEN}answer_{name}"


def _column(part: str, position: int, number: int | None) -> str:
    return f"{HIDDEN}{part}_{position}_{'blocked' if number is None else number}"
