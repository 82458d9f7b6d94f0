"""Which readings and which rows of variants are said to be equal is what trying every state and request says."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
import small_policies

from privtab import model
from privtab.base.source import SourceFile
from privtab.checks import core_rows, documents
from privtab.checks._view import view_of
from privtab.ir.nodes import Program, Rule
from privtab.language import syntax

TERMS = ["READ (low)", "READ (mid)", "WRITE (low)", "WRITE (mid)", "READ/WRITE (mid, low)", "READ + WRITE (low)"]
MORE = ["owner (low)", "owner (mid)", "can look (mid)", "member (top)", "(READ (low) when force)"]


def nested(terms: list[str], depth: int, rnd: random.Random) -> str:
    if depth and rnd.random() < 0.6:
        return f"({nested(terms, depth - 1, rnd)} {rnd.choice(['and', 'or'])} {nested(terms, depth - 1, rnd)})"
    return rnd.choice(terms)


def body(terms: list[str], each: bool, rnd: random.Random) -> str:
    shown = f", each: '{rnd.choice(terms)}'" if each != (rnd.random() < 0.05) else ""
    return f"requires: '{nested(terms, 2, rnd)}'{shown}"


def text(seed: int) -> str:
    """A policy with two rows, the same: one with another reading, one with another row in a variant."""
    rnd = random.Random(seed)
    terms, each = rnd.sample(TERMS + MORE, rnd.choice([2, 2, 3])), rnd.random() < 0.4
    first, second = body(terms, each, rnd), body(terms, each, rnd)
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
tables:
  mid: {{look: READ (mid)}}
  low:
    open: {{{first}, ambiguous: {{why: Said so., readings: {{other: {{{second}}}}}}}}}
    shut: {{{first}}}
variants: {{strict: {{tables: {{low: {{shut: {{{second}}}}}}}}}}}
"""


def equal(program: Program, first: Rule, second: Rule) -> bool | None:
    """Whether two rules take the same requests and decide them alike in every state; None where there are too many."""
    if first.unnamed != second.unnamed:
        return False
    changed = replace(program, rules={**program.rules, (first.entity, first.operation): second})
    flags = {frozenset(r.flags): r.flags for rule in (first, second) for r in small_policies.requests(program, rule)}
    for request in (replace(r, flags=f) for r in small_policies.requests(program, first) for f in flags.values()):
        states = small_policies.states([(program, first), (changed, second)], request)
        if states is None:
            return None
        if any(
            small_policies.allows(program, s, request) != small_policies.allows(changed, s, request) for s in states
        ):
            return False
    return True


def verdicts(seeds: range) -> Iterator[bool]:
    for seed in seeds:
        tables, _ = syntax.read_policy(SourceFile.of("small.yaml", text(seed)))
        assert tables is not None
        policy, found = model.resolve(tables)
        assert policy is not None, found
        view = view_of(policy)
        # A reading keeps what it does not speak of; a row of a variant does not.
        [(_, reading)] = view.alternative_rows.readings(policy.rows["low", "open"])
        [(_, variant_row)] = view.alternative_rows.variants()
        for find, alternative in ((documents.equal_reading, reading), (core_rows.equal_variant_row, variant_row)):
            rule = view.program.rules["low", alternative.operation]
            by_enumeration = equal(view.program, rule, view.lowering.rule(alternative))
            if by_enumeration is not None:
                assert bool(list(find(policy))) == by_enumeration, (find, text(seed))
                yield by_enumeration


@pytest.mark.slow
def test_equal_readings_and_variant_rows_are_what_trying_says() -> None:
    found = list(verdicts(range(50)))
    assert min(found.count(True), found.count(False)) > 5


@pytest.mark.long
def test_equal_readings_and_variant_rows_in_many_policies(search_seed: int) -> None:
    assert len(set(verdicts(range(search_seed, search_seed + 500)))) == 2
