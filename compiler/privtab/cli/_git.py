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
    _require_revision(revision, folder)
    process = _git("show", f"{revision}:{path}", folder=folder)
    if process.returncode:
        raise FileError(f"no `{path}` in `{revision}`: {_reason(process)}")
    return process.stdout


def show_if_exists(revision: str, path: Path) -> bytes | None:
    """A file of the working tree at a revision; None if it did not exist. Raises like `show`."""
    _require_revision(revision, path.parent)
    process = _git("show", f"{revision}:./{path.name}", folder=path.parent)
    return None if process.returncode else process.stdout


def files(revision: str, path: Path) -> list[str]:
    """The files at or below a path at a revision, relative to the working directory."""
    _require_revision(revision, None)
    process = _git("ls-tree", "-r", "-z", "--name-only", revision, "--", path.as_posix())
    if process.returncode:
        raise FileError(f"cannot list `{path}` in `{revision}`: {_reason(process)}")
    return [name for name in process.stdout.decode("utf-8", "surrogateescape").split("\0") if name]


def top() -> Path:
    """The top of the repository that contains the working directory."""
    process = _git("rev-parse", "--show-toplevel")
    if process.returncode:
        raise FileError(f"no git repository here: {_reason(process)}")
    return Path(process.stdout.decode("utf-8", "surrogateescape").rstrip("\n"))


def _require_revision(revision: str, folder: Path | None) -> None:
    process = _git("rev-parse", "--git-dir", folder=folder)
    if process.returncode:
        raise FileError(f"no git repository here to look up `{revision}` in: {_reason(process)}")
    if (
        revision.startswith("-")
        or _git("rev-parse", "--verify", "--quiet", f"{revision}^{{tree}}", folder=folder).returncode
    ):
        raise UsageError(f"git knows no revision `{revision}`")


def _git(*arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[bytes]:
    folder_options = [] if folder is None else ["-C", str(folder)]
    try:
        # The caller's git, from their PATH.
        return subprocess.run(["git", *folder_options, *arguments], capture_output=True, check=False)  # noqa: S607
    except FileNotFoundError as error:
        raise FileError("git is not installed: give two files to compare") from error


def _reason(process: subprocess.CompletedProcess[bytes]) -> str:
    lines = process.stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[0].removeprefix("fatal: ") if lines else f"git ended with {process.returncode}"
