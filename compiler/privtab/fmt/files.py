"""Finds the files that `privtab fmt` formats."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

MARKS = ("privtab:", "scenarios:")
"""The keys, at the start of a line, that mark a YAML file as a policy or a scenario file."""


def yaml_files(folder: Path) -> Iterator[Path]:
    """The policies and scenario files below a folder, sorted."""
    for path in sorted(folder.rglob("*.y*ml")):
        if path.suffix in {".yaml", ".yml"} and path.is_file() and has_mark(path):
            yield path


def has_mark(path: Path) -> bool:
    """Whether a file has one of the keys; true for unreadable files, so that they are reported."""
    try:
        with path.open(encoding="utf-8") as lines:
            return any(line.startswith(MARKS) for line in lines)
    except (OSError, UnicodeDecodeError):
        return True


def is_policy(lines: Iterable[str]) -> bool:
    """Whether a text is a policy."""
    return any(line.startswith(MARKS[0]) for line in lines)
