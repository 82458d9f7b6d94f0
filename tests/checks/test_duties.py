"""Who is said to hold operations that `conflicts` keeps apart is who can do both once they have it."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from itertools import combinations

import pytest
import small_policies

from privtab import model
from privtab.base.request import Entity, Request
from privtab.base.source import SourceFile
from privtab.checks import duties
from privtab.ir.nodes import ALWAYS, Program, Rule
from privtab.language import syntax
from privtab.model.lower import lower
from privtab.state.nodes import Assignment, Grant, State

PATH = (Entity("top", "top1"), Entity("mid", "top1/mid1"), Entity("low", "top1/mid1/low1"))
ME = f"user:{small_policies.USER}"
SAID = re.compile(r"(?:the (privilege|set|role)|the (owner) of an?) `(\w+)`")


def text(seed: int) -> str:
    """A small policy with further roles."""
    rnd = random.Random(seed)
    written = small_policies.policy(seed, deep=rnd.random() < 0.3)
    grants = [f"{t}: [{', '.join(rnd.sample(['READ', 'WRITE'], rnd.choice([1, 2])))}]" for t in ("mid", "low")]
    roles = [
        f"  boss: {{grants: {{{rnd.choice(grants)}}}}}",
        f"  head: {{scope: mid, grants: {{{', '.join(grants)}}}}}",
        f"  clerk: {{scope: {rnd.choice(['top', 'low'])}, grants: {{{grants[1]}}}}}",
    ]
    start = written if "\nroles:\n" in written else written.replace("tables:\n", "roles:\ntables:\n")
    return start.replace("roles:\n", "roles:\n" + "\n".join(roles) + "\n")


def both(program: Program, rules: list[Rule], state: State) -> bool:
    """Whether the caller, past the gate, may do all of the operations on one path, setting no flag."""
    state = replace(state, members=((small_policies.USER, PATH[0]),) if program.semantics.gate else ())
    path = {entity.type: entity for entity in PATH}
    requests = [Request(user=small_policies.USER, action=r.operation, resource=path[r.entity]) for r in rules]
    return all(small_policies.allows(program, state, request) for request in requests)


def granted(program: Program, names: tuple[str, ...]) -> State:
    on = [(name, entity) for name in names for entity in PATH if entity.type in program.privileges[name].on]
    return State(grants=tuple(Grant(grantee=ME, effect="allow", privilege=n, entity=e) for n, e in on))


def by_enumeration(program: Program, rules: list[Rule]) -> set[tuple[str, str]]:
    """What is enough for all of the rules."""
    found = {("privilege", name) for name in program.privileges if both(program, rules, granted(program, (name,)))}
    sufficient_names = {name for _, name in found}
    for name, members in program.sets.items():
        if both(program, rules, granted(program, members)) and sufficient_names.isdisjoint(members):
            found.add(("set", name))
    for role in program.roles.values():
        scope = next((entity for entity in PATH if entity.type in role.scopes), None)
        assigned = State(assignments=(Assignment(principal=ME, role=role.name, scope=scope),))
        inside = scope is None or all(scope.type in program.chain(rule.entity) for rule in rules)
        if inside and both(program, rules, assigned):
            found.add(("role", role.name))
    for entity in PATH if program.semantics.owner is not None else ():
        if both(program, rules, State(owners=((entity, ME),))):
            found.add(("owner", entity.type))
    return found


def needs_more_than_the_gate(program: Program, rule: Rule) -> bool:
    """Whether the row asks for something that not everybody in the policy has."""
    return rule.requires != ALWAYS and not both(program, [rule], State())


def compared(seeds: range) -> set[str]:
    """The kinds of holders that were found, in policies where the check says what trying says."""
    kinds: set[str] = set()
    for seed in seeds:
        program = small_policies.program(text(seed))
        if program is None:
            continue
        rules = [r for r in program.rules.values() if r.entity in ("mid", "low") and not r.withs]
        rules = [rule for rule in rules if needs_more_than_the_gate(program, rule)]
        for pair in combinations(rules, 2):
            names = ", ".join(f"{rule.entity}/{rule.operation}" for rule in pair)
            tables, _ = syntax.read_policy(
                SourceFile.of("small.yaml", f"{text(seed)}conflicts: [{{operations: [{names}]}}]\n")
            )
            policy = None if tables is None else model.resolve(tables)[0]
            assert policy is not None, seed
            messages = [d.message for d in duties.separation_of_duty(policy)]
            matches = [match for message in messages if (match := SAID.match(message))]
            reported = {(match[1] or match[2], match[3]) for match in matches}
            assert len(reported) == len(messages)
            expected = by_enumeration(lower(policy), list(pair))
            assert reported == expected, (seed, names)
            kinds |= {kind for kind, _ in reported} or {"nobody"}
    return kinds


@pytest.mark.slow
def test_a_holder_of_both_privileges_can_do_both() -> None:
    assert compared(range(60)) == {"privilege", "set", "role", "owner", "nobody"}


@pytest.mark.long
def test_a_holder_of_both_privileges_in_generated_policies(search_seed: int) -> None:
    assert compared(range(search_seed, search_seed + 700))
