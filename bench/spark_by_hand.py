"""The joins that an expert would write on Spark for one question, with tables prepared for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from masks import QUESTION as PRIVILEGES

if TYPE_CHECKING:
    from prepared import Prepared
    from pyspark.sql import DataFrame, SparkSession


class ByHand:
    """The joins, over the tables of one world; `seconds` are those of their preparation."""

    def __init__(
        self, spark: SparkSession, prepared: Prepared, folder: Path, keep: Callable[[DataFrame], DataFrame]
    ) -> None:
        self.spark = spark
        self.prepared = prepared
        self.folder = folder
        self.keep = keep
        self.seconds = 0.0

    @cached_property
    def roles(self) -> DataFrame:
        """(user, role), including roles through groups."""
        world = self.prepared.world
        rows = [(user, role) for user in world.roles_of for role in sorted(world.all_roles(user))]
        return self._prepared(rows, ("user", "role"))

    @cached_property
    def bits(self) -> DataFrame:
        """(role, place, bits): one bit for each required privilege, and one three bits higher for its denial."""
        found: dict[tuple[str, str], int] = {}
        for role, effect, privilege, path in self.prepared.world.grants:
            if privilege in PRIVILEGES:
                bit = 1 << PRIVILEGES.index(privilege) + (3 if effect == "deny" else 0)
                found[role, path] = found.get((role, path), 0) | bit
        return self._prepared([(*key, bits) for key, bits in found.items()], ("role", "place", "bits"))

    def row_by_row(self, frame: DataFrame) -> DataFrame:
        """A row for each ancestor, joined with the user's roles and their grants, then aggregated for each request."""
        return self._each_row(frame, self.roles, self.bits)

    def from_files_row_by_row(self, frame: DataFrame, folder: Path) -> DataFrame:
        """The same, with tables that are read from the files of a state."""
        return self._each_row(frame, *self._from_files(folder))

    def _each_row(self, frame: DataFrame, roles: DataFrame, bits: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812

        numbered = frame.withColumn("id", F.monotonically_increasing_id())
        held = self._held(numbered, ["id"], roles, bits)
        return numbered.join(held, "id", "left").select("want", _enough().alias("got"))

    def on_distinct(self, frame: DataFrame) -> DataFrame:
        """The same for distinct pairs."""
        pairs = frame.select("user", "table").distinct()
        held = self._held(pairs, ["user", "table"], self.roles, self.bits)
        decided = pairs.join(held, ["user", "table"], "left").select("user", "table", _enough().alias("got"))
        return frame.join(decided, ["user", "table"]).select("want", "got")

    def _held(self, frame: DataFrame, keys: list[str], roles: DataFrame, bits: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812

        names = F.split("table", "/")
        places = F.array(*(F.array_join(F.slice(names, 1, n), "/") for n in range(1, 5)))
        counting = [sum((9 << n) for n, name in enumerate(PRIVILEGES) if _counts(name, level)) for level in range(4)]
        mask = F.element_at(F.array(*map(F.lit, counting)), F.col("level") + 1)
        asked = frame.select(*dict.fromkeys([*keys, "user"]), F.posexplode(places).alias("level", "place"))
        found = asked.join(roles, "user").join(bits, ["role", "place"])
        return found.groupBy(*keys).agg(F.bit_or(F.col("bits").bitwiseAND(mask)).alias("bits"))

    def _from_files(self, folder: Path) -> tuple[DataFrame, DataFrame]:
        """(user, role) and (role, place, bits), as `roles` and `bits`, from the tables of a state."""
        from pyspark.sql import functions as F  # noqa: N812

        read = {
            name: self.spark.read.parquet(str(folder / f"{name}.parquet"))
            for name in ("assignments", "grants", "memberships")
        }
        kind, name = F.substring_index("principal", ":", 1), F.substring_index("principal", ":", -1)
        held = read["assignments"].select(kind.alias("kind"), name.alias("who"), "role")
        direct = held.where("kind = 'user'").select(F.col("who").alias("user"), "role")
        groups = held.where("kind = 'group'").select(F.col("who").alias("group"), "role")
        roles = direct.unionByName(read["memberships"].join(groups, "group").select("user", "role")).distinct()
        number = F.array_position(F.array(*map(F.lit, PRIVILEGES)), F.col("privilege")) - 1
        bit = F.pow(F.lit(2), number + F.when(F.col("effect") == "deny", 3).otherwise(0)).cast("int")
        bits = (
            read["grants"].where(F.col("privilege").isin(*PRIVILEGES))
            .select(F.substring_index("grantee", ":", -1).alias("role"), F.substring_index("entity", ":", -1).alias("place"), bit.alias("bit"))
            .groupBy("role", "place").agg(F.bit_or("bit").alias("bits"))
        )  # fmt: skip
        return roles, bits

    def _prepared(self, rows: list[tuple[Any, ...]], names: tuple[str, ...]) -> DataFrame:
        import pyarrow as pa
        import pyarrow.parquet as pq

        started = time.perf_counter()
        path = self.folder / f"{self.prepared.size}-{names[-1]}.parquet"
        pq.write_table(
            pa.table({name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}), path
        )
        frame = self.keep(self.spark.read.parquet(str(path)))
        self.seconds += time.perf_counter() - started
        return frame


def _counts(privilege: str, level: int) -> bool:
    """Whether a grant of the privilege at that depth counts: on the entity for which it is required, or above."""
    return level <= 1 + PRIVILEGES.index(privilege)


def _enough() -> Any:
    """Whether all three privileges are allowed and none is denied."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.coalesce(F.col("bits"), F.lit(0)) == 7
