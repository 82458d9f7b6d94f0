"""Program → Program, with the same meaning; PASSES defines the order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from privtab.base.errors import Undecided
from privtab.ir.algebra import Rebuilder
from privtab.ir.exact import ImplicationChecker
from privtab.ir.formula import flat, resolve_can, walk_condition, with_conditions, without_name
from privtab.ir.nodes import ALWAYS, RESOURCE, And, Atomic, Can, Formula, Program, Rule, Target
from privtab.ir.shapes import condition_flags


def narrowest_first(program: Program) -> Program:
    """Order the parts of every conjunction by the deepest type that they refer to, deepest first.

    Most callers hold something on a container and little inside it, so this finds most denials soonest.
    """
    ordering = _Ordered(program)
    rules = {key: with_conditions(rule, ordering.fold, gate=False) for key, rule in program.rules.items()}
    return replace(program, rules=rules)


class _Ordered(Rebuilder):
    def __init__(self, program: Program) -> None:
        self._program = program
        self._depths = {name: len(program.chain(name)) for name in program.entities}
        self._depths_of_cans: dict[Can, int] = {}

    def all_of(self, values: Iterable[Formula]) -> Formula:
        return And(parts=tuple(sorted(values, key=self._depth, reverse=True)))

    def _depth(self, formula: Formula) -> int:
        """The depth of the deepest type that the formula refers to."""
        return max(map(self._depth_of, walk_condition(formula)), default=0)

    def _depth_of(self, node: Formula) -> int:
        if isinstance(node, Can):
            if node not in self._depths_of_cans:
                self._depths_of_cans[node] = self._depth(resolve_can(self._program, node))
            return self._depths_of_cans[node]
        if isinstance(node, Atomic):
            return max((self._depths[target.type] for target in node.targets), default=0)
        return 0


NONE: frozenset[str] = frozenset()


def drop_implied_gate(program: Program) -> Program:
    """Drop each gate that `requires` implies for all flags, and for requests with and without the last name.

    `can load (schema)` includes the gate of `schema/load`; if that is the row's gate too, the row need not repeat it.
    """
    exact = ImplicationChecker(program)
    rules = {}
    for key, rule in program.rules.items():
        simplified = rule
        # A condition is weakest without flags: what it implies then, it always implies. A gate with flags stays.
        if rule.gate != ALWAYS and not condition_flags(program, rule.gate):
            try:
                if all(exact.always_implies(rule, *pair, NONE) for pair in _pairs(program, rule)):
                    simplified = replace(rule, gate=ALWAYS)
            except Undecided:
                pass  # keep the gate, needed or not
        rules[key] = simplified
    return replace(program, rules=rules)


def _pairs(program: Program, rule: Rule) -> Iterator[tuple[Formula, Formula]]:
    """Pairs of a condition that a rule requires and the gate it must imply: as written, and without the last name.

    Nothing holds on an unnamed object, so that a privilege on an ancestor no longer implies one on the object itself.
    """
    yield rule.requires, rule.gate
    index, _ = program.anchor(Target(slot=RESOURCE, type=rule.entity))
    for type_ in program.chain(rule.entity)[index:]:
        gate = without_name(program, rule.gate, type_)
        if gate != flat(rule.gate):  # otherwise it is still implied, since `requires` only becomes stronger
            yield without_name(program, rule.requires, type_), gate


def flatten(program: Program) -> Program:
    """Flatten nested conjunctions and disjunctions in every condition of the program, and drop duplicate parts."""
    return replace(program, rules={key: with_conditions(rule, flat) for key, rule in program.rules.items()})


PASSES: tuple[Callable[[Program], Program], ...] = (
    flatten,  # first: the others expect one level of parts
    drop_implied_gate,  # then: drop what a `can` already checks
    narrowest_first,  # last: order what is left
)


def run(program: Program) -> Program:
    """Run every pass, in order."""
    for pass_ in PASSES:
        program = pass_(program)
    return program
