"""Keep uploaded decision logs in files: whole, durable before they are acknowledged, within bounds, and never deleted here.

Each upload becomes a gzip member that holds its JSON array and a line break, so that a file is read by whatever reads gzip. A
server that is killed leaves at most one member that is cut off, of an upload that was not acknowledged: the next server begins a
new file, and the sidecar sends the upload again. An upload that was written and not yet acknowledged is there twice then.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import os
import secrets
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from privtab.base import FileError
from privtab_server.serving.endpoint import HttpError

LOG = logging.getLogger("privtab.serve")

FILE_SIZE = 64 << 20
"""Bytes after which a new file is begun."""
MOST_WAITING = 64 << 20
"""Bytes of uploads that may wait to be written; more are refused for a moment."""
_LEVEL = 1


@dataclass(slots=True)
class _Waiting:
    text: bytes
    entries: int
    tried: bool = False
    error: str = ""


class KeptLogs:
    """A folder of decision logs. Uploads that come at once are written and synchronised together."""

    def __init__(self, folder: Path, limit: int) -> None:
        """`limit`: the most bytes of the folder. Raises FileError if it cannot be written."""
        self.folder = folder
        self.limit = limit
        self._writing = threading.Lock()
        self._waiting: deque[_Waiting] = deque()
        self.waiting_bytes = 0
        """Bytes of uploads that wait to be written."""
        self.entries = 0
        """Entries of uploads that were kept."""
        self.refused = {"waiting": 0, "failed": 0}
        """Uploads that were not kept: because too many waited, or because the folder is full or the disk refused."""
        self._file: int | None = None
        self._path = folder
        self._size = 0
        try:
            made = [above for above in (folder, *folder.parents) if not above.exists()]
            folder.mkdir(parents=True, exist_ok=True)
            for new in made:
                _synchronise(new.parent)
            self.used = self._measured()
            """Bytes in the folder, as far as is known: files may have been taken away."""
            self._begin()
        except OSError as error:
            raise FileError(f"decision logs cannot be kept in {folder}: {error.strerror or error}") from error

    async def append(self, text: bytes, entries: int = 0) -> None:
        """Keep one upload, a JSON array of `entries`; it is on the disk when this returns. Raises HttpError 429 or 503, and nothing is kept then."""
        if self.waiting_bytes + len(text) > MOST_WAITING:
            self.refused["waiting"] += 1
            raise HttpError(429, "too many decision logs wait to be written", Retry_After="2")
        upload = _Waiting(text, entries)
        self.waiting_bytes += len(text)
        self._waiting.append(upload)
        writing = asyncio.ensure_future(asyncio.to_thread(self._write_with_others, upload))
        writing.add_done_callback(lambda _: self._written(upload))
        await asyncio.shield(writing)  # a sender that leaves takes nothing out of the queue
        if upload.error:
            raise HttpError(503, f"the decision log is not kept: {upload.error}", Retry_After="10")

    def _written(self, upload: _Waiting) -> None:
        self.waiting_bytes -= len(upload.text)
        kept = upload.tried and not upload.error
        self.entries += upload.entries if kept else 0
        self.refused["failed"] += not kept

    def _write_with_others(self, upload: _Waiting) -> None:
        """Write an upload and all that wait with it, unless another thread has done so."""
        with self._writing:
            if upload.tried:
                return
            uploads = [self._waiting.popleft() for _ in range(len(self._waiting))]
            error = "the server failed"
            try:
                self._write(b"".join(gzip.compress(one.text + b"\n", _LEVEL) for one in uploads))
                error = ""
            except OSError as failed:
                error = failed.strerror or str(failed)
                LOG.warning("decision logs are not kept: %s", error)
            finally:
                for one in uploads:
                    one.tried, one.error = True, error

    def _write(self, content: bytes) -> None:
        if self.used + len(content) > self.limit:
            self.used = self._measured()  # files may have been taken away
            if self.used + len(content) > self.limit:
                raise OSError(f"{self.folder} has its {self.limit:,} bytes: take files away that were read")
        if self._file is None or self._size >= FILE_SIZE or not self._is_there():
            self._begin()
        assert self._file is not None
        with self._undone_if_it_fails():
            rest = memoryview(content)
            while rest:
                rest = rest[os.write(self._file, rest) :]
            os.fsync(self._file)
        self._size += len(content)
        self.used += len(content)

    @contextmanager
    def _undone_if_it_fails(self) -> Iterator[None]:
        """Cut off what was written in part, and begin a new file next time."""
        assert self._file is not None
        try:
            yield
        except OSError:
            file, self._file = self._file, None
            try:
                os.ftruncate(file, self._size)
            finally:
                os.close(file)
            raise

    def _begin(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
        name = f"decisions-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{secrets.token_hex(4)}.json.gz"
        self._path = self.folder / name
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        try:
            _synchronise(self.folder)  # before anything in the file is acknowledged
        except OSError:
            os.close(file)
            raise
        self._file, self._size = file, 0

    def _is_there(self) -> bool:
        """Return whether the open file still has its name in the folder."""
        assert self._file is not None
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self._file))
        except FileNotFoundError:
            return False

    def _measured(self) -> int:
        return sum(entry.stat().st_size for entry in os.scandir(self.folder) if entry.is_file())


def _synchronise(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
