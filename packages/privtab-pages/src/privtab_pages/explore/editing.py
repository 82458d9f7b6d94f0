"""Reads edited texts for a server: each in a process of its own, which is limited and ends with its answer."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress
from dataclasses import dataclass, field

SECONDS = 20.0
"""Seconds after which the process of a text is killed."""
MOST_AT_ONCE, MOST_WAITING = 2, 20
"""Texts that are read at once, and texts that wait for that; further ones are refused."""
TOO_MUCH = b'{"problem": "this takes too long, or too much memory"}'
_KEPT = ("PATH", "PYTHONPATH", "PYTHONHOME", "SYSTEMROOT", "LANG")
"""What the process has of the environment, which may hold keys."""


@dataclass(slots=True)
class Editing:
    """The processes: one that waits with its libraries loaded, so that an answer comes at once, and those that read."""

    seconds: float = SECONDS
    _next: asyncio.Task[Process] | None = None
    _at_once: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_AT_ONCE))
    _waiting: int = 0

    def prepare(self) -> None:
        """Start the process of the next text, unless one waits."""
        if self._next is None:
            self._next = asyncio.create_task(_started())

    async def answer(self, asked: bytes) -> bytes:
        """The answer to a text, as `edited.answer_text` gives it. Raises TimeoutError if too many wait."""
        if self._waiting >= MOST_WAITING:
            raise TimeoutError
        self._waiting += 1
        try:
            async with self._at_once:
                return await self._read(asked)
        finally:
            self._waiting -= 1

    async def _read(self, asked: bytes) -> bytes:
        self.prepare()
        assert self._next is not None
        starting, self._next = self._next, None  # first: a text that comes while it starts has another
        process = await starting
        try:
            found, _ = await asyncio.wait_for(process.communicate(asked), self.seconds)
        except TimeoutError:
            return TOO_MUCH
        finally:
            if process.returncode is None:
                await _ended(process)
            self.prepare()
        return found if process.returncode == 0 else TOO_MUCH

    async def close(self) -> None:
        """End the process that waits."""
        if self._next is not None:
            with suppress(OSError):
                await _ended(await self._next)


async def _started() -> Process:
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    command = (sys.executable, "-P", "-B", "-m", "privtab_pages.explore.edited")
    return await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=environment | {"PYTHONUTF8": "1"}
    )


async def _ended(process: Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()
