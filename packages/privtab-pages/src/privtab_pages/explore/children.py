"""Works out pages beside each other, each in a child process, so that no question waits for a longer one, and none goes on for ever.

The children are forked by a process that was forked itself before the server had threads: it has the world with all that was worked out
of it, in memory that all share, and does nothing else. Where there is no `fork`, the server works out one page after another.
"""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import signal
import socket
import sys
import traceback
from asyncio import StreamReader, StreamReaderProtocol
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")
LONGEST = 600
"""Seconds after which a child ends without an answer."""
_ASKED = 1 << 20
"""The most bytes of a question."""


class Children(Generic[T]):
    """Answers questions, each a tuple of arguments, in children of a process of its own."""

    def __init__(self, answer: Callable[..., T]) -> None:
        """Fork that process; only before there are threads."""
        self._asking, asked = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            try:
                self._asking.close()
                _fork_for_each(asked, answer)
            finally:
                os._exit(0)
        asked.close()

    @staticmethod
    def possible() -> bool:
        """Return whether processes fork here."""
        return sys.platform == "linux"  # elsewhere such sockets, or processes that fork, are not to be relied on

    async def answer(self, *arguments: object) -> T:
        """The answer of a child. Raises TimeoutError if it ended without one."""
        reading, writing = os.pipe()
        reader = StreamReader()
        pipe = os.fdopen(reading, "rb")
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: StreamReaderProtocol(reader), pipe)
        try:
            try:
                socket.send_fds(self._asking, [pickle.dumps(arguments)], [writing])
            finally:
                os.close(writing)
            sent = await reader.read()
        finally:
            transport.close()
        if not sent:
            raise TimeoutError
        found: T = pickle.loads(sent)  # noqa: S301  written by a child of this very process
        return found

    def close(self) -> None:
        """Let the process end, which its children outlive by LONGEST at most."""
        self._asking.close()


def _fork_for_each(asked: socket.socket, answer: Callable[..., T]) -> None:
    """Fork a child for each question until nobody asks any more."""
    gc.disable()  # a search would copy all memory
    # Whoever stops the server closes its end of the socket.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        question, descriptors, _, _ = socket.recv_fds(asked, _ASKED, 1)
        if not question:
            return
        if os.fork() == 0:
            asked.close()
            signal.alarm(LONGEST)
            try:
                with suppress(BrokenPipeError), os.fdopen(descriptors[0], "wb") as pipe:
                    pipe.write(pickle.dumps(answer(*pickle.loads(question))))  # noqa: S301  written by this very program
            except Exception:  # noqa: BLE001  (as a server does with an error of its own)
                traceback.print_exc()
            os._exit(0)
        os.close(descriptors[0])
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
