"""Read what a policy file declares: its privileges and sets of them, its named conditions, and its attributes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal, cast

from privtab.base.attributes import WIDEST, Attribute, AttributeKind, Origin, TypeName
from privtab.base.hints import listed_names
from privtab.base.names import ANY_PRIVILEGE, NAMED_PRIVILEGE
from privtab.language.findings import unreadable, unsound_rows
from privtab.language.syntax.expression import RESERVED_WORDS
from privtab.language.syntax.nodes import AttributeDecl, ConditionDecl, PrivilegeDecl, SetDecl, Word
from privtab.language.syntax.reader import Fields, PolicyReader
from privtab.language.syntax.rows import read_deprecated
from privtab.language.syntax.yaml_tree import MappingNode, ScalarNode, SequenceNode, YamlNode


def read_privileges(reader: PolicyReader, node: YamlNode, rejected: set[str]) -> tuple[PrivilegeDecl, ...]:
    """Read `privileges`: a list of names, or a mapping from names to what is declared of them."""
    if isinstance(node, SequenceNode):
        entries = [(item, None) for item in node.items]
    elif isinstance(node, MappingNode):
        entries = cast("list[tuple[Any, Any]]", reader.entries(node, "`privileges`"))
    else:
        reader.wrong(node, "`privileges`", "a list of names or a mapping", "write `privileges: [READ, WRITE]`")
        rejected.add("privileges")
        return ()
    first: dict[str, Word] = {}
    privileges: list[PrivilegeDecl] = []
    for key, value in entries:
        name = _privilege_name(reader, key, "a privilege")
        if name is None:
            if isinstance(key, MappingNode):
                reader.lost.update(inner.text for inner, _ in key.entries)
            continue
        if name.value in first:
            reader.take(unsound_rows.duplicate_name(name.span, "privilege", name.value, first[name.value].span))
            continue
        first[name.value] = name
        privileges.append(_privilege(reader, name, value))
    return tuple(privileges)


def _privilege_name(reader: PolicyReader, node: YamlNode, what: str) -> Word | None:
    name = reader.name(node, what, "privilege")
    if name is not None and name.value in {*RESERVED_WORDS, ANY_PRIVILEGE, NAMED_PRIVILEGE}:
        reader.take(unreadable.bad_name(name.span, what, name.value, f"`{name.value}` is a word of conditions"))
        reader.lost.add(name.value)
        return None
    return name


def _privilege(reader: PolicyReader, name: Word, node: YamlNode | None) -> PrivilegeDecl:
    if node is None or node.empty:
        return PrivilegeDecl(name=name)
    mistakes_before = reader.mistakes
    fields = (
        reader.fields(node, "privilege", f"the privilege `{name.value}`", f"write `{name.value}: {{on: [TYPE]}}`") or {}
    )
    on = reader.words(fields["on"][1], "`on`") if "on" in fields else None
    alias = reader.name(fields["alias_of"][1], "a privilege", "privilege") if "alias_of" in fields else None
    implied = reader.words(fields["implies"][1], "`implies`") if "implies" in fields else None
    inheritance = reader.choice(how[1], "inheritance", "`inheritance`") if (how := fields.get("inheritance")) else None
    if alias is not None:
        for key in {"on", "implies", "inheritance"} & fields.keys():
            message, advice = f"the alias `{name.value}` has an `{key}` of its own", f"write it at `{alias.value}`"
            reader.refuse(fields[key][0], message, advice)
    title = reader.optional_text(fields, "title")
    reader.optional_text(fields, "note")
    deprecated = read_deprecated(reader, fields)
    return PrivilegeDecl(
        name=name,
        on=on,
        alias_of=alias,
        implies=implied or (),
        inheritance=cast("Literal['none', 'down'] | None", inheritance),
        deprecated=deprecated,
        renamed_from=reader.former_name(fields, "a privilege", "privilege"),
        title=title,
        poisoned=reader.mistakes > mistakes_before,
    )


def read_sets(reader: PolicyReader, node: YamlNode) -> Iterator[SetDecl]:
    """Read `sets`."""
    for key, value in reader.entries(node, "`sets`"):
        name = _privilege_name(reader, key, "a set")
        mistakes_before = reader.mistakes
        members = reader.words(value, f"the set `{key.text}`")
        if name is not None:
            yield SetDecl(name=name, members=members or (), poisoned=reader.mistakes > mistakes_before)


def read_conditions(reader: PolicyReader, node: YamlNode) -> Iterator[ConditionDecl]:
    """Read `conditions`."""
    for key, value in reader.entries(node, "`conditions`"):
        name = _privilege_name(reader, key, "a condition")
        condition = reader.condition(value, f"the condition `{key.text}`")
        if name is not None and condition is not None:
            yield ConditionDecl(name=name, condition=condition)
        elif name is not None:
            reader.lost.add(name.value)


_TYPES: tuple[TypeName, ...] = ("text", "bool", "enum", "set", "integer")
_TAKEN = (("user", "groups"), ("request", "with"), ("request", "active_roles"))
"""The names under which requests hold other data than attributes."""
_BY_WORD = ("text", "bool", "integer")
"""The types that need no more than their name."""


def read_attributes(reader: PolicyReader, node: YamlNode, rejected: set[str]) -> tuple[AttributeDecl, ...]:
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
                reader.refuse(name.span, message, "choose another name")
                continue
            if name.value in first:
                reader.take(unsound_rows.duplicate_name(name.span, "attribute", name.value, first[name.value].span))
                continue
            first[name.value] = name
            attribute = _attribute(reader, cast("AttributeKind", kind), name, declared)
            if attribute is not None:
                found.append(attribute)
    if reader.mistakes > mistakes_before:
        rejected.add("attributes")
    return tuple(found)


def _attribute(reader: PolicyReader, kind: AttributeKind, name: Word, node: YamlNode) -> AttributeDecl | None:
    what = f"the attribute `{name.value}`"
    fields: Fields | None
    if isinstance(node, ScalarNode) and node.value in _BY_WORD:
        fields = {node.text: (node, ScalarNode(value=True, text="true", style="", start=node.start, end=node.end))}
    elif isinstance(node, MappingNode):
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
        reader.refuse(node, message, f"give it one of {listed_names(_TYPES, last='or')}")
        return None
    sources = reader.choices(fields["from"][1], "from", "`from`") if "from" in fields else None
    if kind == "request" and "from" in fields:
        reader.refuse(fields["from"][0], "an attribute of the request has no `from`", "leave it out")
    on = reader.words(fields["on"][1], "`on`") if "on" in fields else None
    if kind != "entity" and "on" in fields:
        reader.refuse(fields["on"][0], f"{what} is not of an entity, so it has no `on`", "leave it out")
    attribute = _type(reader, types[0], fields[types[0]][1])
    if attribute is None:
        return None
    if "default" in fields:
        attribute = _with_default(reader, kind, what, attribute, *fields["default"])
    written = tuple(dict.fromkeys(cast("Origin", source.value) for source in sources or ()))
    origins = ("request",) if kind == "request" else written or ("state",)
    return AttributeDecl(kind=kind, name=name, type=replace(attribute, origins=origins), on=on)


def _with_default(
    reader: PolicyReader, kind: AttributeKind, what: str, attribute: Attribute, key: ScalarNode, node: YamlNode
) -> Attribute:
    """The attribute with its default, which only attributes of requests have: rows of the state say what others are."""
    if kind != "request" or attribute.type == "set":
        why = "is a set" if kind == "request" else "is not of the request"
        reader.refuse(key, f"{what} {why}, so it has no `default`", "leave it out")
        return attribute
    value = node.value if isinstance(node, ScalarNode) else None
    if not isinstance(value, str | int) or not attribute.fits(value):
        reader.wrong(node, f"the default of {what}", attribute.describe())
        return attribute
    return replace(attribute, default=value)


def _type(reader: PolicyReader, type_: TypeName, node: YamlNode) -> Attribute | None:
    match type_:
        case "enum" | "set":
            words = reader.words(node, f"`{type_}`")
            return None if not words else Attribute(type=type_, values=tuple(dict.fromkeys(w.value for w in words)))
        case "integer" if isinstance(node, SequenceNode):
            bounds = [item.value for item in node.items if isinstance(item, ScalarNode)]
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
