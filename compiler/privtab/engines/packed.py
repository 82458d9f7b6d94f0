"""Values as one flat file: what a pickle holds, then the buffers of its arrays, each where a memory map can take it from.

Reading such a file copies nothing: the arrays of all processes that map it are the same memory. Like every pickle it is
for those alone who trust the writer.
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
    """A value with numpy and Arrow arrays in it as bytes that `unpacked` reads without copying the arrays."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(value, 5, buffer_callback=buffers.append)
    raw = [buffer.raw() for buffer in buffers]
    begin = len(MAGIC) + 8 * (2 + 2 * len(raw)) + len(head)
    numbers = [len(head), len(raw)]
    pieces: list[bytes | memoryview] = []
    at = begin
    for view in raw:
        gap = -at % _ALIGNED
        pieces += [b"\0" * gap, view]
        numbers += [at + gap, len(view)]
        at += gap + len(view)
    return b"".join([MAGIC, *(number.to_bytes(8, "little") for number in numbers), head, *pieces])


def unpacked(content: bytes | memoryview | mmap.mmap) -> Any:
    """The value again; its arrays lie in `content`, and cannot be written. Raises ValueError for what is no such file."""
    view = memoryview(content)
    if bytes(view[: len(MAGIC)]) != MAGIC:
        raise ValueError("not a packed value")

    def number(at: int) -> int:
        begin = len(MAGIC) + 8 * at
        return int.from_bytes(view[begin : begin + 8], "little")

    size, count = number(0), number(1)
    head = len(MAGIC) + 8 * (2 + 2 * count)
    places = [(number(2 + 2 * at), number(3 + 2 * at)) for at in range(count)]
    buffers = [view[begin : begin + length] for begin, length in places]
    return pickle.loads(view[head : head + size], buffers=buffers)  # noqa: S301  (our own)


def mapped(path: str | Path) -> Any:
    """The value in a file, its arrays mapped from there."""
    with Path(path).open("rb") as file:
        return unpacked(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def digest(content: bytes) -> str:
    """What a packed value goes by."""
    return hashlib.sha256(content).hexdigest()[:32]
