"""Conditions from the program's JSON: read for one form of request, and compiled to closures over the bits of facts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar, assert_never

RESOURCE = ""
"""The slot of the request's resource; other slots are the names of its `with` objects."""

Kind: TypeAlias = Literal["has", "owner", "member", "self", "holds", "service_admin", "has_below", "owns_below"]


@dataclass(frozen=True, slots=True)
class Atom:
    """A fact that may hold for a caller, about the object of a type on a slot's path."""

    kind: Kind
    slot: str = RESOURCE
    type: str = ""
    privilege: str = ""


@dataclass(frozen=True, slots=True)
class AllOf:
    """Every part holds."""

    parts: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class AnyOf:
    """At least one part holds."""

    parts: tuple[Condition, ...] = ()


Condition: TypeAlias = Atom | AllOf | AnyOf

T = TypeVar("T")

ALWAYS = AllOf()
NEVER = AnyOf()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestShape:
    """What a condition depends on besides facts: the flags set, the types of `with` objects, whether the last name is given."""

    flags: frozenset[str] = frozenset()
    types: Mapping[str, str]
    """By slot, including the resource's."""
    named: bool = True


class ConditionReader:
    """Reads conditions of one program."""

    def __init__(self, program: Mapping[str, Any]) -> None:
        self.rules: Mapping[str, Mapping[str, Any]] = program["rules"]
        self.chains: dict[str, tuple[tuple[str, int], ...]] = {
            name: tuple((link["type"], link["depth"]) for link in entity["chain"])
            for name, entity in program["entities"].items()
        }
        """For each type, the types on its path from the root to itself, each with the number of names of its path."""
        self.principal: dict[str, str | None] = {n: e["principal"] for n, e in program["entities"].items()}

    def depth(self, type_: str) -> int:
        """The number of names in the path of an entity of a type."""
        return self.chains[type_][-1][1]

    def condition(self, type_: str, operation: str, form: RequestShape) -> Condition:
        """The condition for a request of this form."""
        rule = self.rules[type_][operation]
        parts = [rule["call"]] if rule["each"] is None or not form.named else [rule["call"], rule["each"]]
        return _all(self._read(part, RESOURCE, form) for part in parts)

    def _read(self, formula: Mapping[str, Any], slot: str, form: RequestShape) -> Condition:
        """Read a formula; `slot` is that of its resource."""
        ((name, value),) = formula.items()
        match name:
            case "and":
                return _all(self._read(part, slot, form) for part in value)
            case "or":
                return _any(self._read(part, slot, form) for part in value)
            case "when":
                return self._read(value["body"], slot, form) if value["flag"] in form.flags else ALWAYS
            case "can":
                return self._can(value, value["slot"] or slot, form)
            case "by_type":
                case_ = value["cases"].get(form.types[value["slot"] or slot])
                return NEVER if case_ is None else self._read(case_, slot, form)
            case "service_admin":
                return Atom("service_admin")
            case "has_below":
                return _any([self._fact("has", value, slot, form), self._fact("has_below", value, slot, form)])
            case "owns_below":
                return _any([self._fact("owner", value, slot, form), self._fact("owns_below", value, slot, form)])
            case "has" | "owner" | "member" | "self" | "holds":
                return self._fact(name, value, slot, form)
            case _:
                raise ValueError(f"`{name}` is not a condition")

    def _can(self, value: Mapping[str, Any], slot: str, form: RequestShape) -> Condition:
        rule = self.rules[value["type"]][value["operation"]]
        parts = [rule["call"]] if rule["each"] is None else [rule["call"], rule["each"]]
        return _all(self._read(part, slot, form) for part in parts)

    def _fact(self, kind: Kind, value: Mapping[str, Any], slot: str, form: RequestShape) -> Condition:
        slot, type_ = value["slot"] or slot, value["type"]
        if slot == RESOURCE and not form.named and self.depth(type_) >= self.depth(form.types[RESOURCE]):
            return NEVER
        return Atom(kind, slot, type_, value.get("privilege", ""))


def _all(parts: Iterable[Condition]) -> Condition:
    flat: dict[Condition, None] = {}
    for part in parts:
        for inner in part.parts if isinstance(part, AllOf) else (part,):
            flat[inner] = None
    return NEVER if NEVER in flat else next(iter(flat)) if len(flat) == 1 else AllOf(tuple(flat))


def _any(parts: Iterable[Condition]) -> Condition:
    flat: dict[Condition, None] = {}
    for part in parts:
        for inner in part.parts if isinstance(part, AnyOf) else (part,):
            flat[inner] = None
    return ALWAYS if ALWAYS in flat else next(iter(flat)) if len(flat) == 1 else AnyOf(tuple(flat))


def fold(
    condition: Condition,
    fact: Callable[[Atom], T],
    all_of: Callable[[Iterable[T]], T],
    any_of: Callable[[Iterable[T]], T],
) -> T:
    """The value of a condition, from the values of its facts and how the values of parts are combined."""
    match condition:
        case Atom():
            return fact(condition)
        case AllOf():
            return all_of(fold(part, fact, all_of, any_of) for part in condition.parts)
        case AnyOf():
            return any_of(fold(part, fact, all_of, any_of) for part in condition.parts)
        case _:
            assert_never(condition)


def facts(condition: Condition) -> Iterable[Atom]:
    """Every fact in a condition; may repeat."""
    match condition:
        case Atom():
            yield condition
        case AllOf() | AnyOf():
            for part in condition.parts:
                yield from facts(part)
        case _:
            assert_never(condition)


def compiled(condition: Condition, bit: Callable[[Atom], int]) -> Callable[[int], bool]:
    """Compile a condition to a function of the bits of all facts; `bit` returns the bit of a fact."""
    match condition:
        case Atom():
            fact_bit = bit(condition)
            return lambda known: known & fact_bit != 0
        case AllOf():
            needed, rest = _split(condition.parts, bit)
            if not rest:
                return lambda known: known & needed == needed
            return lambda known: known & needed == needed and all(part(known) for part in rest)
        case AnyOf():
            enough, rest = _split(condition.parts, bit)
            if not rest:
                return lambda known: known & enough != 0
            return lambda known: known & enough != 0 or any(part(known) for part in rest)
        case _:
            assert_never(condition)


def _split(parts: Iterable[Condition], bit: Callable[[Atom], int]) -> tuple[int, tuple[Callable[[int], bool], ...]]:
    """The bits of the facts among the parts, and the other parts compiled."""
    bits = 0
    rest = []
    for part in parts:
        if isinstance(part, Atom):
            bits |= bit(part)
        else:
            rest.append(compiled(part, bit))
    return bits, tuple(rest)
