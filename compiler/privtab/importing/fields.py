"""Which fields the answers of a system have, and which of them can deny: what no document names is found."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from itertools import islice
from typing import TypeAlias, Union

from privtab.errors import FileError


class Word(Enum):
    """What a field without fields of its own is."""

    KNOWN = "known"
    """It is read, or means nothing for rights."""
    SWITCH = "switch"
    """If false, it turns its object off with all that is in it."""


Field: TypeAlias = Union[Word, "Loss", "Fields"]
"""A word; what is lost with the field; or the fields of the objects in it."""
OTHERS = "*"
"""The name for all fields that have no name of their own."""
_NAMES = ("name", "displayName", "userName", "id")
_LONGEST = 60
_Place: TypeAlias = tuple[str, Mapping[str, object], Union["_Place", None]]
"""The name of a field, the object that has it, and the place of that object: what a message is made of if there is one."""


@dataclass(frozen=True, slots=True)
class Loss:
    """What is lost with a field that has a value. `denies`: the state could allow more without it."""

    why: str
    denies: bool


UNKNOWN = Loss("the import document does not know this field, which may deny or narrow", denies=True)


@dataclass(frozen=True, kw_only=True)
class Fields:
    """What the objects at one place of an answer hold."""

    named: Mapping[str, Field]
    required: Mapping[str, type]
    """Names of the lists and objects that must be there."""
    bare: bool = False
    """Whether an answer may be the one list in it alone."""
    listed: bool = False
    """Whether the answer itself must be a list of such objects."""

    @cached_property
    def known(self) -> frozenset[str]:
        """The names of fields that need no look."""
        return frozenset(name for name, kind in self.named.items() if kind is Word.KNOWN)

    @cached_property
    def harmless_if_empty(self) -> frozenset[str]:
        """The names of fields that need a look only if they have a value."""
        return frozenset(
            name
            for name, kind in self.named.items()
            if isinstance(kind, Loss) or (isinstance(kind, Fields) and not kind.required)
        )


@dataclass(slots=True)
class FoundField:
    """A field that a state cannot express, or that nobody knows: how often it has a value, and the first one."""

    loss: Loss
    example: str
    count: int = 0


@dataclass(frozen=True, slots=True)
class FieldSearch:
    """Looks through answers."""

    found: dict[str, FoundField] = field(default_factory=dict)
    """By name: those of the objects around a field and its own, with dots between."""

    def answer(self, fields: Fields, answer: object, where: str) -> object:
        """Look through an answer, and give it back; a bare list as the one list in it.

        Raises FileError where a list or an object that was asked for is not there, or anything is of another shape. `where`: what was asked.
        """
        if isinstance(answer, list) and fields.bare:
            answer = dict.fromkeys(fields.required, answer)
        if isinstance(answer, list) != fields.listed:
            expected = "a list" if fields.listed else "an object"
            raise FileError(f"the answer to {where} is {_short(answer)}, not {expected}")
        self._objects(fields, answer, None, where)
        return answer

    def _objects(self, fields: Fields, value: object, place: _Place | None, where: str) -> None:
        named, known, if_empty, required = fields.named, fields.known, fields.harmless_if_empty, fields.required
        for item in value if isinstance(value, list) else (value,):
            if not isinstance(item, dict):
                raise FileError(f"`{_path(place)}` in the answer to {where} holds {_short(item)}, not an object")
            names = [name for name in item if name not in known and (item[name] or name not in if_empty)]
            if not names and not required:
                continue
            deeper: list[tuple[Fields | Loss, str, object]] = []
            for name in names:
                content = item[name]
                kind = named.get(name) or named.get(OTHERS)
                if kind is Word.KNOWN:
                    continue
                if kind is Word.SWITCH:
                    if content is False:
                        break
                elif isinstance(kind, Fields):
                    if content.__class__ is not dict or not content.keys() <= kind.known or kind.required:
                        deeper.append((kind, name, content))
                elif kind is None:
                    if content is not None and content not in ("", [], {}):  # `false` may mean something
                        deeper.append((UNKNOWN, name, content))
                elif content:
                    deeper.append((kind, name, content))
            else:
                for name, kind_ in required.items():
                    if not isinstance(item.get(name), kind_):
                        what = "list" if kind_ is list else "object"
                        raise FileError(f"the answer to {where} has no {what} `{_path((name, item, place))}`")
                for kind, name, content in deeper:
                    if isinstance(kind, Fields):
                        self._objects(kind, content, (name, item, place), where)
                    else:
                        self._note((name, item, place), kind, content)

    def _note(self, place: _Place, loss: Loss, content: object) -> None:
        path = _path(place)
        found = self.found.get(path)
        if found is None:
            around = (item for _, item, _ in _outwards(place))
            names = (item[name] for item in around for name in _NAMES if isinstance(item.get(name), str | int))
            of = "".join(f" of `{name}`" for name in islice(names, 1))
            found = self.found[path] = FoundField(loss=loss, example=f"`{path}`{of} is {_short(content)}")
        found.count += 1


def _outwards(place: _Place | None) -> Iterator[_Place]:
    while place is not None:
        yield place
        place = place[2]


def _path(place: _Place | None) -> str:
    return ".".join([name for name, _, _ in _outwards(place)][::-1])


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
