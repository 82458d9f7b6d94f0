"""The state as OPA holds it: a document in which every question is a lookup by key."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from functools import cache
from typing import Any, TypeAlias, TypeVar

from privtab.ir.nodes import Program
from privtab.ir.serialise import vocabulary
from privtab.request import Entity
from privtab.state.names import Names
from privtab.state.nodes import Assignment, Effect, State
from privtab.state.uses import Uses, uses

SEPARATOR = "\n"
"""Between the principals of a user. One string for all of them takes a third less of OPA's memory than a list, and no name
holds a line break (`names.py` refuses it)."""

T = TypeVar("T")
Truths: TypeAlias = dict[str, dict[str, bool]]
"""Key → names, each with `true`: a set as JSON has it."""


def index(program: Program, state: State) -> dict[str, Any]:
    """The document below `data.privtab_state.<system>`; the same rows in any order give the same document.

    `revision` is the hash of everything else. Parts that the policy never asks for are empty maps.

    A role that is held within a scope becomes a principal of its own, `scoped:[scope, role]`: its grants are entered where
    they take effect, at their entity where that lies in the scope, at the scope where their entity contains it. So an engine
    looks up a user's principals and asks nothing about scopes. Such an entry lists the entities that the rows name.
    """
    used = uses(program)
    names = Names(program)
    scopes = _scopes(state)
    document: dict[str, Any] = {
        "allow": _grants(program, names, state, scopes, "allow"),
        "deny": _grants(program, names, state, scopes, "deny"),
        "owners": _nested((str(entity), owner) for entity, owner in state.owners),
        "members": _nested((str(entity), user) for user, entity in state.members),
        "service_admins": dict.fromkeys(sorted(set(state.service_admins)), True),
        **_people(program, state, used),
    }
    return {"revision": revision(document), **{part: document[part] for part in sorted(document)}}


def revision(document: dict[str, Any]) -> str:
    """The content hash of an index without its revision: 16 hexadecimal digits."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def scoped_principal(role: str, scope: str) -> str:
    """The principal for a role (`role:…`) within a scope (a key). JSON, so that no name can imitate another."""
    return "scoped:" + json.dumps([scope, role], ensure_ascii=False, separators=(",", ":"))


def _scopes(state: State) -> dict[str, dict[str, Entity]]:
    """For each role (`role:…`) the scopes that it is held in, by key."""
    found: dict[str, dict[str, Entity]] = {}
    for assignment in state.assignments:
        if assignment.scope is not None:
            found.setdefault(f"role:{assignment.role}", {})[str(assignment.scope)] = assignment.scope
    return found


def _grants(
    program: Program, names: Names, state: State, scopes: Mapping[str, Mapping[str, Entity]], effect: Effect
) -> dict[str, Any]:
    """Privilege → entity → grantees, each with `true`, or for a role within a scope with the entities of its rows."""
    inherits = program.semantics.inheritance == "down"
    keys = vocabulary(program).keys
    found: dict[str, dict[str, set[str]]] = {}
    within: dict[tuple[str, str, str], set[str]] = {}
    for grant in state.grants:
        if grant.effect != effect:
            continue
        key = str(grant.entity)
        for privilege in names.given(grant.privilege, grant.entity.type):
            found.setdefault(privilege, {}).setdefault(key, set()).add(grant.grantee)
            for scope_key, scope in scopes.get(grant.grantee, {}).items():
                principal = scoped_principal(grant.grantee, scope_key)
                if scope_key in keys(grant.entity):
                    within.setdefault((privilege, key, principal), set()).add(key)
                elif inherits and key in keys(scope):
                    within.setdefault((privilege, scope_key, principal), set()).add(key)
    document: dict[str, dict[str, dict[str, Any]]] = {
        privilege: _sorted(found[privilege]) for privilege in sorted(found)
    }
    for (privilege, key, principal), entities in sorted(within.items()):
        document[privilege].setdefault(key, {})[principal] = sorted(entities)
    return document


def _people(program: Program, state: State, used: Uses) -> dict[str, Any]:
    """Everything that is looked up by a user's or a group's name."""
    granted = {grant.grantee for grant in state.grants} | {owner for _, owner in state.owners}
    declared = {f"role:{role.name}" for role in program.roles.values()}
    assigned: dict[str, list[Assignment]] = defaultdict(list)
    for assignment in state.assignments:
        assigned[assignment.principal].append(assignment)
    groups: dict[str, set[str]] = defaultdict(set)
    for user, group in state.memberships if used.state_groups else ():
        groups[user].add(group)

    def matters(principal: str) -> bool:
        kind = principal.partition(":")[0]
        asked = (kind == "group" and used.group_membership) or (kind == "role" and used.holds)
        return asked or principal in granted or principal in declared

    def principals(principal: str) -> frozenset[str]:
        given = {principal} if matters(principal) else set()
        for a in assigned.get(principal, ()):
            role = f"role:{a.role}"
            if matters(role):
                given.add(role if a.scope is None else scoped_principal(role, str(a.scope)))
        return frozenset(given)

    def scoped(principal: str) -> frozenset[tuple[str, str]]:
        given = ((str(a.scope), f"role:{a.role}") for a in assigned.get(principal, ()) if a.scope is not None)
        return frozenset(pair for pair in given if pair[1] in declared)

    named = {*assigned, *granted}
    users = sorted({p.partition(":")[2] for p in named if p.startswith("user:")} | set(groups))
    lone = sorted({p.partition(":")[2] for p in named if p.startswith("group:")}) if used.request_groups else []
    by_user = {user: [f"user:{user}", *(f"group:{group}" for group in groups.get(user, ()))] for user in users}
    by_group = {group: [f"group:{group}"] for group in lone}
    return {
        "principals": _flat(by_user, cache(principals)),
        "within": {
            scoped_principal(f"role:{a.role}", str(a.scope)): [f"role:{a.role}", str(a.scope)]
            for a in sorted((a for a in state.assignments if a.scope is not None), key=lambda a: (a.role, str(a.scope)))
        },
        "scoped": _by_scope(by_user, cache(scoped)),
        "group_principals": _flat(by_group, principals),
        "group_scoped": _by_scope(by_group, scoped),
    }


def _united(people: dict[str, list[str]], of: Callable[[str], frozenset[T]]) -> dict[str, frozenset[T]]:
    """For each name what its principals have together; names that have nothing are absent."""
    found = ((name, frozenset().union(*map(of, principals))) for name, principals in people.items())
    return {name: values for name, values in found if values}


def _flat(people: dict[str, list[str]], of: Callable[[str], frozenset[str]]) -> dict[str, str]:
    return {name: SEPARATOR.join(sorted(values)) for name, values in _united(people, of).items()}


def _by_scope(
    people: dict[str, list[str]], of: Callable[[str], frozenset[tuple[str, str]]]
) -> dict[str, dict[str, list[str]]]:
    document: dict[str, dict[str, list[str]]] = {}
    for name, pairs in _united(people, of).items():
        scopes = document.setdefault(name, {})
        for scope, role in sorted(pairs):
            scopes.setdefault(scope, []).append(role)
    return document


def _nested(pairs: Iterable[tuple[str, str]]) -> Truths:
    found: dict[str, set[str]] = defaultdict(set)
    for key, value in pairs:
        found[key].add(value)
    return _sorted(found)


def _sorted(found: Mapping[str, AbstractSet[str]]) -> Truths:
    return {key: dict.fromkeys(sorted(found[key]), True) for key in sorted(found)}
