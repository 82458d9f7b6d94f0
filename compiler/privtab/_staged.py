"""Write files under a temporary name and rename them: a reader sees the old or the new file, never half of one."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from privtab.errors import BundleWriteError

_WRITERS = 8


def write(path: Path, content: bytes) -> None:
    """Write a whole file or nothing, and create its folder if necessary. Raises BundleWriteError."""
    write_pieces(path, [content])


def write_pieces(path: Path, pieces: Iterable[bytes]) -> int:
    """As `write`, for content in pieces; returns the number of bytes. If the pieces end with an error, nothing is written.

    A device or a pipe, such as /dev/stdout, is written to, not replaced.
    """
    with _naming(path):
        if path.is_char_device() or path.is_fifo():
            with path.open("wb") as file:
                return sum(map(file.write, pieces))
        size = _replace(path, pieces)
        sync_folder(path)
    return size


def write_all(files: Mapping[Path, bytes]) -> None:
    """As `write`, for many files in several threads, since most of the time is waiting for the disk.

    If one cannot be written, others may have been.
    """
    from concurrent.futures import ThreadPoolExecutor

    def write_one(file: tuple[Path, bytes]) -> None:
        path, content = file
        with _naming(path):
            _replace(path, [content])

    with ThreadPoolExecutor(_WRITERS) as threads:
        for _ in threads.map(write_one, files.items()):
            pass
    for path in {path.parent: path for path in files}.values():
        with _naming(path):
            sync_folder(path)


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Raise BundleWriteError, which names the file, in the place of OSError."""
    try:
        yield
    except OSError as error:
        raise BundleWriteError(f"cannot write {path}: {error.strerror or error}") from error


def _replace(path: Path, pieces: Iterable[bytes]) -> int:
    with staged(path, pieces) as temporary:
        size = temporary.stat().st_size
        temporary.replace(path)
    return size


@contextlib.contextmanager
def staged(path: Path, pieces: Iterable[bytes], prefix: str = "") -> Iterator[Path]:
    """Write the content to a new file beside `path`, on the disk; unless renamed, it is deleted at the end. Raises OSError.

    The umask of the process determines its permissions.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f"{prefix or f'.{path.name[:40]}.'}{secrets.token_hex(8)}"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def sync_folder(path: Path) -> None:
    """Make the name of a new file survive a power failure."""
    try:
        handle = os.open(path.parent, os.O_RDONLY)
    except OSError:
        return  # Some systems do not open folders, and some file systems cannot sync them.
    try:
        with contextlib.suppress(OSError):
            os.fsync(handle)
    finally:
        os.close(handle)
