"""Which files in a folder are policies or scenario files: those with the key that marks them, in YAML or JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

SUFFIXES = (".yaml", ".yml", ".json")


def files_below(folder: Path) -> Iterator[Path]:
    """The YAML and JSON files in a folder and below it, sorted."""
    return (path for path in sorted(folder.rglob("*")) if path.suffix in SUFFIXES and path.is_file())


def is_marked(path: Path, key: str, *, unreadable: bool) -> bool:
    """Whether a file is marked with the key. `unreadable`: the answer for a file that cannot be read."""
    try:
        return has_mark(path.read_text(encoding="utf-8-sig"), key)
    except (OSError, UnicodeDecodeError):
        return unreadable


def has_mark(text: str, key: str) -> bool:
    """Whether a document in YAML or JSON has a key, in any way of writing it."""
    # At the start of a line, or after the bracket that begins the document.
    if re.search(rf"""^\ufeff?(?:\{{\s*)?["']?{key}["']?\s*:""", text, re.MULTILINE):
        return True
    return f'"{key}"' in text and text.lstrip().startswith("{") and _has_key(text, key)


def _has_key(text: str, key: str) -> bool:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and key in document
