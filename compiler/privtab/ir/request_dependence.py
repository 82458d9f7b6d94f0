"""What conditions depend on beside the state: flags of the request, and types of its objects."""

from __future__ import annotations

from privtab._once import once
from privtab.ir.formula import resolve, walk
from privtab.ir.nodes import ByType, Can, Formula, Program, Rule, When


def depends_on_request(program: Program, formula: Formula) -> bool:
    """Whether a condition depends on the flags of a request or on the types of its objects."""
    return any(
        isinstance(node, When | ByType) or (isinstance(node, Can) and _can_depends_on_request(program, node))
        for node in walk(formula)
    )


def _can_depends_on_request(program: Program, can: Can) -> bool:
    known = _cans_that_depend(program)
    if can not in known:
        known[can] = depends_on_request(program, resolve(program, can))
    return known[can]


@once
def _cans_that_depend(program: Program) -> dict[Can, bool]:
    """For each `can` of a program that was asked about, whether its condition depends on the request."""
    del program
    return {}


def rule_flags(program: Program, rule: Rule) -> tuple[str, ...]:
    """The flags that a rule depends on, also through `can`, sorted."""
    known = _flags_of_rules(program).get(id(rule))
    if known is None or known[0] is not rule:
        parts = (part for part in (rule.gate, rule.requires, rule.each) if part is not None)
        found = tuple(sorted(frozenset[str]().union(*(condition_flags(program, part) for part in parts))))
        known = _flags_of_rules(program)[id(rule)] = rule, found
    return known[1]


def condition_flags(program: Program, formula: Formula) -> frozenset[str]:
    """The flags that a condition depends on, also through `can`."""
    known = _flags_of_cans(program)
    found = set()
    for node in walk(formula):
        if isinstance(node, When):
            found.add(node.flag)
        elif isinstance(node, Can):
            if node not in known:
                known[node] = condition_flags(program, resolve(program, node))
            found |= known[node]
    return frozenset(found)


@once
def _flags_of_rules(program: Program) -> dict[int, tuple[Rule, tuple[str, ...]]]:
    """`rule_flags` by the identity of rules, which are long to compare."""
    del program
    return {}


@once
def _flags_of_cans(program: Program) -> dict[Can, frozenset[str]]:
    """For each `can` of a program that was asked about, the flags that its condition depends on."""
    del program
    return {}
