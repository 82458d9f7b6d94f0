"""Small operations on formulas that every reader of the IR shares."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import assert_never

from privtab.ir.nodes import (
    ALWAYS,
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


def item_condition(rule: Rule) -> Formula:
    """What a named item needs: gate, `requires` and `each`."""
    return call_condition(rule) if rule.each is None else conjunction(rule.gate, rule.requires, rule.each)


def move(formula: Formula, slot: str) -> Formula:
    """The formula about the object in `slot` in place of the resource."""
    match formula:
        case Has() | Owner() | Member() | Self() | Holds() | Can():
            target = formula.target
            return replace(formula, target=replace(target, slot=slot)) if target.slot == RESOURCE else formula
        case ServiceAdmin():
            return formula
        case And():
            return And(parts=tuple(move(p, slot) for p in formula.parts))
        case Or():
            return Or(parts=tuple(move(p, slot) for p in formula.parts))
        case When():
            return replace(formula, body=move(formula.body, slot))
        case ByType():
            return replace(formula, cases=tuple((t, move(f, slot)) for t, f in formula.cases))
        case _:
            assert_never(formula)


def resolve(program: Program, can: Can) -> Formula:
    """The condition that a `can` stands for, about the same object."""
    rule = program.rules[can.target.type, can.operation]
    return move(item_condition(rule), can.target.slot)


def leaves(program: Program, formula: Formula) -> Iterator[Atom]:
    """Every atom that the formula reaches, through `can` too; may repeat."""
    match formula:
        case Has() | Owner() | Member() | Self() | Holds() | ServiceAdmin():
            yield formula
        case And() | Or():
            for part in formula.parts:
                yield from leaves(program, part)
        case When():
            yield from leaves(program, formula.body)
        case Can():
            yield from leaves(program, resolve(program, formula))
        case ByType():
            for _, case in formula.cases:
                yield from leaves(program, case)
        case _:
            assert_never(formula)


def references(formula: Formula) -> Iterator[Can]:
    """Every `can` that the formula itself says."""
    match formula:
        case Has() | Owner() | Member() | Self() | Holds() | ServiceAdmin():
            return
        case Can():
            yield formula
        case And() | Or():
            for part in formula.parts:
                yield from references(part)
        case When():
            yield from references(formula.body)
        case ByType():
            for _, case in formula.cases:
                yield from references(case)
        case _:
            assert_never(formula)


def flags(program: Program, formula: Formula) -> frozenset[str]:
    """The flags that the formula asks about, through `can` too."""
    match formula:
        case Has() | Owner() | Member() | Self() | Holds() | ServiceAdmin():
            return frozenset()
        case And() | Or():
            return frozenset().union(*(flags(program, p) for p in formula.parts))
        case When():
            return flags(program, formula.body) | {formula.flag}
        case Can():
            return flags(program, resolve(program, formula))
        case ByType():
            return frozenset().union(*(flags(program, f) for _, f in formula.cases))
        case _:
            assert_never(formula)


def rule_flags(program: Program, rule: Rule) -> tuple[str, ...]:
    """The flags of a rule, sorted."""
    return tuple(sorted(flags(program, item_condition(rule))))


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
