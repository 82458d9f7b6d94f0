"""Write files under a temporary name and rename them: a reader sees the old or the new file, never half of one.

A device or a pipe, such as /dev/stdout, is written to, not replaced. A link that another user made is followed only if `ask`
says yes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from privtab.base import files
from privtab.base.errors import FileError, UsageError

_MOST_LINKS = 40
"""As many as Linux follows on one way."""


def link_of_others(path: Path) -> Path | None:
    """The first symbolic link on the way to a file that another user made, who chose where it leads; None if there is none."""
    if not hasattr(os, "geteuid"):
        return None
    place, left = Path(path.anchor or os.curdir), list(path.parts[bool(path.anchor) :])
    for _ in range(_MOST_LINKS):
        while left and not place.is_symlink():
            place /= left.pop(0)
        if not place.is_symlink():
            return None
        if place.lstat().st_uid not in (0, os.geteuid()):
            return place
        target = place.readlink()
        place = place.parent if not target.is_absolute() else Path(target.anchor)
        left = [*target.parts[bool(target.anchor) :], *left]
    return place


_followed: set[Path] = set()
"""The links that may be followed."""
_WRITERS = 8


def _no(_question: str) -> bool:
    return False


ask: Callable[[str], bool] = _no
"""Asks a question; commands set it to ask at the terminal."""


def write_file(path: Path, content: bytes | Iterable[bytes], *, in_place: bool = False) -> int:
    """Write a whole file, also in pieces, or nothing, and create its folder if necessary; returns the number of bytes.

    Raises FileError, and UsageError for a file that was read, unless it is changed `in_place`.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_file(Path(folder) / "new" / "state.json", b"{}")
    2
    """
    _refuse_inputs([path], in_place=in_place)
    with _naming(path):
        return _put(path, [content] if isinstance(content, bytes) else content)


def write_files(outputs: Mapping[Path, bytes], *, in_place: bool = False) -> None:
    """As `write_file`, for many files in several threads, since most of the time is waiting for the disk.

    If one cannot be written, others may have been.

        write_files({folder / "policy.rego": module, folder / "data.json": data})
    """
    from concurrent.futures import ThreadPoolExecutor

    def write_one(file: tuple[Path, bytes]) -> None:
        path, content = file
        with _naming(path):
            _put(path, [content], prepared=True)

    _refuse_inputs(outputs, in_place=in_place)
    folders: dict[Path, Path] = {}
    for path in outputs:
        folders.setdefault(path.parent, path)
    for path in folders.values():
        with _naming(path):
            _prepare(path.parent)  # here once, not in each thread for each file
    with ThreadPoolExecutor(_WRITERS) as threads:
        for _ in threads.map(write_one, outputs.items()):
            pass
    for path in folders.values():
        with _naming(path):
            sync_folder(path)


def _refuse_inputs(paths: Iterable[Path], *, in_place: bool) -> None:
    """Raise UsageError for outputs that were read, before anything is written."""
    if not in_place and (inputs := [str(path) for path in paths if files.was_read(path)]):
        raise UsageError(f"{' and '.join(inputs)} was read, and is not written over: give another output")


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Raise FileError, which names the file, in the place of OSError."""
    try:
        yield
    except OSError as error:
        raise FileError(f"cannot write {path}: {error.strerror or error}") from error


def _put(path: Path, pieces: Iterable[bytes], *, prepared: bool = False) -> int:
    mode = _mode(path)
    if stat.S_ISCHR(mode) or stat.S_ISFIFO(mode):
        _follow(path)
        with path.open("wb") as file:
            return sum(map(file.write, pieces))
    with staged_file(path, pieces, prepared=prepared) as temporary:
        size = temporary.stat().st_size
        temporary.replace(path)
    return size


@contextlib.contextmanager
def staged_file(path: Path, pieces: Iterable[bytes], prefix: str = "", *, prepared: bool = False) -> Iterator[Path]:
    """Write the content to a new file beside `path`, on the disk; unless renamed, it is deleted at the end.

    The umask of the process determines its permissions. `prepared`: the folder is there, links on the way were asked about, and the
    caller makes new names survive a power failure. Raises OSError, also where a device, a pipe or a socket would be replaced.

        with staged_file(path, [content]) as temporary:
            temporary.replace(path)
    """
    if not prepared:
        _prepare(path.parent)
    mode = _mode(path)
    if mode and not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise OSError(errno.EEXIST, "it is neither a file nor a folder, and is not replaced")
    temporary = path.parent / f"{prefix or f'.{path.name[:40]}.'}{os.urandom(8).hex()}"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
        if not prepared:
            sync_folder(path)
    finally:
        temporary.unlink(missing_ok=True)


def _mode(path: Path) -> int:
    """The kind of file that a path leads to, as in `st_mode`; 0 for nothing."""
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0


@contextlib.contextmanager
def locked(folder: Path, waits: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Hold the lock of a folder between processes, except on systems without file locks. `waits` is called if another one holds it."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waits()
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _prepare(folder: Path) -> None:
    """Create a folder, on a way without links that another user made."""
    _follow(folder)
    folder.mkdir(parents=True, exist_ok=True)


def _follow(path: Path) -> None:
    """Raise OSError for a path over a link that another user made, unless `ask` says that it may be followed."""
    link = link_of_others(path)
    if link is None or link in _followed:
        return
    target = link.readlink()
    if not ask(f"{link} is a link to {target}, which another user made. Write there?"):
        raise OSError(errno.EPERM, f"{link} is a link that another user made: name {target} itself")
    _followed.add(link)


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
