"""The gate of deployments that runs the scenarios beside a policy."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

from privtab.pipeline import ChosenPolicy
from privtab_testing.scenarios.collect import plans
from privtab_testing.scenarios.run import Engine, Failure, ReferenceEngine, failures, opa


def failed_cases(
    policy: Path, variant: str | None, readings: Mapping[str, str], engine: Literal["reference", "opa", "both"]
) -> tuple[int, list[Failure]]:
    """Run the cases for a variant and readings of a policy: their number, and the failed cases. Raises PolicyInvalid."""
    case_count, failed = 0, list[Failure]()
    for plan in plans([str(ChosenPolicy(str(policy), variant, readings))]):
        if plan.subject.variant != variant or not plan.cases:
            continue
        with ExitStack() as stack:
            engines: list[Engine] = [] if engine == "opa" else [ReferenceEngine(plan.program)]
            engines += [] if engine == "reference" else [stack.enter_context(opa(plan.program))]
            failed += failures(plan, plan.cases, engines)
            case_count += len(plan.cases)
    return case_count, failed
