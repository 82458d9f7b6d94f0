"""Declared attributes, and comparisons of them in conditions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast, get_args

from privtab.attributes import Attribute, Attributes, Kind, Operator
from privtab.diagnostics import Diagnostic
from privtab.findings import undeclared, unsound_types
from privtab.ir.nodes import RESOURCE
from privtab.model import nodes as m
from privtab.syntax import expression as x
from privtab.syntax.nodes import Cell, Tables

if TYPE_CHECKING:
    from privtab.model.conditions import Scope
    from privtab.model.names import DeclaredNames


def resolve_attributes(tables: Tables, names: DeclaredNames, found: list[Diagnostic]) -> Attributes:
    """The declared attributes; those of entities with the types that have them."""
    declared: dict[Kind, dict[str, Attribute]] = {kind: {} for kind in get_args(Kind)}
    for decl in tables.attributes:
        attribute = decl.type
        if decl.kind == "entity":
            known = tuple(names.entities)
            words = None if decl.on is None else [word for word in decl.on if names.check_type(word, found)]
            on = known if words is None else tuple(dict.fromkeys(word.value for word in words))
            attribute = replace(attribute, on=on)
        declared[decl.kind][decl.name.value] = attribute
    return Attributes(**declared)


def compared(scope: Scope, comparison: x.Comparison, cell: Cell) -> m.Compared | None:
    """A comparison with its attributes looked up and their types checked; None after a finding."""
    left = _term(scope, comparison.left, cell)
    right = _term(scope, comparison.right, cell) if isinstance(comparison.right, x.Name) else comparison.right
    if left is None or right is None:
        return None
    spot = m.CellPart(cell, comparison.left.start, comparison.left.end)
    wrong = _mismatch(comparison, left, right, cell)
    if wrong is not None:
        scope.fail(wrong)
        return None
    operand = right if isinstance(right, m.TermUse) else tuple(constant.value for constant in right)
    return m.Compared(left, cast("Operator", comparison.relation), operand, spot)


def _term(scope: Scope, written: x.Name, cell: Cell) -> m.TermUse | None:
    """The attribute that a name such as `user.department` or `schema.class` means."""
    if not scope.names.attributes_known:
        scope.poisoned = True
        return None
    head, _, name = written.text.partition(".")
    span = cell.part(written.start, written.end)
    place = None
    kind: Kind = "entity"
    if head in ("user", "request") and head not in scope.objects:
        kind = "user" if head == "user" else "request"
    else:
        place = scope.place(x.Name(head, written.start, written.start + len(head)), cell)
        if place is None:
            return None
    if place is not None and place.level not in ("nearest", "first"):
        scope.fail(unsound_types.misplaced_nested_compared(span, head))
        return None
    declared = scope.names.attributes.of(kind)
    if name not in declared:
        scope.fail(undeclared.unknown_attribute(span, written.text, name, tuple(declared)))
        return None
    attribute = declared[name]
    for type_ in place.types if place is not None else ():
        if type_ not in attribute.on:
            scope.fail(undeclared.unknown_attribute_not_on(span, name, type_, attribute.on))
            return None
    contains = (
        place is not None and place.slot == RESOURCE and (place.types[0], place.level) != (scope.entity, "nearest")
    )
    if place is not None and contains and "state" not in attribute.origins:
        scope.fail(undeclared.unknown_attribute_not_given(span, name, place.types[0]))
        return None
    return m.TermUse(kind, name, place, attribute)


def _mismatch(
    comparison: x.Comparison, left: m.TermUse, right: m.TermUse | tuple[x.Constant, ...], cell: Cell
) -> Diagnostic | None:
    """The finding for values that do not compare."""
    word, relation = comparison.left, comparison.relation
    span = cell.part(word.start, word.end)
    own = left.type
    if isinstance(right, tuple):
        [first, *_] = right
        if first.word == word and own.type != "bool":
            return undeclared.wrong_comparison_truth(span, word.text, own.describe())
        refused = _refused(own, relation, word.text)
        if refused is not None:
            return undeclared.wrong_comparison_relation(span, word.text, own.describe(), relation, refused)
        for constant in right:
            if not own.compares_to_constant(relation, constant.value):
                where = cell.part(constant.word.start, constant.word.end)
                return undeclared.wrong_comparison_constant(where, word.text, constant.word.text, own.describe())
        return None
    other = right.type
    assert isinstance(comparison.right, x.Name)
    different_types = undeclared.wrong_comparison_different_types(
        span, word.text, own.describe(), comparison.right.text, other.describe()
    )
    refused = _refused(own, relation, word.text) if relation != "in" else None
    if refused is not None:
        return undeclared.wrong_comparison_relation(span, word.text, own.describe(), relation, refused)
    return None if own.compares_to(relation, other) else different_types


def _refused(type_: Attribute, relation: str, written: str) -> str | None:
    """What to write instead of a relation that values of the type do not stand in; None if they do."""
    if type_.type == "set":
        return None if relation == "contains" else f"compare the other way round: `VALUE in {written}`"
    if relation == "contains":
        return f"only sets have words in them: write `{written} = VALUE`"
    return None if type_.has_relation(relation) else "only whole numbers have an order; write `=` or `in {A, B}`"
