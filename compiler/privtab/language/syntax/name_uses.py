"""The names that a condition or effects use, and what each is there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeAlias

from privtab.language.syntax.expression import (
    CanDo,
    CellError,
    Comparison,
    Effects,
    EffectTerm,
    Expression,
    Name,
    OnTargets,
    PrivilegeTerm,
    Related,
    parse_condition,
    walk_expression,
)


class NameUse(NamedTuple):
    """A name in a condition or in effects, and what it is there.

    >>> tree = parse_condition("can load (schema) and owner (table)")
    >>> [(use.kind, use.name.text) for use in names_in(tree)]
    [('operation', 'load'), ('target', 'schema'), ('owner', 'owner'), ('target', 'table')]
    """

    kind: Literal["privilege", "operation", "target", "attribute", "owner"]
    name: Name
    of: tuple[Name, ...] = ()
    """The targets of an operation."""


ParsedCell: TypeAlias = Expression | Effects | CellError
"""The tree of a cell, or why it has none: `parse_condition("READ (")` has none."""


def names_in(tree: ParsedCell) -> Iterator[NameUse]:
    """Every name in a condition or in effects, in the order of the text; none in a cell without a tree.

    >>> from privtab.language import parse_effects
    >>> [use.name.text for use in names_in(parse_effects("READ + WRITE (entity)"))]
    ['READ', 'WRITE', 'entity']
    """
    if isinstance(tree, CellError):
        return
    for part in tree if isinstance(tree, tuple) else walk_expression(tree):
        match part:
            case PrivilegeTerm(privileges=names) | EffectTerm(names=names):
                yield from (NameUse("owner" if name.text == "owner" else "privilege", name) for name in names)
            case CanDo():
                yield NameUse("operation", part.operation, part.targets)
            case Related(kind="owner"):
                yield NameUse("owner", part.word)
            case Comparison():
                yield from (NameUse("attribute", term) for term in (part.left, part.right) if isinstance(term, Name))
            case _:
                pass
        if isinstance(part, OnTargets | EffectTerm):
            yield from (NameUse("target", target) for target in part.targets)


def parse_constants(relation: str, text: str) -> tuple[str | int | bool, ...] | None:
    """The constants beside an attribute in a comparison, or None if the text has none.

    >>> parse_constants("in", "{public, internal}"), parse_constants(">=", "3"), parse_constants("=", "a b")
    (('public', 'internal'), (3,), None)
    """
    parsed = parse_condition(f"{text} in user.a" if relation == "contains" else f"user.a {relation} {text}")
    if isinstance(parsed, Comparison) and isinstance(parsed.right, tuple):
        return tuple(constant.value for constant in parsed.right)
    return None
