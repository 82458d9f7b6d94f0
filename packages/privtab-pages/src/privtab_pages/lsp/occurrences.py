"""Occurrences of types, privileges, sets and operations in a policy and its scenarios: each name with its position."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from privtab.base import ANY_PRIVILEGE, Located, SourceFile, Span
from privtab.language import MappingNode, ScalarNode, SequenceNode, YamlNode
from privtab.model import DeclaredNames

Kind: TypeAlias = Literal["type", "privilege", "set", "operation"]
Types: TypeAlias = frozenset[str] | None
"""Entity types; None for any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """One place of a name. `types`: of an operation, the types whose rows may be meant."""

    kind: Kind
    name: str
    span: Span
    declares: bool = False
    types: Types = None

    def is_of(self, other: Occurrence) -> bool:
        """Return whether both name the same thing, or may do so."""
        return (self.kind, self.name) == (other.kind, other.name) and meet(self.types, other.types)


def meet(types: Types, others: Types) -> bool:
    """Return whether a type is in both."""
    return types is None or others is None or not types.isdisjoint(others)


def joined(several: Iterable[Types]) -> Types:
    """The types that are in any of several."""
    listed = list(several)
    return None if None in listed else frozenset().union(*filter(None, listed))


def same(occurrence: Occurrence, all_: Iterable[Occurrence]) -> tuple[Occurrence, ...]:
    """The places that have to change together with one: rows of an operation belong together where a `can` asks for several."""
    named = [other for other in all_ if (other.kind, other.name) == (occurrence.kind, occurrence.name)]
    types, before = occurrence.types, frozenset[str]()
    while types is not None and types != before:
        before = types
        for other in named:
            if types is not None and meet(types, other.types):
                types = None if other.types is None else types | other.types
    return tuple(other for other in named if meet(types, other.types))


def in_policy(names: DeclaredNames) -> tuple[Occurrence, ...]:
    """Every name of a policy, valid or not, as far as it could be read; each place once."""
    return tuple(dict.fromkeys(_Policy(names).all()))


class _Policy:
    """Walks through one policy."""

    def __init__(self, names: DeclaredNames) -> None:
        self.tables = names.tables
        self.sets = {set_.name.value for set_ in self.tables.sets}
        self.sets |= {condition.name.value for condition in self.tables.conditions}
        self.types = names.entities.keys()

    def all(self) -> Iterator[Occurrence]:
        """Every place, in no order."""
        tables = self.tables
        yield from (
            Occurrence(kind="type", name=e.name.value, span=e.name.span, declares=True) for e in tables.entities
        )
        yield from self.types_in(type_.name for type_ in tables.types)
        yield from self.types_in(word for attribute in tables.attributes for word in attribute.on or ())
        for privilege in tables.privileges:
            yield from self.privileges((privilege.name,), declares=True)
            yield from self.types_in(privilege.on or ())
            yield from self.privileges((*privilege.implies, *filter(None, (privilege.alias_of,))))
        for set_ in tables.sets:
            yield from self.privileges((set_.name,), declares=True)
            yield from self.privileges(set_.members)
        if tables.semantics.owner is not None:
            yield from self.privileges(tables.semantics.owner.holds)
        for decl in tables.conditions:
            yield from self.privileges((decl.name,), declares=True)
        for cell in (*tables.semantics.gates, *(decl.condition for decl in tables.conditions)):
            for use in cell.cell.names(cell.expression):
                yield from self.used(*use, None, {})
        for conflict in tables.conflicts:
            for word in conflict.operations:
                yield from _of_type(word, word.value.index("/"))
        yield from self.types_in(table.entity for table in tables.all_tables)
        for role in tables.all_roles:
            yield from self.types_in(role.scopes)
            for type_, privileges in role.grants:
                yield from self.types_in((type_,))
                yield from self.privileges(privileges)
        yield from self.rows()

    def rows(self) -> Iterator[Occurrence]:
        """The rows, variants' included."""
        for row, of in self.tables.rows_with_types:
            types = None if of is None else frozenset(word.value for word in of)
            operation = row.operation
            yield Occurrence(kind="operation", name=operation.value, span=operation.span, declares=True, types=types)
            objects: dict[str, Types] = {}
            for with_ in row.withs:
                objects[with_.name.value] = None if with_.types is None else frozenset(t.value for t in with_.types)
                yield from self.types_in(w for w in with_.types or () if w.value != "none" or "none" in self.types)
            yield from self.types_in(row.for_types or ())
            for use in (use for body in row.bodies for use in body.names):
                yield from self.used(*use, types, objects)

    def used(
        self, kind: str, name: Located[str], targets: Iterable[str], types: Types, objects: Mapping[str, Types]
    ) -> Iterator[Occurrence]:
        """A name in a condition or effects of a row for some types, with these objects."""
        if kind == "privilege":
            yield from self.privileges([name])
        elif kind == "operation":
            of = joined(_types_of(target, types, objects) for target in targets)
            yield Occurrence(kind="operation", name=name.value, span=name.span, types=of)
        elif kind == "target" and name.value not in objects:
            yield from self.types_in([name])
        elif kind == "attribute":
            owner, dot, _ = name.value.partition(".")
            if dot and owner in self.types and owner not in objects:
                yield from self.types_in([name.part(0, len(owner))])

    def types_in(self, words: Iterable[Located[str]]) -> Iterator[Occurrence]:
        """Names of types."""
        return (Occurrence(kind="type", name=word.value, span=word.span) for word in words)

    def privileges(self, words: Iterable[Located[str]], *, declares: bool = False) -> Iterator[Occurrence]:
        """Names of privileges and sets."""
        for word in words:
            if word.value not in (ANY_PRIVILEGE, "named privilege"):
                kind: Kind = "set" if word.value in self.sets else "privilege"
                yield Occurrence(kind=kind, name=word.value, span=word.span, declares=declares)


def _types_of(target: str, types: Types, objects: Mapping[str, Types]) -> Types:
    """The types that a target may have: for `parent` any, since too many places of an operation only join its rows."""
    if target in objects:
        return objects[target]
    return types if target == "entity" else None if target == "parent" else frozenset({target})


def _of_type(word: Located[str], slash: int) -> Iterator[Occurrence]:
    """The names in `TYPE/OPERATION`."""
    type_, operation = word.part(0, slash), word.part(slash + 1, len(word.value))
    yield Occurrence(kind="type", name=type_.value, span=type_.span)
    yield Occurrence(kind="operation", name=operation.value, span=operation.span, types=frozenset({type_.value}))


_PROSE = frozenset(
    {"policy", "variant", "name", "title", "note", "why", "say", "tags", "source", "user", "users", "group", "groups"}
    | {"role", "principal", "grantee", "owner", "active_roles"}
)
"""Keys of scenario files whose values name nothing of the policy."""
_ASKING = frozenset({"action", "ask", "operations"})
_TERM = re.compile(r"(?<![\w.:/{\-])[^\W\d][\w.\-]*(?:/[^\W\d][\w.\-]*)*(?![\w./:}\-])")
"""`READ`, or `READ/WRITE`: no path of an entity, no placeholder."""
_WORD = re.compile(r"[^/]+")
_TYPED = re.compile(r"\b([^\W\d]\w*):(?=\S)")


def in_scenarios(node: YamlNode, source: SourceFile, names: Iterable[Occurrence]) -> Iterator[Occurrence]:
    """The names of a policy in a file of its scenarios, by their spelling and place: a privilege may also be a word of another kind."""
    kinds: dict[str, set[Kind]] = {}
    for name in names:
        kinds.setdefault(name.name, set()).add(name.kind)
    yield from _in_node(node, source, kinds, "", None)


def _in_node(
    node: YamlNode, source: SourceFile, kinds: Mapping[str, set[Kind]], key: str, types: Types
) -> Iterator[Occurrence]:
    match node:
        case ScalarNode():
            yield from _in_scalar(node, source, kinds, key, types)
        case SequenceNode(items=items):
            for item in items:
                own = types
                if isinstance(item, MappingNode):
                    # An entry: the types of its entities are those that it asks about.
                    named = _TYPED.findall(source.text[item.start : item.end])
                    own = frozenset(name for name in named if "type" in kinds.get(name, ())) or None
                yield from _in_node(item, source, kinds, key, own)
        case MappingNode(entries=entries):
            for name, value in entries:
                if name.text in kinds or "/" in name.text:
                    yield from _in_scalar(name, source, kinds, "operations", types)
                if name.text not in _PROSE:
                    yield from _in_node(value, source, kinds, name.text, types)


def _in_scalar(
    node: ScalarNode, source: SourceFile, kinds: Mapping[str, set[Kind]], key: str, types: Types
) -> Iterator[Occurrence]:
    def at(start: int, end: int, *wanted: Kind, types: Types = types) -> Iterator[Occurrence]:
        name = node.text[start:end]
        kind = next((kind for kind in wanted if kind in kinds.get(name, ())), None)
        if kind is not None:
            span = node.part(source, start, end)
            yield Occurrence(kind=kind, name=name, span=span, types=types if kind == "operation" else None)

    order: tuple[Kind, ...] = ("operation",) if key in _ASKING else ("privilege", "set")
    if node.text in kinds:
        yield from at(0, len(node.text), *order, "operation", "privilege", "set", "type")
        return
    path = re.fullmatch(r"(?:\w+/)?(\w+)/(\w+)", node.text)
    if path is not None:
        yield from at(*path.span(1), "type")
        yield from at(*path.span(2), "operation", types=frozenset({path[1]}))
        return
    for typed in _TYPED.finditer(node.text):
        yield from at(*typed.span(1), "type")
    for term in _TERM.finditer(node.text):
        for word in _WORD.finditer(node.text, *term.span()):
            yield from at(*word.span(), *order)
    for quoted in re.finditer(r'"([^"\n]*)"', node.text):
        yield from at(*quoted.span(1), "privilege", "set")
