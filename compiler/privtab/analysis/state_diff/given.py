"""The values that requests can give attributes: for one question, few of them that stand for all others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import TypeAlias

from privtab.attributes import Attribute, GivenAttributes, Kind, Value
from privtab.ir.comparisons import representatives
from privtab.ir.formula import leaves
from privtab.ir.nodes import RESOURCE, Compare, Formula, Program, Term
from privtab.reference.evaluate import EvaluationContext
from privtab.request import Entity
from privtab.state.attribute_rows import value_of
from privtab.state.nodes import State

Variable: TypeAlias = tuple[Kind, str, str]
"""An attribute whose value a request gives: the key of its entity, or nothing, and its name."""


class GivenValues:
    """The values that requests can give the attributes that a condition compares."""

    def __init__(self, program: Program, condition: Formula, states: Sequence[State]) -> None:
        self.program = program
        self._states = states
        self._compares = tuple(dict.fromkeys(atom for atom in leaves(program, condition) if isinstance(atom, Compare)))
        self._terms = tuple(dict.fromkeys(term for compare in self._compares for term in compare.terms))
        self._types = {term: type_ for term in self._terms if (type_ := program.attribute(term)) is not None}
        self._pool: set[str | int | bool] | None = None
        self.of_entities = any("request" in type_.origins and term.target for term, type_ in self._types.items())
        """Whether requests give attributes of the objects."""

    def __bool__(self) -> bool:
        """Whether requests give any."""
        return any("request" in type_.origins for type_ in self._types.values())

    def all(self, context: EvaluationContext, objects: Mapping[str, Entity]) -> Iterator[GivenAttributes]:
        """The values to look at, fewest first. `context`: one about the objects."""
        choices = {variable: self._choices(type_) for variable, type_ in self._variables(context, objects).items()}
        for size in range(len(choices) + 1):
            for chosen in combinations(choices, size):
                for values in product(*(choices[variable] for variable in chosen)):
                    yield _given(dict(zip(chosen, values, strict=True)), objects)

    def _variables(self, context: EvaluationContext, objects: Mapping[str, Entity]) -> dict[Variable, Attribute]:
        keys = {str(entity) for entity in objects.values()}
        found: dict[Variable, Attribute] = {}
        for term, type_ in self._types.items():
            if "request" not in type_.origins:
                continue
            path = () if term.target is None else context.path(term.target)
            if term.target is None or (path and path[-1] in keys):
                found[term.kind, path[-1] if path else "", term.attribute] = type_
        return found

    def _choices(self, type_: Attribute) -> list[Value]:
        if type_.type == "set":  # an empty one is like none
            sizes = range(1, len(type_.values) + 1)
            return [list(words) for size in sizes for words in combinations(type_.values, size)]
        if self._pool is None:
            self._pool = {*self._constants(), *(value for term in self._terms for value in self._of_states(term))}
        return [*representatives(type_, self._pool, self._types.values())]

    def _constants(self) -> Iterator[str | int | bool]:
        for compare in self._compares:
            yield from () if isinstance(compare.right, Term) else compare.right

    def _of_states(self, term: Term) -> Iterator[str | int | bool]:
        """The values that the states have for an attribute, of anyone."""
        type_ = self._types.get(term)
        if type_ is None or term.kind == "request" or type_.type == "set":
            return
        for state in self._states:
            rows = state.column("attributes", "attribute").where([term.attribute])
            for text in set(state.column("attributes", "value").take(rows)):
                value = value_of(type_, [str(text)])
                if isinstance(value, str | int):
                    yield value


def _given(values: Mapping[Variable, Value], objects: Mapping[str, Entity]) -> GivenAttributes:
    def of(kind: Kind, key: str = "") -> dict[str, Value]:
        return {name: value for (of_kind, on, name), value in values.items() if (of_kind, on) == (kind, key)}

    with_ = {
        slot: found for slot, entity in objects.items() if slot != RESOURCE and (found := of("entity", str(entity)))
    }
    return GivenAttributes(
        user=of("user"), entity=of("entity", str(objects[RESOURCE])), request=of("request"), with_=with_
    )
