"""Entries of `needs`: turns the ways to a request into callers within one state."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from privtab.diagnostics import Span
from privtab.ir.nodes import Program
from privtab.request import Entity, Request
from privtab.scenarios.author import NEEDS_CONTEXT_KEYS, Author
from privtab.scenarios.needs import Caller, Callers
from privtab.scenarios.nodes import Case
from privtab.scenarios.params import Values
from privtab.scenarios.tree import Fields
from privtab.scenarios.ways import HeldAtom
from privtab.state.located import locations
from privtab.state.nodes import Assignment, Grant, Placement, State
from privtab.syntax.yaml_tree import Node

KEYS = (
    "name", "ask", "action", "resource", *NEEDS_CONTEXT_KEYS, "by", "all", "effects", "rule", "report", "params", "tags", "why", "source", "note",
)  # fmt: skip


def read_needs(author: Author, node: Node) -> None:
    """Read the entries of `needs`. All callers share one state, since no caller sees what another is given."""
    placed = author.placements()
    if placed is None:
        return
    generated = GeneratedCallers(author.program, placements=placed)
    cases_before = len(author.cases)
    for item in author.reader.items(node, "`needs`"):
        for entry, values in author.combinations.of(item):
            fields = author.reader.fields(entry, "an entry of `needs`", KEYS)
            if fields is not None:
                _need(author, fields, author.reader.span(entry), values, generated)
    if len(author.cases) > cases_before:
        world = author.world(generated.state())
        assert world == len(author.states) - 1


def _need(author: Author, fields: Fields, span: Span, values: Values, generated: GeneratedCallers) -> None:
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
        callers = Callers(author.program, request, ways, generated.where)
        generated.placements |= {e: Placement(entity=e, parent=parent) for e, parent in callers.placed.items()}
        for caller in callers.all():
            caller_request = generated.add_caller(caller, request)
            expected = author.expected(fields, caller_request, allowed=caller.allowed)
            author.cases.append(
                Case(
                    name=f"{title} with {caller.words}",
                    kind="need",
                    world=len(author.states),
                    request=caller_request,
                    expected=expected,
                    span=span,
                    holds=caller.words,
                    why=why,
                    tags=tags,
                )
            )


class GeneratedCallers:
    """Generated callers, and the rows that give them what they hold; `prefix` begins the names of all principals."""

    def __init__(self, program: Program, prefix: str = "", placements: Iterable[Placement] = ()) -> None:
        """`placements`: where entities with flat ids lie."""
        self.program = program
        self.placements = {row.entity: row for row in placements}
        self.where = locations(program, State(entities=tuple(self.placements.values())))
        self.prefix = prefix
        self.number = 0
        self.members: list[tuple[str, Entity]] = []
        self.memberships: list[tuple[str, str]] = []
        self.assignments: list[Assignment] = []
        self.grants: list[Grant] = []
        self.owners: list[tuple[Entity, str]] = []
        self.admins: list[str] = []
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
        for atom in caller.held:
            self._give(user, grantee, atom, str(resource) if atom.on == original_key else atom.on)
        for atom in caller.denied:
            entity = self._entity(str(resource) if atom.on == original_key else atom.on)
            self.grants.append(Grant(grantee=grantee, effect="deny", privilege=atom.what, entity=entity))
        groups = (self._group(user),) if self._names_group(caller) else request.groups
        return Request(
            user=user, action=request.action, resource=resource, groups=groups, with_=request.with_, flags=request.flags
        )

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
            entities=tuple(self.placements.values()),
        )
