"""Completions at a position of a policy: the reader tells the kinds of names, the JSON Schema the keys and words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeAlias

import yaml

from privtab.base import SourceFile, listed_names, quoted_privilege
from privtab.language import cell_names, policy_schema, read_policy
from privtab.model import DeclaredNames
from privtab_pages.lsp.occurrences import Kind, in_policy

ItemKind: TypeAlias = Kind | Literal["key", "word", "keyword", "entity", "user", "group", "role", "principal"]
_CURSOR = "cursorOfTheEditor"
_WORD = re.compile(r"[\w.:\-]*\Z")
_OF_KEY: dict[str | int, ItemKind] = {
    **{kind: kind for kind in ("user", "group", "role")},
    "action": "operation",
    "privilege": "privilege",
    "reason": "privilege",
    "missing": "privilege",
}
_OF_KEY |= dict.fromkeys(("resource", "entity", "items", "visible", "of", "scope"), "entity")
_OF_KEY |= dict.fromkeys(("principal", "grantee", "owner"), "principal")
"""What stands at the keys of a case, and of the rows of a state."""
_NAME = r"[\w.@%\-]+"
KEYWORDS = ("and", "anyone", "can", "holds", "member", "nobody", "or", "owner", "self", "when", "service admin")
"""The words of conditions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A text that may stand at the position, its kind, and its description."""

    text: str
    kind: ItemKind
    about: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """The position in the tree of YAML: keys and numbers from the root, and the text of the scalar before the cursor."""

    path: tuple[str | int, ...]
    is_key: bool
    before: str
    closing: str


def complete(text: str, offset: int, names: DeclaredNames, operations: dict[str, tuple[str, ...]]) -> list[Item]:
    """The completions of the text before the offset, in a policy that declares these names; `operations` with their types."""
    word = _WORD.search(text, 0, offset)
    before = text[: offset if word is None else word.start()]
    places = list(_places(before))
    kinds = {kind for place, tail in places for kind in _expected(f"{before}{_CURSOR}{tail}{place.closing}")}
    items = (item for place, _ in places for item in (*_of_schema(place), *_keywords(place, kinds)))
    found = {item.text: item for item in items}
    if "type" in kinds:
        found |= {
            name: Item(text=name, kind="type", about=f"in {e.parent}" if e.parent else "")
            for name, e in names.entities.items()
        }
    if kinds & {"privilege", "set"}:
        found |= {name: _privilege(name, names) for name in names.declared}
        found |= {n: Item(text=quoted_privilege(n), kind="set", about="a condition") for n in names.conditions}
    if "operation" in kinds:
        found |= {n: Item(text=n, kind="operation", about=listed_names(types)) for n, types in operations.items()}
    return list(found.values())


def complete_case(
    text: str, offset: int, names: DeclaredNames, operations: dict[str, tuple[str, ...]], states: Sequence[str] = ()
) -> list[Item]:
    """The completions in scenarios or a state: names of the policy; users and entities that are named elsewhere, there or in the states of scenarios."""
    begun = re.search(r"[\w.:%/\-]*\Z", text[:offset])
    before = text[: begun.start() if begun else offset]
    whole = "\n".join((before, text[offset:], *states))
    place = next((place for place, _ in _places(before)), None)
    keys = [] if place is None or place.is_key else [step for step in place.path if step in _OF_KEY]
    match _OF_KEY[keys[-1]] if keys else None:
        case "operation":
            return [Item(text=name, kind="operation", about=listed_names(types)) for name, types in operations.items()]
        case "privilege":
            return [_privilege(name, names) for name in names.declared]
        case "user" | "group" | "role" as kind:
            return [Item(text=name, kind=kind, about="") for name in _named(kind, whole)]
        case "principal":
            found = ((kind, name) for kind in ("group", "role", "user") for name in _named(kind, whole))
            return [Item(text=f"{kind}:{name}", kind="principal", about="") for kind, name in found]
        case "entity":
            types = "|".join(names.entities)
            others = re.findall(rf"\b(?:{types}):[\w.%/\-]+", whole)
            kinds = [Item(text=f"{name}:", kind="type", about="") for name in names.entities]
            return kinds + [Item(text=name, kind="entity", about="") for name in sorted(set(others))]
        case _:
            return []


def _named(kind: str, text: str) -> list[str]:
    """The users, groups or roles in a text: as values of the key, or as principals."""
    return sorted(set(re.findall(rf"\b{kind}: *['\"]?({_NAME})", text)))


def _privilege(name: str, names: DeclaredNames) -> Item:
    members = names.members(name) or ()
    if name in names.sets:
        return Item(text=quoted_privilege(name), kind="set", about=listed_names(members))
    on = names.privileges[members[0]].on if members and members[0] in names.privileges else ()
    return Item(
        text=quoted_privilege(name),
        kind="privilege",
        about=f"on {listed_names(on)}" if len(on) < len(names.entities) else "",
    )


def _places(before: str) -> Iterator[tuple[_Place, str]]:
    """The ways to complete the text so that it is YAML: as a value or a key, in quotes or not, with the missing parts of a condition."""
    for quote in ("", '"', "'"):
        place = _place(f"{before}{_CURSOR}{quote}")
        if place is not None:
            closing = ")" * (place.before.count("(") - place.before.count(")"))
            for tail in dict.fromkeys((closing, f" (entity){closing}")):
                yield place, tail + quote
            break
    key = _place(f"{before}{_CURSOR}:")
    if key is not None and key.is_key:
        yield from ((key, tail) for tail in (": {}", ": x"))


def _place(text: str) -> _Place | None:
    """The place of the cursor's word in a text that ends there; None if the text is not YAML up to there."""
    open_: list[tuple[str, str | int | None]] = []
    """For each open collection, how it is closed and where in it the parser is: the key of the next value, None before a key."""
    found: tuple[tuple[str | int, ...], bool, str] | None = None

    def advance() -> None:
        if open_:
            close, at = open_[-1]
            open_[-1] = (close, at + 1 if isinstance(at, int) else None)

    for event in _events(text):
        match event:
            case yaml.MappingStartEvent():
                open_.append(("}" if event.flow_style else "", None))
            case yaml.SequenceStartEvent():
                open_.append(("]" if event.flow_style else "", 0))
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                if found is not None:
                    break
                open_.pop()
                advance()
            case yaml.ScalarEvent():
                is_key = bool(open_) and open_[-1][1] is None
                if _CURSOR in event.value:
                    path = tuple(at for _, at in open_ if at is not None)
                    found = path, is_key, event.value.partition(_CURSOR)[0]
                    break
                if is_key:
                    open_[-1] = (open_[-1][0], event.value)
                else:
                    advance()
    if found is None:
        return None
    closing = "".join(close for close, _ in reversed(open_))
    return _Place(path=found[0], is_key=found[1], before=found[2], closing=closing)


def _events(text: str) -> list[Any]:
    """The events of a text that may end anywhere, as far as there are any; libyaml refuses `{table:, view:}`."""
    found: list[Any] = []
    for loader in (getattr(yaml, "CSafeLoader", yaml.SafeLoader), yaml.SafeLoader):
        found.clear()
        try:
            found.extend(yaml.parse(text, Loader=loader))
        except yaml.YAMLError as error:
            if getattr(error, "problem", None) == "found unexpected ':'":
                continue
        break
    return found


def _expected(text: str) -> Iterator[Kind]:
    """The kinds of name that the reader finds at the cursor."""
    tables, _ = read_policy(SourceFile.of("", text))
    if tables is not None:
        yield from (o.kind for o in in_policy(DeclaredNames.of(tables, [])) if o.name == _CURSOR and not o.declares)


def _of_schema(place: _Place) -> Iterator[Item]:
    """The keys of the mapping there, or the words of a closed set."""
    if place.before:
        return
    for shape in _shapes(place.path):
        if place.is_key:
            for name, key in shape.get("properties", {}).items():
                yield Item(text=name, kind="key", about=key.get("description", ""))
        else:
            for word in shape.get("enum", ()):
                yield Item(text=str(word).lower() if isinstance(word, bool) else str(word), kind="word", about="")
            if shape.get("type") == "boolean":
                yield from (Item(text=word, kind="word", about="") for word in ("true", "false"))


def _keywords(place: _Place, kinds: set[Kind]) -> Iterator[Item]:
    """The words of conditions with which the cell before the cursor can go on, as its grammar says; none where it takes any name."""
    condition = _schema()["$defs"]["condition"]
    if place.is_key or kinds & {"type", "operation"} or not any(shape is condition for shape in _shapes(place.path)):
        return
    closing = ")" * (place.before.count("(") - place.before.count(")"))
    for word in KEYWORDS:
        rests = ("", " (x)", " x (x)", " x")
        texts = (f"{place.before}{word}{rest}{closing}" for rest in rests)
        if any(not isinstance(cell_names(text, "condition"), str) for text in texts):
            yield Item(text=word, kind="keyword", about="")


@cache
def _schema() -> dict[str, Any]:
    return policy_schema()


def _shapes(path: tuple[str | int, ...]) -> list[dict[str, Any]]:
    """The schema's descriptions of the value at a path: the value fits one of them."""
    shapes = _alternatives(_schema())
    for step in path:
        inner = []
        for shape in shapes:
            if isinstance(step, int):
                inner += _alternatives(shape.get("items"))
            elif step in shape.get("properties", {}):
                inner += _alternatives(shape["properties"][step])
            else:
                inner += _alternatives(shape.get("additionalProperties"))
        shapes = inner
    return shapes


def _alternatives(shape: Any) -> list[dict[str, Any]]:
    """A shape without references and alternatives."""
    if not isinstance(shape, dict):
        return []
    if "$ref" in shape:
        return _alternatives(_schema()["$defs"][shape["$ref"].rpartition("/")[2]])
    if "anyOf" in shape and "type" not in shape:
        return [found for part in shape["anyOf"] for found in _alternatives(part)]
    return [shape]
