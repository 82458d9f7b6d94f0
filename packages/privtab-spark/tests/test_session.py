"""Both kinds of session run Python on their executors."""

from __future__ import annotations

from pyspark.sql import SparkSession


def test_a_session_is_of_the_requested_kind_and_maps_arrow(spark: SparkSession, connected: bool) -> None:
    assert ("connect" in type(spark).__module__) == connected
    assert spark.range(10).mapInArrow(lambda batches: batches, "id long").count() == 10
