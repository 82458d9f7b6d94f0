"""All that one user may do, on all entities of a state at once: `what-can`, where paths and rows tell everything."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import NamedTuple, TypeAlias

from privtab.base import LEFT_OUT, Entity, Request
from privtab.engines import Atom
from privtab.ir import RESOURCE, Program, Rule
from privtab.state import Holdings, State
from privtab_analysis.entitlements.columns import Column, Columns, chosen
from privtab_analysis.entitlements.evaluator import Evaluator
from privtab_analysis.entitlements.subjects import Subject, Subjects, held, program_forms
from privtab_analysis.entitlements.universe import Universe

MOST_COMBINED = 4_096
"""The most combinations of kinds of objects that are tried for one operation."""


class Allowed(NamedTuple):
    """An operation that is allowed on some entities; for one with further objects, a choice of these, and how many there are."""

    rule: Rule
    unnamed: bool
    with_: Mapping[str, Entity]
    choices: int | None


Pattern: TypeAlias = tuple[Column, frozenset[Atom]]
"""Entities on which just some of the atoms of a condition hold."""
Choice: TypeAlias = tuple[Column, Mapping[str, Entity], int]
"""Entities, a choice of objects for them, and how many there are."""


class Everywhere:
    """The permissions of one user."""

    def __init__(
        self,
        program: Program,
        state: State,
        holdings: Holdings,
        user: str,
        flags: frozenset[str],
        known: Universe,
    ) -> None:
        """`holdings`: of the state. `known`: its entities."""
        self._program = program
        self._flags = flags
        self._known = known
        self._evaluator = _evaluator(program, state, holdings, user)
        self._columns: dict[tuple[str, str | None], Columns] = {}

    def allowed(
        self, type_: str, questions: Iterable[tuple[Rule, bool]], only: Entity | None = None
    ) -> list[tuple[list[str], list[Allowed]]] | None:
        """The paths of entities of a type with equal answers, and the operations; None if there is too much to combine. `only`: on this entity."""
        columns = self._of(type_, only)
        found: list[tuple[Column, list[Allowed]]] = [(columns.every, [])]
        for rule, unnamed in questions if columns.paths else ():
            if rule.needs_active_role:
                continue
            if not rule.withs:
                [column] = columns.allowed(self._request(rule, columns.paths[0], {}, unnamed=unnamed))
                answers = [(column, Allowed(rule, unnamed, {}, None))]
            else:
                choices = self._choices(rule, columns, unnamed=unnamed)
                if choices is None:
                    return None
                single = len(rule.withs) == 1
                answers = [(c, Allowed(rule, unnamed, with_, count if single else None)) for c, with_, count in choices]
            found = [part for group in found for part in _divided(group, answers)]
        return [([*chosen(column, columns.paths)], answers) for column, answers in found if answers]

    def _of(self, type_: str, only: Entity | None = None) -> Columns:
        key = type_, None if only is None else only.id
        if key not in self._columns:
            paths = [""] if not type_ else self._known.paths(type_) if only is None else [only.id]
            self._columns[key] = Columns(self._evaluator, type_, paths)
        return self._columns[key]

    def _request(self, rule: Rule, path: str, with_: Mapping[str, Entity], *, unnamed: bool) -> Request:
        id_ = f"{path}/" if unnamed and path else path
        return Request(
            user="", action=rule.operation, resource=Entity(rule.entity, id_), with_=with_, flags=self._flags
        )

    def _choices(self, rule: Rule, columns: Columns, *, unnamed: bool) -> list[Choice] | None:
        """The entities on which an operation with further objects is allowed, by the choices that there are; None for too many."""
        types_of = [[t for t in slot.types if t == LEFT_OUT or self._known.by_type[t]] for slot in rule.withs]
        if prod(map(len, types_of)) > MOST_COMBINED:
            return None
        found: list[Choice] = [(columns.every, {}, 0)]
        for types in product(*types_of):
            slots = {slot.name: type_ for slot, type_ in zip(rule.withs, types, strict=True) if type_ != LEFT_OUT}
            more = self._of_types(rule, columns, slots, unnamed=unnamed)
            if more is None:
                return None
            found = [
                (both, with_ if count else further, count + added)
                for column, with_, count in found
                for of_types, further, added in more
                if (both := column & of_types)
            ]
        return [choice for choice in found if choice[-1]]

    def _of_types(
        self, rule: Rule, columns: Columns, slots: Mapping[str, str], *, unnamed: bool
    ) -> list[Choice] | None:
        """As `_choices`, for one choice of types: also the entities for which there is no choice."""
        of_slots = {name: self._of(type_) for name, type_ in slots.items()}
        objects = {name: Entity(slots[name], own.paths[0]) for name, own in of_slots.items()}
        question = self._evaluator.question(self._request(rule, columns.paths[0], objects, unnamed=unnamed))
        assert question is not None
        condition = question.form.plan.condition
        atoms: dict[str, list[Atom]] = {name: [] for name in (RESOURCE, *slots)}
        for atom in condition.atoms():
            atoms[atom.slot if atom.type else RESOURCE].append(atom)
        resources = _patterns(columns, atoms.pop(RESOURCE))
        patterns = [_patterns(of_slots[name], own) for name, own in atoms.items()]
        if prod(map(len, (resources, *patterns))) > MOST_COMBINED:
            return None
        found: list[Choice] = []
        for column, true in resources:
            passing: list[tuple[Column, ...]] = []
            for combination in product(*patterns):
                holding = true.union(*(of_object for _, of_object in combination))
                if condition.fold(holding.__contains__, all, any):
                    passing.append(tuple(objects for objects, _ in combination))
            found.append((column, *_first(slots, of_slots, passing)))
        return found


def _first(
    slots: Mapping[str, str], of_slots: Mapping[str, Columns], passing: Sequence[tuple[Column, ...]]
) -> tuple[Mapping[str, Entity], int]:
    """A choice of objects and how many there are, if there is one slot, from the objects that pass together."""
    if not passing or not slots:
        return {}, len(passing)
    if len(slots) == 1:  # all of them, which are disjoint, so that the first by path is chosen
        passing = [(sum(column for (column,) in passing),)]
    chosen_ = {
        name: Entity(slots[name], of_slots[name].paths[(column & -column).bit_length() - 1])
        for name, column in zip(slots, passing[0], strict=True)
    }
    return chosen_, passing[0][0].bit_count()


def _patterns(columns: Columns, atoms: Iterable[Atom]) -> list[Pattern]:
    """The entities by the atoms that hold on them."""
    found: list[Pattern] = [(columns.every, frozenset())]
    for atom in atoms:
        [column] = columns.atom(atom)
        found = [
            (part, true | {atom} if holds else true)
            for entities, true in found
            for part, holds in ((entities & column, True), (entities & ~column, False))
            if part
        ]
    return found


def _divided(
    group: tuple[Column, list[Allowed]], answers: Collection[tuple[Column, Allowed]]
) -> Iterator[tuple[Column, list[Allowed]]]:
    """The parts of a group by the answer to one more question."""
    left, allowed = group
    for column, answer in answers:
        if both := left & column:
            yield both, [*allowed, answer]
            left &= ~column
    if left:
        yield left, allowed


def _evaluator(program: Program, state: State, holdings: Holdings, user: str) -> Evaluator:
    """An evaluator for one user, using the rows about them."""
    found = holdings.of_user(user)
    everything = found.principals | {role for role, _ in found.scoped}
    rows = {
        "grants": state.column("grants", "grantee").where(everything),
        "owners": state.column("owners", "owner").where(everything),
        "members": state.column("members", "user").where([user]),
    }
    index = held(program, state, rows, found.scoped, {})
    index.service_admins = holdings.service_admins
    subject = Subject.holding(f"user:{user}", user, found.principals, found.scoped, program.roles)
    return Evaluator(program_forms(program, holdings.locations), index, Subjects([subject], index), assumed=())
