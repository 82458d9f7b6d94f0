"""Which plan is taken, and what is said about it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import decks
import pytest
from pyspark.sql import SparkSession

from privtab.spark import Choice, Limits, SparkState, decide, plan

BOX: dict[str, Any] = {"subject": "user", "action": "look", "resource": ("box", "path")}


def test_the_size_of_the_state_decides_and_the_limits_are_arguments(spark: SparkSession, tmp_path: Path) -> None:
    policy, state = decks.files(tmp_path)
    df = decks.frame(spark, [("ann", "s/a/1"), ("bob", "s/a/1")], "user string, path string")
    tables = SparkState.of(spark, policy, state)

    def chosen(**limits: int) -> Choice:
        return plan(df, policy, tables, limits=Limits(**limits), **BOX)

    assert chosen().plan == "kernel"
    assert chosen().figures["rows"] == 8
    assert chosen().figures["grants"] == 5
    assert (chosen(rows=7).plan, chosen(size=100).plan) == ("joins", "joins")
    few = chosen(large=7)
    assert (few.plan, few.figures["distinct requests seen"]) == ("joins", 2)
    assert chosen(large=7, few=1).plan == "kernel"
    assert plan(df, policy, state, **BOX).figures == chosen().figures


def test_a_choice_reads_well_and_is_logged(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    policy, state = decks.files(tmp_path)
    df = decks.frame(spark, [("ann", "s/a/1")], "user string, path string")
    with caplog.at_level(logging.INFO, logger="privtab.spark"):
        decide(df, policy, state, **BOX)
    assert caplog.messages[0].startswith("decide: kernel: the state has 8 rows, whose arrays fit every executor\n")
    text = str(plan(df, policy, state, limits=Limits(rows=7), **BOX))
    assert text.startswith("joins: the state has 8 rows; beyond 7 they are not brought together on the driver\n")
    assert "arrays, about, in bytes  0.0 MiB" in text
    assert str(plan(df, policy, state, plan="joins", **BOX)) == "joins: the caller asks for it"
