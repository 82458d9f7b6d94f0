"""Folders that are written whole or not at all."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from privtab.base import FileError


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder that replaces `target` on success and is removed on failure."""
    target.parent.mkdir(parents=True, exist_ok=True)
    suffix = secrets.token_hex(4)
    temporary = target.parent.resolve() / f".{target.name}.{suffix}"
    temporary.mkdir()
    try:
        yield temporary
        if target.exists():
            replaced = target.parent / f".{target.name}.{suffix}.old"
            target.rename(replaced)
            temporary.rename(target)
            if replaced.is_dir():
                shutil.rmtree(replaced, ignore_errors=True)
            else:
                replaced.unlink()
        else:
            temporary.rename(target)
    except OSError as error:
        raise FileError(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
