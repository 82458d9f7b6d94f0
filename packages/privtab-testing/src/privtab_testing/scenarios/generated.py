"""Generated callers, and the rows that give them their rights, in as few states as possible."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator
from dataclasses import field, replace
from typing import Any, Literal

from privtab.base import Entity, GivenAttributes, Request, dataclass
from privtab.ir import Has, Holds, Owner, Program, Term
from privtab.state import Assignment, AttributeRow, Placement, State, attribute_texts, locations
from privtab_analysis.rights import ONESELF, key_of, row_giving
from privtab_testing.scenarios.callers import AttributeValues, Denied, HeldSet, in_order


@dataclass(frozen=True, slots=True)
class Caller:
    """One generated caller: their rights and denials, the expected decision, and a description."""

    held: HeldSet
    denied: Denied
    allowed: bool
    words: str
    values: AttributeValues = field(default_factory=dict)
    """The values of the attributes that the request is about."""


def holdings_key(program: Program, caller: Caller, request: Request, through_roles: int) -> Hashable | None:
    """The common key of callers who can be one user; None for callers whom their request names."""
    if ONESELF in caller.held:
        return None
    # No other caller shares an entity of which the state has values.
    in_state = {term for term, value in entity_values(program, caller.values, request).items() if value is not None}
    values = ((term, tuple(value) if isinstance(value, list) else value) for term, value in caller.values.items())
    return caller.held, caller.denied, through_roles, request.groups, frozenset(values), frozenset(in_state)


def asked_by(program: Program, known: Request, caller: Caller, request: Request) -> Request:
    """A request of the user of an earlier one, who has the caller's rights."""
    attributes = given_values(program, caller.values, request)
    return replace(request, user=known.user, groups=known.groups, attributes=attributes)


def entity_values(program: Program, values: AttributeValues, request: Request) -> dict[Term, Any]:
    """The values of entities that the state has, since the request does not give them; None where it must have none."""
    return {
        term: value
        for term, value in values.items()
        if term.target is not None and (value is None or not _is_given(program, term, request))
    }


def given_values(program: Program, values: AttributeValues, request: Request) -> GivenAttributes:
    """The values that a request gives."""
    objects = {str(entity): f"with {slot}" for slot, entity in request.with_.items()} | {
        str(request.resource): "entity"
    }
    given: dict[str, dict[str, object]] = {}
    for term, value in values.items():
        if value is not None and _is_given(program, term, request):
            kind = term.kind if term.target is None else objects[term.target.slot]
            given.setdefault(kind, {})[term.attribute] = value
    return GivenAttributes(
        user=given.get("user", {}),
        entity=given.get("entity", {}),
        request=given.get("request", {}),
        with_={slot: given[f"with {slot}"] for slot in request.with_ if f"with {slot}" in given},
    )


def _is_given(program: Program, term: Term, request: Request) -> bool:
    """Return whether the request gives the value of an attribute. Values that the state can hold of other entities than objects are left to the state."""
    declared = program.attribute(term)
    origins = () if declared is None else declared.origins
    if term.target is None:
        return "state" not in origins
    return "request" in origins and term.target.slot in map(str, (request.resource, *request.with_.values()))


class GeneratedCallers:
    """Generated callers, and the rows that give them their rights; `prefix` begins the names of all principals."""

    def __init__(self, program: Program, prefix: str = "", number: int = 0) -> None:
        """`number`: the number of the last caller before."""
        self.program = program
        self.placements: dict[Entity, Placement] = {}
        """The places of entities with flat ids."""
        self.prefix = prefix
        self.number = number
        self._rows: dict[str, dict[object, None]] = {}
        self._entities: dict[str, Entity] = {}

    def add_caller(self, caller: Caller, request: Request, *, through_roles: int = 0) -> Request:
        """Give a new caller their rights, and return their request. For `self`, the resource is named after them.

        `through_roles`: a role that they hold has their grants; with more than one, each role holds the next. No row
        names a principal of a kind that the policy refuses there.
        """
        semantics = self.program.semantics
        self.number += 1
        user = f"{self.prefix}caller{self.number}"
        original_key = str(request.resource)
        resource = request.resource
        if ONESELF in caller.held:
            resource = Entity(resource.type, "/".join([*resource.names[:-1], user]))
            if request.resource in self.placements:
                self.placements[resource] = replace(self.placements[request.resource], entity=resource)
        assigned = any(isinstance(right, Holds) for right in caller.held)
        holder = self._principal(user, semantics.assignees) if assigned or through_roles else ""
        is_granted = caller.denied or any(isinstance(right, Has) for right in caller.held)
        grantee = holder if through_roles else self._principal(user, semantics.grantees) if is_granted else ""
        for number in range(through_roles):
            role = self._role(user) + (f" {number + 1}" if number else "")
            self._add("assignments", Assignment(principal=grantee, role=role))
            grantee = f"role:{role}"
        kinds = semantics.owner.kinds if semantics.owner else ("user",)
        owner = self._principal(user, kinds) if any(isinstance(right, Owner) for right in caller.held) else ""
        to = {"grants": grantee, "owners": owner, "assignments": holder}
        given: tuple[tuple[HeldSet, Literal["allow", "deny"]], ...] = ((caller.held, "allow"), (caller.denied, "deny"))
        for rights, effect in given:
            for right in in_order(rights):
                key = key_of(right)
                entity = self._entity(str(resource) if key == original_key else key) if key else None
                row = row_giving(right, entity, user=user, to=to, effect=effect)
                if row is not None:
                    self._add(*row)
        in_group = (user, self._group(user)) in self._rows.get("memberships", ())
        groups = (self._group(user),) if in_group and "state" not in semantics.groups else request.groups
        self._add_values(caller, request, user, resource)
        attributes = given_values(self.program, caller.values, request)
        return replace(request, user=user, resource=resource, groups=groups, attributes=attributes)

    def _add_values(self, caller: Caller, request: Request, user: str, resource: Entity) -> None:
        """Give a caller and the entities of their request the values that the state has."""
        for term, value in caller.values.items():
            if value is None or _is_given(self.program, term, request):
                continue
            key = None if term.target is None else term.target.slot
            owner = user if key is None else None
            entity = None if key is None else resource if key == str(request.resource) else self._entity(key)
            for text in attribute_texts(value):
                row = AttributeRow(user=owner, entity=entity, attribute=term.attribute, value=text)
                self._add("attributes", row)

    def _principal(self, user: str, kinds: Collection[str]) -> str:
        """The principal that is given a caller's right: the user, if these kinds of principals may be one, else a group or role of theirs."""
        if "user" in kinds:
            return f"user:{user}"
        if "group" in kinds:
            self._add("memberships", (user, self._group(user)))
            return f"group:{self._group(user)}"
        holders = [kind for kind in self.program.semantics.assignees if kind != "role"]
        holder = self._principal(user, holders or ["user"])
        self._add("assignments", Assignment(principal=holder, role=self._role(user)))
        return f"role:{self._role(user)}"

    def _role(self, user: str) -> str:
        return f"{self.prefix}role of {user.removeprefix(self.prefix)}"

    def _group(self, user: str) -> str:
        return f"{self.prefix}group of {user.removeprefix(self.prefix)}"

    def _add(self, table: str, row: object) -> None:
        self._rows.setdefault(table, {})[row] = None

    def _entity(self, key: str) -> Entity:
        if key not in self._entities:
            self._entities[key] = Entity.parse(key)
        return self._entities[key]

    def state(self) -> State:
        """The state with everything that the callers hold."""
        rows: Any = {table: tuple(rows) for table, rows in self._rows.items()}
        return State(**rows, entities=tuple(self.placements.values()))


class CallerStates:
    """Generated callers in few states: callers who hold the same are one user, and those in one state agree on the attributes of entities that their requests are about."""

    def __init__(self, program: Program, placements: Iterable[Placement] = ()) -> None:
        """`placements`: the places of entities with flat ids."""
        self._program = program
        self.placements = {row.entity: row for row in placements}
        self.where = locations(program, State(entities=tuple(self.placements.values())))
        self._groups: list[tuple[GeneratedCallers, dict[Term, Any]]] = []
        self._known: dict[Hashable, tuple[int, Request]] = {}

    def add_caller(self, caller: Caller, request: Request, *, through_roles: int = 0) -> tuple[int, Request]:
        """Give a caller their rights, and return the number of their state, and their request."""
        key = holdings_key(self._program, caller, request, through_roles)
        known = self._known.get(key)
        if known is not None:
            return known[0], asked_by(self._program, known[1], caller, request)
        values = entity_values(self._program, caller.values, request)
        agreeing = (
            number
            for number, (_, agreed) in enumerate(self._groups)
            if all(agreed.get(term, value) == value for term, value in values.items())
        )
        number = next(agreeing, len(self._groups))
        if number == len(self._groups):
            self._groups.append((GeneratedCallers(self._program), {}))
            self._groups[number][0].placements = self.placements
        generated, agreed = self._groups[number]
        agreed.update(values)
        asked = generated.add_caller(caller, request, through_roles=through_roles)
        if key is not None:
            self._known[key] = number, asked
        return number, asked

    def states(self) -> Iterator[State]:
        """The states, by their numbers."""
        return (generated.state() for generated, _ in self._groups)
