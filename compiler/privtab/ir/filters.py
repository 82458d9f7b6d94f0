"""The row filters and column masks of a program: their lists, which are tried before one, and their texts as policies have them."""

from __future__ import annotations

from collections.abc import Mapping

from privtab._once import once
from privtab.ir.nodes import Program, Rule, SqlFilter, Term
from privtab.sql_text import FilterKind, Word


@once
def filter_lists(program: Program) -> Mapping[tuple[str, FilterKind], tuple[SqlFilter, ...]]:
    """The filters by entity type and kind, in the order in which they are tried."""
    lists: dict[tuple[str, FilterKind], tuple[SqlFilter, ...]] = {}
    for one in program.filters:
        lists[one.entity, one.kind] = (*lists.get((one.entity, one.kind), ()), one)
    return lists


def filter_of(program: Program, entity: str, operation: str) -> SqlFilter | None:
    """The row filter or column mask that an operation decides, if it is one."""
    of_type = (one for one in program.filters if one.entity == entity)
    return next((one for one in of_type if one.operation == operation), None)


def earlier(program: Program, entity: str, operation: str) -> tuple[Rule, ...]:
    """The rules of the filters that are tried before one: it applies only where none of these holds."""
    own = filter_of(program, entity, operation)
    listed = () if own is None else filter_lists(program)[entity, own.kind]
    return tuple(program.rules[entity, one.operation] for one in listed[: listed.index(own) if own else 0])


def sql(filter_: SqlFilter) -> str:
    """The text of a filter with its placeholders."""
    braces = str.maketrans({"{": "{{", "}": "}}"})
    return "".join(part.translate(braces) if isinstance(part, str) else _placeholder(part) for part in filter_.parts)


def _placeholder(part: Word | Term) -> str:
    if isinstance(part, Word):
        return f"{{{part.text}}}"
    target = part.target
    level = "" if target is None or target.level == "nearest" else f"{target.level} "
    return f"{{{level}{part.kind if target is None else target.type}.{part.attribute}}}"
