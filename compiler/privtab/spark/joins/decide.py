"""Decisions by joins alone: for states that no executor holds whole.

Each part of a request (what lies above its resource, the resource, every `with` object) depends on the user and a piece of a
path. What users hold there is found once for each such pair, however many rows share it, and joined to the rows; a condition
over the bits says yes or no.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)

from privtab.errors import UsageError
from privtab.spark.joins.conditions import Texts
from privtab.spark.joins.figures import Figures, JoinLimits, measured
from privtab.spark.joins.holdings import HOLDER, KEY, PRINCIPAL, word
from privtab.spark.joins.places import Layout, Place, layout
from privtab.spark.joins.prepare import Prepared, prepare
from privtab.spark.joins.rows import CASE, GROUPS, HIDDEN, REASON, WHO, Names, kind, piece, prepared, reason
from privtab.spark.joins.text import both, chosen, either, literal, one_of, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from privtab.spark.policies import OpenPolicy, PolicyLike
    from privtab.spark.state.tables import SparkState

NOT_GRANTED = "not granted"


def decide_by_joins(
    requests: DataFrame,
    policy: PolicyLike,
    state: SparkState,
    *,
    constants: Mapping[str, str | bool] | None = None,
    figures: Figures | None = None,
    limits: JoinLimits | None = None,
) -> DataFrame:
    """`requests` with `allowed` (never null) and `reason` (null where allowed).

    `requests` has the canonical columns of requests, all but those that `constants` gives for all rows; other columns are kept.
    `figures` tells what is known about the rows; None: they are counted, roughly, before anything else.
    """
    if requests.isStreaming:
        raise UsageError('a stream cannot be decided by joins: take `plan="kernel"`')
    return joins_for(requests, policy, state, constants, limits).decide(requests, figures)


def joins_for(
    requests: DataFrame,
    policy: PolicyLike,
    state: SparkState,
    constants: Mapping[str, str | bool] | None,
    limits: JoinLimits | None,
) -> Joins:
    """The plan for requests with the columns of a DataFrame."""
    from privtab.spark.policies import open_policy

    opened = open_policy(policy)
    # Groups are taken from requests where the policy says so, and nowhere else.
    ignored = set() if opened.vocabulary.request_groups else {"groups"}
    names = Names(columns=frozenset(requests.columns) - ignored, constants=dict(constants or {}))
    return Joins.of(opened, names, state, limits or JoinLimits())


class Joins:
    """Requests of one kind over one state."""

    def __init__(self, compiled: Layout, names: Names, holdings: Prepared, limits: JoinLimits) -> None:
        self.layout = compiled
        self.names = names
        self.holdings = holdings
        self.limits = limits
        self.used: dict[str, dict[tuple[int, int], None]] = {}
        """By part: (number of a place, word) that some condition reads."""
        texts = Texts(compiled, names, self._found)
        self.conditions = [texts.case(case) for case in compiled.cases]
        self.masks = texts.masks

    @classmethod
    def of(cls, policy: OpenPolicy, names: Names, state: SparkState, limits: JoinLimits) -> Joins:
        """Compile what requests with these names may ask, and prepare the state."""
        return cls(compile_for(policy.json, names), names, prepare(policy, state, limits), limits)

    def _found(self, part: str, type_: str, place: Place, number: int) -> str:
        at = self.layout.specs[part][type_].index(place)
        self.used.setdefault(part, {})[at, number] = None
        return f"coalesce({_column(part, at, number)}, 0L)"

    def decide(self, requests: DataFrame, figures: Figures | None) -> DataFrame:
        """The rows with their answers."""
        rows = _plain(requests, self.names)
        if figures is None:
            figures = self.measure(rows)
        if not self.once(figures):
            return self._decided(rows, figures)
        keys = self.names.keys(self.layout)
        answers = self._decided(rows.select(*keys).distinct(), figures)
        return self._joined(rows, answers.toDF(*(_answer(name) for name in (*keys, "allowed", "reason"))), keys)

    def measure(self, rows: DataFrame) -> Figures:
        """About how many different things the rows ask."""
        taken_apart = prepared(rows, self.layout, self.names)
        return measured(taken_apart, self.names.keys(self.layout), {part: self.keys(part) for part in self.used})

    def once(self, figures: Figures) -> bool:
        """Whether each distinct request is decided once, and its answer sent to where the rows are."""
        return figures.repeated and self.limits.broadcasts(figures.requests, 160)

    def _joined(self, rows: DataFrame, answers: DataFrame, keys: list[str]) -> DataFrame:
        """Rows with the answers to their requests. What is null where every request has something is joined to nothing."""
        always = ("user", "action", "type", "path")
        alike = both(f"{quoted(k)} {'=' if k in always else '<=>'} {_answer(k)}" for k in keys)
        found = rows.join(F.broadcast(answers), F.expr(alike), "left")
        allowed, why = _answer("allowed"), _answer("reason")
        unasked = reason(self.layout, self.names)
        told = f"CASE WHEN {allowed} THEN null WHEN {why} IS NOT NULL THEN {why} ELSE coalesce({unasked}, {literal(NOT_GRANTED)}) END"
        kept = [F.col(quoted(name)) for name in rows.columns]
        return found.select(*kept, F.expr(f"coalesce({allowed}, false)").alias("allowed"), F.expr(told).alias("reason"))

    def _decided(self, requests: DataFrame, figures: Figures) -> DataFrame:
        """Requests with their answers, each for itself."""
        rows = prepared(requests, self.layout, self.names)
        decided = rows
        for part in self.used:
            found = self._part(rows, part)
            if self.goes_along(part, figures):
                found = F.broadcast(found)
            decided = decided.join(found, self.keys(part), "left")
        return self._answered(decided, requests)

    def goes_along(self, part: str, figures: Figures) -> bool:
        """Whether what is found of a part is sent to where the rows are, so that these need not move."""
        return self.limits.broadcasts(figures.of(part), 100 + 8 * len(self.used[part]))

    def keys(self, part: str) -> list[str]:
        """What a part depends on."""
        keys = [WHO, piece(part)]
        if len(self.layout.specs[part]) > 1:
            keys.insert(1, kind(part))
        if self.names.has("groups"):
            keys.insert(1, GROUPS)
        return keys

    def _part(self, rows: DataFrame, part: str) -> DataFrame:
        """What is held at the places of a part: its keys, and a column for each place and word."""
        keys = self.keys(part)
        specs = self.layout.specs[part]
        asked = rows.where(f"{piece(part)} IS NOT NULL AND {WHO} IS NOT NULL").select(*keys)
        single = all(len(places) == 1 for places in specs.values())
        if not single:
            asked = asked.distinct()
        looked = self._looked_at(asked, part).join(self._side("places").select(KEY), KEY, "left_semi")
        if single:
            looked = looked.distinct()
        return self._held(looked, part, keys)

    def _looked_at(self, asked: DataFrame, part: str) -> DataFrame:
        """A row for each place: its number and its key."""
        specs = self.layout.specs[part]
        listed: dict[str, list[str]] = {}
        for type_, places in specs.items():
            steps = ", ".join(
                f"named_struct('at', {at}, 'key', {_key(piece(part), place)})" for at, place in enumerate(places)
            )
            listed.setdefault(f"array({steps})", []).append(type_)
        arms = [(one_of(kind(part), types), steps) for steps, types in listed.items()]
        text = arms[0][1] if len(arms) == 1 else chosen(arms, "null")
        if all(len(places) == 1 for places in specs.values()):
            return (
                asked.select("*", F.expr(f"({text})[0]").alias("step"))
                .selectExpr("*", "step.at AS at", f"step.key AS {KEY}")
                .drop("step")
            )
        return asked.select("*", F.expr(f"inline({text})").alias("at", KEY))

    def _held(self, looked: DataFrame, part: str, keys: list[str]) -> DataFrame:
        if self.names.has("groups"):
            whos = f"concat(array(concat('user:', {WHO})), transform({GROUPS}, g -> concat('group:', g)))"
            looked = looked.select("*", F.expr(f"explode({whos})").alias(HOLDER))
        else:
            looked = looked.withColumn(HOLDER, F.expr(f"concat('user:', {WHO})"))
        found = looked.join(self._side("principals"), HOLDER).join(self._side("held"), [PRINCIPAL, KEY])
        columns = [
            F.expr(f"bit_or(CASE WHEN at = {at} THEN {word(number)} ELSE 0L END)").alias(_column(part, at, number))
            for at, number in self.used[part]
        ]
        return found.groupBy(*keys).agg(*columns)

    def _side(self, name: str) -> DataFrame:
        """A table of the state: the rows with something that conditions read, sent to all executors if it is small."""
        frame: DataFrame = getattr(self.holdings, name)
        if name != "principals":
            frame = frame.where(either(f"({word(n)} & {mask}L) <> 0L" for n, mask in sorted(self.masks.items())))
        return F.broadcast(frame) if self.holdings.sizes[name] <= self.limits.broadcast else frame

    def _answered(self, decided: DataFrame, requests: DataFrame) -> DataFrame:
        conditions = self.conditions
        if len(conditions) == 1:
            holds = conditions[0]
        else:
            holds = chosen(((f"{CASE} = {number}", text) for number, text in enumerate(conditions)), "false")
        allowed = f"coalesce({REASON} IS NULL AND {holds}, false)"
        kept = [F.col(quoted(name)) for name in requests.columns]
        answered = decided.select(*kept, F.col(REASON), F.expr(allowed).alias(f"{HIDDEN}allowed"))
        why = f"CASE WHEN NOT {HIDDEN}allowed THEN coalesce({REASON}, {literal(NOT_GRANTED)}) END"
        return answered.select(*kept, F.col(f"{HIDDEN}allowed").alias("allowed"), F.expr(why).alias("reason"))


def _plain(requests: DataFrame, names: Names) -> DataFrame:
    """Requests whose texts are compared letter by letter, whatever the collation of their columns."""
    collated = {
        field.name: F.col(quoted(field.name)).cast("string")
        for field in requests.schema.fields
        if names.canonical(field.name) and getattr(field.dataType, "collation", "UTF8_BINARY") != "UTF8_BINARY"
    }
    return requests.withColumns(collated) if collated else requests


def compile_for(program: Mapping[str, Any], names: Names) -> Layout:
    """The layout of what requests with these names may ask."""
    flags = {
        flag: names.flag(f"flag_{flag}")
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
    )


def _answer(name: str) -> str:
    return f"{HIDDEN}answer_{name}"


def _column(part: str, at: int, number: int) -> str:
    return f"{HIDDEN}{part}_{at}_{number}"


def _key(path: str, place: Place) -> str:
    """The key of a place on a path; null paths have none."""
    if place.depth == 0:
        return f"CASE WHEN {path} IS NOT NULL THEN {literal(place.prefix)} END"
    beginning = f"substring_index({path}, '/', {place.depth})"
    name = f"substring_index({beginning}, '/', -1)" if place.last else beginning
    return f"concat({literal(place.prefix)}, {name})"
