"""The whole matrix of made-up access data of the shape of the real one: on Spark, and a sample through OPA."""

from __future__ import annotations

from dataclasses import replace

import americas
import pytest
from measure import WrongAnswerError
from pyspark.sql import SparkSession


@pytest.mark.long
@pytest.mark.parametrize("plan", ["kernel", "portions"])
def test_every_pair_is_decided_as_the_data_has_it(spark: SparkSession, plan: str) -> None:
    data = americas.made_up(users=300, roles=60, permissions=700)
    pairs = americas.on_spark(spark, data, americas.Clock(), plan=plan)
    assert pairs == len(data.users) * len(data.permissions) > 100_000


@pytest.mark.long
def test_one_pair_that_should_not_be_is_noticed(spark: SparkSession) -> None:
    data = americas.made_up(users=40, roles=10, permissions=50)
    least = min(data.user_permission)
    for wrong in (data.user_permission - {least}, data.user_permission | {(least[0], "none")}):
        with pytest.raises(WrongAnswerError, match="pairs too many"):
            americas.on_spark(spark, replace(data, user_permission=frozenset(wrong)), americas.Clock())


@pytest.mark.long
def test_a_sample_has_the_same_answers_elsewhere() -> None:
    clock = americas.Clock()
    americas.through_bundles(americas.made_up(users=300, roles=60, permissions=700), 20_000, clock)
    assert set(clock.stages) == {"OPA"}
