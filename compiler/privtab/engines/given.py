"""Attributes that rows of columns give: of the user, of the request, and of its objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from privtab import attributes
from privtab.arrow import Codes, Truth
from privtab.attributes import AttributeKind, Attributes, GivenAttributes, given_attributes, requested


@dataclass(frozen=True, slots=True)
class GivenColumns:
    """Values by (of what, slot if it is of an entity, name): an Arrow column, in which null is no value, or one value for all rows."""

    values: Mapping[tuple[AttributeKind, str, str], Any] = field(default_factory=dict)

    @classmethod
    def read(cls, values: Mapping[str, Any] | None, declared: Attributes) -> GivenColumns:
        """Read columns in the form of `given_attributes`. Raises InvalidRequest for an attribute that requests do not give."""
        found = {(kind, slot, name): value for kind, slot, name, value in given_attributes(values or {}).each()}
        for kind, _, name in found:
            requested(
                name, declared.of(kind), {"user": "the user", "entity": "entities", "request": "the request"}[kind]
            )
        return cls(found)

    def of_types(self, declared: Attributes, types: Mapping[str, str]) -> GivenColumns:
        """Those that entities of the types in the slots have; others do not concern a request."""
        names = {slot: declared.declared_on(type_) for slot, type_ in types.items()}
        kept = {k: v for k, v in self.values.items() if k[0] != "entity" or k[2] in names.get(k[1], ())}
        return self if len(kept) == len(self.values) else GivenColumns(kept)

    def take(self, rows: Codes | None) -> GivenColumns:
        """The values of some rows; None: of all."""
        if rows is None:
            return self
        indices = pa.array(rows)
        return GivenColumns({k: v.take(indices) if isinstance(v, pa.Array) else v for k, v in self.values.items()})

    def any(self, count: int) -> Truth:
        """Which of `count` rows give any attribute."""
        found = np.zeros(count, np.bool_)
        for value in self.values.values():
            found |= (
                value.is_valid().to_numpy(zero_copy_only=False) if isinstance(value, pa.Array) else value is not None
            )
        return found

    def rows(self, count: int) -> Iterator[GivenAttributes]:
        """The attributes of each of `count` rows."""
        lists = [(k, v.to_pylist() if isinstance(v, pa.Array) else [v] * count) for k, v in self.values.items()]
        for row in range(count):
            found: dict[tuple[AttributeKind, str], dict[str, Any]] = {}
            for (kind, slot, name), column in lists:
                if column[row] is not None:
                    found.setdefault((kind, slot), {})[name] = column[row]
            yield _attributes(found) if found else attributes.NONE_GIVEN


def _attributes(values: Mapping[tuple[AttributeKind, str], Mapping[str, Any]]) -> GivenAttributes:
    return GivenAttributes(
        user=values.get(("user", ""), {}),
        entity=values.get(("entity", ""), {}),
        request=values.get(("request", ""), {}),
        with_={slot: of_slot for (kind, slot), of_slot in values.items() if kind == "entity" and slot},
    )


NONE_GIVEN = GivenColumns()
