"""The requests that a row accepts, and its condition for each kind of request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from privtab.ir.canonical import AtomSet, canonical
from privtab.ir.formula import asked_condition
from privtab.ir.nodes import And, Formula, Or, Program, Rule
from privtab.ir.shapes import kinds_of_requests, rule_flags
from privtab.request import NOT_SET, flag_name

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
    flags: frozenset[str]
    required_flags: frozenset[str]
    """Flags that a request must state, set or not set."""
    _sets: dict[tuple[PathForm, frozenset[str], tuple[tuple[str, str], ...]], tuple[AtomSet, ...]] = field(
        default_factory=dict
    )

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
        if rule.unnamed and not program.entities[rule.entity].single:
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

    def sets(self, form: PathForm, flags: frozenset[str], types: Types) -> tuple[AtomSet, ...]:
        """The minimal sets for a request of that form, these flags and these types; empty if it is invalid."""
        if not self.required_flags <= {flag_name(flag) for flag in flags}:
            return ()
        if form not in self.conditions or not all(types.get(slot.name) in slot.types for slot in self.rule.withs):
            return ()
        key = form, flags & self.flags, tuple((slot.name, types[slot.name]) for slot in self.rule.withs)
        if key not in self._sets:
            sets = canonical(self.program).minimal_sets(self.conditions[form], key[1], types)
            self._sets[key] = tuple(map(frozenset, sets))
        return self._sets[key]

    def condition(self, form: PathForm, flags: frozenset[str], types: Types) -> Formula:
        """The same as a condition, which is much shorter than one that goes through `can`."""
        return Or(parts=tuple(And(parts=tuple(atoms)) for atoms in self.sets(form, flags, types)))

    def objects(self) -> Iterator[Types]:
        """Every choice of types for the `with` objects."""
        return (types for _, types in kinds_of_requests((), {slot.name: slot.types for slot in self.rule.withs}))


def stated_flags(first: Shape, second: Shape) -> Iterator[frozenset[str]]:
    """What requests state about flags: every set, with all required flags; then without those of one side only."""
    required = first.required_flags | second.required_flags
    for chosen, _ in kinds_of_requests(first.flags | second.flags, {}):
        flags = frozenset(chosen)
        unset = frozenset(f"{flag}{NOT_SET}" for flag in required - flags)
        yield flags | unset
        for flag in sorted((first.required_flags ^ second.required_flags) - flags):
            yield flags | unset - {f"{flag}{NOT_SET}"}
