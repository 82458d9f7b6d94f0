"""The subjects of a difference, and for which of them a condition holds in one of the states."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, islice, product
from typing import TypeAlias

from privtab.analysis.caller import Caller
from privtab.analysis.principal_sets import PrincipalSets, UserSets
from privtab.attributes import NONE_GIVEN, Attribute, AttributeKind, GivenAttributes, Value
from privtab.entitlements.universe import USERS, named_principals
from privtab.ir.comparisons import representatives
from privtab.ir.formula import asked_condition, compared_terms, leaves
from privtab.ir.nodes import RESOURCE, Atom, Compare, Formula, Program, Rule, ServiceAdmin, Term
from privtab.ir.serialise import vocabulary
from privtab.paths import PathShape
from privtab.reference.evaluate import EvaluationContext, Reference
from privtab.request import Entity
from privtab.state.attribute_rows import value_of
from privtab.state.chains import GROUP
from privtab.state.names import UsedParts, uses
from privtab.state.nodes import State

Variable: TypeAlias = tuple[AttributeKind, str, str]
"""An attribute whose value a request gives: the key of its entity, or nothing, and its name."""


class GivenValues:
    """The values that requests can give the attributes that a condition compares."""

    def __init__(self, program: Program, condition: Formula, states: Sequence[State]) -> None:
        self.program = program
        self._states = states
        self._compares = tuple(dict.fromkeys(atom for atom in leaves(program, condition) if isinstance(atom, Compare)))
        self._terms = tuple(dict.fromkeys(term for compare in self._compares for term in compare.terms))
        self._types = {term: type_ for term in self._terms if (type_ := program.attribute(term)) is not None}
        self._pool: set[str | int | bool] | None = None
        self.of_entities = any("request" in type_.origins and term.target for term, type_ in self._types.items())
        """Whether requests give attributes of the objects."""

    def __bool__(self) -> bool:
        """Whether requests give any."""
        return any("request" in type_.origins for type_ in self._types.values())

    def all(self, context: EvaluationContext, objects: Mapping[str, Entity]) -> Iterator[GivenAttributes]:
        """The values to look at, fewest first. `context`: one about the objects."""
        choices = {variable: self._choices(type_) for variable, type_ in self._variables(context, objects).items()}
        for size in range(len(choices) + 1):
            for chosen in combinations(choices, size):
                for values in product(*(choices[variable] for variable in chosen)):
                    yield _given(dict(zip(chosen, values, strict=True)), objects)

    def _variables(self, context: EvaluationContext, objects: Mapping[str, Entity]) -> dict[Variable, Attribute]:
        keys = {str(entity) for entity in objects.values()}
        found: dict[Variable, Attribute] = {}
        for term, type_ in self._types.items():
            if "request" not in type_.origins:
                continue
            path = () if term.target is None else context.path(term.target)
            if term.target is None or (path and path[-1] in keys):
                found[term.kind, path[-1] if path else "", term.attribute] = type_
        return found

    def _choices(self, type_: Attribute) -> list[Value]:
        if type_.type == "set":  # an empty one is like none
            sizes = range(1, len(type_.values) + 1)
            return [list(words) for size in sizes for words in combinations(type_.values, size)]
        if self._pool is None:
            self._pool = {*self._constants(), *(value for term in self._terms for value in self._of_states(term))}
        return [*representatives(type_, self._pool, self._types.values())]

    def _constants(self) -> Iterator[str | int | bool]:
        for compare in self._compares:
            yield from () if isinstance(compare.right, Term) else compare.right

    def _of_states(self, term: Term) -> Iterator[str | int | bool]:
        """The values that the states have for an attribute, of anyone."""
        type_ = self._types.get(term)
        if type_ is None or term.kind == "request" or type_.type == "set":
            return
        for state in self._states:
            rows = state.column("attributes", "attribute").where([term.attribute])
            for text in set(state.column("attributes", "value").take(rows)):
                value = value_of(type_, [str(text)])
                if isinstance(value, str | int):
                    yield value


def _given(values: Mapping[Variable, Value], objects: Mapping[str, Entity]) -> GivenAttributes:
    def of(kind: AttributeKind, key: str = "") -> dict[str, Value]:
        return {name: value for (of_kind, on, name), value in values.items() if (of_kind, on) == (kind, key)}

    with_ = {
        slot: found for slot, entity in objects.items() if slot != RESOURCE and (found := of("entity", str(entity)))
    }
    return GivenAttributes(
        user=of("user"), entity=of("entity", str(objects[RESOURCE])), request=of("request"), with_=with_
    )


PRINCIPAL_COLUMN = {"grants": "grantee", "owners": "owner"}
"""The column of the principal in the tables of what is held on entities."""
Subject = str
"""`user:alice`; `group:hr` for a nameless user whose request says that they are in this group."""
ANY_OTHER: Subject = "user:*"
"""A user whom neither state names, who is affected by attributes of entities."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """An operation on an entity, with `with` objects of given types and with given flags."""

    rule: Rule
    unnamed: bool
    flags: frozenset[str]
    condition: Formula
    shape: PathShape
    given: GivenValues
    """The values that its request can give attributes."""

    @classmethod
    def of(
        cls, program: Program, rule: Rule, flags: Iterable[str], states: Sequence[State], *, unnamed: bool
    ) -> Question:
        """The question for a rule."""
        condition = asked_condition(program, rule, named=not unnamed)
        return cls(
            rule=rule,
            unnamed=unnamed,
            flags=frozenset(flags),
            condition=condition,
            shape=vocabulary(program).shapes[rule.entity],
            given=GivenValues(program, condition, states),
        )

    def requested(self, entity: Entity) -> Entity | None:
        """The resource of the request about an entity; None if it lies too deep."""
        id_ = self.shape.unnamed_in(entity.type, entity.id) if self.unnamed else entity.id
        return None if id_ is None else Entity(self.rule.entity, id_)

    def objects(self, classes: Mapping[str, Entity]) -> dict[str, Entity]:
        """The objects of the request by slot, of which the resource does not lie too deep."""
        resource = self.requested(classes[RESOURCE])
        assert resource is not None
        return {**classes, RESOURCE: resource}


@dataclass(frozen=True, slots=True)
class Holding:
    """What a subject holds: principals everywhere, roles within scopes, the names of roles and of groups."""

    principals: frozenset[str]
    scoped: tuple[tuple[str, str], ...]
    roles: frozenset[str]
    groups: frozenset[str]

    @property
    def everything(self) -> frozenset[str]:
        """All principals, wherever they count."""
        return self.principals | {role for role, _ in self.scoped}


class Side:
    """One of the two states."""

    def __init__(self, program: Program, state: State, used: UsedParts | None = None) -> None:
        self.program = program
        self.state = state
        self.uses: UsedParts = used or uses(program)
        self.reference = Reference(program, state)
        self.holdings = self.reference.holdings
        self._users = UserSets(Caller(self.reference, ""), state)
        self._known: dict[Subject, Holding] = {}

    def holding(self, subject: Subject) -> Holding:
        """What a subject holds."""
        found = self._known.get(subject)
        if found is None:
            holdings = self.holdings
            kind, _, name = subject.partition(":")
            if kind == "group":
                principals, scoped, roles = holdings.of_principal(subject)
                found = Holding(principals, scoped, roles, holdings.above([name]))
            else:
                found = Holding(*holdings.of_user(name))
            self._known[subject] = found
        return found

    def places(self, key: str) -> bool:
        """Whether the state tells where an entity lies."""
        return self.holdings.locations.find(Entity.parse(key)) is not None

    def bearers(self, principal: str) -> set[Subject]:
        """Every subject that a principal stands for, everywhere or within a scope."""
        users = set(self._users.unscoped_bearers(principal))
        groups = self._users.groups_in(principal) if principal.startswith("group:") else set()
        if principal.startswith("role:"):
            for _, found in self._users.scoped(principal):
                users |= found
            holders = {holder for holder, _ in self._users.assigned(principal) if holder.startswith("group:")}
            groups = {group for holder in holders for group in self._users.groups_in(holder)}
        return {f"user:{user}" for user in users} | (groups if self.uses.request_groups else set())

    def everyone(self) -> set[Subject]:
        """Every subject that the state names, and a user whom it does not name."""
        principals = named_principals(self.state)
        found = {principal for principal in principals if principal.startswith("user:")}
        found |= {f"user:{user}" for user in self.state.distinct(*USERS) if not user.startswith(GROUP)}
        if self.uses.request_groups:
            found |= {principal for principal in principals if principal.startswith(GROUP)}
            found |= {f"{GROUP}{group}" for group in self.state.distinct(("memberships", "group"))}
        return found | {ANY_OTHER}

    @cached_property
    def compared_entities(self) -> set[str]:
        """The entities with attributes that conditions compare."""
        names = {term.attribute for term in compared_terms(self.program) if term.kind == "entity"}
        rows = self.state.column("attributes", "attribute").where(names)
        return {key for key in self.state.column("attributes", "entity").take(rows) if key is not None}

    def containers(self, principal: str) -> Iterable[str]:
        """The groups that a principal is in and the roles that it holds, by single rows."""
        return self._users.containers(principal)

    def keys(self, principals: Collection[str]) -> set[str]:
        """Every entity on which some of the principals have a grant, a denial or ownership."""
        found: set[str] = set()
        for table, principal_column in PRINCIPAL_COLUMN.items():
            rows = self.state.column(table, principal_column).where(principals)
            found.update(key for key in self.state.column(table, "entity").take(rows) if key is not None)
        return found

    def memberships_of(self, users: Collection[str]) -> set[str]:
        """Every entity under which `members` has some of the users."""
        rows = self.state.column("members", "user").where(users)
        return {key for key in self.state.column("members", "of").take(rows) if key is not None}


class SubjectSets(PrincipalSets):
    """For some subjects, those for whom a condition holds; computed for many questions."""

    def __init__(self, side: Side, subjects: Collection[Subject]) -> None:
        self._caller = Caller(side.reference, "")
        super().__init__(self._caller, side.state)
        self._subjects = frozenset(subjects)
        self._users = [subject[5:] for subject in subjects if subject.startswith("user:")]
        self._everywhere: dict[str, set[str]] = {}
        self._scoped: dict[str, dict[str, set[str]]] = {}
        self._roles: set[str] = set()
        self._groups: set[str] = set()
        self._united: dict[frozenset[str], set[str]] = {}
        self._objects: Mapping[str, Entity] = {}
        self._above: dict[tuple[type[Atom], str, str], set[str] | None] = {}
        for subject in subjects:
            holding = side.holding(subject)
            for principal in holding.principals:
                self._everywhere.setdefault(principal, set()).add(subject)
            for role, scope in holding.scoped:
                self._scoped.setdefault(role, {}).setdefault(scope, set()).add(subject)
            self._roles |= holding.roles
            self._groups |= holding.groups

    def given(self, question: Question, objects: Mapping[str, Entity], most: int) -> list[GivenAttributes]:
        """The values that requests can give, as `GivenValues.all`; at most so many and one more."""
        if not question.given:
            return [NONE_GIVEN]
        requested = question.objects(objects)
        self._objects = {}
        return list(islice(question.given.all(self._caller.about(requested), requested), most + 1))

    def allowed(
        self, question: Question, objects: Mapping[str, Entity], given: GivenAttributes = NONE_GIVEN
    ) -> frozenset[Subject]:
        """The subjects that may do what is asked. `objects`: the entities by slot, of which the resource does not lie too deep."""
        now = question.objects(objects)
        same = now == self._objects and given == self._caller.attributes
        if not same:
            self._caller.attributes = given
            self._caller.about(now)
            self._objects = now
            self.types, self.levels = self._caller.types, self._caller.levels
            self._bearers_of.clear()
        if not same or self.flags != question.flags:
            self.flags = question.flags
            self._referred.clear()
        if self._caller.unplaced:
            return frozenset()
        found = self.fold(question.condition)
        return self._subjects if found is None else self._subjects & found

    def unscoped_bearers(self, principal: str) -> set[str]:
        """The subjects that have a principal everywhere."""
        return self._everywhere.get(principal, set())

    def scoped(self, role: str) -> Iterable[tuple[str, set[str]]]:
        """Pairs of a scope's key and the subjects that hold the role within it."""
        return self._scoped.get(role, {}).items()

    def user_bearer(self, user: str) -> str:
        """The subject of a user."""
        return f"user:{user}"

    def group_names(self) -> Iterable[str]:
        """The groups of the subjects."""
        return self._groups

    def role_names(self) -> Iterable[str]:
        """The roles of the subjects."""
        return self._roles

    def member_bearers(self, key: str) -> set[str]:
        """The subjects that `members` has under an entity."""
        return {f"user:{user}" for user in self._users if self.holdings.is_member(user, key)}

    def _atom(self, atom: Atom) -> set[str] | None:
        """As in the base class; once for an entity that contains others, and the same privilege."""
        if isinstance(atom, ServiceAdmin | Compare):
            return super()._atom(atom)
        path = self._caller.path(atom.target)
        if not path or path[-1] == self._caller.keys[atom.target.slot][-1]:
            return super()._atom(atom)
        key = type(atom), getattr(atom, "privilege", ""), path[-1]
        if key not in self._above:
            self._above[key] = super()._atom(atom)
        return self._above[key]

    def _any(self, principals: Iterable[str]) -> set[str]:
        """As in the base class; once for the grantees of an entity, of which there may be thousands."""
        if not isinstance(principals, frozenset):
            return super()._any(principals)
        found = self._united.get(principals)
        if found is None:
            found = self._united[principals] = super()._any(principals & self._everywhere.keys())
        return found

    def _bearers_within(self, principals: Iterable[str], path: tuple[str, ...]) -> set[str]:
        if not self._scoped:
            return self._any(principals)
        found = set(self._any(principals))
        for role in self._scoped.keys() & principals:
            for scope, subjects in self._scoped[role].items():
                if scope in path:
                    found |= subjects
        return found
