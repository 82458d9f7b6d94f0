"""Grants with the privileges that aliases, sets and implying privileges in them mean."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from pyspark.sql import functions as fn

from privtab.ir.nodes import Program
from privtab.state.names import StateNames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def granted_privileges(program: Program, grants: DataFrame) -> DataFrame:
    """Grants resolved to the privileges that they allow or deny on the type of their entity, as `PrivilegeNames.given`."""
    names = StateNames(program)
    if names.one_for_one:
        return grants
    stands: dict[str, list[str]] = {}
    resolved = [*program.aliases, *program.sets, *(p.name for p in program.privileges.values() if p.implies)]
    for name, type_, effect in product(resolved, program.entities, ("allow", "deny")):
        privileges_there = names.privileges_of(name, type_, effect)
        if privileges_there:
            stands[f"{name}\n{type_}\n{effect}"] = list(privileges_there)
    is_resolved = fn.col("privilege").isin(resolved)
    as_map = fn.create_map(*(part for key, ps in stands.items() for part in (fn.lit(key), fn.array(*map(fn.lit, ps)))))
    found = fn.try_element_at(as_map, fn.concat_ws("\n", fn.col("privilege"), fn.col("type"), fn.col("effect")))
    privileges = fn.when(is_resolved, fn.coalesce(found, fn.array().cast("array<string>"))).otherwise(
        fn.array(fn.col("privilege"))
    )
    columns = [fn.explode(privileges).alias("privilege") if c == "privilege" else fn.col(c) for c in grants.columns]
    return grants.select(*columns)
