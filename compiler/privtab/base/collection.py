"""Control of Python's garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection(*, keep: bool = False) -> Iterator[None]:
    """Disable garbage collection in the block: millions of small objects are all live, and the search takes up to half of the time.

    `keep`: exclude everything from later collections too, since it stays alive until the process ends.

    >>> with no_collection():
    ...     gc.isenabled()
    False
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if keep:
            gc.freeze()
        if enabled:
            gc.enable()
