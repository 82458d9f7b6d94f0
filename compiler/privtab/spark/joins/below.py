"""What is held below entities, for conditions with `or below`: entered at the entities above, as in the index.

What a principal holds below an entity is a bit if nobody is denied it there. Otherwise it is an entry of `BLOCKED`: the privilege, and
the principals of whom a caller must have none.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  (the conventional name)

from privtab.spark.joins.bits import OWNER, OWNS_BELOW, BitKey
from privtab.spark.joins.holdings import KEY, PRINCIPAL, Holdings, word
from privtab.spark.joins.text import both, chosen, literal, one_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BLOCKED = "__privtab_blocked"
_UPPER = "__privtab_upper"


def with_below(held: DataFrame, holdings: Holdings) -> DataFrame:
    """The table of holdings (principal, key, words) with what is held below, and with `BLOCKED`."""
    asked = holdings.numbers.below
    rows = [held.withColumn(BLOCKED, F.expr("cast(null AS array<struct<privilege: string, denied: array<string>>>)"))]
    if asked.privileges:
        rows.append(_granted(held, holdings))
    if asked.owned:
        owning = _above(held.where(_holds(holdings, OWNER)), holdings, _is_type(asked.owned))
        rows.append(holdings.entry(owning, PRINCIPAL, _UPPER, (OWNS_BELOW, "true")).withColumn(BLOCKED, F.lit(None)))
    united = reduce(lambda first, second: first.unionAll(second), rows)
    words = (F.expr(f"bit_or({word(n)})").alias(word(n)) for n in range(holdings.numbers.words))
    entries = F.flatten(F.collect_list(BLOCKED)).alias(BLOCKED)
    return united.groupBy(PRINCIPAL, KEY).agg(*words, entries)


def _granted(held: DataFrame, holdings: Holdings) -> DataFrame:
    """Rows about the privileges that principals hold below entities."""
    asked = holdings.numbers.below.privileges
    allowed = _by_privilege(held, holdings, "allow")
    if holdings.semantics.denies:
        entries = allowed.join(_denied(held, allowed, holdings), [KEY, "privilege"], "left")
    else:
        entries = allowed.withColumn("denied", F.expr("cast(null AS array<string>)"))
    of_type = chosen(((f"privilege = {literal(name)}", _is_type(types)) for name, types in asked.items()), "false")
    above = _above(entries, holdings, of_type).groupBy(PRINCIPAL, _UPPER, "privilege")
    found = above.agg(F.expr("bool_or(denied IS NULL)").alias("free"), F.collect_set("denied").alias("denied"))
    entry = "transform(denied, d -> named_struct('privilege', privilege, 'denied', d))"
    bits: list[tuple[BitKey, str]] = []
    for name in asked:
        bits.append((("below", name), f"free AND privilege = {literal(name)}"))
        bits.append((("blocked", name), f"NOT free AND privilege = {literal(name)}"))
    return holdings.entry(found, PRINCIPAL, _UPPER, *bits, more=f"CASE WHEN NOT free THEN {entry} END AS {BLOCKED}")


def _denied(held: DataFrame, allowed: DataFrame, holdings: Holdings) -> DataFrame:
    """(key, privilege, denied): the principals to whom a privilege is denied where somebody has it."""
    places = allowed.select(KEY, "privilege").distinct()
    places = _exploded(places, holdings, "on") if holdings.semantics.down else places.withColumn("on", F.col(KEY))
    denials = _by_privilege(held, holdings, "deny").withColumnsRenamed({KEY: "on"})
    found = places.select(KEY, "privilege", "on").join(denials, ["on", "privilege"]).groupBy(KEY, "privilege")
    return found.agg(F.array_sort(F.collect_set(PRINCIPAL)).alias("denied"))


def _by_privilege(held: DataFrame, holdings: Holdings, effect: str) -> DataFrame:
    """(principal, key, privilege): what principals are allowed or denied of the privileges that conditions ask about."""
    names = (
        f"CASE WHEN {_holds(holdings, (effect, name))} THEN {literal(name)} END"
        for name in holdings.numbers.below.privileges
    )
    return held.selectExpr(PRINCIPAL, KEY, f"explode(array_compact(array({', '.join(names)}))) AS privilege")


def _above(rows: DataFrame, holdings: Holdings, condition: str) -> DataFrame:
    """Rows with each entity above their own that fulfils a condition."""
    return _exploded(rows, holdings, _UPPER).where(both([f"{_UPPER} <> {KEY}", condition]))


def _exploded(rows: DataFrame, holdings: Holdings, column: str) -> DataFrame:
    """Rows with each entity on the path of their own."""
    located = holdings.with_whole_path(rows, *_entity(KEY))
    return located.select("*", F.expr(f"explode({holdings.chain(*_entity(KEY))})").alias(column))


def _holds(holdings: Holdings, key: BitKey) -> str:
    number, bit = holdings.numbers.bit(key)
    return f"({word(number)} & {bit}L) <> 0L"


def _is_type(types: Collection[str]) -> str:
    return one_of(_entity(_UPPER)[0], sorted(types))


def _entity(key: str) -> tuple[str, str]:
    """SQL expressions for the type and the path of an entity, from its key."""
    return f"substring_index({key}, ':', 1)", f"substr({key}, instr({key}, ':') + 1)"
