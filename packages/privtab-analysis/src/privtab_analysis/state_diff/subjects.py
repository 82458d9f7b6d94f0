"""The subjects of a difference, and for which of them a condition holds in one of the states."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from itertools import combinations, islice, product
from typing import Any, TypeAlias

from privtab.base import Attribute, Entity, GivenAttributes, Request, Vocabulary, dataclass
from privtab.ir import (
    RESOURCE,
    Compare,
    Formula,
    Has,
    HasBelow,
    Or,
    Program,
    Rule,
    Term,
    asked_condition,
    compared_terms,
    reached_atoms,
    vocabulary,
)
from privtab.reference import EvaluationContext, Reference
from privtab.state import GROUP_PREFIX, State, UsedParts, attribute_parts
from privtab_analysis.caller import Caller
from privtab_analysis.entitlements.equivalence import EntityEquivalence
from privtab_analysis.entitlements.evaluator import Evaluator
from privtab_analysis.entitlements.holders import USER, UserHolders
from privtab_analysis.entitlements.subjects import Subject as EntitledSubject
from privtab_analysis.entitlements.subjects import Subjects, held, program_forms
from privtab_analysis.entitlements.universe import USERS, named_principals

Variable: TypeAlias = tuple[str, str, str]
"""An attribute whose value a request gives: the key of its entity, or nothing, and its name."""


class GivenValues:
    """The values that requests can give the attributes that a condition compares."""

    def __init__(self, program: Program, condition: Formula, states: Sequence[State]) -> None:
        self.program = program
        self._states = states
        self._compares = tuple(
            dict.fromkeys(atom for atom in reached_atoms(program, condition) if isinstance(atom, Compare))
        )
        self._terms = tuple(dict.fromkeys(term for compare in self._compares for term in compare.terms))
        self._types = {term: type_ for term in self._terms if (type_ := program.attribute(term)) is not None}
        self._pool: set[str | int | bool] | None = None
        self.of_entities = any("request" in type_.origins and term.target for term, type_ in self._types.items())
        """True if requests give attributes of the objects."""

    def __bool__(self) -> bool:
        """True if requests give any attributes."""
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

    def _choices(self, type_: Attribute) -> list[object]:
        if type_.type == "set":  # an empty one is like none
            sizes = range(1, len(type_.values) + 1)
            return [list(words) for size in sizes for words in combinations(type_.values, size)]
        if self._pool is None:
            self._pool = {*self._constants(), *(value for term in self._terms for value in self._of_states(term))}
        return [*type_.representatives(self._pool, self._types.values())]

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
                value = type_.read(str(text))
                if isinstance(value, str | int):
                    yield value


def _given(values: Mapping[Variable, object], objects: Mapping[str, Entity]) -> GivenAttributes:
    def of(kind: str, key: str = "") -> dict[str, object]:
        return {name: value for (of_kind, on, name), value in values.items() if (of_kind, on) == (kind, key)}

    with_ = {
        slot: found for slot, entity in objects.items() if slot != RESOURCE and (found := of("entity", str(entity)))
    }
    return GivenAttributes(
        user=of("user"), entity=of("entity", str(objects[RESOURCE])), request=of("request"), with_=with_
    )


PRINCIPAL_COLUMN = {"grants": "grantee", "owners": "owner"}
"""The column of the principal in the tables of rights on entities."""
Subject = str
"""`user:alice`; `group:hr` for a nameless user whose request says that they are in this group."""
ANY_OTHER: Subject = "user:*"
"""A user whom neither state names: attributes of entities concern them, and the rights of a group of everyone."""


def asking(subject: Subject) -> tuple[str, tuple[str, ...]]:
    """The user whom requests of a subject name, and their groups."""
    kind, _, name = subject.partition(":")
    return (name, ()) if kind == "user" else ("", (name,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """An operation on an entity, with `with` objects of given types and with given flags."""

    rule: Rule
    unnamed: bool
    flags: frozenset[str]
    condition: Formula
    before: tuple[Formula, ...]
    """For a row filter or column mask: the conditions of the filters or masks that are tried earlier."""
    vocabulary: Vocabulary
    given: GivenValues
    """The values that its request can give attributes."""
    privileges: frozenset[str]
    """The privileges that the conditions name."""

    @classmethod
    def of(
        cls, program: Program, rule: Rule, flags: Iterable[str], states: Sequence[State], *, unnamed: bool
    ) -> Question:
        """The question for a rule."""
        tried = (rule, *program.earlier(rule.entity, rule.operation))
        condition, *before = (asked_condition(program, one, named=not unnamed) for one in tried)
        whole = Or(parts=(condition, *before))
        return cls(
            rule=rule,
            unnamed=unnamed,
            flags=frozenset(flags),
            condition=condition,
            before=tuple(before),
            vocabulary=vocabulary(program),
            given=GivenValues(program, whole, states),
            privileges=frozenset(
                atom.privilege for atom in reached_atoms(program, whole) if isinstance(atom, Has | HasBelow)
            ),
        )

    def requested(self, entity: Entity) -> Entity | None:
        """The resource of the request about an entity; None if it lies too deep."""
        id_ = self.vocabulary.shapes[self.rule.entity].unnamed_in(entity.type, entity.id) if self.unnamed else entity.id
        return None if id_ is None else Entity(self.rule.entity, id_)

    def objects(self, classes: Mapping[str, Entity]) -> dict[str, Entity]:
        """The objects of the request by slot, of which the resource does not lie too deep."""
        resource = self.requested(classes[RESOURCE])
        assert resource is not None
        return {**classes, RESOURCE: resource}

    def request(self, classes: Mapping[str, Entity], given: GivenAttributes) -> Request:
        """The request of nobody in particular. `classes`: the entities by slot, of which the resource does not lie too deep."""
        objects = self.objects(classes)
        resource = objects.pop(RESOURCE)
        return Request(
            user="",
            action=self.rule.operation,
            resource=resource,
            with_=objects,
            flags=self.flags,
            attributes=given,
        )


@dataclass(frozen=True, slots=True)
class Holding:
    """The holdings of a subject: principals everywhere, roles within scopes, the names of roles and of groups."""

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
        self.uses: UsedParts = used or UsedParts.of(program)
        self.reference = Reference(program, state)
        self.holdings = self.reference.holdings
        self._users = UserHolders(program, state, self.holdings)
        self._known: dict[Subject, Holding] = {}
        self._members: dict[str, set[str]] = {}
        self._other: Side | None = None
        self._holding_otherwise: Collection[Subject] = ()

    def holding(self, subject: Subject) -> Holding:
        """The holdings of a subject."""
        found = self._known.get(subject)
        if found is None:
            if self._other is not None and subject not in self._holding_otherwise:
                found = self._other.holding(subject)
            else:
                found = Holding(*self.holdings.of_user(*asking(subject)))
            self._known[subject] = found
        return found

    def holds_as(self, other: Side, otherwise: Collection[Subject]) -> None:
        """Take the holdings of all subjects but some from the other state."""
        self._other, self._holding_otherwise = other, otherwise

    def places(self, key: str) -> bool:
        """Return whether the state tells where an entity lies."""
        return self.holdings.locations.find(Entity.parse(key)) is not None

    def holders(self, principal: str) -> set[Subject]:
        """Every subject that a principal stands for, everywhere or within a scope."""
        users = set(self._users.everywhere(principal))
        groups = self._users.groups_in(principal) if principal.startswith("group:") else set()
        if principal.startswith("role:"):
            for _, found in self._users.scoped(principal):
                users |= found
            holders = {holder for holder, _ in self._users.assigned(principal) if holder.startswith("group:")}
            groups = {group for holder in holders for group in self._users.groups_in(holder)}
        if "" in users:  # what stands for everyone
            return self.everyone()
        return {f"user:{user}" for user in users} | (groups if self.uses.request_groups else set())

    def everyone(self) -> set[Subject]:
        """Every subject that the state names, and a user whom it does not name."""
        principals = named_principals(self.state)
        found = {principal for principal in principals if principal.startswith("user:")}
        found |= {f"user:{user}" for user in self.state.distinct(*USERS) if not user.startswith(GROUP_PREFIX)}
        if self.uses.request_groups:
            found |= {principal for principal in principals if principal.startswith(GROUP_PREFIX)}
            found |= {f"{GROUP_PREFIX}{group}" for group in self.state.distinct(("memberships", "group"))}
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

    def evaluator(self, subjects: Sequence[Subject], rights: Mapping[str, Iterable[int]] | None = None) -> Evaluator:
        """An evaluator for some subjects, using the rows about their holdings. `rights`: as `rights` tells; None: all rows."""
        state, program = self._users.state, self.program
        holdings = [self.holding(subject) for subject in subjects]
        if rights is None:
            rights = dict(self.rights({p for holding in holdings for p in holding.everything}))
        rows = {table: sorted(numbers) for table, numbers in rights.items()}
        users = {subject[5:]: number for number, subject in enumerate(subjects) if subject.startswith(USER)}
        rows["members"] = state.column("members", "user").where(users)
        scoped = {pair for holding in holdings for pair in holding.scoped}
        index = held(program, state, rows, scoped, self._attributes)
        index.service_admins = self.holdings.service_admins
        held_by = [
            # A user whose request names a group has no name, and is no member of anything.
            EntitledSubject.holding(subject, name, holding.principals, holding.scoped, program.roles)
            for subject, holding in zip(subjects, holdings, strict=True)
            for name in [subject[5:] if subject.startswith(USER) else None]
        ]
        return Evaluator(program_forms(program, self.holdings.locations), index, Subjects(held_by, index), assumed=())

    @cached_property
    def _attributes(self) -> Mapping[str, Any]:
        return attribute_parts(self.program, self.state)

    def rights(
        self, principals: Collection[str], on: Collection[str] | None = None
    ) -> Iterator[tuple[str, Sequence[int]]]:
        """The rows of grants, denials and ownership of some principals, by table; `on`: on these entities alone."""
        for table, principal_column in PRINCIPAL_COLUMN.items():
            holders = self.state.column(table, principal_column)
            if on is None:
                yield table, holders.where(principals)
                continue
            entities = self.state.column(table, "entity")
            # The rows of the fewer names are looked up, and the other name of each is looked at.
            (fewer, names), (other, others) = sorted(
                ((holders, principals), (entities, on)), key=lambda own: len(own[1])
            )
            rows = fewer.where(names)
            yield table, [row for row, name in zip(rows, other.take(rows), strict=True) if name in others]

    def keys(self, principals: Collection[str]) -> set[str]:
        """Every entity on which some of the principals have a grant, a denial or ownership."""
        found = (self.state.column(table, "entity").take(rows) for table, rows in self.rights(principals))
        return {key for keys in found for key in keys if key is not None}

    def memberships_of(self, users: Collection[str]) -> set[str]:
        """Every entity under which `members` has some of the users."""
        if new := [user for user in users if user not in self._members]:
            self._members.update((user, set()) for user in new)
            rows = self.state.column("members", "user").where(new)
            for user, key in self.state.texts("members", "user", "of", rows=rows):
                self._members[user].add(key)
        return set().union(*map(self._members.__getitem__, users))


class SubjectSets:
    """Of some subjects, the subjects that are allowed a request, using the rows of one state about their principals."""

    def __init__(
        self, side: Side, subjects: Collection[Subject], rights: Mapping[str, Iterable[int]] | None = None
    ) -> None:
        """`rights`: the rows of grants and owners that count; None: all."""
        self.program = side.program
        self._reference = side.reference
        self._caller = Caller(side.reference, "")
        self._names = sorted(subjects)
        self._numbers = {name: number for number, name in enumerate(self._names)}
        self.evaluator = side.evaluator(self._names, rights)
        self._known: dict[frozenset[int], frozenset[Subject]] = {}

    def among(self, subjects: Collection[Subject]) -> SubjectSets:
        """The same for some of the subjects."""
        found = copy(self)
        found.evaluator = self.evaluator.among(frozenset(map(self._numbers.__getitem__, subjects)))
        found._known = {}  # noqa: SLF001  (its own)
        return found

    def numbered(self) -> dict[int, Subject]:
        """The subjects by their number in the evaluator."""
        return {number: self._names[number] for number in sorted(self.evaluator.subjects.everyone)}

    def given(self, question: Question, objects: Mapping[str, Entity], most: int) -> list[GivenAttributes]:
        """The values that requests can give, as `GivenValues.all`; at most so many and one more."""
        if not question.given:
            return [GivenAttributes.NONE]
        requested = question.objects(objects)
        return list(islice(question.given.all(self._caller.about(requested), requested), most + 1))

    def equivalence(self, *others: SubjectSets) -> EntityEquivalence:
        """The entities that are equivalent for the same subjects, in this state and in others."""
        return EntityEquivalence([sets.evaluator for sets in (self, *others)])

    def allowed(self, request: Request) -> frozenset[Subject]:
        """The subjects that a request is allowed, regardless of its user."""
        if self._reference.program.flat and self._has_orphan(request):
            # Between two states, an entity may lie in another one that lies nowhere; no index is made of such rows.
            names = map(self._names.__getitem__, self.evaluator.subjects.everyone)
            return frozenset(name for name in names if self._decided(name, request))
        found = self.evaluator.allowed(request)
        subjects = self._known.get(found)
        if subjects is None:
            subjects = self._known[found] = frozenset(self._names[number] for number in found)
        return subjects

    def applied(self, request: Request) -> frozenset[Subject]:
        """As `allowed`; for a row filter or column mask, the subjects to whom it applies, since no earlier one does."""
        others = self._reference.program.earlier(request.resource.type, request.action)
        earlier = [self.allowed(replace(request, action=rule.operation)) for rule in others]
        return self.allowed(request).difference(*earlier) if earlier else self.allowed(request)

    def _has_orphan(self, request: Request) -> bool:
        where = self._reference.holdings.locations
        objects = (request.resource, *request.with_.values())
        return any(where.find(entity) is None and where.unplaced(entity) is None for entity in objects)

    def _decided(self, subject: Subject, request: Request) -> bool:
        user, groups = asking(subject)
        context = EvaluationContext(self._reference, replace(request, user=user, groups=groups))
        return context.holds(context.condition(self._reference.program.rules[request.resource.type, request.action]))


class BatchSets:
    """Some of the subjects of two states, for whom the rows are looked up when they are asked about."""

    def __init__(self, every: tuple[SubjectSets, SubjectSets], subjects: Sequence[Subject]) -> None:
        """`every`: all subjects; `subjects`: sorted."""
        self._every = every
        self.subjects = subjects

    @cached_property
    def sides(self) -> tuple[SubjectSets, SubjectSets]:
        """The subjects in the first and in the second state."""
        return self._every[0].among(self.subjects), self._every[1].among(self.subjects)
