"""A driver goes on only if it may."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import decks
import pytest
from pyspark.sql import SparkSession

from privtab import Embedded, pipeline
from privtab.bundle import policy_bundle, state_bundle
from privtab.errors import AccessDenied, InvalidRequest, UsageError
from privtab.request import Entity
from privtab.spark import SparkState, require
from privtab.state.load import load
from privtab.state.validate import validate


def test_an_allow_is_told_and_a_denial_raised_with_what_is_missing(tmp_path: Path) -> None:
    policy, state = decks.files(tmp_path)
    allowed = require(policy, state, "user:ann", "look", "box:s/a/1")
    assert (allowed.allowed, allowed.rule) == (True, "deck/box/look")
    with pytest.raises(AccessDenied) as denied:
        require(policy, state, "bob", "move", ("box", "s/b/1"), with_={"target": Entity("shelf", "s/b")})
    assert denied.value.decision.missing == (("TAKE (box:s/b/1)",),)
    assert require(policy, state, "dan", "take", "box:s/a/1", groups=["hr"])
    with pytest.raises(AccessDenied):
        require(policy, state, "dan", "take", "box:s/a/1", groups=["hr"], flags=["careful"])
    with pytest.raises(InvalidRequest, match="did you mean `look`"):
        require(policy, state, "ann", "lok", "box:s/a/1")
    with pytest.raises(InvalidRequest):
        require(policy, state, "", "look", "box:s/a/1")


def test_clients_bundles_and_tables_answer_alike(spark: SparkSession, tmp_path: Path) -> None:
    policy, state = decks.files(tmp_path)
    program = pipeline.load_program(policy)
    rows, _ = validate(program, load(state))
    bundles = tmp_path / "policy.tar.gz", tmp_path / "state.tar.gz"
    bundles[0].write_bytes(policy_bundle(program))
    bundles[1].write_bytes(state_bundle(program, rows))
    client = Embedded(*bundles)
    forms: list[tuple[Any, Any]] = [
        (None, client),
        bundles,
        (program, rows),
        (policy, SparkState.of(spark, policy, state)),
    ]
    for by, held in forms:
        found = require(by, held, "ann", "look", "box:s/a/1", spark=spark)
        assert found.context == client.decide("ann", "look", "box:s/a/1").context
        with pytest.raises(AccessDenied):
            require(by, held, "ann", "look", "box:s/a/2", spark=spark)
    with pytest.raises(UsageError, match="a policy is needed"):
        require(None, rows, "ann", "look", "box:s/a/1")
