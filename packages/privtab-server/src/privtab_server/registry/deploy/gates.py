"""Gates before a release: findings, scenarios, and changes relative to the running policy."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from privtab.base import Diagnostic, Severity, count, load_plugin
from privtab.ir import Program
from privtab.pipeline import resolve_policy
from privtab.state import State
from privtab_analysis.diff import comparable, diff
from privtab_analysis.diff.nodes import OPERATION_VERDICTS, DeclarationChange, Diff, RowChange, Verdict, Waiver
from privtab_analysis.diff.summary import diff_json, folded
from privtab_analysis.diff.waivers import apply_waivers, failing
from privtab_analysis.state_diff import StateDiff, state_diff
from privtab_analysis.state_diff.summary import headline, state_diff_json, totals

Name = Literal["lint", "tests", "diff", "state", "replay"]


class GateStatus(StrEnum):
    """The outcome of a gate."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class FailingOn(StrEnum):
    """The changes that stop a deployment unless they are waived."""

    WIDER = "wider"
    ANY = "any"
    NONE = "none"

    @property
    def verdicts(self) -> frozenset[Verdict]:
        """The verdicts that stop. `incomparable` is wider for some requests, and `unknown` may be."""
        match self:
            case FailingOn.WIDER:
                return frozenset({Verdict.WIDER, Verdict.INCOMPARABLE, Verdict.UNKNOWN})
            case FailingOn.ANY:
                return frozenset(OPERATION_VERDICTS) - {Verdict.EQUAL}
            case FailingOn.NONE:
                return frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """The result of a gate: its outcome, a line of text, and its findings."""

    name: Name
    outcome: GateStatus
    says: str
    seconds: float = 0.0
    diagnostics: tuple[Diagnostic, ...] = ()
    failures: tuple[Any, ...] = ()
    diff: Diff | None = None
    blocking: tuple[RowChange, ...] = ()
    """The changes that stopped it."""
    state: StateDiff | None = None
    """The difference between the running state and the new one."""

    @property
    def passed(self) -> bool:
        """Return whether the deployment may continue."""
        return self.outcome is not GateStatus.FAILED

    def record(self) -> dict[str, Any]:
        """The result without its details, as JSON."""
        return {"gate": self.name, "outcome": str(self.outcome), "says": self.says}

    def json(self) -> dict[str, Any]:
        """The complete result as JSON."""
        return self.record() | {
            "seconds": round(self.seconds, 3),
            "findings": [
                {
                    "code": d.code,
                    "severity": str(d.severity),
                    "message": d.message,
                    "path": d.span.path,
                    "line": d.span.line,
                }
                for d in self.diagnostics
            ],
            "failures": [
                {"case": f.case.name, "engine": f.engine, "fault": f.fault, "expected": f.expected, "got": f.got}
                for f in self.failures
            ],
            "diff": None if self.diff is None else diff_json(self.diff),
            "state": None if self.state is None else state_diff_json(self.state),
        }


def lint_gate(policy: Path, *, variant: str | None, readings: dict[str, str]) -> tuple[Gate, Program | None]:
    """The findings of `privtab lint`; fails if it would."""
    started = time.perf_counter()
    checked = resolve_policy(policy, variant=variant, readings=readings).check()
    findings = checked.findings.kept
    fatal = [d for d in findings if checked.settings.fails(d.severity) or d.severity is Severity.ERROR]
    summary = count(len(fatal), "finding") if fatal else count(len(findings), "finding") + " that may stay"
    gate = Gate(
        name="lint",
        outcome=GateStatus.FAILED if fatal or checked.program is None else GateStatus.PASSED,
        says=(summary if findings else "no finding") + checked.settings.shown,
        seconds=time.perf_counter() - started,
        diagnostics=tuple(fatal or findings),
    )
    return gate, checked.program


def test_gate(
    policy: Path, *, variant: str | None, readings: dict[str, str], engine: Literal["reference", "opa", "both"]
) -> Gate:
    """The scenarios beside the policy, as in `privtab test`; fails if there are none."""
    started = time.perf_counter()
    case_count, failed = load_plugin("privtab.gates", "test").failed_cases(policy, variant, readings, engine)
    says = count(case_count, "case") + (" answered as expected" if not failed else f", {len(failed):,} failed")
    none = "there are no scenarios for this policy: write some, or deploy with `--accept untested=WHY`"
    return Gate(
        name="tests",
        outcome=GateStatus.FAILED if failed or not case_count else GateStatus.PASSED,
        says=says if case_count else none,
        seconds=time.perf_counter() - started,
        failures=tuple(failed),
    )


test_gate.__test__ = False  # type: ignore[attr-defined]  # pytest takes every `test_…` that a test imports for one


def diff_gate(
    running: tuple[Program, str] | None,
    program: Program,
    *,
    fail_on: FailingOn,
    waivers: Sequence[Waiver],
    today: date,
    shown: str,
) -> Gate:
    """The changes for callers. `running`: the channel's current program and its name, None if it has none."""
    started = time.perf_counter()
    if running is None:
        return Gate(name="diff", outcome=GateStatus.PASSED, says="nothing runs yet: there is nothing to compare with")
    running_program, name = running
    found = diff(running_program, comparable(program), shown=(name, shown))
    [compared], diagnostics = apply_waivers([found], waivers, today)
    verdicts = fail_on.verdicts
    blocking = tuple(row for row in compared.changes if row.verdict in verdicts and row.waived is None)
    failed = failing(compared, verdicts) or bool(blocking)
    return Gate(
        name="diff",
        outcome=GateStatus.FAILED if failed else GateStatus.PASSED,
        says=_changes(compared, blocking),
        seconds=time.perf_counter() - started,
        # A waiver for another change is no error here: one file serves all systems.
        diagnostics=tuple(d for d in diagnostics if d.name != "unused-waiver"),
        diff=compared,
        blocking=blocking,
    )


def state_gate(compared: Diff | None, *, keep: str | None, in_shards: bool, sharded: bool) -> Gate | None:
    """Check that the running state still fits: its index depends on declarations of the policy. None if nothing changed.

    `keep`: the reason to keep it anyway. `in_shards`: whether the running state is sharded; `sharded`: whether the policy
    reads a sharded one. If these differ, the policy cannot read the state.
    """
    if in_shards != sharded:
        is_, do = ("in shards", "deploy with `--sharded`") if in_shards else ("whole", "leave `--sharded` off")
        says = f"the state that runs is {is_}: {do}, or give `--state`"
        return Gate(name="state", outcome=GateStatus.FAILED, says=says)
    changed = [declared for declared in compared.declared if _affects_index(declared)] if compared is not None else []
    if not changed:
        return None
    names = _first([f"{declared.kind} {declared.name}" for declared in changed])
    if keep is not None:
        return Gate(name="state", outcome=GateStatus.SKIPPED, says=f"kept though {names} changed: {keep}")
    says = f"the state that runs was made with another {names}: pack it again with `--state`"
    return Gate(name="state", outcome=GateStatus.FAILED, says=says)


def state_diff_gate(
    program: Program,
    before: State,
    after: State,
    *,
    fail_on: FailingOn,
    accepted: str | None,
    tell: Callable[[int, int], None] | None = None,
) -> Gate:
    """Compare what users gain and lose by the new state, under the new policy. `accepted`: the reason to release it anyway."""
    started = time.perf_counter()
    found = state_diff(program, before, after, tell=tell)
    gained, lost = (totals(found, gained=gained) for gained in (True, False))
    says = "; ".join(
        [headline(found), *([gained.text("gained"), lost.text("lost"), *found.notes] if found.rows else ())]
    )
    # A difference that was not compared completely may be wider.
    stops = bool(found.undecided)
    match fail_on:
        case FailingOn.WIDER:
            stops = stops or gained.sensitive > 0
        case FailingOn.ANY:
            stops = stops or bool(found.access)
        case FailingOn.NONE:
            stops = False
    outcome = GateStatus.PASSED
    if stops:
        outcome = GateStatus.FAILED if accepted is None else GateStatus.SKIPPED
        says += f": {accepted}" if accepted is not None else "; not compared completely" if found.undecided else ""
    return Gate(name="state", outcome=outcome, says=says, seconds=time.perf_counter() - started, state=found)


def _affects_index(change: DeclarationChange) -> bool:
    """Return whether a changed declaration affects the index of a state. A state cannot use a name that is new."""
    return change.meaning and (change.verdict is not Verdict.ADDED or change.kind in {"role", "semantics"})


def skipped(name: Name, why: str) -> Gate:
    """A skipped gate, with the reason given."""
    return Gate(name=name, outcome=GateStatus.SKIPPED, says=f"left out: {why}")


def _changes(compared: Diff, blocking: Sequence[RowChange]) -> str:
    """`2 wider, 1 added (1 waived); 1 stops: table/load`."""
    counts = {verdict: compared.count(verdict) for verdict in OPERATION_VERDICTS if verdict is not Verdict.EQUAL}
    waived = sum(row.waived is not None for row in compared.rows)
    text = ", ".join(f"{number} {verdict}" for verdict, number in counts.items() if number) or "no operation changed"
    text += " (not decided within the budget)" if compared.count(Verdict.UNKNOWN) else ""
    text += f" ({waived} waived)" if waived else ""
    if not blocking:
        return text
    roots = [root.row.name for root in folded(blocking)]
    indirect = len(blocking) - len(roots)
    through = f" and {indirect} through `can`" if indirect else ""
    return f"{text}; {len(blocking)} not waived: {_first(roots)}{through}"


def _first(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
