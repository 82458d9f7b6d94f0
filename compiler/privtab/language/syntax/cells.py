"""Read the text of cells: conditions and effects, or the fault in a cell, in plain words. Equal cells share one tree.

The grammar's parser takes longer to load than a small policy to check, so only cells that the parser of `expression` does not read load it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal, cast

from privtab.language.syntax.expression import (
    CellError,
    Comparison,
    Effects,
    Expression,
    NameUse,
    names_in,
    read_cell,
)


def _parse(text: str, rule: Literal["condition", "effects"]) -> Any:
    tree = read_cell(text, rule)
    if tree is not None:
        return tree
    from privtab.language.syntax.cell_grammar import parse_by_grammar

    return parse_by_grammar(text, rule)


@lru_cache(maxsize=1 << 16)
def parse_condition(text: str) -> Expression | CellError:
    """The condition of a cell, or the error in it.

    >>> type(parse_condition("READ (table) or owner (table)")).__name__
    'AnyOf'
    """
    return cast("Expression | CellError", _parse(text, "condition"))


@lru_cache(maxsize=1 << 12)
def parse_effects(text: str) -> Effects | CellError:
    """The effects of a cell, or the error in it.

    >>> [name.text for term in parse_effects("READ + WRITE (entity)") for name in term.names]
    ['READ', 'WRITE']
    """
    return cast("Effects | CellError", _parse(text, "effects"))


def cell_names(text: str, kind: Literal["condition", "effects"]) -> tuple[NameUse, ...] | str:
    """The names in the text of a cell, or what is wrong with the text.

    >>> [(use.kind, use.name.text) for use in cell_names("can load (schema) and owner (table)", "condition")]
    [('operation', 'load'), ('target', 'schema'), ('owner', 'owner'), ('target', 'table')]
    >>> cell_names("READ (table", "condition")
    'the cell ends too early'
    """
    tree = parse_condition(text) if kind == "condition" else parse_effects(text)
    return tree.message if isinstance(tree, CellError) else tuple(names_in(tree))


def parse_constants(relation: str, text: str) -> tuple[str | int | bool, ...] | None:
    """The constants beside an attribute in a comparison, or None if the text has none.

    >>> parse_constants("in", "{public, internal}"), parse_constants(">=", "3"), parse_constants("=", "a b")
    (('public', 'internal'), (3,), None)
    """
    parsed = parse_condition(f"{text} in user.a" if relation == "contains" else f"user.a {relation} {text}")
    if isinstance(parsed, Comparison) and isinstance(parsed.right, tuple):
        return tuple(constant.value for constant in parsed.right)
    return None
