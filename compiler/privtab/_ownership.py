"""Who else may change a file: its owner and permissions, and those of every folder above it. Access lists are not read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_MOST_LINKS = 40
"""As many as Linux follows on one way."""


def others_with_access(path: Path, *, folder: bool = False) -> str | None:
    """Why another user could have written a file, or could write a file into a folder; None if only this user and root could.

    In a folder above with the sticky bit, such as /tmp, others cannot replace what they do not own; beside the file itself
    they could have been first. A group that is the owner's alone counts as the owner.
    """
    if not hasattr(os, "geteuid"):
        return None
    path = path.resolve()
    shared = (path,) if folder else (path, path.parent)
    for place in (path, *path.parents):
        status = place.stat()
        if status.st_uid not in (0, os.geteuid()):
            return f"{place} belongs to {_user(status.st_uid)}"
        if _writable(status) and (place in shared or not status.st_mode & stat.S_ISVTX):
            return f"other users may write to {place}"
    return None


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


def _writable(status: os.stat_result) -> bool:
    """Whether others than the owner may write."""
    if status.st_mode & stat.S_IWGRP and not _is_private(status.st_gid, status.st_uid):
        return True
    return bool(status.st_mode & stat.S_IWOTH)


def _is_private(group: int, user: int) -> bool:
    """Whether a group is the one of the user's own, with the user's name and without other members."""
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
