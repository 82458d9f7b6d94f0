"""Filters of all operations of the shipped policies select, in a real database, what the engine allows."""
# ruff: noqa: S608  (conditions are what is tested)

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from privtab.engines.index import Index
from privtab.engines.rows import RowEngine
from privtab.entitlements.universe import Universe, universe, users
from privtab.errors import InvalidRequest
from privtab.filters.filter import filter_of
from privtab.ir.nodes import Program, Rule
from privtab.ir.serialise import vocabulary
from privtab.names import unencoded
from privtab.pipeline import load_program, policy_artifacts
from privtab.request import NOT_SET, Entity, Request
from privtab.state.index import index
from privtab.state.load import load
from privtab.state.nodes import State
from privtab.state.validate import validate

POLICIES = Path(__file__).resolve().parents[2] / "policy_src"
SHIPPED = {
    "gravitino/1.1.0": "gravitino",
    "polaris/1.7": "polaris",
    "lakekeeper/4.9": "lakekeeper",
    "unitycatalog/0.6": "unitycatalog",
    "cdap/final": "cdap",
    "streams/teracloud": "streams",
}
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
        return [unencoded(name) for name in names]
    first = shape.chain[shape.nested][1] - 1
    last = len(names) - (shape.depth - first - 1)
    return [*map(unencoded, names[:first]), "/".join(names[first:last]), *map(unencoded, names[last:])]


def _regexp(pattern: str, text: str | None) -> bool | None:
    return None if text is None else re.search(pattern, text) is not None


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "gravitino/1.1.0" else pytest.mark.slow) for name in SHIPPED]
)
def test_filters_of_all_operations(name: str) -> None:
    program = load_program(POLICIES / f"{name}.yaml")
    state, _ = validate(program, load(POLICIES / SHIPPED[name] / "state.yaml"))
    _compare(program, state, Random(name))


def _compare(program: Program, state: State, random: Random) -> None:
    engine = RowEngine(policy_artifacts(program).program, Index(index(program, state)))
    known, found, callers = vocabulary(program), universe(program, state), sorted(users(program, state))
    selected_some = 0
    for type_ in program.entities:
        entities = [
            entity for path in paths(program, type_, found, random) if _is_valid(program, entity := Entity(type_, path))
        ]
        by_id = {entity.id: entity for entity in entities}
        rules = [rule for rule in program.rules.values() if rule.entity == type_]
        for rule in rules:
            for request in requests(program, rule, found, callers, random):
                known.check_context(request, known.check_operation(type_, rule.operation))
                if rule.needs_active_role:
                    continue
                allowed = filter_of(engine, request)
                with closing(sqlite3.connect(":memory:")) as database:
                    database.create_function("REGEXP", 2, _regexp)
                    columns = {level: f"c{number}" for number, level in enumerate(allowed.levels)}
                    database.execute(
                        f"CREATE TABLE t (id TEXT{''.join(f', {column} TEXT' for column in columns.values())})"
                    )
                    rows = [(id_, *_names(program, entity)) for id_, entity in by_id.items()]
                    database.executemany(f"INSERT INTO t VALUES (?{', ?' * len(columns)})", rows)
                    where = allowed.sql("sqlite", columns)
                    selected = {
                        id_ for (id_,) in database.execute(f"SELECT id FROM t WHERE {where.text}", where.parameters)
                    }
                expected = {list(by_id.values())[at].id for at in engine.visible(request, list(by_id.values()))}
                assert selected == expected, (request, where)
                selected_some += bool(selected)
    assert selected_some > 20
