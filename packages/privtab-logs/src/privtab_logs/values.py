"""The JSON objects in a file of any size: lines, arrays or both after each other, packed or not, among lines of text, with bounded memory.

What cannot be read is noted with its place, and reading goes on with the next line that begins a value.
"""

from __future__ import annotations

import codecs
import re
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO

from privtab.base import FileError, StrictDecoder
from privtab_logs.repeated import Repeats
from privtab_logs.schema import Reading

PIECE = 1 << 18
LARGEST = 64 << 20
"""Characters of the largest value."""
_GZIP = b"\x1f\x8b"
_MARGIN = 10
"""Characters before the end of what was read in which an error may be due to what is still missing."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_BETWEEN = re.compile(r"(?:[\s,\]]|\[(?=[\s\[\]{]|\Z))*")
_SPACED = tuple(f'"{space}' for space in " \t\r\n")
_NEXT = re.compile(r"\n(?=[\[{]|[^\s\"{}\],][^\"{}\n]{0,255}\{)")


def values(file: BinaryIO, path: str, reading: Reading, repeats: Repeats | None = None) -> Iterator[tuple[int, Any]]:
    """Yield the objects in a file, the items of top-level arrays, and the lines of text, each with the number of its first line.

    `repeats`: takes note of the objects, and knows the rows of some of them, which come as lists.
    """
    return _Scanner(_pieces(file, path, reading), path, reading, repeats).values()


def _pieces(file: BinaryIO, path: str, reading: Reading) -> Iterator[bytes]:
    """The content of a file, unpacked if it is gzip, of one member or several; of a file that is cut off, what is readable."""
    piece = file.read(PIECE)
    if not piece.startswith(_GZIP):
        while piece:
            yield piece
            piece = file.read(PIECE)
        return
    member = zlib.decompressobj(wbits=31)
    while piece:
        try:
            text = member.decompress(piece, PIECE)
        except zlib.error as error:
            reading.damage(f"{path}:0", f"the packed file is damaged, and its rest unreadable: {error}")
            return
        if text:
            yield text
        piece = member.unused_data if member.eof else member.unconsumed_tail
        if member.eof:
            piece = piece.lstrip(b"\0") or file.read(PIECE)
            if piece and not piece.startswith(_GZIP[: len(piece)]):
                reading.damage(f"{path}:0", "what follows the packed content is not gzip")
                return
            member = zlib.decompressobj(wbits=31) if piece else member
        elif not piece:
            piece = file.read(PIECE)
    yield member.flush()
    if not member.eof:
        reading.damage(f"{path}:0", "the packed file is cut off")


class _Scanner:
    """Reads values from a window over the text."""

    def __init__(self, pieces: Iterator[bytes], path: str, reading: Reading, repeats: Repeats | None) -> None:
        self._pieces = pieces
        self._path = path
        self._reading = reading
        # What is not UTF-8 becomes lone surrogates, by which the values that contain it are found.
        self._decode = codecs.getincrementaldecoder("utf-8")("surrogateescape").decode
        self._decoder = StrictDecoder()
        self._repeats = repeats
        self._compact = True
        self._text = ""
        self._at = 0
        self._line = 1
        self._arrays = 0
        """Number of open arrays."""
        self._ended = False
        self._suspect = False
        """True if a value in the window may contain a lone surrogate."""

    def values(self) -> Iterator[tuple[int, Any]]:
        """All values."""
        while self._skip_between():
            if self._text[self._at] != "{":
                number, text = self._line, self._rest_of_line()
                if not self._suspect or self._is_unicode(text):
                    yield number, text
                continue
            if self._repeats is not None and not self._suspect:
                rows, end, line = self._repeats.repeated(self._text, self._at, self._path, self._line)
                if rows:
                    yield self._line, rows
                    self._at, self._line = end, line
                    continue
            try:
                value, end = self._decoder.at(self._text, self._at, compact=self._compact)
            except StrictDecoder.Incomplete as error:
                if len(self._text) - self._at - error.position > _MARGIN and not error.open_text:
                    self._damaged(str(error))
                elif len(self._text) - self._at > LARGEST:
                    self._damaged("larger than any decision")
                elif not self._fill():
                    self._damaged("cut off")
            except ValueError as error:
                self._damaged(str(error))
            else:
                if self._repeats is not None and not self._suspect:
                    self._repeats.learn(self._text[self._at : end])
                if not self._suspect or self._is_unicode(value):
                    yield self._line, value
                self._move(end)
        if self._arrays:
            self._reading.damage(f"{self._path}:{self._line}", "an array is cut off")

    def _is_unicode(self, value: Any) -> bool:
        """Return whether all texts of a value can be encoded; otherwise note the value as damaged."""
        try:
            StrictDecoder.check(value)
        except ValueError as error:
            self._reading.damage(f"{self._path}:{self._line}", str(error))
            return False
        return True

    def _skip_between(self) -> bool:
        """Move to the next value; returns whether there is one."""
        while True:
            found = _BETWEEN.match(self._text, self._at)
            assert found is not None
            if between := found.group():
                self._arrays = max(0, self._arrays + between.count("[") - between.count("]"))
            self._move(found.end())
            if self._at < len(self._text):
                return True
            if not self._fill():
                return False

    def _rest_of_line(self) -> str:
        """The text up to the end of the line, and with it. Raises FileError for a line that never ends, as of a device."""
        while not (end := self._text.find("\n", self._at) + 1) and self._fill():
            if len(self._text) - self._at > LARGEST and "\n" not in self._text[self._at :]:
                raise FileError(
                    f"{self._path}:{self._line}: a line of more than {LARGEST:,} characters: this is no log"
                )
        text = self._text[self._at : end or len(self._text)]
        self._move(self._at + len(text))
        self._arrays = 0
        return text

    def _move(self, end: int) -> None:
        self._line += self._text.count("\n", self._at, end)
        self._at = end

    def _fill(self) -> bool:
        """Read more; returns whether there was more."""
        if self._ended:
            return False
        rest = self._text[self._at :]
        pieces: list[str] = []
        size = 0
        while size < max(PIECE, len(rest)):
            piece = next(self._pieces, None)
            self._ended = piece is None
            pieces.append(self._decode(piece or b"", self._ended))
            size += len(pieces[-1])
            if self._ended:
                break
        more = "".join(pieces)
        self._text, self._at = rest + more, 0
        # A search for one character is much faster than one for two.
        self._compact = not any(spaced in self._text for spaced in _SPACED if spaced[1] in self._text)
        in_ascii = self._text.isascii()  # at once; looking for surrogates takes a third of the time of reading
        self._suspect = ("\\" in self._text and ("\\ud" in self._text or "\\uD" in self._text)) or (
            not in_ascii and _SURROGATE.search(self._text) is not None
        )
        return bool(more)

    def _damaged(self, why: str) -> None:
        """Note a damaged value, and move to the next line that begins with one, since what is inside of it is none."""
        self._reading.damage(f"{self._path}:{self._line}", why)
        self._arrays = 0
        while True:
            found = _NEXT.search(self._text, self._at)
            if found is not None:
                self._move(found.end())
                return
            self._move(max(self._at, len(self._text) - 1))
            if not self._fill():
                self._at = len(self._text)
                return
