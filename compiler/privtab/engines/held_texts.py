"""Grants of a state as the text of its bundle, each entity's read when it is first looked up.

A million grants are a million small objects to a JSON reader, which take most of the time until the first decision, and most processes ask about few
entities. Where the text is as `pack` writes it, it is cut into a text of principals for each entity, without an object for each grant.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, MutableMapping
from typing import Any, TypeAlias

from privtab.base.strict_json import strict_loads

Holders: TypeAlias = dict[str, int]
"""Principal → bits."""

_PRIVILEGE = re.compile(r'(,?"([^"\\]+)":)\{"')
_TRUE = '":true'


class HeldTexts(Mapping[str, Mapping[str, bool]]):
    """The holders of one privilege, by key of an entity, from a text that was found to be an object of objects of `true`."""

    def __init__(self, of_types: Mapping[str, dict[str, str]]) -> None:
        self.of_types = of_types
        """Type → path → principals, one a line."""

    def __getitem__(self, key: str) -> Mapping[str, bool]:
        type_, _, path = key.partition(":")
        return dict.fromkeys(self.of_types[type_][path].split("\n"), True)

    def __iter__(self) -> Iterator[str]:
        return (f"{type_}:{path}" for type_, texts in self.of_types.items() for path in texts)

    def __len__(self) -> int:
        return sum(map(len, self.of_types.values()))


def flat_holders(listed: Collection[Holders]) -> tuple[list[str], list[int], list[int]]:
    """The principals of holders in order with their bits, and how many each entity has."""
    bits = [bit for holders in listed for bit in holders.values()]
    return [principal for holders in listed for principal in holders], bits, list(map(len, listed))


class TextTable(MutableMapping[str, Holders]):
    """What principals hold on the entities of a type, by path: as a dictionary, whose values are read when they are first looked up."""

    def __init__(self) -> None:
        self.raw: dict[str, Holders | str] = {}
        """By path: the holders, or a text while nobody has looked them up (`opened`)."""
        self._parts: list[tuple[int, Mapping[str, str]]] = []

    def add(self, bit: int, texts: Mapping[str, str]) -> None:
        """Add the principals of a privilege, before anything else is changed."""
        self._parts.append((bit, texts))
        self.raw.update(texts)

    def opened(self, path: str) -> Holders:
        """The holders on an entity, of which the raw value is a text."""
        found = self.raw[path] = self._read(path)
        return found

    def flat(self) -> tuple[list[str], list[int], list[int]]:
        """The principals of all entities in order with their bits, and how many each entity has; nothing is kept."""
        if len(self._parts) == 1 and {*map(type, self.raw.values())} == {str}:
            ((bit, texts),) = self._parts
            principals = "\n".join(texts.values()).split("\n")
            return principals, [bit] * len(principals), [text.count("\n") + 1 for text in texts.values()]
        listed = [self._read(path) if isinstance(held, str) else held for path, held in self.raw.items()]
        return flat_holders(listed)

    def _read(self, path: str) -> Holders:
        found: Holders = {}
        for bit, texts in self._parts:
            if path in texts:
                for principal in texts[path].split("\n"):
                    found[principal] = found.get(principal, 0) | bit
        return found

    def __getitem__(self, path: str) -> Holders:
        held = self.raw[path]
        return self.opened(path) if isinstance(held, str) else held

    def get(self, path: str, default: Any = None) -> Any:
        """As Mapping.get."""
        held = self.raw.get(path, default)
        return self.opened(path) if isinstance(held, str) else held

    def __contains__(self, path: object) -> bool:
        return path in self.raw

    def __setitem__(self, path: str, held: Holders) -> None:
        self.raw[path] = held

    def __delitem__(self, path: str) -> None:
        del self.raw[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self.raw)

    def __len__(self) -> int:
        return len(self.raw)


def read_held(content: bytes) -> dict[str, Any] | None:
    """The document of an index, with `HeldTexts` for the privileges at its beginning; None if a general reader must say what is wrong.

    >>> read_held(b'{"allow":{"READ":{"table:t":{"role:a":true}}},"deny":{}}')["allow"]["READ"].of_types
    {'table': {'t': 'role:a'}}
    """
    found: list[tuple[str, str, HeldTexts]] = []
    rest: list[str] = []
    position = 0
    try:
        text = content.decode()
        for effect, opening in (("allow", '{"allow":{'), ("deny", '},"deny":{')):
            if not text.startswith(opening, position):
                break
            rest.append(opening)
            position += len(opening)
            while (begun := _PRIVILEGE.match(text, position)) and (end := text.find("}}", begun.end())) > 0:
                held = _held(text[begun.end() : end])
                if held is None:
                    break
                found.append((effect, begun[2], held))
                rest.append(f"{begun[1]}null")
                position = end + 2
        document: dict[str, Any] = strict_loads("".join((*rest, text[position:])))
    except ValueError:
        return None
    for effect, privilege, held in found:
        document[effect][privilege] = held
    return document


def _held(text: str) -> HeldTexts | None:
    """The holders of a privilege, from the inside of an object of objects; None for anything else than what `pack` writes.

    Whatever may stand between two names is replaced by a control character, of which the text had none. If no quote is left, and no backslash was
    there, the rest are names, and no reader of JSON can read the text otherwise. No name may occur twice in an object.
    """
    if not text.endswith(_TRUE) or "\\" in text or not text.isprintable():
        return None
    entities = text.removesuffix(_TRUE).replace(f'{_TRUE},"', "\n").replace(f'{_TRUE}}},"', "\r").replace('":{"', "\t")
    if '"' in entities:
        return None
    found: dict[str, dict[str, str]] = {}
    end = -1
    while end < len(entities):
        begin = end + 1
        type_ = entities[begin : max(entities.find(":", begin), begin)]
        another = f"\r{type_}:"
        end = entities.find("\r", max(entities.rfind(another, begin) + 1, begin))  # keys are sorted
        end = len(entities) if end < 0 else end
        own = entities[begin:end].removeprefix(f"{type_}:")
        of_type = _by_path(own.replace(another, "\r")) if own.count(another) == own.count("\r") else None
        if not type_.isprintable() or not type_ or type_ in found or of_type is None:
            return None
        found[type_] = of_type
    return HeldTexts(found)


def _by_path(entities: str) -> dict[str, str] | None:
    """The holders on entities of one type by path; None if a path or a holder occurs twice, or if paths and holders do not take turns."""
    names = entities.replace("\t", "\r").split("\r")
    paths, holders = names[::2], names[1::2]
    if "\r".join(map("\t".join, zip(paths, holders, strict=False))) != entities or "\n" in "".join(paths):
        return None
    for listed in holders:
        if "\n" in listed and len({*(principals := listed.split("\n"))}) < len(principals):
            return None
    found = dict(zip(paths, holders, strict=True))
    return found if len(found) == len(paths) else None
