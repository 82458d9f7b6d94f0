"""Describe the steps of a join plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from privtab.plural import count
from privtab.spark.joins.decide import Joins, joins_for
from privtab.spark.joins.figures import Figures, JoinLimits
from privtab.spark.joins.places import ABOVE, AT
from privtab.spark.policies import PolicyLike

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from privtab.spark.attribute_columns import AttributeColumn
    from privtab.spark.state.tables import SparkState

_PARTS = {ABOVE: "above the resource", AT: "on the resource itself"}


def explain_joins(
    requests: DataFrame,
    policy: PolicyLike,
    state: SparkState,
    *,
    constants: Mapping[str, str | bool] | None = None,
    given: Sequence[AttributeColumn] = (),
    figures: Figures | None = None,
    limits: JoinLimits | None = None,
) -> str:
    """The steps of `decide_by_joins` with these arguments: which sides are broadcast or shuffled, and why."""
    plan = joins_for(requests, policy, state, constants, limits, given)
    return "\n".join(steps(plan, figures or plan.measure(requests)))


def steps(plan: Joins, figures: Figures) -> Iterator[str]:
    """The lines that describe what the joins do with rows of these figures."""
    rules, cases = len(plan.layout.rules), len(plan.layout.cases)
    yield f"rows are read as requests: {count(rules, 'operation')}, {count(cases, 'condition')}"
    in_one_pass = plan.decides_distinct_requests(figures)
    if in_one_pass:
        yield f"of {figures.rows:,} rows about {figures.requests:,} are different: each of these is decided once"
    for table, singular, detail in (
        ("places", "place", "where any principal holds anything"),
        ("principals", "pair", "of a user and what they are"),
        ("held", "pair", "of a principal and a place"),
        *([("values", "row", "of attributes, one for each user or entity")] if plan.lookups else []),
    ):
        rows, size = plan.holdings.rows[table], plan.holdings.sizes[table]
        yield f"state: {count(rows, singular)} {detail}, {size / 2**20:,.1f} MiB: {_transport(sent=size <= plan.limits.broadcast)}"
    for number, part in enumerate(plan.used, 1):
        where_text = _PARTS.get(part) or f"at the object `{part.removeprefix('with_')}`"
        yield f"{number}. what is held {where_text}:"
        for types, places in _places(plan, part).items():
            yield f"   {types}: {places}"
        if in_one_pass:
            continue
        pairs = figures.pairs.get(part)
        pair_text = "number unknown" if pairs is None else f"about {pairs:,}"
        yield f"   distinct pairs of user and path first ({pair_text}), only places where any principal holds anything,"
        yield "   joined with principals and bits, one aggregate for each pair"
        yield f"   joined to the rows: {_transport(sent=plan.broadcasts_part(part, figures))}"
    if in_one_pass and plan.used:
        yield "all of these in one pass over the distinct requests, joined with principals and bits, one aggregate for each request"
    requests = "the distinct requests" if in_one_pass else "the rows"
    if plan.lookups:
        yield f"values of attributes joined to {requests}: {count(len(plan.lookups), 'look-up')}"
    if plan.reads_principals:
        yield f"all principals of each caller joined to {requests}"
    yield "then each request's condition over its bits; without bits the answer is no"
    if in_one_pass:
        yield "answers joined to the rows: sent to every executor"


def _places(plan: Joins, part: str) -> Mapping[str, str]:
    found: dict[str, list[str]] = {}
    for type_, places in plan.layout.specs[part].items():
        found.setdefault(", ".join(place.text() for place in places), []).append(type_)
    return {", ".join(types): places for places, types in found.items()}


def _transport(*, sent: bool) -> str:
    return "sent to every executor" if sent else "shuffled, too large or unknown to be sent"
