"""`filters` of a case: which row filter or column mask applies. Filters are covered, and changed, like rows."""

from __future__ import annotations

from pathlib import Path

import filtered_policy
import pytest

from privtab.base import PolicyInvalid
from privtab_testing.scenarios import CasePlan
from privtab_testing.scenarios.collect import plans
from privtab_testing.scenarios.run import ReferenceEngine, failures, opa

CASES = """\
scenarios: 1
policy: lake.yaml
state: state.yaml
cases:
  - user: eve
    action: load
    resource: table:m/s/t
    decision: allow
    attributes: {request: {purpose: audit}}
    filters: {FILTERS}
"""


def plan(folder: Path, filters: str) -> CasePlan:
    filtered_policy.made(folder)
    (folder / "lake.scenarios.yaml").write_text(CASES.replace("FILTERS", filters), encoding="utf-8")
    [found] = plans([folder / "lake.scenarios.yaml"])
    return found


def names(found: CasePlan) -> list[str]:
    return [case.name.rpartition(": ")[2] for case in found.cases[1:]]


def test_the_expected_filter_holds_and_none_before_it(tmp_path: Path, opa_binary: Path) -> None:
    found = plan(tmp_path, '"table:m/s/t": eu_only, "column:m/s/t/ssn": hashed, "column:m/s/t/x": denied')
    assert names(found)[:4] == [
        "all_rows does not apply to table:m/s/t",
        "eu_only applies to table:m/s/t",
        "plain does not apply to column:m/s/t/ssn",
        "hashed applies to column:m/s/t/ssn",
    ]
    with opa(found.program) as running:
        wrong = list(failures(found, found.cases, [ReferenceEngine(found.program), running]))
    assert [failure.case.name.rpartition(": ")[2] for failure in wrong] == ["blank does not apply to column:m/s/t/x"]


def test_another_filter_fails_the_case(tmp_path: Path) -> None:
    found = plan(tmp_path, '"table:m/s/t": own_rows')
    [wrong] = failures(found, found.cases, [ReferenceEngine(found.program)])
    assert wrong.case.name == "eve load table:m/s/t: eu_only does not apply to table:m/s/t"
    assert (wrong.expected, wrong.got) == ("deny", "allow")


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ('"table:m/s/t": eu', "`table` has no row filter and no column mask `eu`"),
        ('"schema:m/s": denied', "`schema` has no row filters and no column masks"),
        ('"table:m/s": eu_only', "wrong depth"),
        ('"table": eu_only', "`table` is not an entity"),
    ],
)
def test_what_the_policy_does_not_know(tmp_path: Path, filters: str, message: str) -> None:
    with pytest.raises(PolicyInvalid) as caught:
        plan(tmp_path, filters)
    assert any(finding.message.startswith(message) for finding in caught.value.diagnostics), caught.value
