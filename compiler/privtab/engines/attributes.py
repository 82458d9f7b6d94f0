"""Comparisons of attributes, over what a request gives and what the state holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from privtab.attributes import NONE_GIVEN, Attributes, GivenAttributes, Operator, holds
from privtab.engines.index import Index
from privtab.paths import base_type
from privtab.request import Request


@dataclass(frozen=True, slots=True)
class Operand:
    """An attribute of the user, of the request (`of`), or of the entity of a type on a slot's path."""

    of: str
    attribute: str
    slot: str = ""
    type: str = ""
    held: bool = False
    """Whether the state may give the value."""
    default: Any = None
    """The value where the request gives none."""

    @property
    def ungiven(self) -> bool:
        """Whether there may be a value although the request gives none."""
        return self.held or self.default is not None


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


def operand(value: Mapping[str, Any], slot: str, declared: Attributes) -> Operand:
    """Read an operand of the program's JSON; `slot` is that of the resource of its condition."""
    of, name = value["of"], value["attribute"]
    attribute = declared.of(of)[name]
    from_state = "state" in attribute.origins
    if of != "entity":
        return Operand(of, name, held=from_state, default=attribute.default)
    return Operand(of, name, value["slot"] or slot, value["type"], from_state)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestValues:
    """The attributes that a request gives, and those that the state has."""

    given: GivenAttributes = NONE_GIVEN
    entities: Mapping[tuple[str, str], object] = field(default_factory=dict)
    """Of its objects, by key and name."""
    of_user: Mapping[str, object] = field(default_factory=dict)
    """Of the user in the state."""
    held: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Of entities in the state, by key."""

    @classmethod
    def of(cls, request: Request, slots: Sequence[str], index: Index) -> RequestValues:
        """Those of a request for an operation with these `with` objects."""
        of_user, of_entities = index.user_attributes.get(request.user, _NOTHING), index.entity_attributes
        if not request.attributes:
            return cls(of_user=of_user, held=of_entities) if of_user or of_entities else NO_VALUES
        entities = {
            (str(entity), name): value
            for slot, entity in request.objects(slots).items()
            for name, value in request.attributes.of_slot(slot).items()
        }
        return cls(given=request.attributes, entities=entities, of_user=of_user, held=of_entities)

    def value(self, operand: Operand, path: str | None) -> object:
        """The value of an attribute, None if it is absent; `path` is that of its entity, None if the request does not name it."""
        name = operand.attribute
        if operand.of == "request":
            return self.given.request.get(name, operand.default)
        if operand.of == "user":
            from_request, from_state = self.given.user.get(name), self.of_user
        elif path is None:
            return None
        else:
            key = f"{base_type(operand.type)}:{path}"
            from_request, from_state = self.entities.get((key, name)), self.held.get(key, _NOTHING)
        return from_state.get(name) if from_request is None and operand.held else from_request


_NOTHING: Mapping[str, object] = {}
NO_VALUES = RequestValues()
