"""What requests a row takes, and the condition that it puts to each kind of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, product

from privtab.ir.formula import call_condition, item_condition, rule_flags, without_name
from privtab.ir.nodes import NEVER, Formula, Program, Rule

Types = dict[str, str]
"""The type of the object in each `with` slot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The requests that a row takes."""

    program: Program
    rule: Rule
    conditions: Mapping[int, Formula]
    """By how many names the path of the resource has; for any other number a request is invalid."""
    flags: frozenset[str]

    @classmethod
    def of(cls, program: Program, rule: Rule) -> Shape:
        """The shape of a row."""
        depth = program.depth(rule.entity)
        conditions = {depth: item_condition(rule)}
        if rule.unnamed and not program.entities[rule.entity].single:
            conditions[depth - 1] = without_name(program, call_condition(rule), rule.entity)
        return cls(program=program, rule=rule, conditions=conditions, flags=frozenset(rule_flags(program, rule)))

    def condition(self, names: int, types: Types) -> Formula:
        """What a request with that many names and such objects must fulfil: never, where it is invalid."""
        fits = all(types.get(slot.name) in slot.types for slot in self.rule.withs)
        return self.conditions.get(names, NEVER) if fits else NEVER

    def objects(self) -> Iterator[Types]:
        """Every choice of types for the `with` objects."""
        for types in product(*(slot.types for slot in self.rule.withs)):
            yield dict(zip((slot.name for slot in self.rule.withs), types, strict=True))


def subsets(flags: frozenset[str]) -> Iterator[frozenset[str]]:
    """Every set of the flags, small ones first."""
    for size in range(len(flags) + 1):
        yield from map(frozenset, combinations(sorted(flags), size))
