"""Small operations on formulas, shared by all code that reads the IR."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar, assert_never, cast

from privtab.base import paths
from privtab.base.caching import once, once_within
from privtab.ir import nodes as ir
from privtab.ir.algebra import Algebra, Rebuilder, T

P = TypeVar("P", bound=ir.Formula)
LEVELS_ABOVE = frozenset(
    (outer, inner)
    for outer, inners in {
        "first": ("nearest", "any"),
        "parent": ("nearest", "any"),
        "nearest": ("any",),
        "every": ("nearest", "first", "any"),
    }.items()
    for inner in inners
)
"""With inheritance: levels of a type on which a privilege entails it on others. `first` and `every`, and `nearest` and `any`, entail
each other for named entities; one direction is left out, so that entailment has no cycles."""
LEVELS_SAYING = frozenset(
    {("every", "nearest"), ("every", "first"), ("every", "any"), ("nearest", "any"), ("first", "any")}
)
"""Pairs of levels: what holds on the one holds on the other, whatever is inherited."""
LEVELS_AROUND = frozenset(
    (outer, inner)
    for outer, inners in {
        "first": ("nearest", "any", "every"),
        "nearest": ("every",),
        "parent": ("nearest", "every"),
    }.items()
    for inner in inners
)
"""Levels of a type, the second of which is the first or lies in it, on a path of any length. What holds on `every` level holds on the nearest."""


def level_text(target: ir.Target) -> str:
    """The part of sort keys that tells a target from the nearest of its type."""
    return "" if target.level == "nearest" else f" {target.level}"


def level_name(target: ir.Target) -> str:
    """The text of a target's type and level: `namespace`, `any namespace`, `parent of namespace`."""
    match target.level:
        case "nearest":
            return target.type
        case "parent":
            return f"parent of {target.type}"
        case level:
            return f"{level} {target.type}"


def asked_condition(program: ir.Program, rule: ir.Rule, *, named: bool) -> ir.Formula:
    """The condition of a request: for a named item the whole condition, otherwise what the call needs without the last name.

    Parts that cannot hold must be dropped before minimal sets are computed. Otherwise a privilege on the resource, which is weaker,
    would replace the same privilege on an ancestor, although without a name it never holds.

    Example:
        condition = asked_condition(program, rule, named=False)
    """
    if named:
        return without_absent(program, rule, rule.item_condition)
    return without_absent(program, rule, without_name(program, rule.call_condition, rule.entity))


def own_condition(rule: ir.Rule) -> ir.Formula:
    """The condition of a named item without the gate: `requires` and `each`."""
    return rule.requires if rule.each is None else ir.And.of(rule.requires, rule.each)


def with_conditions(rule: ir.Rule, change: Callable[[ir.Formula], ir.Formula], *, gate: bool = True) -> ir.Rule:
    """The rule with its conditions changed, or without the `gate` the others; the same rule if that changes none of them."""
    changed = {"requires": change(rule.requires), "each": None if rule.each is None else change(rule.each)}
    if gate:
        changed["gate"] = change(rule.gate)
    changed = {name: part for name, part in changed.items() if part != getattr(rule, name)}
    return replace(rule, **changed) if changed else rule  # type: ignore[arg-type]  # `each` alone may be None


class _Mapped(Rebuilder):
    def __init__(self, leaf: Callable[[ir.Atom | ir.Can], ir.Formula], of_type: Callable[[str], str]) -> None:
        self._of_type = of_type
        self._leaf = leaf

    def atom(self, atom: ir.Atom) -> ir.Formula:
        return self._leaf(atom)

    def can(self, can: ir.Can) -> ir.Formula:
        return self._leaf(can)

    def by_type(self, choice: ir.ByType) -> ir.Formula:
        return replace(choice, cases=tuple((self._of_type(type_), self.fold(case_)) for type_, case_ in choice.cases))


def replace_atoms(
    formula: ir.Formula,
    leaf: Callable[[ir.Atom | ir.Can], ir.Formula],
    of_type: Callable[[str], str] = lambda type_: type_,
) -> ir.Formula:
    """Replace each atom and `can` of the formula by what `leaf` returns; `of_type` renames the types of cases.

    >>> replace_atoms(ir.ServiceAdmin(), lambda part: ir.NEVER)
    Or(parts=())
    """
    return _Mapped(leaf, of_type).fold(formula)


class _Flat(Rebuilder):
    def all_of(self, values: Iterable[ir.Formula]) -> ir.Formula:
        return ir.And.of(*values)

    def any_of(self, values: Iterable[ir.Formula]) -> ir.Formula:
        return ir.Or.of(*values)


def flat(formula: ir.Formula) -> ir.Formula:
    """Flatten nested conjunctions and disjunctions, and drop duplicate parts."""
    return _Flat().fold(formula)


def move_to_slot(formula: P, slot: str) -> P:
    """The formula with the object in `slot` in place of the resource."""

    def moved(target: ir.Target) -> ir.Target:
        return replace(target, slot=slot) if target.slot == ir.RESOURCE else target

    return with_targets(formula, moved)


def on_entity(atom: ir.Atom) -> ir.Atom:
    """An atom, held on its entity itself where it may be held below it.

    >>> on_entity(ir.ServiceAdmin())
    ServiceAdmin()
    """
    if isinstance(atom, ir.HasBelow):
        return ir.Has(privilege=atom.privilege, target=atom.target)
    return ir.Owner(target=atom.target) if isinstance(atom, ir.OwnsBelow) else atom


def on_each_level(program: ir.Program, atom: ir.Atom, levels: int) -> tuple[ir.Atom, ...]:
    """An atom about `any` or `every` level as one about each, the nearest first, on a path with this many levels."""
    whole = atom.several
    assert whole is not None

    def at(one: ir.Target) -> ir.Atom:
        return with_targets(atom, lambda target: one if target == whole else target)

    return tuple(map(at, located(program, whole, levels)))


def with_targets(part: P, change: Callable[[ir.Target], ir.Target]) -> P:
    """A condition with other entities in place of its own.

    >>> target = ir.Target(slot="", type="table")
    >>> with_targets(ir.Owner(target=target), lambda _: replace(target, slot="to")).target.slot
    'to'
    """

    def changed(term: ir.Term) -> ir.Term:
        return term if term.target is None else replace(term, target=change(term.target))

    if isinstance(part, ir.Compare):
        right = part.right
        return replace(part, left=changed(part.left), right=changed(right) if isinstance(right, ir.Term) else right)
    if isinstance(part, ir.OnTarget | ir.Can):
        target = change(part.target)
        return cast("P", part if target is part.target else replace(part, target=target))
    if not isinstance(part, ir.Atomic):
        part = cast("P", replace_atoms(part, lambda leaf: with_targets(leaf, change)))
    return part


@once_within
def resolve_can(program: ir.Program, can: ir.Can) -> ir.Formula:
    """The condition that a `can` refers to, applied to the same object.

    Example:
        condition = resolve_can(program, can)
    """
    condition = program.rules[can.target.type, can.operation].item_condition
    return condition if can.target.slot == ir.RESOURCE else move_to_slot(condition, can.target.slot)


def located(program: ir.Program, target: ir.Target, levels: int) -> tuple[ir.Target, ...]:
    """The targets of single levels that a target means on a path with this many levels; several for `any` and `every`."""
    type_, nested = target.type, program.nested_on
    if type_ not in nested:
        return (target,)
    chosen = paths.located(type_, target.level, levels, program.entities[type_].parent)
    return tuple(ir.Target(slot=target.slot, type=name) for name in chosen)


class RequestAlgebra(Algebra[T]):
    """An algebra for requests with the given flags and the given type of the object in each `with` slot.

    `levels`: by slot, the levels on the path of its object where a type nests; then atoms have targets of single levels.

    Example:
        class Held(RequestAlgebra[bool]): ...
    """

    def __init__(
        self,
        program: ir.Program,
        flags: Collection[str],
        types: Mapping[str, str],
        levels: Mapping[str, int] | None = None,
    ) -> None:
        self.program = program
        self.flags = flags
        self.types = types
        self.levels = levels or {}
        self._nested = program.nested_on
        self._referred: dict[ir.Can, T] = {}

    def fold(self, formula: ir.Formula) -> T:
        """As Algebra.fold."""
        if not (self._nested and self.levels):
            return super().fold(formula)
        if isinstance(formula, ir.Compare) and (whole := formula.several) is not None:
            join = self.any_of if whole.level == "any" else self.all_of
            return join(map(self.atom, on_each_level(self.program, formula, self.levels[whole.slot])))
        if not isinstance(formula, ir.OnTarget) or formula.target.type not in self._nested:
            return super().fold(formula)
        targets = located(self.program, formula.target, self.levels[formula.target.slot])
        join = self.any_of if formula.target.level == "any" else self.all_of
        return join(self.atom(replace(formula, target=target)) for target in targets)

    def when(self, when: ir.When) -> T:
        """As Algebra.when: without the flag nothing is required."""
        return self.fold(when.body) if when.flag in self.flags else self.all_of(())

    def can(self, can: ir.Can) -> T:
        """As Algebra.can; each is computed once."""
        if can not in self._referred:
            self._referred[can] = self.referred(can)
        return self._referred[can]

    def referred(self, can: ir.Can) -> T:
        """The value of the condition that a `can` refers to."""
        return self.fold(resolve_can(self.program, can))

    def by_type(self, choice: ir.ByType) -> T:
        """As Algebra.by_type: a type without a case never holds."""
        case_ = dict(choice.cases).get(self.types.get(choice.slot, ""))
        return self.any_of(()) if case_ is None else self.fold(case_)


class Truth(RequestAlgebra[bool]):
    """Evaluates whether a condition holds; `holds` decides for an atom.

    Example:
        Truth(program, flags, types, lambda atom: atom in held).fold(rule.item_condition)
    """

    def __init__(
        self,
        program: ir.Program,
        flags: Collection[str],
        types: Mapping[str, str],
        holds: Callable[[ir.Atom], bool],
        levels: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(program, flags, types, levels)
        self._holds = holds

    def atom(self, atom: ir.Atom) -> bool:
        """As Algebra.atom."""
        return self._holds(atom)

    def all_of(self, values: Iterable[bool]) -> bool:
        """As Algebra.all_of."""
        return all(values)

    def any_of(self, values: Iterable[bool]) -> bool:
        """As Algebra.any_of."""
        return any(values)


def walk_condition(formula: ir.Formula) -> Sequence[ir.Formula]:
    """The formula and every formula inside it, outer before inner; a `can` is included but not followed.

    >>> [type(node).__name__ for node in walk_condition(ir.And(parts=(ir.ServiceAdmin(),)))]
    ['And', 'ServiceAdmin']
    """
    found = [formula]
    for part in _parts(formula):
        if isinstance(part, ir.Atomic):
            found.append(part)
        else:
            found += walk_condition(part)
    return found


def _parts(formula: ir.Formula) -> Sequence[ir.Formula]:
    match formula:
        case ir.And() | ir.Or():
            return formula.parts
        case ir.Atomic() | ir.Can():
            return ()
        case ir.When():
            return (formula.body,)
        case ir.ByType():
            return [case_ for _, case_ in formula.cases]
        case _:
            assert_never(formula)


def walk_reached(program: ir.Program, formula: ir.Formula) -> Iterator[ir.Formula]:
    """Like `walk_condition`, but through every `can` as well, each followed once; may repeat formulas.

    Example:
        flags = {node.flag for node in walk_reached(program, condition) if isinstance(node, When)}
    """
    visited: set[ir.Can] = set()
    waiting = [formula]
    while waiting:
        for node in walk_condition(waiting.pop()):
            yield node
            if isinstance(node, ir.Can) and node not in visited:
                visited.add(node)
                waiting.append(resolve_can(program, node))


def direct_atoms(formula: ir.Formula) -> Iterator[ir.Atom]:
    """Every atom in the formula itself.

    >>> [*direct_atoms(ir.And(parts=(ir.ServiceAdmin(),)))]
    [ServiceAdmin()]
    """
    return (node for node in walk_condition(formula) if isinstance(node, ir.Atomic))


def reached_atoms(program: ir.Program, formula: ir.Formula) -> Iterator[ir.Atom]:
    """Every atom that the formula reaches, also through `can`; may repeat.

    Example:
        asked = set(reached_atoms(program, rule.item_condition))
    """
    return (node for node in walk_reached(program, formula) if isinstance(node, ir.Atomic))


def references(formula: ir.Formula) -> Iterator[ir.Can]:
    """Every `can` in the formula itself.

    >>> load = ir.Can(operation="load", target=ir.Target(slot="", type="table"))
    >>> [can.operation for can in references(ir.And(parts=(ir.ServiceAdmin(), load)))]
    ['load']
    """
    return (node for node in walk_condition(formula) if isinstance(node, ir.Can))


@once
def _kinds(program: ir.Program) -> frozenset[type[ir.Formula]]:
    """The kinds of nodes in conditions."""
    conditions = (part for rule in program.rules.values() for part in (rule.gate, rule.requires, rule.each) if part)
    return frozenset(type(node) for condition in conditions for node in walk_condition(condition))


@once
def compared_terms(program: ir.Program) -> frozenset[ir.Term]:
    """The attributes that some condition compares.

    Example:
        names = {term.attribute for term in compared_terms(program)}
    """
    if not any(issubclass(kind, ir.Compare) for kind in _kinds(program)):
        return frozenset()
    conditions = (rule.item_condition for rule in program.rules.values())
    compared = (atom for formula in conditions for atom in direct_atoms(formula) if isinstance(atom, ir.Compare))
    return frozenset(term for compare in compared for term in compare.terms)


def compares_given(program: ir.Program) -> bool:
    """Return whether some condition compares an attribute whose value a request can give."""
    declared = (program.attribute(term) for term in compared_terms(program))
    return any(attribute is not None and "request" in attribute.origins for attribute in declared)


def uses_below(program: ir.Program) -> bool:
    """Return whether some condition asks what is held below an entity.

    Example:
        assert not uses_below(program)
    """
    return any(issubclass(kind, ir.Below) for kind in _kinds(program))


def without_absent(program: ir.Program, rule: ir.Rule, formula: ir.Formula) -> ir.Formula:
    """The condition without comparisons of attributes that no request for the row gives, and that the state does not hold.

    A row with `with` objects is left as it is: one of these may be the entity whose attribute is compared.
    """
    if rule.withs or all("state" in attribute.origins for attribute in program.attributes.entity.values()):
        return formula

    def leaf(part: ir.Atom | ir.Can) -> ir.Formula:
        if isinstance(part, ir.Compare):
            return ir.NEVER if rule.compares_absent(program, part) else part
        if isinstance(part, ir.Can) and any(
            rule.compares_absent(program, node) for node in walk_reached(program, part)
        ):
            return replace_atoms(resolve_can(program, part), leaf)
        return part

    changed = replace_atoms(formula, leaf)
    return formula if changed == formula else flat(changed)


def without_name(program: ir.Program, formula: ir.Formula, type_: str) -> ir.Formula:
    """The condition for a request that omits the last name of its resource, of type `type_`.

    No atom holds on the resource or below it; the condition that a `can` on it refers to may need less.
    """

    def leaf(part: ir.Atom | ir.Can) -> ir.Formula:
        if not any(_unnamed(program, target, type_) for target in part.targets):
            return part
        return replace_atoms(resolve_can(program, part), leaf) if isinstance(part, ir.Can) else ir.NEVER

    return flat(replace_atoms(formula, leaf))


def _unnamed(program: ir.Program, target: ir.Target, type_: str) -> bool:
    if target.level in ("parent", "first", "any"):
        return False  # whether these are the entity without a name depends on the path
    return target.slot == ir.RESOURCE and program.anchor(target)[0] >= len(program.chain(type_)) - 1
