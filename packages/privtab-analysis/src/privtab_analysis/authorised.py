"""Changes of a store's rows that operations authorise, as facts that the caller gains.

The store's authority says which operation authorises which rows. Further conditions of the store, such as the place where a role has
rights, are left out here: the facts are at least as many as the store lets the caller gain.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Literal, NamedTuple, Protocol

from privtab.base import PRINCIPAL_TABLES, Entity, encode_name, last_name
from privtab.ir import RESOURCE, Rule, privilege_names
from privtab.state import State
from privtab_analysis.caller import Caller
from privtab_analysis.effects import GainedFact
from privtab_analysis.entitlements.universe import Universe

NOWHERE = Entity("", "")
"""The scope of a role that is held everywhere."""
NOT_CONSIDERED = (
    "what other users do for them",
    "rows that begin or end later",
    "other groups, active roles and attributes in their requests",
    "changes of the policy, and of a store's database without the store",
)
"""Further sources of rights, which are not followed, in the words of every answer."""
UNFOLLOWED = ("entities", "attributes")
"""Tables whose rows nobody may change unless settings say so; rights from such changes are not followed."""


class Authority(Protocol):
    """The operations on an entity that authorise changes of rows: `store.authority.Authority`."""

    def operations(
        self, table: str, verb: Literal["add", "remove"], type_: str, privileges: Collection[str] = ()
    ) -> tuple[str, ...]:
        """The operations on an entity of this type that authorise the change, of rows of grants: one that names these privileges."""

    def deleting(self, type_: str) -> str | None:
        """The operation that deletes an entity of this type; None for one that exists with its parent."""


class PossibleChange(NamedTuple):
    """An operation that authorises changes of rows, its resource, and the facts that result."""

    rule: Rule
    resource: Entity
    facts: tuple[GainedFact, ...]


class AuthorisedChanges:
    """The changes that operations authorise, whether or not the caller may perform the operations."""

    def __init__(
        self, caller: Caller, state: State, authority: Authority, universe: Universe, *, recreates: bool
    ) -> None:
        """`recreates`: whether names that are free count, after a deletion."""
        self._program = caller.program
        self._caller = caller
        self._state = state
        self._authority = authority
        self._universe = universe
        self._names = privilege_names(caller.program)
        self._base = frozenset(universe)
        self._recreates = recreates

    def all(self) -> Iterator[PossibleChange]:
        """Every change on the existing entities."""
        for type_ in self._program.entities:
            for operation in dict.fromkeys(self._operations(type_)):
                rule = self._program.rules[type_, operation]
                for resource in self._resources(type_):
                    found = dict.fromkeys(fact for facts in self._facts(operation, resource) for fact in facts)
                    if found:
                        yield PossibleChange(rule, resource, tuple(found))

    def unfollowed(self) -> Iterator[tuple[str, Rule, Entity]]:
        """(table, rule, resource) of each operation that authorises rows whose effect is not followed."""
        for table in UNFOLLOWED:
            for type_ in self._program.entities:
                for verb in ("add", "remove"):
                    for operation in self._authority.operations(table, verb, type_):
                        rule = self._program.rules[type_, operation]
                        yield from ((table, rule, resource) for resource in self._universe.by_type[type_].values())

    def revoked(self, rule: Rule, resource: Entity) -> tuple[GainedFact, ...]:
        """The facts that an operation takes away and whose loss may help: denials to principals, and rows that name an entity."""
        found: list[GainedFact] = []
        for effect in rule.effects:
            if effect.kind != "revoke":
                continue
            self._caller.about({RESOURCE: resource})
            path = self._caller.path(effect.target) if effect.target.slot == RESOURCE else ()
            named = [Entity.parse(path[-1])] if path else list(self._universe.by_type[effect.target.type].values())
            if effect.what in PRINCIPAL_TABLES:
                found += [lifted for entity in named for lifted in self._about(entity)]
            else:
                found += self._vacant(named)
        return tuple(found)

    def is_given_above(self, fact: GainedFact, facts: Collection[GainedFact]) -> bool:
        """Return whether one of some facts gives the same on an entity that contains the entity of a fact."""
        if fact.kind != "role" and (fact.kind != "grant" or not self._program.inherits(fact.privilege)):
            return False
        keys = self._caller.holdings.locations.find(fact.entity) or () if fact.entity.type else ()
        above = [*map(Entity.parse, keys[:-1]), *([NOWHERE] if fact.kind == "role" else [])]
        return any(GainedFact(kind=fact.kind, entity=place, privilege=fact.privilege) in facts for place in above)

    def principals_of(self, fact: GainedFact) -> set[str]:
        """The role or the group of a fact, and the principals that it holds."""
        if fact.kind == "group":
            principals, scoped, _ = self._caller.hypothetical.of_principal(f"group:{fact.privilege}")
            return {*principals, *(role for role, _ in scoped)}
        return {f"role:{role}" for role, _ in self._caller.hypothetical.held_with(fact.privilege, None)}

    # --- what an operation authorises -------------------------------------------------------------------------------

    def _operations(self, type_: str) -> Iterator[str]:
        tables = ("grants", "owners", "assignments", "memberships", "members")
        for table in tables:
            yield from self._authority.operations(table, "add", type_)
            yield from self._authority.operations(table, "remove", type_)
        deleting = self._authority.deleting(type_)
        yield from () if deleting is None else (deleting,)

    def _resources(self, type_: str) -> Iterator[Entity]:
        """The entities of a type, and the entities that names of principals may mean."""
        known = self._universe.by_type[type_]
        yield from list(known.values())
        kind = self._program.entities[type_]
        if kind.principal is None or type_ in self._program.flat:
            return
        names = {"user": {self._caller.user}, "role": self._roles, "group": self._groups}[kind.principal]
        paths = [""] if kind.parent is None else [entity.id for entity in self._universe.by_type[kind.parent].values()]
        for path in paths:
            for name in sorted(names):
                id_ = f"{path}/{encode_name(name)}" if path else encode_name(name)
                if id_ not in known:
                    yield Entity(type_, id_)

    def _facts(self, operation: str, entity: Entity) -> Iterator[list[GainedFact]]:
        """The facts that an operation on an entity authorises: what the caller gains by each kind of change."""
        type_, semantics = entity.type, self._program.semantics
        principal = self._program.entities[type_].principal

        def may(table: str, verb: Literal["add", "remove"], privileges: Collection[str] = ()) -> bool:
            return operation in self._authority.operations(table, verb, type_, privileges)

        if may("grants", "add"):
            yield [
                GainedFact(kind="grant", entity=entity, privilege=privilege)
                for name in self._program.grantable_on(type_)
                if may("grants", "add", (name,))
                for privilege in self._names.privileges_of(name, type_, "allow")
            ]
        if may("grants", "remove"):
            yield [lifted for lifted, _ in self._denials if lifted.entity == entity]
        if may("owners", "add") and semantics.owner is not None:
            yield [GainedFact(kind="owner", entity=entity)]
        if may("assignments", "add"):
            yield [GainedFact(kind="role", entity=entity, privilege=role) for role in sorted(self._roles)]
        roles, groups = self._called(entity, "role"), self._called(entity, "group")
        if may("assignments", "add") and principal == "role":
            yield [GainedFact(kind="role", entity=NOWHERE, privilege=role) for role in roles]
        if may("assignments", "remove"):
            yield self._of([f"role:{role}" for role in roles])
            scoped = [role for role, scope in self._caller.scoped if scope == str(entity)]
            yield self._of(scoped)
        if may("memberships", "add"):
            yield [GainedFact(kind="group", entity=NOWHERE, privilege=group) for group in groups]
        if may("memberships", "remove"):
            yield self._of([f"group:{group}" for group in groups])
        if may("members", "add") and principal == "user":
            container, _, name = entity.id.rpartition("/")
            parent = self._program.entities[type_].parent
            if parent is not None and last_name(name) == self._caller.user:
                yield [GainedFact(kind="member", entity=Entity(parent, container))]
        if operation in self._removing(type_):
            yield self._vacant([entity])
        if self._authority.deleting(type_) == operation:
            below = [replace(lifted, kind="leave") for lifted, keys in self._denials if str(entity) in keys]
            yield [*self._vacant([entity]), *below, *self._about(entity)]

    def _vacant(self, entities: Collection[Entity]) -> list[GainedFact]:
        return [GainedFact(kind="vacant", entity=entity) for entity in entities if self._recreates]

    def _removing(self, type_: str) -> set[str]:
        """The operations that authorise the removal of rows about entities of a type: nothing may name the entities any more."""
        tables = ("grants", "owners", "assignments")
        return {name for table in tables for name in self._authority.operations(table, "remove", type_)}

    def _called(self, entity: Entity, kind: str) -> list[str]:
        """The names of roles or groups that may mean an entity."""
        if self._program.entities[entity.type].principal != kind:
            return []
        names = self._roles if kind == "role" else self._groups
        return [name for name in sorted(names) if entity.is_called(name)]

    # --- denials that go --------------------------------------------------------------------------------------------

    @cached_property
    def _denials(self) -> list[tuple[GainedFact, frozenset[str]]]:
        """The fact that a denial is gone, for each one of the state, with the keys on the path of its entity."""
        if self._program.semantics.deny != "overrides":
            return []
        find = self._caller.holdings.locations.find
        rows = dict.fromkeys((row.entity, row.grantee) for row in self._state.grants if row.effect == "deny")
        return [
            (GainedFact(kind="lift", entity=entity, privilege=grantee), frozenset(find(entity) or ()))
            for entity, grantee in rows
        ]

    def _of(self, principals: Collection[str]) -> list[GainedFact]:
        """The denials to some principals and to the principals that they hold, which end if the caller leaves them."""
        reached = set(principals)
        for principal in principals:
            everywhere, scoped, _ = self._caller.hypothetical.of_principal(principal)
            reached |= everywhere | {role for role, _ in scoped}
        return [replace(lifted, kind="leave") for lifted, _ in self._denials if lifted.privilege in reached]

    def _about(self, entity: Entity) -> list[GainedFact]:
        """The denials that go with every row about a principal that is an entity."""
        kind = self._program.entities[entity.type].principal
        if kind == "user":
            is_caller = entity.is_called(self._caller.user)
            return [replace(lifted, kind="leave") for lifted, _ in self._denials] if is_caller else []
        if kind is None:
            return []
        return self._of([f"{kind}:{name}" for name in self._called(entity, kind)])

    # --- names ------------------------------------------------------------------------------------------------------

    @cached_property
    def _roles(self) -> frozenset[str]:
        """The roles that a row or the policy names."""
        return self._named("role", ("assignments", "role")) | frozenset(self._program.roles)

    @cached_property
    def _groups(self) -> frozenset[str]:
        return self._named("group", ("memberships", "group"))

    def _named(self, kind: str, *columns: tuple[str, str]) -> frozenset[str]:
        holders = self._state.distinct(("grants", "grantee"), ("owners", "owner"), ("assignments", "principal"))
        holders |= self._state.distinct(("memberships", "user"))
        found = {text.partition(":")[2] for text in holders if text.startswith(f"{kind}:")}
        entities = (e for e in self._base if self._program.entities[e.type].principal == kind and e.names)
        return frozenset(found | self._state.distinct(*columns) | {last_name(entity.id) for entity in entities})
