"""A filter allows exactly the paths on which the reference allows the request: in generated worlds, for all sorts of names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

import pytest
import worlds
from seeds import seeds
from worlds import attributes as worlds_attributes

from privtab.base.attributes import Attribute
from privtab.base.errors import InvalidRequest, UnsupportedError
from privtab.base.names import encode_name, unencoded_name
from privtab.base.request import Entity, Request
from privtab.base.source import SourceFile
from privtab.engines.index import Index
from privtab.engines.rows import RowEngine
from privtab.filters.filter import Filter, filter_of
from privtab.ir.nodes import Program
from privtab.ir.serialise import vocabulary
from privtab.pipeline import load_program, policy_artifacts
from privtab.reference.evaluate import Reference
from privtab.state.index import index_document
from privtab.state.nodes import State
from privtab_analysis.entitlements.universe import names as state_names
from privtab_analysis.entitlements.universe import universe

ODD = (None, "", "*", "%", "%2A", "*?", "nowhere", "READER", "a\n", "\u2028", "e\u0301")
REQUESTS, PATHS = 12, 40
VALUED: dict[tuple[str, ...], int] = {}
"""How many paths with attributes of columns were compared, by the features of the worlds."""


def _allowed(
    program: Program,
    reference: Reference,
    request: Request,
    names: tuple[str | None, ...],
    values: Mapping[str, object],
) -> bool:
    """The decision of the reference for an entity with these names; one without a name is a call, no entity."""
    shape = vocabulary(program).shapes[request.resource.type].written
    if None in names or "" in names:
        return False
    nested = None if shape.nested is None else shape.chain[shape.nested][1] - 1
    path = "/".join(str(name) if level == nested else encode_name(str(name)) for level, name in enumerate(names))
    if path.endswith("/"):
        return False
    given = {name: value for name, value in values.items() if value is not None}
    asked = replace(
        request,
        resource=Entity(request.resource.type, path),
        attributes=replace(request.attributes, entity=given),
    )
    try:
        vocabulary(program).check(asked)
    except InvalidRequest:
        return False
    return reference.decide(asked).allowed


def _values(attribute: Attribute) -> Sequence[object]:
    """Values of a column, also such as no request can give."""
    match attribute.type:
        case "bool":
            return (None, True, False, 0, 1, "true", 1.0)
        case "integer":
            others = (2.0, 2.5, True, "2", "2x", float("nan"))
            return (None, *range(attribute.lowest - 1, attribute.highest + 2), *others)
        case _:
            return (None, *attribute.values, *worlds_attributes.TEXTS, "", "other0", "a\n", 3, True, b"one")


def _name(random: Random, known: Sequence[str], most: int | None) -> str | None:
    """A name, or a path of names, which may be too long."""
    pool = ODD if random.random() < 0.2 else known
    if most is None:
        return random.choice(pool)
    parts = [random.choice(pool) or "" for _ in range(random.choice((1, 1, 2, 2, 3, most, most + 1)))]
    return "/".join(part if random.random() < 0.1 else encode_name(part) for part in parts)


def _check_known(program: Program, state: State, reference: Reference, request: Request, found: Filter) -> None:
    """The entities of a state that a filter says to be allowed are those that the reference allows."""
    paths = sorted(universe(program, state).by_type[request.resource.type])
    try:
        among = found.among(paths)
    except UnsupportedError:
        return
    assert among == [
        path
        for path in paths
        if reference.decide(replace(request, resource=Entity(request.resource.type, path))).allowed
    ], request


@pytest.mark.parametrize(
    "features",
    [
        (),
        ("hierarchy", "implies", "any", "nobody"),
        ("attributes",),
        ("active", "below"),
        ("flat",),
        ("nested", "attributes"),
    ],
    ids=str,
)
@pytest.mark.parametrize("seed", seeds(range(500, 540), quick=2, full=4))
def test_a_filter_allows_what_the_reference_allows(seed: int, features: tuple[str, ...]) -> None:
    program = load_program(SourceFile(path="world.yaml", text=worlds.policy(seed, f"world{seed}", features)))
    state = worlds.state(program, seed)
    engine = RowEngine(policy_artifacts(program).program, Index(index_document(program, state)))
    reference = Reference(program, state)
    known = sorted({unencoded_name(name) for name in state_names(program, state)} | {*worlds.USERS, *worlds.ROLES})
    random, compared, valued = Random(seed), 0, 0
    for asked in random.sample(requests := worlds.requests(program, seed, per_rule=2), min(REQUESTS, len(requests))):
        request = replace(asked, attributes=replace(asked.attributes, entity={}))
        try:
            found = filter_of(engine, request)
        except UnsupportedError:
            continue
        _check_known(program, state, reference, request, found)
        for _ in range(PATHS):
            names = tuple(_name(random, known, found.bounds.get(level)) for level in found.levels)
            values = {name: random.choice(_values(program.attributes.entity[name])) for name in found.attributes}
            allowed = _allowed(program, reference, request, names, values)
            assert found.allows(*names, **values) is allowed, (request, names, values, found.to_json())
            valued += bool(values)
            compared += 1
    assert compared
    VALUED[features] = VALUED.get(features, 0) + valued


def test_attributes_of_columns_were_compared() -> None:
    for seed in range(4):
        test_a_filter_allows_what_the_reference_allows(seed, ("attributes",))
    assert VALUED["attributes",] > 10
