"""Files that are written beside their place and renamed: a reader sees the old or the new one, never half of it."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path

from privtab.errors import BundleWriteError


def write(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, and its folder where there is none; raises BundleWriteError."""
    write_pieces(path, [content])


def write_pieces(path: Path, pieces: Iterable[bytes]) -> int:
    """As `write`, of content that comes in pieces; how many bytes it was. Nothing is written where it breaks off."""
    try:
        with staged(path, pieces) as beside:
            size = beside.stat().st_size
            beside.replace(path)
            settle(path)
    except OSError as error:
        raise BundleWriteError(f"cannot write {path}: {error.strerror or error}") from error
    return size


@contextlib.contextmanager
def staged(path: Path, pieces: Iterable[bytes], prefix: str = "") -> Iterator[Path]:
    """The content in a new file beside its place, on the disk; what is not renamed goes away. Raises OSError.

    It is as readable as the umask of the process lets files be.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.parent / f"{prefix or f'.{path.name[:40]}.'}{secrets.token_hex(8)}"
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        yield beside
    finally:
        beside.unlink(missing_ok=True)


def settle(path: Path) -> None:
    """Let the name of a new file outlive a power cut too."""
    try:
        handle = os.open(path.parent, os.O_RDONLY)
    except OSError:
        return  # Some systems do not open folders, and some file systems have no such call for them.
    try:
        with contextlib.suppress(OSError):
            os.fsync(handle)
    finally:
        os.close(handle)
