"""The form of requests: rows with the same operation, types and flags are decided together."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from privtab.arrow import Codes
from privtab.engines.columns import FLAG, NULL, OK, UNKNOWN, WITH, TextPool, texts
from privtab.names import LEFT_OUT
from privtab.request import NOT_SET, flag_name

Value: TypeAlias = str | TextPool
"""A constant, or a column."""
Truths: TypeAlias = pa.Array | npt.NDArray[np.bool_] | Sequence[bool | None]
"""A column of booleans."""

YES, NO = "yes", "no"


def separate(flags: Iterable[str] | Mapping[str, bool | Truths]) -> tuple[dict[str, pa.Array], frozenset[str]]:
    """The flags that vary by row, as columns of text, and what is stated about the others for all rows."""
    if not isinstance(flags, Mapping):
        return {}, frozenset(flags)
    columns = {name: pa.array(value) for name, value in flags.items() if not isinstance(value, bool)}
    varying = {name: pc.if_else(column.fill_null(fill_value=True), YES, NO) for name, column in columns.items()}
    constant = {name: value for name, value in flags.items() if isinstance(value, bool)}
    return varying, frozenset(name if value else f"{name}{NOT_SET}" for name, value in constant.items())


def combinations(values: Sequence[Value], count: int) -> Iterator[tuple[tuple[str | None, ...], Codes | None]]:
    """The combinations of values that occur, each with its rows; None: all rows."""
    columns = [value if isinstance(value, str) else texts(value) for value in values]
    if all(isinstance(column, str) for column in columns):
        yield tuple(columns), None
        return
    code: Codes = np.zeros(count, np.int64)
    distinct_values: list[list[str | None]] = []
    for column in columns:
        if isinstance(column, str):
            distinct_values.append([column])
            continue
        if len(column) != count:
            raise ValueError("the columns are not equally long")
        encoded = column.dictionary_encode(null_encoding="encode")
        distinct_values.append(encoded.dictionary.to_pylist())
        code = code * len(distinct_values[-1]) + encoded.indices.to_numpy(zero_copy_only=False)
    for number in np.unique(code):
        rest = int(number)
        combination: list[str | None] = []
        for kind in reversed(distinct_values):
            rest, position = divmod(rest, len(kind))
            combination.append(kind[position])
        yield tuple(reversed(combination)), np.flatnonzero(code == number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What rows share that differ only in names."""

    type: str
    action: str
    flags: frozenset[str]
    withs: Mapping[str, str | None]
    """The type of each given `with` object; None where rows have none."""

    def wrong(self, rule: Mapping[str, Any] | None) -> int:
        """Why rows are no valid requests, whatever their names are; OK if they may be. `rule`: the operation in the program."""
        if rule is None:
            return UNKNOWN
        if not set(map(flag_name, self.flags)).issuperset(rule.get("required_flags", ())):
            return FLAG
        slots: Mapping[str, Sequence[str]] = rule["with"]
        given = self.types
        if any(slot in given and given[slot] == LEFT_OUT not in types for slot, types in slots.items()):
            return NULL
        return WITH if any(given.get(slot, LEFT_OUT) not in types for slot, types in slots.items()) else OK

    @property
    def types(self) -> Mapping[str, str]:
        """The types of the `with` objects; `LEFT_OUT` for one that these rows have not."""
        return {slot: type_ or LEFT_OUT for slot, type_ in self.withs.items()}

    def given(self, slots: Container[str]) -> dict[str, str]:
        """The types of the objects in some slots that these rows have."""
        return {slot: type_ for slot, type_ in self.withs.items() if slot in slots and type_}
