"""A validated state as DataFrames."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as fn

from privtab.errors import UsageError
from privtab.ir.nodes import Program
from privtab.request import Entity
from privtab.spark.state.checked import program_of
from privtab.spark.state.schemas import CANONICAL, FINDINGS, schema
from privtab.spark.state.vocabulary import differences, names_of
from privtab.state.names import StateNames
from privtab.state.nodes import TABLES, Assignment, Grant, State

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkState:
    """Valid rows by table without duplicates, with the columns of `CANONICAL`; aliases and sets of privileges are resolved."""

    tables: Mapping[str, DataFrame]
    """Has all of `TABLES`; a table without rows is an empty frame."""
    quarantined: DataFrame
    """The findings about invalid rows, with the columns of `schemas.FINDINGS`."""
    system: str | None = None
    """The system that the rows are for; None if unknown."""
    names: Mapping[str, Any] | None = field(default=None, repr=False)
    """The names by which the rows were validated and resolved (`vocabulary.names_of`); None for a bundle, which lacks them."""
    _counts: dict[str, int] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def from_state(cls, spark: SparkSession, program: Program | None, state: State) -> SparkState:
        """The rows of a validated state; without a program, its grants must not name aliases or sets."""
        state.plain("Spark")
        names = None if program is None else StateNames(program)
        rows = {table: list(dict.fromkeys(_rows(table, state, names))) for table in TABLES}
        tables = {table: local_frame(spark, table, rows[table]) for table in TABLES}
        return cls(
            tables=tables,
            quarantined=spark.createDataFrame([], FINDINGS),
            system=None if program is None else program.system,
            names=None if program is None else names_of(program),
            _counts={table: len(rows[table]) for table in TABLES},
        )

    def fitting(self, policy: object) -> SparkState:
        """The state unchanged; raises UsageError if it was read for another system, or for a policy with other names.

        For such a policy, valid rows may have been left out or privileges resolved differently.
        """
        program = program_of(policy)
        if self.system is not None and self.system != program.system:
            raise UsageError(f"the state is for `{self.system}`, but the policy is for `{program.system}`")
        if self.names is not None:
            differing = differences(self.names, names_of(program))
            if differing:
                raise UsageError(
                    f"the state was read for another policy of `{program.system}`, with other {', '.join(differing)}: read it "
                    "with this one"
                )
        return self

    def counts(self) -> Mapping[str, int]:
        """The number of rows of each table, counted once."""
        missing = [table for table in TABLES if table not in self._counts]
        if missing:
            counted = [self.tables[t].select(fn.lit(t).alias("table")) for t in missing]
            together = counted[0]
            for frame in counted[1:]:
                together = together.unionAll(frame)
            found = {row["table"]: row["count"] for row in together.groupBy("table").count().collect()}
            self._counts.update({table: found.get(table, 0) for table in missing})
        return dict(self._counts)

    def local(self, limit: int = 5_000_000) -> State | None:
        """The state collected in this process, or None if it has more than `limit` rows."""
        if sum(self.counts().values()) > limit:
            return None
        return from_arrow({t: self.tables[t].toArrow() for t in TABLES if self._counts[t]})


def local_frame(spark: SparkSession, table: str, rows: list[tuple[str | None, ...]]) -> DataFrame:
    """The DataFrame of a table from rows in this process."""
    names = CANONICAL[table]
    if not rows:
        return spark.createDataFrame([], schema(table))
    columns = list(zip(*rows, strict=True))
    data = pa.table({name: pa.array(column, pa.string()) for name, column in zip(names, columns, strict=True)})
    return spark.createDataFrame(data)


def from_arrow(tables: Mapping[str, Any]) -> State:
    """A State from Arrow tables with the columns of `CANONICAL`; equal entities share one object."""
    entities: dict[tuple[str, str], Entity] = {}

    def columns(table: str) -> list[list[Any]]:
        return [tables[table].column(name).to_pylist() for name in CANONICAL[table]] if table in tables else []

    def rows(table: str) -> list[tuple[Any, ...]]:
        return list(zip(*columns(table), strict=True))

    def entity(type_: str, path: str) -> Entity:
        found = entities.get((type_, path))
        if found is None:
            found = entities[type_, path] = Entity(type_, path)
        return found

    return State(
        members=tuple((user, entity(t, p)) for user, t, p in rows("members")),
        memberships=tuple((user, group) for user, group in rows("memberships")),
        assignments=tuple(
            Assignment(principal=who, role=role, scope=None if t is None else entity(t, p))
            for who, role, t, p in rows("assignments")
        ),
        grants=tuple(
            Grant(grantee=who, effect=effect, privilege=privilege, entity=entity(t, p))
            for who, effect, privilege, t, p in rows("grants")
        ),
        owners=tuple((entity(t, p), owner) for t, p, owner in rows("owners")),
        service_admins=tuple(user for (user,) in rows("service_admins")),
    )


def _rows(table: str, state: State, names: StateNames | None) -> list[tuple[str | None, ...]]:
    match table:
        case "members":
            return [(user, entity.type, entity.id) for user, entity in state.members]
        case "memberships":
            return list(state.memberships)
        case "assignments":
            return [
                (
                    a.principal,
                    a.role,
                    None if a.scope is None else a.scope.type,
                    None if a.scope is None else a.scope.id,
                )
                for a in state.assignments
            ]
        case "grants":
            return [
                (g.grantee, g.effect, privilege, g.entity.type, g.entity.id)
                for g in state.grants
                for privilege in ((g.privilege,) if names is None else names.given(g.privilege, g.entity.type))
            ]
        case "owners":
            return [(entity.type, entity.id, owner) for entity, owner in state.owners]
        case _:
            return [(user,) for user in state.service_admins]
