"""Values as one flat file: a pickle, then the buffers of its arrays, aligned so that they can be memory-mapped.

Reading such a file copies nothing: all processes that map it share the memory of its arrays. Like every pickle, it must only be
read if its writer is trusted.
"""

from __future__ import annotations

import hashlib
import mmap
import pickle
from pathlib import Path
from typing import Any

MAGIC = b"privtab1"
_ALIGNED = 64


def packed(value: Any) -> bytes:
    """Serialise a value with numpy and Arrow arrays, so that `unpacked` reads it without copying the arrays."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(value, 5, buffer_callback=buffers.append)
    raw = [buffer.raw() for buffer in buffers]
    begin = len(MAGIC) + 8 * (2 + 2 * len(raw)) + len(head)
    numbers = [len(head), len(raw)]
    pieces: list[bytes | memoryview] = []
    position = begin
    for view in raw:
        gap = -position % _ALIGNED
        pieces += [b"\0" * gap, view]
        numbers += [position + gap, len(view)]
        position += gap + len(view)
    return b"".join([MAGIC, *(number.to_bytes(8, "little") for number in numbers), head, *pieces])


def unpacked(content: bytes | memoryview | mmap.mmap) -> Any:
    """Read a packed value; its arrays are read-only views of `content`. Raises ValueError for any other file."""
    view = memoryview(content)
    if bytes(view[: len(MAGIC)]) != MAGIC:
        raise ValueError("not a packed value")

    def number(position: int) -> int:
        begin = len(MAGIC) + 8 * position
        return int.from_bytes(view[begin : begin + 8], "little")

    size, count = number(0), number(1)
    head = len(MAGIC) + 8 * (2 + 2 * count)
    places = [(number(2 + 2 * position), number(3 + 2 * position)) for position in range(count)]
    buffers = [view[begin : begin + length] for begin, length in places]
    return pickle.loads(view[head : head + size], buffers=buffers)  # noqa: S301  (our own)


def mapped(path: str | Path) -> Any:
    """Read the value in a file, with its arrays memory-mapped."""
    with Path(path).open("rb") as file:
        return unpacked(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def digest(content: bytes) -> str:
    """The hash that identifies a packed value."""
    return hashlib.sha256(content).hexdigest()[:32]
