"""Fields of answers with their types, as a document declares them, and the search for values that no document expects."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from functools import cached_property
from itertools import islice
from typing import TypeAlias, Union

from privtab.base import FileError


class Word(Enum):
    """The meaning of a field without a type."""

    KNOWN = "known"
    """It means nothing for rights, whatever its value."""
    SWITCH = "switch"
    """If false, it turns its object off with all that is in it."""


@dataclass(frozen=True, slots=True)
class Loss:
    """The loss with a field that has a value. `denies`: the state could allow more without the field."""

    why: str
    denies: bool


TYPES: Mapping[str, frozenset[type]] = {
    "text": frozenset({str}),
    "number": frozenset({int}),
    "truth": frozenset({bool}),
    "id": frozenset({str, int}),
    "time": frozenset({str, datetime}),
}
"""The classes of values by the word for a type; a number of an `id` and a moment of a database become text."""
ONE_OF = "one of"


@dataclass(frozen=True, slots=True, kw_only=True)
class Type:
    """The values of a field that is read: of one of the TYPES, or one of the listed values."""

    name: str
    """As the document writes it."""
    classes: frozenset[type]
    values: tuple[str | int, ...] = ()
    """All of them, if the document lists them."""
    unique: bool = False
    """True if no two items of an answer have the same value."""
    folded: bool = False
    """True if the system compares values without their case."""

    @property
    def is_plain(self) -> bool:
        """Return whether the class of a value tells whether the value is right, and the value stays as it is."""
        return not (self.values or self.unique or len(self.classes) > 1)

    def read(self, value: object) -> object:
        """The value as steps read it; WRONG for any other."""
        if value.__class__ not in self.classes or (self.values and value not in self.values):
            return WRONG
        if isinstance(value, datetime):
            return value.isoformat() if value.tzinfo else WRONG
        return value if len(self.classes) == 1 or self.values else str(value)


@dataclass(frozen=True, slots=True)
class Many:
    """A list."""

    item: Field


Field: TypeAlias = Union[Word, Loss, Type, Many, "Fields"]
"""A word; what is lost with the field; the type of its value; a list; or the fields of its object."""
OTHERS = "*"
"""The name for all fields that have no name of their own."""
WRONG = object()
_NAMES = ("name", "displayName", "userName", "id")
_LONGEST = 60
_NOTHING: frozenset[type] = frozenset()
_ZEROS = frozenset({int, float})
_Place: TypeAlias = tuple[str, Mapping[str, object], "_Place"] | None
"""The name of a field, the object that has it, and the place of that object: what a message is made of. None: the answer."""
UNKNOWN = Loss("the import document does not know this field, which may deny or narrow", denies=True)


@dataclass(frozen=True, kw_only=True)
class Fields:
    """The fields of an object at one place of an answer."""

    named: Mapping[str, Field]
    optional: frozenset[str] = frozenset()
    """Names, among those with a type, that may be left out."""
    nullable: frozenset[str] = frozenset()
    """Names whose value may be null, which means as much as nothing."""
    bare: bool = False
    """True if an answer may be the one list in it alone."""
    listed: bool = False
    """True if the answer itself must be a list of such objects."""

    @cached_property
    def known(self) -> frozenset[str]:
        """The names of fields that need no look."""
        return frozenset(name for name, kind in self.named.items() if kind is Word.KNOWN)

    @cached_property
    def losses(self) -> frozenset[str]:
        """The names of fields that need a look only if they have a value."""
        return frozenset(name for name, kind in self.named.items() if isinstance(kind, Loss))

    @cached_property
    def switches(self) -> tuple[str, ...]:
        """The names of fields that turn the object off."""
        return tuple(name for name, kind in self.named.items() if kind is Word.SWITCH)

    @cached_property
    def classes(self) -> Mapping[str, frozenset[type]]:
        """The classes of values that need no further look, by name."""
        null = {name: {type(None)} for name in self.nullable}
        return {
            name: kind.classes | null.get(name, set())
            for name, kind in self.named.items()
            if isinstance(kind, Type) and kind.is_plain
        }

    @cached_property
    def lists(self) -> Mapping[str, frozenset[type]]:
        """The classes of items that need no further look, by the name of their list."""
        items = {name: kind.item for name, kind in self.named.items() if isinstance(kind, Many)}
        return {n: of.classes if isinstance(of, Type) and of.is_plain else _NOTHING for n, of in items.items()}

    @cached_property
    def required(self) -> frozenset[str]:
        """The names of fields that must be there."""
        typed = {name for name, kind in self.named.items() if isinstance(kind, Type | Many | Fields)}
        return frozenset(typed - self.optional - {OTHERS})

    def check_columns(self, columns: Sequence[str], where: str) -> None:
        """Raise FileError for a result without a column that must be there."""
        for name in sorted(self.required - {*columns}):
            raise FileError(f"the answer to {where} has no column `{name}`")


@dataclass(slots=True)
class FoundField:
    """A field that a state cannot express, or that is unknown: the number of its values, and the first value."""

    loss: Loss
    example: str
    count: int = 0


@dataclass(slots=True)
class FieldSearch:
    """Looks through answers, and takes out each value that is of another type than its field."""

    found: dict[str, FoundField] = field(default_factory=dict)
    """Fields by name: the names of the surrounding objects and the field's own, with dots between."""
    where: str = ""
    """The requested address or query, for messages."""
    _values: set[tuple[str, object]] = field(default_factory=set)
    """Values of unique fields, with their paths, in the pages of the answer so far."""

    def question(self, where: str) -> FieldSearch:
        """A search through the answer to one question, which shares what is found."""
        return FieldSearch(self.found, where)

    def answer(self, fields: Fields, answer: object) -> object:
        """Look through an answer or one of its pages, and give it back; a bare list as the one list in it.

        Raises FileError where a list or an object that was asked for is not there, or holds anything else, or two items share a
        unique value.
        """
        if isinstance(answer, list) and fields.bare:
            answer = dict.fromkeys((name for name, kind in fields.named.items() if isinstance(kind, Many)), answer)
        if isinstance(answer, list) != fields.listed:
            expected = "a list" if fields.listed else "an object"
            raise FileError(f"the answer to {self.where} is {short(answer)}, not {expected}")
        if isinstance(answer, list):
            return [item for item in answer if self._item(fields, item, None, within=False) is not WRONG]
        if not isinstance(answer, dict):
            raise FileError(f"the answer to {self.where} is {short(answer)}, not an object")
        self._object(fields, answer, None, within=False)
        return answer

    def _object(self, fields: Fields, item: dict[str, object], place: _Place, *, within: bool) -> bool:
        """Look through an object; False if any of its values is missing or of another type.

        `within`: whether it is in an item of a list, which is left out then.
        """
        named, known, classes, losses, lists = fields.named, fields.known, fields.classes, fields.losses, fields.lists
        looked_at = [
            name
            for name, content in item.items()
            if name not in known
            and content.__class__ not in classes.get(name, _NOTHING)
            and (content or name not in losses or content.__class__ in _ZEROS)
        ]
        if fields.switches and any(item.get(name) is False for name in fields.switches):
            return True
        wrong = [] if fields.required <= item.keys() else sorted(fields.required - item.keys())
        for name in wrong:
            self._wrong(named[name], (name, item, place), "is missing", within=within)
        for name in looked_at:
            content = item[name]
            if content.__class__ is list and name in lists and {*map(type, content)} <= lists[name]:
                continue
            if content is None and name in fields.nullable:
                continue
            kind, here = named.get(name) or named.get(OTHERS), (name, item, place)
            if kind is None:
                if content is not None and content not in ("", [], {}):  # `false` may mean something
                    self._note(here, UNKNOWN, f"is {short(content)}")
            elif isinstance(kind, Loss):
                if content:
                    self._note(here, kind, f"is {short(content)}")
                else:
                    item[name] = None  # so that steps, which take zero for a value, see none either
            elif kind is Word.SWITCH:
                if content is not True:
                    message = f"`{_path(here)}` in the answer to {self.where} is {short(content)}, not true or false"
                    raise FileError(message)
            elif (found := self._value(kind, content, here, within=within)) is not WRONG:
                item[name] = found
            else:
                wrong.append(name)
        for name in wrong:
            item.pop(name, None)
        return not wrong

    def _value(self, kind: Field, content: object, place: _Place, *, within: bool) -> object:
        """The value as steps read it; WRONG, which is noted, for one of another type."""
        match kind:
            case Many(item=Fields() as fields) if isinstance(content, list):
                read = [self._item(fields, item, place, within=within) for item in content]
                return [item for item in read if item is not WRONG]
            case Many(item=of) if isinstance(content, list):
                read = [self._value(of, item, place, within=within) for item in content]
                return WRONG if WRONG in read else read
            case Fields() if isinstance(content, dict):
                return content if self._object(kind, content, place, within=within) else WRONG
            case Type() if (value := kind.read(content)) is not WRONG:
                self._check_unique(kind, value, place)
                return value
            case Type() | Many() | Fields():
                self._wrong(kind, place, f"is {short(content)}", within=within)
                return WRONG
            case _:
                return content

    def _item(self, fields: Fields, item: object, place: _Place, *, within: bool) -> object:
        if not isinstance(item, dict):
            return self._value(fields, item, place, within=within)
        return item if self._object(fields, item, place, within=True) else WRONG

    def _check_unique(self, kind: Type, value: object, place: _Place) -> None:
        if kind.unique:
            key = _path(place), value.casefold() if kind.folded and isinstance(value, str) else value
            if key in self._values:
                compared = ", compared without case" if kind.folded else ""
                raise FileError(
                    f"two items in the answer to {self.where} have one `{key[0]}`, {short(value)}{compared}"
                )
            self._values.add(key)

    def _wrong(self, kind: Field, place: _Place, what: str, *, within: bool) -> None:
        """Note a value that is missing or of another type; raises FileError where the answer is made of it."""
        expected = kind.name if isinstance(kind, Type) else "a list" if isinstance(kind, Many) else "an object"
        if not within and not isinstance(kind, Type):
            raise FileError(f"the answer to {self.where} has no {expected[2:].strip()} `{_path(place)}`: it {what}")
        self._note(place, Loss(f"the import document expects {expected}", denies=True), what)

    def _note(self, place: _Place, loss: Loss, what: str) -> None:
        path = _path(place)
        found = self.found.get(path)
        if found is None or loss.denies > found.loss.denies:
            around = (item for _, item in _outwards(place))
            names = (item[name] for item in around for name in _NAMES if isinstance(item.get(name), str | int))
            of = "".join(f" of `{name}`" for name in islice(names, 1))
            count = 0 if found is None else found.count
            found = self.found[path] = FoundField(loss=loss, example=f"`{path}`{of} {what}", count=count)
        found.count += 1


def _outwards(place: _Place) -> Iterator[tuple[str, Mapping[str, object]]]:
    while place is not None:
        name, item, place = place
        yield name, item


def _path(place: _Place) -> str:
    return ".".join([name for name, _ in _outwards(place)][::-1])


def short(value: object) -> str:
    """A value in a message."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
