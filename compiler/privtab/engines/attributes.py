"""Comparisons of attributes, over what a request gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from privtab.attributes import NONE_GIVEN, GivenAttributes, Operator, holds
from privtab.request import Request


@dataclass(frozen=True, slots=True)
class Operand:
    """An attribute of the user, of the request (`of`), or of the entity of a type on a slot's path."""

    of: str
    attribute: str
    slot: str = ""
    type: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two attributes, or one and constants, and the relation between them."""

    left: Operand
    operator: Operator
    right: Operand | tuple[Any, ...]

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The attributes."""
        return (self.left, self.right) if isinstance(self.right, Operand) else (self.left,)

    def holds(self, value: Callable[[Operand], object]) -> bool:
        """Whether both values exist and stand in the relation; `value` returns that of an attribute, or None."""
        left = value(self.left)
        if left is None:
            return False
        if not isinstance(self.right, Operand):
            # `=`, `<` and so on have one constant.
            return left in self.right if self.operator == "in" else holds(left, self.operator, self.right[0])
        right = value(self.right)
        return right is not None and holds(left, self.operator, right)


def operand(value: Mapping[str, Any], slot: str) -> Operand:
    """Read an operand of the program's JSON; `slot` is that of the resource of its condition."""
    if value["of"] != "entity":
        return Operand(value["of"], value["attribute"])
    return Operand("entity", value["attribute"], value["slot"] or slot, value["type"])


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestValues:
    """The attributes that a request gives."""

    given: GivenAttributes = NONE_GIVEN
    entities: Mapping[tuple[str, str], object] = field(default_factory=dict)
    """Of its objects, by key and name."""

    @classmethod
    def of(cls, request: Request, slots: Sequence[str]) -> RequestValues:
        """Those of a request for an operation with these `with` objects."""
        if not request.attributes:
            return NO_VALUES
        objects = (("", request.resource), *((slot, request.with_[slot]) for slot in slots))
        entities = {
            (str(entity), name): value
            for slot, entity in objects
            for name, value in request.attributes.of_slot(slot).items()
        }
        return cls(given=request.attributes, entities=entities)

    def value(self, operand: Operand, path: str | None) -> object:
        """The value of an attribute, None if it is absent; `path` is that of its entity, None if the request does not name it."""
        if operand.of == "user":
            return self.given.user.get(operand.attribute)
        if operand.of == "request":
            return self.given.request.get(operand.attribute)
        return None if path is None else self.entities.get((f"{operand.type}:{path}", operand.attribute))


NO_VALUES = RequestValues()
