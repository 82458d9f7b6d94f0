"""The positions of keys and values in a TOML file, which the standard library's parser does not provide."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

Path = tuple[str | int, ...]
_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(r'"""(?:\\.|[^\\])*?"{3,5}|' r"'''(?:.)*?'{3,5}|" r'"(?:\\.|[^"\\\n])*"|' r"'[^'\n]*'", re.DOTALL)
_BARE_VALUE = re.compile(r"[^\s,\]}#]+(?: [0-9][^\s,\]}#]*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyOffsets:
    """Offsets of a key and of its value; for items of a list both are the same."""

    key: tuple[int, int]
    value: tuple[int, int]


def places(text: str) -> dict[Path, KeyOffsets]:
    """The positions of all keys of a valid TOML text by their path, including tables."""
    return _Scanner(text).scan()


@dataclass(slots=True)
class _Scanner:
    text: str
    position: int = 0
    found: dict[Path, KeyOffsets] = field(default_factory=dict)
    lists: Counter[Path] = field(default_factory=Counter)

    def scan(self) -> dict[Path, KeyOffsets]:
        table: Path = ()
        while self.blank() < len(self.text):
            if self.text[self.position] == "[":
                table = self.header()
            else:
                self.pair(table)
        return self.found

    def blank(self) -> int:
        found = _BLANK.match(self.text, self.position)
        self.position = found.end() if found else self.position
        return self.position

    def header(self) -> Path:
        start = self.position
        double = self.text.startswith("[[", start)
        self.position += 2 if double else 1
        names = self.names()
        self.position = self.text.index("]", self.position) + (2 if double else 1)
        path: Path = ()
        for name in names[:-1]:
            path = (*path, name)
            if self.lists[path]:
                path = (*path, self.lists[path] - 1)
        path = (*path, names[-1])
        self.found.setdefault(path, KeyOffsets(key=(start, self.position), value=(start, self.position)))
        if double:
            self.lists[path] += 1
            path = (*path, self.lists[path] - 1)
            self.found[path] = KeyOffsets(key=(start, self.position), value=(start, self.position))
        return path

    def names(self) -> list[str]:
        """The parts of a dotted key."""
        names: list[str] = []
        while True:
            self.blank()
            if found := _BARE.match(self.text, self.position) or _STRING.match(self.text, self.position):
                names.append(found.group().strip("\"'"))
                self.position = found.end()
            if self.blank() >= len(self.text) or self.text[self.position] != ".":
                return names
            self.position += 1

    def pair(self, table: Path) -> None:
        start = self.position
        path: Path = (*table, *self.names())
        end = len(self.text[start : self.position].rstrip()) + start
        self.position = self.text.index("=", self.position) + 1
        self.found[path] = KeyOffsets(key=(start, end), value=self.value(path))

    def value(self, path: Path) -> tuple[int, int]:
        start = self.blank()
        character = self.text[start]
        if found := _STRING.match(self.text, start):
            self.position = found.end()
        elif character in "[{":
            self.position += 1
            number = 0
            while self.text[self.blank()] not in "]}":
                if character == "{":
                    self.pair(path)
                else:
                    spot = self.value((*path, number))
                    self.found[(*path, number)] = KeyOffsets(key=spot, value=spot)
                    number += 1
                if self.text[self.blank()] == ",":
                    self.position += 1
            self.position += 1
        elif found := _BARE_VALUE.match(self.text, start):
            self.position = found.end()
        else:
            self.position += 1
        return start, self.position
