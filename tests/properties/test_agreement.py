"""The reference and a real OPA give the same decisions, with the same reasons, in worlds that nobody thought of."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_agreement import compare
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

SEEDS = st.integers(min_value=0, max_value=2**31)


@pytest.mark.slow
@pytest.mark.parametrize("sharded", [False, True], ids=["whole", "sharded"])
def test_reference_and_opa_agree_on_every_request(opa_binary: Path, sharded: bool) -> None:
    total = allowed = 0

    @settings(
        max_examples=3 if sharded else 6,
        deadline=None,
        phases=[Phase.explicit, Phase.reuse, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(seed=SEEDS)
    def worlds_agree(seed: int) -> None:
        nonlocal total, allowed
        asked, yes, found = compare(seed, opa_binary, policies=8, states=4, per_rule=2, sharded=sharded)
        total, allowed = total + asked, allowed + yes
        assert not found, f"{len(found)} of {asked} differ; the first:\n{found[0]}"

    worlds_agree()
    assert total >= (2_500 if sharded else 5_000)
    assert 0.1 < allowed / total < 0.9, "worlds in which nearly all answers are the same prove little"


@pytest.mark.long
@pytest.mark.parametrize("sharded", [False, True], ids=["whole", "sharded"])
@pytest.mark.parametrize("block", range(20))
def test_reference_and_opa_agree_on_very_many_requests(opa_binary: Path, block: int, sharded: bool) -> None:
    total = 0
    for seed in range(block * 1000, block * 1000 + 8):
        asked, _, found = compare(seed, opa_binary, policies=10, states=6, per_rule=2, sharded=sharded)
        total += asked
        assert not found, f"{len(found)} of {asked} differ; the first:\n{found[0]}"
    assert total >= 10_000
