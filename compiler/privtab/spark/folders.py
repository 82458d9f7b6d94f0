"""Folders that are there whole or not at all."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from privtab.errors import FileError


@contextmanager
def whole(target: Path) -> Iterator[Path]:
    """A folder to write into that takes the place of `target` once all is done, and goes away where it is not."""
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
