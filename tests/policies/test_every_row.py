"""Every row of each shipped policy, tested with its minimal sets on both engines.

Each minimal set allows; the same set with one atom taken away denies; an empty state denies.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import requests as http
from engine_agreement import ask, put_state, serving
from row_cases import Case, Rows, cases

from privtab import pipeline
from privtab.ir.nodes import Program
from privtab.reference.evaluate import Reference

POLICIES = pipeline.find_policies([Path(__file__).parents[2] / "policy_src"])


def answers(program: Program, text: str, opa: Path) -> Mapping[str, list[tuple[Case, bool, bool]]]:
    """By rule: each case with the answers of the reference and of OPA."""
    rows = Rows()
    every_case = list(cases(program, rows))
    state = rows.state()
    with serving([text], opa) as (url, [world]), http.Session() as session:
        put_state(session, url, world.program, state)
        sent = {"requests": [case.request.to_json() for case in every_case]}
        from_opa = ask(session, url, world.program.system, "decisions", sent)
    reference = Reference(program, state)
    found: dict[str, list[tuple[Case, bool, bool]]] = {}
    for case, answer in zip(every_case, from_opa, strict=True):
        found.setdefault(case.rule, []).append((case, reference.decide(case.request).allowed, answer))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("path", POLICIES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_minimal_sets_allow_and_nothing_less_does(path: Path, opa_binary: Path) -> None:
    program = pipeline.load_program(path)
    found = answers(program, path.read_text(encoding="utf-8"), opa_binary)
    assert found.keys() == {rule.id for rule in program.rules.values()}
    for rule, of_rule in found.items():
        without_denials = all("nothing held" in case.description for case, _, _ in of_rule)
        assert without_denials or any(not case.allowed for case, _, _ in of_rule), rule
    wrong = [
        f"{rule}, {case.description}: {case.request.to_json()} must be {case.allowed}; reference {reference}, OPA {opa}"
        for rule, of_rule in found.items()
        for case, reference, opa in of_rule
        if not case.allowed == reference == opa
    ]
    assert not wrong, "\n".join(wrong)
