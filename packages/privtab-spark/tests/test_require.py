"""A driver goes on only if it may."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import decision_rows
import pytest
from pyspark.sql import SparkSession

from privtab import Embedded, pipeline
from privtab.base import AccessDenied, Entity, InvalidRequest, UsageError
from privtab.bundle import state_bundle
from privtab.pipeline import policy_artifacts
from privtab.state import load_raw_state, validate
from privtab_spark import require
from privtab_spark.state import state_tables


def test_an_allow_is_returned_and_a_denial_raised_with_what_is_missing(tmp_path: Path) -> None:
    policy, state = decision_rows.files(tmp_path)
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        *(({"subject": wrong}, f"subject is {wrong!r}: give the name of a user") for wrong in (None, "", "user:")),
        ({"subject": 7}, "user is 7; it must be a non-empty string"),
        ({"action": None}, "action is None; it must be a non-empty string"),
        ({"resource": None}, "resource is None: write `type:path`, a pair"),
        ({"resource": ("box", "s", "a")}, "resource is ('box', 's', 'a')"),
        ({"with_": "shelf:s/a"}, "with_ is a str; it must be a mapping of names to entities"),
        ({"with_": {"target": None}}, "with_['target'] is None"),
        ({"flags": "careful"}, "flags is a str; it must be a list of names"),
        ({"flags": ["carful"]}, "unknown flag `carful`; flags of system `deck`: `careful`"),
        ({"flags": None}, "flags is a NoneType"),
        ({"groups": "hr"}, "groups is a str; it must be a list of names"),
        ({"groups": [None]}, "a name in groups is None"),
    ],
    ids=str,
)
def test_an_invalid_request_is_reported(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest) as raised:
        require(
            *decision_rows.files(tmp_path), **{"subject": "ann", "action": "look", "resource": "box:s/a/1", **arguments}
        )
    assert message in str(raised.value)


def test_a_path_may_be_a_list_of_names(tmp_path: Path) -> None:
    assert require(*decision_rows.files(tmp_path), "cy", "look", ("box", ["s", "100%", "a/b"]))
    for path in ([], ["s", "", "1"], ["s", None, "1"]):
        with pytest.raises(InvalidRequest, match=r"write `type:path`|wrong depth|non-empty string"):
            require(*decision_rows.files(tmp_path), "ann", "look", ("box", path))  # type: ignore[arg-type]


def test_flags_may_be_a_mapping(tmp_path: Path) -> None:
    files = decision_rows.files(tmp_path)
    assert require(*files, "bob", "take", "box:s/a/1", flags={"careful": False})
    with pytest.raises(AccessDenied):
        require(*files, "bob", "take", "box:s/a/1", flags={"careful": True})


def test_a_promise_of_an_answer_is_none(tmp_path: Path) -> None:
    """What an `AsyncClient` gives is true whatever the answer will be."""

    class Later:
        async def require(self, *_: object, **__: object) -> bool:
            return False

    with pytest.raises(UsageError, match="a Later is not synchronous: give a Client or an Embedded"):
        require(None, Later(), "ann", "look", "box:s/a/1")


def test_clients_bundles_and_tables_answer_alike(spark: SparkSession, tmp_path: Path) -> None:
    policy, state = decision_rows.files(tmp_path)
    program = pipeline.load_program(policy)
    rows, _ = validate(program, load_raw_state(state))
    bundles = tmp_path / "policy.tar.gz", tmp_path / "state.tar.gz"
    bundles[0].write_bytes(policy_artifacts(program).bundle())
    bundles[1].write_bytes(state_bundle(program, rows))
    client = Embedded(*bundles)
    forms: list[tuple[Any, Any]] = [
        (None, client),
        bundles,
        (program, rows),
        (policy, state_tables(spark, policy, state)),
    ]
    for by, state_form in forms:
        found = require(by, state_form, "ann", "look", "box:s/a/1", spark=spark)
        assert found.context == client.decide("ann", "look", "box:s/a/1").context
        with pytest.raises(AccessDenied):
            require(by, state_form, "ann", "look", "box:s/a/2", spark=spark)
    with pytest.raises(UsageError, match="no state given"):
        require(program, None, "ann", "look", "box:s/a/1")
    with pytest.raises(UsageError, match="a policy is required"):
        require(None, rows, "ann", "look", "box:s/a/1")
