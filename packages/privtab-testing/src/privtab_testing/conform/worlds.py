"""The required content of a system before questions are asked: the names and rows of callers, entities and principals."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from privtab.base import Entity, Request, base_type
from privtab.ir import Owner, Program, Rule, Target, reached_atoms, vocabulary, with_targets
from privtab.state import State
from privtab_analysis.rights import Right, key_of, target_of
from privtab_testing.conform import Question, QuestionPlan, World
from privtab_testing.scenarios.callers import CallerSemantics
from privtab_testing.scenarios.generated import Caller, GeneratedCallers, asked_by, entity_values, holdings_key

R = TypeVar("R", bound=Right)
_SLOT = re.compile(r"\d*$")
"""The end of the names of an object in `with`, as RequestNames writes them."""


class Packing:
    """Gives callers their final names and rows; callers who hold the same are one user."""

    def __init__(self, program: Program, rules: Iterable[Rule], prefix: str, mark: str = "") -> None:
        """`rules`: the rows that are asked about. `mark`: follows the prefix in the names of principals."""
        self.program = program
        self.prefix = prefix
        self._mark = mark
        self._vocabulary = vocabulary(program)
        self._number = 0
        self._known: dict[Hashable, tuple[int, Request, State]] = {}
        asked = {leaf for rule in rules for leaf in reached_atoms(program, rule.item_condition)}
        self._matters = CallerSemantics(program, self._vocabulary.keys).matters(asked)

    def packed(
        self, caller: Caller, request: Request, rule: Rule, *, own: bool, through_roles: int
    ) -> tuple[Request, State]:
        """The request of a caller with its final names, and the rows that give them their rights.

        `own`: no other request is about its resource. `through_roles`: as for GeneratedCallers.add_caller.
        """
        caller = replace(caller, held=frozenset(filter(self._matters, caller.held)))
        if rule.creates:
            caller = self._without_created(caller, request.resource)
        key = None if own else holdings_key(self.program, caller, request, through_roles)
        known = self._known.get(key)
        number = self._number + 1 if known is None else known[0]
        in_state = entity_values(self.program, caller.values, request)
        numbered = {_path(key_of(right)) for right in caller.held if isinstance(right, Owner)}
        numbered |= {
            _path(t.target.slot) for t, value in in_state.items() if t.target is not None and value is not None
        }
        if own:
            numbered.add(request.resource.id)
        names = _FinalNames(self.program, self.prefix, number, numbered)
        renamed = replace(
            request,
            resource=names.entity(request.resource),
            with_={slot: names.entity(entity) for slot, entity in request.with_.items()},
        )
        named = names.caller(caller)
        if known is not None:
            return asked_by(self.program, known[1], named, renamed), known[2]
        self._number = number
        generated = GeneratedCallers(self.program, self.prefix + self._mark, number - 1)
        packed = generated.add_caller(named, renamed, through_roles=through_roles)
        state = generated.state()
        if key is not None:
            self._known[key] = number, packed, state
        return packed, state

    def _without_created(self, caller: Caller, resource: Entity) -> Caller:
        """The caller without rights on an entity that does not exist yet."""
        if not self._vocabulary.complete(resource):
            return caller

        def existing(rights: frozenset[R]) -> frozenset[R]:
            return frozenset(right for right in rights if not f"{_path(key_of(right))}/".startswith(f"{resource.id}/"))

        return replace(caller, held=existing(caller.held), denied=existing(caller.denied))


class _FinalNames:
    """The final names for one caller: the prefix and the type, with a number if the entity is not shared."""

    def __init__(self, program: Program, prefix: str, number: int, numbered: set[str]) -> None:
        self._program = program
        self._prefix = prefix
        self._number = number
        self._numbered = numbered

    def entity(self, entity: Entity) -> Entity:
        """An entity of the request, or one above."""
        types = vocabulary(self._program).shapes[entity.type].types(entity.id)
        names: list[str] = []
        for depth, (type_, name) in enumerate(zip(types, entity.names, strict=True), 1):
            slot = _SLOT.search(name)
            base, _, number = type_.partition("/")
            level = f"_level{number}" if int(number or 0) > 1 and self._program.entities[base].nested else ""
            own = f"_{self._number}" if "/".join(entity.names[:depth]) in self._numbered else ""
            # A path that leaves off the last name where a type nests ends with an empty one.
            names.append(name and f"{self._prefix}{base_type(type_)}{slot[0] if slot else ''}{level}{own}")
        return Entity(entity.type, "/".join(names))

    def caller(self, caller: Caller) -> Caller:
        """A caller who holds the same on the entities with their final names."""
        values = {
            term if term.target is None else replace(term, target=self._target(term.target)): value
            for term, value in caller.values.items()
        }
        return replace(caller, held=self._rights(caller.held), denied=self._rights(caller.denied), values=values)

    def _rights(self, rights: frozenset[R]) -> frozenset[R]:
        return frozenset(with_targets(right, self._target) for right in rights)

    def _target(self, target: Target) -> Target:
        return target_of(str(self.entity(Entity.parse(target.slot)))) if target.slot else target


def _path(key: str) -> str:
    return key.partition(":")[2]


def entities_of(program: Program, state: State, request: Request, rule: Rule) -> list[Entity]:
    """The entities that rows and a request are about, and their containers, roots first; a created entity does not exist."""
    named = [
        *request.with_.values(), request.resource,
        *(row.entity for row in state.grants), *(entity for entity, _ in state.owners), *(entity for _, entity in state.members),
        *(row.scope for row in state.assignments if row.scope is not None),
    ]  # fmt: skip
    created = str(request.resource) if rule.creates else None
    keys = dict.fromkeys(key for entity in dict.fromkeys(named) for key in vocabulary(program).keys(entity))
    return [Entity.parse(key) for key in keys if key != created]


def _principals_of(state: State, request: Request) -> Iterator[str]:
    """The principals that rows and a request name, with their kinds."""
    yield f"user:{request.user}"
    yield from (row.grantee for row in state.grants)
    yield from (owner for _, owner in state.owners)
    yield from (f"user:{user}" for user in (*(user for user, _ in state.members), *state.service_admins))
    for user, group in state.memberships:
        yield from (f"user:{user}" if ":" not in user else user, f"group:{group}")
    for row in state.assignments:
        yield from (row.principal, f"role:{row.role}")


def world_of(program: Program, questions: Iterable[Question]) -> World:
    """The world that some questions need: their rows, and the entities and principals that rows and requests name."""
    listed = tuple(questions)
    declared = {role.name for role in program.roles.values()}
    everybody = program.semantics.everybody
    entities: dict[str, Entity] = {}
    principals: dict[str, dict[str, None]] = {"user": {}, "group": {}, "role": {}}
    for question in listed:
        objects = (question.request.resource, *question.request.with_.values())
        on_paths = {key for entity in objects for key in vocabulary(program).keys(entity)}
        ids = {_path(key) for key in on_paths}
        named = list(_principals_of(question.state, question.request))
        for entity in entities_of(program, question.state, question.request, question.rule):
            type_ = program.entities[entity.type]
            if type_.principal is not None and len(entity.names) == 1:
                named.append(f"{type_.principal}:{entity.id}")
            # A single one is there with what contains it, if that is an object of the request.
            elif not type_.single or str(entity) in on_paths or entity.id not in ids:
                entities.setdefault(str(entity), entity)
        for text in named:
            kind, _, name = text.partition(":")
            if name not in declared and text != everybody:
                principals[kind][name] = None
    return World(
        state=State.merged(question.state for question in listed),
        entities=tuple(entities.values()),
        users=tuple(principals["user"]),
        groups=tuple(principals["group"]),
        roles=tuple(principals["role"]),
    )


def needed_world(plan: QuestionPlan, questions: Iterable[Question]) -> World:
    """The world that some questions of a plan need."""
    chosen = tuple(questions)
    return plan.world if len(chosen) == len(plan.questions) else world_of(plan.program, chosen)
