"""Turns facts that distinguish two programs into a state and a request, checked by the reference under both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from privtab.analysis.diff.counterexample import Separation
from privtab.analysis.diff.nodes import Answer, Tables, Witness
from privtab.analysis.diff.shapes import Shape
from privtab.errors import InvalidRequest
from privtab.ir.canonical import Listing
from privtab.ir.facts import FactSemantics
from privtab.ir.formula import atoms, item_condition, references
from privtab.ir.nodes import Has, Program, Rule, ServiceAdmin, Target
from privtab.reference.evaluate import EvaluationContext, Reference
from privtab.reference.explain import Explanation
from privtab.reference.witness import WitnessBuilder
from privtab.request import Entity, Request
from privtab.state.load import from_tables
from privtab.state.validate import validate


class ProgramPairWitnessBuilder(WitnessBuilder):
    """A witness for two programs: types that only one of them has get names by their depth."""

    def __init__(
        self, shape: Shape, other: Program, plain: Mapping[str, str], found: Separation, *, apart: bool
    ) -> None:
        """`plain`: the original names of types that were renamed for the comparison."""
        unnamed = found.names < shape.program.depth(shape.rule.entity)
        super().__init__(shape.program, shape.rule, found.types, found.facts, unnamed=unnamed, apart=apart)
        self.other = other
        self.plain = plain

    def entity(self, target: Target) -> Entity:
        """The entity that a target stands for."""
        at_slot = super().entity(Target(slot=target.slot, type=self.types[target.slot]))
        known = self.program if target.type in self.program.entities else self.other
        names = at_slot.names[: known.depth(target.type)]
        return Entity(self.plain.get(target.type, target.type), "/".join(names))


class WitnessCheck:
    """Checks witnesses for one row by the reference under both programs, each without the state rows unknown to it."""

    def __init__(self, before: tuple[FactSemantics, Rule], after: tuple[FactSemantics, Rule]) -> None:
        self.before = _only(*before)
        self.after = _only(*after)

    def witness(
        self,
        shows: Literal["wider", "narrower", "effects"],
        shape: Shape,
        other: Program,
        plain: Mapping[str, str],
        found: Separation,
    ) -> Witness:
        """Return the facts as a state and a request. Raises AssertionError unless both sides answer as expected."""
        wanted = {"wider": (False, True), "narrower": (True, False), "effects": (True, True)}[shows]
        made: Witness | None = None
        for apart in (False, True) if shape.rule.withs else (True,):
            stage = ProgramPairWitnessBuilder(shape, other, plain, found, apart=apart)
            made = self._tried(shows, stage.request(found.flags), stage.tables())
            if (made.before == "allow", made.after == "allow") == wanted:
                return made
        raise AssertionError(f"{shape.rule.id}: this witness does not show it: {made}")

    def _tried(self, shows: Literal["wider", "narrower", "effects"], request: Request, state: Tables) -> Witness:
        before, effects_before = answer(self.before, state, request)
        after, effects_after = answer(self.after, state, request)
        return Witness(
            shows=shows,
            request=request,
            state=state,
            before=before,
            after=after,
            effects_before=effects_before,
            effects_after=effects_after,
        )


def answer(program: Program, tables: Tables, request: Request) -> tuple[Answer, tuple[str, ...]]:
    """The answer that `privtab decide` gives, and the effects of an allow."""
    state, _ = validate(program, from_tables(tables, "witness"))
    reference = Reference(program, state)
    rule = program.rules.get((request.resource.type, request.action))
    try:
        reference.vocabulary.check(request)
    except InvalidRequest:
        return "invalid", ()
    assert rule is not None
    # As in `Reference.decide`, without looking for other ways to an allow.
    asked = EvaluationContext(reference, request)
    if not asked.holds(asked.condition(rule)):
        return "deny", ()
    explained = Explanation(asked, rule, Listing(()), allowed=True)
    return "allow", tuple(map(explained.effect_text, rule.effects))


def _only(reading: FactSemantics, rule: Rule) -> Program:
    """The program reduced to a row, the rows that it refers to, and their ancestors; decisions need nothing else."""
    program = reading.program
    rules: dict[tuple[str, str], Rule] = {}
    waiting = [rule]
    types: dict[str, None] = {}
    privileges: set[str] = set()
    while waiting:
        at = waiting.pop()
        if (at.entity, at.operation) in rules:
            continue
        rules[at.entity, at.operation] = at
        condition = item_condition(at)
        spoken = [at.entity, *(t for slot in at.withs for t in slot.types), *(e.target.type for e in at.effects)]
        for atom in atoms(condition):
            if not isinstance(atom, ServiceAdmin):
                spoken.append(atom.target.type)
            if isinstance(atom, Has):
                privileges.add(atom.privilege)
        types |= dict.fromkeys(above for type_ in spoken for above in program.chain(type_))
        waiting += [program.rules[c.target.type, c.operation] for c in references(condition)]
    for role in program.roles.values():
        spoken = [*([role.scope] if role.scope else []), *(type_ for type_, _ in role.grants)]
        types |= dict.fromkeys(above for type_ in spoken for above in program.chain(type_))
    kept = {name for privilege in privileges for name in reading.names_of(privilege)}
    privileges = {p for name in kept for p in reading.names.privileges(name) or ()}
    return replace(
        program,
        entities={name: program.entities[name] for name in types},
        privileges={name: program.privileges[name] for name in sorted(privileges)},
        aliases={name: program.aliases[name] for name in sorted(kept) if name in program.aliases},
        sets={name: program.sets[name] for name in sorted(kept) if name in program.sets},
        rules=rules,
    )
