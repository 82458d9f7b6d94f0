"""The levels of a type that nests, in texts and in what they entail of each other."""

from __future__ import annotations

from privtab.ir.nodes import Program, Target

LEVELS_ABOVE = frozenset(
    {
        ("first", "nearest"),
        ("first", "any"),
        ("parent", "nearest"),
        ("parent", "any"),
        ("nearest", "any"),
        ("every", "nearest"),
        ("every", "first"),
        ("every", "any"),
    }
)
"""With inheritance: levels of a type on which a privilege entails it on others. `first` and `every`, and `nearest` and `any`, entail
each other for named entities; one direction is left out, so that entailment has no cycles."""

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


def level_text(target: Target) -> str:
    """What tells a target in sort keys from the nearest of its type."""
    return "" if target.level == "nearest" else f" {target.level}"


def level_name(target: Target) -> str:
    """The text of a target's type and level: `namespace`, `any namespace`, `parent of namespace`."""
    match target.level:
        case "nearest":
            return target.type
        case "parent":
            return f"parent of {target.type}"
        case level:
            return f"{level} {target.type}"


def types_of(program: Program, target: Target) -> tuple[str, ...]:
    """The types that the entity of a target may have: for `parent`, also the type around the one that nests."""
    outer = program.entities[target.type].parent if target.level == "parent" else None
    return (target.type,) if outer is None else (target.type, outer)
