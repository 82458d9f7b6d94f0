"""Turn facts into a named request and the smallest state in which its caller has them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, assert_never

from privtab.base import LEFT_OUT, Entity, GivenAttributes, Request, base_type, level_of
from privtab.ir import EVERYONE, RESOURCE, Fact, FactSemantics, Program, Rule, Target, Term
from privtab.state import Assignment, AttributeRow, Grant, Placement, State, attribute_texts

GROUP, REQUEST_GROUP = "team", "guests"
"""Names of the group in the state and of the group that a request brings."""
Carrier: TypeAlias = str
"""The way in which a row applies to the caller; see `Fact`."""


class WitnessBuilder:
    """Names the caller and the objects of one request of a rule.

    Example:
        built = WitnessBuilder(program, rule, facts=facts)
        request, state = built.request(), built.state()
    """

    def __init__(
        self,
        program: Program,
        rule: Rule,
        types: Mapping[str, str] | None = None,
        facts: frozenset[Fact] = frozenset(),
        *,
        values: Mapping[Term, Any] = MappingProxyType({}),
        user: str = "alice",
        unnamed: bool = False,
        slash: bool = False,
        separate_ancestors: bool = True,
    ) -> None:
        """`types`: the type of each `with` object that allows several. `facts`: the facts that the state must have.

        `values`: those of attributes under which the comparisons among the facts hold.

        `unnamed`: the request omits the last name of the resource, `slash`: and its path ends with `/`. `separate_ancestors`: objects of different slots share
        no ancestor; otherwise ancestors of one type are the same entity, which reads better if the facts allow it.
        """
        self.program = program
        self.rule = rule
        self.facts = facts
        self.values = values
        self.user = user
        self.unnamed = unnamed
        self.slash = slash
        self.separate_ancestors = separate_ancestors
        self.types = {
            RESOURCE: rule.entity,
            **{slot.name: (types or {}).get(slot.name, slot.types[0]) for slot in rule.withs},
        }
        self._role = _fresh("crew", program.roles)

    def request(self, flags: frozenset[str] = frozenset()) -> Request:
        """The request of the caller."""
        resource = self.entity(Target(slot=RESOURCE, type=self.rule.entity))
        if self.unnamed:
            parent = self.program.entities[self.rule.entity].parent
            if self.program.entities[self.rule.entity].flat and parent is not None:
                resource = Entity(resource.type, f"{self.entity(Target(slot=RESOURCE, type=parent))}/")
            else:
                resource = Entity(resource.type, resource.id.rpartition("/")[0] + ("/" if self.slash else ""))
        in_request_group = "from_request" in self._carriers()
        return Request(
            user=self.user,
            action=self.rule.operation,
            resource=resource,
            groups=(REQUEST_GROUP,) if in_request_group else (),
            with_={
                slot: self.entity(Target(slot=slot, type=type_))
                for slot, type_ in self.types.items()
                if slot != RESOURCE and type_ != LEFT_OUT
            },
            flags=flags,
            attributes=self._given(),
        )

    def _given(self) -> GivenAttributes:
        """The values that only the request can give."""
        found: dict[str, dict[str, Any]] = {}
        for term, value in self.values.items():
            if not self.is_in_state(term):
                slot = term.kind if term.target is None else f"with {term.target.slot}"
                found.setdefault(slot, {})[term.attribute] = value
        return GivenAttributes(
            user=found.get("user", {}),
            request=found.get("request", {}),
            entity=found.get(f"with {RESOURCE}", {}),
            with_={slot: found[f"with {slot}"] for slot in self.types if slot != RESOURCE and f"with {slot}" in found},
        )

    def is_in_state(self, term: Term) -> bool:
        """Return whether the state gives the value of an attribute."""
        declared = self.program.attribute(term)
        return declared is not None and "state" in declared.origins

    def _attribute_rows(self) -> Iterator[AttributeRow]:
        for term, value in self.values.items():
            if self.is_in_state(term):
                entity = None if term.target is None else self.entity(term.target)
                for text in attribute_texts(value):
                    user = self.user if entity is None else None
                    yield AttributeRow(user=user, entity=entity, attribute=term.attribute, value=text)

    def entity(self, target: Target) -> Entity:
        """The entity that a target stands for."""
        return self._entity(self.program, target.type, self.path_names(target))

    def path_names(self, target: Target) -> list[str]:
        """The names on the path of a target, from the root down."""
        return [
            self._name(Target(slot=target.slot, type=type_))
            for type_ in self.program.chain(target.type)
            if not self.program.entities[type_].single
        ]

    @staticmethod
    def _entity(program: Program, type_: str, names: Sequence[str]) -> Entity:
        """The entity with these names on its path; its id begins with the last name that is an id on its own."""
        flat = [link for link in program.chain(type_) if program.entities[link].flat]
        first = program.depth(flat[-1]) - 1 if flat else 0
        return Entity(base_type(type_), "/".join(names[first:]))

    def _placements(self) -> Iterator[Placement]:
        """The places of the entities with flat ids that the request is about, or that lie below such an entity."""
        for slot, type_ in self.types.items():
            if type_ == LEFT_OUT:
                continue
            unnamed = slot == RESOURCE and self.unnamed
            names = self.path_names(Target(slot=slot, type=type_))
            yield from self._placed(type_, names[:-1] if unnamed else names)
        for fact in self.facts:
            if fact.kind == "grant below":
                yield from self._placed(*self._names_elsewhere(fact.target, fact.privilege))
            elif fact.kind == "owner below":
                yield from self._placed(*self._names_elsewhere(fact.target))

    def _placed(self, type_: str, names: Sequence[str]) -> Iterator[Placement]:
        """The places of what has a flat id on a path with these names."""
        chain = self.program.chain(type_)
        for parent, link in pairwise(chain):
            depth = self.program.depth(link)
            if self.program.entities[link].flat and depth <= len(names):
                around = self._entity(self.program, parent, names[: self.program.depth(parent)])
                yield Placement(entity=self._entity(self.program, link, names[:depth]), parent=around)

    @cached_property
    def _semantics(self) -> FactSemantics:
        return FactSemantics(self.program)

    def _names_elsewhere(self, target: Target, privilege: str | None = None) -> tuple[str, list[str]]:
        """The type of an entity strictly below a target, none of the request's, where a privilege can be granted; and the names on its path."""
        type_ = self._semantics.elsewhere(target, privilege)[0]
        inside = self.program.chain(type_)[len(self.program.chain(target.type)) :]
        names = [f"other_{base_type(t)}" for t in inside if not self.program.entities[t].single]
        return type_, [*self.path_names(target), *names]

    def _name(self, target: Target) -> str:
        """The name of one entity: the caller's or their group's if the facts say so, otherwise one made from its type."""
        if any(fact.kind == "caller" and fact.target == target for fact in self.facts):
            return self.user
        for fact in self.facts:
            if fact.kind == "member" and fact.target == target and fact.carrier is not None:
                return _group(fact.carrier)
        is_object = target.type == self.types[target.slot]
        is_first = target.slot == RESOURCE or (not self.separate_ancestors and not is_object)
        number = 1 if is_first else 1 + list(self.types).index(target.slot)
        type_ = base_type(target.type)
        above = self.program.entities[target.type].parent
        level = f"_{level_of(target.type)}" if above is not None and base_type(above) == type_ else ""
        return _fresh(f"{type_}{number}{level}", self.program.roles)

    def state(self) -> State:
        """The smallest state with the facts."""
        rows = [self._rows(fact) for fact in sorted(self.facts, key=repr)]
        further = State(attributes=tuple(self._attribute_rows()), entities=tuple(self._placements()))
        return State.merged((*rows, further))

    def _rows(self, fact: Fact) -> State:
        match fact.kind:
            case "grant":
                return self._grant(fact.effect, fact.name, self.entity(fact.target), fact.carrier)
            case "owner" if fact.owner == "role":
                owners = ((self.entity(fact.target), f"role:{self._role}"),)
                return State.merged((State(owners=owners), self._assigned(self._role, fact.carrier)))
            case "owner":
                owner = (self.entity(fact.target), self._principal(fact.carrier))
                return State(owners=(owner,), memberships=self._memberships(fact.carrier))
            case "member" if fact.carrier is None:
                return State(members=((self.user, self.entity(fact.target)),))
            case "member":
                return State(memberships=self._memberships(fact.carrier or ""))
            case "assignment":
                return self._assigned(fact.role, fact.carrier, None if fact.scope is None else self.entity(fact.scope))
            case "role":
                return self._assigned(self.entity(fact.target).id.rpartition("/")[2], fact.carrier)
            case "caller" | "comparison":
                return State()
            case "administrator":
                return State(service_admins=(self.user,))
            case "grant below":
                return State.merged(self._granted_below(fact.privilege, fact.target))
            case "owner below":
                place = self._entity(self.program, *self._names_elsewhere(fact.target))
                return State(owners=((place, f"user:{self.user}"),))
            case _:
                assert_never(fact.kind)

    def _granted_below(self, privilege: str, target: Target) -> Iterator[State]:
        """A grant somewhere below a target, and denials of what it implies, unless that is held there as well."""
        type_, names = self._names_elsewhere(target, privilege)
        place = self._entity(self.program, type_, names)
        yield self._grant("allow", privilege, place, "user")
        for implied in self.program.privileges[privilege].implies if self._semantics.denies else ():
            denied = self._semantics.privileges_of(implied, type_, "deny")
            also = any(f.kind == "grant below" and (f.privilege, f.target) == (implied, target) for f in self.facts)
            if denied and privilege not in denied and not also:
                yield self._grant("deny", implied, place, "user")

    def _grant(self, effect: Literal["allow", "deny"], privilege: str, entity: Entity, carrier: Carrier) -> State:
        """A grant to the caller or their group; to a role that these hold, or to the other of both, where the policy refuses other grantees."""
        holder = self._grant_holder(carrier)
        if holder is None:
            role = _fresh("staff" if carrier == "user" else "crew_of_group", self.program.roles)
            grantee, held = f"role:{role}", self._assigned(role, carrier)
        else:
            grantee, held = self._principal(holder), State(memberships=self._memberships(holder))
        grant = Grant(grantee=grantee, effect=effect, privilege=privilege, entity=entity)
        return State.merged((State(grants=(grant,)), held))

    def _assigned(self, role: str, carrier: Carrier, scope: Entity | None = None) -> State:
        """A role of the caller or their group; of the other of both, where the policy refuses to assign roles to one."""
        holder = self._holder(carrier, self.assignees) or carrier
        assignment = Assignment(principal=self._principal(holder), role=role, scope=scope)
        return State(assignments=(assignment,), memberships=self._memberships(holder))

    def _grant_holder(self, carrier: Carrier) -> Carrier | None:
        """As `_holder`, of grants; None for a role that these hold."""
        holder = self._holder(carrier, self.grantees)
        return holder if holder == carrier or "role" not in self.grantees else None

    def _holder(self, carrier: Carrier, kinds: Collection[str]) -> Carrier | None:
        """The caller or a group of theirs, whichever of `kinds` is; None if neither."""
        if ("user" if carrier == "user" else "group") in kinds:
            return carrier
        if carrier != "user":
            return "user" if "user" in kinds else None
        return None if "group" not in kinds else "group" if "state" in self.program.semantics.groups else "from_request"

    def _carriers(self) -> Iterator[Carrier]:
        """Through whom the facts apply to the caller, and who holds the grants and roles that they take."""
        for carrier in (getattr(fact, "carrier", None) for fact in self.facts):
            if carrier is not None:
                yield from filter(None, (carrier, self._grant_holder(carrier), self._holder(carrier, self.assignees)))

    @property
    def grantees(self) -> Collection[str]:
        """The kinds of principals that grants may be to."""
        return self.program.semantics.grantees

    @property
    def assignees(self) -> Collection[str]:
        """The kinds of principals that roles may be assigned to."""
        return self.program.semantics.assignees

    def _principal(self, carrier: Carrier) -> str:
        return f"user:{self.user}" if carrier == "user" else f"group:{_group(carrier)}"

    def _memberships(self, carrier: Carrier) -> tuple[tuple[str, str], ...]:
        return ((self.user, GROUP),) if carrier == "group" else ()

    def tables(self) -> dict[str, list[dict[str, str]]]:
        """The state as rows of its tables, without empty tables."""
        return {name: rows for name, rows in self.state().to_tables().items() if rows}


def _group(carrier: Carrier) -> str:
    """The name of the group through which a fact applies to the caller."""
    return {"group": GROUP, "from_request": REQUEST_GROUP}.get(carrier) or carrier.removeprefix(EVERYONE)


def _fresh(name: str, taken: Mapping[str, object]) -> str:
    while name in taken:
        name += "_"
    return name
