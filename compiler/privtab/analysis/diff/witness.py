"""Turns facts that distinguish two programs into a state and a request, checked by the reference under both."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Literal

from privtab.analysis.diff.counterexample import Separation
from privtab.analysis.diff.nodes import Decided, Tables, Witness
from privtab.analysis.diff.shapes import Shape
from privtab.errors import InvalidRequest
from privtab.ir.canonical import Listing
from privtab.ir.comparisons import Values
from privtab.ir.filters import earlier, filter_of, sql
from privtab.ir.nodes import Program, Rule, Target, Term
from privtab.reference.evaluate import EvaluationContext, Explanation, Reference
from privtab.reference.witness import WitnessBuilder
from privtab.request import Entity, Request
from privtab.state.load import from_tables
from privtab.state.validate import validate


class ProgramPairWitnessBuilder(WitnessBuilder):
    """A witness for two programs: types that only one of them has get names by their depth."""

    def __init__(
        self,
        shape: Shape,
        other: Program,
        original_types: Mapping[str, str],
        separation: Separation,
        *,
        values: Values,
        separate_ancestors: bool,
    ) -> None:
        """`original_types`: the original names of types that were renamed for the comparison."""
        unnamed = separation.form.slash or separation.form.names < shape.program.depth(shape.rule.entity)
        super().__init__(
            shape.program,
            shape.rule,
            separation.types,
            separation.facts,
            values=values,
            unnamed=unnamed,
            separate_ancestors=separate_ancestors,
            slash=separation.form.slash,
        )
        self.other_program = other
        self.original_types = original_types

    def entity(self, target: Target) -> Entity:
        """The entity that a target stands for."""
        names = self.path_names(Target(slot=target.slot, type=self.types[target.slot]))
        known = self.program if target.type in self.program.entities else self.other_program
        found = self._entity(known, target.type, names[: known.depth(target.type)])
        return Entity(self.original_types.get(found.type, found.type), found.id)

    @property
    def grantees(self) -> Collection[str]:
        """The kinds that both programs take, if any."""
        own, others = self.program.semantics.grantees, self.other_program.semantics.grantees
        return [kind for kind in own if kind in others] or own

    def is_in_state(self, term: Term) -> bool:
        """As WitnessBuilder.is_in_state, for attributes of either program."""
        declared = self.program.attribute(term) or self.other_program.attribute(term)
        return declared is not None and "state" in declared.origins


class WitnessCheck:
    """Checks witnesses for one row by the reference under both programs, each without the state rows unknown to it."""

    def __init__(self, before: Program, after: Program, rules: tuple[Rule, Rule]) -> None:
        self.before, self.after = before, after
        self._needs_role = any(rule.needs_active_role for rule in rules)

    def witness(
        self,
        shows: Literal["wider", "narrower", "effects"],
        shape: Shape,
        other: Program,
        original_types: Mapping[str, str],
        separation: Separation,
    ) -> Witness:
        """Return the facts as a state and a request. Raises AssertionError unless both sides answer as expected."""
        expected = {"wider": (False, True), "narrower": (True, False), "effects": (True, True)}[shows]
        witness: Witness | None = None
        for separate_ancestors in (False, True) if shape.rule.withs else (True,):
            builder = ProgramPairWitnessBuilder(
                shape,
                other,
                original_types,
                separation,
                values=separation.values,
                separate_ancestors=separate_ancestors,
            )
            witness = self._decide(shows, *self._as_role(builder.request(separation.flags), builder.tables()))
            if (witness.before == "allow", witness.after == "allow") == expected:
                return self._minimised(witness)
        raise AssertionError(f"{shape.rule.id}: this witness does not show it: {witness}")

    def _as_role(self, request: Request, tables: Tables) -> tuple[Request, Tables]:
        """With an active role that the caller holds, where a side needs one; all other roles are active as well."""
        if not self._needs_role:
            return request, tables
        held = [*tables.get("assignments", ()), {"principal": f"user:{request.user}", "role": "active"}]
        roles = tuple(dict.fromkeys(row["role"] for row in reversed(held)))
        return replace(request, active_roles=roles), {**tables, "assignments": held}

    def _minimised(self, witness: Witness) -> Witness:
        """The witness without rows that are not needed: without any one of those that remain, the answers are others."""

        def shown(found: Witness) -> object:
            return found.before, found.after, found.effects_before, found.effects_after

        shorter = True
        while shorter:
            shorter = False
            for table, at in [
                (table, at) for table, rows in witness.state.items() for at in reversed(range(len(rows)))
            ]:
                rows = witness.state[table]
                fewer = {**witness.state, table: [*rows[:at], *rows[at + 1 :]]}
                tables = {name: listed for name, listed in fewer.items() if listed}
                tried = self._decide(witness.shows, witness.request, tables)
                if shown(tried) == shown(witness):
                    witness, shorter = tried, True
                    break
        return witness

    def _decide(self, shows: Literal["wider", "narrower", "effects"], request: Request, state: Tables) -> Witness:
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


def answer(program: Program, tables: Tables, request: Request) -> tuple[Decided, tuple[str, ...]]:
    """The answer that `privtab decide` gives, and the effects of an allow."""
    state, _ = validate(program, from_tables(tables, "witness"), notes=False)
    reference = Reference(program, state)
    rule = program.rules.get((request.resource.type, request.action))
    try:
        reference.vocabulary.check(request)
    except InvalidRequest:
        return "invalid", ()
    assert rule is not None
    # As in `Reference.decide`, without looking for other ways to an allow.
    evaluation = EvaluationContext(reference, request)
    if evaluation.unheld or not evaluation.holds(evaluation.condition(rule)):
        return "deny", ()
    if any(map(evaluation.holds, map(evaluation.condition, earlier(program, rule.entity, rule.operation)))):
        return "deny", ()
    if (filter_ := filter_of(program, rule.entity, rule.operation)) is not None:
        return "allow", (sql(filter_),)
    explanation = Explanation(evaluation, rule, Listing(()), allowed=True)
    return "allow", tuple(map(explanation.effect_text, (*rule.effects, *rule.delegations)))
