"""Files that are written beside their place and then renamed."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def staged(folder: Path, prefix: str) -> tuple[int, Path]:
    """A new file in a folder, open for writing: as readable as the umask of the process lets files be."""
    path = folder / f"{prefix}{secrets.token_hex(8)}"
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666), path
