"""Exceptions of Spark, and the part of their text that is worth showing."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from logging import LogRecord

_FRAME = re.compile(r"at [\w.$/<>]+\(|\.\.\. \d+ more$")
_CLASS = re.compile(r"^(?:: |Caused by: )+(?:[\w$]+\.)+[\w$]+: ")
_NOTHING = re.compile(r"An error occurred while calling \S+$|Please see the stack trace below")
_QUERY_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Loggers to which PySpark writes every failing query."""


def spark_errors() -> tuple[type[Exception], ...]:
    """The exceptions that Spark raises, including JVM errors of Classic sessions that PySpark does not wrap."""
    try:
        from pyspark.errors import PySparkException
    except ImportError:
        return ()
    try:
        from py4j.protocol import Py4JError
    except ImportError:
        return (PySparkException,)
    return PySparkException, Py4JError


@contextmanager
def unlogged() -> Iterator[None]:
    """Keep failing queries of this thread out of PySpark's log, which would show them in full, including secrets."""
    from pyspark.logger import PySparkLogger

    thread = threading.get_ident()

    def is_other_thread(record: LogRecord) -> bool:
        return record.thread != thread

    # As in PySpark, by `PySparkLogger.getLogger`: `logging.getLogger` would create a logger that rejects PySpark's calls.
    loggers = [PySparkLogger.getLogger(name) for name in _QUERY_LOGGERS]
    for logger in loggers:
        logger.addFilter(is_other_thread)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_other_thread)


def first_lines(text: str) -> str:
    """The messages of an error and of its causes, without the stack traces of the JVM and of Python workers."""
    lines: list[str] = []
    in_stack = in_python_traceback = False
    for line in text.splitlines():
        stripped = line.strip()
        if _FRAME.match(stripped) or stripped.startswith("JVM stacktrace"):
            in_stack = True
        elif stripped.startswith("Caused by: "):
            in_stack = False
            lines.append(_CLASS.sub("", stripped))
        elif stripped.startswith("Traceback (most recent call last)"):
            in_stack, in_python_traceback = False, True
        elif not (in_stack or (in_python_traceback and line.startswith("  ")) or _NOTHING.search(stripped)):
            in_python_traceback = False
            lines.append(_CLASS.sub("", line.rstrip()))
    return "\n".join(list(dict.fromkeys(filter(None, lines)))[:12]).strip()
