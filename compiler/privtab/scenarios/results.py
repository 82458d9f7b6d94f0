"""What came of the cases of one subject: which were answered wrongly, what they prove and what they would not notice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from privtab.ir.explain import source_text
from privtab.ir.nodes import Rule
from privtab.scenarios.nodes import Case, Plan
from privtab.scenarios.rows import row_lines
from privtab.scenarios.run import Failure, reasons


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The outcome for one plan."""

    plan: Plan
    asked: tuple[Case, ...]
    failures: tuple[Failure, ...]
    stopped: bool = False
    """Whether a failure ended the run before all was asked."""

    @property
    def passed(self) -> int:
        """How many cases were answered as they must be."""
        return len(self.asked) - len({id(failure.case) for failure in self.failures})

    def rule(self, case: Case) -> Rule:
        """The rule that a case asks."""
        return self.plan.program.rules[case.request.resource.type, case.request.action]


def result_json(result: Result) -> dict[str, Any]:
    """A result for programs."""
    subject = result.plan.subject
    return {
        "policy": subject.policy.as_posix(),
        "system": result.plan.program.system,
        "version": result.plan.program.version,
        "variant": subject.variant,
        "readings": dict(subject.readings),
        "files": list(result.plan.files),
        "cases": len(result.asked),
        "passed": result.passed,
        "failures": [failure_json(result, failure) for failure in result.failures],
    }


def failure_json(result: Result, failure: Failure) -> dict[str, Any]:
    """A failure for programs: the case and its place, what was expected and came, and the row that decided."""
    case = failure.case
    context = failure.decision.context
    return {
        "name": case.name,
        "kind": case.kind,
        "path": case.span.path,
        "line": case.span.line,
        "column": case.span.column,
        "request": case.request.to_json(),
        "holds": case.holds,
        "why": case.why,
        "fault": failure.fault,
        "engine": failure.engine,
        "expected": failure.expected,
        "got": failure.got,
        "missing": context.get("missing", []),
        "reasons": context.get("reasons", []),
        "row": row_json(result.rule(case)),
    }


def row_json(rule: Rule) -> Mapping[str, Any]:
    """The row of a rule: its id, its place, its text and its source."""
    return {
        "rule": rule.id,
        "path": rule.span.path,
        "line": rule.span.line,
        "text": "\n".join(row_lines(rule.span)),
        "source": source_text(rule.source),
    }


def because(failure: Failure) -> str:
    """Why the answer is what it is, in one line: by what it was allowed, or what would have been enough."""
    if failure.decision.allowed:
        given = "; ".join(map(str, reasons(failure.decision)))
        return f"allowed by {given}" if given else "anyone may"
    ways = [" and ".join(atoms) for atoms in failure.decision.missing]
    return f"missing {', or '.join(ways)}" if ways else "no way leads to an allow"
