"""The gates, one by one."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from privtab import source
from privtab.analysis.diff.waivers import read_waivers
from privtab.bundle import policy_bundle
from privtab.ir.nodes import Program
from privtab.pipeline import load_program
from privtab.registry.deploy.gates import FailingOn, Gate, Outcome, diff_gate, lint_gate, skipped, test_gate
from privtab.registry.deploy.program import program_in

POLICY = """\
privtab: 1
system: shop
version: "1"
entities: {site: {item:}}
privileges: [READ, WRITE]
tables:
  item:
    read: READ (item)
    write: WRITE (item)
"""
TODAY = date(2026, 1, 1)


def write(folder: Path, text: str = POLICY, name: str = "shop.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def lint(path: Path) -> Gate:
    return lint_gate(path, variant=None, readings={})[0]


def compared(before: Program, after: Program, fail_on: FailingOn, waivers: str = "") -> Gate:
    read = read_waivers(source.decode(waivers.encode(), "w.yaml")).waivers if waivers else ()
    running = program_in(policy_bundle(before), "running"), "running"
    return diff_gate(running, after, fail_on=fail_on, waivers=read, today=TODAY, shown="shop.yaml")


def test_lint_lets_a_clean_policy_through_and_names_what_stops(tmp_path: Path) -> None:
    assert lint(write(tmp_path)).outcome is Outcome.PASSED
    wrong = lint(write(tmp_path, POLICY.replace("WRITE (item)", "WRIT (item)")))
    assert wrong.outcome is Outcome.FAILED
    assert [d.name for d in wrong.diagnostics] == ["unknown-privilege"]


def test_lint_stops_at_the_severity_of_the_settings(tmp_path: Path) -> None:
    path = write(tmp_path, POLICY.replace("[READ, WRITE]", "[READ, WRITE, NEVER]"))
    passed = lint(path)
    assert passed.outcome is Outcome.PASSED
    assert passed.diagnostics, "there is a warning"
    (tmp_path / "privtab.toml").write_text('[lint]\nfail-on = "warning"\n', encoding="utf-8")
    assert lint(path).outcome is Outcome.FAILED


@pytest.mark.parametrize("engine", ["reference", "both"])
def test_scenarios_beside_the_policy_are_asked(tmp_path: Path, engine: str) -> None:
    path = write(tmp_path)

    def gate() -> Gate:
        return test_gate(path, variant=None, readings={}, engine=engine)  # type: ignore[arg-type]

    assert "no scenarios" in gate().says
    assert gate().outcome is Outcome.FAILED, "a policy that nobody tests is not one that passed"
    scenarios(tmp_path, good=True)
    assert gate().says == "1 case answered as expected"
    scenarios(tmp_path, good=False)
    failed = gate()
    assert failed.outcome is Outcome.FAILED
    assert failed.json()["failures"][0]["fault"] == "decision"


def scenarios(folder: Path, *, good: bool) -> None:
    write(
        folder,
        "scenarios: 1\n"
        'state: {grants: [{grantee: "user:ann", effect: allow, privilege: READ, entity: "item:s/i"}]}\n'
        "cases:\n"
        f"  - {{user: ann, action: read, resource: 'item:s/i', decision: {'allow' if good else 'deny'}, why: READ}}\n",
        "shop.scenarios.yaml",
    )


def test_a_wider_row_stops_and_a_narrower_does_not(tmp_path: Path) -> None:
    one = load_program(write(tmp_path))
    wider = load_program(write(tmp_path, POLICY.replace("read: READ (item)", "read: READ/WRITE (item)")))
    up, down = compared(one, wider, FailingOn.WIDER), compared(wider, one, FailingOn.WIDER)
    assert (up.outcome, [row.name for row in up.blocking]) == (Outcome.FAILED, ["item/read"])
    assert "1 not waived: item/read" in up.says
    assert down.outcome is Outcome.PASSED
    assert compared(wider, one, FailingOn.ANY).outcome is Outcome.FAILED
    assert compared(one, wider, FailingOn.NONE).outcome is Outcome.PASSED
    assert compared(one, one, FailingOn.ANY).says == "no operation changed"


def test_what_is_wider_here_and_narrower_there_stops_too(tmp_path: Path) -> None:
    one = load_program(write(tmp_path))
    other = load_program(write(tmp_path, POLICY.replace("read: READ (item)", "read: WRITE (item)")))
    assert compared(one, other, FailingOn.WIDER).outcome is Outcome.FAILED


def test_a_waiver_lets_through_until_its_day(tmp_path: Path) -> None:
    one = load_program(write(tmp_path))
    wider = load_program(write(tmp_path, POLICY.replace("read: READ (item)", "read: READ/WRITE (item)")))
    waiver = "waivers:\n  - {operation: item/read, change: wider, who: ada, why: writers read, until: %s}\n"
    good = compared(one, wider, FailingOn.WIDER, waiver % "2026-02-01")
    assert good.outcome is Outcome.PASSED
    assert "(1 waived)" in good.says
    late = compared(one, wider, FailingOn.WIDER, waiver % "2025-12-31")
    assert late.outcome is Outcome.FAILED
    assert [d.name for d in late.diagnostics] == ["expired-waiver"]


def test_where_nothing_runs_there_is_nothing_to_compare(tmp_path: Path) -> None:
    gate = diff_gate(
        None, load_program(write(tmp_path)), fail_on=FailingOn.ANY, waivers=(), today=TODAY, shown="shop.yaml"
    )
    assert gate.outcome is Outcome.PASSED


def test_a_gate_that_is_left_out_says_why() -> None:
    gate = skipped("tests", "they need the new state")
    assert gate.passed
    assert gate.record() == {"gate": "tests", "outcome": "skipped", "says": "left out: they need the new state"}
