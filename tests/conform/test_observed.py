"""What candidates hold is read from what they are given; the reference engine, asked about each, says the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from privtab.conform.candidates import Candidate, Candidates
from privtab.conform.plan import ObservedCandidates
from privtab.diagnostics import Span
from privtab.ir.formula import item_condition, leaves
from privtab.ir.nodes import Program
from privtab.ir.shapes import rule_flags
from privtab.pipeline import load_program
from privtab.reference.evaluate import Reference
from privtab.request import Request
from privtab.scenarios.expand import GeneratedCallers
from privtab.scenarios.masks import Observed
from privtab.scenarios.nodes import Case, Expected

RULES = """
privtab: 1
system: shelves
version: "1"
entities: {{shop: {{shelf: {{box:}}, reader:}}, team:, duty:}}
types: {{reader: {{principal: user}}, team: {{principal: group}}, duty: {{principal: role}}}}
privileges: {{LOOK: {{}}, MOVE: {{implies: [LOOK]}}, OWN: {{}}}}
sets: {{ANY: [LOOK, MOVE]}}
semantics: {{inheritance: {inheritance}, deny: {deny}, owner: {{kinds: [{kinds}], holds: [OWN], creator: true}}}}
tables:
  box:
    create: MOVE (shop)
    look: LOOK (box) or owner (shelf)
    move: {{with: {{to: [shelf, shop]}}, requires: "MOVE (box) and (LOOK (to) when careful) and OWN (to)"}}
  reader:
    add: {{creates: true, requires: member (shop) and OWN (shop)}}
    list: {{each: self or LOOK (reader)}}
    greet: {{requires: self or OWN (reader), gate: none}}
  team:
    greet: member (team) or service admin
  duty:
    take: holds (duty) and OWN (duty)
"""


def disagreements(program: Program) -> list[str]:
    """The rows in which an atom, a flag, a type or the whole is seen otherwise than the reference engine sees it."""
    source = Candidates(program)
    found: list[str] = []
    for rule in program.rules.values():
        candidates = [candidate for setting in source.settings(rule) for candidate in source.of(setting)]
        fast, slow = ObservedCandidates(program, rule, candidates), _asked(program, candidates)
        found += [
            f"{rule.id} {atom}" for atom in leaves(program, item_condition(rule)) if fast.atom(atom) != slow.atom(atom)
        ]
        found += [f"{rule.id} {flag}" for flag in rule_flags(program, rule) if fast.flag(flag) != slow.flag(flag)]
        found += [
            f"{rule.id} {slot.name} {type_}"
            for slot in rule.withs
            for type_ in slot.types
            if fast.of_type(slot.name, type_) != slow.of_type(slot.name, type_)
        ]
        if (fast.allowed, fast.named) != (slow.allowed, slow.named):
            found.append(rule.id)
    return found


def _asked(program: Program, candidates: list[Candidate]) -> Observed:
    generated = GeneratedCallers(program)
    requests = [
        generated.add_caller(candidate.caller, candidate.setting.request, through_roles=candidate.through_roles)
        for candidate in candidates
    ]
    reference = Reference(program, generated.state())
    return Observed(program, candidates[0].setting.rule, [(_case(request), reference) for request in requests])


def _case(request: Request) -> Case:
    nowhere = Span(path="", line=1, column=1, end_line=1, end_column=1)
    return Case(name="", kind="need", world=0, request=request, expected=Expected(allowed=False), span=nowhere)


@pytest.mark.parametrize("inheritance", ["down", "none"])
@pytest.mark.parametrize("deny", ["overrides", "none"])
@pytest.mark.parametrize("kinds", ["user", "group", "role"])
def test_candidates_hold_what_the_reference_engine_says(
    tmp_path: Path, inheritance: str, deny: str, kinds: str
) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(RULES.format(inheritance=inheritance, deny=deny, kinds=kinds), encoding="utf-8")
    assert disagreements(load_program(path)) == []


NESTED = """
privtab: 1
system: shelves
version: "1"
entities: {shop: {shelf: {box:}}}
types: {shelf: {nested: true}}
privileges: [LOOK, MOVE]
semantics: {inheritance: down, deny: overrides, owner: {holds: [MOVE]}}
tables:
  shelf:
    add: {requires: MOVE (parent), creates: true}
    list: {requires: LOOK (parent), each: LOOK/MOVE (shelf)}
  box:
    look: LOOK (every shelf) or owner (any shelf) or MOVE (first shelf)
"""
BELOW = """
privtab: 1
system: shelves
version: "1"
entities: {shop: {shelf: {box:}}}
privileges: [LOOK, MOVE]
semantics: {inheritance: down, deny: overrides, owner: {holds: [MOVE]}}
tables:
  shop:
    browse: LOOK/MOVE (shop or below) and owner (shop or below)
  box:
    move: {with: {to: shelf}, requires: MOVE (box) and LOOK (to or below)}
"""


BOTH = BELOW.replace("privileges:", "types: {shelf: {nested: true}}\nprivileges:").replace(
    "tables:",
    "tables:\n  shelf:\n    list: {requires: LOOK (parent or below), each: MOVE (shelf or below) and LOOK (first shelf or below)}",
)


@pytest.mark.parametrize("text", [NESTED, BELOW, BOTH], ids=["levels", "below", "both"])
def test_candidates_on_levels_and_below_hold_what_the_reference_engine_says(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(text, encoding="utf-8")
    assert disagreements(load_program(path)) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy", ["cdap/final", "cdap/manual", "polaris/1.7", "streams/teracloud", "gravitino/1.1.0", "postgresql/15"]
)
def test_candidates_of_shipped_policies_hold_what_the_reference_engine_says(policy: str) -> None:
    assert disagreements(load_program(policy)) == []
