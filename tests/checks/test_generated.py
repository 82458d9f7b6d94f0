"""Every check reads generated policies, with every feature of the language, and finds no errors in them."""

from __future__ import annotations

import generated_programs
import pytest
import worlds
from seeds import seeds

from privtab import checks
from privtab.base.diagnostics import Severity
from privtab.checks import _every

FEATURES = (
    (),
    worlds.FEATURES,
    ("nested", *worlds.FEATURES),
    ("attributes",),
    ("flat", "nested", "attributes", "below", "hierarchy", "implies"),
)


@pytest.mark.parametrize("features", FEATURES, ids="-".join)
@pytest.mark.parametrize("seed", seeds(range(12), quick=1, full=3))
def test_checks_find_no_errors_in_generated_policies(seed: int, features: tuple[str, ...]) -> None:
    text = worlds.policy(seed, features=features)
    _, policy = generated_programs.lowered(text)
    found = checks.run(policy)
    assert not [finding for finding in found if finding.severity is Severity.ERROR]
    assert {finding.code for finding in found} <= {check.kind.code for check in _every.catalogue()}
    assert all(1 <= finding.span.line <= text.count("\n") + 1 for finding in found)


@pytest.mark.long
@pytest.mark.parametrize("features", FEATURES, ids="-".join)
def test_checks_find_no_errors_in_many_policies(search_seed: int, features: tuple[str, ...]) -> None:
    for seed in range(search_seed, search_seed + 30):
        test_checks_find_no_errors_in_generated_policies(seed, features)
