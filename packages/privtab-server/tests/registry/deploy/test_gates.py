"""The gates, one by one."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from privtab.base import SourceFile
from privtab.bundle import program_in
from privtab.ir import Program
from privtab.pipeline import load_program, policy_artifacts
from privtab_analysis.diff import comparable
from privtab_analysis.diff.waivers import read_waivers
from privtab_server.commands._rollout import show_gate
from privtab_server.registry.deploy.gates import FailingOn, Gate, GateStatus, diff_gate, lint_gate, skipped, test_gate

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
    read = read_waivers(SourceFile.decode(waivers.encode(), "w.yaml")).waivers if waivers else ()
    running = program_in(policy_artifacts(before).bundle(), "running")[0], "running"
    return diff_gate(running, after, fail_on=fail_on, waivers=read, today=TODAY, shown="shop.yaml")


def test_lint_lets_a_clean_policy_through_and_names_what_stops(tmp_path: Path) -> None:
    assert lint(write(tmp_path)).outcome is GateStatus.PASSED
    wrong = lint(write(tmp_path, POLICY.replace("WRITE (item)", "WRIT (item)")))
    assert wrong.outcome is GateStatus.FAILED
    assert [d.name for d in wrong.diagnostics] == ["unknown-privilege"]


def test_lint_stops_at_the_severity_of_the_settings(tmp_path: Path) -> None:
    path = write(tmp_path, POLICY.replace("[READ, WRITE]", "[READ, WRITE, NEVER]"))
    passed = lint(path)
    assert passed.outcome is GateStatus.PASSED
    assert passed.diagnostics, "there is a warning"
    (tmp_path / "privtab.toml").write_text('[lint]\nfail-on = "warning"\n', encoding="utf-8")
    assert lint(path).outcome is GateStatus.FAILED


@pytest.mark.parametrize("engine", ["reference", "both"])
def test_scenarios_beside_the_policy_are_run(tmp_path: Path, engine: str) -> None:
    path = write(tmp_path)

    def gate() -> Gate:
        return test_gate(path, variant=None, readings={}, engine=engine)  # type: ignore[arg-type]

    assert "no scenarios" in gate().says
    assert gate().outcome is GateStatus.FAILED, "a policy that nobody tests is not one that passed"
    scenarios(tmp_path, good=True)
    assert gate().says == "1 case answered as expected"
    scenarios(tmp_path, good=False)
    failed = gate()
    assert failed.outcome is GateStatus.FAILED
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
    original = load_program(write(tmp_path))
    wider = load_program(write(tmp_path, POLICY.replace("read: READ (item)", "read: READ/WRITE (item)")))
    up, down = compared(original, wider, FailingOn.WIDER), compared(wider, original, FailingOn.WIDER)
    assert (up.outcome, [row.name for row in up.blocking]) == (GateStatus.FAILED, ["item/read"])
    assert "1 not waived: item/read" in up.says
    assert down.outcome is GateStatus.PASSED
    assert compared(wider, original, FailingOn.ANY).outcome is GateStatus.FAILED
    assert compared(original, wider, FailingOn.NONE).outcome is GateStatus.PASSED
    assert compared(original, original, FailingOn.ANY).says == "no operation changed"


def test_wider_in_one_place_and_narrower_in_another_fails_the_gate(tmp_path: Path) -> None:
    original = load_program(write(tmp_path))
    other = load_program(write(tmp_path, POLICY.replace("read: READ (item)", "read: WRITE (item)")))
    assert compared(original, other, FailingOn.WIDER).outcome is GateStatus.FAILED


NESTED = """\
privtab: 1
system: shop
version: "1"
entities: {site: {shelf: {item:}}}
privileges: [READ, WRITE]
sets: {ALL: [READ]}
tables:
  site: {load: READ (site)}
  shelf: {load: can load (site) and READ (shelf), own: ALL (shelf)}
  item:
    load: can load (shelf)
    read: can load (item) and READ (item)
    mark: {with: {other: [shelf, item]}, requires: can load (other)}
    write: WRITE (item)
"""


def test_changes_through_can_are_folded_into_the_changed_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    changed = NESTED.replace("load: READ (site)", "load: READ/WRITE (site)")
    changed = changed.replace("write: WRITE (item)", "write: READ (item)")
    gate = compared(load_program(write(tmp_path, NESTED)), load_program(write(tmp_path, changed)), FailingOn.WIDER)
    through = {"shelf/load", "item/load", "item/read", "item/mark"}
    assert {row.name for row in gate.blocking} == {"site/load", "item/write", *through}
    assert "6 not waived: item/write, site/load and 4 through `can`" in gate.says
    show_gate(gate)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    at = next(n for n, line in enumerate(lines) if line.startswith("site/load wider READ (site)"))
    assert lines[at + 1].startswith("and 4 through it item/{load, mark, read}, shelf/load")
    assert not any(line.startswith(("item/read", "shelf/load")) for line in lines)


def test_the_cause_of_a_difference_is_reported_where_the_cells_are_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    changed = NESTED.replace("tables:", "semantics: {inheritance: down}\ntables:")
    gate = compared(load_program(write(tmp_path, NESTED)), load_program(write(tmp_path, changed)), FailingOn.WIDER)
    show_gate(gate)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    at = next(n for n, line in enumerate(lines) if line.startswith("item/write wider WRITE (item) WRITE (item)"))
    assert lines[at + 1] == "by inheritance"


def test_a_row_is_listed_where_the_row_it_requires_passes_the_gate(tmp_path: Path) -> None:
    waiver = "waivers:\n  - {operation: site/load, change: wider, who: ada, why: writers too, until: 2026-02-01}\n"
    changed = NESTED.replace("load: READ (site)", "load: READ/WRITE (site)")
    before, after = (load_program(write(tmp_path, text)) for text in (NESTED, changed))
    gate = compared(before, after, FailingOn.WIDER, waiver)
    assert gate.outcome is GateStatus.FAILED
    assert {row.name for row in gate.blocking} == {"shelf/load", "item/load", "item/read", "item/mark"}
    assert "4 not waived" in gate.says


def test_types_come_in_the_same_order_on_both_sides(tmp_path: Path) -> None:
    unsorted = NESTED.replace("site", "zone")
    program = load_program(write(tmp_path, unsorted))
    running, shown = program_in(policy_artifacts(program).bundle(), "running")[0], comparable(program)
    assert list(shown.entities) == list(running.entities) == ["item", "shelf", "zone"]
    assert list(shown.rules) == list(running.rules)
    assert [r.requires_text for r in shown.rules.values()] == [r.requires_text for r in running.rules.values()]


def test_a_waiver_lets_through_until_its_day(tmp_path: Path) -> None:
    original = load_program(write(tmp_path))
    wider = load_program(write(tmp_path, POLICY.replace("read: READ (item)", "read: READ/WRITE (item)")))
    waiver = "waivers:\n  - {operation: item/read, change: wider, who: ada, why: writers read, until: %s}\n"
    good = compared(original, wider, FailingOn.WIDER, waiver % "2026-02-01")
    assert good.outcome is GateStatus.PASSED
    assert "(1 waived)" in good.says
    late = compared(original, wider, FailingOn.WIDER, waiver % "2025-12-31")
    assert late.outcome is GateStatus.FAILED
    assert [d.name for d in late.diagnostics] == ["expired-waiver"]


def test_an_empty_channel_has_nothing_to_compare(tmp_path: Path) -> None:
    gate = diff_gate(
        None, load_program(write(tmp_path)), fail_on=FailingOn.ANY, waivers=(), today=TODAY, shown="shop.yaml"
    )
    assert gate.outcome is GateStatus.PASSED


def test_a_gate_that_is_left_out_says_why() -> None:
    gate = skipped("tests", "they need the new state")
    assert gate.passed
    assert gate.record() == {"gate": "tests", "outcome": "skipped", "says": "left out: they need the new state"}
