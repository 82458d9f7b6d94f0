"""What checks say of random small policies is what trying every state says."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
import small_policies

from privtab import model, syntax
from privtab.checks import (
    p312_unreachable_operation,
    p313_repeats_core,
    p314_deviates_from_core,
)
from privtab.checks._view import View, view_of
from privtab.ir.formula import conjunction
from privtab.ir.nodes import ALWAYS, Formula, Rule
from privtab.model import nodes as m
from privtab.reference.evaluate import EvaluationContext, Reference
from privtab.request import Request
from privtab.source import SourceFile


def resolved(text: str) -> m.Policy | None:
    tables, _ = syntax.read(SourceFile.of("small.yaml", text))
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


def spans(module: object, policy: m.Policy) -> set[tuple[int, int]]:
    found = module.find(policy)  # type: ignore[attr-defined]
    return {(d.span.line, d.span.column) for d in found}


def implies(seen: View, rule: Rule, one: Formula, other: Formula) -> bool | None:
    """Whether every state and request that gives `one` gives `other`; None where there are too many states."""
    probe = replace(rule, gate=ALWAYS, requires=conjunction(one, other), each=None, creates=False)
    requests = [r for r in small_policies.requests(seen.program, replace(rule, gate=ALWAYS)) if _named(seen, r)]
    for request in requests:
        states = small_policies.states([(seen.program, probe)], request)
        if states is None:
            return None
        for state in states:
            asked = EvaluationContext(Reference(seen.program, small_policies.known(seen.program, state)), request)
            if asked.holds(one) and not asked.holds(other):
                return False
    return True


def _named(seen: View, request: Request) -> bool:
    return len(request.resource.names) == seen.program.depth(request.resource.type)


def unreachable(seen: View, rule: Rule) -> bool | None:
    """Whether there is a choice of flags, types and naming under which no state allows any request."""
    allowed: dict[object, bool] = {}
    for request in small_policies.requests(seen.program, rule):
        key = (request.flags, tuple(sorted((s, e.type) for s, e in request.with_.items())), _named(seen, request))
        states = small_policies.states([(seen.program, rule)], request)
        if states is None:
            return None
        allowed[key] = allowed.get(key, False) or any(small_policies.allows(seen.program, s, request) for s in states)
    return not all(allowed.values())


def compared(seeds: range) -> int:
    """How many operations cannot be reached, by the check and by trying alike."""
    count = 0
    for seed, policy in policies(seeds):
        seen = view_of(policy)
        said = spans(p312_unreachable_operation, policy)
        for row in policy.rows.values():
            tried = unreachable(seen, seen.rule(row))
            if tried is not None:
                assert tried == ((row.decl.span.line, row.decl.span.column) in said), (seed, row.operation)
                count += tried
    return count


@pytest.mark.slow
def test_unreachable_is_what_trying_says() -> None:
    assert compared(range(60))


@pytest.mark.long
def test_unreachable_in_many_policies() -> None:
    assert compared(range(60, 1500))


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
    own = f" {rnd.choice(['and', 'or'])} ".join(rnd.sample(OWN, rnd.choice([1, 1, 2])))
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
  low: {{open: {own}}}
"""


def core_verdicts(seeds: range) -> set[str]:
    """What the checks say of rows beside core rows, each held against trying every state."""
    said: set[str] = set()
    for seed in seeds:
        policy = resolved(beside_core(seed))
        assert policy is not None
        seen = view_of(policy)
        row = policy.rows["low", "open"]
        core = seen.alternative_rows.core(row)
        assert core is not None
        rule, other = seen.rule(row), seen.lowering.rule(core)
        less = implies(seen, rule, rule.requires, other.requires)
        more = implies(seen, rule, other.requires, rule.requires)
        if less is None or more is None:
            continue
        breadth = {(True, True): "equal", (False, True): "more", (True, False): "less", (False, False): "others"}
        told = [d.message for d in p314_deviates_from_core.find(policy)]
        words = {"allows more than": "more", "allows less than": "less", "allows and refuses": "others"}
        verdict = next((word for text, word in words.items() for message in told if text in message), "equal")
        assert verdict == breadth[less, more], seed
        assert bool(list(p313_repeats_core.find(policy))) == (verdict == "equal"), seed
        said.add(verdict)
    return said


@pytest.mark.slow
def test_rows_beside_core_rows_are_what_trying_says() -> None:
    assert core_verdicts(range(120)) == {"equal", "more", "less", "others"}
