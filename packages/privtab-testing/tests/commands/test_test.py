from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

SCENARIOS = """\
scenarios: 1
cases:
  - {user: x, action: open, resource: "store:s", decision: ANSWER, why: nobody let them in}
needs:
  - {ask: open store:s, by: [[READ (store:s)]]}
"""


@pytest.fixture
def scenarios(policy: Path) -> Path:
    path = policy.with_name("shop.scenarios.yaml")
    path.write_text(SCENARIOS.replace("ANSWER", "deny"), encoding="utf-8")
    return path


def test_all_pass(privtab: Callable[..., Any], policy: Path, scenarios: Path) -> None:
    ran = privtab("test", policy)
    assert (ran.code, ran.err) == (0, "")
    assert "✓ 4 cases passed" in ran.out
    assert "cells untested" in ran.out
    assert "faults" not in ran.out


def test_a_failure_ends_in_one_and_shows_its_row(privtab: Callable[..., Any], policy: Path, scenarios: Path) -> None:
    scenarios.write_text(SCENARIOS.replace("ANSWER", "allow"), encoding="utf-8")
    ran = privtab("test", scenarios)
    assert ran.code == 1
    assert "✗ x open store:s" in ran.out
    assert "missing: READ (store:s)" in ran.out
    assert "open: READ (store)" in ran.out
    assert "✗ 1 of 4 cases failed" in ran.out


def test_without_a_case_nothing_is_tested(privtab: Callable[..., Any], policy: Path, tmp_path: Path) -> None:
    ran = privtab("test", policy)
    assert ran.code == 2
    assert "no scenarios, so nothing was tested" in ran.err
    suggested = privtab("test", policy, "--suggest")
    assert suggested.code == 0
    assert "needs" in suggested.out


def test_both_engines(privtab: Callable[..., Any], policy: Path, scenarios: Path) -> None:
    assert privtab("test", policy, "--engine", "both").code == 0
    assert privtab("test", policy, "--engine", "opa", "--mutation").code == 0


def test_formats(privtab: Callable[..., Any], policy: Path, scenarios: Path, tmp_path: Path) -> None:
    found = json.loads(privtab("test", policy, "--format", "json", "--mutation").out)
    assert found["ok"] is True
    [tested] = found["policies"]
    assert (tested["cases"], tested["passed"], tested["failures"]) == (4, 4, [])
    assert tested["coverage"]["covered"] == 3
    assert tested["mutation"]["killed"] > 0
    file = tmp_path / "out" / "scenarios.xml"
    ran = privtab("test", policy, "--format", "junit", "-o", file)
    assert (ran.code, ran.out) == (0, "")
    assert ElementTree.fromstring(file.read_text(encoding="utf-8")).get("tests") == "4"  # noqa: S314  our own text
    privtab("test", policy, "-o", tmp_path / "out.txt")
    assert "✓ 4 cases passed" in (tmp_path / "out.txt").read_text(encoding="utf-8")


def test_shares_that_are_too_small(privtab: Callable[..., Any], policy: Path, scenarios: Path) -> None:
    ran = privtab("test", policy, "--min", "coverage=100", "--min", "mutation=100")
    assert ran.code == 1
    assert "of cells are tested, 100 % must be" in ran.err
    assert "of faults are noticed, 100 % must be" in ran.err
    assert privtab("test", policy, "--min", "coverage=1", "--min", "mutation=1").code == 0


def test_suggested_cases_kill_every_mutant(privtab: Callable[..., Any], policy: Path, scenarios: Path) -> None:
    ran = privtab("test", policy, "--suggest")
    assert ran.code == 0
    assert ran.out.splitlines()[1:3] == ["scenarios: 1", f"policy: {policy.name}"]
    more = scenarios.with_name("more.scenarios.yaml")
    more.write_text(ran.out, encoding="utf-8")
    again = privtab("test", policy, "--min", "coverage=100", "--min", "mutation=100")
    assert (again.code, again.err) == (0, "")
    assert privtab("test", policy, "--suggest").out == ""
    nothing = privtab("test", policy, "--suggest", "-o", scenarios.parent / "nothing.scenarios.yaml")
    assert (nothing.code, "nothing to suggest" in nothing.err) == (0, True)
    assert not (scenarios.parent / "nothing.scenarios.yaml").exists()
    more.unlink()
    assert privtab("test", policy, "--suggest", "-o", scenarios.parent / "in" / "more.scenarios.yaml").code == 0
    text = (scenarios.parent / "in" / "more.scenarios.yaml").read_text(encoding="utf-8")
    assert text.replace(f"policy: ../{policy.name}", f"policy: {policy.name}") == ran.out
    assert privtab("test", policy, "--suggest", "-o", scenarios).code == 2, "a file that is there stays as it is"


def test_suggestions_name_the_variant_and_the_readings(privtab: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(
        "privtab: 1\nsystem: shop\nversion: '1'\nentities: {store: }\nprivileges: [READ, WRITE]\n"
        "tables: {store: {open: {requires: READ (store), ambiguous: {readings: {strict: WRITE (store)}}}}}\n"
        "variants: {other: {tables: {store: {open: READ (store) and WRITE (store)}}}}\n",
        encoding="utf-8",
    )
    for name, chosen in (("a", "variant: other"), ("b", "readings: {store/open: strict}")):
        (tmp_path / f"{name}.scenarios.yaml").write_text(
            f"scenarios: 1\npolicy: shop.yaml\n{chosen}\n"
            "cases: [{user: ann, action: open, resource: 'store:s', decision: deny}]\n",
            encoding="utf-8",
        )
    suggested = privtab("test", tmp_path / "a.scenarios.yaml", "--suggest").out
    other = privtab("test", tmp_path / "b.scenarios.yaml", "--suggest").out
    assert "policy: shop.yaml\nvariant: other\n" in suggested
    assert "policy: shop.yaml\nreadings:\n  store/open: strict\n" in other
    both = privtab("test", tmp_path, "--suggest", "-o", tmp_path / "c.yaml")
    assert both.code == 2
    assert "name one of them" in both.err


def test_filter_and_fail_fast(privtab: Callable[..., Any], policy: Path, scenarios: Path) -> None:
    ran = privtab("test", policy, "--filter", "caller1")
    assert ran.code == 0
    assert "✓ 1 case passed" in ran.out
    assert "untested" not in ran.out
    assert privtab("test", policy, "--filter", "no such thing").code == 2
    policy.write_text(policy.read_text(encoding="utf-8").replace("open: READ (store)", "open: WRITE (store)"))
    assert privtab("test", policy, "--fail-fast").out.count("expected") == 1
    assert privtab("test", policy).out.count("expected") > 1


def test_a_wrong_file_is_reported_and_no_case_runs(privtab: Callable[..., Any], policy: Path, scenarios: Path) -> None:
    scenarios.write_text(SCENARIOS.replace("ANSWER", "perhaps").replace("READ", "RAED"), encoding="utf-8")
    ran = privtab("test", policy)
    assert (ran.code, ran.out) == (1, "")
    assert "T004 wrong-value" in ran.err
    assert "did you mean `READ`?" in ran.err
    assert "2 errors" in ran.err


def test_bad_usage(privtab: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert privtab("test").code == 2
    assert privtab("test", "no/such").code == 2
    assert privtab("test", "no/such.yaml").code == 3
    assert privtab("test", "--min", "coverage=200").code == 2
