"""The user's cache folder, and the revisions of policies in it, which commands print and take long to compute.

A file counts only if the user owns it and nobody else can write it, so that no other user can say what a revision is.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

from privtab.base import resources
from privtab.base.lazy import pattern

KEPT = 256
"""The revisions that are kept, the latest."""
_LARGEST = 1 << 20
_LIBRARIES = ("jinja2", "pysat")
"""What renders the Rego and searches for minimal sets."""
_FILE = "revisions.json"
_REVISION = pattern(r"[0-9a-f]{16}")


def folder() -> Path:
    """The cache folder of the user. Raises RuntimeError without a home."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "privtab"


def revision_of(program: object, compute: Callable[[], str]) -> str:
    """The revision of a program: the cached one if the same code computed it for an equal program, otherwise a new one.

    A cache that cannot be read or written is left alone.
    """
    path, key, known = _cached(program)
    if path is None:
        return compute()
    if key in known:
        return known[key]
    revision = compute()
    with contextlib.suppress(OSError):
        _write(path, dict([*known.items(), (key, revision)][-KEPT:]))
    return revision


def known_revision(program: object) -> str | None:
    """The cached revision of a program; None if there is none."""
    _, key, known = _cached(program)
    return known.get(key)


def _cached(program: object) -> tuple[Path | None, str, dict[str, str]]:
    """The file of the cache (None without a home), the program's key in it, and the revisions that it holds."""
    try:
        path = folder() / _FILE
    except RuntimeError:
        return None, "", {}
    from hashlib import sha256

    key = sha256(f"{_code()}\n{program!r}".encode("utf-8", "surrogatepass")).hexdigest()
    return path, key, _read(path)


def _read(path: Path) -> dict[str, str]:
    """The cached revisions; none if the file is damaged or somebody else could have written it."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(handle, "rb") as file:
            if not _is_own(os.fstat(handle)):
                return {}
            document = json.loads(file.read(_LARGEST))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(document, dict):
        return {}
    return {k: v for k, v in document.items() if isinstance(v, str) and _REVISION.fullmatch(v)}


def _is_own(status: os.stat_result) -> bool:
    owner = os.geteuid() if hasattr(os, "geteuid") else status.st_uid
    writable = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and hasattr(os, "geteuid")
    return stat.S_ISREG(status.st_mode) and status.st_uid == owner and not writable


def _write(path: Path, revisions: dict[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    import tempfile

    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{_FILE}.")  # closed to other users
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(revisions, file)
        Path(temporary).replace(path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def _code() -> str:
    """The tools that compute revisions: this Python, and the files of privtab and of its libraries, with their sizes and times."""
    libraries = (spec for spec in map(find_spec, _LIBRARIES) if spec is not None and spec.origin)
    places = [Path(__file__).parents[1], resources.templates_folder(), resources.opa()]
    places += [Path(spec.origin).parent for spec in libraries if spec.origin]
    files = (f"{path} {size} {time}" for place in places for path, size, time in sorted(_files(str(place))))
    return "\n".join((sys.version, *files))


def _files(place: str) -> Iterator[tuple[str, int, int]]:
    with os.scandir(place) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name != "__pycache__":
                    yield from _files(entry.path)
            else:
                status = entry.stat()
                yield entry.path, status.st_size, status.st_mtime_ns
