"""What the analyses find out once for all conditions of a shape is what they find out about each."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import count

import pytest
import small_policies
import worlds
from generated_programs import lowered, read

from privtab.ir.canonical import Canonical
from privtab.ir.nodes import Program
from privtab.ir.shapes import Shapes

POLICY = """
privtab: 1
system: twins
version: 1
entities:
  root:
    left: {left_item:}
    right: {right_item:}
    odd: {odd_item:}
privileges:
  A: {on: [root, left, left_item]}
  B: {on: [root, right, right_item]}
  C: {on: [odd, odd_item]}
semantics: {inheritance: down, deny: none, owner: {kinds: [user]}}
tables:
  left_item: {load: A (left) or owner (root), read: A (left_item) or owner (root)}
  right_item: {load: B (right) or owner (root), read: B (right_item) or owner (root)}
  odd_item: {load: C (odd) or owner (root), read: owner (root) or C (odd_item)}
"""


def findings(text: str) -> list[tuple[str, str, int, int]]:
    return [(d.code, d.message, d.span.line, d.span.column) for d in read(text)[1]]


def minimal_sets(program: Program) -> list[object]:
    form = Canonical(program)
    return [form.minimal_sets(rule.item_condition) for rule in program.rules.values() if not rule.withs]


def test_a_shape_is_about_everything_but_names() -> None:
    shapes = Shapes(lowered(POLICY)[0])

    def shape(type_: str, operation: str) -> int:
        return shapes.of([shapes.program.rules[type_, operation].item_condition]).number

    assert shape("left_item", "load") == shape("right_item", "load") != shape("left_item", "read")
    assert shape("left_item", "read") == shape("right_item", "read")
    assert shape("odd_item", "load") != shape("left_item", "load"), "it cannot be granted on the root"
    assert shape("odd_item", "read") != shape("left_item", "read"), "the order differs"


def test_leaves_of_equal_shapes_correspond() -> None:
    program = lowered(POLICY)[0]
    left, right = (program.rules[type_, "load"].item_condition for type_ in ("left_item", "right_item"))
    form = Canonical(program)
    assert str(form.minimal_sets(left)).replace("'A'", "'B'").replace("left", "right") == str(form.minimal_sets(right))


@pytest.mark.parametrize("seed", range(4))
def test_findings_and_minimal_sets_are_those_of_each_row_alone(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [worlds.policy(seed), small_policies.policy(seed)]
    shared = [(findings(text), minimal_sets(lowered(text)[0])) for text in texts]
    numbers = count()

    def unlike_any_other(_shapes: Shapes, _tokens: list[Hashable]) -> int:
        return next(numbers)

    monkeypatch.setattr(Shapes, "number", unlike_any_other)
    assert shared == [(findings(text), minimal_sets(lowered(text)[0])) for text in texts]


def test_a_question_may_be_about_a_type_of_another_version() -> None:
    shapes = Shapes(lowered(POLICY)[0])
    condition = shapes.program.rules["left_item", "load"].item_condition
    known, gone = (shapes.of([condition], {"with": [type_]}).number for type_ in ("left", "gone"))
    assert known != gone
