"""The texts of atoms, the same in every output."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import assert_never

from privtab.attributes import Value
from privtab.ir.levels import level_name
from privtab.ir.nodes import (
    RESOURCE,
    ByType,
    Compare,
    Has,
    HasBelow,
    Holds,
    Member,
    Owner,
    OwnsBelow,
    Rule,
    Self,
    ServiceAdmin,
    Target,
    Term,
)
from privtab.ir.shapes import Leaf
from privtab.names import quoted


def target_text(target: Target, rule: Rule, types: Mapping[str, str] | None = None) -> str:
    """The text of a target: its type; for a `with` object its name, and `name.type` for what lies above it."""
    if target.slot == RESOURCE:
        return level_name(target)
    slot = next(w for w in rule.withs if w.name == target.slot)
    object_type = (types or {}).get(slot.name, slot.types[0])
    is_nearest_own = target.type == object_type and target.level == "nearest"
    return slot.name if is_nearest_own else f"{slot.name}.{level_name(target)}"


def atom_text(atom: Leaf, rule: Rule, types: Mapping[str, str] | None = None) -> str:
    """The text of an atom, by types: `READ (namespace)`, `owner (catalog)`, `self`, `member (metalake)`.

    `types`: as for `minimal_sets`.
    """
    return atom_words(atom, lambda target: target_text(target, rule, types))


def compare_text(compare: Compare, place: Callable[[Target], str]) -> str:
    """The text of a comparison: `class (table) in {public, internal}`, `user.department = department (table)`, `editor in user.roles`."""
    right = compare.right
    if compare.operator == "contains":
        return f"{constants_text(compare)} in {term_text(compare.left, place)}"
    operand = term_text(right, place) if isinstance(right, Term) else constants_text(compare)
    return f"{term_text(compare.left, place)} {compare.operator} {operand}"


def term_text(term: Term, place: Callable[[Target], str]) -> str:
    """The text of an attribute in a comparison."""
    return f"{term.kind}.{term.attribute}" if term.target is None else f"{term.attribute} ({place(term.target)})"


def value_text(value: Value) -> str:
    """The value of an attribute as a condition spells it; a set as a list."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int):
        return str(value) if _is_word(value) else json.dumps(value, ensure_ascii=False)
    return f"{{{', '.join(map(value_text, value))}}}"


def constants_text(compare: Compare) -> str:
    """The text of the constants of a comparison; texts that are no words are quoted."""
    assert not isinstance(compare.right, Term)
    texts = list(map(value_text, compare.right))
    return f"{{{', '.join(texts)}}}" if compare.operator == "in" else texts[0]


def _is_word(constant: object) -> bool:
    return not isinstance(constant, str) or constant.isidentifier()


def atom_words(atom: Leaf, place: Callable[[Target], str]) -> str:
    """The text of an atom, the same in every output; `place` returns the text of its target."""
    match atom:
        case ServiceAdmin():
            return "service admin"
        case Self():
            return "self"
        case ByType():
            return atom.text
        case Has():
            return f"{quoted(atom.privilege)} ({place(atom.target)})"
        case Owner():
            return f"owner ({place(atom.target)})"
        case Member():
            return f"member ({place(atom.target)})"
        case Holds():
            return f"holds ({place(atom.target)})"
        case HasBelow():
            return f"{quoted(atom.privilege)} ({place(atom.target)} or below)"
        case OwnsBelow():
            return f"owner ({place(atom.target)} or below)"
        case Compare():
            return compare_text(atom, place)
        case _:
            assert_never(atom)
