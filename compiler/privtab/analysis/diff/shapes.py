"""The requests that a row accepts, and its condition for each kind of request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from privtab.ir.formula import asked_condition
from privtab.ir.nodes import Formula, Or, Program, Rule
from privtab.ir.shapes import rule_flags

Types = dict[str, str]
"""The type of the object in each `with` slot."""


class PathForm(NamedTuple):
    """How many names the path of a resource has, and whether it ends with `/`: without its last name it may, and where types nest it does."""

    names: int
    slash: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The requests that a row accepts."""

    program: Program
    rule: Rule
    conditions: Mapping[PathForm, Formula]
    """By the form of the path of the resource; with any other form a request is invalid."""
    unless: Mapping[PathForm, Formula] = field(default_factory=dict)
    """Where a row is that of a filter: what holds if an earlier one applies, by the form of the path."""
    flags: frozenset[str]
    required_flags: frozenset[str]
    """Flags that a request must state, set or not set."""

    @classmethod
    def of(cls, program: Program, rule: Rule, *, slash: bool = False, nests: bool = True) -> Shape:
        """The shape of a row. With flat ids, the names are those on the path, not of the id.

        `slash`: paths without their last name may end with `/`; where the type `nests`, they
        do. Two policies in which no type nests take the same spellings, so one is enough.
        """
        depth = program.depth(rule.entity)
        chain = program.chain(rule.entity)
        if any(program.entities[link].flat for link in chain):  # what lies below an id that is flat has no levels
            slash = program.entities[rule.entity].flat
        conditions = {PathForm(depth): asked_condition(program, rule, named=True)}
        if program.unnamed(rule):
            forms = [PathForm(depth, slash=True)] if slash else []
            forms += [] if slash and nests else [PathForm(depth - 1)]
            conditions |= dict.fromkeys(forms, asked_condition(program, rule, named=False))
        return cls(
            program=program,
            rule=rule,
            conditions=conditions,
            flags=frozenset(rule_flags(program, rule)),
            required_flags=frozenset(rule.required_flags),
        )

    def behind(self, earlier: Sequence[Shape]) -> Shape:
        """The shape of a filter behind others."""
        if not earlier:
            return self
        unless = {form: Or(parts=tuple(shape.conditions[form] for shape in earlier)) for form in self.conditions}
        return replace(self, unless=unless, flags=self.flags.union(*(shape.flags for shape in earlier)))
