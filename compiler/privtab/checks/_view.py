"""A policy lowered once for all checks, and the questions that several of them share.

Checks register themselves by the kind of their findings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from functools import cached_property, wraps
from itertools import chain
from math import prod
from typing import Literal, NamedTuple, TypeAlias

from privtab.base.caching import once
from privtab.base.diagnostics import Diagnostic, FindingKind, Located, Severity, Span
from privtab.base.errors import Undecided
from privtab.base.records import dataclass
from privtab.base.vocabulary import kinds_of_requests
from privtab.ir.canonical import AtomSet, Canonical, canonical_form
from privtab.ir.exact import ImplicationChecker, unrelated
from privtab.ir.formula import asked_condition, compared_terms, reached_atoms, walk_reached, without_name
from privtab.ir.nodes import ALWAYS, RESOURCE, Atom, ByType, Formula, Has, Member, Owner, Program, Rule
from privtab.ir.shapes import Leaf, Shape, Shapes, condition_flags, shapes
from privtab.ir.solver import FullAccess, NeededAtoms, NoAccess, Slots
from privtab.ir.some_minimal_sets import absorbed
from privtab.model.lower import AlternativeRows, Lowering, lower
from privtab.model.nodes import PairKey, Policy, Row


class Found(NamedTuple):
    """A fault that a check found, and its place; the last field tells what else to look at."""

    span: Span
    message: str
    advice: str
    related: tuple[Located[str], ...] = ()


Finder: TypeAlias = "Callable[[Policy], Iterator[Found]]"
CHECKS: dict[str, Check] = {}
"""By code."""


@dataclass(frozen=True, slots=True)
class Check:
    """A check: the kind of its findings, and the function that finds them."""

    kind: FindingKind
    finder: Finder
    once: bool
    """True if the first finding at a place is enough."""

    def find(self, policy: Policy) -> Iterator[Diagnostic]:
        """The findings in a policy."""
        seen: set[Span] = set()
        for span, message, advice, related in self.finder(policy):
            if not (self.once and span in seen):
                seen.add(span)
                yield self.kind.at(span, message, advice, related=related)


def check(code: str, severity: Severity, *, once: bool = False) -> Callable[[Finder], Finder]:
    """Register a function as the check for a kind of findings, whose name is the function's. `once`: as `Check.once`."""

    def register(find: Finder) -> Finder:
        if code in CHECKS:
            raise ValueError(f"two checks have the code {code}")
        CHECKS[code] = Check(FindingKind(code, find.__name__.replace("_", "-"), severity), find, once)
        return find

    return register


FoundInRow: TypeAlias = "tuple[Row, Span, str, str]"
"""A fault that a check found, after the row that it is about."""
FinderByRow: TypeAlias = "Callable[[Policy], Iterator[FoundInRow]]"
Setting = tuple[frozenset[str], dict[str, str]]
"""The flags that a request sets, and the type of each of its `with` objects."""


_MAX_SETTINGS = 1_024
"""The most sets of flags, times choices of types, that are enumerated."""


class View:
    """The program of a policy, built on first use, and exact comparisons of its conditions."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.code = ""
        """The code of the running check."""
        self.undecided_codes: dict[PairKey, dict[str, None]] = {}
        """For each row, the codes of findings that exceeded their budget."""
        self._implied: dict[Hashable, bool | None] = {}
        self._shape_of_row: dict[PairKey, Shape] = {}
        self._dependencies: dict[Formula, tuple[frozenset[str], frozenset[str]]] = {}

    @cached_property
    def lowering(self) -> Lowering:
        """Lowers single rows and conditions."""
        return Lowering(self.policy)

    @cached_property
    def program(self) -> Program:
        """The whole program."""
        return lower(self.policy)

    @cached_property
    def canonical(self) -> Canonical:
        """The minimal sets."""
        return canonical_form(self.program)

    @cached_property
    def exact(self) -> ImplicationChecker:
        """The implication checker."""
        return ImplicationChecker(self.program)

    @cached_property
    def shapes(self) -> Shapes:
        """The shapes of conditions. Kept, since shapes that are computed again have other numbers."""
        return shapes(self.program)

    def rule(self, row: Row) -> Rule:
        """The rule of a row of the policy."""
        return self.program.rules[row.entity, row.operation]

    def shape_of(self, rule: Rule) -> Shape:
        """The shape of a rule of the program."""
        pair = rule.entity, rule.operation
        if pair not in self._shape_of_row:
            slots = {slot.name: slot.types for slot in rule.withs} | {RESOURCE: (rule.entity,)}
            conditions = rule.gate, rule.requires, rule.each or ALWAYS
            self._shape_of_row[pair] = self.shapes.of(conditions, slots, (rule.each is None, rule.creates))
        return self._shape_of_row[pair]

    @cached_property
    def leaves(self) -> Collection[Leaf]:
        """The leaves of all rules, each once."""
        described = map(self.shape_of, self.program.rules.values())
        return dict(chain.from_iterable(zip(one.leaf_numbers, one.leaves, strict=True) for one in described)).values()

    def undecided(self, row: Row, *codes: str) -> None:
        """Record that findings were undecided for a row: findings of the given codes, or of the running check."""
        self.undecided_codes.setdefault((row.entity, row.operation), {}).update(dict.fromkeys(codes or (self.code,)))

    def settings(self, rule: Rule, *about: Formula, types_of: Formula | None = None) -> list[Setting]:
        """Every set of flags with every choice of types for the rule's objects, as far as they affect the conditions.

        `about`: the conditions, by default the rule's own. `types_of`: a condition whose types count but not its flags,
        since it requires least without any. Raises Undecided if there are too many.
        """
        dependencies = [self._dependencies_of(formula) for formula in about or (rule.item_condition,)]
        flags = {flag for some, _ in dependencies for flag in some}
        slots = {slot for _, some in dependencies for slot in some}
        slots |= self._dependencies_of(types_of)[1] if types_of is not None else set()
        types = {slot.name: slot.types if slot.name in slots else slot.types[:1] for slot in rule.withs}
        if len(flags) > _MAX_SETTINGS or prod(map(len, types.values())) << len(flags) > _MAX_SETTINGS:
            raise Undecided(f"`{rule.entity}/{rule.operation}` has more than {_MAX_SETTINGS:,} kinds of requests")
        return [(frozenset(chosen), of_slots) for chosen, of_slots in kinds_of_requests(flags, types)]

    def _dependencies_of(self, formula: Formula) -> tuple[frozenset[str], frozenset[str]]:
        """The flags that a condition depends on, and the slots whose type it depends on."""
        if formula not in self._dependencies:
            slots = (node.slot for node in walk_reached(self.program, formula) if isinstance(node, ByType))
            self._dependencies[formula] = condition_flags(self.program, formula), frozenset(slots)
        return self._dependencies[formula]

    def sets(self, formula: Formula, setting: Setting) -> tuple[AtomSet, ...]:
        """The minimal sets of a condition."""
        return tuple(map(frozenset, self.canonical.minimal_sets(formula, *setting)))

    def implies(
        self, rule: Rule, premise: Formula, conclusion: Formula, *, unknown: bool = False, part: str | None = None
    ) -> bool:
        """Return whether the premise implies the conclusion, for every state, all flags and all types of the rule's objects.

        `unknown`: the answer if that is undecided, which is also recorded. `part`: as for `known_to_imply`.
        """
        answer = self.known_to_imply(rule, premise, conclusion, part)
        if answer is None:
            self.undecided(self.policy.rows[rule.entity, rule.operation])
        return unknown if answer is None else answer

    def known_to_imply(self, rule: Rule, premise: Formula, conclusion: Formula, part: str | None = None) -> bool | None:
        """The same as `implies`; None if undecided.

        `part`: a name for two conditions of the rule itself, for which rules of the same shape have the same answer.
        """
        slots = {slot.name: slot.types for slot in rule.withs}
        key = (
            self.shapes.of((premise, conclusion), slots).number if part is None else (self.shape_of(rule).number, part)
        )
        if key not in self._implied:
            self._implied[key] = self._decided(rule, premise, conclusion, slots)
        return self._implied[key]

    def _decided(self, rule: Rule, premise: Formula, conclusion: Formula, slots: Slots) -> bool | None:
        try:
            if premise != ALWAYS:
                return self.exact.always_implies(rule, premise, conclusion)
            solver = self._no_access
            solver.renew()
            return not solver.possible([-solver.literal(conclusion), solver.requests(slots)])
        except Undecided:
            return None

    @cached_property
    def _no_access(self) -> NoAccess:
        """Conditions for a caller who holds nothing."""
        return NoAccess(self.exact.semantics)

    @cached_property
    def full_access(self) -> FullAccess:
        """Conditions for a caller who holds every atom."""
        return FullAccess(self.exact.semantics)

    def unreachable_setting(self, rule: Rule, formula: Formula, *, unnamed: bool = False) -> Setting | None:
        """A kind of request that no state allows; None if a caller with every atom is always allowed.

        `unnamed`: the request omits the last name, so no caller holds anything on the resource. In a valid policy every
        privilege can be granted where a condition requires it.
        """
        if unnamed:
            formula = without_name(self.program, formula, rule.entity)
        if compared_terms(self.program):  # values decide too: ask about each kind of request
            try:
                return next((s for s in self.settings(rule, formula) if not self.allowed(rule, formula, s)), None)
            except Undecided:
                return None
        solver = self.full_access
        solver.renew()
        found = solver.model([-solver.literal(formula)], {slot.name: slot.types for slot in rule.withs})
        return None if found is None else (found.flags, found.types)

    def allowed(self, rule: Rule, formula: Formula, setting: Setting | None = None, *, unnamed: bool = False) -> bool:
        """Return whether some state allows a kind of request; without a `setting`, some request without flags."""
        if unnamed:
            formula = without_name(self.program, formula, rule.entity)
        flags, types = setting or (frozenset[str](), None)
        slots = {slot.name: slot.types if types is None else (types[slot.name],) for slot in rule.withs}
        solver = self.full_access
        solver.renew()
        return solver.possible([solver.literal(formula), *solver.with_flags(flags), solver.requests(slots)])

    @cached_property
    def alternative_rows(self) -> AlternativeRows:
        """Rows that others override, and rows of readings and variants that were not selected."""
        return AlternativeRows(self.policy)

    @property
    def needed(self) -> frozenset[Atom]:
        """Every atom that some call or item needs: atoms of minimal sets, about the resource or an object.

        If that is undecided for a row, all its atoms count as needed, and it is recorded as undecided.
        """
        found, unsure = self._needed
        for row in unsure:
            self.undecided(row)
        return found

    @cached_property
    def _needed(self) -> tuple[frozenset[Atom], tuple[Row, ...]]:
        found: dict[int, Atom] = {}
        unsure: list[Row] = []
        nests = self.program.nests
        by_shape: dict[Hashable, tuple[int, ...] | None] = {}
        for pair, rule in self.program.rules.items():
            shape = self.shape_of(rule)
            reached = {n: a for n, a in zip(shape.leaf_numbers, shape.leaves, strict=True) if not isinstance(a, ByType)}
            if nests or found.keys() >= reached.keys():
                found |= reached  # where types nest, each may decide something on some level
                continue
            key = shape.number, tuple(number in found for number in reached)
            if key not in by_shape:
                needed = self._needed_by(rule, frozenset(found.values()))
                in_order = enumerate(reached.values())
                by_shape[key] = None if needed is None else tuple(i for i, atom in in_order if atom in needed)
            positions = by_shape[key]
            if positions is None:
                unsure.append(self.policy.rows[pair])
            numbers = tuple(reached)
            found |= reached if positions is None else {numbers[i]: reached[numbers[i]] for i in positions}
        return frozenset(found.values()), tuple(unsure)

    def _needed_by(self, rule: Rule, known: Collection[Atom]) -> Collection[Atom] | None:
        """The atoms that a call or an item needs, at least the atoms not `known` to be needed; None if undecided."""
        conditions = list(dict.fromkeys((rule.item_condition, rule.call_condition)))
        slots = {slot.name: slot.types for slot in rule.withs}
        shorter = [absorbed(self.canonical, condition) for condition in conditions]
        if all(unrelated(self.exact.semantics, [condition], slots) for condition in shorter):
            return {atom for condition in shorter for atom in reached_atoms(self.program, condition)}
        try:
            return NeededAtoms(self.exact.semantics).needed(conditions, slots, known, self.canonical)
        except Undecided:
            return None

    @cached_property
    def alternative_conditions(self) -> tuple[Formula, ...]:
        """The conditions of readings and variants, which may be selected later."""
        rows = [row for _, row in self.alternative_rows.variants()]
        rows += [other for row in self.policy.rows.values() for _, other in self.alternative_rows.readings(row)]
        return tuple(self.lowering.formula(c) for row in rows for c in (row.requires, row.each) if c is not None)

    @property
    def _deciding(self) -> Iterator[Atom]:
        """The atoms that decide something, here or in a reading or a variant; may repeat."""
        yield from self.needed
        yield from (atom for formula in self.alternative_conditions for atom in reached_atoms(self.program, formula))

    @cached_property
    def required_privileges(self) -> frozenset[tuple[str, str]]:
        """Each (privilege, type) that decides something, here or in a reading or a variant."""
        return frozenset(
            (privilege, type_)
            for atom in self._deciding
            if isinstance(atom, Has)
            for type_ in self.program.types_of(atom.target)
            for privilege in {atom.privilege, *self.program.granted_as(atom.privilege)}
        )

    @cached_property
    def _effective_privileges(self) -> frozenset[tuple[str, str]]:
        types = self.program.granting_types
        return frozenset(
            (privilege, on) for privilege, type_ in self.required_privileges for on in types(privilege, type_)
        )

    def can_matter(self, privilege: str, type_: str) -> bool:
        """Return whether holding a privilege on a type can matter: it is required there or, with inheritance, below."""
        return (privilege, type_) in self._effective_privileges

    @cached_property
    def required_relations(self) -> frozenset[tuple[str, str]]:
        """Each (`owner` or `member`, type) that decides something, here or in a reading or a variant."""
        return frozenset(
            (type(a).__name__.lower(), type_)
            for a in self._deciding
            if isinstance(a, Owner | Member)
            for type_ in self.program.types_of(a.target)
        )


@once
def view_of(policy: Policy) -> View:
    """The shared view of a policy."""
    return View(policy)


def declared(policy: Policy) -> Collection[Row]:
    """The rows; of rows for many types or operations, the first."""
    first: dict[int, Row] = {}
    for row in policy.rows.values():
        first.setdefault(id(row.decl.body), row)
    return first.values()


def check_in_every_type(code: str, severity: Severity) -> Callable[[FinderByRow], FinderByRow]:
    """As `check`, for findings with their rows: findings that occur for every type and operation of their row count, each once.

    A row for many types may require too much for one of them and just enough for another, which is not a fault.
    """

    def register(find: FinderByRow) -> FinderByRow:
        @check(code, severity)
        @wraps(find)
        def find_in_every_type(policy: Policy) -> Iterator[Found]:
            rows = Counter(id(row.decl.body) for row in policy.rows.values())
            counted: Counter[tuple[Found, int]] = Counter()
            for row, span, message, advice in find(policy):
                found, body = Found(span, message, advice), id(row.decl.body)
                counted[found, body] += 1
                if counted[found, body] == rows[body]:
                    yield found

        return find

    return register


Breadth = Literal["equal", "wider", "narrower", "incomparable", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The comparison of one rule's permissions with another's, and of everything else that they say."""

    breadth: Breadth
    same_objects: bool
    same_effects: bool
    same_report: bool

    @property
    def equal(self) -> bool:
        """True if the rules mean the same."""
        return self.breadth == "equal" and self.same_objects and self.same_effects and self.same_report


def compare(view: View, first: Rule, second: Rule) -> Comparison:
    """Compare two rules: `wider` if the first allows all that the second does and more; `unknown` is recorded."""
    same_objects = {w.name: frozenset(w.types) for w in first.withs} == {
        w.name: frozenset(w.types) for w in second.withs
    }
    breadth: Breadth = "incomparable"
    if same_objects:
        # A request without the last name is another kind of request and is compared separately.
        naming = (True, False) if all(map(view.program.unnamed, (first, second))) else (True,)
        pairs = {tuple(asked_condition(view.program, rule, named=n) for rule in (first, second)) for n in naming}
        at_least = first.unnamed >= second.unnamed and _all(view.known_to_imply(first, g, f) for f, g in pairs)
        at_most = first.unnamed <= second.unnamed and _all(view.known_to_imply(first, f, g) for f, g in pairs)
        if at_least is None or at_most is None:
            view.undecided(view.policy.rows[first.entity, first.operation])
            breadth = "unknown"
        elif at_least or at_most:
            breadth = "equal" if at_least and at_most else "wider" if at_least else "narrower"
    return Comparison(
        breadth=breadth,
        same_objects=same_objects,
        same_effects=_effects(first) == _effects(second),
        same_report=first.report == second.report,
    )


def _all(answers: Iterable[bool | None]) -> bool | None:
    """True if all answers are true; None if unknown."""
    known = list(answers)
    return False if False in known else None if None in known else True


def _effects(rule: Rule) -> frozenset[object]:
    return frozenset(
        (effect.kind, name, effect.target)
        for effect in (*rule.effects, *rule.delegations)
        for name in effect.privileges or (effect.text,)
    )


def always(formula: Formula) -> bool:
    """Return whether a condition is literally one that always holds."""
    return formula == ALWAYS
