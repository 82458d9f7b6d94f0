"""Read files that somebody names: regular ones, whole and within a limit; secrets only where no other user may write. Formats of tables.

A policy, a scenario file, a folder or a setting may name any path, `/dev/zero` and a pipe among them. Only what the command line
itself names may be a pipe or a device, as in `privtab lint <(make_policy)`; the limit holds there, too.
"""

from __future__ import annotations

import os
import re
import stat
import warnings
from collections.abc import Iterable, Mapping
from os import PathLike, fspath
from pathlib import Path
from urllib.parse import parse_qsl

from privtab.base.errors import FileError, UsageError
from privtab.base.lazy import pattern
from privtab.base.records import dataclass

LARGEST = 16 << 20
"""Bytes of a file that is read whole, unless its reader says otherwise: hundreds of times the size of real tables."""
_SECRET = 64 << 10
_KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
_from_command_line: set[Path] = set()
_pipes: dict[Path | str, bytes] = {}
"""The content of pipes, which can be read only once."""
_read: set[Path] = set()
"""The files that were read, so that no output takes the place of an input."""


class SecretWarning(UserWarning):
    """A file with a token or a key can be read by other users."""


def begin(words: Iterable[str]) -> None:
    """Begin a command: forget what was read, and let pipes and devices be read that these words name, also behind `=`."""
    for known in (_from_command_line, _pipes, _read):
        known.clear()
    parts = (part for word in words for part in (word, word.partition("=")[2]))
    _from_command_line.update(Path(part).absolute() for part in parts if part)


def note_read(path: Path | str) -> None:
    """Note a file, or the files of a folder, that another reader reads, so that no output takes its place.

    >>> note_read("decisions.jsonl")
    >>> was_read("decisions.jsonl")
    True
    """
    path = Path(os.path.realpath(path))
    _read.update(path.rglob("*") if path.is_dir() else (path,))


def was_read(path: Path | str) -> bool:
    """Return whether a path leads to a file that was read."""
    return Path(os.path.realpath(path)) in _read


def problem(path: Path | str, *, pipes: bool = True) -> str | None:
    """Say why a path is not one to read a file from: `it is a pipe, not a file`; None if it is one, or is not there.

    `pipes`: whether what the command line names may be a pipe or a device.
    """
    try:
        mode = Path(path).stat().st_mode
    except OSError:
        return None
    if stat.S_ISREG(mode) or (pipes and Path(path).absolute() in _from_command_line and not stat.S_ISDIR(mode)):
        return None
    return f"it is {_KINDS.get(stat.S_IFMT(mode), 'a device')}, not a file"


def read_content(path: Path | str, largest: int = LARGEST) -> bytes:
    """Read a file whole.

    Raises OSError, and FileError for a path that is no regular file or has more than `largest` bytes.

    >>> len(read_content(__file__)) > 1000
    True
    """
    if (why := problem(path)) is not None:
        raise FileError(f"cannot read `{path}`: {why}")
    named = Path(path).absolute() in _from_command_line
    if named and path in _pipes:
        return _pipes[path]
    # Should the path become a pipe meanwhile, opening it must not wait for a writer.
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | (0 if named else getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(os.open(path, flags), "rb") as file:
        status = os.fstat(file.fileno())
        regular = stat.S_ISREG(status.st_mode)
        if not named and not regular:
            raise FileError(f"cannot read `{path}`: it is not a file")
        found = file.read(min(status.st_size, largest) + 1)  # `read` takes as much memory as it is allowed to read
        if status.st_size < len(found) <= largest:  # a pipe, or a file that grows
            found += file.read(largest + 1 - len(found))
    if len(found) > largest:
        raise FileError(f"`{path}` has more than {_size(largest)}")
    if regular:
        note_read(path)
    else:
        _pipes[path] = found
    return found


def read_text(path: Path | str, largest: int = LARGEST) -> str:
    """Read a text file in UTF-8. Raises FileError.

    >>> read_text("/dev/zero")
    Traceback (most recent call last):
    privtab.base.errors.FileError: cannot read `/dev/zero`: it is a device, not a file
    """
    try:
        return read_content(path, largest).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path}: {getattr(error, 'strerror', None) or 'not UTF-8'}") from None


def read_secret(path: Path | str) -> str:
    """Read a file with tokens or a key. Raises FileError, and UsageError where another user may write it.

    Warns with SecretWarning where other users may read it. A link, as Kubernetes mounts one, counts as what it leads to.
    """
    found = read_text(path, _SECRET)
    check_secret(path)
    return found


def check_secret(path: Path | str, *, public: bool = False) -> None:
    """Look at the permissions of a file with a secret, as `secret` does; `public`: others may read it. Raises UsageError."""
    file = Path(path).resolve()
    if problem(file) is not None:
        return  # a pipe of the command line, which nobody keeps a secret in
    if (why := others_with_access(file, beside=False)) is not None:
        raise UsageError(f"{path} is not taken, since {why}: change the owner or the permissions")
    status = file.stat()
    # Kubernetes gives a secret to root and to the group of the pod.
    group = status.st_mode & stat.S_IRGRP and status.st_uid and not _is_private(status.st_gid, status.st_uid)
    if not public and hasattr(os, "geteuid") and (status.st_mode & stat.S_IROTH or group):
        warnings.warn(f"{path} can be read by other users: chmod 600 {path}", SecretWarning, stacklevel=3)


def _size(count: int) -> str:
    for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >> shift:
            return f"{count >> shift} {unit}"
    return f"{count} bytes"


def others_with_access(path: Path, *, beside: bool = True) -> str | None:
    """Say why another user could have written a file; None if only this user and root could.

    In a folder above with the sticky bit, such as /tmp, others cannot replace what they do not own; beside the file itself
    they could have been first, unless not `beside`: the file is not found there, but named. A group that is the owner's alone
    counts as the owner. Access lists are not read.
    """
    if not hasattr(os, "geteuid"):
        return None
    path = path.resolve()
    shared = (path, path.parent) if beside else (path,)
    for place in (path, *path.parents):
        status = place.stat()
        if status.st_uid not in (0, os.geteuid()):
            return f"{place} belongs to {_user(status.st_uid)}"
        if _writable(status) and (place in shared or not status.st_mode & stat.S_ISVTX):
            return f"other users may write to {place}"
    return None


def _writable(status: os.stat_result) -> bool:
    """Return whether others than the owner may write."""
    if status.st_mode & stat.S_IWGRP and not _is_private(status.st_gid, status.st_uid):
        return True
    return bool(status.st_mode & stat.S_IWOTH)


def _is_private(group: int, user: int) -> bool:
    """Return whether a group is the user's own, with the user's name and without other members."""
    import grp
    import pwd

    try:
        account, found = pwd.getpwuid(user), grp.getgrgid(group)
    except KeyError:
        return False
    return account.pw_gid == group and found.gr_name == account.pw_name and set(found.gr_mem) <= {account.pw_name}


def _user(number: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


# --- the files of a state ---


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFormat:
    """The file endings of a format, and whether it can be read without Spark."""

    endings: tuple[str, ...]
    text: bool = True
    """Whether a file is a text, which may be packed."""
    whole: bool = False
    """Whether one file may contain all tables."""
    reader: str | None = None
    """The module whose `read(file, reading, table)` reads it without Spark, if one does."""


FILE_FORMATS = (
    FileFormat(endings=(".csv",), reader="privtab.state.read_csv"),
    FileFormat(endings=(".json",), whole=True, reader="privtab.state.read_json"),
    FileFormat(endings=(".jsonl", ".ndjson"), reader="privtab.state.read_json"),
    FileFormat(endings=(".orc",), text=False),
    FileFormat(endings=(".parquet",), text=False, reader="privtab.state.read_parquet"),
    FileFormat(endings=(".yaml", ".yml"), whole=True, reader="privtab.state.read_yaml"),
)

ENDINGS = tuple(ending for f in FILE_FORMATS for ending in f.endings)
_TEXTS = tuple(ending for f in FILE_FORMATS if f.text for ending in f.endings)
WHOLE = tuple(ending for f in FILE_FORMATS if f.whole for ending in f.endings)
READERS: Mapping[str, str] = {ending: f.reader for f in FILE_FORMATS if f.reader for ending in f.endings}
"""The module that reads a file without Spark, by file ending."""
LOCAL_ENDINGS = tuple(READERS)
"""The endings of files that are read without Spark: `".csv"`, `".json"`, …"""
GZIP = ".gz"
"""How the name of a packed file of texts ends, after the ending of its format."""

STATE_HELP = "A YAML or JSON file, a folder with a file for each table, a bundle, registry:URL#CHANNEL[@RELEASE], store:URL[@MOMENT], or sample:SYSTEM."
"""The forms of a state, for the help of options such as `--state`."""
_ACCEPTING = pattern(r"(?P<path>.+?)/?\?(?P<names>accept=[^?]*)", re.DOTALL)


def state_location(location: str | PathLike[str]) -> tuple[Path, frozenset[str]]:
    """The path of a state, and the names of what it may hold unread: files, tables, and columns with their table.

    >>> path, names = state_location("state/?accept=notes.xlsx&accept=grants.comment")
    >>> path.name, sorted(names)
    ('state', ['grants.comment', 'notes.xlsx'])
    """
    found = _ACCEPTING.fullmatch(fspath(location))
    if found is None:
        return Path(location), frozenset()
    given = parse_qsl(found["names"], keep_blank_values=True)
    return Path(found["path"]), frozenset(name for key, name in given if key == "accept")


def ending_of(name: str) -> tuple[str, str]:
    """The name of a file without its ending, and the ending in small letters, without that of a packed text.

    >>> ending_of("grants.csv.gz"), ending_of("grants.CSV"), ending_of("grants"), ending_of("grants.parquet.gz")
    (('grants', '.csv'), ('grants', '.csv'), ('grants', ''), ('grants.parquet', '.gz'))
    """
    path = Path(name)
    inner = Path(path.stem)
    if path.suffix == GZIP and inner.suffix.lower() in _TEXTS:
        path = inner
    return path.stem, path.suffix.lower()
