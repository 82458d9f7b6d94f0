"""Choose a plan: one kernel for the whole state if it fits the executors, one for each portion if it does not."""

from __future__ import annotations

import logging
import os
import threading
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Unpack, cast

from privtab.base import UsageError, Window, moment_text
from privtab.ir import Feature
from privtab.state import State
from privtab_spark.arguments import RequestArguments, RequestColumns, read_arguments
from privtab_spark.frames import opened as opened_frame
from privtab_spark.moments import Moment, is_column, moment_of, state_at
from privtab_spark.policies import OpenPolicy, PolicyLike, open_policy
from privtab_spark.preflight import workers
from privtab_spark.refresh import BY_BATCH, REFRESH, check_refresh, followed
from privtab_spark.state.bundles import bundle_size, is_address, is_bundle
from privtab_spark.state.schemas import LOCATED, is_written
from privtab_spark.state.tables import PACKED
from privtab_spark.states import counted, decided_before, prepared, readable, timed_rows

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

log = logging.getLogger("privtab.spark")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits beyond which a state is divided into portions, and how requests are read for that."""

    rows: int = 7_000_000
    """Most rows of a state that are collected on the driver, which builds the arrays (about 100,000 rows a second); tried with Spark's default memory."""
    size: int = 1 << 30
    """Most bytes of the arrays; every executor holds them once for all its tasks."""
    large: int = 3_000_000
    """Rows of a state above which the rows that the requests need are looked for first, unless the state was decided by before."""
    pin: bool = False
    """Read the rows once, into a local checkpoint. Needed for rows that differ each time they are read: they are read twice, and
    Spark cannot detect a random function that is not declared as one (`asNondeterministic`)."""


SMALLER = 3
"""The factor, about, by which the part that requests need must be smaller than a state that fits before it is looked for."""
PlanName = Literal["kernel", "portions"]
_WIDTHS: Mapping[str, tuple[int, int]] = {
    "grants": (64, 320),
    "owners": (72, 365),
    "members": (56, 365),
    "memberships": (24, 52),
    "assignments": (16, 52),
    "service_admins": (24, 110),
    "attributes": (0, 375),
    "entities": (0, 375),
}
"""Bytes that a row of each table takes in the arrays, and in the index, where executors get it instead of arrays: measured with
names of about 20 letters and rounded up. Arrays hold no attributes and no places."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A plan, the reason for choosing it, and the figures that the choice is based on."""

    plan: PlanName
    why: str
    figures: Mapping[str, int] = field(default_factory=dict)
    steps: tuple[str, ...] = ()
    """The ways in which executors get privtab and, for a stream, follow the state."""
    selected: tuple[str, ...] = ()
    """The tables of which only the rows that the requests need are taken, if the rows fit."""

    def __str__(self) -> str:
        """Readable text: `kernel: the state has 12 rows …`, then the figures, then the steps."""
        width = max(map(len, self.figures), default=0)
        figures = (f"  {name:<{width}}  {_shown(name, value)}" for name, value in self.figures.items())
        return "\n".join([f"{self.plan}: {self.why}", *figures, *(f"  {step}" for step in self.steps)])


def _shown(name: str, value: int) -> str:
    return f"{value / 2**20:,.1f} MiB" if name.endswith("bytes") else f"{value:,}"


def plan(
    df: Any,
    policy: PolicyLike,
    state: Any,
    *,
    plan: str = "auto",
    limits: Limits | None = None,
    refresh: float | None = REFRESH,
    at: Moment | Column = None,
    **arguments: Unpack[RequestArguments],
) -> Choice:
    """The plan that `decide` would choose for the arguments, and the reason; nothing is decided."""
    opened = open_policy(policy)
    frame, _ = opened_frame(df)
    request = read_arguments(frame, opened, **arguments)

    def choice_for_state(state_: Any) -> Choice:
        choice = choose_plan(request, opened, state_, plan=plan, limits=limits, refresh=refresh)
        return with_workers(choice, frame.sparkSession)

    timed = None if frame.isStreaming else timed_rows(opened, state, frame.sparkSession)
    if timed is None:
        return choice_for_state(state)
    if is_column(at):
        steps = f"each row counts the rows of the state at its own time: {len(timed.edges()) + 1} passes"
        return replace(choice_for_state(state_at(timed, Window().begin)), steps=(steps,))
    moment = moment_of(cast("Moment", at))
    choice = choice_for_state(state_at(timed, moment))
    return replace(choice, steps=(f"the rows of the state count that hold at {moment_text(moment)}", *choice.steps))


def begin(policy: OpenPolicy, state: Any, spark: SparkSession, *, plan: str, limits: Limits | None) -> threading.Thread:
    """Begin to prepare the state in another thread, if it is known to fit the executors and no job of Spark is needed to read it.

    The result is kept as that of a call. What fails is left to the caller's own attempt.
    """

    def prepare() -> None:
        try:
            if _fits_ahead(policy, state, spark, plan, limits or Limits()):
                prepared(policy, state, spark)
        except Exception:
            log.debug("the state was not prepared ahead", exc_info=True)

    thread = threading.Thread(target=prepare, daemon=True)
    thread.start()
    return thread


def _fits_ahead(policy: OpenPolicy, state: Any, spark: SparkSession, plan: str, limits: Limits) -> bool:
    """Return whether `choose_plan` will take the kernel for a state whose rows the driver reads by itself."""
    read = readable(policy, state, spark)
    if read is None:
        here = isinstance(state, State) or (isinstance(state, str | os.PathLike) and not is_written(state))
        if not here or (not isinstance(state, State) and is_address(state)):
            return False
    elif not read.by_driver:
        return False
    if plan != "auto" or is_bundle(state):
        return plan in ("auto", "kernel")
    counts = counted(policy, state, spark)
    return sum(counts.values()) <= limits.large and _by_size(policy, counts, limits).plan == "kernel"


def choose_plan(
    request: RequestColumns, policy: OpenPolicy, state: Any, *, plan: str, limits: Limits | None, refresh: float | None
) -> Choice:
    """The choice for these requests, before the executors are looked at.

    Raises UsageError for an unknown plan, and for a stream whose state would be divided or that cannot follow its state.
    """
    limits = Limits() if limits is None else limits
    if not isinstance(limits, Limits):
        raise UsageError(f"limits is {limits!r}: give `Limits(…)`")
    check_refresh(refresh)
    choice = choice_for(request, policy, state, plan=plan, limits=limits)
    streaming = request.frame.isStreaming
    if streaming and choice.plan == "portions":
        raise UsageError(
            f"{choice.why}, and a stream is not divided into portions: decide each micro-batch by `each_batch`, or take "
            '`plan="kernel"`'
        )
    followed_by = (_followed(policy, state, refresh),) if streaming else ()
    evaluation = _evaluation(policy, request)
    if choice.selected:
        named = " and ".join(f"`{table}`" for table in choice.selected)
        evaluation = (f"of {named}, only the rows that the requests need are taken, if these fit", *evaluation)
    return replace(choice, steps=(*evaluation, *followed_by))


def with_workers(choice: Choice, spark: SparkSession) -> Choice:
    """The choice with the way in which executors get privtab, or the reason why they cannot run it."""
    found = workers(spark)
    return replace(choice, steps=(found.why() or found.step(), *choice.steps))


def _selectable(request: RequestColumns, policy: OpenPolicy, state: Any, limits: Limits) -> tuple[str, ...]:
    """The large tables whose rows can be told by the paths of requests, if it may pay off to find the needed rows."""
    if request.frame.isStreaming or limits.pin or policy.vocabulary.flat or Feature.BELOW.used_by(policy.as_program):
        return ()
    read = readable(policy, state, request.frame.sparkSession)
    if read is None or not read.plain:
        return ()
    if read.sources.window(*read.sources.tables):
        return ()
    counts = read.raw_counts
    tables = tuple(table for table in LOCATED if counts[table] > PACKED)
    return () if sum(counts.values()) - sum(counts[table] for table in tables) > limits.rows else tables


def _evaluation(policy: OpenPolicy, request: RequestColumns) -> tuple[str, ...]:
    """The evaluation on executors if arrays of the state do not suffice."""
    features = policy.beyond_arrays
    if not features:
        return ()
    special = {
        "whose condition has `or below`": Feature.BELOW in features,
        "that gives attributes": bool(request.given),
        "that names active roles": "active_roles" in request.columns,
    }
    which = " or ".join(words for words, is_so in special.items() if is_so)
    if not {Feature.NESTED, Feature.FLAT}.isdisjoint(features):
        how = "decide each distinct request by itself"
    else:
        how = f"decide each distinct request {which} by itself, and the others in columns"
        how = how if which else "decide in columns"
    words = " and ".join(feature.value for feature in features)
    return (f"executors get the index of the state because of {words}, and {how}",)


def _followed(policy: OpenPolicy, state: Any, refresh: float | None) -> str:
    if refresh is None:
        return "decides by the current state for as long as the stream runs: later revocations have no effect"
    return str(followed(policy, state, refresh, BY_BATCH))


def choice_for(request: RequestColumns, policy: OpenPolicy, state: Any, *, plan: str, limits: Limits) -> Choice:
    """The choice without its steps; prepares nothing."""
    match plan:
        case "kernel":
            return Choice(plan=plan, why="the caller asks for it")
        case "portions" | "joins":
            if plan == "joins":
                warnings.warn("the plan `joins` is called `portions` now", DeprecationWarning, stacklevel=4)
            selected = _selectable(request, policy, state, limits)
            return Choice(plan="portions", why="the caller asks for it", selected=selected)
        case "auto":
            pass
        case _:
            raise UsageError(f"unknown plan `{plan}`; there are: auto, kernel, portions")
    if is_bundle(state):
        size = bundle_size(state)
        return Choice(plan="kernel", why="a state bundle is an index already", figures={"bundles, bytes": size})
    counts = counted(policy, state, request.frame.sparkSession)
    tables = _selectable(request, policy, state, limits)
    # A second call by a state that fits is worth its arrays.
    once = sum(counts.values()) > limits.large and not decided_before(policy, state)
    choice = _by_size(policy, counts, limits)
    return replace(choice, selected=tables if once or choice.plan == "portions" else ())


def _by_size(policy: OpenPolicy, counts: Mapping[str, int], limits: Limits) -> Choice:
    rows, size = sum(counts.values()), size_of(policy, counts)
    form, fits = ("index", "fits") if policy.beyond_arrays else ("arrays", "fit")
    figures: dict[str, int] = {**counts, "rows": rows, f"{form}, about, in bytes": size}
    if rows > limits.rows:
        why = f"the state has {rows:,} rows; more than {limits.rows:,} are not collected on the driver"
        return Choice(plan="portions", why=why, figures=figures)
    if size > limits.size:
        why = f"the state's {form} would take {size >> 20:,} MiB in each executor, more than the limit of {limits.size >> 20:,}"
        return Choice(plan="portions", why=why, figures=figures)
    why = f"the state has {rows:,} rows, whose {form} {fits} every executor"
    return Choice(plan="kernel", why=why, figures=figures)


def size_of(policy: OpenPolicy, counts: Mapping[str, int]) -> int:
    """About how many bytes the arrays or the index of a state take, by the number of rows in each table."""
    return sum(count * _WIDTHS[table][bool(policy.beyond_arrays)] for table, count in counts.items())
