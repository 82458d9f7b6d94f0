"""Holdings and requests one step away from an allowed caller: elsewhere, of others, through each kind of link, beside denials."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from privtab.base import Entity, Request, dataclass
from privtab.ir import Program, vocabulary
from privtab.state import Assignment, Grant, State
from privtab_testing.conform import Question, World
from privtab_testing.conform.misreadings import CONTINUED, Renaming, above

OTHER = "_other"
"""The end of the name of another object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """The abilities of a driver."""

    groups: bool = True
    roles: bool = True
    odd_names: bool = True
    """Names that differ in case alone, and users, groups and roles of one name."""
    makes: Callable[[World], bool] = lambda _: True
    """Tells whether the driver can make a world."""
    there: frozenset[str] = frozenset()
    """The types whose entities are there before: no others can be asked about."""


ALL_ABILITIES = Abilities()


Step: TypeAlias = tuple[str, State, Request]
"""Words for the step, the rows, and the request."""
Tables: TypeAlias = Mapping[str, Any]
"""The rows of some tables."""


def steps(program: Program, question: Question, abilities: Abilities) -> Iterator[Step]:
    """All steps from a question."""
    found = _Steps(program, question, abilities)
    yield from found.elsewhere()
    yield from found.of_others()
    yield from found.through_groups()
    yield from found.through_roles()
    yield from found.declared_roles()
    yield from found.with_denials()
    yield from found.with_other_rights()
    yield from found.otherwise_asked()


class _Steps:
    """The steps from one question."""

    def __init__(self, program: Program, question: Question, abilities: Abilities) -> None:
        self.program, self.semantics = program, program.semantics
        self.state, self.request = question.state, question.request
        self.abilities = abilities
        name = self.request.user
        self.user, self.other = f"user:{name}", f"user:{name}{OTHER}"
        self.group, self.role = f"{name} group", f"{name} role"
        self.owner_kinds = () if self.semantics.owner is None else self.semantics.owner.kinds
        makes = {"group": abilities.groups, "role": abilities.roles}
        self.grantees = [kind for kind in self.semantics.grantees if makes.get(kind, True)]
        self.has_groups = abilities.groups and "state" in self.semantics.groups
        self.groups_have_roles = self.has_groups and "group" in self.semantics.assignees

    def _step(self, words: str, request: Request | None = None, **tables: Any) -> Step:
        """The rows of the question, with others in some tables."""
        return words, replace(self.state, **tables), request or self.request

    def _given_to(self, principal: str, **links: Iterable[object]) -> Tables:
        """Somebody else has the grants, and the caller only the groups and roles in `links`."""
        grants = [replace(row, grantee=principal) for row in self.state.grants]
        return {"memberships": [], "assignments": [], "grants": grants, **links}

    def _owned_by(self, principal: str) -> Tables:
        """Somebody owns what is owned, or, where nothing is, what the grants are about instead of them."""
        if self.state.owners:
            return {"owners": [(entity, principal) for entity, _ in self.state.owners]}
        granted = dict.fromkeys(row.entity for row in self.state.grants)
        return {"grants": [], "owners": [(entity, principal) for entity in granted]}

    def _can_be(self, entity: Entity) -> bool:
        return vocabulary(self.program).complete(entity)

    def elsewhere(self) -> Iterator[Step]:
        """The rows about one entity, on others."""
        state = self.state
        for entity in self._deepest():
            for words, other in self._places(entity):
                types = {self.program.privileges[row.privilege].on for row in state.grants if row.entity == entity}
                if not all(other.type in on for on in types) or not self._can_be(other):
                    continue
                moved = Renaming(entity=_instead(entity, other)).state(state)
                yield f"the same on {words}, `{other}` for `{entity}`", moved, self.request
                if any(owned == entity for owned, _ in state.owners):
                    owners = [*moved.owners, (entity, self.other)]
                    owned_there = f"owner of `{other}`, while another user owns `{entity}`"
                    yield owned_there, replace(moved, owners=owners), self.request
            yield from self._continued(entity) if entity.names else ()

    def _continued(self, entity: Entity) -> Iterator[Step]:
        """The request about an entity whose name continues that of the one that rows are about."""
        longer = _with_last(entity, CONTINUED)

        def continued(found: Entity) -> Entity:
            below = found.id == entity.id or found.id.startswith(f"{entity.id}/")
            return Entity(found.type, longer.id + found.id[len(entity.id) :]) if below else found

        asked = Renaming(entity=continued).request(self.request)
        if asked != self.request:
            rest = Renaming(entity=lambda found: found if found == entity else continued(found)).state(self.state)
            yield f"asked about a name that continues it, `{longer}` for `{entity}`", rest, asked

    def _deepest(self) -> list[Entity]:
        """Of grants, ownerships and memberships, the entity of each that lies deepest, and the first one of another branch."""
        found: dict[Entity, None] = {}
        for entities in (
            [row.entity for row in self.state.grants if row.effect == "allow"],
            [entity for entity, _ in self.state.owners],
            [entity for _, entity in self.state.members],
        ):
            ordered = sorted(dict.fromkeys(entities), key=lambda entity: -len(entity.names))
            found |= dict.fromkeys(ordered[:2])
        return list(found)

    def _places(self, entity: Entity, *, odd_names: bool | None = None) -> Iterator[tuple[str, Entity]]:
        """The entities one step from one, with words for what they are."""
        odd_names = self.abilities.odd_names if odd_names is None else odd_names
        names = entity.names
        type_ = self.program.entities[entity.type]
        if not names:
            return
        if type_.single:
            yield "that of another container", _with_last(entity, OTHER)
        else:
            yield "a sibling", _with_last(entity, OTHER)
            yield "a name that continues it", _with_last(entity, CONTINUED)
            if odd_names:
                yield "its name with another case", Entity(entity.type, "/".join([*names[:-1], _other_case(names[-1])]))
        for depth in range(len(names) - 1):
            elsewhere = [*names[:depth], names[depth] + OTHER, *names[depth + 1 :]]
            where = "the same name below another root" if depth == 0 else "the same name in another container"
            yield where, Entity(entity.type, "/".join(elsewhere))
        for container in reversed(above(self.program, entity)):
            yield f"the {container.type} around it", container
        for other in self.program.entities.values():
            if other.name == entity.type or other.flat or other.principal is not None:
                continue
            if odd_names and (other.parent, other.single) == (type_.parent, type_.single):
                yield f"a {other.name} of that name", Entity(other.name, entity.id)
            if other.parent == entity.type:
                below = entity.id if other.single else f"{entity.id}/{names[-1]}{OTHER}"
                yield f"a {other.name} below it", Entity(other.name, below)

    def of_others(self) -> Iterator[Step]:
        """The rows of the caller, of others."""
        name, state = self.request.user, self.state

        def of(other: str) -> State:
            return Renaming(principal=lambda text: f"user:{other}" if text == self.user else text).state(state)

        yield "of another user", of(name + OTHER), self.request
        yield "of a user whose name the caller's continues", state, replace(self.request, user=name + CONTINUED)
        yield "of a user whose name continues the caller's", of(name + CONTINUED), self.request
        if state.service_admins or not self.abilities.odd_names:
            return
        yield "of a user whose name has another case", of(_other_case(name)), self.request
        for kind in self.grantees if state.grants else ():
            if kind != "user":
                yield self._step(f"of a {kind} of the caller's name", **self._given_to(f"{kind}:{name}"))

    def through_groups(self) -> Iterator[Step]:
        """The rights of the caller, of groups: of requests, of the state, and in one another."""
        semantics, state, name = self.semantics, self.state, self.request.user
        are_granted = "group" in semantics.grantees and bool(state.grants)
        if "request" in semantics.groups and are_granted:
            named = f"{name} named"
            asked = replace(self.request, groups=(named,))
            yield self._step("through a group that the request names", asked, **self._given_to(f"group:{named}"))
        if not self.has_groups:
            return
        # The entities are then of this question alone, so that nobody else gains anything; there is one root without a name.
        if semantics.everybody and are_granted and all(row.entity.names for row in state.grants):
            yield self._step("through the group of every user", **self._given_to(semantics.everybody))
        for words, links, last in _chains(name, self.group, nested="groups" in semantics.hierarchy):
            rows = [(member if member == name else f"group:{member}", container) for member, container in links]
            if are_granted:
                yield self._step(f"through a group{words}", **self._given_to(f"group:{last}", memberships=rows))
                others = self._given_to(f"group:{self.group}{OTHER}", memberships=rows)
                yield self._step(f"of another group than the caller's{words}", **others)
            if are_granted and not words:
                longer = f"{self.group}{CONTINUED}"
                continuing = self._given_to(f"group:{longer}", memberships=rows)
                yield self._step("of a group whose name continues that of the caller's", **continuing)
                continued = self._given_to(f"group:{last}", memberships=[(name, longer)])
                yield self._step("of a group whose name that of the caller's continues", **continued)
            if "group" in self.owner_kinds:
                yield self._step(f"owned by a group{words}", memberships=rows, **self._owned_by(f"group:{last}"))

    def through_roles(self) -> Iterator[Step]:
        """The rights of the caller, of roles: active or not, within entities, of groups, and of one another."""
        if "role" not in self.grantees:
            return
        semantics, state, request, role = self.semantics, self.state, self.request, self.role
        given = Assignment(principal=self.user, role=role)
        if state.grants and not self.program.roles:
            for words, links, last in _chains(request.user, role, nested="roles" in semantics.hierarchy):
                rows = [
                    Assignment(principal=self.user if member == request.user else f"role:{member}", role=container)
                    for member, container in links
                ]
                through = self._given_to(f"role:{last}", assignments=rows)
                yield self._step(f"through a role{words}", **through)
                if semantics.active_roles == "request":
                    others, own = (replace(request, active_roles=(name,)) for name in (f"{role}{OTHER}", role))
                    yield self._step(f"through a role{words} that is not active", others, **through)
                    yield self._step(f"through a role{words} that is active", own, **through)
            for scope in above(self.program, request.resource)[-1:] if self.abilities.odd_names else ():
                for within in (scope, *_beside(scope)):
                    scoped = self._given_to(f"role:{role}", assignments=[replace(given, scope=within)])
                    yield self._step(f"through a role within `{within}`", **scoped)
            others_role = self._given_to(f"role:{role}{OTHER}", assignments=[given])
            yield self._step("of another role than the caller's", **others_role)
            longer = f"{role}{CONTINUED}"
            continuing = self._given_to(f"role:{longer}", assignments=[given])
            yield self._step("of a role whose name continues that of the caller's", **continuing)
            continued = self._given_to(f"role:{role}", assignments=[replace(given, role=longer)])
            yield self._step("of a role whose name that of the caller's continues", **continued)
            if self.groups_have_roles:
                rows = [Assignment(principal=f"group:{self.group}", role=role)]
                links = [(request.user, self.group)]
                of_group = self._given_to(f"role:{role}", assignments=rows, memberships=links)
                yield self._step("through a role of a group", **of_group)
        if "role" in self.owner_kinds:
            assignments = [*state.assignments, given]
            yield self._step("owned by a role", assignments=assignments, **self._owned_by(f"role:{role}"))

    def declared_roles(self) -> Iterator[Step]:
        """Roles that the policy declares, within what is around the resource, and within something else."""
        around = (*above(self.program, self.request.resource), self.request.resource)
        for role in self.program.roles.values() if self.abilities.roles else ():
            scopes: list[Entity | None] = [None]
            if role.scopes:
                own = [entity for entity in around if entity.type in role.scopes]
                scopes = [*own, *(other for entity in own for other in _beside(entity))]
            for scope in scopes:
                given = Assignment(principal=self.user, role=role.name, scope=scope)
                words = f"the role {role.name}" + ("" if scope is None else f" within `{scope}`")
                has_role = State(assignments=[given], members=self.state.members)
                yield words, has_role, self.request
                if self.groups_have_roles:
                    rows = [replace(given, principal=f"group:{self.group}")]
                    links = [(self.request.user, self.group)]
                    yield f"{words} of a group", replace(has_role, assignments=rows, memberships=links), self.request

    def with_denials(self) -> Iterator[Step]:
        """Denials beside the rows of the caller."""
        program, state = self.program, self.state
        if program.semantics.deny == "none" or not state.grants:
            return
        row = max(state.grants, key=lambda row: len(row.entity.names))
        grantable = program.privileges[row.privilege].on

        def denied(words: str, *more: Grant, **links: Any) -> Step:
            return self._step(words, grants=[*state.grants, *more], **links)

        deny = replace(row, effect="deny")
        around = [entity for entity in above(program, row.entity) if entity.type in grantable]
        own = [row.entity] if row.entity.type in grantable else []
        for entity in (*own, *reversed(around)):
            yield denied(f"denied on `{entity}`", replace(deny, entity=entity))
        for _, other in self._places(row.entity):
            if other.type in grantable and self._can_be(other):
                yield denied(f"denied on `{other}`", replace(deny, entity=other))
        for entity in around:
            yield denied(f"denied on `{entity}`, granted on `{row.entity}`", replace(deny, entity=entity), row)
        for name in self._other_privileges(row)[:1]:
            yield denied(f"denied {name} beside {row.privilege}", replace(deny, privilege=name))
        if "user" in self.grantees:
            yield denied("denied to another user", replace(deny, grantee=self.other))
            yield denied("denied to the user", replace(deny, grantee=self.user))
        if "group" in self.grantees and self.has_groups:
            links = [*state.memberships, (self.request.user, self.group)]
            of_group = replace(deny, grantee=f"group:{self.group}")
            yield denied("denied to a group of the caller", of_group, memberships=links)
        if "role" in self.grantees and not program.roles:
            role = f"{self.request.user} denied"
            rows = [*state.assignments, Assignment(principal=self.user, role=role)]
            yield denied("denied to a role of the caller", replace(deny, grantee=f"role:{role}"), assignments=rows)

    def _other_privileges(self, row: Grant) -> list[str]:
        """The privileges that a row about its entity could have instead."""
        return [name for name in self.program.grantable_on(row.entity.type) if name != row.privilege]

    def with_other_rights(self) -> Iterator[Step]:
        """Other privileges in the place of the caller's, and ownership in the place of privileges."""
        program, state = self.program, self.state
        for row in state.grants[:1]:
            rest = [other for other in state.grants if other is not row]
            others, implied = self._other_privileges(row), program.privileges[row.privilege].implies
            kin = [name for name in others if row.privilege in program.privileges[name].implies or name in implied]
            for name in (*kin, *others[:1]):
                yield self._step(f"{name} for {row.privilege}", grants=[*rest, replace(row, privilege=name)])
        for entity in dict.fromkeys(row.entity for row in state.grants) if "user" in self.owner_kinds else ():
            rest = [row for row in state.grants if row.entity != entity]
            owners = [*state.owners, (entity, self.user)]
            yield self._step(f"owner of `{entity}` for the grants on it", grants=rest, owners=owners)
            containers = above(program, entity)
            for _, elsewhere in self._places(entity, odd_names=True):
                if elsewhere in containers or (self._can_be(elsewhere) and elsewhere.id.endswith(OTHER)):
                    owners = [*state.owners, (elsewhere, self.user), (entity, self.other)]
                    words = f"owner of `{elsewhere}`, while another user owns `{entity}`, for the grants on it"
                    yield self._step(words, grants=rest, owners=owners)
        yield "a service administrator alone", State(service_admins=[self.request.user]), self.request

    def otherwise_asked(self) -> Iterator[Step]:
        """The same rows and another request."""
        request = self.request
        for slot, entity in request.with_.items():
            if entity.type == request.resource.type:
                swapped = replace(request, resource=entity, with_={**request.with_, slot: request.resource})
                yield self._step(f"the resource and `{slot}` swapped", swapped)
            other = _with_last(entity, OTHER)
            if self._can_be(other) and not self.program.entities[entity.type].single:
                yield self._step(f"another `{slot}`", replace(request, with_={**request.with_, slot: other}))
        if request.groups:
            yield self._step("without the groups of the request", replace(request, groups=()))
        if self.semantics.active_roles == "request":
            yield self._step("without active roles", replace(request, active_roles=()))


def _chains(user: str, base: str, *, nested: bool) -> Iterator[tuple[str, list[tuple[str, str]], str]]:
    """Ways from a caller to a principal: words, the links from member to container, and the last one."""
    first, second, third = base, f"{base} 2", f"{base} 3"
    yield "", [(user, first)], first
    if nested:
        yield " in another one", [(user, first), (first, second)], second
        yield " in one that is in a third", [(user, first), (first, second), (second, third)], third
        yield ", which only contains another one that has them", [(user, second), (first, second)], first


def _instead(entity: Entity, other: Entity) -> Callable[[Entity], Entity]:
    """Another entity for one."""
    return lambda found: other if found == entity else found


def _other_case(name: str) -> str:
    """A name whose last letter has another case."""
    position = max((position for position, letter in enumerate(name) if letter.swapcase() != letter), default=None)
    return name if position is None else f"{name[:position]}{name[position].swapcase()}{name[position + 1 :]}"


def _with_last(entity: Entity, end: str) -> Entity:
    return Entity(entity.type, f"{entity.id}{end}")


def _beside(entity: Entity) -> tuple[Entity, ...]:
    """Another entity of its type; none where there is only one."""
    return (_with_last(entity, OTHER),) if entity.names else ()
