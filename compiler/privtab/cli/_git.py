"""Policies as a git repository has them at a revision."""

from __future__ import annotations

import subprocess
from pathlib import Path

from privtab.errors import FileError, UsageError


def is_revision(name: str) -> bool:
    """Whether git knows the name as a revision here; no, where there is no repository or no git at all."""
    if not name or name.startswith("-"):
        return False
    try:
        return _git("rev-parse", "--verify", "--quiet", f"{name}^{{tree}}").returncode == 0
    except FileError:
        return False


def show(revision: str, path: str, folder: Path | None = None) -> bytes:
    """The file as it was. `path` is from the top of the repository, or from `folder` where it begins with `./`.

    Raises UsageError where there is no such revision, FileError where the file is not there, or no repository or git.
    """
    _need_revision(revision, folder)
    done = _git("show", f"{revision}:{path}", folder=folder)
    if done.returncode:
        raise FileError(f"no `{path}` in `{revision}`: {_reason(done)}")
    return done.stdout


def show_if_there(revision: str, path: Path) -> bytes | None:
    """A file of the working tree as it was; None where it did not exist. Raises as `show`."""
    _need_revision(revision, path.parent)
    done = _git("show", f"{revision}:./{path.name}", folder=path.parent)
    return None if done.returncode else done.stdout


def files(revision: str, path: Path) -> list[str]:
    """The files at or below a path as they were, relative to the working directory."""
    _need_revision(revision, None)
    done = _git("ls-tree", "-r", "-z", "--name-only", revision, "--", path.as_posix())
    if done.returncode:
        raise FileError(f"cannot list `{path}` in `{revision}`: {_reason(done)}")
    return [name for name in done.stdout.decode("utf-8", "surrogateescape").split("\0") if name]


def top() -> Path:
    """The top of the repository that the working directory lies in."""
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
        # The caller's git, wherever it is on their path.
        return subprocess.run(["git", *place, *arguments], capture_output=True, check=False)  # noqa: S607
    except FileNotFoundError as error:
        raise FileError("git is not installed: give two files to compare") from error


def _reason(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[0].removeprefix("fatal: ") if lines else f"git ended with {done.returncode}"
