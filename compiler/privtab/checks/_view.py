"""A policy lowered once for all checks, and the questions that several of them ask of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import combinations, product
from typing import TYPE_CHECKING, assert_never

from privtab._once import once

if TYPE_CHECKING:
    from privtab.checks._superfluous import Superfluous
    from privtab.diagnostics import Diagnostic
    from privtab.ir.canonical import AtomSet, Canonical
    from privtab.ir.exact import Exact
    from privtab.ir.lower import Lowering
    from privtab.ir.nodes import Atom, Can, Formula, Program, Rule
    from privtab.model.nodes import PairKey, Policy, Row
    from privtab.model.others import Others

Setting = tuple[frozenset[str], dict[str, str]]
"""Flags that a request sets, and the type of each of its `with` objects."""


class View:
    """The program of a policy, made when a check first asks for it, and its conditions compared exactly."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._implied: dict[tuple[PairKey, Formula, Formula], bool] = {}
        self._sets: dict[tuple[Formula, frozenset[str], tuple[tuple[str, str], ...]], tuple[AtomSet, ...]] = {}
        self._about: dict[Formula, tuple[frozenset[str], frozenset[str]]] = {}
        self._resolved: dict[Formula, Formula] = {}

    @cached_property
    def lowering(self) -> Lowering:
        """Lowers single rows and conditions."""
        from privtab.ir.lower import Lowering

        return Lowering(self.policy)

    @cached_property
    def program(self) -> Program:
        """The whole program."""
        from privtab.ir.lower import lower

        return lower(self.policy)

    @cached_property
    def canonical(self) -> Canonical:
        """Minimal sets."""
        from privtab.ir.canonical import canonical

        return canonical(self.program)

    @cached_property
    def exact(self) -> Exact:
        """Comparisons."""
        from privtab.ir.exact import Exact

        return Exact(self.program)

    def rule(self, row: Row) -> Rule:
        """The rule of a row of the policy."""
        return self.program.rules[row.entity, row.operation]

    def settings(self, rule: Rule, *about: Formula) -> Iterator[Setting]:
        """Every set of flags with every choice of types for the rule's objects, as far as the conditions tell them apart.

        `about`: the conditions; where left off, the rule's own.
        """
        from privtab.ir.formula import item_condition

        told = [self._told_apart(formula) for formula in about or (item_condition(rule),)]
        flags = sorted({flag for some, _ in told for flag in some})
        slots = {slot for _, some in told for slot in some}
        types = [slot.types if slot.name in slots else slot.types[:1] for slot in rule.withs]
        names = [slot.name for slot in rule.withs]
        for size in range(len(flags) + 1):
            for some in combinations(flags, size):
                for chosen in product(*types):
                    yield frozenset(some), dict(zip(names, chosen, strict=True))

    def _told_apart(self, formula: Formula) -> tuple[frozenset[str], frozenset[str]]:
        """The flags that a condition asks about, and the slots on whose type it depends."""
        from privtab.ir.formula import followed
        from privtab.ir.nodes import ByType, When

        if formula not in self._about:
            nodes = list(followed(self.program, formula))
            flags = frozenset(node.flag for node in nodes if isinstance(node, When))
            self._about[formula] = flags, frozenset(node.slot for node in nodes if isinstance(node, ByType))
        return self._about[formula]

    def sets(self, formula: Formula, setting: Setting) -> tuple[AtomSet, ...]:
        """The minimal sets of a condition."""
        flags, types = setting
        key = formula, flags, tuple(types.items())
        if key not in self._sets:
            self._sets[key] = tuple(map(frozenset, self.canonical.minimal_sets(formula, flags, types)))
        return self._sets[key]

    def implies(self, rule: Rule, one: Formula, other: Formula) -> bool:
        """Whether `one` implies `other`, whatever the state, the flags and the types of the rule's objects."""
        key = ((rule.entity, rule.operation), one, other)
        if key not in self._implied:
            self._implied[key] = all(self._implies(one, other, s) for s in self.settings(rule, one, other))
        return self._implied[key]

    def _implies(self, one: Formula, other: Formula, setting: Setting) -> bool:
        """Where nothing but a single way to have each thing matters, minimal sets tell; else every way is tried."""
        if all(self._gives(atoms, other, setting) for atoms in self.sets(one, setting)):
            return True
        semantics = self.policy.semantics
        holds = semantics.owner is not None and semantics.owner.holds
        # A privilege above and one below entail it in between, unless the lower one may come with ownership.
        by_cases = semantics.inheritance == "down" and semantics.deny == "overrides" and holds
        return bool(by_cases) and self.exact.implies(one, other, *setting)

    def _gives(self, atoms: AtomSet, formula: Formula, setting: Setting) -> bool:
        """Whether a condition holds wherever all of the atoms do."""
        return self.holds(formula, setting, lambda atom: self.canonical.entails(atoms, atom))

    def holds(self, formula: Formula, setting: Setting, atom: Callable[[Atom], bool]) -> bool:
        """Whether a condition holds, as `atom` says which atoms do."""
        from privtab.ir import nodes as ir

        flags, types = setting

        def look(node: Formula) -> bool:
            match node:
                case ir.Has() | ir.Owner() | ir.Member() | ir.Self() | ir.Holds() | ir.ServiceAdmin():
                    return atom(node)
                case ir.And():
                    return all(map(look, node.parts))
                case ir.Or():
                    return any(map(look, node.parts))
                case ir.When():
                    return node.flag not in flags or look(node.body)
                case ir.Can():
                    return look(self.resolved(node))
                case ir.ByType():
                    case_ = dict(node.cases).get(types[node.slot])
                    return case_ is not None and look(case_)
                case _:
                    assert_never(node)

        return look(formula)

    def resolved(self, can: Can) -> Formula:
        """The condition that a `can` stands for, about the same object."""
        from privtab.ir.formula import resolve

        if can not in self._resolved:
            self._resolved[can] = resolve(self.program, can)
        return self._resolved[can]

    def same(self, rule: Rule, one: Formula, other: Formula) -> bool:
        """Whether two conditions are one."""
        return self.implies(rule, one, other) and self.implies(rule, other, one)

    def satisfiable(self, formula: Formula, setting: Setting, *, unnamed: str | None = None) -> bool:
        """Whether some state gives a condition: there is no negation, so the one who has everything passes it, or nobody.

        `unnamed`: the type of a resource whose last name is left off, so that nobody has anything on it. In a sound policy
        each privilege can be granted where a condition asks for it.
        """
        from privtab.ir.formula import anchor
        from privtab.ir.nodes import RESOURCE, ServiceAdmin

        depth = 0 if unnamed is None else len(self.program.chain(unnamed)) - 1

        def had(atom: Atom) -> bool:
            if unnamed is None or isinstance(atom, ServiceAdmin) or atom.target.slot != RESOURCE:
                return True
            return anchor(self.program, atom.target)[0] < depth

        return self.holds(formula, setting, had)

    @cached_property
    def others(self) -> Others:
        """Rows that the policy might have had."""
        from privtab.model.others import Others

        return Others(self.policy)

    @cached_property
    def superfluous(self) -> tuple[Superfluous, ...]:
        """The parts of rows without which they decide the same."""
        from privtab.checks._superfluous import superfluous

        return tuple(superfluous(self))

    @cached_property
    def needed(self) -> frozenset[Atom]:
        """Every atom without which some call or item is refused: those of minimal sets, about the resource or an object."""
        from privtab.ir.formula import call_condition, item_condition
        from privtab.ir.nodes import ByType

        return frozenset(
            atom
            for rule in self.program.rules.values()
            for setting in self.settings(rule)
            for condition in {call_condition(rule), item_condition(rule)}
            for atoms in self.sets(condition, setting)
            for atom in atoms
            if not isinstance(atom, ByType)
        )

    @cached_property
    def spoken(self) -> tuple[Formula, ...]:
        """Conditions of readings and variants, which may be taken another day."""
        rows = [row for _, row in self.others.variants()]
        rows += [other for row in self.policy.rows.values() for _, other in self.others.readings(row)]
        return tuple(self.lowering.formula(c) for row in rows for c in (row.requires, row.each) if c is not None)

    @cached_property
    def asked(self) -> frozenset[tuple[str, str]]:
        """Each (privilege, type) that decides something, here or in a reading or a variant."""
        from privtab.ir.formula import leaves
        from privtab.ir.nodes import Has

        atoms = (*self.needed, *(atom for formula in self.spoken for atom in leaves(self.program, formula)))
        return frozenset((atom.privilege, atom.target.type) for atom in atoms if isinstance(atom, Has))

    @cached_property
    def _counting(self) -> frozenset[tuple[str, str]]:
        if self.policy.semantics.inheritance == "none":
            return self.asked
        chain = self.policy.hierarchy.chain
        return frozenset((privilege, above) for privilege, type_ in self.asked for above in chain(type_))

    def counts(self, privilege: str, type_: str) -> bool:
        """Whether holding a privilege on a type can change an answer: it is asked there or, with inheritance, below."""
        return (privilege, type_) in self._counting

    @cached_property
    def related(self) -> frozenset[tuple[str, str]]:
        """Each (`owner` or `member`, type) that decides something, here or in a reading or a variant."""
        from privtab.ir.formula import leaves
        from privtab.ir.nodes import Member, Owner

        atoms = (*self.needed, *(atom for formula in self.spoken for atom in leaves(self.program, formula)))
        return frozenset((type(a).__name__.lower(), a.target.type) for a in atoms if isinstance(a, Owner | Member))


@once
def view(policy: Policy) -> View:
    """The shared view of a policy."""
    return View(policy)


def everywhere(policy: Policy, found: Iterable[tuple[Row, Diagnostic]]) -> Iterator[Diagnostic]:
    """The findings that hold for every type and operation that their row is for, each once.

    A row for many types may say too much for one of them and just enough for another; that is no fault of it.
    """
    rows = Counter(id(row.decl.body) for row in policy.rows.values())
    counted: Counter[tuple[Diagnostic, int]] = Counter()
    for row, diagnostic in found:
        body = id(row.decl.body)
        counted[diagnostic, body] += 1
        if counted[diagnostic, body] == rows[body]:
            yield diagnostic
