"""Equal conditions have equal minimal sets, whatever attributes they compare and however they are written."""

from __future__ import annotations

import random

import pytest
from generated_programs import lowered
from seeds import seeds

from privtab.backends.describe import described_policy, minimal_set_texts
from privtab.base.attributes import Attribute, AttributeValue
from privtab.base.errors import Undecided
from privtab.ir import prime_implicants
from privtab.ir.canonical import MinimalSets, canonical_form
from privtab.ir.exact import ImplicationChecker
from privtab.ir.formula import Truth
from privtab.ir.names import atom_text
from privtab.ir.nodes import And, Atom, Compare, Formula, Program
from privtab.reference.evaluate import fulfilled

HEAD = """\
privtab: 1
system: lake
version: "1"
entities: {lake: {table: {}}}
privileges: [READ, WRITE]
semantics: {owner: {kinds: [user]}}
attributes:
  user:
    rank: {integer: [0, 5], from: [state]}
    team: {text: true, from: [state]}
    areas: {set: [north, south], from: [state]}
  entity:
    kind: {enum: [a, b, c], on: [table], from: [state]}
    level: {integer: true, on: [table], from: [state]}
    team: {text: true, on: [table], from: [state]}
    open: {bool: true, on: [table], from: [state]}
  request:
    mode: {enum: [read, list, write], default: read}
    dry: {bool: true, default: false}
    hour: {integer: [0, 23], default: 8}
    area: {enum: [north, south]}
tables:
  table:
"""
COMPARED = {
    "mode": ["request.mode = read", "request.mode = list", "request.mode in {read, write}", "request.mode in {list, write}"],
    "dry": ["request.dry", "request.dry = false"],
    "kind": ["entity.kind = a", "entity.kind in {a, b}", "entity.kind = c", "entity.kind in {b, c}"],
    "open": ["entity.open", "entity.open = false"],
    "rank": ["user.rank > 2", "user.rank <= 2", "user.rank = 3", "user.rank in {0, 4}", "user.rank >= 0"],
    "hour": ["request.hour < 8", "request.hour >= 8", "request.hour in {8, 9}", "request.hour > 17"],
    "levels": ["user.rank >= entity.level", "user.rank < entity.level", "user.rank = entity.level", "entity.level <= 2"],
    "teams": ["user.team = entity.team", "user.team = x", "user.team = user.team", "user.team in {x, y}", "entity.team = y"],
    "areas": ["request.area in user.areas", "request.area = north", "north in user.areas"],
}  # fmt: skip
OTHERS = ["READ (table)", "WRITE (lake)", "owner (table)", "(READ (lake) when force)"]
REWRITTEN = {
    "request.mode in {read, write}": ["(request.mode = read or request.mode = write)"],
    "request.mode in {list, write}": ["(request.mode = write or request.mode = list)"],
    "entity.kind in {a, b}": ["(entity.kind = a or entity.kind = b)", "entity.kind in {b, a}"],
    "entity.kind in {b, c}": ["(entity.kind = b or entity.kind in {c, b})"],
    "user.rank > 2": ["user.rank >= 3", "(user.rank = 3 or user.rank > 3)", "user.rank in {3, 4, 5}"],
    "user.rank <= 2": ["user.rank < 3", "(user.rank = 1 or user.rank in {0, 2})"],
    "user.rank = 3": ["(user.rank > 2 and user.rank <= 3)"],
    "user.rank in {0, 4}": ["(user.rank < 1 or user.rank = 4)"],
    "user.rank >= 0": ["user.rank <= 5", "(user.rank < 3 or user.rank > 2)"],
    "request.hour < 8": ["request.hour <= 7"],
    "request.hour in {8, 9}": ["(request.hour > 7 and request.hour < 10)"],
    "user.rank >= entity.level": ["entity.level <= user.rank", "(user.rank > entity.level or user.rank = entity.level)"],
    "user.rank < entity.level": ["entity.level > user.rank"],
    "user.team = entity.team": ["entity.team = user.team"],
    "user.team in {x, y}": ["(user.team = y or user.team = x)"],
    "request.dry": ["request.dry = true"],
    "READ (table)": ["(READ (table) and (request.dry or request.dry = false))", "READ (table)"],
}  # fmt: skip
ALWAYS = ["(request.dry or request.dry = false)", "request.mode in {read, list, write}", "request.hour <= 23", "anyone"]


def condition(atoms: list[str], depth: int, rnd: random.Random) -> list[object] | str:
    if depth and rnd.random() < 0.8:
        return [rnd.choice(["and", "or"]), *(condition(atoms, depth - 1, rnd) for _ in range(rnd.choice([2, 2, 3])))]
    return rnd.choice(atoms)


def written(node: list[object] | str | object, rnd: random.Random | None) -> str:
    """The text of a condition; with a generator, of the same in other words."""
    if isinstance(node, str):
        return node if rnd is None else rnd.choice([node, *REWRITTEN.get(node, ())])
    assert isinstance(node, list)
    word, *parts = node
    texts = [written(part, rnd) for part in parts]
    if rnd is not None:
        rnd.shuffle(texts)
        if rnd.random() < 0.3:  # what another part makes superfluous
            other = "or" if word == "and" else "and"
            texts.append(
                f"({texts[0]} {other} {rnd.choice([*OTHERS[:3], 'user.rank > 4', 'request.mode = list', 'user.team = z'])})"
            )
        if rnd.random() < 0.2 and word == "and":
            texts.append(rnd.choice(ALWAYS))
    return f"({f' {word} '.join(texts)})"


def pair(seed: int) -> tuple[str, str]:
    rnd = random.Random(seed)
    groups = rnd.sample(list(COMPARED), k=rnd.choice([1, 1, 2]))
    atoms = [atom for group in groups for atom in COMPARED[group]] + rnd.sample(OTHERS, k=2)
    tree = condition(rnd.sample(atoms, k=min(len(atoms), 5)), rnd.choice([1, 2, 3]), rnd)
    if rnd.random() < 0.15:
        return written(tree, None), written(condition(atoms, 2, rnd), None)
    return written(tree, None), written(tree, rnd)


def texts(program: Program, sets: MinimalSets) -> list[list[str]]:
    rule = next(iter(program.rules.values()))
    return sorted(sorted(atom_text(atom, rule) for atom in atoms) for atoms in sets)


def worlds(program: Program, seed: int, number: int) -> list[dict[tuple[str, str], AttributeValue | None]]:
    """Random values of all attributes, and whether each other atom holds."""
    rnd = random.Random(seed)

    def value(declared: Attribute) -> AttributeValue | None:
        choices: list[AttributeValue | None] = list(declared.values) if declared.type == "enum" else []
        match declared.type:
            case "bool":
                choices = [True, False]
            case "integer":
                choices = [
                    v for v in (0, 1, 2, 3, 4, 5, 7, 8, 9, 17, 18, -1, 6) if declared.lowest <= v <= declared.highest
                ]
            case "text":
                choices = ["x", "y", "z", "w"]
            case "set":
                return rnd.choice([["north"], ["south"], ["north", "south"], []])
        return rnd.choice([*choices, declared.default])

    terms = program.attributes
    kinds = (("user", terms.user), ("entity", terms.entity), ("request", terms.request))
    return [
        {(kind, name): value(declared) for kind, known in kinds for name, declared in known.items()}
        for _ in range(number)
    ]


def holds(
    program: Program, formula: Formula, values: dict[tuple[str, str], AttributeValue | None], held: frozenset[str]
) -> bool:
    def atom(leaf: Atom) -> bool:
        if isinstance(leaf, Compare):
            return fulfilled(leaf, lambda term: values[term.kind, term.attribute])
        return repr(leaf) in held

    return Truth(program, (), {}, atom).fold(formula)


def compare(seed: int) -> bool:
    """Compare two conditions and their minimal sets; whether the conditions are equal."""
    first, second = pair(seed)
    program, _ = lowered(f'{HEAD}    one: "{first}"\n    two: "{second}"\n')
    f, g = (rule.item_condition for rule in program.rules.values())
    form, exact = canonical_form(program), ImplicationChecker(program)
    none = frozenset[str]()
    sets = form.minimal_sets(f, none), form.minimal_sets(g, none)
    equal = exact.implies(f, g, none) and exact.implies(g, f, none)
    assert equal is (sets[0] == sets[1]), (seed, first, second, texts(program, sets[0]), texts(program, sets[1]))
    rnd = random.Random(seed)
    for formula, found in zip((f, g), sets, strict=True):
        others = sorted({repr(atom) for atoms in found for atom in atoms if not isinstance(atom, Compare)})
        for values in worlds(program, seed, 30):
            held = frozenset(name for name in others if rnd.random() < 0.5)
            by_sets = any(holds(program, And(parts=tuple(atoms)), values, held) for atoms in found)
            assert by_sets == holds(program, formula, values, held), (
                seed,
                first,
                second,
                values,
                held,
                texts(program, found),
            )
        for atoms in found:
            for atom in atoms:
                rest = And(parts=tuple(other for other in atoms if other != atom))
                assert not exact.implies(rest, formula, none), (seed, first, second, texts(program, found))
    return equal


@pytest.mark.parametrize(
    ("text", "sets"),
    [
        ("request.mode = read or request.mode in {list, write}", [[]]),
        ("request.dry or request.dry = false", [[]]),
        ("entity.open or entity.open = false", [["open (table) in {false, true}"]]),
        ("user.rank > 2 or user.rank <= 2", [["user.rank >= 0"]]),
        ("user.rank > 2 and user.rank < 4", [["user.rank = 3"]]),
        ("entity.level <= user.rank", [["user.rank >= level (table)"]]),
        ("user.team = x or user.team = y", [["user.team in {x, y}"]]),
        ("user.team = entity.team or user.team = x", [["user.team = team (table)"], ["user.team = x"]]),
        ("request.mode = read and READ (table) or request.mode = list", [["READ (table)", "request.mode in {read, list}"], ["request.mode = list"]]),
        ("request.area in user.areas or request.area = north", [["request.area = north"], ["request.area in user.areas"]]),
    ],
)  # fmt: skip
def test_sets_are_written_in_one_way(text: str, sets: list[list[str]]) -> None:
    program, _ = lowered(f'{HEAD}    one: "{text}"\n')
    [rule] = program.rules.values()
    assert texts(program, canonical_form(program).minimal_sets(rule.item_condition)) == sorted(map(sorted, sets))


@pytest.mark.parametrize("seed", seeds(range(200), quick=30))
def test_equal_conditions_have_equal_sets(seed: int) -> None:
    compare(seed)


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 10_000, 1000))
def test_many_equal_conditions_have_equal_sets(search_seed: int, first: int) -> None:
    equal = 0
    for seed in range(search_seed + first, search_seed + first + 1000):
        try:
            equal += compare(seed)
        except Undecided:
            continue
    assert equal > 500


def test_beyond_the_bound_minimal_sets_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prime_implicants, "WORLDS", 2)
    text = "request.mode = read and READ (table) or request.mode = list"
    program, _ = lowered(f'{HEAD}    one: "{text}"\n    two: READ (table) or request.hour in {{8, 9}}\n')
    one, two = described_policy(program, revision="")["operations"]
    assert (one["minimal_sets"], one["minimal_sets_complete"]) == ([], False)
    sets, unlisted = minimal_set_texts(one, "")
    assert sets == [("", ["unknown"])]
    assert unlisted == ["has unknown minimal sets: its comparisons take too long to decide"]
    # A single comparison of an attribute completes no other.
    assert two["minimal_sets"] == [["READ (table)"], ["request.hour in {8, 9}"]]
