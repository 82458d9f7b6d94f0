"""Read the `attributes` of a policy file."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from privtab.attributes import WIDEST, Attribute, AttributeKind, Origin, TypeName
from privtab.findings import misspelt, unsound_rows
from privtab.hints import listed
from privtab.syntax.nodes import AttributeDecl, Word
from privtab.syntax.reader import Fields, PolicyReader
from privtab.syntax.yaml_tree import Mapping, Node, Scalar, Sequence

_TYPES: tuple[TypeName, ...] = ("text", "bool", "enum", "set", "integer")
_TAKEN = (("user", "groups"), ("request", "with"), ("request", "active_roles"))
"""What requests hold under these names beside attributes."""
_BY_WORD = ("text", "bool", "integer")
"""The types that need no more than their name."""


def read_attributes(reader: PolicyReader, node: Node, unreadable: set[str]) -> tuple[AttributeDecl, ...]:
    """The attributes of users, entities and requests, in the order of the file."""
    fields = reader.fields(node, "attributes", "`attributes`") or {}
    mistakes_before = reader.mistakes
    found: list[AttributeDecl] = []
    for kind, (_, value) in fields.items():
        first: dict[str, Word] = {}
        for key, declared in reader.entries(value, f"the attributes of `{kind}`"):
            name = reader.name(key, "an attribute", "name")
            if name is None:
                continue
            if (kind, name.value) in _TAKEN:
                where = "properties of a subject" if kind == "user" else "context of a request"
                message = f"`{name.value}` has a meaning of its own in the {where}"
                reader.take(misspelt.wrong_value_other(name.span, message, "choose another name"))
                continue
            if name.value in first:
                reader.take(unsound_rows.duplicate_name(name.span, "attribute", name.value, first[name.value].span))
                continue
            first[name.value] = name
            attribute = _attribute(reader, cast("AttributeKind", kind), name, declared)
            if attribute is not None:
                found.append(attribute)
    if reader.mistakes > mistakes_before:
        unreadable.add("attributes")
    return tuple(found)


def _attribute(reader: PolicyReader, kind: AttributeKind, name: Word, node: Node) -> AttributeDecl | None:
    what = f"the attribute `{name.value}`"
    fields: Fields | None
    if isinstance(node, Scalar) and node.value in _BY_WORD and node.style != "*":
        fields = {node.text: (node, Scalar(value=True, text="true", style="", start=node.start, end=node.end))}
    elif isinstance(node, Mapping):
        fields = reader.fields(node, "attribute", what)
    else:
        reader.wrong(node, what, "a type: `text`, `bool`, `integer`, `{enum: [WORD, WORD]}` or `{set: [WORD, WORD]}`")
        return None
    if fields is None:
        return None
    reader.optional_text(fields, "note")
    types = [type_ for type_ in _TYPES if type_ in fields]
    if len(types) != 1:
        message = f"{what} has {'no type' if not types else 'two types'}"
        reader.take(
            misspelt.wrong_value_other(reader.span(node), message, f"give it one of {listed(_TYPES, last='or')}")
        )
        return None
    sources = reader.choices(fields["from"][1], "from", "`from`") if "from" in fields else None
    if kind == "request" and "from" in fields:
        span = reader.span(fields["from"][0])
        reader.take(misspelt.wrong_value_other(span, "an attribute of the request has no `from`", "leave it out"))
    on = reader.words(fields["on"][1], "`on`") if "on" in fields else None
    if kind != "entity" and "on" in fields:
        span = reader.span(fields["on"][0])
        reader.take(misspelt.wrong_value_other(span, f"{what} is not of an entity, so it has no `on`", "leave it out"))
    attribute = _type(reader, types[0], fields[types[0]][1])
    if attribute is None:
        return None
    written = tuple(dict.fromkeys(cast("Origin", source.value) for source in sources or ()))
    origins = ("request",) if kind == "request" else written or ("state",)
    return AttributeDecl(kind=kind, name=name, type=replace(attribute, origins=origins), on=on)


def _type(reader: PolicyReader, type_: TypeName, node: Node) -> Attribute | None:
    match type_:
        case "enum" | "set":
            words = reader.words(node, f"`{type_}`")
            return None if not words else Attribute(type=type_, values=tuple(dict.fromkeys(w.value for w in words)))
        case "integer" if isinstance(node, Sequence):
            bounds = [item.value for item in node.items if isinstance(item, Scalar)]
            numbers = [n for n in bounds if isinstance(n, int) and not isinstance(n, bool) and abs(n) < WIDEST]
            if len(node.items) != 2 or len(numbers) != 2 or numbers[0] > numbers[1]:
                reader.wrong(node, "`integer`", "the lowest and the highest number", "write `integer: [0, 23]`")
                return None
            return Attribute(type=type_, lowest=numbers[0], highest=numbers[1])
        case _:
            flag = reader.flag(node, f"`{type_}`")
            if flag is None or not flag.value:
                return None
            return Attribute(type=type_)
