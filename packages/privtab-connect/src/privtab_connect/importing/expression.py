"""JMESPath expressions, parsed by the library, as Python functions: its interpreter takes 20 times as long, and an item has a dozen of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeAlias

import jmespath
from jmespath import functions, visitor

Value: TypeAlias = Callable[[Any], Any]
"""A function from the data to the value of an expression."""
_Node: TypeAlias = Mapping[str, Any]
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)([.,]\d{1,9})? ?(Z|UTC|GMT|[+-]\d\d:?\d\d)?")
_ZONES = dict.fromkeys((None, "UTC", "GMT"), "Z")
_MILLISECONDS = range(100_000_000_000, 253_402_300_800_000)
"""Milliseconds from 1973 to 9999: smaller numbers may be seconds."""


class _Functions(functions.Functions):
    """JMESPath's functions and seven more: it has none that look inside a text, look one up, or reach what is around a list."""

    @functions.signature({"types": ["string"]})
    def _func_lower(self, text: str) -> str:
        return text.lower()

    @functions.signature({"types": ["string"]})
    def _func_upper(self, text: str) -> str:
        return text.upper()

    @functions.signature({"types": ["string"]})
    def _func_fold(self, text: str) -> str:
        """The text as it is compared without case."""
        return text.casefold()

    @functions.signature({"types": ["string"]}, {"types": ["string"]})
    def _func_split(self, text: str, separator: str) -> list[str]:
        return text.split(separator)

    @functions.signature({"types": ["string"]}, {"types": ["string"]})
    def _func_matches(self, text: str, pattern: str) -> bool:
        return re.fullmatch(pattern, text) is not None

    @functions.signature({"types": ["object"]}, {"types": ["string", "null"]})
    def _func_lookup(self, lookup: dict[str, str], key: str | None) -> str | None:
        return None if key is None else lookup.get(key)

    @functions.signature({"types": ["string", "number", "null"]})
    def _func_instant(self, time: str | float | None) -> str | None:
        """A time as RFC 3339 has it: of milliseconds since 1970, or of a text, which is UTC without a zone; null for what is none."""
        if found := _TIME.fullmatch(str(time)):
            return f"{found[1]}T{found[2]}{found[3] or ''}{_ZONES.get(found[4], found[4])}".replace(",", ".")
        number = re.fullmatch(r"([0-9]{12,15})(?:\.[0-9]*)?", str(time))
        milliseconds = int(number[1]) if number else 0
        if milliseconds not in _MILLISECONDS:
            return None
        return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03d}Z"

    @functions.signature({"types": ["array"]}, {"types": ["object"]})
    def _func_within(self, items: list[Any], around: dict[str, Any]) -> list[dict[str, Any]]:
        """Each item, as `item`, with what is around the list, which JMESPath cannot reach from inside."""
        return [{**around, "item": item} for item in items]


@dataclass(frozen=True, slots=True)
class Expression:
    """A JMESPath expression. `of`: its value; raises jmespath's JMESPathError where data do not fit, as with `lower` of a number."""

    text: str
    of: Value = field(compare=False, repr=False)

    @classmethod
    def parse(cls, text: str) -> Expression:
        """Raises jmespath's JMESPathError for what is none."""
        return cls(text, _Writer().function(jmespath.compile(text).parsed))


FUNCTIONS = _Functions()


def holds(value: object) -> bool:
    """Return whether JMESPath takes a value for true."""
    return bool(value) or (value == 0 and value is not False)


class _Writer:
    """Writes an expression in Python. Names and texts of the document stand in it as `repr` writes them, other values by names of our own."""

    def __init__(self) -> None:
        self._names = {"isinstance": isinstance, "len": len, "dict": dict, "list": list, "equal": _equal, "flat": _flat}
        self._count = 0

    def function(self, node: _Node) -> Value:
        """A function from the data to the value."""
        written = self._written(node, "data")
        value: Value = eval(f"lambda data: {written}", {"__builtins__": {}, **self._names})  # noqa: S307  (see the class)
        return value

    def _new(self, value: object = None) -> str:
        self._count += 1
        name = f"v{self._count}"
        if value is not None:
            self._names[name] = value
        return name

    def _written(self, node: _Node, data: str) -> str:
        """The value for what has the name `data`."""
        children = node["children"]
        match node["type"]:
            case "current" | "identity":
                return data
            case "literal":
                literal = node["value"]
                return repr(literal) if literal is None or isinstance(literal, str | bool) else self._new(literal)
            case "field":
                return self._of(data, "dict", lambda name: f"{name}.get({node['value']!r})")
            case "index":
                number = node["value"]
                before = number if number >= 0 else -number - 1
                return self._of(data, "list", lambda name: f"({name}[{number}] if len({name}) > {before} else None)")
            case "slice":
                part = self._new(slice(*children))
                return self._of(data, "list", lambda name: f"{name}[{part}]")
            case "subexpression" | "index_expression" | "pipe":
                return self._chain(children, data)
            case "or_expression":
                left, held = self._held(children[0], data)
                return f"({held} if {left} else {self._written(children[1], data)})"
            case "and_expression":
                left, held = self._held(children[0], data)
                return f"({self._written(children[1], data)} if {left} else {held})"
            case "not_expression":
                return f"(not {self._held(children[0], data)[0]})"
            case "comparator":
                return self._comparison(node["value"], *(self._written(child, data) for child in children))
            case "flatten":
                return f"flat({self._written(children[0], data)})"
            case "multi_select_list":
                return f"(None if {data} is None else [{', '.join(self._written(child, data) for child in children)}])"
            case "multi_select_dict":
                pairs = (f"{child['value']!r}: {self._written(child['children'][0], data)}" for child in children)
                return f"(None if {data} is None else {{{', '.join(pairs)}}})"
            case "projection" | "filter_projection" | "value_projection":
                return self._projection(node, data)
            case "function_expression":
                given = ", ".join(self._written(child, data) for child in children)
                return f"{self._new(_call(node['value']))}({given})"
            case "expref":
                return self._new(_Expression(_Writer().function(children[0])))
            case kind:
                raise NotImplementedError(kind)

    def _of(self, value: str, type_: str, part: Callable[[str], str]) -> str:
        """A part of a value of a type; nothing of any other."""
        name = value if value.isidentifier() else self._new()
        bound = name if name == value else f"{name} := {value}"
        return f"({part(name)} if isinstance({bound}, {type_}) else None)"

    def _chain(self, children: list[_Node], data: str) -> str:
        written = self._written(children[0], data)
        for child in children[1:]:
            if child["type"] in {"field", "index", "slice"}:
                written = self._written(child, written)
            else:
                name = self._new()
                written = f"(({name} := {written}), {self._written(child, name)})[1]"
        return written

    def _held(self, node: _Node, data: str) -> tuple[str, str]:
        """Return code that is true if a value holds, and the name of the value in that case."""
        name = self._new()
        return f"(({name} := {self._written(node, data)}) or ({name} == 0 and {name} is not False))", name

    def _comparison(self, sign: str, left: str, right: str) -> str:
        if sign in {"eq", "ne"}:
            return f"equal({left}, {right})" if sign == "eq" else f"(not equal({left}, {right}))"
        return f"{self._new(partial(_ordered, visitor.TreeInterpreter.COMPARATOR_FUNC[sign]))}({left}, {right})"

    def _projection(self, node: _Node, data: str) -> str:
        base, then, *conditions = node["children"]
        item, value = self._new(), self._new()
        condition = "".join(f"{self._held(child, item)[0]} and " for child in conditions)
        kept = f"if {condition}({value} := {self._written(then, item)}) is not None"
        values, type_ = ("{}.values()", "dict") if node["type"] == "value_projection" else ("{}", "list")
        return self._of(
            self._written(base, data), type_, lambda name: f"[{value} for {item} in {values.format(name)} {kept}]"
        )


def _flat(found: Any) -> Any:
    if not isinstance(found, list):
        return None
    merged: list[Any] = []
    for item in found:
        merged.extend(item) if isinstance(item, list) else merged.append(item)
    return merged


def _equal(one: Any, other: Any) -> bool:
    if one is None or other is None or type(one) is type(other):
        return bool(one == other)
    return bool(visitor.TreeInterpreter.COMPARATOR_FUNC["eq"](one, other))


def _ordered(compare: Callable[[Any, Any], bool], one: Any, other: Any) -> bool | None:
    known = all(isinstance(value, int | float | str) and not isinstance(value, bool) for value in (one, other))
    return compare(one, other) if known and isinstance(one, str) == isinstance(other, str) else None


def _call(name: str) -> Callable[..., Any]:
    """A function, whose arguments are checked by the library: once for all values of the same types, unless it looks into lists."""
    checked: set[tuple[type, ...]] = set()
    known = FUNCTIONS.FUNCTION_TABLE.get(name, {"function": None, "signature": ()})
    function = known["function"]
    looks_into_lists = any("-" in type_ for part in known["signature"] for type_ in part["types"])

    def value(*given: Any) -> Any:
        types = tuple(map(type, given))
        if types in checked:
            return function(FUNCTIONS, *given)
        found = FUNCTIONS.call_function(name, list(given))
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
