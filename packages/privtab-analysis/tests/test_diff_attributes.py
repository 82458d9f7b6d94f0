"""Policies with attributes are compared exactly: by trying every value, grant and request of small random policies."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any, Literal

import pytest
from seeds import seeds

from privtab.base import Attribute, Entity, GivenAttributes, InvalidRequest, Request, SourceFile
from privtab.base.attributes import KINDS, AttributeKind
from privtab.ir import Compare, Program, Rule, reached_atoms
from privtab.pipeline import load_program
from privtab.reference import Reference
from privtab.state import AttributeRow, Grant, State, attribute_texts, from_tables, validate
from privtab_analysis.diff import Diff, Verdict, diff
from privtab_analysis.diff.summary import holding_texts

POLICY = """
privtab: 1
system: small
version: "1"
entities: {{top: {{low: }}}}
privileges: [READ, WRITE]
semantics: {{inheritance: down, owner: {{holds: [WRITE]}}, deny: overrides}}
attributes: {{user: {{{user}}}, entity: {{{entity}}}, request: {{{request}}}}}
tables:
  low:
    read: {{requires: '{condition}', grants: {grants} (low), creates: false}}
"""
DECLARED: Mapping[str, Mapping[str, str]] = {
    "user": {"team": "text", "rank": "{integer: [0, 2], from: request}", "badges": "{set: [red, blue]}"},
    "entity": {
        "team": "{text: true, on: [low]}",
        "color": "{enum: [red, blue, gray], on: [top, low], from: [state, request]}",
        "level": "{integer: [0, 2], on: [low]}",
        "mark": "{enum: [red, blue], on: [low], from: request}",
    },
    "request": {"mfa": "bool", "hour": "{integer: [0, 2]}"},
}
TERMS = (
    *("READ (low)", "WRITE (low)", "owner (low)", "(READ (top) when force)"),
    *("user.team = entity.team", "user.team = one", "entity.team in {one, two}", "entity.team = two"),
    *("user.rank > entity.level", "user.rank >= 1", "entity.level < 2", "request.hour = user.rank", "request.hour > 0"),
    *("request.mfa", "request.mfa = false", "entity.color in user.badges", "entity.color = red", "top.color = red"),
    *("entity.color = top.color", "entity.mark = entity.color", "entity.mark in user.badges", "entity.mark = blue"),
)
EFFECTS: tuple[tuple[Literal["allow", "deny"], Entity], ...] = (
    ("allow", Entity("low", "t/l")),
    ("allow", Entity("top", "t")),
    ("deny", Entity("low", "t/l")),
)
GRANTS = tuple(
    Grant(grantee="user:alice", effect=effect, privilege=privilege, entity=entity)
    for privilege in ("READ", "WRITE")
    for effect, entity in EFFECTS
)
MOST_STATES = 1_500


def condition(rnd: random.Random, terms: tuple[str, ...], depth: int = 2) -> str:
    if depth and rnd.random() < 0.75:
        return f"({condition(rnd, terms, depth - 1)} {rnd.choice(['and', 'or'])} {condition(rnd, terms, depth - 1)})"
    return rnd.choice(terms)


def policy(written: str, grants: str, rnd: random.Random | None = None) -> Program:
    """The policy with a condition; with `rnd`, some attributes that it does not use are not declared."""
    parts = {
        kind: ", ".join(
            f"{name}: {type_}"
            for name, type_ in declared.items()
            if rnd is None or f".{name}" in written or rnd.random() < 0.5
        )
        for kind, declared in DECLARED.items()
    }
    return load_program(SourceFile.of("small.yaml", POLICY.format(condition=written, grants=grants, **parts)))


def pairs(seed: int) -> Iterator[tuple[Program, Program]]:
    rnd = random.Random(seed)
    for _ in range(3):
        terms = tuple(rnd.sample(TERMS, 4))
        undeclared = rnd if rnd.random() < 0.3 else None
        yield (
            policy(condition(rnd, terms), "READ", undeclared),
            policy(condition(rnd, terms), rnd.choice(["READ", "WRITE"]), undeclared),
        )


def domain(attribute: Attribute) -> list[Any]:
    match attribute.type:
        case "bool":
            return [None, True, False]
        case "enum":
            return [None, *attribute.values]
        case "set":
            return [None, ["red"], ["blue"], ["blue", "red"]]
        case "integer":
            return [None, 0, 1, 2]
        case "text":
            return [None, "one", "two", "three"]


Place = tuple[AttributeKind, str, str]
"""What has an attribute, its name, and the type of the entity."""


def used(*programs: Program) -> dict[Place, Attribute]:
    found: dict[Place, Attribute] = {}
    for program in programs:
        for atom in reached_atoms(program, program.rules["low", "read"].item_condition):
            for term in atom.terms if isinstance(atom, Compare) else ():
                declared = program.attributes.of(term.kind)[term.attribute]
                found[term.kind, term.attribute, term.target.type if term.target else ""] = declared
    return found


def worlds(*programs: Program) -> Iterator[tuple[State, Request]] | None:
    """Every state and request that could make a difference; None if there are too many."""
    places = used(*programs)
    domains = [domain(attribute) for attribute in places.values()]
    names = {
        a.privilege
        for p in programs
        for a in reached_atoms(p, p.rules["low", "read"].item_condition)
        if hasattr(a, "privilege")
    }
    grants = [grant for grant in GRANTS if grant.privilege in names]
    size = 4 * 2 ** len(grants)
    for values in domains:
        size *= len(values)
    return None if size > MOST_STATES else _worlds(places, domains, grants)


def _worlds(
    places: Mapping[Place, Attribute], domains: list[list[Any]], grants: list[Grant]
) -> Iterator[tuple[State, Request]]:
    entities = {"low": Entity("low", "t/l"), "top": Entity("top", "t")}
    for values in product(*domains):
        rows: list[AttributeRow] = []
        sent: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
        for ((kind, name, type_), attribute), value in zip(places.items(), values, strict=True):
            if value is None:
                continue
            if "state" in attribute.origins:
                owner = {"entity": entities[type_]} if type_ else {"user": "alice"}
                rows += [AttributeRow(attribute=name, value=text, **owner) for text in attribute_texts(value)]
            else:
                sent[kind][name] = value
        for force, owned, *chosen in product((False, True), repeat=2 + len(grants)):
            state = State(
                grants=tuple(grant for grant, included in zip(grants, chosen, strict=True) if included),
                owners=((entities["low"], "user:alice"),) if owned else (),
                attributes=tuple(rows),
            )
            yield (
                state,
                Request(
                    user="alice",
                    action="read",
                    resource=entities["low"],
                    flags=frozenset({"force"} if force else ()),
                    attributes=GivenAttributes.read(sent),
                ),
            )


def allows(program: Program, state: State, request: Request) -> bool:
    declared = program.attributes
    known = [
        row
        for row in state.attributes
        if row.attribute in (declared.user if row.user else declared.declared_on(row.entity.type) if row.entity else {})
    ]
    rule: Rule = program.rules["low", "read"]
    flags = request.flags if "force" in str(rule.requires) else frozenset()
    try:
        reference = Reference(program, State(grants=state.grants, owners=state.owners, attributes=tuple(known)))
        return reference.decide(replace(request, flags=flags)).allowed
    except InvalidRequest:
        return False


def as_known_to(program: Program, request: Request) -> Request:
    """The request without the attributes that a policy does not take from requests."""
    declared = program.attributes.from_origin("request")
    sent = request.attributes
    known = GivenAttributes(
        user={name: value for name, value in sent.user.items() if name in declared.user},
        entity={name: value for name, value in sent.entity.items() if name in declared.declared_on("low")},
        request={name: value for name, value in sent.request.items() if name in declared.request},
    )
    return replace(request, attributes=known)


def tried(before: Program, after: Program) -> tuple[set[str], bool] | None:
    """What is seen by trying: `wider` and `narrower`, and whether both sides allow something."""
    found = worlds(before, after)
    if found is None:
        return None
    shown: set[str] = set()
    both = False
    for state, request in found:
        answers = allows(before, state, request), allows(after, state, request)
        allowing, denying = (after, before) if answers[1] else (before, after)
        stripped = as_known_to(denying, request)
        # A request that gives more than it needs, and is invalid only for that, shows nothing.
        gives_more = stripped != request and allows(allowing, state, stripped)
        if answers[0] != answers[1] and not gives_more:
            shown.add("wider" if answers[1] else "narrower")
        both = both or all(answers)
    return shown, both


@pytest.mark.parametrize("seed", seeds(range(60), quick=2, full=6))
def test_verdicts_are_what_trying_says(seed: int) -> None:
    for before, after in pairs(seed):
        seen = tried(before, after)
        if seen is None:
            continue
        [row] = diff(before, after).rows
        shown, both = seen
        conditions = f"{before.rules['low', 'read'].requires_text} → {after.rules['low', 'read'].requires_text}"
        assert row.condition is not Verdict.UNKNOWN, conditions
        assert {w.shows for w in row.witnesses} - {"effects"} == shown, conditions
        differ = before.rules["low", "read"].effects != after.rules["low", "read"].effects
        assert (row.effects is not Verdict.EQUAL) == (differ and both), conditions


def changed(before: str, after: str) -> Diff:
    sides = [
        POLICY.format(user=f"level: {{{side}}}", entity="", request="", condition="user.level >= 1", grants="READ")
        for side in (before, after)
    ]
    return diff(*(load_program(SourceFile.of("small.yaml", side)) for side in sides))


def test_a_declaration_that_changed_is_listed_and_its_rows_are_not_decided() -> None:
    found = changed("integer: [0, 2]", "integer: [0, 3]")
    [declared] = found.declared
    assert (declared.kind, declared.name) == ("attribute", "user.level")
    assert [(d.before, d.after) for d in declared.details] == [
        ("a whole number from 0 to 2, from the state", "a whole number from 0 to 3, from the state")
    ]
    [row] = found.rows
    assert (row.verdict, row.because) == (Verdict.UNKNOWN, ("attribute user.level",))
    [row] = changed("integer: [0, 2]", "integer: [0, 2], from: request").rows
    assert row.verdict is Verdict.UNKNOWN
    assert changed("integer: [0, 2]", "integer: [0, 2]").same


def test_witnesses_carry_values() -> None:
    before = policy("READ (low) and user.team = entity.team", "READ")
    after = policy("READ (low) and user.team = entity.team and request.mfa and entity.color in user.badges", "READ")
    [row] = diff(before, after).rows
    [witness] = row.witnesses
    assert (row.verdict, witness.rows) == (Verdict.NARROWER, 3)
    state, wrong = validate(before, from_tables(witness.state, "witness"))
    assert not wrong
    assert Reference(before, state).decide(witness.request).allowed
    assert not Reference(after, state).decide(witness.request).allowed
    assert holding_texts(witness.state, witness.request) == [
        "alice holds READ on low:top1/low1",
        "the team of alice is text1",
        "the team of low:top1/low1 is text1",
    ]
    [row] = diff(after, before).rows
    assert row.verdict is Verdict.WIDER
