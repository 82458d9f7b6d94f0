"""Compile comparisons of attributes to SQL over the values that rows give and those that the state has."""

from __future__ import annotations

from collections.abc import Mapping

from privtab.engines.attributes import Comparison, Operand
from privtab.paths import base_type
from privtab.spark.joins.holdings import OF_USER, VALUES, value_field
from privtab.spark.joins.keys import path_on
from privtab.spark.joins.places import Case, Layout
from privtab.spark.joins.rows import CASE, USER, ColumnNames
from privtab.spark.joins.text import chosen, constant, constants, literal, quoted


class ComparisonWriter:
    """Writes comparisons, and collects the look-ups in the state that they need."""

    def __init__(self, layout: Layout, names: ColumnNames) -> None:
        self.layout = layout
        self.names = names
        self._keys: list[dict[int, str]] = []
        """By look-up, then by the number of a case: SQL expression for the key. All cases share the look-ups, and each needs few."""

    def lookups(self) -> list[str]:
        """SQL expressions for the keys whose values in the state the comparisons need."""
        return list(map(_key, self._keys))

    def holds(self, comparison: Comparison, case: Case) -> str:
        """SQL expression for whether both values exist and stand in the relation; never null."""
        left, right = self._value(comparison.left, case), comparison.right
        if isinstance(right, Operand):
            other = self._value(right, case)
            if left is None or other is None:
                return "false"
            is_member = comparison.operator == "in"
            test = f"array_contains({other}, {left})" if is_member else f"{left} {comparison.operator} {other}"
        elif left is None:
            return "false"
        elif comparison.operator == "in":
            test = f"{left} IN {constants(right)}"
        elif comparison.operator == "contains":
            test = f"array_contains({left}, {constant(right[0])})"
        else:
            test = f"{left} {comparison.operator} {constant(right[0])}"
        return f"coalesce({test}, false)"

    def _value(self, operand: Operand, case: Case) -> str | None:
        """SQL expression for the value of an attribute, null if it is absent; None if no row can have it."""
        values = self._given(operand, case)
        if operand.held:
            values.append(self._held(operand, case))
        return f"coalesce({', '.join(values)})" if len(values) > 1 else next(iter(values), None)

    def _given(self, operand: Operand, case: Case) -> list[str]:
        """The values that rows give: of an entity, by whichever object of the request it is."""
        columns = [given for given in self.names.given if (given.kind, given.name) == (operand.of, operand.attribute)]
        if operand.of != "entity":
            return [self.names.attribute(given) for given in columns]
        types = case.types
        found = []
        for given in columns:
            if types.get(given.slot) != base_type(operand.type):
                continue
            value = self.names.attribute(given)
            if given.slot != operand.slot:
                same_path = f"{self.names.path_of(given.slot)} = {self._path(operand, case)}"
                value = chosen([(same_path, value)], "null")
            found.append(value)
        return found

    def _held(self, operand: Operand, case: Case) -> str:
        """The value in the state; asks for it to be looked up."""
        if operand.of == "user":
            key = f"concat({literal(OF_USER)}, {USER})"
        else:
            key = f"concat({literal(base_type(operand.type) + ':')}, {self._path(operand, case)})"
        free = (number for number, keys in enumerate(self._keys) if keys.get(case.number, key) == key)
        number = next(free, len(self._keys))
        if number == len(self._keys):
            self._keys.append({})
        self._keys[number][case.number] = key
        return f"{VALUES}_{number}.{quoted(value_field(operand.of, operand.attribute))}"

    def _path(self, operand: Operand, case: Case) -> str:
        return path_on(operand.slot, operand.type, case, self.layout, self.names)


def _key(by_case: Mapping[int, str]) -> str:
    cases: dict[str, list[str]] = {}
    for number, key in by_case.items():
        cases.setdefault(key, []).append(str(number))
    arms = [(f"{CASE} IN ({', '.join(numbers)})", key) for key, numbers in cases.items()]
    return chosen(arms, "null") if len(arms) > 1 else arms[0][1]
