"""Read a program from the JSON that `serialise` writes; the only reader that builds a `Program` from it.

The JSON holds everything that affects decisions. It omits texts (titles of types, notes, readings), the positions of rows in the
file, and the separation of the gate from what a call requires. Keys that are not read here (minimal sets, revision) are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, cast, get_args

from privtab.base.attributes import AttributeKind, Attributes, Operator
from privtab.base.diagnostics import Span
from privtab.base.effects import BY_ACTIVE_ROLE, EffectKind
from privtab.base.names import PRINCIPAL_KINDS, PrincipalKind
from privtab.base.paths import MOST_LEVELS, Level
from privtab.base.sql_text import FILTER_KINDS, FilterWord
from privtab.ir import declarations
from privtab.ir import nodes as ir
from privtab.ir.names import condition_text, undeclared_creation
from privtab.ir.serialise import FORMAT, FORMAT_NEWER, KINDS_OF_NODES

T = TypeVar("T")

_ATOMS: Mapping[str, Any] = {KINDS_OF_NODES[node]: node for node in get_args(ir.Atom) if node is not ir.Compare}


def program_from_json(document: object, shown: str) -> ir.Program:
    """Build a program from its JSON document. `shown`: the path for its spans. Raises ValueError, which names the wrong part.

    Example:
        program = program_from_json(json.loads(path.read_bytes()), shown=str(path))
    """
    top = _JsonObject(document, "the program")
    if top.document.get("format") not in (FORMAT, FORMAT_NEWER):
        raise ValueError(f"it is not a program of format {FORMAT} or {FORMAT_NEWER}")
    entities = top.each("entities", _entity)
    span = Span(path=shown, line=1, column=1, end_line=1, end_column=1)
    rules = {
        (entity, operation): _rule(entity, operation, rule, span)
        for entity, operations in top.parts("rules")
        for operation, rule in operations.items()
    }
    for name in (*(e.parent for e in entities.values() if e.parent is not None), *(entity for entity, _ in rules)):
        if name not in entities:
            raise ValueError(f"`{name}` is not an entity type of the program")
    return ir.Program(
        system=top.text("system"),
        version=top.text("version"),
        title=top.text_or_none("title"),
        entities=entities,
        privileges=top.each("privileges", _privilege),
        aliases={
            name: ir.Alias(name=name, of=_text(privilege, f"aliases.{name}"))
            for name, privilege in top.part("aliases").document.items()
        },
        sets=top.part("sets").all_texts(),
        roles=top.each("roles", _role),
        semantics=_semantics(top.part("semantics")),
        rules=rules,
        attributes=Attributes.from_json(top.document.get("attributes", {})),
        filters=tuple(_filters(top)),
        dialect=top.part("filters").text("dialect") if "filters" in top.document else "",
    )


def _filters(top: _JsonObject) -> Iterator[ir.SqlFilter]:
    filters = top.optional("filters", top.part, _JsonObject({}, ""))
    for kind in FILTER_KINDS:
        for entity in filters.part(kind).document if kind in filters.document else ():
            for one in filters.part(kind).list(entity):
                parts = tuple(_sql_part(part, one.where) for part in one.get("sql"))
                yield ir.SqlFilter(kind=kind, entity=entity, name=one.text("name"), parts=parts)


def _sql_part(part: object, where: str) -> str | FilterWord | ir.Term:
    if isinstance(part, str):
        return part
    value = _JsonObject(part, where)
    return FilterWord(value.text("word")) if "word" in value.document else _term(value)


class _JsonObject:
    """An object of the document with typed access to its members. `where`: its place, for messages."""

    __slots__ = ("document", "where")

    def __init__(self, document: object, where: str) -> None:
        if not isinstance(document, Mapping):
            raise ValueError(f"{where} is not an object")
        self.document: Mapping[str, Any] = document
        self.where = where

    def items(self) -> Iterator[tuple[str, _JsonObject]]:
        return ((name, _JsonObject(value, f"{self.where}.{name}")) for name, value in self.document.items())

    def get(self, key: str) -> Any:
        if key not in self.document:
            raise ValueError(f"{self.where} has no `{key}`")
        return self.document[key]

    def optional(self, key: str, read: Callable[[str], T], absent: T) -> T:
        """The value that `read` finds at a key, which may be absent."""
        return read(key) if key in self.document else absent

    def part(self, key: str) -> _JsonObject:
        return _JsonObject(self.get(key), f"{self.where}.{key}")

    def parts(self, key: str) -> Iterator[tuple[str, _JsonObject]]:
        return self.part(key).items()

    def each(self, key: str, read: Callable[[str, _JsonObject], T]) -> dict[str, T]:
        return {name: read(name, part) for name, part in self.parts(key)}

    def list(self, key: str) -> list[_JsonObject]:
        value = self.get(key)
        if not isinstance(value, list):
            raise ValueError(f"{self.where}.{key} is not a list")
        return [_JsonObject(item, f"{self.where}.{key}.{index}") for index, item in enumerate(value)]

    def text(self, key: str) -> str:
        return _text(self.get(key), f"{self.where}.{key}")

    def text_or_none(self, key: str) -> str | None:
        return None if self.get(key) is None else self.text(key)

    def texts(self, key: str) -> tuple[str, ...]:
        return _texts(self.get(key), f"{self.where}.{key}")

    def all_texts(self) -> dict[str, tuple[str, ...]]:
        return {name: _texts(value, f"{self.where}.{name}") for name, value in self.document.items()}

    def flag(self, key: str) -> bool:
        value = self.get(key)
        if not isinstance(value, bool):
            raise ValueError(f"{self.where}.{key} is not a boolean")
        return value

    def one_of(self, key: str, kind: Any, **absent: Any) -> Any:
        """The member, which must be one of the values of a Literal type; `absent`: the value where there is none."""
        if absent and key not in self.document:
            return absent["absent"]
        return _one_of(self.get(key), f"{self.where}.{key}", kind)

    def each_of(self, key: str, kind: Any) -> tuple[Any, ...]:
        """The members of a list, which must be values of a Literal type."""
        return tuple(_one_of(value, self.where, kind) for value in self.texts(key))


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{where} is not a string")
    return value


def _texts(value: object, where: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{where} is not a list")
    return tuple(_text(item, where) for item in value)


def _one_of(value: object, where: str, kind: Any) -> Any:
    if value not in get_args(kind):
        raise ValueError(f"{where} is {value!r:.80}, not one of {', '.join(get_args(kind))}")
    return value


def _privilege(name: str, part: _JsonObject) -> ir.Privilege:
    return ir.Privilege(
        name=name,
        on=part.texts("on"),
        implies=part.optional("implies", part.texts, ()),
        inheritance=part.one_of("inheritance", declarations.Inheritance, absent=None),
        granted=part.optional("granted", part.flag, True),  # noqa: FBT003  the value where there is none
    )


def _entity(name: str, part: _JsonObject) -> ir.EntityType:
    principal = None if part.get("principal") is None else part.one_of("principal", PrincipalKind)
    return ir.EntityType(
        name=name,
        parent=part.text_or_none("parent"),
        single=part.flag("single"),
        principal=principal,
        nested=_levels(part) if "nested" in part.document else 0,
        flat="flat" in part.document and part.flag("flat"),
        opaque="opaque" in part.document and part.flag("opaque"),
    )


def _levels(part: _JsonObject) -> int:
    levels = part.get("nested")
    if not isinstance(levels, int) or isinstance(levels, bool) or not 1 <= levels <= MOST_LEVELS:
        raise ValueError(f"{part.where}.nested is {levels!r:.80}, not a number from 1 to {MOST_LEVELS}")
    return levels


def _role(name: str, part: _JsonObject) -> ir.Role:
    several = isinstance(part.get("scope"), list)
    scopes = part.texts("scope") if several else tuple(filter(None, (part.text_or_none("scope"),)))
    return ir.Role(name=name, scopes=scopes, grants=tuple(part.part("grants").all_texts().items()))


def _semantics(part: _JsonObject) -> declarations.Semantics:
    kinds = partial(part.each_of, kind=PrincipalKind)
    return declarations.Semantics(
        inheritance=part.one_of("inheritance", declarations.Inheritance),
        deny=part.one_of("deny", declarations.DenyMode),
        owner=None if part.get("owner") is None else _owner(part.part("owner")),
        subjects=part.optional("subjects", part.texts, ("user",)),
        grantees=part.optional("grantees", kinds, PRINCIPAL_KINDS),
        assignees=part.optional("assignees", kinds, PRINCIPAL_KINDS),
        groups=part.each_of("groups", declarations.GroupSource),
        everyone=part.optional("everyone", part.text_or_none, None),
        hierarchy=part.optional("hierarchy", partial(part.each_of, kind=declarations.HierarchyKind), ()),
        active_roles=part.one_of("active_roles", declarations.RoleNarrowing, absent="none"),
        inactive_owners="inactive_owners" in part.document and part.flag("inactive_owners"),
    )


def _owner(part: _JsonObject) -> declarations.OwnerSemantics:
    return declarations.OwnerSemantics(
        kinds=part.each_of("kinds", PrincipalKind),
        creator="active_role" if part.get("creator") == "active_role" else part.flag("creator"),
        holds=part.texts("holds"),
    )


def _rule(entity: str, operation: str, part: _JsonObject, span: Span) -> ir.Rule:
    each = None if part.get("each") is None else _formula(part.part("each"))
    rule = ir.Rule(
        id=part.text("id"),
        entity=entity,
        operation=operation,
        title=part.text("title"),
        origin=part.one_of("origin", ir.Origin),
        gate=ir.ALWAYS,  # in the JSON, `call` includes it
        requires=_formula(part.part("call")),
        each=each,
        span=span,
        withs=tuple(ir.WithSlot(name=name, types=types) for name, types in part.part("with").all_texts().items()),
        required_flags=part.optional("required_flags", part.texts, ()),
        report=part.text_or_none("report"),
        effects=tuple(map(_effect, part.list("effects"))),
        delegations=tuple(map(_effect, part.list("delegations"))) if "delegations" in part.document else (),
        creates=undeclared_creation(operation) if part.flag("unnamed") and each is None else None,
        destructive="destructive" in part.document and part.flag("destructive"),
        sensitive="sensitive" in part.document and part.flag("sensitive"),
        source=_source(part.text_or_none("source")),
    )
    texts = [None if f is None or f == ir.ALWAYS else condition_text(f, rule) for f in (rule.requires, each)]
    return replace(rule, requires_text=texts[0], each_text=texts[1])


def _source(text: str | None) -> ir.Source | None:
    if text is None:
        return None
    document, _, line = text.rpartition(":")
    return ir.Source(document=document, line=int(line)) if document and line.isdecimal() else ir.Source(document=text)


def _effect(part: _JsonObject) -> ir.Effect:
    kind, _, what = part.text("text").partition(" ")
    return ir.Effect(
        kind=_one_of(kind, part.where, EffectKind),
        what=what.removesuffix(BY_ACTIVE_ROLE),
        privileges=part.texts("privileges"),
        target=_target(part.part("target")),
        of_role=what.endswith(BY_ACTIVE_ROLE),
    )


def _target(part: _JsonObject) -> ir.Target:
    level = part.one_of("level", Level, absent="nearest")
    return ir.Target(slot=part.text("slot"), type=part.text("type"), level=level)


def _term(part: _JsonObject) -> ir.Term:
    kind = _one_of(part.get("of"), part.where, AttributeKind)
    return ir.Term(kind=kind, attribute=part.text("attribute"), target=_target(part) if kind == "entity" else None)


def _formula(part: _JsonObject) -> ir.Formula:
    if len(part.document) != 1:
        raise ValueError(f"{part.where} is not a condition")
    [kind] = part.document
    if kind in _ATOMS:
        inside, atom = part.part(kind), _ATOMS[kind]
        names = {name: inside.text(name) for name in atom.kind.names}
        target = {"target": _target(inside)} if issubclass(atom, ir.OnTarget) else {}
        return cast("ir.Atom", atom(**names, **target))
    match kind:
        case "and" | "or":
            return (ir.And if kind == "and" else ir.Or)(parts=tuple(map(_formula, part.list(kind))))
        case "compare":
            inside = part.part(kind)
            right = inside.get("right")
            return ir.Compare(
                left=_term(inside.part("left")),
                operator=_one_of(inside.get("operator"), inside.where, Operator),
                right=tuple(right) if isinstance(right, list) else _term(inside.part("right")),
            )
        case "when":
            return ir.When(flag=part.part(kind).text("flag"), body=_formula(part.part(kind).part("body")))
        case "can":
            return ir.Can(operation=part.part(kind).text("operation"), target=_target(part.part(kind)))
        case "by_type":
            cases = tuple((type_, _formula(case_)) for type_, case_ in part.part(kind).parts("cases"))
            return ir.ByType(slot=part.part(kind).text("slot"), cases=cases, text="")
        case _:
            raise ValueError(f"{part.where} has the unknown node `{kind:.80}`")
