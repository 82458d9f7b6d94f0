"""The whole matrix of made-up access data of the shape of the real one: on Spark, and a sample through OPA and Wasm."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from pyspark.sql import SparkSession

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.fixture(scope="module")
def americas() -> ModuleType:
    if str(BENCH) not in sys.path:
        sys.path.append(str(BENCH))
    found = importlib.util.spec_from_file_location("americas", BENCH / "americas.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules["americas"] = module
    found.loader.exec_module(module)
    return module


@pytest.mark.long
@pytest.mark.parametrize("plan", ["kernel", "joins"])
def test_every_pair_is_decided_as_the_data_has_it(spark: SparkSession, americas: ModuleType, plan: str) -> None:
    data = americas.made_up(users=300, roles=60, permissions=700)
    pairs = americas.on_spark(spark, data, americas.Clock(), plan=plan)
    assert pairs == len(data.users) * len(data.permissions) > 100_000


@pytest.mark.long
def test_one_pair_that_should_not_be_is_noticed(spark: SparkSession, americas: ModuleType) -> None:
    data = americas.made_up(users=40, roles=10, permissions=50)
    least = min(data.user_permission)
    for wrong in (data.user_permission - {least}, data.user_permission | {(least[0], "none")}):
        with pytest.raises(Exception, match="pairs too many"):
            americas.on_spark(spark, replace(data, user_permission=frozenset(wrong)), americas.Clock())


@pytest.mark.long
def test_a_sample_has_the_same_answers_elsewhere(americas: ModuleType) -> None:
    clock = americas.Clock()
    americas.through_bundles(americas.made_up(users=300, roles=60, permissions=700), 20_000, clock)
    assert set(clock.stages) == {"OPA", "Wasm"}
