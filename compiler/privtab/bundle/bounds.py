"""Limits for untrusted bundles: what is unpacked, how much of it is read at once, and what an archive may contain.

A gzip of a few kilobytes may unpack to ten thousand times as much, a sparse file in a tar has any size that its header claims,
and a megabyte of JSON may take a hundred in memory. Each limit is far above what privtab writes, and at what OPA accepts.
"""

from __future__ import annotations

import tarfile
from typing import Any, BinaryIO, NoReturn

from privtab import strict_json
from privtab.errors import BrokenBundle
from privtab.printable import printable

LARGEST = 2 << 30
"""Bytes that a bundle may unpack to."""
LARGEST_FILE = 1 << 30
"""Bytes of one file; OPA accepts no larger one either."""
LARGEST_READ = 512 << 20
"""Bytes of a file that is read as a whole: JSON."""
LARGEST_MANIFEST = 4 << 20
MOST_VALUES = 20_000_000
"""Objects, arrays and members in one JSON file: at worst, some 150 bytes of memory each."""
LARGEST_REWRITTEN = 128 << 20
"""Bytes of a JSON file that differs from the signed bytes and is read to compare its content; anyone may have written it."""
MOST_REWRITTEN = 5_000_000
"""Objects, arrays and members in such a file."""
MOST_ENTRIES = 50_000
LONGEST_NAME = 1_000
LARGEST_HEADER = 64 << 10
"""Bytes of a header that describes the next file: long names, PAX records."""

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


class BoundedGzip:
    """The unpacked content of a gzip, up to a limit."""

    def __init__(self, unpacked: BinaryIO) -> None:
        self._unpacked = unpacked
        self._remaining = LARGEST

    def read(self, size: int = -1) -> bytes:
        """As for a file; raises BrokenBundle beyond the limit."""
        piece = self._unpacked.read(min(size, self._remaining + 1) if size >= 0 else self._remaining + 1)
        self._remaining -= len(piece)
        if self._remaining < 0:
            raise BrokenBundle(f"it unpacks to more than {LARGEST >> 30} GiB")
        return piece


class Entry(tarfile.TarInfo):
    """An archive entry whose headers are checked before they are used."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Entry:
        """As TarInfo.frombuf, but an invalid header raises BrokenBundle instead of silently ending the archive."""
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if len(buf) == 0 or not any(buf):
                raise  # the end of the archive
            raise BrokenBundle(f"it is not a complete bundle: {error}") from None

    def _proc_member(self, tar: tarfile.TarFile) -> Entry:
        """Check a header before processing it by its type; TarInfo provides this entry point for subclasses."""
        if self.type in _HEADERS and not 0 <= self.size <= LARGEST_HEADER:
            raise BrokenBundle(f"a header of its archive says {self.size:,} bytes of the next file")
        if self.type == tarfile.GNUTYPE_SPARSE:
            _refuse_sparse(self.name)
        entry: Entry = super()._proc_member(tar)  # type: ignore[misc]
        return entry

    def _proc_gnusparse_00(self, following: Entry, *_: object) -> None:
        _refuse_sparse(following.name)

    _proc_gnusparse_01 = _proc_gnusparse_10 = _proc_gnusparse_00


def check_entry(name: str, entry: tarfile.TarInfo, number: int) -> None:
    """Raise BrokenBundle for an entry that no valid bundle has. `name`: its path from the top; `number`: its position, from 1."""
    if number > MOST_ENTRIES:
        raise BrokenBundle(f"it holds more than {MOST_ENTRIES:,} files")
    if len(name) > LONGEST_NAME:
        raise BrokenBundle(
            f"the name of a file in it is longer than {LONGEST_NAME:,} characters: `{_shown(name[:40])}…`"
        )
    if entry.issparse():
        _refuse_sparse(name)
    if not entry.isfile() and not entry.isdir():
        raise BrokenBundle(f"`{_shown(name)}` in it is {_KINDS.get(entry.type, 'no file')}: bundles contain only files")
    parts = name.rstrip("/").split("/") if entry.isdir() else name.split("/")
    if (
        not name.isprintable()
        or "\\" in name
        or (not {"", ".", ".."}.isdisjoint(parts) and (entry.isfile() or ".." in parts))
    ):
        raise BrokenBundle(f"`{_shown(name)}` in it is not a file path")
    if not 0 <= entry.size <= LARGEST_FILE:
        raise BrokenBundle(f"`{name}` in it has {entry.size:,} bytes; {LARGEST_FILE >> 30} GiB is the most")


def check_read(name: str, size: int) -> None:
    """Raise BrokenBundle for a file that is too large to be read as a whole."""
    limit = LARGEST_MANIFEST if name == ".manifest" else LARGEST_READ
    if size > limit:
        raise BrokenBundle(f"`{name}` in it has {size:,} bytes; {limit >> 20} MiB is the most")


def check_values(name: str, text: bytes, limit: int | None = None) -> None:
    """Raise BrokenBundle for JSON that would take too much memory when parsed."""
    limit = MOST_VALUES if limit is None else limit
    if len(text) > limit and sum(map(text.count, (b",", b"{", b"["))) > limit:
        raise BrokenBundle(f"`{name}` in it holds more than {limit:,} values")


def read_object(name: str, text: bytes, error: type[Exception] = BrokenBundle) -> dict[str, Any]:
    """The object in a JSON file of a bundle. Raises `error` for any other value, BrokenBundle for too many values."""
    check_values(name, text)
    return strict_json.loads_object(text, f"`{name}`", error)


def check_rewritten(name: str, size: int) -> None:
    """Raise BrokenBundle for a file that differs from the signed bytes and is too large to compare its content."""
    if size > LARGEST_REWRITTEN:
        raise BrokenBundle(
            f"`{name}` in it differs from the signed bytes, and has {size:,} bytes; {LARGEST_REWRITTEN >> 20} MiB is the most"
        )


def _refuse_sparse(name: str) -> NoReturn:
    raise BrokenBundle(f"`{_shown(name)}` in it is sparse: what it holds is not in the archive")


def _shown(name: str) -> str:
    """A name that is safe to print on a terminal."""
    return printable(name, one_line=True)
