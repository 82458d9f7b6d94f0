"""What a person sees of Spark's exceptions."""

from __future__ import annotations

import pytest

from privtab_spark.failures import first_lines

CAUSED = """An error occurred while calling o153.save.
: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///bad.csv.  SQLSTATE: KD001
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.cannotReadFilesError(QueryExecutionErrors.scala:920)
\tat java.base/java.lang.Thread.run(Thread.java:840)
Caused by: org.apache.spark.SparkException: [MALFORMED_RECORD] Malformed records are detected: [ann,hive/a].
Parse Mode: FAILFAST. To process malformed records as null result, try setting the option 'mode' as 'PERMISSIVE'.
\tat scala.collection.Iterator$$anon$9.hasNext(Iterator.scala:593)
\t... 47 more
Caused by: org.apache.spark.SparkRuntimeException: [MALFORMED_CSV_RECORD] Malformed CSV record: ann,hive/a,b
\t... 54 more
"""
WORKER = """[PYTHON_EXCEPTION]
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/x/executors.py", line 12, in answers
    raise DecisionUnavailable("nobody answers")
privtab.base.errors.DecisionUnavailable: nobody answers

JVM stacktrace:
org.apache.spark.api.python.PythonException
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1)
"""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            CAUSED,
            [
                "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///bad.csv.  SQLSTATE: KD001",
                "[MALFORMED_RECORD] Malformed records are detected: [ann,hive/a].",
                "Parse Mode: FAILFAST. To process malformed records as null result, try setting the option 'mode' as 'PERMISSIVE'.",
                "[MALFORMED_CSV_RECORD] Malformed CSV record: ann,hive/a,b",
            ],
        ),
        (WORKER, ["[PYTHON_EXCEPTION]", "privtab.base.errors.DecisionUnavailable: nobody answers"]),
        (
            "[TABLE_OR_VIEW_NOT_FOUND] no table `x`.\nSearch path: `a`",
            ["[TABLE_OR_VIEW_NOT_FOUND] no table `x`.", "Search path: `a`"],
        ),
        ("\n".join(f"line {n}" for n in range(40)), [f"line {n}" for n in range(12)]),
    ],
    ids=["java", "worker", "plain", "long"],
)
def test_stacks_are_left_out_and_causes_reported(text: str, shown: list[str]) -> None:
    assert first_lines(text).splitlines() == shown
