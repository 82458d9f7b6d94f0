"""Connect `decide` to the joins: add the canonical columns to the caller's frame, and the answers to the result."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812  (the conventional name)

from privtab.spark.arguments import RequestColumns
from privtab.spark.effect_columns import of_allowed
from privtab.spark.joins.decide import Joins, joins_for
from privtab.spark.joins.figures import Figures
from privtab.spark.policies import OpenPolicy

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from privtab.spark.limits import Limits


UNPINNED_STEP = (
    "the rows are read more than once and must be the same each time: a nondeterministic function that is not declared as such needs "
    "`JoinLimits(pin=True)`"
)
"""The last step that is listed if the rows are not pinned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJoins:
    """Requests, the joins that will decide them, and the figures of the rows."""

    request: RequestColumns
    rows: DataFrame
    joins: Joins
    figures: Figures
    pinned: bool
    """Whether the rows were checkpointed, so that they are read only once."""

    def steps(self) -> tuple[str, ...]:
        """A description of each step."""
        from privtab.spark.joins.explain import steps

        last_step = "the rows were read once (`pin`)" if self.pinned else UNPINNED_STEP
        return (*steps(self.joins, self.figures), last_step)

    def decided(self, allowed: str, reason: str, effects: str | None = None) -> DataFrame:
        """The caller's rows with the columns `allowed` and `reason`, and `effects` if the request has them."""
        names = self.request.names
        decided = self.joins.decide(self.rows, self.figures)
        yes, why = F.coalesce("allowed", F.lit(col=False)), F.col("reason")
        if self.request.invalid_reason is not None:
            why = F.coalesce("unasked", why)
            yes = yes & F.isnull("unasked")
        caller_columns = [F.col(f"c{number}") for number in range(len(names))]
        answer = {allowed: yes, reason: why}
        if effects is not None and self.request.effects is not None:
            position = self.request.frame.columns.index(self.request.effects)
            answer[effects] = of_allowed(F.col(f"c{position}"), yes)
        return decided.select(*caller_columns, *answer.values()).toDF(*names, *answer)


def joining(request: RequestColumns, policy: OpenPolicy, state: Any, limits: Limits) -> PlannedJoins:
    """Prepare the state, and count the rows approximately if `limits` does not give their figures."""
    from privtab.spark.states import spark_state

    request = replace(request, columns={name: _readable(name, column) for name, column in request.columns.items()})
    rows = request.with_canonical_columns()
    if request.invalid_reason is not None:
        with_reason = request.frame.select("*", *request.columns.values(), request.invalid_reason)
        rows = with_reason.toDF(*rows.columns, "unasked")
    if limits.joins.pin:
        rows = rows.localCheckpoint()
    tables = spark_state(policy, state, request.frame.sparkSession)
    joins = joins_for(rows, policy, tables, request.constants, limits.joins, request.given)
    return PlannedJoins(
        request=request, rows=rows, joins=joins, figures=limits.figures or joins.measure(rows), pinned=limits.joins.pin
    )


def _readable(name: str, column: Column) -> Column:
    """A column of the request with null in place of invalid UTF-8, as in `kernel.readable`."""
    if name in ("groups", "active_roles"):
        return F.transform(column, F.try_validate_utf8)
    return column if name.startswith(("flag_", "attribute_")) else F.try_validate_utf8(column)
