"""What a caller who is allowed has, and asks, one step away: elsewhere, of others, through each kind of link, beside denials."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from privtab.conform.misreadings import CONTINUED, above, with_entities, with_principals
from privtab.conform.nodes import Question, World
from privtab.ir.nodes import Program
from privtab.ir.serialise import vocabulary
from privtab.request import Entity, Request
from privtab.state.nodes import Assignment, Grant, State

OTHER = "_other"
"""What a name ends with that is another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """What a driver can make."""

    groups: bool = True
    roles: bool = True
    odd_names: bool = True
    """Names that differ in case alone, and users, groups and roles of one name."""
    makes: Callable[[World], bool] = lambda _: True
    """Whether it can make a world."""


ALL_ABILITIES = Abilities()


DocumentedStep: TypeAlias = tuple[str, State, Request]
"""Words for the step, the rows, and the request."""


def steps(program: Program, question: Question, abilities: Abilities) -> Iterator[DocumentedStep]:
    """All steps from a question."""
    state, request = question.state, question.request
    yield from _elsewhere(program, state, request, abilities)
    yield from _of_others(program, state, request, abilities)
    yield from _through_groups(program, state, request, abilities)
    yield from _through_roles(program, state, request, abilities)
    yield from _with_denials(program, state, request, abilities)
    yield from _with_other_rights(program, state, request)
    yield from _otherwise_asked(program, state, request)


def _elsewhere(program: Program, state: State, request: Request, abilities: Abilities) -> Iterator[DocumentedStep]:
    """The rows about one entity, on others."""
    for entity in _deepest(state):
        for words, other in _places(program, entity, abilities):
            moved = _moved(program, state, entity, other)
            if moved is not None:
                yield f"the same on {words}, `{other}` for `{entity}`", moved, request
                if any(owned == entity for owned, _ in state.owners):
                    owners = [*moved.owners, (entity, f"user:{request.user}{OTHER}")]
                    yield (
                        f"owner of `{other}`, while another user owns `{entity}`",
                        replace(moved, owners=owners),
                        request,
                    )
        yield from _continued(state, request, entity) if entity.names else ()


def _continued(state: State, request: Request, entity: Entity) -> Iterator[DocumentedStep]:
    """The request about an entity whose name continues that of the one that rows are about."""
    longer = _with_last(entity, CONTINUED)

    def continued(found: Entity) -> Entity:
        below = found.id == entity.id or found.id.startswith(f"{entity.id}/")
        return Entity(found.type, longer.id + found.id[len(entity.id) :]) if below else found

    asked = replace(
        request,
        resource=continued(request.resource),
        with_={slot: continued(one) for slot, one in request.with_.items()},
    )
    if asked != request:
        rest = with_entities(state, lambda found: found if found == entity else continued(found))
        yield f"asked about a name that continues it, `{longer}` for `{entity}`", rest, asked


def _deepest(state: State) -> list[Entity]:
    """Of grants, ownerships and memberships, the entity of each that lies deepest, and the first one of another branch."""
    found: dict[Entity, None] = {}
    for entities in (
        [row.entity for row in state.grants if row.effect == "allow"],
        [entity for entity, _ in state.owners],
        [entity for _, entity in state.members],
    ):
        ordered = sorted(dict.fromkeys(entities), key=lambda entity: -len(entity.names))
        found |= dict.fromkeys(ordered[:2])
    return list(found)


def _other_case(name: str) -> str:
    """A name whose last letter has another case."""
    position = max((position for position, letter in enumerate(name) if letter.swapcase() != letter), default=None)
    return name if position is None else f"{name[:position]}{name[position].swapcase()}{name[position + 1 :]}"


def _with_last(entity: Entity, end: str) -> Entity:
    return Entity(entity.type, f"{entity.id}{end}")


def _beside(entity: Entity) -> tuple[Entity, ...]:
    """Another entity of its type; none where there is only one."""
    return (_with_last(entity, OTHER),) if entity.names else ()


def _places(program: Program, entity: Entity, abilities: Abilities) -> Iterator[tuple[str, Entity]]:
    """The entities one step from one, with words for what they are."""
    names = entity.names
    type_ = program.entities[entity.type]
    if not names:
        return
    if type_.single:
        yield "that of another container", Entity(entity.type, "/".join([*names[:-1], names[-1] + OTHER]))
    else:
        yield "a sibling", _with_last(entity, OTHER)
        yield "a name that continues it", _with_last(entity, CONTINUED)
        if abilities.odd_names:
            yield "its name with another case", Entity(entity.type, "/".join([*names[:-1], _other_case(names[-1])]))
    for depth in range(len(names) - 1):
        elsewhere = [*names[:depth], names[depth] + OTHER, *names[depth + 1 :]]
        where = "the same name below another root" if depth == 0 else "the same name in another container"
        yield where, Entity(entity.type, "/".join(elsewhere))
    for container in reversed(above(program, entity)):
        yield f"the {container.type} around it", container
    for other in program.entities.values():
        if other.name == entity.type or other.flat or other.principal is not None:
            continue
        if abilities.odd_names and (other.parent, other.single) == (type_.parent, type_.single):
            yield f"a {other.name} of that name", Entity(other.name, entity.id)
        if other.parent == entity.type:
            below = entity.id if other.single else f"{entity.id}/{names[-1]}{OTHER}"
            yield f"a {other.name} below it", Entity(other.name, below)


def _moved(program: Program, state: State, entity: Entity, other: Entity) -> State | None:
    """A state whose rows about an entity are about another; None where such rows cannot be."""
    if any(row.entity == entity and other.type not in program.privileges[row.privilege].on for row in state.grants):
        return None
    if not vocabulary(program).complete(other):
        return None
    return with_entities(state, lambda found: other if found == entity else found)


def _of_others(program: Program, state: State, request: Request, abilities: Abilities) -> Iterator[DocumentedStep]:
    """The rows of the caller, of others."""
    user = request.user

    def of(name: str) -> State:
        return with_principals(state, lambda text: f"user:{name}" if text == f"user:{user}" else text)

    yield "of another user", of(user + OTHER), request
    yield "of a user whose name the caller's continues", state, replace(request, user=user + CONTINUED)
    if state.service_admins:
        return
    if abilities.odd_names:
        yield "of a user whose name has another case", of(_other_case(user)), request
        for kind in program.semantics.grantees:
            if kind != "user" and state.grants and _can_make(kind, abilities):
                grants = [replace(row, grantee=f"{kind}:{user}") for row in state.grants]
                yield (
                    f"of a {kind} of the caller's name",
                    replace(state, grants=grants, assignments=[], memberships=[]),
                    request,
                )


def _can_make(kind: str, abilities: Abilities) -> bool:
    return {"group": abilities.groups, "role": abilities.roles}.get(kind, True)


def _given_to(state: State, principal: str) -> State:
    """The state in which somebody else has the grants, without the caller's own groups and roles."""
    grants = [replace(row, grantee=principal) for row in state.grants]
    return replace(state, grants=grants, memberships=[], assignments=[])


def _chains(user: str, base: str, *, nested: bool) -> Iterator[tuple[str, list[tuple[str, str]], str]]:
    """Ways from a caller to a principal: words, the links from member to container, and the last one."""
    first, second, third = base, f"{base} 2", f"{base} 3"
    yield "", [(user, first)], first
    if nested:
        yield " in another one", [(user, first), (first, second)], second
        yield " in one that is in a third", [(user, first), (first, second), (second, third)], third
        yield ", which only contains another one that has them", [(user, second), (first, second)], first


def _through_groups(program: Program, state: State, request: Request, abilities: Abilities) -> Iterator[DocumentedStep]:
    semantics = program.semantics
    if "request" in semantics.groups and "group" in semantics.grantees and state.grants:
        named = f"{request.user} named"
        yield (
            "through a group that the request names",
            _given_to(state, f"group:{named}"),
            replace(request, groups=(named,)),
        )
    if not abilities.groups or "state" not in semantics.groups:
        return
    group = f"{request.user} group"
    owner = semantics.owner
    for words, links, last in _chains(request.user, group, nested="groups" in semantics.hierarchy):
        memberships = [
            (member if member == request.user else f"group:{member}", container) for member, container in links
        ]
        if "group" in semantics.grantees and state.grants:
            yield (
                f"through a group{words}",
                replace(_given_to(state, f"group:{last}"), memberships=memberships),
                request,
            )
            yield (
                f"of another group than the caller's{words}",
                replace(_given_to(state, f"group:{group}{OTHER}"), memberships=memberships),
                request,
            )
        if owner is not None and "group" in owner.kinds and state.owners:
            owners = [(entity, f"group:{last}") for entity, _ in state.owners]
            yield f"owned by a group{words}", replace(state, owners=owners, memberships=memberships), request


def _through_roles(program: Program, state: State, request: Request, abilities: Abilities) -> Iterator[DocumentedStep]:
    semantics = program.semantics
    if not abilities.roles or "role" not in semantics.grantees:
        yield from _declared_roles(program, state, request, abilities)
        return
    role, user = f"{request.user} role", f"user:{request.user}"
    if state.grants and not program.roles:
        for words, links, last in _chains(request.user, role, nested="roles" in semantics.hierarchy):
            rows = [
                Assignment(principal=user if member == request.user else f"role:{member}", role=container)
                for member, container in links
            ]
            through = replace(_given_to(state, f"role:{last}"), assignments=rows)
            yield f"through a role{words}", through, request
            if semantics.active_roles == "request":
                yield (
                    f"through a role{words} that is not active",
                    through,
                    replace(request, active_roles=(f"{role}{OTHER}",)),
                )
                yield f"through a role{words} that is active", through, replace(request, active_roles=(role,))
        for scope in above(program, request.resource)[-1:] if abilities.odd_names else ():
            for within in (scope, *_beside(scope)):
                rows = [Assignment(principal=user, role=role, scope=within)]
                yield (
                    f"through a role within `{within}`",
                    replace(_given_to(state, f"role:{role}"), assignments=rows),
                    request,
                )
        other = replace(_given_to(state, f"role:{role}{OTHER}"), assignments=[Assignment(principal=user, role=role)])
        yield "of another role than the caller's", other, request
        if abilities.groups and "group" in semantics.assignees and "state" in semantics.groups:
            group = f"{request.user} group"
            rows = [Assignment(principal=f"group:{group}", role=role)]
            yield (
                "through a role of a group",
                replace(_given_to(state, f"role:{role}"), assignments=rows, memberships=[(request.user, group)]),
                request,
            )
    owner = semantics.owner
    if owner is not None and "role" in owner.kinds and state.owners:
        owners = [(entity, f"role:{role}") for entity, _ in state.owners]
        yield (
            "owned by a role",
            replace(state, owners=owners, assignments=[*state.assignments, Assignment(principal=user, role=role)]),
            request,
        )
    yield from _declared_roles(program, state, request, abilities)


def _declared_roles(program: Program, state: State, request: Request, abilities: Abilities) -> Iterator[DocumentedStep]:
    """Roles that the policy declares, within what is around the resource, and within something else."""
    if not abilities.roles:
        return
    for role in program.roles.values():
        scopes: list[Entity | None] = [None]
        if role.scope is not None:
            scopes = [
                entity for entity in (*above(program, request.resource), request.resource) if entity.type == role.scope
            ]
            scopes += [other for entity in scopes if entity is not None for other in _beside(entity)]
        for scope in scopes:
            given = Assignment(principal=f"user:{request.user}", role=role.name, scope=scope)
            within = "" if scope is None else f" within `{scope}`"
            has_role = State(assignments=[given], members=state.members)
            yield f"the role {role.name}{within}", has_role, request
            if abilities.groups and "group" in program.semantics.assignees and "state" in program.semantics.groups:
                group = f"{request.user} group"
                of_group = replace(
                    has_role,
                    assignments=[replace(given, principal=f"group:{group}")],
                    memberships=[(request.user, group)],
                )
                yield f"the role {role.name}{within} of a group", of_group, request


def _with_denials(program: Program, state: State, request: Request, abilities: Abilities) -> Iterator[DocumentedStep]:
    """Denials beside the rows of the caller."""
    if program.semantics.deny == "none" or not state.grants:
        return
    row = max(state.grants, key=lambda row: len(row.entity.names))
    grantable = program.privileges[row.privilege].on

    def with_(words: str, *denied: Grant, **more: object) -> DocumentedStep:
        return words, replace(state, grants=[*state.grants, *denied], **more), request  # type: ignore[arg-type]

    deny = replace(row, effect="deny")
    for entity in (row.entity, *reversed(above(program, row.entity))):
        if entity.type in grantable:
            yield with_(f"denied on `{entity}`", replace(deny, entity=entity))
    for _, other in _places(program, row.entity, abilities):
        if other.type in grantable and vocabulary(program).complete(other):
            yield with_(f"denied on `{other}`", replace(deny, entity=other))
    for entity in above(program, row.entity):
        if entity.type in grantable:
            granted = [replace(deny, entity=entity), replace(row, entity=row.entity)]
            yield with_(f"denied on `{entity}`, granted on `{row.entity}`", *granted)
    for name in _other_privileges(program, row)[:1]:
        yield with_(f"denied {name} beside {row.privilege}", replace(deny, privilege=name))
    grantees = program.semantics.grantees
    if "user" in grantees:
        yield with_("denied to another user", replace(deny, grantee=f"user:{request.user}{OTHER}"))
        yield with_("denied to the user", replace(deny, grantee=f"user:{request.user}"))
    if "group" in grantees and abilities.groups and "state" in program.semantics.groups:
        group = f"{request.user} group"
        yield with_(
            "denied to a group of the caller",
            replace(deny, grantee=f"group:{group}"),
            memberships=[*state.memberships, (request.user, group)],
        )
    if "role" in grantees and abilities.roles and not program.roles:
        role = f"{request.user} denied"
        rows = [*state.assignments, Assignment(principal=f"user:{request.user}", role=role)]
        yield with_("denied to a role of the caller", replace(deny, grantee=f"role:{role}"), assignments=rows)


def _other_privileges(program: Program, row: Grant) -> list[str]:
    """The privileges that a row about its entity could have instead."""
    return [name for name in program.grantable_on(row.entity.type) if name != row.privilege]


def _with_other_rights(program: Program, state: State, request: Request) -> Iterator[DocumentedStep]:
    """Other privileges in the place of the caller's, and ownership in the place of privileges."""
    for row in state.grants[:1]:
        rest = [other for other in state.grants if other is not row]
        others, implied = _other_privileges(program, row), program.privileges[row.privilege].implies
        kin = [name for name in others if row.privilege in program.privileges[name].implies or name in implied]
        for name in (*kin, *others[:1]):
            yield (
                f"{name} for {row.privilege}",
                replace(state, grants=[*rest, replace(row, privilege=name)]),
                request,
            )
    owner = program.semantics.owner
    if owner is not None and state.grants and "user" in owner.kinds:
        for entity in dict.fromkeys(row.entity for row in state.grants):
            rest = [row for row in state.grants if row.entity != entity]
            user, other = f"user:{request.user}", f"user:{request.user}{OTHER}"
            owned = replace(state, grants=rest)
            yield (
                f"owner of `{entity}` for the grants on it",
                replace(owned, owners=[*state.owners, (entity, user)]),
                request,
            )
            for _, elsewhere in _places(program, entity, ALL_ABILITIES):
                if (vocabulary(program).complete(elsewhere) and elsewhere.id.endswith(OTHER)) or elsewhere in above(
                    program, entity
                ):
                    owners = [*state.owners, (elsewhere, user), (entity, other)]
                    words = f"owner of `{elsewhere}`, while another user owns `{entity}`, for the grants on it"
                    yield words, replace(owned, owners=owners), request
    yield "a service administrator alone", State(service_admins=[request.user]), request


def _otherwise_asked(program: Program, state: State, request: Request) -> Iterator[DocumentedStep]:
    """The same rows and another request."""
    for slot, entity in request.with_.items():
        if entity.type == request.resource.type:
            swapped = replace(request, resource=entity, with_={**request.with_, slot: request.resource})
            yield f"the resource and `{slot}` swapped", state, swapped
        other = _with_last(entity, OTHER)
        if vocabulary(program).complete(other) and not program.entities[entity.type].single:
            yield f"another `{slot}`", state, replace(request, with_={**request.with_, slot: other})
    if request.groups:
        yield "without the groups of the request", state, replace(request, groups=())
    if program.semantics.active_roles == "request":
        yield "without active roles", state, replace(request, active_roles=())
