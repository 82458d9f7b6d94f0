"""Policy files as text with an index of lines, so that every offset has a position."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import field
from pathlib import Path
from typing import ClassVar

from privtab.base.diagnostics import LINE_END, Span
from privtab.base.errors import FileError
from privtab.base.files import read_content
from privtab.base.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    r"""A file: the path to show, its text, and the offsets of its lines.

    >>> SourceFile.of("p.yaml", "privtab: 1\nsystem: shop\n").position(12)
    (2, 2)
    """

    path: str
    text: str = field(repr=False)
    undecodable: int | None = None
    """Offset in `text` of the first byte that is not UTF-8; the text has U+FFFD there."""
    starts: tuple[int, ...] = field(default=(0,), repr=False)
    SUFFIXES: ClassVar = (".yaml", ".yml", ".json")
    """The endings of the files that policies and scenarios may be in."""

    @classmethod
    def of(cls, path: str, text: str, *, undecodable: int | None = None) -> SourceFile:
        """Make a file from its text; lines end in LF, CR LF or CR, as in YAML."""
        starts = (0, *(end.end() for end in LINE_END.finditer(text)))
        return cls(path=path, text=text, undecodable=undecodable, starts=starts)

    @classmethod
    def load(cls, path: str | Path, *, display: str | None = None) -> SourceFile:
        """Read a policy file. Raises FileError if it cannot be read; bytes that are not UTF-8 become a finding later.

        The path to show is `display`, or relative to the working directory if the file is below it, or as given.
        """
        file = Path(path)
        try:
            return cls.decode(read_content(file), display or _shown(file))
        except OSError as error:
            raise FileError(f"cannot read `{path}`: {error.strerror}") from error

    @classmethod
    def decode(cls, raw: bytes, path: str) -> SourceFile:
        r"""Make a file from its bytes, shown as `path`.

        >>> SourceFile.decode(b"privtab: 1\r\n", "p.yaml").position(12)
        (2, 1)
        """
        try:
            text = raw.decode("utf-8")
            undecodable = None
        except UnicodeDecodeError as error:
            text = raw.decode("utf-8", errors="replace")
            undecodable = len(raw[: error.start].decode("utf-8"))
        if text.startswith("\ufeff"):
            text = text[1:]
            undecodable = None if undecodable is None else undecodable - 1
        return cls.of(path, text, undecodable=undecodable)

    @staticmethod
    def is_marked(path: Path, key: str, *, unreadable: bool) -> bool:
        """Return whether a file is marked with a key, without an index of its lines. `unreadable`: the answer for a file that cannot be read."""
        try:
            return _has_mark(read_content(path).decode("utf-8-sig"), key)
        except (OSError, FileError, UnicodeDecodeError):
            return unreadable

    def has_mark(self, key: str) -> bool:
        r"""Return whether the file is a document in YAML or JSON with a key, in any way of writing it.

        >>> SourceFile.of("p.yaml", "privtab: 1\nsystem: shop\n").has_mark("privtab")
        True
        """
        return _has_mark(self.text, key)

    def position(self, offset: int) -> tuple[int, int]:
        """1-based line and column of an offset."""
        line = bisect_right(self.starts, offset)
        return line, offset - self.starts[line - 1] + 1

    def span(self, start: int, end: int) -> Span:
        """The span of `text[start:end]`."""
        line, column = self.position(start)
        end_line, end_column = self.position(max(start, end))
        return Span(path=self.path, line=line, column=column, end_line=end_line, end_column=end_column)


def _shown(file: Path) -> str:
    if file.is_absolute() and file.is_relative_to(Path.cwd()):
        file = file.relative_to(Path.cwd())
    return file.as_posix()


def files_below(folder: Path) -> Iterator[Path]:
    """The YAML and JSON files in a folder and below it, sorted, with pipes and links that lead nowhere, which no reader may pass over.

    Left out are hidden links: editors mark a file by such a link while they change it.
    """
    found = (path for path in sorted(folder.rglob("*")) if path.suffix in SourceFile.SUFFIXES and not path.is_dir())
    return (path for path in found if path.exists() or not path.name.startswith("."))


def _has_mark(text: str, key: str) -> bool:
    """Return whether a document in YAML or JSON has a key, in any way of writing it."""
    # A search for the key alone is much faster than one for starts of lines, and most files do not contain it.
    if key not in text:
        return False
    if any(_starts_line(text, found.start()) for found in re.finditer(rf"""{key}["']?\s*:""", text)):
        return True
    return f'"{key}"' in text and text.lstrip().startswith("{") and _has_key(text, key)


def _starts_line(text: str, position: int) -> bool:
    """Return whether a key stands at the start of a line, or after a bracket there, in quotes or not."""
    before = position - (text[max(position - 1, 0) : position] in {"'", '"'})
    bracket = before
    while bracket and text[bracket - 1].isspace():
        bracket -= 1
    starts = [before, bracket - 1] if bracket and text[bracket - 1] == "{" else [before]
    starts += [start - 1 for start in starts if start and text[start - 1] == "\ufeff"]
    return any(start == 0 or text[start - 1] == "\n" for start in starts)


def _has_key(text: str, key: str) -> bool:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and key in document
