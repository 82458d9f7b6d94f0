"""What can be asked: what `check` accepts in a small world is what the tools enumerate, whatever a row declares and whatever its effects are."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple, TypeAlias

import generated_programs
import pytest
from seeds import seeds

from privtab.base import Entity, InvalidRequest, Request
from privtab.ir import RESOURCE, Program, Rule, program_from_json, program_json, vocabulary
from privtab.reference import Reference
from privtab.state import Grant, Placement, State
from privtab_analysis.entitlements.universe import Universe, universe
from privtab_analysis.goals import goal
from privtab_analysis.paths import ReachableRights
from privtab_analysis.permissions import what_can
from privtab_analysis.state_diff import state_diff
from privtab_analysis.state_diff.placed import placed

Objects: TypeAlias = tuple[tuple[str, Entity], ...]


class UserlessRequest(NamedTuple):
    """A request without its user; a path without its last name has no `/` at its end where it needs none."""

    operation: str
    resource: Entity
    with_: Objects


class Forest(NamedTuple):
    """Entity types, and some entities of them."""

    entities: str
    types: str
    parents: dict[str, str | None]
    named: tuple[str, ...]
    lying: tuple[tuple[str, str], ...] = ()
    """What contains the entities with flat ids."""


FORESTS = (
    Forest("{cat: {tab: }}", "", {"cat": None, "tab": "cat"}, ("tab:a/b", "tab:a/c", "cat:d")),
    Forest("{cat: {tab: }, team: }", "", {"cat": None, "tab": "cat", "team": None}, ("tab:a/b", "team:t", "cat:d")),
    Forest(
        "{cat: {conf: {key: }, tab: }}",
        "conf: {single: true}",
        {"cat": None, "conf": "cat", "key": "conf", "tab": "cat"},
        ("tab:a/b", "key:a/k", "cat:d"),
    ),
    Forest(
        "{all: {cat: {tab: }}}", "all: {single: true}", {"all": None, "cat": "all", "tab": "cat"}, ("tab:a/b", "cat:d")
    ),
    Forest(
        "{cat: {ns: {tab: }}}",
        "ns: {nested: 2}",
        {"cat": None, "ns": "cat", "tab": "ns"},
        ("tab:a/n/m/b", "tab:a/n/b", "ns:d/n"),
    ),
    Forest(
        "{cat: {ns: {tab: {part: }}}}",
        "ns: {nested: 3, flat: true}, tab: {flat: true}",
        {"cat": None, "ns": "cat", "tab": "ns", "part": "tab"},
        ("part:b/p", "cat:d"),
        (("ns:n", "cat:a"), ("ns:m", "ns:n"), ("tab:b", "ns:m"), ("tab:c", "ns:n")),
    ),
)
OPERATIONS = ("claim_all", "create", "list", "take", "import_all")


def world(seed: int) -> tuple[Program, list[State], int]:
    """A policy, two states that name the same entities, and the number of the policy's rows."""
    rnd = random.Random(seed)
    forest = FORESTS[seed % len(FORESTS)]
    owner = rnd.choice(["{}", "{creator: true}", "{holds: [READ]}"])
    lines = [
        "privtab: 1\nsystem: lake\nversion: '1'",
        f"entities: {forest.entities}\ntypes: {{{forest.types}}}\nprivileges: [READ, WRITE]",
        f"semantics: {{inheritance: {rnd.choice(['down', 'none'])}, deny: overrides, owner: {owner}}}",
    ]
    drafts = [(f"tables: {type_}", row(rnd, forest, type_)) for type_ in forest.parents for _ in range(3)]
    drafts += [("core", row(rnd, forest, None)), ("any", row(rnd, forest, None))]
    kept: dict[str, list[str]] = {"core": [], **{f"tables: {type_}": [] for type_ in forest.parents}, "any": []}
    program: Program | None = None
    for place, text in drafts:
        name = text.partition(":")[0]
        if any(
            name == line.partition(":")[0] for lines_ in kept.values() for line in lines_ if place in ("core", "any")
        ):
            continue
        tried = {key: [*rows, text] if key == place and not _has(rows, name) else rows for key, rows in kept.items()}
        found, _ = generated_programs.read("\n".join([*lines, *written(tried)]) + "\n")
        if found is not None:
            program, kept = found, tried
    assert program is not None
    entities = [Entity.parse(key) for key in forest.named]
    lying = tuple(Placement(entity=Entity.parse(a), parent=Entity.parse(b)) for a, b in forest.lying)
    base = State(grants=tuple(Grant(grantee="user:cy", effect="allow", privilege="READ", entity=e) for e in entities))
    base = placed(program, State(grants=base.grants, entities=lying))
    known = list(universe(program, base))
    states = []
    for _ in range(2):
        chosen = [(p, e) for p in ("READ", "WRITE") for e in known if rnd.random() < 0.4]
        grants = [Grant(grantee="user:ann", effect="allow", privilege=p, entity=e) for p, e in chosen]
        owners = tuple((e, "user:ann") for e in known if rnd.random() < 0.1)
        states.append(placed(program, State(grants=(*base.grants, *grants), owners=owners, entities=lying)))
    return program, states, len(program.rules)


def _has(rows: list[str], name: str) -> bool:
    return any(row.partition(":")[0] == name for row in rows)


def written(kept: dict[str, list[str]]) -> Iterator[str]:
    """The tables of a policy."""
    yield "core: {" + ", ".join(kept["core"]) + "}"
    yield "tables:"
    for place, rows in kept.items():
        if place.startswith("tables: ") and rows:
            yield f"  {place.removeprefix('tables: ')}: {{{', '.join(rows)}}}"
    yield "any: {" + ", ".join(kept["any"]) + "}"


def row(rnd: random.Random, forest: Forest, type_: str | None) -> str:
    """A row of a type, or of each type."""
    places = ["entity", "parent"] if type_ is None else ["entity", type_]
    while type_ is not None and (type_ := forest.parents[type_]) is not None:
        places.append(type_)
    places += ["parent"] * (len(places) > 2)
    nested = (
        [f"{level} ns" for level in ("first", "any", "every")] if "ns" in places and "nested" in forest.types else []
    )
    parts: list[str] = []
    if rnd.random() < 0.3:
        listed = rnd.choice(["any", rnd.choice(list(forest.parents)), f"[{', '.join([*forest.parents, 'none'])}]"])
        parts.append(f"with: {{thing: {listed}}}")

    def condition() -> str:
        place = rnd.choice([*places, *nested, *(["thing"] if parts else [])])
        one = f"{rnd.choice(['READ', 'WRITE', 'owner'])} ({place})"
        return rnd.choice([one, one, f"{one} or WRITE ({rnd.choice(places)})", "anyone"])

    kinds = rnd.choice([("requires",), ("each",), ("each",), ("requires", "each")])
    parts += [f"{kind}: '{condition()}'" for kind in kinds]
    effects = (
        "grants: READ (entity)",
        "becomes: owner",
        "becomes: owner (parent)",
        "revokes: READ (entity)",
        "becomes: member",
    )
    parts += rnd.sample(effects, k=rnd.choice([0, 1, 1, 1, 2]))
    if rnd.random() < 0.3:
        parts.append(f"creates: {rnd.choice(['true', 'false'])}")
    return f"{rnd.choice(OPERATIONS)}: {{{', '.join(parts)}}}"


def accepted(program: Program, known: Universe, rule: Rule) -> Iterator[UserlessRequest]:
    """Every request for a rule about entities of a small world that `check` accepts: by trying all texts and all objects."""
    check = vocabulary(program).check
    texts = {text for e in known for text in (e.id, f"{e.id}/", str(e), f"{e}/")} | {"", "/"}
    objects: list[Entity | None] = [None, *known, *(Entity(e.type, f"{e.id}/") for e in known), Entity("thing", "x")]
    for text in sorted(texts):
        resource = Entity(rule.entity, text)
        for chosen in product(objects, repeat=len(rule.withs)):
            with_ = {slot.name: e for slot, e in zip(rule.withs, chosen, strict=True) if e is not None}
            request = Request(user="ann", action=rule.operation, resource=resource, with_=with_)
            try:
                check(request)
            except InvalidRequest:
                continue
            if exists(program, known, resource):
                yield UserlessRequest(rule.operation, plain(program, resource), tuple(sorted(with_.items())))


def exists(program: Program, known: Universe, resource: Entity) -> bool:
    """Whether a resource, or what contains it if it has no last name, is an entity of the world."""
    names = vocabulary(program)
    if names.complete(resource):
        return resource in known
    if resource.type in program.flat:
        return Entity.parse(resource.id[:-1]) in known
    path = resource.id.removesuffix("/")
    return not path or any(Entity(type_, path) in known for type_ in names.containers(resource.type))


def plain(program: Program, resource: Entity) -> Entity:
    """The resource, of which only one spelling is known: without a `/` at its end where that tells nothing."""
    shape = vocabulary(program).shapes[resource.type]
    needed = resource.type in program.flat or (shape.nested is not None and shape.flat is None)
    return resource if needed else Entity(resource.type, resource.id.removesuffix("/"))


def nameless(program: Program, reference: Reference, resource: Entity) -> Entity:
    """The resource without its last name."""
    if resource.type not in program.flat:
        return Entity(resource.type, resource.id.rpartition("/")[0] and resource.id.rpartition("/")[0] + "/")
    return Entity(resource.type, f"{reference.holdings.locations.keys(resource)[-2]}/")


def decided(reference: Reference, asked: UserlessRequest) -> bool:
    request = Request(user="ann", action=asked.operation, resource=asked.resource, with_=dict(asked.with_))
    return reference.decide(request).allowed


def check(seed: int) -> int:
    """Compare what is accepted with what is enumerated; returns the number of rows."""
    program, states, count = world(seed)
    references = [Reference(program, state) for state in states]
    known = universe(program, states[0])
    for entity in universe(program, states[1]):
        known.add(entity)
    every = [asked for rule in program.rules.values() for asked in accepted(program, known, rule)]
    answers = {asked: tuple(decided(reference, asked) for reference in references) for asked in every}

    def same(asked: UserlessRequest, enumerated: set[UserlessRequest]) -> bool:
        """Whether the answer is told: of the request itself, or, of what is created for sure, of the request without its name."""
        rule = program.rules[asked.resource.type, asked.operation]
        if asked in enumerated or not (rule.creates and vocabulary(program).complete(asked.resource)):
            return asked in enumerated
        other = UserlessRequest(
            asked.operation, plain(program, nameless(program, references[0], asked.resource)), asked.with_
        )
        return answers[other] == answers[asked] and other in enumerated

    for number, state in enumerate(states):
        may = what_can(references[number], state, "ann", known=known)
        listed = {(one.operation, plain(program, one.resource)) for one in may.allowed}
        allowed = {asked for asked in every if answers[asked][number]}
        assert listed <= {(asked.operation, asked.resource) for asked in allowed}
        told = {asked for asked in allowed if asked[:2] in listed}
        assert all(same(asked, told) for asked in allowed)
        chosen = {(one.operation, plain(program, one.resource)): one.choices for one in may.allowed if one.choices}
        assert chosen == {pair: sum(asked[:2] == pair for asked in told) for pair in chosen}
    found = state_diff(program, *states)
    assert not found.undecided
    changes = {
        (
            change.gained,
            UserlessRequest(
                change.rule.operation, plain(program, objects.pop(RESOURCE)), tuple(sorted(objects.items()))
            ),
        )
        for change in found.access
        for objects in ({**one} for one in change.requested_objects())
    }
    for gained in (True, False):
        differing = {asked for asked in every if answers[asked] == (not gained, gained)}
        told = {asked for is_gain, asked in changes if is_gain is gained}
        assert told <= differing
        assert all(same(asked, told) for asked in differing)
    check_paths(program, states[0], references[0], [asked for asked in every if answers[asked][0]])
    return count


def check_paths(program: Program, state: State, reference: Reference, allowed: list[UserlessRequest]) -> None:
    """What an allowed operation gives on an entity that exists can be gained, unless it is said that the operation creates."""
    reach = ReachableRights(reference, state, "ann")
    for asked in allowed:
        rule = program.rules[asked.resource.type, asked.operation]
        gives = any(e.kind == "become" and e.what == "owner" and e.target.type == rule.entity for e in rule.effects)
        named = vocabulary(program).complete(asked.resource) and not asked.with_
        if gives and named and (rule.creates != "surely" or rule.each is not None):
            assert reach.path(goal(reference, "owner", asked.resource)) is not None, asked


CLAIMS = (
    "each: READ (tab), becomes: owner",
    "requires: READ (cat), becomes: owner",
    "requires: READ (cat), each: READ (tab), becomes: owner",
    "each: READ (cat), becomes: owner",
    "each: READ (tab), creates: true, becomes: owner",
    "requires: READ (tab), becomes: owner",
)


@pytest.mark.parametrize("row", CLAIMS)
@pytest.mark.parametrize("packed", [False, True], ids=["read", "from a bundle"])
def test_every_tool_sees_a_claim(row: str, packed: bool) -> None:
    program, _ = generated_programs.read(
        "privtab: 1\nsystem: lake\nversion: '1'\nentities: {cat: {tab: }}\nprivileges: [READ]\n"
        f"semantics: {{inheritance: down, owner: {{}}}}\ntables: {{tab: {{claim_all: {{{row}}}}}}}\n"
    )
    assert program is not None
    program = program_from_json(json.loads(json.dumps(program_json(program))), "program.json") if packed else program
    ben = Grant(grantee="user:ben", effect="allow", privilege="READ", entity=Entity("tab", "a/b"))
    ann = Grant(grantee="user:ann", effect="allow", privilege="READ", entity=Entity("cat", "a"))
    before, after = State(grants=(ben,)), State(grants=(ben, ann))
    reference = Reference(program, after)
    table = Entity("tab", "a/b")
    assert decided(reference, UserlessRequest("claim_all", table, ()))
    assert table in [may.resource for may in what_can(reference, after, "ann").allowed]
    gained = [
        one[RESOURCE] for change in state_diff(program, before, after).access for one in change.requested_objects()
    ]
    assert table in gained
    assert reached(reference, after, table)


def reached(reference: Reference, state: State, entity: Entity) -> bool:
    return ReachableRights(reference, state, "ann").path(goal(reference, "owner", entity)) is not None


@pytest.mark.parametrize("seed", seeds(range(48), quick=6))
def test_what_is_accepted_is_enumerated(seed: int) -> None:
    check(seed)


@pytest.mark.long
def test_rows_of_many_policies(search_seed: int) -> None:
    numbers = iter(range(search_seed, search_seed + 10_000))
    rows = 0
    while rows < 10_000:
        rows += check(next(numbers))
