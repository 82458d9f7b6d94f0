"""The matrix of a state too large for one process, computed in portions that each have only the rows relevant to their entities.

A portion is an entity near the root with everything below it. Only rows about entities on its path matter to an entity, so a task
needs the rows of its portion, the rows of its ancestors, and the principals that hold something by these rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812  (the conventional name)

from privtab.base import Entity
from privtab.ir import Program
from privtab.state import UsedParts, as_written
from privtab_analysis.entitlements.universe import PRINCIPALS, Universe
from privtab_spark import portions
from privtab_spark.columns import decoded, last_name
from privtab_spark.frames import union
from privtab_spark.matrix import DDL, Matrix
from privtab_spark.matrix.opening import StateSource, open_matrix, user_names_of
from privtab_spark.matrix.question import Question
from privtab_spark.policies import OpenPolicy
from privtab_spark.state.row_checks import closed as with_chains
from privtab_spark.state.schemas import CANONICAL, LOCATED, TABLES
from privtab_spark.state.shards import by_root
from privtab_spark.state.tables import from_arrow, whole

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from privtab_spark.state import SparkState

ENTITIES = 10_000
"""Number of entities that a task computes at once."""
_OF_USERS = ("members", "memberships", "service_admins")
"""The tables with users in the column `user`, among the tables that matter to a matrix in portions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixRequest:
    """The entities and subjects of a matrix over a large state."""

    entities: DataFrame | None
    """Has a column `entity`; None: all entities that the state names."""
    all_users: bool
    """True if the subjects are all users that the state names; otherwise `users` (with a column `user`; None: no users) and
    `principals` (groups and roles)."""
    users: DataFrame | None
    principals: tuple[str, ...]


class PartitionedMatrix:
    """Computes one matrix in portions. Frames of rows have the columns of their table and `portion`."""

    def __init__(self, policy: OpenPolicy, state: SparkState, matrix: Matrix, request: MatrixRequest) -> None:
        """`matrix`: a matrix for the same question, without subjects.

        Raises UsageError if a single entity has more rows than a task can hold.
        """
        self.policy, self.state, self.matrix, self.request = policy, state, matrix, request
        hierarchy = policy.json["semantics"].get("hierarchy", ())
        self.tables = with_chains(hierarchy, policy.vocabulary.keys, state.tables)
        self.nests_groups = "groups" in hierarchy
        self.uses = UsedParts.of(policy.checked("a state"))
        self.chains = policy.vocabulary.chains
        withs = matrix.question.withs or {}
        self.with_keys = [key for entity in withs.values() for key in policy.vocabulary.keys(entity)]
        """The `with` objects and their ancestors, which matter to every request."""
        self.depth = self._depth()
        # Frames that are used several times are computed once.
        keys = self._requested_entities().withColumn("portion", portions.beginning("path", self.depth))
        self.keys = keys.localCheckpoint()
        self.portions = self.keys.select("portion").distinct().localCheckpoint()
        self.places = self.portions.select("portion", F.explode(portions.beginnings("portion")).alias("place"))
        """Each portion with the prefixes of its path, whose rows count in it."""

    def frame(self, partitions: int) -> DataFrame:
        """The rows of the matrix."""
        rows = {table: self._spread(self.state.tables[table]) for table in LOCATED}
        holders = (("grants", "grantee"), ("owners", "owner"))
        found = (rows[table].select("portion", F.col(name).alias("principal")) for table, name in holders)
        granted = union(*found).distinct().localCheckpoint()
        named_principals = self._named_principals()
        rows["assignments"] = self._assignments(granted, named_principals)
        if self.request.all_users or self.request.users is not None:
            if "state" in self.policy.json["semantics"]["groups"] or self.nests_groups:
                rows["memberships"] = self._memberships(granted, named_principals, rows["assignments"])
            if self.uses.service_admins:
                rows["service_admins"] = self.state.tables["service_admins"].crossJoin(self.portions)
        elif self.nests_groups:
            rows["memberships"] = self._memberships(granted, named_principals, rows["assignments"])
        parts = [portions.part(table, frame, CANONICAL[table]) for table, frame in rows.items()]
        parts.append(portions.part(portions.ENTITY, self.keys, ("entity",)))
        parts += [portions.part(portions.USER, frame, ("user",)) for frame in self._users(rows, granted)]
        work = partial(
            _work, self.policy, self.matrix.question, self.request.principals, with_all_users=self.request.all_users
        )
        needed_tasks = 2 * sum(self.state.counts().values()) // portions.ROWS
        tasks = min(portions.MOST_TASKS, max(partitions, needed_tasks))
        return union(*parts).repartition(tasks, "root").mapInArrow(work, DDL)

    def _depth(self) -> int:
        paths = union(*(self.state.tables[table].select("path") for table in LOCATED))
        deepest = min(portions.DEEPEST, max(chain[-1][1] for chain in self.chains.values()))
        return portions.depth_of(paths, sum(self.state.counts().values()), deepest)

    def _requested_entities(self) -> DataFrame:
        """The entities of the matrix: `entity`, `type`, `path`."""
        if self.request.entities is not None:
            entities = self.request.entities.select("entity").where(F.col("entity").contains(":")).distinct()
            path = F.expr("substr(entity, instr(entity, ':') + 1)")
            return entities.select("entity", F.substring_index("entity", ":", 1).alias("type"), path.alias("path"))
        related = {
            type_: F.array(*(_place(kind, depth) for kind, depth in _related(self.policy.as_program, type_)))
            for type_ in self.chains
        }
        found = self._named().select(F.explode(_by_type(related)).alias("each")).select("each.*").distinct()
        return found.select(F.concat_ws(":", "type", "path").alias("entity"), "type", "path")

    def _named(self) -> DataFrame:
        """The entities that rows name (`type`, `path`); may repeat."""
        tables = self.tables
        located = [tables[table].select("type", "path") for table in LOCATED]
        return union(*located, _scoped(tables["assignments"]).select("type", "path"))

    def _spread(self, rows: DataFrame) -> DataFrame:
        """Rows about entities, repeated for each portion in which they count."""
        beginnings = rows.withColumn("place", portions.beginning("path", self.depth))
        placed = beginnings.join(self.places, "place").drop("place")
        if not self.with_keys:
            return placed
        everywhere = rows.where(F.concat_ws(":", "type", "path").isin(self.with_keys)).crossJoin(self.portions)
        return placed.unionByName(everywhere)

    def _named_principals(self) -> DataFrame:
        """The groups and roles that entities stand for, by portion, if the policy has conditions on them."""
        kinds = {kind for kind, count in (("group", self.uses.group_membership), ("role", self.uses.holds)) if count}
        return self._names(kinds, whole=True)

    def _names(self, kinds: Collection[str], *, whole: bool = False) -> DataFrame:
        """`portion` and `principal`: the principals that entities on the paths stand for; `whole`: named by their paths as well."""
        principal = {name: kind["principal"] for name, kind in self.policy.json["entities"].items()}
        places_by_type = {
            type_: F.array(*(_place(principal[kind], depth) for kind, depth in chain if principal[kind] in kinds))
            for type_, chain in self.chains.items()
            if any(principal[kind] in kinds for kind, _ in chain)
        }
        if not places_by_type:
            return self.portions.limit(0).withColumn("principal", F.lit(""))
        paths = self.keys.select("portion", F.explode(_by_type(places_by_type)).alias("at")).select(
            "portion", "at.type", "at.path"
        )
        for key in self.with_keys:
            type_, _, path = key.partition(":")
            if principal[type_] in kinds:
                object_rows = self.portions.select(
                    "portion", F.lit(principal[type_]).alias("type"), F.lit(path).alias("path")
                )
                paths = paths.unionByName(object_rows)
        names = [F.expr(decoded(last_name("path"))), *([F.col("path")] if whole else [])]
        principals = [F.concat_ws(":", F.col("type"), name) for name in names]
        return paths.select("portion", F.explode(F.array(*principals)).alias("principal")).distinct()

    def _assignments(self, granted: DataFrame, named_principals: DataFrame) -> DataFrame:
        """The assignments that count in each portion."""
        assignments = self.tables["assignments"]
        unscoped = assignments.where(F.col("scope_type").isNull())
        scoped = self._spread(_scoped(assignments)).withColumnsRenamed({"type": "scope_type", "path": "scope_path"})
        declared = [name for name, role in self.policy.json["roles"].items() if role["grants"]]
        is_declared = F.col("role").isin(declared)
        roles = _of_kind(granted, "role")
        columns = ["portion", *CANONICAL["assignments"]]
        found = [
            unscoped.where(~is_declared).join(roles, "role"),
            scoped.where(~is_declared).join(roles, ["portion", "role"]),
            unscoped.where(is_declared).crossJoin(self.portions),
            scoped.where(is_declared),
        ]
        if self.uses.holds:
            # The atom `holds` is true of a role assigned within any scope.
            found.append(assignments.join(_of_kind(named_principals, "role"), "role"))
        return self._of_users(union(*(frame.select(*columns) for frame in found)), "principal")

    def _memberships(self, granted: DataFrame, named_principals: DataFrame, assignments: DataFrame) -> DataFrame:
        """The memberships in groups that hold something in a portion, by portion."""
        holding = [granted, named_principals, assignments.select("portion", "principal")]
        groups = union(*(_of_kind(frame, "group") for frame in holding)).distinct()
        return self._of_users(self.tables["memberships"].join(groups, "group"), "user")

    def _of_users(self, rows: DataFrame, column: str) -> DataFrame:
        """Rows of the matrix's users, and of groups and roles."""
        if self.request.all_users:
            return rows
        if self.request.users is None:
            is_kept = F.col(column).startswith("group:") if column == "user" else ~F.col(column).startswith("user:")
            return rows.where(is_kept)
        if column == "user":
            of_everyone = F.col("user").isin([f"group:{group}" for group in self.policy.everyone])
            return rows.where(of_everyone).unionByName(rows.join(self.request.users, "user", "left_semi"))
        named = self.request.users.select(F.concat(F.lit("user:"), "user").alias(column))
        of_user = F.col(column).startswith("user:")
        return rows.where(~of_user).unionByName(rows.where(of_user).join(named, column, "left_semi"))

    def _users(self, rows: Mapping[str, DataFrame], granted: DataFrame) -> Iterator[DataFrame]:
        """Users (`portion`, `user`) that the rows of a portion may not name: for conditions that always hold, and for `self`.

        If the matrix is for given users only, also the given users that the rows of the portion name.
        """
        users = self._everybody() if self.request.all_users else self.request.users
        if users is None:
            return
        found: list[DataFrame] = []
        conditions = {
            type_: [c for named in (True, False) for c in self.matrix.conditions(type_, named=named)]
            for type_ in self.chains
        }
        open_to_all = sorted(
            type_ for type_, of_type in conditions.items() if any(condition.always for condition in of_type)
        )
        if self.policy.everyone:
            found.append(users.crossJoin(self.portions))
        elif open_to_all:
            found.append(users.crossJoin(self.keys.where(F.col("type").isin(open_to_all)).select("portion").distinct()))
        if any(atom.kind == "self" for of_type in conditions.values() for c in of_type for atom in c.atoms()):
            found.append(users.join(_of_kind(self._names({"user"}), "user"), "user"))
        if self.request.users is not None:
            holders = (granted, rows["assignments"].select("portion", "principal"))
            named = [_of_kind(frame, "user") for frame in holders]
            named += [rows[table].select("portion", "user") for table in _OF_USERS if table in rows]
            found.append(union(*named).join(users, "user", "left_semi"))
        if found:
            yield union(*(frame.select("portion", "user") for frame in found)).distinct()

    def _everybody(self) -> DataFrame:
        """`user`: every user that the state names."""
        tables = self.tables
        principals = union(*(tables[table].select(F.col(name).alias("principal")) for table, name in PRINCIPALS))
        kinds = [name for name, kind in self.policy.json["entities"].items() if kind["principal"] == "user"]
        return union(
            *(tables[table].select("user").where(~F.col("user").startswith("group:")) for table in _OF_USERS),
            _of_kind(principals.withColumn("portion", F.lit("")), "user").select("user"),
            self._named().where(F.col("type").isin(kinds)).select(F.expr(decoded(last_name("path"))).alias("user")),
        ).distinct()


def _work(
    policy: OpenPolicy,
    question: Question,
    principals: Sequence[str],
    batches: Iterable[Any],
    *,
    with_all_users: bool,
) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: compute the matrix of each portion."""
    if (table := whole(batches)) is None:
        return
    for _, portion in by_root(table):
        parts = portions.split(portion, (*TABLES, portions.ENTITY, portions.USER))
        source = StateSource(rows=as_written(policy.checked("a state"), from_arrow(parts)))
        users = set(parts[portions.USER].column("user").to_pylist()) if portions.USER in parts else set()
        if with_all_users:
            users.update(user_names_of(policy, source))
        keys = parts[portions.ENTITY].column("entity").to_pylist() if portions.ENTITY in parts else []
        matrix = open_matrix(policy, source, question, users=sorted(users), principals=principals)
        for begin in range(0, len(keys), ENTITIES):
            yield from matrix.of(keys[begin : begin + ENTITIES])


def _place(kind: str, depth: int) -> Column:
    """The entity named by the first names of the path, as `type` and `path`; its path is null if the path has fewer names."""
    named = F.when(F.size(F.split("path", "/")) >= depth, portions.beginning("path", depth))
    return F.struct(F.lit(kind).alias("type"), named.alias("path"))


def _by_type(cases: Mapping[str, Column]) -> Column:
    found: Any = F
    for type_, value in cases.items():
        found = found.when(F.col("type") == type_, value)
    return found  # type: ignore[no-any-return]  # a column: there are types


def _related(program: Program, type_: str) -> list[tuple[str, int]]:
    """The types, with their numbers of names, of the entities that exist with an entity of a type."""
    path = "/".join("x" * program.depth(type_))
    return [(entity.type, len(entity.names)) for entity in Universe(program, [Entity(type_, path)])]


def _scoped(assignments: DataFrame) -> DataFrame:
    """The assignments within scopes, with the scope as `type` and `path`."""
    scoped = assignments.where(F.col("scope_type").isNotNull())
    return scoped.withColumnsRenamed({"scope_type": "type", "scope_path": "path"})


def _of_kind(principals: DataFrame, kind: str) -> DataFrame:
    """`portion` and the names of the principals of one kind, in a column named after the kind."""
    selected = principals.where(F.col("principal").startswith(f"{kind}:"))
    return selected.select("portion", F.substring("principal", len(kind) + 2, 2**30).alias(kind))
