"""Decisions of the reference for one caller and many objects, with hypothetical changes to the caller's rights."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import Any

from privtab.base import LEFT_OUT, Entity, GivenAttributes, InvalidRequest
from privtab.ir import (
    Atom,
    Can,
    Compare,
    Feature,
    Formula,
    Leaf,
    Listing,
    OnTarget,
    Program,
    RequestAlgebra,
    Rule,
    canonical_form,
    minimal_listing,
    walk_reached,
)
from privtab.reference import EvaluationContext, Reference
from privtab.state import Holdings, State
from privtab_analysis.entitlements.universe import Universe


class HypotheticalHoldings(Holdings):
    """The holdings of a state, with hypothetical changes for one user.

    The user may hold more grants, ownership and membership, and denials may be lifted. `allowed` holds (privilege,
    key), `owned` and `member_of` hold keys, `removed_denials` holds (privilege, key, principal). All may be changed between two
    questions.
    """

    def __init__(self, base: Holdings, user: str) -> None:  # not Holdings.__init__: what was read is shared
        self.__dict__.update(vars(base))
        self._base = base
        self.user = user
        self.allowed: Collection[tuple[str, str]] = ()
        self.owned: Collection[str] = ()
        self.member_of: Collection[str] = ()
        self.removed_denials: Container[tuple[str, str, str]] = ()

    def grants_on(self, privilege: str, key: str) -> tuple[frozenset[str], frozenset[str]]:
        """The grants of the state, with the hypothetical changes."""
        allow, deny = super().grants_on(privilege, key)
        if (privilege, key) in self.allowed:
            allow |= {f"user:{self.user}"}
        if deny and self.removed_denials != ():
            deny = frozenset(principal for principal in deny if (privilege, key, principal) not in self.removed_denials)
        return allow, deny

    def named(self) -> tuple[str, ...]:
        """The entities that rows of the state and the hypothetical changes name."""
        return tuple(dict.fromkeys((*self._base.named(), *(key for _, key in self.allowed), *self.owned)))

    def owners(self, key: str) -> frozenset[str]:
        """The owners in the state, and the user if their ownership is hypothetical."""
        owners = super().owners(key)
        return owners | {f"user:{self.user}"} if key in self.owned else owners

    def is_member(self, user: str, key: str) -> bool:
        """Return whether a user is a member, in the state or hypothetically."""
        return (user == self.user and key in self.member_of) or super().is_member(user, key)


class Caller(EvaluationContext):
    """The evaluation context of one user for any objects: call `about`, then `holds` or `why`."""

    def __init__(
        self,
        reference: Reference,
        user: str,
        *,
        groups: Collection[str] = (),
        flags: frozenset[str] = frozenset(),
        active_roles: Collection[str] | None = None,
        attributes: GivenAttributes = GivenAttributes.NONE,
    ) -> None:  # not EvaluationContext.__init__: there is no request yet
        self.program = reference.program
        self.vocabulary = reference.vocabulary
        self.hypothetical = HypotheticalHoldings(reference.holdings, user)
        self.holdings = self.hypothetical
        self.revision = reference.revision
        self.user = user
        self.flags = flags
        self.attributes = attributes
        request_groups = groups if "request" in self.program.semantics.groups else ()
        self.request_groups = frozenset(request_groups)
        self.principals, self.scoped, self.roles, self.groups = self.holdings.of_user(user, request_groups)
        self.narrow(active_roles, request_groups)
        self._own: Any = None
        """The principals, roles and groups that the caller has in the state, once they have gained more."""
        self.about({})

    def check_active_roles(self) -> None:
        """Raise InvalidRequest if the caller does not hold an active role."""
        if (error := self.unheld_error()) is not None:
            raise InvalidRequest(error["message"])

    @classmethod
    def of_principal(cls, reference: Reference, principal: str, *, flags: frozenset[str] = frozenset()) -> Caller:
        """A nameless caller who is only in one group (`group:hr`) or only holds one role (`role:analyst`)."""
        caller = cls(reference, "", flags=flags)
        caller.principals, caller.scoped, caller.roles = reference.holdings.of_principal(principal)
        kind, _, name = principal.partition(":")
        caller.request_groups = frozenset({name}) if kind == "group" else frozenset()
        caller.groups = reference.holdings.above(caller.request_groups)
        return caller

    def gain(self, roles: Iterable[tuple[str, str | None]], groups: Iterable[str], *, denials: bool) -> None:
        """Let the caller also hold some roles, each within a scope, and be in some groups; replaces what was gained before.

        `denials`: whether denials to the gained roles and groups also count.
        """
        if self._own is None:
            self._own = (self.principals, self.scoped, self.roles, self.groups, self.active)
        everywhere, scoped = set[str](), set[tuple[str, str]]()
        names, joined = set[str](), set[str]()
        for group in groups:
            principals, within, held = self.holdings.of_principal(f"group:{group}")
            everywhere |= principals
            scoped.update(within)
            names |= held
            joined |= self.holdings.above([group])
        for name, scope in (pair for role, within_ in roles for pair in self.holdings.held_with(role, within_)):
            names.add(name)
            if scope is None:
                everywhere.add(f"role:{name}")
            else:
                scoped.add((f"role:{name}", scope))
        own, own_scoped, own_roles, own_groups, active = self._own
        self.roles, self.groups = own_roles | names, own_groups | joined
        own_active, own_active_scoped = active or (own, own_scoped)
        self.active = (own_active | everywhere, (*own_active_scoped, *sorted(scoped)))
        if denials:
            self.principals, self.scoped = own | everywhere, (*own_scoped, *sorted(scoped))
        else:
            self.principals, self.scoped = own, own_scoped

    def about(self, objects: Mapping[str, Entity]) -> Caller:
        """Set the objects, by slot; an object may lack its last name."""
        self.given = self.given_of(objects)
        self.types = {slot: entity.type for slot, entity in objects.items()}
        self.complete = {slot for slot, entity in objects.items() if self.vocabulary.complete(entity)}
        self.locate(objects)
        return self


class EquivalenceClasses:
    """Groups entities on which one caller has the same rights.

    Two entities are equivalent if they have the same type and the same nearest entity, on their path, that a row about
    the caller names: below it every atom gets its value from above, so an entity's own name makes no difference.
    Entities of principal types are never equivalent, because conditions compare their names.
    """

    def __init__(self, caller: Caller, state: State, universe: Universe) -> None:
        self._shapes = caller.vocabulary.shapes
        self._where = caller.holdings.locations
        self._asks_below = Feature.BELOW.used_by(caller.program)
        self._state = state
        self.named_paths = {scope.partition(":")[2] for _, scope in caller.scoped}
        self.named_paths |= self._paths("members", "user", "of", {caller.user})
        self.named_paths |= self._paths_of(caller.principals | {role for role, _ in caller.scoped})
        for type_ in caller.program.entities.values():
            if type_.principal is not None:
                self.named_paths |= set(universe.by_type[type_.name])
        # An entity with attributes is a class of its own; what lies below it has the same attributes above.
        self.named_paths |= {key.partition(":")[2] for key in state.column("attributes", "entity").names}
        for path in tuple(self.named_paths):
            self.name(path)

    def _paths_of(self, principals: Collection[str]) -> set[str]:
        owned = self._paths("owners", "owner", "entity", principals)
        return owned | self._paths("grants", "grantee", "entity", principals)

    def _paths(self, table: str, principal_column: str, entity_column: str, values: Collection[str]) -> set[str]:
        keys = self._state.column(table, entity_column).take(self._state.column(table, principal_column).where(values))
        return {above.partition(":")[2] for key in keys if key is not None for above in self.around(key)}

    def include(self, principals: Collection[str]) -> None:
        """Take note that the caller has some more principals."""
        for path in self._paths_of(principals):
            self.name(path)

    def around(self, key: str) -> Sequence[str]:
        """The entity of a row and, with `or below`, its containers, where only the state tells them."""
        entity = Entity.parse(key)
        if self._asks_below and self._shapes[entity.type].flat is not None:
            return self._where.find(entity) or ()
        return (key,)

    def name(self, path: str) -> None:
        """Take note that a row about the caller names an entity; with `or below`, the row concerns all that contain it."""
        self.named_paths.add(path)
        while self._asks_below and (path := path.rpartition("/")[0]):
            self.named_paths.add(path)

    def of(self, entity: Entity) -> tuple[str, str]:
        """The class of an entity: its type, with levels if one nests, and the path of the nearest entity that a row about the caller names."""
        if entity.type in self._shapes and self._shapes[entity.type].flat is not None:
            keys = self._where.keys(entity)
            near = next((key for key in reversed(keys) if key.partition(":")[2] in self.named_paths), "")
            return f"{entity.type} {len(keys)}", near
        path = entity.id
        while path and path not in self.named_paths:
            path = path.rpartition("/")[0]
        shape = self._shapes.get(entity.type)  # the root has no type
        if shape is None or shape.nested is None:
            return entity.type, path
        return f"{entity.type}/{shape.levels(entity.id)}", path


def asked_forms(program: Program, rule: Rule) -> tuple[bool, ...]:
    """The forms of the requests for a rule: with the last name of the resource (True), without it (False), or both.

    They are all that `Vocabulary.check` accepts, but for one with the name of what is created for sure: its answer is that without the name.
    """
    if not program.unnamed(rule):
        return (True,)
    nodes = walk_reached(program, rule.item_condition) if program.entities[rule.entity].nested else ()
    targets = (target for node in nodes if isinstance(node, OnTarget | Compare | Can) for target in node.targets)
    depends_on_name = rule.each is not None or any(
        target.type == rule.entity and target.level in ("first", "any") for target in targets
    )
    return (True, False) if rule.creates != "surely" or depends_on_name else (False,)


def listing(context: EvaluationContext, rule: Rule, condition: Formula) -> Listing:
    """The minimal sets of a rule's condition for a request, as atoms about its entities.

    If not all are listed, one that the caller holds comes first, if there is any.
    """
    form = canonical_form(context.program)
    types = {slot.name: context.types.get(slot.name, LEFT_OUT) for slot in rule.withs}
    found = minimal_listing(form, condition, context.flags, types)
    if not found.complete and not any(all(map(context.holds, atoms)) for atoms in found.sets):
        sufficient = _SufficientAtoms(context).fold(condition)
        found = minimal_listing(form, condition, context.flags, types, sufficient=sufficient)
    return found._replace(sets=form.located(found.sets, context.levels))


class _SufficientAtoms(RequestAlgebra["frozenset[Leaf] | None"]):
    """Atoms that the caller holds and that suffice for a condition; None if they do not hold enough."""

    def __init__(self, context: EvaluationContext) -> None:
        super().__init__(context.program, context.flags, context.types)
        self._context = context

    def atom(self, atom: Atom) -> frozenset[Leaf] | None:
        """See `Algebra.atom`."""
        return frozenset((atom,)) if self._context.holds(atom) else None

    def all_of(self, values: Iterable[frozenset[Leaf] | None]) -> frozenset[Leaf] | None:
        """See `Algebra.all_of`."""
        atoms: set[Leaf] = set()
        for value in values:
            if value is None:
                return None
            atoms |= value
        return frozenset(atoms)

    def any_of(self, values: Iterable[frozenset[Leaf] | None]) -> frozenset[Leaf] | None:
        """See `Algebra.any_of`."""
        return next((value for value in values if value is not None), None)
