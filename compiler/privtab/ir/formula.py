"""Small operations on formulas that every reader of the IR shares."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import assert_never

from privtab.ir.algebra import Algebra, Rebuilt, T
from privtab.ir.nodes import (
    ALWAYS,
    NEVER,
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
    Program,
    Rule,
    Self,
    ServiceAdmin,
    Target,
    When,
)

_ATOMS = (Has, Owner, Member, Self, Holds, ServiceAdmin)


def conjunction(*parts: Formula) -> Formula:
    """All of the parts, flattened, each once; a single part stands for itself."""
    flat: dict[Formula, None] = {}
    for part in parts:
        for inner in part.parts if isinstance(part, And) else (part,):
            flat[inner] = None
    return next(iter(flat)) if len(flat) == 1 else And(parts=tuple(flat))


def disjunction(*parts: Formula) -> Formula:
    """Any of the parts, flattened, each once; a single part stands for itself."""
    flat: dict[Formula, None] = {}
    for part in parts:
        for inner in part.parts if isinstance(part, Or) else (part,):
            flat[inner] = None
    return ALWAYS if ALWAYS in flat else next(iter(flat)) if len(flat) == 1 else Or(parts=tuple(flat))


def call_condition(rule: Rule) -> Formula:
    """What the call itself needs: the gate and `requires`."""
    return conjunction(rule.gate, rule.requires)


def asked_condition(program: Program, rule: Rule, *, named: bool) -> Formula:
    """What a request needs: a named item all there is, one that leaves off the last name what can hold without it.

    To drop what cannot hold must come before minimal sets are made: among them a privilege on an ancestor may stand for one
    on the resource, the weaker is kept, and without a name the weaker one never holds.
    """
    return item_condition(rule) if named else without_name(program, call_condition(rule), rule.entity)


def item_condition(rule: Rule) -> Formula:
    """What a named item needs: gate, `requires` and `each`."""
    return call_condition(rule) if rule.each is None else conjunction(rule.gate, rule.requires, rule.each)


class _Mapped(Rebuilt):
    def __init__(self, leaf: Callable[[Atom | Can], Formula], of_type: Callable[[str], str]) -> None:
        self._of_type = of_type
        self._leaf = leaf

    def atom(self, atom: Atom) -> Formula:
        return self._leaf(atom)

    def can(self, can: Can) -> Formula:
        return self._leaf(can)

    def by_type(self, choice: ByType) -> Formula:
        return replace(choice, cases=tuple((self._of_type(type_), self.fold(case_)) for type_, case_ in choice.cases))


def mapped(
    formula: Formula, leaf: Callable[[Atom | Can], Formula], of_type: Callable[[str], str] = lambda type_: type_
) -> Formula:
    """The formula with another in place of each atom and `can`; `of_type` names the types of its cases anew."""
    return _Mapped(leaf, of_type).fold(formula)


class _Flat(Rebuilt):
    def all_of(self, values: Iterable[Formula]) -> Formula:
        return conjunction(*values)

    def any_of(self, values: Iterable[Formula]) -> Formula:
        return disjunction(*values)


def flat(formula: Formula) -> Formula:
    """One formula, its nested conjunctions and alternatives flat, each part once."""
    return _Flat().fold(formula)


def move(formula: Formula, slot: str) -> Formula:
    """The formula about the object in `slot` in place of the resource."""

    def leaf(part: Atom | Can) -> Formula:
        if isinstance(part, ServiceAdmin) or part.target.slot != RESOURCE:
            return part
        return replace(part, target=replace(part.target, slot=slot))

    return mapped(formula, leaf)


def resolve(program: Program, can: Can) -> Formula:
    """The condition that a `can` stands for, about the same object."""
    rule = program.rules[can.target.type, can.operation]
    condition = item_condition(rule)
    return condition if can.target.slot == RESOURCE else move(condition, can.target.slot)


class RequestAlgebra(Algebra[T]):
    """An algebra for one kind of request: the flags that it sets, and the type of the object in each `with` slot."""

    def __init__(self, program: Program, flags: Collection[str], types: Mapping[str, str]) -> None:
        self.program = program
        self.flags = flags
        self.types = types
        self._referred: dict[Can, T] = {}

    def when(self, when: When) -> T:
        """As Algebra.when: without the flag nothing is required."""
        return self.fold(when.body) if when.flag in self.flags else self.all_of(())

    def can(self, can: Can) -> T:
        """As Algebra.can; each is worked out once."""
        if can not in self._referred:
            self._referred[can] = self.referred(can)
        return self._referred[can]

    def referred(self, can: Can) -> T:
        """The value of the condition that a `can` stands for."""
        return self.fold(resolve(self.program, can))

    def by_type(self, choice: ByType) -> T:
        """As Algebra.by_type: a type without a case never fits."""
        case_ = dict(choice.cases).get(self.types.get(choice.slot, ""))
        return self.any_of(()) if case_ is None else self.fold(case_)


class Truth(RequestAlgebra[bool]):
    """Whether a condition holds; `holds` says it of an atom."""

    def __init__(
        self, program: Program, flags: Collection[str], types: Mapping[str, str], holds: Callable[[Atom], bool]
    ) -> None:
        super().__init__(program, flags, types)
        self._holds = holds

    def atom(self, atom: Atom) -> bool:
        """As Algebra.atom."""
        return self._holds(atom)

    def all_of(self, values: Iterable[bool]) -> bool:
        """As Algebra.all_of."""
        return all(values)

    def any_of(self, values: Iterable[bool]) -> bool:
        """As Algebra.any_of."""
        return any(values)


def walk(formula: Formula) -> Iterator[Formula]:
    """The formula and every formula inside it; `can` is one of them and is not followed."""
    waiting = [formula]
    while waiting:
        node = waiting.pop()
        yield node
        match node:
            case Has() | Owner() | Member() | Self() | Holds() | ServiceAdmin() | Can():
                pass
            case And() | Or():
                waiting += reversed(node.parts)
            case When():
                waiting.append(node.body)
            case ByType():
                waiting += (case_ for _, case_ in reversed(node.cases))
            case _:
                assert_never(node)


def followed(program: Program, formula: Formula) -> Iterator[Formula]:
    """As `walk`, and on through every `can`, each of which is followed once; may repeat."""
    seen: set[Can] = set()
    waiting = [formula]
    while waiting:
        for node in walk(waiting.pop()):
            yield node
            if isinstance(node, Can) and node not in seen:
                seen.add(node)
                waiting.append(resolve(program, node))


def atoms(formula: Formula) -> Iterator[Atom]:
    """Every atom that the formula itself says."""
    return (node for node in walk(formula) if isinstance(node, _ATOMS))


def leaves(program: Program, formula: Formula) -> Iterator[Atom]:
    """Every atom that the formula reaches, through `can` too; may repeat."""
    return (node for node in followed(program, formula) if isinstance(node, _ATOMS))


def references(formula: Formula) -> Iterator[Can]:
    """Every `can` that the formula itself says."""
    return (node for node in walk(formula) if isinstance(node, Can))


def rule_flags(program: Program, rule: Rule) -> tuple[str, ...]:
    """The flags that a rule asks about, through `can` too, sorted."""
    reached = followed(program, item_condition(rule))
    return tuple(sorted({node.flag for node in reached if isinstance(node, When)}))


def anchor(program: Program, target: Target) -> tuple[int, str | None]:
    """Where a target's key is found among the keys of its slot's object.

    Returns the index of the key, and the type to give that key where the target is `single`, since a single entity has
    the path of the nearest ancestor that has a name of its own.
    """
    chain = program.chain(target.type)
    index = len(chain) - 1
    while program.entities[chain[index]].single and index > 0:
        index -= 1
    return index, None if index == len(chain) - 1 else target.type


def unrelated(program: Program, formulas: Iterable[Formula], types: Mapping[str, Collection[str]]) -> bool:
    """Whether conditions ask about nothing twice, and about nothing that says anything about another thing asked.

    Then each part of them decides something. `types`: those of the object in each `with` slot.
    """
    owner = program.semantics.owner
    held = frozenset(owner.holds) if owner else frozenset()
    seen: set[Formula] = set()
    names: set[object] = set()
    owners = False
    waiting = list(formulas)
    while waiting:
        node = waiting.pop()
        match node:
            case Can():
                waiting.append(resolve(program, node))
            case And() | Or():
                if not node.parts:
                    return False
                waiting += node.parts
            case When():
                waiting.append(node.body)
            case ByType():
                if len(types[node.slot]) > 1:
                    return False
                waiting += (case_ for type_, case_ in node.cases if type_ in types[node.slot])
            case Has(privilege=privilege, target=target):
                # With inheritance a privilege on one object says something of another on the same path.
                key = (privilege, target.slot) if program.semantics.inheritance == "down" else (privilege, target)
                if key in names:
                    return False
                names.add(key)
                owners |= privilege in held
            case _:
                if node in seen:
                    return False
                seen.add(node)
    return not (owners and any(isinstance(node, Owner) for node in seen))


def without_name(program: Program, formula: Formula, type_: str) -> Formula:
    """The condition for a request that leaves off the last name of its resource, of type `type_`.

    Nothing holds on the resource and below it; what a `can` on it stands for may still ask for less than that.
    """

    def leaf(part: Atom | Can) -> Formula:
        if isinstance(part, ServiceAdmin) or not _unnamed(program, part.target, type_):
            return part
        return mapped(resolve(program, part), leaf) if isinstance(part, Can) else NEVER

    return flat(mapped(formula, leaf))


def _unnamed(program: Program, target: Target, type_: str) -> bool:
    return target.slot == RESOURCE and anchor(program, target)[0] >= len(program.chain(type_)) - 1
