"""The index of a state, as OPA holds it: a document in which every query is a look-up by key."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from privtab._collection import no_collection
from privtab.ir.formula import uses_below
from privtab.ir.nodes import Program
from privtab.moments import WINDOWED
from privtab.request import Entity
from privtab.state import attribute_rows, below, located, roles_of_roles, windowed
from privtab.state.chains import GROUP
from privtab.state.hierarchy import closed
from privtab.state.names import StateNames, UsedParts, uses
from privtab.state.nodes import Effect, State
from privtab.state.principal_rows import SEPARATOR, scoped_entries, scoped_principal, scopes_of_roles

_GRANTS = ("grants", "grantee", "effect", "privilege", "entity")
T = TypeVar("T")
Truths: TypeAlias = dict[str, dict[str, Any]]
"""Key → names, each with `true`: a set in JSON."""


def index(program: Program, state: State) -> dict[str, Any]:
    """The document below `data.privtab_state.<system>`; the same rows in any order give the same document.

    `revision` is the hash of everything else. Parts that the policy does not use are empty maps.

    A role that is held within a scope becomes a principal of its own, `scoped:[scope, role]`. Its grants are entered where
    they take effect: at their entity if that lies in the scope, at the scope if their entity contains it. So an engine looks up
    a user's principals without checking scopes. Such an entry lists the entities that the rows name.
    """
    state = closed(program, state)
    if by_columns(program, state):
        document: dict[str, Any] = json.loads(index_bytes(program, state)[1])
        return document
    return stamped(without_revision(program, state))


def index_bytes(program: Program, state: State) -> tuple[str, bytes]:
    """The revision of a state's index, and the index as JSON: keys sorted, no spaces, UTF-8; serialised once for both."""
    state = closed(program, state)
    if not by_columns(program, state):
        return stamped_bytes(without_revision(program, state))
    from privtab.state import json_columns
    from privtab.state.large_index import coded_parts

    parts, within = coded_parts(program, state)
    return json_columns.stamped(
        {**parts, **roles_of_roles.part(program, state), **attribute_rows.part(program, state), "within": within}
    )


def by_columns(program: Program, state: State) -> bool:
    """Whether the index of a state is made from its columns: it has them, and no part of the index needs rows."""
    return state.has_columns and not (state.windows or uses_below(program) or program.flat)


def revision(document: Mapping[str, Any]) -> str:
    """The content hash of an index without its revision: 16 hexadecimal digits."""
    return _digest(JSON(document), document)


def stamped(document: Mapping[str, Any]) -> dict[str, Any]:
    """A document with its revision, the hash of everything else in it; keys are sorted.

    The revision of a state with windows is beside what they concern.
    """
    if WINDOWED in document:
        parts = dict(document)
        parts[WINDOWED] = {"revision": revision(document), **parts[WINDOWED]}
        return {part: parts[part] for part in sorted(parts)}
    return {"revision": revision(document), **{part: document[part] for part in sorted(document)}}


def stamped_bytes(document: Mapping[str, Any]) -> tuple[str, bytes]:
    """The revision of a document without one, and the document with the revision, as JSON."""
    if WINDOWED in document:
        complete = stamped(document)
        return complete[WINDOWED]["revision"], JSON(complete).encode()
    texts = {part: f"{JSON(part)}:{JSON(document[part])}" for part in sorted(document)}
    found = _digest("{" + ",".join(texts.values()) + "}", document)
    texts["revision"] = f'"revision":"{found}"'
    return found, ("{" + ",".join(texts[part] for part in sorted(texts)) + "}").encode()


JSON = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":"), check_circular=False).encode
"""A document as text: keys sorted, no spaces."""


def _digest(text: str, document: Mapping[str, Any]) -> str:
    """The hash is that of JSON in ASCII, which nearly all texts already are."""
    if not text.isascii() or "\x7f" in text:
        text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def without_revision(program: Program, state: State) -> dict[str, Any]:
    """The index without its revision, which is the hash of this."""
    state = closed(program, state)
    with no_collection():
        if state.windows:
            return _windowed(program, state, located.locations(program, state).keys)
        if by_columns(program, state):
            document: dict[str, Any] = json.loads(index_bytes(program, state)[1])
            return {part: value for part, value in document.items() if part != "revision"}
        keys = located.locations(program, state).keys
        document = _plain(program, state, keys)
        return document | (below.parts(program, document, keys) if uses_below(program) else {})


def _plain(program: Program, state: State, keys: Callable[[Entity], list[str]]) -> dict[str, Any]:
    """The index of rows without windows, but for what is held below entities; `keys`: those on the path of an entity."""
    grants = _grants(program, StateNames(program), state, scopes_of_roles(state), keys)
    return {
        "allow": grants["allow"],
        "deny": grants["deny"],
        "owners": _nested(state.texts("owners", "entity", "owner")),
        "members": _nested(state.texts("members", "of", "user")),
        "service_admins": dict.fromkeys(sorted(set(state.service_admins)), True),
        **_people(program, state, uses(program)),
        **roles_of_roles.part(program, state),
        **attribute_rows.part(program, state),
        **located.parts(program, state),
    }


def _windowed(program: Program, state: State, keys: Callable[[Entity], list[str]]) -> dict[str, Any]:
    names, scopes, used = StateNames(program), scopes_of_roles(state), uses(program)
    granted = state.distinct(("grants", "grantee"), ("owners", "owner"))
    declared = {f"role:{role.name}" for role in program.roles.values()}

    def grants(rows: State) -> Mapping[Effect, dict[str, Truths]]:
        return _grants(program, names, rows, scopes, keys)

    def principal(role: str, scope: str | None) -> tuple[str | None, bool]:
        return _principal_of_role(role, scope, granted, declared, used), f"role:{role}" in declared

    roles = roles_of_roles.held_roles(program, state) if used.roles_of_roles else None
    document = windowed.document(state, lambda rows: _plain(program, rows, keys), grants, principal, used, roles)
    if not uses_below(program):
        return document
    timed = document.get(WINDOWED)
    if timed is None:
        return document | below.parts(program, document, keys)
    timed["windows"] |= below.parts_in_windows(program, timed, keys)
    return document


def _principal_of_role(
    name: str, scope: str | None, granted: set[str], declared: set[str], used: UsedParts
) -> str | None:
    """The principal for a role within a scope or everywhere; None if nothing depends on it."""
    role = f"role:{name}"
    principal = role if scope is None else scoped_principal(role, scope)
    return principal if used.holds or role in granted or role in declared else None


def _grants(
    program: Program,
    names: StateNames,
    state: State,
    scopes: Mapping[str, Mapping[str, Entity]],
    keys: Callable[[Entity], list[str]],
) -> dict[Effect, dict[str, Truths]]:
    """By effect: privilege → entity → grantees, each with `true`, or for a role within a scope with the entities of its rows."""
    found: dict[Effect, dict[str, dict[str, dict[str, Any]]]] = {"allow": {}, "deny": {}}
    granted_privileges: dict[tuple[str, str, Effect], tuple[str, ...]] = {}
    for grantee, effect, name, key in state.texts(*_GRANTS):
        type_ = key.partition(":")[0]
        granted = granted_privileges.get((name, type_, effect))
        if granted is None:
            granted = granted_privileges[name, type_, effect] = names.privileges_of(name, type_, effect)
        for privilege in granted:
            entities = found[effect].get(privilege)
            if entities is None:
                entities = found[effect][privilege] = {}
            holders = entities.get(key)
            if holders is None:
                entities[key] = {grantee: True}
            else:
                holders[grantee] = True
    scoped = (row for row in state.texts(*_GRANTS) if row[0] in scopes) if scopes else ()
    for (effect, privilege, key, principal), key_set in scoped_entries(program, scoped, scopes, keys).items():
        found[effect][privilege].setdefault(key, {})[principal] = sorted(key_set)
    return {
        effect: {privilege: _sorted(of_effect[privilege]) for privilege in sorted(of_effect)}
        for effect, of_effect in found.items()
    }


def _people(program: Program, state: State, used: UsedParts) -> dict[str, Any]:
    """Everything that is looked up by the name of a user or a group."""
    granted = state.distinct(("grants", "grantee"), ("owners", "owner"))
    declared = {f"role:{role.name}" for role in program.roles.values()}
    groups: dict[str, set[str]] = defaultdict(set)
    above: dict[str, set[str]] = defaultdict(set)
    """Group → the groups that contain it."""
    for user, group in state.texts("memberships", "user", "group"):
        if user.startswith(GROUP):
            above[user[6:]].add(f"group:{group}")
        elif used.state_groups:
            groups[user].add(f"group:{group}")
    principal_of: dict[tuple[str, str | None], str | None] = {}
    """Role and scope → the principal for them; None if nothing depends on it."""
    within: dict[str, list[str]] = {}
    held_by: dict[str, set[str]] = {}
    """Principal → the principals that it has through its roles."""
    scoped: dict[str, set[tuple[str, str]]] = {}
    for holder, name, scope in state.texts("assignments", "principal", "role", "scope"):
        role_and_scope = (name, scope)
        if role_and_scope not in principal_of:
            principal_of[role_and_scope] = _principal_of_role(name, scope, granted, declared, used)
            if scope is not None:
                role = f"role:{name}"
                within[scoped_principal(role, scope)] = [role, scope]
        principal = principal_of[role_and_scope]
        held_principals = held_by.get(holder)
        if held_principals is None:
            held_principals = held_by[holder] = set()
        if principal is not None:
            held_principals.add(principal)
        if scope is not None and f"role:{name}" in declared:
            scoped.setdefault(holder, set()).add((scope, f"role:{name}"))
    for principal in granted:
        if not principal.startswith("role:"):
            held_by.setdefault(principal, set()).add(principal)
    users = sorted({p[5:] for p in held_by if p.startswith("user:")} | set(groups))
    holding = {p[6:] for p in held_by if p.startswith("group:")}
    request_groups = sorted(holding | set(above)) if used.request_groups else []
    if used.group_membership:
        for group in {
            *(g for of_member in (*groups.values(), *above.values()) for g in of_member),
            *(f"group:{group}" for group in above),
            *(p for p in held_by if p.startswith("group:")),
        }:
            held_by.setdefault(group, set()).add(group)
    by_user = {user: (f"user:{user}", *groups.get(user, ())) for user in users}
    by_group = {group: (f"group:{group}", *above.get(group, ())) for group in request_groups}
    return {
        "principals": _flat(by_user, held_by),
        "within": dict(sorted(within.items(), key=lambda item: item[1])),
        "scoped": _by_scope(by_user, scoped),
        "group_principals": _flat(by_group, held_by),
        "group_scoped": _by_scope(by_group, scoped),
    }


def _unions(
    principals_of: Mapping[str, Sequence[str]], values_of: Mapping[str, set[T]]
) -> Iterator[tuple[str, Iterable[T]]]:
    """For each name, what its principals have together; names that have nothing are omitted."""
    for name, principals in principals_of.items():
        found = [values for principal in principals if (values := values_of.get(principal))]
        if found:
            yield name, found[0] if len(found) == 1 else set().union(*found)


def _flat(principals_of: Mapping[str, Sequence[str]], values_of: Mapping[str, set[str]]) -> dict[str, str]:
    return {name: SEPARATOR.join(sorted(values)) for name, values in _unions(principals_of, values_of)}


def _by_scope(
    principals_of: Mapping[str, Sequence[str]], values_of: Mapping[str, set[tuple[str, str]]]
) -> dict[str, dict[str, list[str]]]:
    document: dict[str, dict[str, list[str]]] = {}
    for name, pairs in _unions(principals_of, values_of):
        scopes = document.setdefault(name, {})
        for scope, role in sorted(pairs):
            scopes.setdefault(scope, []).append(role)
    return document


def _nested(pairs: Iterable[tuple[str, str]]) -> Truths:
    found: dict[str, dict[str, Any]] = {}
    for key, value in pairs:
        found.setdefault(key, {})[value] = True
    return _sorted(found)


def _sorted(found: Mapping[str, dict[str, Any]]) -> Truths:
    return {
        key: holders if len(holders := found[key]) == 1 else {name: holders[name] for name in sorted(holders)}
        for key in sorted(found)
    }
