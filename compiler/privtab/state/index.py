"""The state as OPA holds it: a document in which every question is a lookup by key."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, TypeAlias, TypeVar

from privtab.ir.nodes import Program
from privtab.state.names import Names
from privtab.state.nodes import Assignment, State
from privtab.state.uses import Uses, uses

T = TypeVar("T")
Truths: TypeAlias = dict[str, dict[str, bool]]
"""Key → names, each with `true`: a set as JSON has it."""


def index(program: Program, state: State) -> dict[str, Any]:
    """The document below `data.privtab_state.<system>`; the same rows in any order give the same document.

    `revision` is the hash of everything else. Parts that the policy never asks for are empty maps.
    """
    used = uses(program)
    allow, deny = _grants(program, state)
    document: dict[str, Any] = {
        "allow": allow,
        "deny": deny,
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


def _grants(program: Program, state: State) -> tuple[dict[str, Any], dict[str, Any]]:
    """Privilege → entity → grantees, allowed and denied."""
    names = Names(program)
    found: dict[str, dict[str, dict[str, set[str]]]] = {"allow": {}, "deny": {}}
    for grant in state.grants:
        key = str(grant.entity)
        by_privilege = found[grant.effect]
        for privilege in names.privileges(grant.privilege) or ():
            by_privilege.setdefault(privilege, {}).setdefault(key, set()).add(grant.grantee)
    allow, deny = (
        {privilege: _sorted(found[effect][privilege]) for privilege in sorted(found[effect])} for effect in found
    )
    return allow, deny


def _people(program: Program, state: State, used: Uses) -> dict[str, Any]:
    """Everything that is looked up by a user's or a group's name."""
    relevant = {grant.grantee for grant in state.grants} | {owner for _, owner in state.owners}
    relevant |= {f"role:{role}" for role in program.roles}
    assigned: dict[str, list[Assignment]] = defaultdict(list)
    for assignment in state.assignments:
        assigned[assignment.principal].append(assignment)
    groups: dict[str, set[str]] = defaultdict(set)
    for user, group in state.memberships if used.state_groups else ():
        groups[user].add(group)

    def everywhere(principal: str) -> frozenset[str]:
        given = {f"role:{a.role}" for a in assigned.get(principal, ()) if a.scope is None}
        return frozenset({principal, *given} & relevant)

    def scoped(principal: str) -> frozenset[tuple[str, str]]:
        given = ((str(a.scope), f"role:{a.role}") for a in assigned.get(principal, ()) if a.scope is not None)
        return frozenset(pair for pair in given if pair[1] in relevant)

    def roles(principal: str) -> frozenset[str]:
        return frozenset(a.role for a in assigned.get(principal, ()))

    named = {*assigned, *relevant}
    users = sorted({p.partition(":")[2] for p in named if p.startswith("user:")} | set(groups))
    lone = sorted({p.partition(":")[2] for p in named if p.startswith("group:")}) if used.request_groups else []
    by_user = {user: [f"user:{user}", *(f"group:{group}" for group in groups.get(user, ()))] for user in users}
    by_group = {group: [f"group:{group}"] for group in lone}
    return {
        "principals": _flat(by_user, cache(everywhere)),
        "scoped": _by_scope(by_user, cache(scoped)),
        "groups": _sorted(groups) if used.group_membership or used.request_groups else {},
        "roles": _sorted(_united(by_user, cache(roles))) if used.holds else {},
        "group_principals": _flat(by_group, everywhere),
        "group_scoped": _by_scope(by_group, scoped),
        "group_roles": _sorted(_united(by_group, roles)) if used.holds else {},
    }


def _united(people: dict[str, list[str]], of: Callable[[str], frozenset[T]]) -> dict[str, set[T]]:
    """For each name what its principals have together; names that have nothing are absent."""
    found = {
        name: {value for principal in principals for value in of(principal)} for name, principals in people.items()
    }
    return {name: values for name, values in found.items() if values}


def _flat(people: dict[str, list[str]], of: Callable[[str], frozenset[str]]) -> dict[str, list[str]]:
    return {name: sorted(values) for name, values in _united(people, of).items()}


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


def _sorted(found: Mapping[str, set[str]]) -> Truths:
    return {key: dict.fromkeys(sorted(found[key]), True) for key in sorted(found)}
