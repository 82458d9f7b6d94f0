"""Filters of all operations of the shipped policies select, in a real database, what the engine allows."""
# ruff: noqa: S608  (conditions are what is tested)

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from random import Random

import pytest
from checkout import POLICIES
from filtered_databases import FOLDED, Run, insert
from pyspark.sql import SparkSession

from privtab.base.errors import InvalidRequest
from privtab.base.names import unencoded_name
from privtab.base.request import NOT_SET, Entity, Request
from privtab.engines.index import Index
from privtab.engines.rows import RowEngine
from privtab.filters.filter import Filter, filter_of
from privtab.ir.nodes import Program, Rule
from privtab.ir.serialise import vocabulary
from privtab.pipeline import load_program, policy_artifacts
from privtab.state.index import index_document
from privtab.state.load import load_raw_state, validate
from privtab.state.nodes import State
from privtab_analysis.entitlements.universe import Universe, universe, users

SHIPPED = {
    "gravitino/1.1.0": "gravitino",
    "polaris/1.7": "polaris",
    "lakekeeper/4.9": "lakekeeper",
    "unitycatalog/0.6": "unitycatalog",
    "cdap/final": "cdap",
    "streams/teracloud": "streams",
}
LARGE = {"gravitino/1.1.0", "lakekeeper/4.9", "polaris/1.7", "unitycatalog/0.6"}
"""Those whose listings take Spark longest."""
ROWS, CALLERS = 300, 5


def requests(program: Program, rule: Rule, found: Universe, callers: list[str], random: Random) -> Iterator[Request]:
    """Requests for an operation, without an entity, whose further objects are in the state."""
    for user in random.sample(callers, min(CALLERS, len(callers))):
        pools = {slot.name: [e for type_ in slot.named for e in found.by_type[type_].values()] for slot in rule.withs}
        if not all(pools.values()):
            return
        yield Request(
            user=user,
            action=rule.operation,
            resource=Entity(rule.entity, ""),
            with_={name: random.choice(pool) for name, pool in pools.items()},
            flags=frozenset(f"{flag}{random.choice(('', NOT_SET))}" for flag in rule.required_flags),
        )


def paths(program: Program, type_: str, found: Universe, random: Random) -> list[str]:
    """Paths of entities that there are, and of such as there could be."""
    known = [entity.id for entity in found.by_type[type_].values()]
    pool = [*sorted({name for entity in found for name in entity.names}), "other", "a%2Fb", "o'brien"]
    depth = vocabulary(program).shapes[type_].written.depth
    return known + ["/".join(random.choice(pool) for _ in range(depth + random.randrange(2))) for _ in range(ROWS)]


def _is_valid(program: Program, entity: Entity) -> bool:
    try:
        vocabulary(program).check_path(entity)
    except InvalidRequest:
        return False
    return True


def _names(program: Program, entity: Entity) -> list[str]:
    """What columns have of an entity: its names, those of the type that nests as a path."""
    shape = vocabulary(program).shapes[entity.type].written
    names = list(entity.names)
    if shape.nested is None:
        return [unencoded_name(name) for name in names]
    first = shape.chain[shape.nested][1] - 1
    last = len(names) - (shape.depth - first - 1)
    return [*map(unencoded_name, names[:first]), "/".join(names[first:last]), *map(unencoded_name, names[last:])]


DIALECTS = ("sqlite", "duckdb", "postgres", "mysql")
QUICK = ("gravitino/1.1.0", "sqlite")
WITH_ONE = set(zip(SHIPPED, (*DIALECTS[1:], *DIALECTS), strict=False))
"""Each table with one of the dialects, and each dialect with some table."""


@pytest.mark.parametrize(
    ("name", "dialect"),
    [
        pytest.param(*case, marks=[] if case == QUICK else pytest.mark.slow if case in WITH_ONE else pytest.mark.long)
        for case in product(SHIPPED, DIALECTS)
    ],
)
def test_filters_of_all_operations(name: str, dialect: str, run: Run) -> None:
    program, state = _shipped(name)

    def made(columns: Mapping[str, str], rows: Sequence[Sequence[object]]) -> None:
        run("DROP TABLE IF EXISTS s", ())
        run(f"CREATE TABLE s (id TEXT{''.join(f', {column} {FOLDED[dialect]}' for column in columns.values())})", ())
        insert(run, dialect, "s", rows)

    def selected(found: Filter, columns: Mapping[str, str]) -> set[object]:
        where = found.sql(dialect, columns)
        return {row[0] for row in run(f"SELECT id FROM s WHERE {where.text}", where.parameters)}

    _compare(program, state, Random(name), made, selected)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] if name in LARGE else []) for name in SHIPPED]
)
def test_filters_of_listings_on_spark(name: str, spark: SparkSession) -> None:
    program, state = _shipped(name)

    def made(columns: Mapping[str, str], rows: Sequence[Sequence[object]]) -> None:
        schema = ", ".join(("id STRING", *(f"{column} STRING COLLATE UTF8_LCASE" for column in columns.values())))
        spark.createDataFrame([tuple(row) for row in rows], schema).cache().createOrReplaceTempView("s")

    def selected(found: Filter, columns: Mapping[str, str]) -> set[object]:
        return {row[0] for row in spark.table("s").where(found.spark(columns)).select("id").collect()}

    _compare(program, state, Random(name), made, selected, listings=True)


def _shipped(name: str) -> tuple[Program, State]:
    program = load_program(POLICIES / f"{name}.yaml")
    state, _ = validate(program, load_raw_state(POLICIES / SHIPPED[name] / "state.yaml"))
    return program, state


def _compare(
    program: Program,
    state: State,
    random: Random,
    made: Callable[[Mapping[str, str], Sequence[Sequence[object]]], None],
    selected: Callable[[Filter, Mapping[str, str]], set[object]],
    *,
    listings: bool = False,
) -> None:
    """Compare what filters select with the engine's answers. `made` makes the table of a type, by the column of each level.

    `listings`: only for operations that ask about each item of a list, or for some where the policy has none of these.
    """
    engine = RowEngine(policy_artifacts(program).program, Index(index_document(program, state)))
    known, found, callers = vocabulary(program), universe(program, state), sorted(users(program, state))
    selected_some = 0
    chosen = [rule for rule in program.rules.values() if not rule.needs_active_role]
    if listings:
        chosen = [rule for rule in chosen if rule.each is not None] or random.sample(chosen, 20)
    for type_ in program.entities:
        rules = [rule for rule in chosen if rule.entity == type_]
        entities = [
            entity for path in paths(program, type_, found, random) if _is_valid(program, entity := Entity(type_, path))
        ]
        by_id = {entity.id: entity for entity in entities}
        columns: dict[str, str] = {}
        for rule in rules:
            for request in requests(program, rule, found, callers, random):
                known.check_context(request, known.check_operation(type_, rule.operation))
                allowed = filter_of(engine, request)
                if not columns:
                    columns = {level: f"c{number}" for number, level in enumerate(allowed.levels)}
                    made(columns, [(id_, *_names(program, entity)) for id_, entity in by_id.items()])
                expected = {list(by_id.values())[at].id for at in engine.visible(request, list(by_id.values()))}
                mine = selected(allowed, columns)
                assert mine == expected, (request, allowed.to_json())
                selected_some += bool(mine)
    assert selected_some > (0 if listings else 20)
