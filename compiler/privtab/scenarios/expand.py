"""Entries of `needs`: turns the ways to a request into callers within one state."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import replace

from privtab.attributes import GivenAttributes, Value
from privtab.diagnostics import Span
from privtab.errors import Undecided
from privtab.ir.nodes import Program, Term
from privtab.request import Entity, Request
from privtab.scenarios.author import NEEDS_CONTEXT_KEYS, Author
from privtab.scenarios.compared import Values as AttributeValues
from privtab.scenarios.needs import Caller, Callers
from privtab.scenarios.nodes import Case
from privtab.scenarios.params import Values
from privtab.scenarios.tree import Fields
from privtab.scenarios.ways import HeldAtom
from privtab.state import attribute_rows
from privtab.state.located import locations
from privtab.state.nodes import Assignment, AttributeRow, Grant, Placement, State
from privtab.syntax.yaml_tree import Node

KEYS = (
    "name", "ask", "action", "resource", *NEEDS_CONTEXT_KEYS, "by", "all", "effects", "rule", "report", "params", "tags", "why", "source", "note",
)  # fmt: skip


def read_needs(author: Author, node: Node) -> None:
    """Read the entries of `needs`. Callers share a state, since none sees what another is given, if they agree on entities' attributes."""
    placed = author.placements()
    if placed is None:
        return
    generated = CallerStates(author.program, placed)
    cases_before = len(author.cases)
    for item in author.reader.items(node, "`needs`"):
        for entry, values in author.combinations.of(item):
            fields = author.reader.fields(entry, "an entry of `needs`", KEYS)
            if fields is not None:
                _need(author, fields, author.reader.span(entry), values, generated)
    if len(author.cases) > cases_before:
        for state in generated.states():
            author.world(state)


def _need(author: Author, fields: Fields, span: Span, values: Values, generated: CallerStates) -> None:
    if ("by" in fields) == ("all" in fields):
        author.reader.report("T006", span, "an entry of `needs` has either `by` or `all`")
        return
    ways = author.ways.ways(fields["by"], values) if "by" in fields else author.ways.all(fields["all"], values)
    requests = author.requests(fields, span, "somebody")
    if ways is None:
        return
    name, why, tags = author.optional(fields, "name"), author.why(fields), author.tags(fields)
    for request in author.placed(requests, generated.where, fields):
        title = name or f"{request.action} {request.resource}"
        try:
            callers = Callers(author.program, request, ways, generated.where)
            expanded = tuple(callers.all())
        except Undecided as error:
            advice = "say it of a shorter part, or test the row by `cases`"
            author.reader.report("T205", fields["by" if "by" in fields else "all"], str(error), advice)
            continue
        generated.placements |= {e: Placement(entity=e, parent=parent) for e, parent in callers.placed.items()}
        for caller in expanded:
            number, caller_request = generated.add_caller(caller, request)
            expected = author.expected(fields, caller_request, allowed=caller.allowed)
            author.cases.append(
                Case(
                    name=f"{title} with {caller.words}",
                    kind="need",
                    world=len(author.states) + number,
                    request=caller_request,
                    expected=expected,
                    span=span,
                    holds=caller.words,
                    why=why,
                    tags=tags,
                )
            )


class CallerStates:
    """Generated callers in few states: those in one state agree on the attributes of entities that their requests are about."""

    def __init__(self, program: Program, placements: Iterable[Placement] = (), *, shared: bool = False) -> None:
        """`placements`: where entities with flat ids lie. `shared`: callers who hold the same are one user."""
        self._program = program
        self.placements = {row.entity: row for row in placements}
        self.where = locations(program, State(entities=tuple(self.placements.values())))
        self._groups: list[tuple[GeneratedCallers, dict[Term, Value | None]]] = []
        self._shared = shared
        self._known: dict[Hashable, tuple[int, Request]] = {}

    def add_caller(self, caller: Caller, request: Request, *, through_roles: int = 0) -> tuple[int, Request]:
        """Give a new caller what they hold, and return the number of their state, and their request."""
        key = holdings_key(self._program, caller, request, through_roles) if self._shared else None
        if key in self._known:
            number, earlier = self._known[key]
            return number, asked_by(self._program, earlier, caller, request)
        values = entity_values(self._program, caller.values, request)
        agreeing = (
            number
            for number, (_, known) in enumerate(self._groups)
            if all(known.get(term, value) == value for term, value in values.items())
        )
        number = next(agreeing, len(self._groups))
        if number == len(self._groups):
            self._groups.append((GeneratedCallers(self._program), {}))
            self._groups[number][0].placements = self.placements
        generated, known = self._groups[number]
        known.update(values)
        asked = generated.add_caller(caller, request, through_roles=through_roles)
        if key is not None:
            self._known[key] = number, asked
        return number, asked

    def states(self) -> Iterator[State]:
        """The states, by their numbers."""
        return (generated.state() for generated, _ in self._groups)


def holdings_key(program: Program, caller: Caller, request: Request, through_roles: int) -> Hashable | None:
    """What callers who can be one user have in common; None for those whose request names them."""
    if HeldAtom("self") in caller.held:
        return None
    # No other caller shares an entity of which the state has values.
    in_state = {term for term, value in entity_values(program, caller.values, request).items() if value is not None}
    values = ((term, tuple(value) if isinstance(value, list) else value) for term, value in caller.values.items())
    return caller.held, caller.denied, through_roles, frozenset(values), frozenset(in_state)


def asked_by(program: Program, known: Request, caller: Caller, request: Request) -> Request:
    """A request of the user of an earlier one, who holds what the caller does."""
    attributes = given_values(program, caller.values, request)
    return replace(request, user=known.user, groups=known.groups, attributes=attributes)


def entity_values(program: Program, values: AttributeValues, request: Request) -> dict[Term, Value | None]:
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
    given: dict[str, dict[str, Value]] = {}
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
    """Whether the request gives the value of an attribute: what the state can hold of others than objects, the state does."""
    declared = program.attribute(term)
    origins = () if declared is None else declared.origins
    if term.target is None:
        return "state" not in origins
    return "request" in origins and term.target.slot in map(str, (request.resource, *request.with_.values()))


class GeneratedCallers:
    """Generated callers, and the rows that give them what they hold; `prefix` begins the names of all principals."""

    def __init__(self, program: Program, prefix: str = "", number: int = 0) -> None:
        """`number`: that of the last caller before these."""
        self.program = program
        self.placements: dict[Entity, Placement] = {}
        """Where entities with flat ids lie."""
        self.prefix = prefix
        self.number = number
        self.members: list[tuple[str, Entity]] = []
        self.memberships: list[tuple[str, str]] = []
        self.assignments: list[Assignment] = []
        self.grants: list[Grant] = []
        self.owners: list[tuple[Entity, str]] = []
        self.admins: list[str] = []
        self._attributes: dict[AttributeRow, None] = {}
        self._entities: dict[str, Entity] = {}

    def add_caller(self, caller: Caller, request: Request, *, through_roles: int = 0) -> Request:
        """Give a new caller what they hold, and return their request. For `self`, the resource is named after them.

        `through_roles`: their grants are those of a role that they hold; with more than one, each role holds the next.
        """
        self.number += 1
        user = f"{self.prefix}caller{self.number}"
        original_key = str(request.resource)
        resource = request.resource
        if HeldAtom("self") in caller.held:
            resource = Entity(resource.type, "/".join([*resource.names[:-1], user]))
            if request.resource in self.placements:
                self.placements[resource] = replace(self.placements[request.resource], entity=resource)
        grantee = f"user:{user}"
        for number in range(through_roles):
            role = self._role(user) + (f" {number + 1}" if number else "")
            self.assignments.append(Assignment(principal=grantee, role=role))
            grantee = f"role:{role}"
        for atom in sorted(caller.held, key=str):
            self._give(user, grantee, atom, str(resource) if atom.on == original_key else atom.on)
        for atom in sorted(caller.denied, key=str):
            entity = self._entity(str(resource) if atom.on == original_key else atom.on)
            self.grants.append(Grant(grantee=grantee, effect="deny", privilege=atom.what, entity=entity))
        groups = (self._group(user),) if self._names_group(caller) else request.groups
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
            for text in attribute_rows.texts(value):
                self._attributes[AttributeRow(user=owner, entity=entity, attribute=term.attribute, value=text)] = None

    def _give(self, user: str, grantee: str, atom: HeldAtom, key: str) -> None:
        match atom.kind:
            case "has":
                grant = Grant(grantee=grantee, effect="allow", privilege=atom.what, entity=self._entity(key))
                self.grants.append(grant)
            case "owner":
                self.owners.append((self._entity(key), self._owner(user)))
            case "member":
                self.members.append((user, self._entity(key)))
            case "holds":
                role = self._entity(key).names[-1]
                self.assignments.append(Assignment(principal=f"user:{user}", role=role))
            case "admin":
                self.admins.append(user)
            case "self":
                pass

    def _owner(self, user: str) -> str:
        """The principal through which a caller owns: the user, if users may own, else a group or role of theirs."""
        owner = self.program.semantics.owner
        kinds = owner.kinds if owner else ("user",)
        if "user" in kinds:
            return f"user:{user}"
        if "group" in kinds:
            self.memberships.append((user, self._group(user)))
            return f"group:{self._group(user)}"
        self.assignments.append(Assignment(principal=f"user:{user}", role=self._role(user)))
        return f"role:{self._role(user)}"

    def _role(self, user: str) -> str:
        return f"{self.prefix}role of {user.removeprefix(self.prefix)}"

    def _group(self, user: str) -> str:
        return f"{self.prefix}group of {user.removeprefix(self.prefix)}"

    def _names_group(self, caller: Caller) -> bool:
        """Whether the request must name the caller's group."""
        owner = self.program.semantics.owner
        owns = any(atom.kind == "owner" for atom in caller.held)
        return owns and owner is not None and "user" not in owner.kinds and "state" not in self.program.semantics.groups

    def _entity(self, key: str) -> Entity:
        if key not in self._entities:
            self._entities[key] = Entity.parse(key)
        return self._entities[key]

    def state(self) -> State:
        """The state with everything that the callers hold."""
        return State(
            members=tuple(self.members),
            memberships=tuple(dict.fromkeys(self.memberships)),
            assignments=tuple(dict.fromkeys(self.assignments)),
            grants=tuple(self.grants),
            owners=tuple(self.owners),
            service_admins=tuple(self.admins),
            attributes=tuple(self._attributes),
            entities=tuple(self.placements.values()),
        )
