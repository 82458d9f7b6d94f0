"""Joins where a type nests, and where ids are flat, compared with a policy of as many types: processor time of the same decisions.

    python bench/spark_levels.py [LEVELS] [REQUESTS]

Processor time is that of Spark's process, which is of use on a busy machine, too.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

import spark_sessions

from privtab.pipeline import load_program
from privtab.request import Entity
from privtab.spark import decide
from privtab.spark.state import state_tables
from privtab.state.nodes import Assignment, Grant, Placement, State

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TURNS = 5
POLICY = """
privtab: 1
system: levels
version: '1'
entities: {{catalog: {entities}}}
types: {types}
privileges: [USE, READ]
semantics: {{inheritance: down, deny: overrides}}
tables:
  table: {{load: READ (table) and USE ({nearest})}}
"""
USERS, ROLES, NAMESPACES, GRANTS, TABLES = 2_000, 200, 3_000, 40_000, 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One way to write the same policy. Entities are given by the names on their path."""

    name: str
    policy: str
    entity: Callable[[tuple[str, ...]], Entity]
    placed: bool = False


def shapes(levels: int) -> Iterator[Shape]:
    """The ways, the plain one first; a namespace has `levels` names after that of its catalog."""
    inner = "{table: }"
    for level in range(levels, 0, -1):
        inner = f"{{namespace_{level}: {inner}}}"

    def typed(names: tuple[str, ...], namespace: str) -> str:
        is_table = names[-1].startswith("t")
        return "table" if is_table else "catalog" if len(names) == 1 else namespace

    def written(names: tuple[str, ...], namespace: str) -> Entity:
        return Entity(typed(names, namespace), "/".join(names))

    def flat(names: tuple[str, ...]) -> Entity:
        return Entity(typed(names, "namespace"), ".".join(names))

    nesting = "{namespace: {table: }}"
    yield Shape(
        name="a type for each level",
        policy=POLICY.format(entities=inner, types="{}", nearest=f"namespace_{levels}"),
        entity=lambda names: written(names, f"namespace_{len(names) - 1}"),
    )
    yield Shape(
        name="a type that nests",
        policy=POLICY.format(entities=nesting, types="{namespace: {nested: true}}", nearest="namespace"),
        entity=lambda names: written(names, "namespace"),
    )
    types = "{namespace: {nested: true, flat: true}, table: {flat: true}}"
    yield Shape(
        name="flat ids that nest",
        policy=POLICY.format(entities=nesting, types=types, nearest="namespace"),
        entity=flat,
        placed=True,
    )


def namespaces(levels: int) -> list[tuple[str, ...]]:
    """The names on the paths of the innermost namespaces."""
    rnd = random.Random(1)
    found = {
        (f"c{rnd.randrange(20)}", *(f"n{rnd.randrange(6)}" for _ in range(levels))): None for _ in range(NAMESPACES)
    }
    return list(found)


def state(shape: Shape, paths: list[tuple[str, ...]]) -> State:
    """The same rows for each shape."""
    rnd = random.Random(2)
    grants: dict[Grant, None] = {}
    for _ in range(GRANTS):
        names = rnd.choice(paths)
        entity = shape.entity(names[: rnd.randint(1, len(names))])
        privilege, role = rnd.choice(["USE", "READ"]), f"role:r{rnd.randrange(ROLES)}"
        effect = "deny" if rnd.random() < 0.05 else "allow"
        grants[Grant(grantee=role, effect=effect, privilege=privilege, entity=entity)] = None  # type: ignore[arg-type]
    assigned = [
        Assignment(principal=f"user:u{user}", role=f"r{rnd.randrange(ROLES)}") for user in range(USERS) for _ in "abc"
    ]
    around = {names[:depth]: None for names in paths for depth in range(2, len(names) + 1)}
    lying = [*around, *((*names, f"t{table}") for names in paths for table in range(TABLES))] if shape.placed else []
    places = (Placement(entity=shape.entity(names), parent=shape.entity(names[:-1])) for names in lying)
    return State(grants=tuple(grants), assignments=tuple(assigned), entities=tuple(places))


def seconds(process: str) -> float:
    """The processor time of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def java() -> str:
    """The process of Spark, which this process has started."""
    for status in Path("/proc").glob("[0-9]*/status"):
        fields = dict(line.split(":\t", 1) for line in status.read_text(encoding="utf-8").splitlines() if ":\t" in line)
        if fields["PPid"] == str(os.getpid()) and fields["Name"] == "java":
            return status.parent.name
    raise SystemExit("there is no Spark in this process")


def measure(session: SparkSession, folder: Path, levels: int, count: int) -> None:
    """Print the seconds of each shape, turn by turn."""
    rnd = random.Random(3)
    paths = namespaces(levels)
    asked = [(f"u{rnd.randrange(USERS)}", (*rnd.choice(paths), f"t{rnd.randrange(TABLES)}")) for _ in range(count)]
    runs = []
    for number, shape in enumerate(shapes(levels)):
        file = folder / f"{number}.yaml"
        file.write_text(shape.policy, encoding="utf-8")
        program = load_program(file)
        columns = {"user": [user for user, _ in asked], "path": [shape.entity(names).id for _, names in asked]}
        frame = session.createDataFrame(pa.table(columns)).repartition(8).localCheckpoint()
        runs.append((shape.name, program, frame, state_tables(session, program, state(shape, paths))))
    process = java()
    for turn in range(TURNS):
        for name, program, frame, tables in runs:
            begin = seconds(process)
            decided = decide(
                frame, program, tables, subject="user", action="load", resource=("table", "path"), plan="joins"
            )
            allowed = decided.where("allowed").count()
            print(
                f"{turn + 1}  {name:<24} {seconds(process) - begin:6.2f} s  {allowed:,} of {count:,} allowed",
                flush=True,
            )


if __name__ == "__main__":
    given = [int(text) for text in sys.argv[1:]]
    spark = spark_sessions.session()
    with tempfile.TemporaryDirectory() as place:
        measure(spark, Path(place), *[*given, *(4, 300_000)[len(given) :]])
    spark.stop()
