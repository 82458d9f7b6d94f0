"""The attributes that the request of a case gives: `attributes: {user: {rank: 3}, request: {mfa: true}}`."""

from __future__ import annotations

from collections.abc import Mapping

from privtab.attributes import Attribute, Attributes, GivenAttributes, Value, given_attributes
from privtab.request import Entity
from privtab.scenarios.tree import ScenarioReader
from privtab.syntax.yaml_tree import Node

KINDS = ("user", "entity", "request", "with")


def read_given(
    reader: ScenarioReader, node: Node, declared: Attributes, resource: Entity, objects: Mapping[str, Entity]
) -> GivenAttributes:
    """The values of a node, by their declared types; what is not of its type stays a text, which the request's check reports."""
    fields = reader.fields(node, "`attributes`", KINDS) or {}
    found: dict[str, object] = {}
    for kind, value in fields.items():
        match kind:
            case "user":
                found[kind] = _values(reader, value, declared.user)
            case "request":
                found[kind] = _values(reader, value, declared.request)
            case "entity":
                found[kind] = _values(reader, value, declared.declared_on(resource.type))
            case _:
                of_objects = reader.fields(value, "`with` of `attributes`", tuple(objects)) or {}
                found[kind] = {
                    slot: _values(reader, part, declared.declared_on(objects[slot].type))
                    for slot, part in of_objects.items()
                }
    return given_attributes(found)


def _values(reader: ScenarioReader, node: Node, declared: Mapping[str, Attribute]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for key, value in reader.entries(node, "`attributes`"):
        attribute = declared.get(key.text)
        if attribute is not None and attribute.type == "set":
            found[key.text] = [text.value for text in reader.texts(value, f"`{key.text}`")]
        elif (text := reader.text(value, f"`{key.text}`")) is not None:
            read = None if attribute is None else attribute.read(text.value)
            found[key.text] = text.value if read is None else read
    return found
