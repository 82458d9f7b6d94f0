"""Who may do one thing: by the state's rows from the object back to its principals, and not user by user.

A condition has no negation, so the users for whom it holds are unions and intersections of the users for whom its atoms
hold; those are few look-ups each. What is told of a single user comes from the reference.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import assert_never

from privtab.analysis.caller import Caller
from privtab.analysis.universe import decode_name, users
from privtab.ir.canonical import Leaf, canonical
from privtab.ir.evaluate import Asked, Reference
from privtab.ir.explain import Explanation
from privtab.ir.formula import call_condition, item_condition, resolve
from privtab.ir.nodes import (
    RESOURCE,
    And,
    Atom,
    ByType,
    Can,
    Formula,
    Has,
    Holds,
    Member,
    Or,
    Owner,
    Rule,
    Self,
    ServiceAdmin,
    Target,
    When,
)
from privtab.request import Entity, Request, encode_name
from privtab.state.nodes import State


@dataclass(frozen=True, slots=True, kw_only=True)
class Through:
    """One thing that a user needed and has: the atom, the entity that gives it, and the principal.

    `via`: the group by which he holds the role that gives it, unless he holds it himself.
    """

    atom: str
    on: str | None
    through: str
    via: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """A user in person, a group, or a role: enough for who holds nothing else, but for `needs`.

    `needs`: memberships that no group or role can bring, each set a way of its own; one empty set where nothing is needed.
    """

    principal: str
    scope: str | None
    needs: tuple[tuple[str, ...], ...]


class WhoCan:
    """The answer for one operation on one object. `users` are sorted; `anyone`: also who is not named anywhere."""

    def __init__(self, reference: Reference, state: State, request: Request) -> None:
        reference.vocabulary.check(request)
        program = reference.program
        self.request = request
        self.rule: Rule = program.rules[request.resource.type, request.action]
        self._asked = Asked(reference, request)
        self._reference = reference
        self._state = state
        complete = RESOURCE in self._asked.complete
        self._condition = item_condition(self.rule) if complete else call_condition(self.rule)
        self._users = _Users(self._asked, state)
        found = self._users.of(self._condition)
        self.known: frozenset[str] = users(program, state)
        self.anyone: bool = found is None
        self.users: tuple[str, ...] = tuple(sorted(self.known if found is None else found))

    def through(self, user: str) -> tuple[Through, ...]:
        """What one of the users is allowed by: the first minimal set that holds for him; empty where none does."""
        caller = Caller(self._reference, user, flags=self.request.flags)
        caller.about(self._objects())
        explained = Explanation(caller, self.rule, self._sets(), allowed=True)
        return tuple(
            Through(
                atom=reason["atom"],
                on=reason.get("on"),
                through=reason["through"],
                via=self._users.via(user, reason["through"].removeprefix("owner ")),
            )
            for reason in explained.reasons()
        )

    def principals(self) -> tuple[Principal, ...]:
        """Each group, each role and each user in person that suffices; first `anyone`, where no principal is needed.

        What `anyone` may is not repeated for the others.
        """
        bearers = _Principals(self._asked, self._state)
        ways: dict[str, set[frozenset[str]]] = defaultdict(set)
        text = Explanation(self._asked, self.rule, (), allowed=False).text
        for atoms in self._sets():
            joined = [a for a in atoms if self._is_joining(a)]
            rest = bearers.all_of(a for a in atoms if not self._is_joining(a))
            needs = frozenset(map(text, joined))
            for bearer in {"anyone"} if rest is None else rest:
                if not bearer.startswith("user:"):
                    ways[bearer].add(needs)
            in_person = bearers.all_of(atoms)
            for bearer in in_person or ():
                if bearer.startswith("user:"):
                    ways[bearer].add(frozenset())
        by_all = ways.get("anyone", set())
        found = [
            Principal(principal=name, scope=scope or None, needs=_smallest(needs))
            for bearer, all_needs in ways.items()
            for name, _, scope in [bearer.partition("\n")]
            for needs in [{way for way in all_needs if bearer == "anyone" or not any(known <= way for known in by_all)}]
            if needs
        ]
        order = ("anyone", "group", "role", "user")
        return tuple(sorted(found, key=lambda p: (order.index(p.principal.partition(":")[0]), p.principal, p.scope or "")))

    def _is_joining(self, atom: Leaf) -> bool:
        if not isinstance(atom, Member) or not self._asked.path(atom.target):
            return False
        return self._asked.program.entities[atom.target.type].principal != "group"

    def _objects(self) -> dict[str, Entity]:
        return {RESOURCE: self.request.resource, **{w.name: self.request.with_[w.name] for w in self.rule.withs}}

    def _sets(self) -> tuple[tuple[Leaf, ...], ...]:
        types = {w.name: self._asked.types[w.name] for w in self.rule.withs}
        return canonical(self._reference.program).minimal_sets(self._condition, self.request.flags, types)


def who_can(reference: Reference, state: State, request: Request) -> WhoCan:
    """Who may do what `request` asks, whoever its user is; `state` is the one that the reference was made of.

    Raises InvalidRequest where the request names what the policy does not know.
    """
    return WhoCan(reference, state, request)


def _smallest(ways: Iterable[frozenset[str]]) -> tuple[tuple[str, ...], ...]:
    kept: list[frozenset[str]] = []
    for way in sorted(set(ways), key=lambda w: (len(w), sorted(w))):
        if not any(known <= way for known in kept):
            kept.append(way)
    return tuple(tuple(sorted(way)) for way in kept)


class _Bearers:
    """For whom a condition holds, as set algebra; None stands for everyone."""

    def __init__(self, asked: Asked, state: State) -> None:
        self.asked = asked
        self.program = asked.program
        self.holdings = asked.holdings
        self.state = state
        self._seen: dict[Atom, set[str] | None] = {}

    def everywhere(self, principal: str) -> set[str]:
        """Who is this principal, wherever it counts."""
        raise NotImplementedError

    def scoped(self, role: str) -> Iterable[tuple[str, set[str]]]:
        """(key of the scope, who holds the role within it) for a `role:…`."""
        raise NotImplementedError

    def person(self, user: str) -> str:
        """How a user in person is written here."""
        raise NotImplementedError

    def group_names(self) -> Iterable[str]:
        """Every group that somebody may be in."""
        raise NotImplementedError

    def of(self, formula: Formula) -> set[str] | None:
        """For whom a condition holds; the same walk as the reference's."""
        match formula:
            case Has() | Owner() | Member() | Self() | Holds() | ServiceAdmin():
                if formula not in self._seen:
                    self._seen[formula] = self._atom(formula)
                return self._seen[formula]
            case And():
                return self.all_of(formula.parts)
            case Or():
                found: set[str] = set()
                for part in formula.parts:
                    some = self.of(part)
                    if some is None:
                        return None
                    found |= some
                return found
            case When():
                return self.of(formula.body) if formula.flag in self.asked.flags else None
            case Can():
                return self.of(resolve(self.program, formula))
            case ByType():
                case_ = dict(formula.cases).get(self.asked.types[formula.slot])
                return set() if case_ is None else self.of(case_)
            case _:
                assert_never(formula)

    def all_of(self, formulas: Iterable[Formula]) -> set[str] | None:
        """For whom all of them hold."""
        found: set[str] | None = None
        for formula in formulas:
            some = self.of(formula)
            if some is not None:
                found = set(some) if found is None else found & some
                if not found:
                    return found
        return found

    def _atom(self, atom: Atom) -> set[str]:
        match atom:
            case ServiceAdmin():
                return {self.person(user) for user in self.holdings.service_admins}
            case Has():
                return self._has(atom.privilege, atom.target)
            case Owner():
                path = self.asked.path(atom.target)
                return self._any(self.holdings.owners(path[-1])) if path else set()
            case Member():
                return self._members(atom.target)
            case Self():
                path = self.asked.path(atom.target)
                return {self.person(decode_name(_last_name(path[-1])))} if path and _last_name(path[-1]) else set()
            case Holds():
                return self._holding(atom.target)
            case _:
                assert_never(atom)

    def _has(self, privilege: str, target: Target) -> set[str]:
        path = self.asked.path(target)
        if not path:
            return set()
        looked_at = self.asked.looked_at(path)
        allowed: set[str] = set()
        denied: set[str] = set()
        for key in looked_at:
            allow, deny = self.holdings.grants_on(privilege, key)
            allowed |= self._within(allow, path)
            allowed |= self._by_default(privilege, path, key)
            if self.program.semantics.deny == "overrides":
                denied |= self._within(deny, path)
        allowed -= denied
        owner = self.program.semantics.owner
        if owner is not None and privilege in owner.holds:
            for key in looked_at:
                allowed |= self._any(self.holdings.owners(key))
        return allowed

    def _any(self, principals: Iterable[str]) -> set[str]:
        return {bearer for principal in principals for bearer in self.everywhere(principal)}

    def _within(self, principals: Iterable[str], path: tuple[str, ...]) -> set[str]:
        found = self._any(principals)
        for principal in principals:
            if principal.startswith("role:"):
                for scope, bearers in self.scoped(principal):
                    if scope in path:
                        found |= bearers
        return found

    def _by_default(self, privilege: str, path: tuple[str, ...], key: str) -> set[str]:
        type_ = key.partition(":")[0]
        giving = [f"role:{r.name}" for r in self.program.roles.values() if privilege in dict(r.grants).get(type_, ())]
        return self._within(giving, path[: path.index(key) + 1])

    def _members(self, target: Target) -> set[str]:
        path = self.asked.path(target)
        if not path:
            return set()
        found = {self.person(user) for user, entity in self.state.members if str(entity) == path[-1]}
        if self.program.entities[target.type].principal == "group":
            found |= self._any(f"group:{group}" for group in self.group_names() if _names(path[-1], group))
        return found

    def _holding(self, target: Target) -> set[str]:
        path = self.asked.path(target)
        if not path:
            return set()
        named = {a.role for a in self.state.assignments if _names(path[-1], a.role)} | self._spelt(path[-1])
        found = self._any(f"role:{role}" for role in named)
        for role in named:
            for _, bearers in self.scoped(f"role:{role}"):
                found |= bearers
        return found

    def _spelt(self, key: str) -> set[str]:
        """Names of the role with this key that no assignment has, where such roles are to be told of."""
        return set()


class _Users(_Bearers):
    """Users, with all their groups and roles."""

    def __init__(self, asked: Asked, state: State) -> None:
        super().__init__(asked, state)
        self._in: dict[str, set[str]] = defaultdict(set)
        for user, group in state.memberships if "state" in asked.program.semantics.groups else ():
            self._in[group].add(user)
        self._assigned: dict[str, list[tuple[str, str | None]]] = defaultdict(list)
        for a in state.assignments:
            self._assigned[f"role:{a.role}"].append((a.principal, None if a.scope is None else str(a.scope)))
        self._everywhere: dict[str, set[str]] = {}

    def everywhere(self, principal: str) -> set[str]:
        """Who is this principal, wherever it counts."""
        if principal not in self._everywhere:
            kind, _, name = principal.partition(":")
            match kind:
                case "user":
                    found = {name}
                case "group":
                    found = self._in.get(name, set())
                case _:
                    given = (p for p, scope in self._assigned.get(principal, ()) if scope is None)
                    found = {user for p in given for user in self.everywhere(p)}
            self._everywhere[principal] = found
        return self._everywhere[principal]

    def scoped(self, role: str) -> Iterable[tuple[str, set[str]]]:
        """(key of the scope, who holds the role within it)."""
        return [(scope, self.everywhere(p)) for p, scope in self._assigned.get(role, ()) if scope is not None]

    def via(self, user: str, role: str) -> str | None:
        """The first group by which a user holds a `role:…`, if he does not hold it himself."""
        holders = [principal for principal, _ in self._assigned.get(role, ())]
        if f"user:{user}" in holders:
            return None
        return min((p for p in holders if user in self.everywhere(p)), default=None)

    def person(self, user: str) -> str:
        """The name as it is."""
        return user

    def group_names(self) -> Iterable[str]:
        """The groups of the memberships."""
        return self._in


class _Principals(_Bearers):
    """Principals, each alone: a user in person, without groups and roles; a group with its roles; a role."""

    def __init__(self, asked: Asked, state: State) -> None:
        super().__init__(asked, state)
        self._given: dict[str, set[tuple[str, str | None]]] = defaultdict(set)
        for a in state.assignments:
            scope = None if a.scope is None else str(a.scope)
            self._given[f"role:{a.role}"].add((a.principal, scope))
        self._groups = {g for _, g in state.memberships} | {
            p.removeprefix("group:")
            for p in (
                *(a.principal for a in state.assignments),
                *(g.grantee for g in state.grants),
                *(owner for _, owner in state.owners),
            )
            if p.startswith("group:")
        }

    def everywhere(self, principal: str) -> set[str]:
        """The principal itself, and for a role the groups that hold it."""
        if not principal.startswith("role:"):
            return {principal}
        groups = {p for p, scope in self._given.get(principal, ()) if scope is None and p.startswith("group:")}
        return {principal} | groups

    def scoped(self, role: str) -> Iterable[tuple[str, set[str]]]:
        """Each scope that somebody holds the role within: the role there, and the groups that hold it there."""
        found: dict[str, set[str]] = defaultdict(set)
        for principal, scope in self._given.get(role, ()):
            if scope is not None:
                found[scope] |= {f"{role}\n{scope}"} | ({principal} if principal.startswith("group:") else set())
        return found.items()

    def person(self, user: str) -> str:
        """A user in person is a principal."""
        return f"user:{user}"

    def group_names(self) -> Iterable[str]:
        """Every group that the state names."""
        return self._groups

    def _spelt(self, key: str) -> set[str]:
        """The role by its last name, assigned or not."""
        return {decode_name(_last_name(key))}


def _last_name(key: str) -> str:
    return key.partition(":")[2].rpartition("/")[2]


def _names(key: str, principal: str) -> bool:
    return principal == key.partition(":")[2] or encode_name(principal) == _last_name(key)
