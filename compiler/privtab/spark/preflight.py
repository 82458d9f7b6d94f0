"""Check that the executors can run privtab, once for each session and before anything is prepared."""

from __future__ import annotations

import json
import sys
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from privtab.errors import DecisionUnavailable
from privtab.spark.failures import first_lines, spark_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEEDED = ("privtab", "pyarrow", "numpy")
_ADVICE = "install privtab with the extra `spark` there, or set PYSPARK_PYTHON (or `spark.pyspark.python`) to a Python that has it before Spark starts"
_LOOKED: weakref.WeakSet[SparkSession] = weakref.WeakSet()
_LOCK = threading.Lock()


def check_executors(spark: SparkSession) -> None:
    """Run one tiny task; raises DecisionUnavailable, which says what the executors' Python lacks and how to set another."""
    from pyspark.sql import functions as F  # noqa: N812  (the conventional name)

    with _LOCK:
        if spark in _LOOKED:
            return
    look = F.udf(_look(NEEDED), "string", useArrow=False)
    try:
        ((told,),) = spark.range(0, 1, 1, 1).select(look("id")).collect()
    except spark_errors() as error:
        raise DecisionUnavailable(
            f"Spark's executors cannot run Python: {first_lines(str(error))}; {_ADVICE}; this program runs {sys.executable}",
            retry=False,
        ) from None
    found = json.loads(told)
    if found["lacking"]:
        lacking = " and no ".join(f"`{name}`" for name in found["lacking"])
        raise DecisionUnavailable(
            f"the Python of Spark's executors, {found['python']} ({found['version']}), has no {lacking}: {_ADVICE}; this program "
            f"runs {sys.executable}",
            retry=False,
        )
    with _LOCK:
        _LOOKED.add(spark)


def _look(needed: tuple[str, ...]) -> Callable[[int], str]:
    """A self-contained function: it imports no privtab module, which the executor may lack."""

    def look(_: int) -> str:
        import importlib.util
        import json
        import platform
        import sys

        lacking = [name for name in needed if importlib.util.find_spec(name) is None]
        return json.dumps({"python": sys.executable, "version": platform.python_version(), "lacking": lacking})

    return look
