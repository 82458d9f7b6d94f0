"""What checks say of random small policies is what trying every state says."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
import small_policies

from privtab import model
from privtab.base.request import Request
from privtab.base.source import SourceFile
from privtab.checks import conditions, core_rows
from privtab.checks._view import View, view_of
from privtab.ir.nodes import ALWAYS, And, Formula, Rule
from privtab.language import syntax
from privtab.model import nodes as m
from privtab.reference.evaluate import EvaluationContext, Reference


def resolved(text: str) -> m.Policy | None:
    tables, _ = syntax.read_policy(SourceFile.of("small.yaml", text))
    return None if tables is None else model.resolve(tables)[0]


def policies(seeds: range) -> Iterator[tuple[int, m.Policy]]:
    """Random policies, some of whose privileges cannot be granted everywhere."""
    for seed in seeds:
        text = small_policies.policy(seed)
        for changed in (text, text.replace("WRITE: {on: [mid, low]}", "WRITE: {on: [mid]}")):
            policy = resolved(changed)
            if policy is not None:
                yield seed, policy
            if changed == text and "WRITE: {on: [mid, low]}" not in text:
                break


def implies(view: View, rule: Rule, premise: Formula, conclusion: Formula) -> bool | None:
    """Whether every state and request that gives the premise gives the conclusion; None if there are too many states."""
    probe = replace(rule, gate=ALWAYS, requires=And.of(premise, conclusion), each=None, creates=None)
    requests = [r for r in small_policies.requests(view.program, replace(rule, gate=ALWAYS)) if _named(view, r)]
    for request in requests:
        states = small_policies.states([(view.program, probe)], request)
        if states is None:
            return None
        for state in states:
            context = EvaluationContext(Reference(view.program, small_policies.known(view.program, state)), request)
            if context.holds(premise) and not context.holds(conclusion):
                return False
    return True


def _named(view: View, request: Request) -> bool:
    return len(request.resource.names) == view.program.depth(request.resource.type)


def unreachable(view: View, rule: Rule) -> bool | None:
    """Whether there is a choice of flags, types and naming under which no state allows any request."""
    allowed: dict[object, bool] = {}
    for request in small_policies.requests(view.program, rule):
        key = (request.flags, tuple(sorted((s, e.type) for s, e in request.with_.items())), _named(view, request))
        states = small_policies.states([(view.program, rule)], request)
        if states is None:
            return None
        allowed[key] = allowed.get(key, False) or any(small_policies.allows(view.program, s, request) for s in states)
    return not all(allowed.values())


def compared(seeds: range) -> int:
    """How many operations cannot be reached, by the check and by trying alike."""
    count = 0
    for seed, policy in policies(seeds):
        view = view_of(policy)
        reported = {(d.span.line, d.span.column) for d in conditions.unreachable_operation(policy)}
        for row in policy.rows.values():
            by_enumeration = unreachable(view, view.rule(row))
            if by_enumeration is not None:
                assert by_enumeration == ((row.decl.span.line, row.decl.span.column) in reported), (seed, row.operation)
                count += by_enumeration
    return count


@pytest.mark.slow
def test_unreachable_is_what_trying_says() -> None:
    assert compared(range(60))


@pytest.mark.long
def test_unreachable_in_many_policies(search_seed: int) -> None:
    assert compared(range(search_seed, search_seed + 900))


CORE = ["READ (entity)", "READ + WRITE (entity)", "READ/WRITE (entity)", "WRITE (parent)", "owner (entity)"]
OWN = [
    "READ (low)",
    "WRITE (low)",
    "READ (mid)",
    "WRITE (mid)",
    "owner (low)",
    "READ + WRITE (low)",
    "READ/WRITE (low)",
    "can look (mid)",
]


def beside_core(seed: int) -> str:
    """A policy whose type `low` has a row beside a core row."""
    rnd = random.Random(seed)
    own_condition = f" {rnd.choice(['and', 'or'])} ".join(rnd.sample(OWN, rnd.choice([1, 1, 2])))
    return f"""\
privtab: 1
system: small
version: "1"
entities: {{top: {{mid: {{low: }}}}}}
privileges: [READ, WRITE]
semantics:
  inheritance: {rnd.choice(["none", "down"])}
  deny: {rnd.choice(["none", "overrides"])}
  owner: {{kinds: [user], holds: [{rnd.choice(["READ", "WRITE"])}]}}
core: {{open: {rnd.choice(CORE)}}}
tables:
  mid: {{look: READ (mid)}}
  low: {{open: {own_condition}}}
"""


def core_verdicts(seeds: range) -> set[str]:
    """What the checks report for rows that override core rows, each compared with an enumeration of states."""
    verdicts: set[str] = set()
    for seed in seeds:
        policy = resolved(beside_core(seed))
        assert policy is not None
        view = view_of(policy)
        row = policy.rows["low", "open"]
        core = view.alternative_rows.core(row)
        assert core is not None
        rule, core_rule = view.rule(row), view.lowering.rule(core)
        implies_core = implies(view, rule, rule.requires, core_rule.requires)
        implied_by_core = implies(view, rule, core_rule.requires, rule.requires)
        if implies_core is None or implied_by_core is None:
            continue
        breadth = {(True, True): "equal", (False, True): "more", (True, False): "less", (False, False): "others"}
        messages = [d.message for d in core_rows.deviates_from_core(policy)]
        words = {"allows more than": "more", "allows less than": "less", "allows and refuses": "others"}
        verdict = next((word for text, word in words.items() for message in messages if text in message), "equal")
        assert verdict == breadth[implies_core, implied_by_core], seed
        assert bool(list(core_rows.repeats_core(policy))) == (verdict == "equal"), seed
        verdicts.add(verdict)
    return verdicts


@pytest.mark.slow
def test_rows_beside_core_rows_are_what_trying_says() -> None:
    assert core_verdicts(range(120)) == {"equal", "more", "less", "others"}
