"""Read the privileges and the sets of privileges of a policy file."""

from __future__ import annotations

from typing import Any, Literal, cast

from privtab.findings import misspelt, unsound_rows
from privtab.names import ANY_PRIVILEGE, NAMED_PRIVILEGE
from privtab.syntax.expression import RESERVED
from privtab.syntax.node_reader import is_empty
from privtab.syntax.nodes import PrivilegeDecl, SetDecl, Word
from privtab.syntax.reader import PolicyReader
from privtab.syntax.rows import read_deprecated
from privtab.syntax.yaml_tree import Mapping, Node, Sequence


def read_privileges(reader: PolicyReader, node: Node, unreadable: set[str]) -> tuple[PrivilegeDecl, ...]:
    """Read `privileges`: a list of names, or a mapping from names to what is declared of them."""
    if isinstance(node, Sequence):
        entries = [(item, None) for item in node.items]
    elif isinstance(node, Mapping):
        entries = cast("list[tuple[Any, Any]]", reader.entries(node, "`privileges`"))
    else:
        reader.wrong(node, "`privileges`", "a list of names or a mapping", "write `privileges: [READ, WRITE]`")
        unreadable.add("privileges")
        return ()
    first: dict[str, Word] = {}
    privileges: list[PrivilegeDecl] = []
    for key, value in entries:
        name = _privilege_name(reader, key, "a privilege")
        if name is None:
            if isinstance(key, Mapping):
                reader.lost.update(inner.text for inner, _ in key.entries)
            continue
        if name.value in first:
            reader.take(unsound_rows.duplicate_name(name.span, "privilege", name.value, first[name.value].span))
            continue
        first[name.value] = name
        privileges.append(_privilege(reader, name, value))
    return tuple(privileges)


def _privilege_name(reader: PolicyReader, node: Node, what: str) -> Word | None:
    name = reader.name(node, what, "privilege")
    if name is not None and name.value in {*RESERVED, ANY_PRIVILEGE, NAMED_PRIVILEGE}:
        reader.take(misspelt.bad_name(name.span, what, name.value, f"`{name.value}` is a word of conditions"))
        reader.lost.add(name.value)
        return None
    return name


def _privilege(reader: PolicyReader, name: Word, node: Node | None) -> PrivilegeDecl:
    if node is None or is_empty(node):
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
            reader.take(misspelt.wrong_value_other(reader.span(fields[key][0]), message, advice))
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


def read_sets(reader: PolicyReader, node: Node) -> tuple[SetDecl, ...]:
    """Read `sets`."""
    sets: list[SetDecl] = []
    for key, value in reader.entries(node, "`sets`"):
        name = _privilege_name(reader, key, "a set")
        mistakes_before = reader.mistakes
        members = reader.words(value, f"the set `{key.text}`")
        if name is not None:
            sets.append(SetDecl(name=name, members=members or (), poisoned=reader.mistakes > mistakes_before))
    return tuple(sets)
