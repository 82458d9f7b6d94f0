"""What Spark raises, and what of it a person should see."""

from __future__ import annotations


def spark_errors() -> tuple[type[Exception], ...]:
    """What Spark raises; of a Classic session also what the JVM says and PySpark has no class for."""
    from pyspark.errors import PySparkException

    try:
        from py4j.protocol import Py4JError
    except ImportError:
        return (PySparkException,)
    return PySparkException, Py4JError


def first_lines(text: str) -> str:
    """What Spark says without the stack of the JVM."""
    lines = []
    for line in text.splitlines():
        if line.lstrip().startswith("at ") or line.startswith("JVM stacktrace"):
            break
        lines.append(line)
    return "\n".join(lines[:12]).strip()
