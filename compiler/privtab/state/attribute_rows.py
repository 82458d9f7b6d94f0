"""The rows of `attributes`: checked against the declared types, looked up by user and by entity, and as parts of an index.

    {"user_attributes": {user: {attribute: value}}, "entity_attributes": {key: {attribute: value}}}

Values are as in requests; the words of a set are a sorted list. A policy that takes no values from the state has no such parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from privtab.base.attributes import MOST_TEXT, Attribute, AttributeValue
from privtab.base.hints import did_you_mean, listed_names
from privtab.base.names import unusable_character
from privtab.base.request import Entity
from privtab.ir.nodes import Program
from privtab.state.names import RowProblem
from privtab.state.nodes import State

TABLE = "attributes"
COLUMNS = ("user", "entity", "attribute", "value")
_MOST_SHOWN = 3


def value_problem(program: Program, entity: Entity | None, name: str, text: str) -> RowProblem | None:
    """Why a user, or an entity, cannot have a value of an attribute; of the entity only the type counts."""
    declared = program.attributes.user if entity is None else program.attributes.entity
    what = "users" if entity is None else f"a `{entity.type}`"
    attribute = declared.get(name)
    if attribute is None:
        advice = did_you_mean(name, declared)
        other = program.attributes.entity if entity is None else program.attributes.user
        if advice is None and name in other:
            advice = f"`{name}` is an attribute of {'entities' if entity is None else 'users'}"
        return RowProblem("S187", f"unknown attribute `{name}` of {what}", advice)
    if entity is not None and entity.type not in attribute.on:
        return RowProblem(
            "S187", f"{what} has no attribute `{name}`", f"`{name}` is declared on {listed_names(attribute.on)}"
        )
    if "state" not in attribute.origins:
        message = f"requests give `{name}` of {what}, so the state does not"
        return RowProblem("S187", message, "declare it `from: state` or `from: [state, request]`, or leave the row out")
    character = unusable_character(text)
    if character is not None:
        return RowProblem("S116", f"the value of `{name}` holds the character {character}")
    if len(text) > MOST_TEXT:
        return RowProblem("S117", f"the value of `{name}` has {len(text):,} characters; {MOST_TEXT:,} is the most")
    if text != text.strip():
        return RowProblem(
            "S108", f"the value of `{name}` begins or ends with a blank", f"did you mean `{text.strip()}`?"
        )
    if attribute.read(text) is None:
        a_word = f"one of {listed_names(attribute.values)}, in a row for each" if attribute.type == "set" else None
        return RowProblem(
            "S188", f"`{text[:80]}` is no value of `{name}`", f"it must be {a_word or attribute.describe()}"
        )
    return None


def two_values(program: Program, state: State) -> dict[int, RowProblem]:
    """The rows, by number, that give an attribute of a user or an entity one of several values; none of them is taken."""
    rows: dict[tuple[str | None, str | None, str], list[int]] = {}
    for number, key in enumerate(state.texts(TABLE, *COLUMNS[:3])):
        rows.setdefault(key, []).append(number)
    values = state.column(TABLE, "value")
    found: dict[int, RowProblem] = {}
    for (user, entity, name), numbers in rows.items():
        if len(numbers) < 2 or declared(program, entity)[name].type == "set":
            continue
        shown = sorted({str(value) for value in values.take(numbers)})
        more = f" and {len(shown) - _MOST_SHOWN:,} more" if len(shown) > _MOST_SHOWN else ""
        message = f"`{name}` of `{entity or user}` has the values {listed_names(shown[:_MOST_SHOWN])}{more}"
        found |= dict.fromkeys(numbers, RowProblem("S189", message, "keep one of the rows"))
    return found


def value_of(attribute: Attribute, texts: Iterable[str]) -> AttributeValue | None:
    """The value that rows give an attribute; None if it has none, or more than one."""
    values = {value for text in texts if (value := attribute.read(text)) is not None}
    if attribute.type == "set":
        return sorted(str(value) for value in values) or None
    return values.pop() if len(values) == 1 else None


def attribute_texts(value: AttributeValue) -> tuple[str, ...]:
    """The values of the rows that give an attribute a value: one, or one for each word of a set.

    >>> attribute_texts(["EU", "US"])
    ('EU', 'US')
    """
    match value:
        case bool():
            return ("true" if value else "false",)
        case str() | int():
            return (str(value),)
        case _:
            return tuple(value)


def attribute_parts(program: Program, state: State) -> dict[str, Any]:
    """The parts of the index of a state; nothing if the policy takes no values from the state.

    For example:

        attribute_parts(program, state)["user_attributes"]["ann"]  # {"region": "EU"}
    """
    declared = program.attributes.from_origin("state")
    if not declared:
        return {}
    of_users: dict[str, dict[str, list[str]]] = {}
    of_entities: dict[str, dict[str, list[str]]] = {}
    for user, entity, name, value in state.texts(TABLE, *COLUMNS):
        own = of_users.setdefault(user, {}) if entity is None else of_entities.setdefault(entity, {})
        own.setdefault(name, []).append(value)
    users = {user: _values(declared.user, of_users[user]) for user in sorted(of_users)}
    entities = {
        key: _values(declared.declared_on(key.partition(":")[0]), of_entities[key]) for key in sorted(of_entities)
    }
    return {
        part: {key: values for key, values in found.items() if values}
        for part, found in (("user_attributes", users), ("entity_attributes", entities))
    }


def _values(declared: Mapping[str, Attribute], texts: Mapping[str, list[str]]) -> dict[str, AttributeValue]:
    found = {name: value_of(declared[name], texts[name]) for name in sorted(texts) if name in declared}
    return {name: value for name, value in found.items() if value is not None}


def declared(program: Program, entity: str | None) -> Mapping[str, Attribute]:
    """The attributes of users, or of entities where one is given."""
    return program.attributes.user if entity is None else program.attributes.entity
