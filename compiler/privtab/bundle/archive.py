"""Bundles as archives.

Their bytes depend on their content alone. They are read and written piece by piece, since a state may be too large to hold twice.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeAlias, cast

from privtab.bundle.bounds import BoundedGzip, Entry, check_entry, check_read, read_object
from privtab.errors import BrokenBundle

LEVEL = 4
"""The compression level: level 6 takes two and a half times as long and saves five per cent (on an index of grants)."""


def archive(files: Mapping[str, bytes]) -> bytes:
    """A gzipped tar of the files, by path; the same files give the same bytes at any time, on any machine."""
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=LEVEL, mtime=0, filename="") as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for path, content in sorted(files.items()):
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            entry.mode = 0o644
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def json_bytes(value: Any) -> bytes:
    """JSON with sorted keys and no spaces, in UTF-8."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()


def json_object(values: Mapping[str, bytes]) -> bytes:
    """As `json_bytes`, for an object whose values are JSON already."""
    return b"{" + b",".join(json_bytes(key) + b":" + value for key, value in sorted(values.items())) + b"}"


# --- reading and writing piece by piece ------------------------------------------------------------------------------


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


MANIFEST = ".manifest"
DATA = "data.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """A bundle's manifest, and its data below `data`."""

    manifest: Mapping[str, Any]
    data: Mapping[str, Any]

    @property
    def roots(self) -> list[str]:
        """The manifest's roots, sorted."""
        return sorted(root.strip("/") for root in self.manifest.get("roots", [""]))


def contents(bundle: bytes) -> Contents:
    """Read a bundle. Raises BrokenBundle."""
    manifest: Mapping[str, Any] = {}
    data: dict[str, Any] = {}
    for name, _, file in entries(io.BytesIO(bundle)):
        folder, _, last = name.rpartition("/")
        if name == MANIFEST:
            manifest = _manifest(read_object(name, file.read()))
        elif last == DATA:
            node = data
            for key in folder.split("/") if folder else ():
                node = node.setdefault(key, {})
                if not isinstance(node, dict):
                    raise BrokenBundle(f"`{name}` lies below `{key}`, which is not an object")
            node.update(read_object(name, file.read()))
    return Contents(manifest=manifest, data=data)


def _manifest(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the manifest if its roots and metadata are valid. Raises BrokenBundle."""
    roots = manifest.get("roots", [""])
    if not (isinstance(roots, list) and all(isinstance(root, str) for root in roots)):
        raise BrokenBundle(f"`{MANIFEST}`: `roots` is not a list of paths")
    if not isinstance(manifest.get("metadata", {}), dict):
        raise BrokenBundle(f"`{MANIFEST}`: `metadata` is not an object")
    return manifest
