"""Small policies whose root is one entity for all objects of a request, or nearly so, and worlds in which everything about them can be tried."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import chain, combinations, product

from privtab.base.errors import InvalidRequest
from privtab.base.request import Entity, Request
from privtab.ir.nodes import Program, Rule
from privtab.ir.serialise import vocabulary
from privtab.state.load import from_tables, validate
from privtab.state.nodes import State

TREES = (
    ("server: {catalog: {table: {}}}", "server: {single: true}"),
    ("server: {config: {}, catalog: {settings: {}, table: {}}}", "server: {single: true}, config: {single: true}, settings: {single: true}"),
    ("server: {catalog: {table: {}}}", "server: {single: true}, catalog: {nested: true}"),
    ("server: {catalog: {table: {}}}, hall: {room: {}}", "server: {single: true}"),
    ("server: {catalog: {table: {}}}", ""),
)  # fmt: skip
PARENTS = (
    {"server": None, "catalog": "server", "table": "catalog"},
    {"server": None, "config": "server", "catalog": "server", "settings": "catalog", "table": "catalog"},
    {"server": None, "catalog": "server", "table": "catalog"},
    {"server": None, "catalog": "server", "table": "catalog", "hall": None, "room": "hall"},
    {"server": None, "catalog": "server", "table": "catalog"},
)
OWNERS = ("", ", owner: {kinds: [user]}", ", owner: {kinds: [user], holds: [READ]}")
RULE = ("table", "copy")


def pair(seed: int) -> tuple[str, str]:
    """The texts of two policies that differ in one condition."""
    rnd = random.Random(seed)
    tree = rnd.randrange(len(TREES))
    parents = PARENTS[tree]
    types = rnd.choice([["table"], ["server"], ["catalog"], ["server", "table"], [*parents]])
    inheritance, deny, owner = (
        rnd.choice(["none", "down"]),
        rnd.choice(["none", "none", "overrides"]),
        rnd.choice(OWNERS),
    )
    implies = ", WRITE: {implies: [READ]}" if rnd.random() < 0.2 else ", WRITE: "
    entities, kinds = TREES[tree]
    head = (
        f'privtab: 1\nsystem: small\nversion: "1"\nentities: {{{entities}}}\ntypes: {{{kinds}}}\n'
        f"privileges: {{READ: {implies}}}\n"
        f"semantics: {{inheritance: {inheritance}, deny: {deny}{owner}}}\ntables:\n"
        f"  server: {{see: READ (server or below)}}\n  catalog: {{see: READ (catalog)}}\n"
        f"  table: {{see: {rnd.choice(['READ (server)', 'READ (server or below)', 'READ (table)'])}, copy: "
    )
    terms = _terms(types, rnd, nested=tree == 2, owned=bool(owner))
    conditions = [_condition(terms, 2, rnd) for _ in range(2)]
    if rnd.random() < 0.5:
        conditions[1] = f"{conditions[0]} {rnd.choice(['and', 'or'])} {rnd.choice(terms)}"
    objects = types[0] if len(types) == 1 else f"[{', '.join(types)}]"
    first, second = (f'{head}{{with: {{object: {objects}}}, requires: "{c}"}}}}\n' for c in conditions)
    return first, second


def _terms(types: Sequence[str], rnd: random.Random, *, nested: bool, owned: bool) -> list[str]:
    """Some terms, most of them about the root and the object."""
    terms = ["READ (object)", "READ (server or below)", "READ (server)", "READ (table)", "WRITE (object)"]
    terms += ["WRITE (server or below)", "READ (catalog or below)", "READ (catalog)", "see", "see"]
    terms += ["READ (any catalog)", "READ (first catalog)"] * nested
    terms += ["owner (object)", "owner (server or below)", "owner (server)", "owner (catalog)"] * owned
    can = [f"can see ({'object' if {*types} <= {'server', 'catalog', 'table'} else 'table'})"]
    return [can[0] if term == "see" else term for term in rnd.sample(terms, k=min(len(terms), 5))] + ["READ (object)"]


def _condition(terms: Sequence[str], depth: int, rnd: random.Random) -> str:
    if depth and rnd.random() < 0.75:
        parts = [_condition(terms, depth - 1, rnd) for _ in range(rnd.choice([2, 2, 3]))]
        return f"({rnd.choice([' and ', ' or ']).join(parts)})"
    return rnd.choice(terms)


def keys(program: Program, number: str, levels: int) -> Iterator[Entity]:
    """One entity of each type, with names of its own."""
    for type_ in program.entities:
        names: list[str] = []
        for link in program.chain(type_):
            if not program.entities[link].single:
                names += [f"{link}{number}{n}" for n in range(levels if program.entities[link].nested else 1)]
        yield Entity(type_, "/".join(names))


def requests(program: Program, rule: Rule) -> Iterator[Request]:
    """Requests of a rule, about one object twice and about two; where a type nests, on one level and on three."""
    nests = (1, 3) if program.nests else (1,)
    own = [e for n in nests for e in keys(program, "a", n) if e.type == rule.entity]
    others = [e for number in ("a", "b") for n in nests for e in keys(program, number, n)]
    types = [slot.types for slot in rule.withs]
    for resource, object_ in product(dict.fromkeys(own), dict.fromkeys(others) if types else [None]):
        if object_ is None or object_.type in types[0]:
            with_ = {} if object_ is None else {rule.withs[0].name: object_}
            yield Request(user="ann", action=rule.operation, resource=resource, with_=with_)


def states(program: Program, seed: int, number: int) -> Iterator[State]:
    """States with at most two rows about the objects of requests, what contains them, and other entities; and random ones."""
    rnd = random.Random(seed)
    about = [
        *chain.from_iterable(
            keys(program, n, levels) for n in ("a", "b", "c") for levels in ((1, 2, 3) if program.nests else (1,))
        )
    ]
    on = [str(entity) for entity in dict.fromkeys(about)]
    rows: list[tuple[str, dict[str, str]]] = []
    for key, privilege in product(on, ("READ", "WRITE")):
        effects = ["allow"] + ["deny"] * (program.semantics.deny == "overrides")
        rows += [
            ("grants", {"grantee": "user:ann", "effect": e, "privilege": privilege, "entity": key}) for e in effects
        ]
    rows += [("owners", {"entity": key, "owner": "user:ann"}) for key in on] * (program.semantics.owner is not None)
    few = [[*chosen] for size in range(3) for chosen in combinations(rows, size)]
    chosen = few if len(few) <= number else rnd.sample(few, number)
    chosen += [rnd.sample(rows, min(len(rows), rnd.choice([3, 4, 6, 8]))) for _ in range(number)]
    for listed in chosen:
        tables: dict[str, list[dict[str, str]]] = {}
        for table, row in listed:
            tables.setdefault(table, []).append(row)
        yield validate(program, from_tables(tables, "small"), notes=False)[0]


def asked(program: Program, rule: Rule, seed: int, number: int) -> Iterator[tuple[Request, State]]:
    """Requests, each with some states."""
    known = vocabulary(program)
    for request in requests(program, rule):
        try:
            known.check(request)
        except InvalidRequest:
            continue
        yield from ((request, state) for state in states(program, seed, number))
