"""Read policies from a git repository at a revision."""

from __future__ import annotations

import subprocess
from pathlib import Path

from privtab.errors import FileError, UsageError


def is_revision(name: str) -> bool:
    """Whether a name is a revision in the repository; False without a repository or git."""
    if not name or name.startswith("-"):
        return False
    try:
        return _git("rev-parse", "--verify", "--quiet", f"{name}^{{tree}}").returncode == 0
    except FileError:
        return False


def show(revision: str, path: str, folder: Path | None = None) -> bytes:
    """The file at a revision. `path` is relative to the top of the repository, or to `folder` if it begins with `./`.

    Raises UsageError if there is no such revision, FileError without the file, a repository or git.
    """
    _need_revision(revision, folder)
    done = _git("show", f"{revision}:{path}", folder=folder)
    if done.returncode:
        raise FileError(f"no `{path}` in `{revision}`: {_reason(done)}")
    return done.stdout


def show_if_there(revision: str, path: Path) -> bytes | None:
    """A file of the working tree at a revision; None if it did not exist. Raises like `show`."""
    _need_revision(revision, path.parent)
    done = _git("show", f"{revision}:./{path.name}", folder=path.parent)
    return None if done.returncode else done.stdout


def files(revision: str, path: Path) -> list[str]:
    """The files at or below a path at a revision, relative to the working directory."""
    _need_revision(revision, None)
    done = _git("ls-tree", "-r", "-z", "--name-only", revision, "--", path.as_posix())
    if done.returncode:
        raise FileError(f"cannot list `{path}` in `{revision}`: {_reason(done)}")
    return [name for name in done.stdout.decode("utf-8", "surrogateescape").split("\0") if name]


def top() -> Path:
    """The top of the repository that contains the working directory."""
    done = _git("rev-parse", "--show-toplevel")
    if done.returncode:
        raise FileError(f"no git repository here: {_reason(done)}")
    return Path(done.stdout.decode("utf-8", "surrogateescape").rstrip("\n"))


def _need_revision(revision: str, folder: Path | None) -> None:
    inside = _git("rev-parse", "--git-dir", folder=folder)
    if inside.returncode:
        raise FileError(f"no git repository here to look up `{revision}` in: {_reason(inside)}")
    if (
        revision.startswith("-")
        or _git("rev-parse", "--verify", "--quiet", f"{revision}^{{tree}}", folder=folder).returncode
    ):
        raise UsageError(f"git knows no revision `{revision}`")


def _git(*arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[bytes]:
    place = [] if folder is None else ["-C", str(folder)]
    try:
        # The caller's git, from their PATH.
        return subprocess.run(["git", *place, *arguments], capture_output=True, check=False)  # noqa: S607
    except FileNotFoundError as error:
        raise FileError("git is not installed: give two files to compare") from error


def _reason(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[0].removeprefix("fatal: ") if lines else f"git ended with {done.returncode}"
