"""Programs with types that nest as programs without: each level of such a type becomes a type of its own.

Exact tools answer questions about the unrolled program. A condition reads only some levels of a path: the outermost, the innermost,
the one around it, and for each `any` and `every` one that makes the difference. The rows on every other level count the same on the
next level below that is read, so that the level can be left out. Therefore a question that holds for paths with as many levels as
`levels_that_matter` says holds for paths of any length.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from typing import TypeAlias

from privtab.base.caching import once
from privtab.base.paths import at_level
from privtab.ir import nodes as ir
from privtab.ir.algebra import Rebuilder
from privtab.ir.formula import (
    located,
    on_each_level,
    reached_atoms,
    uses_below,
    walk_reached,
    with_conditions,
    with_targets,
)

Levels: TypeAlias = Mapping[str, int]
"""The number of levels on the path of the object in each slot."""


def levels_that_matter(*conditions: tuple[ir.Program, ir.Formula]) -> int:
    """The most levels that the answer to a question about these conditions depends on, whatever the bound of the type.

    Example:
        most = levels_that_matter((program, rule.item_condition))
    """
    last, quantified, owned = 1, 0, False
    for program, formula in conditions:
        for atom in set(reached_atoms(program, formula)):
            # A condition holds or fails by one level for each `any` and `every`.
            quantified += atom.several is not None
            if isinstance(atom, ir.OnTarget):
                last = 2 if atom.target.level == "parent" else last
                owned = owned or isinstance(atom, ir.Owner | ir.OwnsBelow)
    most = 1 + last + quantified  # the outermost, the last ones, and those
    if _rows_stay([program for program, _ in conditions], owned=owned):
        most *= 2
    bound = max((type_.nested for program, _ in conditions for type_ in program.entities.values()), default=1)
    return min(most, bound)


def _rows_stay(programs: Collection[ir.Program], *, owned: bool) -> bool:
    """Return whether rows of levels that are not read need a level of their own above the next one that is read.

    A row there would say something new about that level: of privileges that are not inherited where others are, or to a condition on owners.
    """
    inherited = {program.inherits(privilege) for program in programs for privilege in program.privileges}
    holds = any(program.semantics.owner is not None and program.semantics.owner.holds for program in programs)
    return len(inherited) > 1 or (owned and holds and True in inherited)


@once
def unrolled(program: ir.Program) -> Unrolled:
    """The shared unrolling of a program.

    Example:
        flat = unrolled(program).at_most(2)
    """
    return Unrolled(program)


class Unrolled:
    """A program with types that nest, and its unrolled form for paths of at most some number of levels."""

    def __init__(self, program: ir.Program) -> None:
        self.program = program
        self.nested = program.nested_on
        self._bound = max((type_.nested for type_ in program.entities.values()), default=1)
        self._programs: dict[int, ir.Program] = {}

    def at_most(self, levels: int) -> ir.Program:
        """The program for paths of at most this many levels. It has no rules with `with` objects, to which no `can` refers.

        If conditions ask what is held below, it has the types of one level more, in which the deepest level contains what it may contain.
        """
        if levels not in self._programs:
            self._programs[levels] = self._program(levels)
        return self._programs[levels]

    def _program(self, levels: int) -> ir.Program:
        program = self.program
        deepest = min(levels + 1, max(self._bound, levels)) if uses_below(program) else levels

        def spread(types: Iterable[str]) -> tuple[str, ...]:
            return tuple(name for type_ in types for name in self._types_of(type_, deepest))

        return replace(
            program,
            entities={copy.name: copy for type_ in program.entities.values() for copy in self._copies(type_, deepest)},
            privileges={name: replace(p, on=spread(p.on)) for name, p in program.privileges.items()},
            roles={
                name: replace(role, grants=tuple((copy, ps) for type_, ps in role.grants for copy in spread((type_,))))
                for name, role in program.roles.items()
            },
            rules={
                (self.at(type_, level), operation): self.rule(rule, {ir.RESOURCE: level})
                for (type_, operation), rule in program.rules.items()
                if not rule.withs
                for level in (range(1, levels + 1) if type_ in self.nested else (1,))
            },
            conflicts=(),
            attributes=replace(
                program.attributes,
                entity={
                    name: replace(attribute, on=spread(attribute.on))
                    for name, attribute in program.attributes.entity.items()
                },
            ),
        )

    def _copies(self, type_: ir.EntityType, levels: int) -> Iterator[ir.EntityType]:
        if type_.name not in self.nested:
            yield type_
            return
        for level in range(1, levels + 1):
            parent = type_.parent
            if type_.nested and level > 1:
                parent = at_level(type_.name, level - 1)
            elif not type_.nested and parent is not None:
                parent = at_level(parent, level)
            yield replace(type_, name=at_level(type_.name, level), parent=parent, nested=0)

    def _types_of(self, type_: str, levels: int) -> tuple[str, ...]:
        return tuple(at_level(type_, level) for level in range(1, levels + 1)) if type_ in self.nested else (type_,)

    def rule(self, rule: ir.Rule, levels: Levels) -> ir.Rule:
        """The row for requests whose paths have these numbers of levels, without effects."""
        return replace(
            with_conditions(rule, partial(self.formula, levels=levels)),
            entity=self.at(rule.entity, levels.get(ir.RESOURCE, 1)),
            withs=tuple(
                replace(slot, types=tuple(self.at(type_, levels.get(slot.name, 1)) for type_ in slot.types))
                for slot in rule.withs
            ),
            effects=(),
        )

    def at(self, type_: str, level: int) -> str:
        """The type on a path with this many levels."""
        return at_level(type_, level) if type_ in self.nested else type_

    def formula(self, formula: ir.Formula, levels: Levels) -> ir.Formula:
        """The condition for requests whose paths have these numbers of levels."""
        return _AtLevels(self, levels).fold(formula)

    def requests(self, formulas: Iterable[ir.Formula], most: int) -> Iterator[Levels]:
        """Every combination of numbers of levels, up to `most`, of the objects that the conditions name."""
        named = sorted(self.varying(formulas))
        for counts in product(range(1, most + 1), repeat=len(named)):
            yield dict(zip(named, counts, strict=True))

    def varying(self, formulas: Iterable[ir.Formula]) -> frozenset[str]:
        """The slots of the objects whose numbers of levels the conditions may depend on."""
        varying: set[str] = set()
        for formula in formulas:
            for node in walk_reached(self.program, formula):
                if isinstance(node, ir.ByType):
                    varying |= {node.slot} if any(type_ in self.nested for type_, _ in node.cases) else set()
                elif isinstance(node, ir.Atomic | ir.Can):
                    varying |= {target.slot for target in node.targets if target.type in self.nested}
        return frozenset(varying)


class _AtLevels(Rebuilder):
    """Replaces targets by targets of single levels, and the types of cases by the types of the objects' levels."""

    def __init__(self, unrolling: Unrolled, levels: Levels) -> None:
        self._unrolling = unrolling
        self._levels = levels

    def atom(self, atom: ir.Atom) -> ir.Formula:
        whole = atom.several
        if whole is None:
            return with_targets(atom, self._single)
        join = ir.Or.of if whole.level == "any" else ir.And.of
        each = on_each_level(self._unrolling.program, atom, self._levels.get(whole.slot, 1))
        return join(*(with_targets(one, self._single) for one in each))

    def can(self, can: ir.Can) -> ir.Formula:
        return with_targets(can, self._single)

    def _single(self, target: ir.Target) -> ir.Target:
        [single] = located(self._unrolling.program, target, self._levels.get(target.slot, 1))
        return single

    def by_type(self, choice: ir.ByType) -> ir.Formula:
        level = self._levels.get(choice.slot, 1)
        cases = ((self._unrolling.at(type_, level), self.fold(case_)) for type_, case_ in choice.cases)
        return replace(choice, cases=tuple(cases))
