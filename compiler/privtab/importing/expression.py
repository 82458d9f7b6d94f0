"""JMESPath expressions, parsed by the library, as Python functions: its own interpreter takes ten times as long, and an item has dozens."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import jmespath
from jmespath import functions, visitor

Value: TypeAlias = Callable[[Any], Any]
"""From the data to the value of an expression."""


class _Functions(functions.Functions):
    """JMESPath's functions and five more: it has none that look inside a text, or look one up."""

    @functions.signature({"types": ["string"]})
    def _func_lower(self, text: str) -> str:
        return text.lower()

    @functions.signature({"types": ["string"]})
    def _func_upper(self, text: str) -> str:
        return text.upper()

    @functions.signature({"types": ["string"]}, {"types": ["string"]})
    def _func_split(self, text: str, separator: str) -> list[str]:
        return text.split(separator)

    @functions.signature({"types": ["string"]}, {"types": ["string"]})
    def _func_matches(self, text: str, pattern: str) -> bool:
        return re.fullmatch(pattern, text) is not None

    @functions.signature({"types": ["object"]}, {"types": ["string", "null"]})
    def _func_lookup(self, lookup: dict[str, str], key: str | None) -> str | None:
        return None if key is None else lookup.get(key)


@dataclass(frozen=True, slots=True)
class Expression:
    """A JMESPath expression. `of`: its value; raises jmespath's JMESPathError where data do not fit, as with `lower` of a number."""

    text: str
    of: Value = field(compare=False, repr=False)

    @classmethod
    def parse(cls, text: str) -> Expression:
        """Raises jmespath's JMESPathError for what is none."""
        return cls(text, _compiled(jmespath.compile(text).parsed))


FUNCTIONS = _Functions()


def holds(value: object) -> bool:
    """Whether JMESPath takes a value for true."""
    return bool(value) or (value == 0 and value is not False)


def _compiled(node: Mapping[str, Any]) -> Value:
    kind, children = node["type"], node["children"]
    if kind == "function_expression":
        return _call(node["value"], [_compiled(child) for child in children])
    if kind in {"field", "subexpression"} and (names := _names(node)):
        return _field(*names)
    if kind == "expref":
        reference = _Expression(_compiled(children[0]))
        return lambda _: reference
    if kind == "slice":
        part = slice(*children)
        return lambda data: data[part] if isinstance(data, list) else None
    if kind == "comparator":
        return _comparator(node["value"], *map(_compiled, children))
    if kind == "filter_projection":
        base, then, condition = map(_compiled, children)
        return lambda data: _projected(base(data), then, condition)
    if kind == "multi_select_dict":
        named = [(child["value"], _compiled(child["children"][0])) for child in children]
        return lambda data: None if data is None else {name: value(data) for name, value in named}
    values = [_compiled(child) for child in children]
    return _KINDS[kind](node.get("value"), *values)


def _names(node: Mapping[str, Any]) -> tuple[str, ...]:
    """Those of a field within fields, as `a.b`; none of any other expression."""
    if node["type"] == "field":
        return (node["value"],)
    parts = [_names(child) for child in node["children"]] if node["type"] == "subexpression" else [()]
    return tuple(name for part in parts for name in part) if all(parts) else ()


def _field(first: str, *others: str) -> Value:
    if not others:
        return lambda data: data.get(first) if isinstance(data, dict) else None

    def value(data: Any) -> Any:
        data = data.get(first) if isinstance(data, dict) else None
        for name in others:
            if not isinstance(data, dict):
                return None
            data = data.get(name)
        return data

    return value


def _index(number: int) -> Value:
    return lambda data: data[number] if isinstance(data, list) and -len(data) <= number < len(data) else None


def _chain(_: object, *values: Value) -> Value:
    first, *others = values
    if len(others) == 1:
        second = others[0]
        return lambda data: second(first(data))

    def value(data: Any) -> Any:
        for step in values:
            data = step(data)
        return data

    return value


def _or(_: object, left: Value, right: Value) -> Value:
    def value(data: Any) -> Any:
        found = left(data)
        return found if holds(found) else right(data)

    return value


def _and(_: object, left: Value, right: Value) -> Value:
    def value(data: Any) -> Any:
        found = left(data)
        return right(data) if holds(found) else found

    return value


def _flatten(_: object, base: Value) -> Value:
    def value(data: Any) -> Any:
        found = base(data)
        if not isinstance(found, list):
            return None
        merged: list[Any] = []
        for item in found:
            merged.extend(item) if isinstance(item, list) else merged.append(item)
        return merged

    return value


def _projected(found: Any, then: Value, condition: Value | None = None) -> Any:
    if not isinstance(found, list):
        return None
    kept = found if condition is None else [item for item in found if holds(condition(item))]
    return [value for value in map(then, kept) if value is not None]


def _value_projection(_: object, base: Value, then: Value) -> Value:
    def value(data: Any) -> Any:
        found = base(data)
        return _projected(list(found.values()), then) if isinstance(found, dict) else None

    return value


def _multi_select_list(_: object, *values: Value) -> Value:
    return lambda data: None if data is None else [value(data) for value in values]


def _comparator(sign: str, left: Value, right: Value) -> Value:
    compare = visitor.TreeInterpreter.COMPARATOR_FUNC[sign]
    if sign not in {"eq", "ne"}:

        def ordered(data: Any) -> Any:
            one, other = left(data), right(data)
            same = isinstance(one, str) == isinstance(other, str)
            known = all(isinstance(value, int | float | str) and not isinstance(value, bool) for value in (one, other))
            return compare(one, other) if same and known else None

        return ordered
    same = operator.eq if sign == "eq" else operator.ne

    def equal(data: Any) -> Any:
        one, other = left(data), right(data)
        alike = one is None or other is None or type(one) is type(other)
        return same(one, other) if alike else compare(one, other)

    return equal


def _call(name: str, arguments: list[Value]) -> Value:
    """A call, whose types are checked by the library: once for all values of the same types, unless it looks into lists."""
    checked: set[tuple[type, ...]] = set()
    known = FUNCTIONS.FUNCTION_TABLE.get(name, {"function": None, "signature": ()})
    function = known["function"]
    looks_into_lists = any("-" in type_ for part in known["signature"] for type_ in part["types"])

    def value(data: Any) -> Any:
        given = [argument(data) for argument in arguments]
        types = tuple(map(type, given))
        if types in checked:
            return function(FUNCTIONS, *given)
        found = FUNCTIONS.call_function(name, given)
        if not looks_into_lists or list not in types:
            checked.add(types)
        return found

    return value


@dataclass(frozen=True, slots=True)
class _Expression:
    """An argument such as `&name`, as functions of the library use it, and know it by the name of its class."""

    value: Value
    expression: None = None

    def visit(self, _: None, data: Any) -> Any:
        return self.value(data)


_KINDS: Mapping[str, Callable[..., Value]] = {
    "index": _index,
    "literal": lambda literal: lambda _: literal,
    "current": lambda _: lambda data: data,
    "identity": lambda _: lambda data: data,
    "subexpression": _chain,
    "index_expression": _chain,
    "pipe": _chain,
    "flatten": _flatten,
    "projection": lambda _, base, then: lambda data: _projected(base(data), then),
    "value_projection": _value_projection,
    "multi_select_list": _multi_select_list,
    "or_expression": _or,
    "and_expression": _and,
    "not_expression": lambda _, inner: lambda data: not holds(inner(data)),
}
