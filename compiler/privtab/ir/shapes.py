"""The shape of conditions: everything about them except the names of types, privileges and operations.

Rows of large tables often differ in names alone. What the exact analyses find out about one such row holds for every row
of the same shape, with its atoms in place of the first row's atoms.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple, TypeAlias

from privtab.base.caching import once, once_within
from privtab.ir.algebra import Algebra
from privtab.ir.formula import resolve_can, uses_below, walk_condition
from privtab.ir.nodes import Atom, ByType, Can, Formula, Has, OnTarget, Program, Rule, When

Leaf: TypeAlias = Atom | ByType
"""An atom, or a condition on a `with` object of unspecified type, which is treated like an atom."""


class Shape(NamedTuple):
    """The number of a shape, and the conditions' leaves in the order in which they occur, also as numbers."""

    number: int
    """Equal for conditions of one program that differ in names alone."""
    leaves: tuple[Leaf, ...]
    leaf_numbers: tuple[int, ...]


class _LeafFacts(NamedTuple):
    leaf: Leaf
    number: int
    token: Hashable
    """What counts about the leaf besides its target's type and its privilege, which are described with names as numbers."""
    type: str | None
    privilege: str | None


class _Reference(NamedTuple):
    can: Can
    number: int


class Shapes:
    """Describes conditions of one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._owner_privileges = program.owner_privileges
        self._by_name = bool(program.roles) or uses_below(program) or program.implies or program.nests
        """Whether names count, since roles, implications and levels relate privileges and types in further ways."""
        self._types: dict[str, Hashable] = {}
        self._leaf_facts: dict[Leaf, _LeafFacts] = {}
        self._by_identity: dict[int, _LeafFacts] = {}
        self._references: dict[Can, _Reference] = {}
        self._references_by_identity: dict[int, _Reference] = {}
        self._steps: dict[int, list[Hashable]] = {}
        self._numbers: dict[tuple[Hashable, ...], int] = {}

    def of(
        self,
        formulas: Iterable[Formula],
        slots: Mapping[str, Iterable[str]] | None = None,
        facts: Iterable[Hashable] = (),
    ) -> Shape:
        """The shape of conditions, in their order.

        `slots`: further types that a question is about, by any name. `facts`: whatever else has to be equal.
        """
        return _Description(self, facts).of(formulas, slots or {})

    def number(self, tokens: list[Hashable]) -> int:
        """The number of a description."""
        return self._numbers.setdefault(tuple(tokens), len(self._numbers))

    def type(self, name: str) -> Hashable:
        """The facts that count about a type besides its chain."""
        if name not in self._types:
            entity = self.program.entities[name]
            facts = entity.single, entity.principal
            self._types[name] = (name, *facts) if self._by_name else facts
        return self._types[name]

    def leaf(self, leaf: Leaf) -> _LeafFacts:
        """The facts that count about a leaf. Leaves are looked up by identity first, since hashing them costs more."""
        facts = self._by_identity.get(id(leaf))
        if facts is None or facts.leaf is not leaf:
            known = self._leaf_facts.get(leaf)  # hashing and comparing a leaf are what costs
            if known is None:
                known = self._leaf_facts[leaf] = self._facts(leaf)
            facts = self._by_identity[id(leaf)] = _LeafFacts(leaf, *known[1:])
        return facts

    def reference(self, can: Can) -> _Reference:
        """A `can` with its number, also looked up by identity first."""
        known = self._references_by_identity.get(id(can))
        if known is None or known.can is not can:
            equal = self._references.setdefault(can, _Reference(can, len(self._references)))
            known = self._references_by_identity[id(can)] = _Reference(can, equal.number)
        return known

    def steps_of(self, reference: _Reference) -> list[Hashable]:
        """The steps of the condition that a `can` refers to, which many rows have in common."""
        if reference.number not in self._steps:
            self._steps[reference.number] = _Steps(self).of(resolve_can(self.program, reference.can))
        return self._steps[reference.number]

    def _facts(self, leaf: Leaf) -> _LeafFacts:
        number, kind = len(self._leaf_facts), type(leaf).__name__
        if isinstance(leaf, ByType):
            return _LeafFacts(leaf, number, kind, None, None)
        if not isinstance(leaf, OnTarget):
            return _LeafFacts(leaf, number, (kind, leaf), None, None)
        target = leaf.target
        token: tuple[Hashable, ...] = (kind, target.slot, target.level)
        if not isinstance(leaf, Has):
            return _LeafFacts(leaf, number, (*token, leaf) if self._by_name else token, target.type, None)
        on = self.program.privileges[leaf.privilege].on
        grantable = tuple(link in on for link in self.program.chains[target.type])
        token = (*token, leaf.privilege in self._owner_privileges, grantable, leaf if self._by_name else None)
        return _LeafFacts(leaf, number, token, target.type, leaf.privilege)


class _Steps(Algebra[None]):
    """Writes a condition down as a sequence: the facts about leaves, what each `can` refers to, and tokens of what joins the steps before."""

    def __init__(self, shapes: Shapes) -> None:
        self._shapes = shapes
        self.steps: list[Hashable] = []

    def of(self, formula: Formula) -> list[Hashable]:
        self.fold(formula)
        return self.steps

    def all_of(self, values: Iterable[None]) -> None:
        self.steps.append(("and", len(list(values))))

    def any_of(self, values: Iterable[None]) -> None:
        self.steps.append(("or", len(list(values))))

    def when(self, when: When) -> None:
        self.fold(when.body)
        self.steps.append(("when", when.flag))

    def can(self, can: Can) -> None:
        self.steps.append(self._shapes.reference(can))

    def atom(self, atom: Atom) -> None:
        self.steps.append(self._shapes.leaf(atom))

    def by_type(self, choice: ByType) -> None:
        self.steps.append(self._shapes.leaf(choice))


class _Description:
    """Describes conditions by a sequence; each name is a number, in the order in which names occur."""

    def __init__(self, shapes: Shapes, facts: Iterable[Hashable]) -> None:
        self._shapes = shapes
        self._chains = shapes.program.chains
        self._tokens: list[Hashable] = [tuple(facts)]
        self._leaves: dict[int, tuple[int, Leaf]] = {}
        self._types: dict[str, int] = {}
        self._privileges: dict[str, int] = {}
        self._references: dict[int, int] = {}

    def of(self, formulas: Iterable[Formula], slots: Mapping[str, Iterable[str]]) -> Shape:
        for formula in formulas:
            self._take(_Steps(self._shapes).of(formula))
        for slot, types in slots.items():
            self._tokens.append(slot)
            for type_ in types:
                self._type(type_)
        leaves = tuple(leaf for _, leaf in self._leaves.values())
        return Shape(self._shapes.number(self._tokens), leaves, tuple(self._leaves))

    def _take(self, steps: Iterable[Hashable]) -> None:
        tokens, leaves = self._tokens, self._leaves
        for step in steps:
            if isinstance(step, _LeafFacts):
                leaf, number, token, type_, privilege = step
                if number in leaves:
                    tokens.append(leaves[number][0])
                    continue
                leaves[number] = len(leaves), leaf
                tokens.append(token)
                if type_ is not None:
                    self._type(type_)
                if privilege is not None:
                    tokens.append(self._privileges.setdefault(privilege, len(self._privileges)))
                if isinstance(leaf, ByType):
                    for case_type, case_ in leaf.cases:
                        self._type(case_type)
                        self._take(_Steps(self._shapes).of(case_))
                    tokens.append((leaf.slot, len(leaf.cases)))
            elif isinstance(step, _Reference):
                first = step.number not in self._references
                number = self._references.setdefault(step.number, len(self._references))
                if first:
                    self._take(self._shapes.steps_of(step))
                tokens.append(("can", number))
            else:
                tokens.append(step)

    def _type(self, name: str) -> None:
        number = self._types.get(name)
        if number is not None:
            self._tokens.append(number)
            return
        if name not in self._chains:  # of another version of the policy, which this one is compared with
            self._tokens.append(name)
            return
        numbers = []
        for link in self._chains[name]:
            if link not in self._types:
                self._types[link] = len(self._types)
                self._tokens.append(self._shapes.type(link))
            numbers.append(self._types[link])
        self._tokens.append(tuple(numbers))


@once
def shapes(program: Program) -> Shapes:
    """The shared `Shapes` of a program."""
    return Shapes(program)


def depends_on_request(program: Program, formula: Formula) -> bool:
    """Return whether a condition depends on the flags of a request or on the types of its objects."""
    return any(
        isinstance(node, When | ByType) or (isinstance(node, Can) and _can_depends_on_request(program, node))
        for node in walk_condition(formula)
    )


@once_within
def _can_depends_on_request(program: Program, can: Can) -> bool:
    return depends_on_request(program, resolve_can(program, can))


def rule_flags(program: Program, rule: Rule) -> tuple[str, ...]:
    """The flags that a rule depends on, also through `can`, and those that its requests must state; sorted.

    Example:
        rule_flags(program, program.rules["job", "submit"])
    """
    known = _flags_of_rules(program).get(id(rule))
    if known is None or known[0] is not rule:
        parts = (part for part in (rule.gate, rule.requires, rule.each) if part is not None)
        found = tuple(sorted(frozenset(rule.required_flags).union(*(condition_flags(program, part) for part in parts))))
        known = _flags_of_rules(program)[id(rule)] = rule, found
    return known[1]


def condition_flags(program: Program, formula: Formula) -> frozenset[str]:
    """The flags that a condition depends on, also through `can`."""
    found = set()
    for node in walk_condition(formula):
        if isinstance(node, When):
            found.add(node.flag)
        elif isinstance(node, Can):
            found |= _flags_of_can(program, node)
    return frozenset(found)


@once_within
def _flags_of_can(program: Program, can: Can) -> frozenset[str]:
    return condition_flags(program, resolve_can(program, can))


@once
def _flags_of_rules(program: Program) -> dict[int, tuple[Rule, tuple[str, ...]]]:
    """`rule_flags` by the identity of rules, which are long to compare."""
    del program
    return {}
