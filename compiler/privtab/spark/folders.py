"""Write folders atomically."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from privtab.errors import FileError


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder that replaces `target` on success and is removed on failure."""
    target.parent.mkdir(parents=True, exist_ok=True)
    mark = secrets.token_hex(4)
    place = target.parent.resolve() / f".{target.name}.{mark}"
    place.mkdir()
    try:
        yield place
        if target.exists():
            old = target.parent / f".{target.name}.{mark}.old"
            target.rename(old)
            place.rename(target)
            if old.is_dir():
                shutil.rmtree(old, ignore_errors=True)
            else:
                old.unlink()
        else:
            place.rename(target)
    except OSError as error:
        raise FileError(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(place, ignore_errors=True)
