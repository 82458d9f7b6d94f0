"""Attributes of users, entities and requests: their types, the values that fit them, and how values compare.

Standard library only: the adapter checks the attributes of requests with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, ClassVar, Literal, TypeAlias, assert_never, cast

from privtab.base.errors import InvalidRequest
from privtab.base.hints import hint
from privtab.base.lazy import pattern
from privtab.base.names import unusable_character
from privtab.base.records import dataclass

AttributeKind: TypeAlias = Literal["user", "entity", "request"]
"""What has an attribute: the caller, an object of the request, or the request itself."""
KINDS: tuple[AttributeKind, ...] = ("user", "entity", "request")
TypeName: TypeAlias = Literal["text", "bool", "enum", "set", "integer"]
Origin: TypeAlias = Literal["state", "request"]
"""Where a value comes from."""
Operator: TypeAlias = Literal["=", "<", "<=", ">", ">=", "in", "contains"]
Scalar: TypeAlias = str | int | bool
AttributeValue: TypeAlias = Scalar | Sequence[str]
"""The value of an attribute: `"hr"`, `3`, `True`, or the words of a set, `["eu", "us"]`."""

_WHOLE = pattern(r"0|-?[1-9][0-9]{0,15}")
MOST_TEXT = 65_536
"""The most characters of a text."""
WIDEST = 2**53
"""Integers are smaller than this and greater than its negative: JSON numbers beyond it are not exact everywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """The declared type of an attribute.

    >>> Attribute(type="integer", lowest=0).fits(-1), Attribute(type="enum", values=("eu", "us")).read("eu")
    (False, 'eu')
    """

    type: TypeName
    values: tuple[str, ...] = ()
    """Of `enum` and `set`: the words."""
    lowest: int = 1 - WIDEST
    highest: int = WIDEST - 1
    on: tuple[str, ...] = ()
    """Of an entity: the types that have it."""
    origins: tuple[Origin, ...] = ("request",)
    """Where values come from. With both, the value that a request gives takes the place of the state's."""
    default: Scalar | None = None
    """Of a request: the value where a request gives none."""

    def fits(self, value: object) -> bool:
        """Return whether a value given by a request is of the type."""
        match self.type:
            case "text":
                return isinstance(value, str) and len(value) <= MOST_TEXT and unusable_character(value) is None
            case "bool":
                return isinstance(value, bool)
            case "enum":
                return isinstance(value, str) and value in self.values
            case "integer":
                whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
                return whole and not isinstance(value, bool) and self.lowest <= value <= self.highest  # type: ignore[operator]
            case "set":
                listed = isinstance(value, Sequence) and not isinstance(value, str)
                return listed and all(isinstance(item, str) and item in self.values for item in value)  # type: ignore[attr-defined]
            case _:
                assert_never(self.type)

    def has_relation(self, relation: str) -> bool:
        """True if values of the type stand in a relation to others."""
        if self.type == "set":
            return relation == "contains"
        return relation in ("=", "in") or (self.type == "integer" and relation != "contains")

    def compares_to_constant(self, relation: str, constant: object) -> bool:
        """Return whether values of the type, or the words of a set, can be a constant."""
        return constant in self.values if relation == "contains" else self.fits(constant)

    def compares_to(self, relation: str, other: Attribute) -> bool:
        """Return whether values of the type stand in a relation to values of another type."""
        if self.type == "enum" and {*self.values}.isdisjoint(other.values):
            return False
        if relation == "in":
            return other.type == "set" and self.type in ("text", "enum")
        return self.has_relation(relation) and other.type == self.type

    def read(self, text: str) -> Scalar | None:
        """The value that the text of a row means, of a set one of its words; None if it is not of the type."""
        value: Scalar = text
        if self.type == "bool":
            if text not in ("true", "false"):
                return None
            value = text == "true"
        elif self.type == "integer":
            if not _WHOLE.fullmatch(text):
                return None
            value = int(text)
        return value if self.fits([value] if self.type == "set" else value) else None

    def representatives(self, constants: Collection[Scalar], types: Collection[Attribute]) -> list[Scalar]:
        """Values of the type, unless it is a set, that stand for all others in comparisons with constants and attributes of some types.

        >>> Attribute(type="bool").representatives((), ())
        [True, False]
        """
        alike = [other for other in types if other.type == self.type]
        match self.type:
            case "bool":
                return [True, False]
            case "enum":
                return list(self.values)
            case "integer":
                points = {
                    int(constant)
                    for constant in constants
                    if isinstance(constant, int) and not isinstance(constant, bool)
                }
                points |= {edge for other in alike for edge in (other.lowest, other.highest)}
                near = {point + step for point in points for step in range(-len(alike), len(alike) + 1)}
                fitting = [number for number in near if self.lowest <= number <= self.highest]
                fitting.sort(key=lambda number: (abs(number), number))
                return [*fitting]
            case _:
                words = {constant for constant in constants if isinstance(constant, str)}
                words |= {word for other in types if other.type == "set" for word in other.values}
                others = (
                    name for number in range(len(words) + len(alike)) if (name := f"text{number + 1}") not in words
                )
                return [*sorted(words), *(next(others) for _ in alike)]

    def describe(self) -> str:
        """The type in words, for messages."""
        match self.type:
            case "enum":
                return f"one of {', '.join(f'`{value}`' for value in self.values)}"
            case "set":
                return f"a list of {', '.join(f'`{value}`' for value in self.values)}"
            case "integer" if (self.lowest, self.highest) != (1 - WIDEST, WIDEST - 1):
                return f"a whole number from {self.lowest} to {self.highest}"
            case "integer":
                return "a whole number"
            case "bool":
                return "true or false"
            case "text":
                return "text"
            case _:
                assert_never(self.type)

    def to_json(self) -> dict[str, Any]:
        """The type as the program's JSON has it."""
        listed = {"values": list(self.values)} if self.type in ("enum", "set") else {}
        bounds = {"range": [self.lowest, self.highest]} if self.type == "integer" else {}
        on = {"on": list(self.on)} if self.on else {}
        origins = {} if self.origins == ("request",) else {"from": list(self.origins)}
        default = {} if self.default is None else {"default": self.default}
        return {"type": self.type, **listed, **bounds, **on, **origins, **default}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Attribute:
        """Read what `to_json` writes."""
        lowest, highest = value.get("range", (1 - WIDEST, WIDEST - 1))
        return cls(
            type=value["type"],
            values=tuple(value.get("values", ())),
            lowest=lowest,
            highest=highest,
            on=tuple(value.get("on", ())),
            origins=tuple(value.get("from", ("request",))),
            default=value.get("default"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributes:
    """The attributes that a policy declares, by name.

    >>> Attributes(request={"mfa": Attribute(type="bool")}).of("request")["mfa"].describe()
    'true or false'
    """

    user: Mapping[str, Attribute] = field(default_factory=dict)
    entity: Mapping[str, Attribute] = field(default_factory=dict)
    request: Mapping[str, Attribute] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Return whether any attribute is declared."""
        return bool(self.user or self.entity or self.request)

    def of(self, kind: str) -> Mapping[str, Attribute]:
        """The attributes of users, of entities or of requests."""
        return {"user": self.user, "entity": self.entity, "request": self.request}[kind]

    def declared_on(self, type_: str) -> Mapping[str, Attribute]:
        """The attributes that entities of a type have."""
        return {name: attribute for name, attribute in self.entity.items() if type_ in attribute.on}

    def requested(self, kind: str, name: str, *values: object, of_type: str | None = None, what: str = "") -> Attribute:
        """The declaration of an attribute that a request gives: of an entity of some type if `of_type` is given.

        Raises InvalidRequest, which says what has the attribute (`what`), if requests do not give it, and for a value of another type.

        >>> Attributes(request={"mfa": Attribute(type="bool")}).requested("request", "mfa", True).type
        'bool'
        """
        declared = self.of(kind) if of_type is None else self.declared_on(of_type)
        what = what or (f"`{of_type}`" if of_type is not None else "entities" if kind == "entity" else f"the {kind}")
        attribute = declared.get(name)
        if attribute is None:
            raise InvalidRequest(f"unknown attribute `{name}` of {what}" + hint(name, declared))
        if "request" not in attribute.origins:
            raise InvalidRequest(f"the attribute `{name}` of {what} comes from the state, so requests do not give it")
        if not all(map(attribute.fits, values)):
            raise InvalidRequest(f"the attribute `{name}` of {what} must be {attribute.describe()}")
        return attribute

    def from_origin(self, origin: Origin) -> Attributes:
        """The attributes whose values may come from requests, or from the state."""
        if not self:
            return self
        return Attributes(**{kind: {n: a for n, a in self.of(kind).items() if origin in a.origins} for kind in KINDS})

    def to_json(self) -> dict[str, Any]:
        """The declarations as the program's JSON has them."""
        return {kind: {name: a.to_json() for name, a in self.of(kind).items()} for kind in KINDS if self.of(kind)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Attributes:
        """Read what `to_json` writes."""
        return cls(**{kind: {n: Attribute.from_json(a) for n, a in value.get(kind, {}).items()} for kind in KINDS})


NO_ATTRIBUTES = Attributes()

Given: TypeAlias = Mapping[str, Any]
"""Values by the name of the attribute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenAttributes:
    """The attributes that a request gives: of its user, of its resource, of its `with` objects, and of itself.

    >>> GivenAttributes(user={"department": "hr"}).to_json(), bool(GivenAttributes.NONE)
    ({'user': {'department': 'hr'}}, False)
    """

    user: Given = field(default_factory=dict)
    entity: Given = field(default_factory=dict)
    request: Given = field(default_factory=dict)
    with_: Mapping[str, Given] = field(default_factory=dict)
    NONE: ClassVar[GivenAttributes]
    """No attributes."""

    def __bool__(self) -> bool:
        """Return whether any attribute is given."""
        return bool(self.user or self.entity or self.request or any(self.with_.values()))

    @classmethod
    def read(cls, values: object) -> GivenAttributes:
        """Read `{"user": {NAME: VALUE}, "entity": {…}, "request": {…}, "with": {OBJECT: {…}}}`, unless that is done. Raises InvalidRequest.

        >>> GivenAttributes.read({"user": {"department": "hr"}}).user
        {'department': 'hr'}
        """
        if isinstance(values, GivenAttributes):
            return values
        kinds = ("user", "entity", "request", "with")
        if not isinstance(values, Mapping):
            raise InvalidRequest(
                f"attributes are a {type(values).__name__}; they must be a mapping of {', '.join(kinds)}"
            )
        for kind, of_kind in values.items():
            if kind not in kinds:
                raise InvalidRequest(f"unknown kind `{kind}` of attributes" + hint(str(kind), kinds))
            parts = of_kind.items() if kind == "with" and isinstance(of_kind, Mapping) else ((kind, of_kind),)
            for where, part in parts:
                if not isinstance(part, Mapping):
                    raise InvalidRequest(
                        f"attributes[{where!r}] is a {type(part).__name__}; it must be a mapping of values"
                    )
        return cls(
            user=values.get("user", {}),
            entity=values.get("entity", {}),
            request=values.get("request", {}),
            with_=values.get("with", {}),
        )

    def of_slot(self, slot: str) -> Given:
        """The values of the object in a slot: the resource in the empty one."""
        return self.with_.get(slot, {}) if slot else self.entity

    def to_json(self) -> dict[str, Any]:
        """The document that `read` reads, without empty parts."""
        kinds = {"user": self.user, "entity": self.entity, "request": self.request, "with": self.with_}
        return {kind: {**values} for kind, values in kinds.items() if values}

    def each(self) -> Iterator[tuple[AttributeKind, str, str, Any]]:
        """Each attribute: of what, the slot if it is of an entity, the name and the value."""
        for kind, values in (("user", self.user), ("request", self.request)):
            yield from ((cast("AttributeKind", kind), "", name, value) for name, value in values.items())
        for slot in ("", *self.with_):
            yield from (("entity", slot, name, value) for name, value in self.of_slot(slot).items())


GivenAttributes.NONE = GivenAttributes()


def holds(left: object, operator: Operator, right: object) -> bool:
    """Return whether two values stand in a relation. Raises TypeError for values of kinds that do not compare."""
    match operator:
        case "=":
            return type(left) is type(right) and left == right if isinstance(left, bool) else left == right
        case "<":
            return left < right  # type: ignore[operator,no-any-return]
        case "<=":
            return left <= right  # type: ignore[operator,no-any-return]
        case ">":
            return left > right  # type: ignore[operator,no-any-return]
        case ">=":
            return left >= right  # type: ignore[operator,no-any-return]
        case "in":
            return left in right  # type: ignore[operator]
        case "contains":
            return right in left  # type: ignore[operator]
        case _:
            assert_never(operator)
