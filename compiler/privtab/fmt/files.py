"""Which files `privtab fmt` is for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

MARKS = ("privtab:", "scenarios:")
"""The keys, at the margin, by which a YAML file is a policy or one of scenarios."""


def yaml_files(folder: Path) -> Iterator[Path]:
    """The policies and scenario files below a folder, sorted."""
    for path in sorted(folder.rglob("*.y*ml")):
        if path.suffix in {".yaml", ".yml"} and path.is_file() and has_mark(path):
            yield path


def has_mark(path: Path) -> bool:
    """Whether a file has one of the keys; one that cannot be read is let through, to be reported."""
    try:
        with path.open(encoding="utf-8") as lines:
            return any(line.startswith(MARKS) for line in lines)
    except (OSError, UnicodeDecodeError):
        return True


def is_policy(lines: Iterable[str]) -> bool:
    """Whether a text is a policy."""
    return any(line.startswith(MARKS[0]) for line in lines)
