"""Runs work in child processes."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Generic, TypeVar

from privtab.base.records import dataclass

T = TypeVar("T")

LARGE = 1_000
"""The rows of a policy from which parts of checking and compiling it take far longer than starting a process for them."""


@dataclass(slots=True)
class Worker(Generic[T]):
    """A child process at work; call `result` once.

    worker = Worker.start(lambda: compile_policy(text))
    compiled = worker.result()
    """

    work: Callable[[], T]
    process: int
    reading: int

    @staticmethod
    def spare() -> int:
        """The number of child processes that can run in parallel with this one."""
        if not hasattr(os, "fork"):
            return 0
        return (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1) - 1

    @classmethod
    def start(cls, work: Callable[[], T]) -> Worker[T]:
        """Start the work in a forked child, which has a copy of this process; the result is sent back by pickle."""
        import pickle

        reading, writing = os.pipe()
        process = os.fork()
        if process == 0:
            code = 1
            try:
                os.close(reading)
                with os.fdopen(writing, "wb") as pipe:
                    pickle.dump(work(), pipe, protocol=pickle.HIGHEST_PROTOCOL)
                code = 0
            finally:
                # The child must not flush or clean up anything of the parent, nor print a second error.
                os._exit(code)
        os.close(writing)
        return cls(work, process, reading)

    def stop(self) -> bytes | None:
        """Wait for the child to end and return what it sent; None if it failed."""
        with os.fdopen(self.reading, "rb") as pipe:
            sent = pipe.read()
        _, status = os.waitpid(self.process, 0)
        return sent if os.waitstatus_to_exitcode(status) == 0 else None

    def result(self) -> T:
        """The value; if the child failed, the work is repeated here, so that errors are the same."""
        sent = self.stop()
        if sent is None:
            return self.work()
        import pickle

        value: T = pickle.loads(sent)  # noqa: S301  written by this very program
        return value


def beside(work: Callable[[], T], *, large: bool) -> Callable[[], T]:
    """Start the work in a child process if it is large and a processor is free; the function returned gives its value, once.

    Only for commands: a child of a process with further threads may wait for a lock for ever.
    """
    return Worker.start(work).result if large and Worker.spare() else work
