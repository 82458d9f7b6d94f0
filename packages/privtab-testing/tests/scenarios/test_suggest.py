"""Entries for what is untested: read back, they prove every cell and notice every fault, whatever the policy."""

from __future__ import annotations

from pathlib import Path

import pytest
import small_policies
from shop_policy import Reads, failed

from privtab_testing.scenarios import CasePlan
from privtab_testing.scenarios.collect import plans
from privtab_testing.scenarios.prove import coverage, observe, score, suggested


def entries(plan: CasePlan) -> str:
    return suggested(plan, coverage(plan, observe(plan, [])), None)


def proves_all(plan: CasePlan) -> None:
    observed = observe(plan, plan.cases)
    assert failed(plan) == []
    assert [f"{c.rule.id}: {c.text} {c.setting}" for c in coverage(plan, observed).untested] == []
    assert [f"{m.original.id}: {m.text}" for m in score(plan, observed).survived] == []


def test_they_are_written_as_a_person_would(reads: Reads) -> None:
    text = entries(reads("needs: [{ask: open store:s, by: [[READ (store:s)]]}]"))
    assert text.splitlines()[:8] == [
        "let:",
        '  read_item: {any: [READ (item:s/sh/i), "owner (shelf:s/sh, item:s/sh/i)"]}',
        "needs:",
        "  - ask: [open store:s, list shelf:s]",
        "    by: READ (store:s)",
        "    effects: []",
        "  - ask: create shelf:s/sh",
        "    by: WRITE (store:s)",
    ]


def test_the_shop_is_proved(reads: Reads) -> None:
    proves_all(reads(entries(reads("needs: [{ask: open store:s, by: [[READ (store:s)]]}]"))))


def test_nothing_is_suggested_where_all_is_proved(reads: Reads) -> None:
    plan = reads(entries(reads("needs: [{ask: open store:s, by: [[READ (store:s)]]}]")))
    observed = observe(plan, plan.cases)
    assert suggested(plan, coverage(plan, observed), score(plan, observed)) == ""


def test_rows_with_unseen_faults_are_suggested_too(reads: Reads) -> None:
    text = entries(reads("needs: [{ask: open store:s, by: [[READ (store:s)]]}]"))
    # Without effects every cell is proved all the same.
    plan = reads("\n".join(line for line in text.splitlines() if "effects" not in line))
    observed = observe(plan, plan.cases)
    assert coverage(plan, observed).untested == ()
    assert "create shelf:s/sh" in suggested(plan, coverage(plan, observed), score(plan, observed))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cdap/final", "cdap/draft", "streams/teracloud"])
def test_shipped_policies_are_proved(tmp_path: Path, name: str) -> None:
    [plan] = [p for p in plans([name]) if p.subject.variant is None and not p.subject.readings]
    path = tmp_path / "all.scenarios.yaml"
    path.write_text(f"scenarios: 1\npolicy: {plan.subject.policy.resolve()}\n{entries(plan)}", encoding="utf-8")
    [plan] = plans([path])
    proves_all(plan)


def prove_random_policy(seed: int, folder: Path) -> None:
    """Prove what is suggested for a random policy; nothing where the policy is not sound."""
    (folder / "small.yaml").write_text(small_policies.policy(seed), encoding="utf-8")
    if small_policies.program(small_policies.policy(seed)) is None:
        return
    [plan] = plans([folder / "small.yaml"])
    (folder / "small.scenarios.yaml").write_text(f"scenarios: 1\n{entries(plan)}", encoding="utf-8")
    [plan] = plans([folder / "small.yaml"])
    proves_all(plan)


@pytest.mark.parametrize("seed", range(1000, 1040))
def test_random_policies_are_proved(tmp_path: Path, seed: int) -> None:
    prove_random_policy(seed, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 400, 40))
def test_many_random_policies_are_proved(
    tmp_path: Path, subtests: pytest.Subtests, search_seed: int, first: int
) -> None:
    for seed in range(search_seed + first, search_seed + first + 40):
        with subtests.test(seed=seed):
            folder = tmp_path / str(seed)
            folder.mkdir()
            prove_random_policy(seed, folder)
