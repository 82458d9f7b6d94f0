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
from typing import Any, BinaryIO, NoReturn, TypeAlias, cast

from privtab.base import strict_json
from privtab.base.errors import BrokenBundle
from privtab.base.printable import printable_text
from privtab.base.records import dataclass

MANIFEST_FILE = ".manifest"
"""The name of the manifest in a bundle: `{MANIFEST_FILE: b"{}"}`."""
DATA = "data.json"
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

_PAX = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
_HEADERS = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, *_PAX)
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


def check_read(name: str, size: int, limit: int | None = None, what: str = "") -> None:
    """Raise BrokenBundle for a file that is too large to be read as a whole. `what`: what else is to be said of it."""
    limit = limit or (LARGEST_MANIFEST if name == MANIFEST_FILE else LARGEST_READ)
    if size > limit:
        raise BrokenBundle(f"`{name}` in it {what}has {size:,} bytes; {limit >> 20} MiB is the most")


def check_values(name: str, text: bytes, limit: int | None = None) -> None:
    """Raise BrokenBundle for JSON that would take too much memory when parsed."""
    limit = MOST_VALUES if limit is None else limit
    if len(text) > limit and sum(map(text.count, (b",", b"{", b"["))) > limit:
        raise BrokenBundle(f"`{name}` in it holds more than {limit:,} values")


def read_json_object(name: str, text: bytes, error: type[Exception] = BrokenBundle) -> dict[str, Any]:
    """The object in a JSON file of a bundle. Raises `error` for any other value, BrokenBundle for too many values."""
    check_values(name, text)
    return strict_json.loads_object(text, f"`{name}`", error)


def _refuse_sparse(name: str) -> NoReturn:
    raise BrokenBundle(f"`{_shown(name)}` in it is sparse: what it holds is not in the archive")


def _shown(name: str) -> str:
    """A name that is safe to print on a terminal."""
    return printable_text(name, one_line=True)


LEVEL = 4
"""The compression level: level 6 takes two and a half times as long and saves five per cent (on an index of grants)."""


def packed_archive(files: Mapping[str, bytes]) -> bytes:
    """A gzipped tar of the files, by path; the same files give the same bytes at any time, on any machine."""
    return b"".join(packed(new_entry(path, content) for path, content in sorted(files.items())))


def new_entry(path: str, content: bytes) -> tuple[str, tarfile.TarInfo, FileContent]:
    """A file for `packed`."""
    entry = tarfile.TarInfo(path)
    entry.size, entry.mode = len(content), 0o644
    return path, entry, FileContent(path, len(content), io.BytesIO(content))


def json_bytes(value: Any) -> bytes:
    """JSON with sorted keys and no spaces, in UTF-8.

    >>> json_bytes({"b": 1, "a": [2]})
    b'{"a":[2],"b":1}'
    """
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()


def json_object(values: Mapping[str, bytes]) -> bytes:
    """As `json_bytes`, for an object whose values are JSON already."""
    return b"{" + b",".join(json_bytes(key) + b":" + value for key, value in sorted(values.items())) + b"}"


# --- reading and writing piece by piece ------------------------------------------------------------------------------


Entries: TypeAlias = "Iterator[tuple[str, tarfile.TarInfo, FileContent]]"
"""Path, entry and content, which must be read before the next entry is requested."""

_PIECE = 1 << 20
_BROKEN = (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error, RecursionError, ValueError, OverflowError)
"""The last three are for chains of headers, and numbers in them, that do not occur by mistake."""


def archive_entries(bundle: BinaryIO) -> Entries:
    """The files of an open bundle in order, by the path that OPA gives them. Raises BrokenBundle.

    Causes are a truncated bundle, other kinds of files, an exceeded limit, or a path that occurs twice, since then
    it is not defined which file counts.

        names = [name for name, _, _ in archive_entries(bundle)]
    """
    names: set[str] = set()
    try:
        with gzip.GzipFile(fileobj=bundle) as packed:
            unpacked = cast("BinaryIO", BoundedGzip(cast("BinaryIO", packed)))
            with tarfile.open(fileobj=unpacked, mode="r|", bufsize=_PIECE, tarinfo=Entry) as tar:
                for number, entry in enumerate(tar, start=1):
                    name = path_of(entry.name)
                    check_entry(name, entry, number)
                    if not entry.isfile():
                        continue
                    if name in names:
                        raise BrokenBundle(f"it holds `{name}` twice")
                    names.add(name)
                    file = cast("BinaryIO", tar.extractfile(entry))
                    yield name, entry, FileContent(name, entry.size, file)
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


def packed(items: Entries) -> Iterator[bytes]:
    """The gzipped tar of entries, piece by piece."""
    out = io.BytesIO()

    def taken() -> bytes:
        content = out.getvalue()
        out.seek(0)
        out.truncate()
        return content

    with (
        gzip.GzipFile(fileobj=out, mode="wb", compresslevel=LEVEL, mtime=0, filename="") as file,
        tarfile.open(fileobj=file, mode="w|", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for _, entry, content in items:
            tar.addfile(entry, content)
            yield taken()
    yield taken()


class FileContent:
    """The content of a file in an archive that may be truncated."""

    def __init__(self, name: str, size: int, file: BinaryIO) -> None:
        self._name = name
        self._size = size
        self._file = file

    def read(self, size: int = -1) -> bytes:
        """As for a file; raises BrokenBundle for one that is too large to be read as a whole."""
        if size < 0:
            check_read(self._name, self._size)
        try:
            return self._file.read(size)
        except _BROKEN as error:
            raise _broken(error) from None

    def digest(self) -> str:
        """The SHA-256 of the rest."""
        hasher = hashlib.sha256()
        while piece := self.read(_PIECE):
            hasher.update(piece)
        return hasher.hexdigest()

    def json_object(self, text: bytes, error: type[Exception]) -> dict[str, Any]:
        """The object in the text of the file; raises `error` for any other value, BrokenBundle for too many values."""
        return read_json_object(self._name, text, error)


def _broken(error: Exception) -> BrokenBundle:
    return BrokenBundle(f"it is not a complete bundle: {str(error) or 'it ends too early'}")


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
    for name, _, file in archive_entries(io.BytesIO(bundle)):
        folder, _, last = name.rpartition("/")
        if name == MANIFEST_FILE:
            manifest = checked_manifest(read_json_object(name, file.read()))
        elif last == DATA:
            node = data
            for key in folder.split("/") if folder else ():
                node = node.setdefault(key, {})
                if not isinstance(node, dict):
                    raise BrokenBundle(f"`{name}` lies below `{key}`, which is not an object")
            node.update(read_json_object(name, file.read()))
    return Contents(manifest=manifest, data=data)


def checked_manifest(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the manifest if its roots, metadata and format are valid. Raises BrokenBundle."""
    roots = manifest.get("roots", [""])
    if not (isinstance(roots, list) and all(isinstance(root, str) for root in roots)):
        raise BrokenBundle(f"`{MANIFEST_FILE}`: `roots` is not a list of paths")
    if not isinstance(manifest.get("metadata", {}), dict):
        raise BrokenBundle(f"`{MANIFEST_FILE}`: `metadata` is not an object")
    if (format_ := manifest.get("metadata", {}).get("format", 1)) != 1:
        raise BrokenBundle(f"`{MANIFEST_FILE}`: the bundle is of format {format_}, which a newer privtab reads")
    return manifest
