"""Bounds for bundles of strangers: what is unpacked, how much of it is read at once, and what an archive may hold.

A gzip of a few kilobytes may unpack to ten thousand times as much, a sparse file of a tar has any size that its header says,
and a megabyte of JSON may take a hundred in memory. Each bound is far above what privtab makes, and at what OPA takes.
"""

from __future__ import annotations

import tarfile
from typing import BinaryIO, NoReturn

from privtab.errors import BrokenBundle
from privtab.printable import printable

LARGEST = 2 << 30
"""Bytes that a bundle unpacks to."""
LARGEST_FILE = 1 << 30
"""Bytes of one of its files; OPA takes no larger one either."""
LARGEST_READ = 512 << 20
"""Bytes of a file that is read as a whole: JSON."""
LARGEST_MANIFEST = 4 << 20
MOST_VALUES = 20_000_000
"""Objects, arrays and members in one file of JSON: some 150 bytes of memory each, at the worst."""
LARGEST_REWRITTEN = 128 << 20
"""Bytes of a JSON file whose bytes are not those that were signed, read to see whether it says the same: it may be anybody's."""
MOST_REWRITTEN = 5_000_000
"""Objects, arrays and members in such a file."""
MOST_ENTRIES = 50_000
LONGEST_NAME = 1_000
LARGEST_HEADER = 64 << 10
"""Bytes of a header that says more of the next file: long names, PAX records."""

_HEADERS = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)
_KINDS = {
    tarfile.LNKTYPE: "a hard link",
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a pipe",
}


class Bounded:
    """What a gzip unpacks to, up to a bound."""

    def __init__(self, unpacked: BinaryIO) -> None:
        self._unpacked = unpacked
        self._left = LARGEST

    def read(self, size: int = -1) -> bytes:
        """As of a file; raises BrokenBundle beyond the bound."""
        piece = self._unpacked.read(min(size, self._left + 1) if size >= 0 else self._left + 1)
        self._left -= len(piece)
        if self._left < 0:
            raise BrokenBundle(f"it unpacks to more than {LARGEST >> 30} GiB")
        return piece


class Entry(tarfile.TarInfo):
    """An entry of an archive whose headers are looked at before they are believed."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Entry:
        """As of TarInfo; a header that is none is no silent end of the archive."""
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if len(buf) == 0 or not any(buf):
                raise  # The end.
            raise BrokenBundle(f"it is no whole bundle: {error}") from None

    def _proc_member(self, tar: tarfile.TarFile) -> Entry:
        """What the type of a header asks for; the entry point that TarInfo means to be overridden."""
        if self.type in _HEADERS and not 0 <= self.size <= LARGEST_HEADER:
            raise BrokenBundle(f"a header of its archive says {self.size:,} bytes of the next file")
        if self.type == tarfile.GNUTYPE_SPARSE:
            _refuse_sparse(self.name)
        made: Entry = super()._proc_member(tar)  # type: ignore[misc]
        return made

    def _proc_gnusparse_00(self, following: Entry, *_: object) -> None:
        _refuse_sparse(following.name)

    def _proc_gnusparse_01(self, following: Entry, *_: object) -> None:
        _refuse_sparse(following.name)

    def _proc_gnusparse_10(self, following: Entry, *_: object) -> None:
        _refuse_sparse(following.name)


def check_entry(name: str, entry: tarfile.TarInfo, number: int) -> None:
    """Raise BrokenBundle for an entry that no bundle has. `name`: its path from the top; `number`: which one it is."""
    if number > MOST_ENTRIES:
        raise BrokenBundle(f"it holds more than {MOST_ENTRIES:,} files")
    if len(name) > LONGEST_NAME:
        raise BrokenBundle(
            f"the name of a file in it is longer than {LONGEST_NAME:,} characters: `{_shown(name[:40])}…`"
        )
    if entry.issparse():
        _refuse_sparse(name)
    if not entry.isfile() and not entry.isdir():
        raise BrokenBundle(f"`{_shown(name)}` in it is {_KINDS.get(entry.type, 'no file')}: bundles hold files alone")
    parts = name.rstrip("/").split("/") if entry.isdir() else name.split("/")
    if (
        not name.isprintable()
        or "\\" in name
        or (not {"", ".", ".."}.isdisjoint(parts) and (entry.isfile() or ".." in parts))
    ):
        raise BrokenBundle(f"`{_shown(name)}` in it is no path of a file")
    if not 0 <= entry.size <= LARGEST_FILE:
        raise BrokenBundle(f"`{name}` in it has {entry.size:,} bytes; {LARGEST_FILE >> 30} GiB is the most")


def check_read(name: str, size: int) -> None:
    """Raise BrokenBundle for a file that is too large to be read as a whole."""
    most = LARGEST_MANIFEST if name == ".manifest" else LARGEST_READ
    if size > most:
        raise BrokenBundle(f"`{name}` in it has {size:,} bytes; {most >> 20} MiB is the most")


def check_values(name: str, text: bytes, most: int | None = None) -> None:
    """Raise BrokenBundle for JSON that would take too much memory once it is read."""
    most = MOST_VALUES if most is None else most
    if len(text) > most and sum(map(text.count, (b",", b"{", b"["))) > most:
        raise BrokenBundle(f"`{name}` in it holds more than {most:,} values")


def check_rewritten(name: str, size: int) -> None:
    """Raise BrokenBundle for a file that is not as it was signed and too large to be compared by what it says."""
    if size > LARGEST_REWRITTEN:
        raise BrokenBundle(
            f"`{name}` in it is not written as it was signed, and has {size:,} bytes; {LARGEST_REWRITTEN >> 20} MiB is the most"
        )


def _refuse_sparse(name: str) -> NoReturn:
    raise BrokenBundle(f"`{_shown(name)}` in it is sparse: what it holds is not in the archive")


def _shown(name: str) -> str:
    """A name that a terminal may be given."""
    return printable(name, one_line=True)
