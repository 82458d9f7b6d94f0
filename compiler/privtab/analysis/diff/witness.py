"""Facts that tell two programs apart → a state and a request, tried with the reference meaning under both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from privtab.analysis.diff.nodes import Answer, Tables, Witness
from privtab.analysis.diff.separate import Separation
from privtab.analysis.diff.shapes import Shape
from privtab.errors import InvalidRequest
from privtab.ir.evaluate import Reference
from privtab.ir.formula import item_condition, references
from privtab.ir.nodes import Program, Rule, Target
from privtab.ir.scene import Scene
from privtab.request import Entity, Request
from privtab.state.load import from_tables
from privtab.state.validate import validate


class Stage(Scene):
    """A scene for two programs: what only one of them knows has a place on the path too, by its depth."""

    def __init__(
        self, shape: Shape, other: Program, plain: Mapping[str, str], found: Separation, *, apart: bool
    ) -> None:
        """`plain`: the true names of types that stand under another one."""
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


class Trial:
    """One row on both sides, decided by the reference meaning; a row of a state that a side does not know is left out."""

    def __init__(self, before: tuple[Program, Rule], after: tuple[Program, Rule]) -> None:
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
        """The facts as a state and a request. Raises AssertionError unless both sides answer as they must."""
        wanted = {"wider": (False, True), "narrower": (True, False), "effects": (True, True)}[shows]
        made: Witness | None = None
        for apart in (False, True) if shape.rule.withs else (True,):
            stage = Stage(shape, other, plain, found, apart=apart)
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
    """What `privtab decide` says of a request, and the effects of an allow."""
    state, _ = validate(program, from_tables(tables, "witness"))
    try:
        decision = Reference(program, state).decide(request)
    except InvalidRequest:
        return "invalid", ()
    return ("allow" if decision.allowed else "deny"), decision.effects


def _only(program: Program, rule: Rule) -> Program:
    """The program with a row and those that it refers to: a decision asks no others."""
    rules: dict[tuple[str, str], Rule] = {}
    waiting = [rule]
    while waiting:
        at = waiting.pop()
        if (at.entity, at.operation) not in rules:
            rules[at.entity, at.operation] = at
            waiting += [program.rules[c.target.type, c.operation] for c in references(item_condition(at))]
    return Program(
        system=program.system,
        version=program.version,
        title=program.title,
        entities=program.entities,
        privileges=program.privileges,
        aliases=program.aliases,
        sets=program.sets,
        roles=program.roles,
        semantics=program.semantics,
        rules=rules,
    )
