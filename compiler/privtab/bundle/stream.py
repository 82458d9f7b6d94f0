"""Read and write bundles piece by piece, since a state may be too large to hold twice."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zlib
from collections.abc import Iterator
from typing import BinaryIO, TypeAlias, cast

from privtab.bundle.archive import LEVEL
from privtab.bundle.bounds import BoundedGzip, Entry, check_entry, check_read
from privtab.errors import BrokenBundle

Entries: TypeAlias = Iterator[tuple[str, tarfile.TarInfo, BinaryIO]]
"""Path, entry and content, which must be read before the next entry is requested."""

_PIECE = 1 << 20
_BROKEN = (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error, RecursionError, ValueError, OverflowError)
"""The last three are for chains of headers, and numbers in them, that do not occur by mistake."""


def entries(bundle: BinaryIO) -> Entries:
    """The files of an open bundle in order, by the path that OPA gives them. Raises BrokenBundle.

    That is, for a truncated bundle, other kinds of files, an exceeded limit (`bounds.py`), or a path that occurs twice, since then
    it is not defined which file counts.
    """
    names: set[str] = set()
    try:
        with gzip.GzipFile(fileobj=bundle) as packed:
            unpacked = cast("BinaryIO", BoundedGzip(cast("BinaryIO", packed)))
            with tarfile.open(fileobj=unpacked, mode="r|", tarinfo=Entry) as tar:
                for number, entry in enumerate(tar, start=1):
                    name = path_of(entry.name)
                    check_entry(name, entry, number)
                    if not entry.isfile():
                        continue
                    if name in names:
                        raise BrokenBundle(f"it holds `{name}` twice")
                    names.add(name)
                    file = cast("BinaryIO", tar.extractfile(entry))
                    yield name, entry, cast("BinaryIO", _Content(name, entry.size, file))
            # The checksums of the archive are at its end.
            while unpacked.read(_PIECE):
                pass
    except _BROKEN as error:
        raise _broken(error) from None
    if not names:
        raise BrokenBundle("it is not a bundle: it contains no files")


def path_of(name: str) -> str:
    """The path of an entry, from the top of the bundle."""
    return name.removeprefix("./").lstrip("/")


def digest(content: BinaryIO) -> str:
    """The SHA-256 of the rest of an open file."""
    hasher = hashlib.sha256()
    while piece := content.read(_PIECE):
        hasher.update(piece)
    return hasher.hexdigest()


def packed(items: Entries) -> Iterator[bytes]:
    """The gzipped tar of entries, piece by piece, packed like `archive`."""
    sink = _Sink()
    with (
        gzip.GzipFile(fileobj=cast("BinaryIO", sink), mode="wb", compresslevel=LEVEL, mtime=0, filename="") as out,
        tarfile.open(fileobj=out, mode="w|", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for _, entry, content in items:
            tar.addfile(entry, content)
            yield sink.take()
    yield sink.take()


class _Content:
    """The content of a file in an archive that may be truncated."""

    def __init__(self, name: str, size: int, file: BinaryIO) -> None:
        self._name = name
        self._size = size
        self._file = file

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            check_read(self._name, self._size)
        try:
            return self._file.read(size)
        except _BROKEN as error:
            raise _broken(error) from None


def _broken(error: Exception) -> BrokenBundle:
    return BrokenBundle(f"it is not a complete bundle: {str(error) or 'it ends too early'}")


class _Sink(io.RawIOBase):
    """A stream that keeps what was written until it is taken."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, piece: object) -> int:
        content = bytes(cast("bytes", piece))
        self._pieces.append(content)
        return len(content)

    def take(self) -> bytes:
        content = b"".join(self._pieces)
        self._pieces.clear()
        return content
