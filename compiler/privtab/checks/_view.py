"""A policy lowered once for all checks, and the questions that several of them ask of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache
from itertools import combinations, product
from typing import TYPE_CHECKING, assert_never

if TYPE_CHECKING:
    from privtab.diagnostics import Diagnostic
    from privtab.ir.canonical import AtomSet, Canonical
    from privtab.ir.exact import Exact
    from privtab.ir.lower import Lowering
    from privtab.ir.nodes import Atom, Formula, Program, Rule
    from privtab.model.nodes import PairKey, Policy, Row
    from privtab.model.others import Others

Setting = tuple[frozenset[str], dict[str, str]]
"""Flags that a request sets, and the type of each of its `with` objects."""


class View:
    """The program of a policy, made when a check first asks for it, and its conditions compared exactly."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._implied: dict[tuple[PairKey, Formula, Formula], bool] = {}

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
        from privtab.ir.formula import followed, item_condition
        from privtab.ir.nodes import ByType, When

        nodes = [node for formula in about or (item_condition(rule),) for node in followed(self.program, formula)]
        flags = sorted({node.flag for node in nodes if isinstance(node, When)})
        slots = {node.slot for node in nodes if isinstance(node, ByType)}
        types = [slot.types if slot.name in slots else slot.types[:1] for slot in rule.withs]
        names = [slot.name for slot in rule.withs]
        for size in range(len(flags) + 1):
            for some in combinations(flags, size):
                for chosen in product(*types):
                    yield frozenset(some), dict(zip(names, chosen, strict=True))

    def sets(self, formula: Formula, setting: Setting) -> list[AtomSet]:
        """The minimal sets of a condition."""
        return [frozenset(atoms) for atoms in self.canonical.minimal_sets(formula, *setting)]

    def implies(self, rule: Rule, one: Formula, other: Formula) -> bool:
        """Whether `one` implies `other`, whatever the state, the flags and the types of the rule's objects."""
        key = ((rule.entity, rule.operation), one, other)
        if key not in self._implied:
            self._implied[key] = all(self.exact.implies(one, other, *s) for s in self.settings(rule, one, other))
        return self._implied[key]

    def same(self, rule: Rule, one: Formula, other: Formula) -> bool:
        """Whether two conditions are one."""
        return self.implies(rule, one, other) and self.implies(rule, other, one)

    def satisfiable(self, formula: Formula, setting: Setting, *, unnamed: str | None = None) -> bool:
        """Whether some state gives a condition: there is no negation, so the one who has everything passes it, or nobody.

        `unnamed`: the type of a resource whose last name is left off, so that nobody has anything on it. In a sound policy
        each privilege can be granted where a condition asks for it.
        """
        from privtab.ir import nodes as ir
        from privtab.ir.formula import anchor, resolve

        flags, types = setting
        depth = 0 if unnamed is None else len(self.program.chain(unnamed)) - 1

        def holds(node: Formula) -> bool:
            match node:
                case ir.ServiceAdmin():
                    return True
                case ir.Has() | ir.Owner() | ir.Member() | ir.Self() | ir.Holds():
                    target = node.target
                    return unnamed is None or target.slot != ir.RESOURCE or anchor(self.program, target)[0] < depth
                case ir.And():
                    return all(map(holds, node.parts))
                case ir.Or():
                    return any(map(holds, node.parts))
                case ir.When():
                    return node.flag not in flags or holds(node.body)
                case ir.Can():
                    return holds(resolve(self.program, node))
                case ir.ByType():
                    case_ = dict(node.cases).get(types[node.slot])
                    return case_ is not None and holds(case_)
                case _:
                    assert_never(node)

        return holds(formula)

    @cached_property
    def others(self) -> Others:
        """Rows that the policy might have had."""
        from privtab.model.others import Others

        return Others(self.policy)

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
            for atoms in self.canonical.minimal_sets(condition, *setting)
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

    def counts(self, privilege: str, type_: str) -> bool:
        """Whether holding a privilege on a type can change an answer: it is asked there or, with inheritance, below."""
        if self.policy.semantics.inheritance == "none":
            return (privilege, type_) in self.asked
        within = self.policy.hierarchy.within
        return any(asked == privilege and within(at, type_) for asked, at in self.asked)


@lru_cache(maxsize=2)
def _of(policy: _ById) -> View:
    return View(policy.policy)


class _ById:
    """A policy as a cache key, by identity: policies hold mappings and so cannot be hashed."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def __hash__(self) -> int:
        return id(self.policy)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ById) and other.policy is self.policy


def view(policy: Policy) -> View:
    """The shared view of a policy."""
    return _of(_ById(policy))


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
