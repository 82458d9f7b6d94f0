"""One test for each row of each shipped policy, generated from its minimal sets and run on both engines.

Each minimal set allows; the same set with one atom taken away denies; an empty state denies.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest
import requests as http
from engine_agreement import ask, put_state, serving
from row_cases import Case, Rows, cases

from privtab import pipeline
from privtab.ir.nodes import Program
from privtab.reference.evaluate import Reference

POLICIES = pipeline.find_policies([Path(__file__).parents[2] / "policy_src"])


@cache
def load(path: Path) -> Program:
    return pipeline.load_program(path)


@cache
def answers(path: Path, opa: Path) -> Mapping[str, list[tuple[Case, bool, bool]]]:
    """By rule: each case with the answers of the reference and of OPA."""
    rows = Rows()
    made = list(cases(load(path), rows))
    state = rows.state()
    with serving([path.read_text(encoding="utf-8")], opa) as (url, [world]), http.Session() as session:
        put_state(session, url, world.program, state)
        sent = {"requests": [case.request.to_json() for case in made]}
        from_opa = ask(session, url, world.program.system, "decisions", sent)
    reference = Reference(load(path), state)
    found: dict[str, list[tuple[Case, bool, bool]]] = {}
    for case, answer in zip(made, from_opa, strict=True):
        found.setdefault(case.rule, []).append((case, reference.decide(case.request).allowed, answer))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "rule"),
    [
        pytest.param(
            path,
            rule.id,
            id=f"{path.stem}:{rule.entity}/{rule.operation}",
            marks=pytest.mark.xdist_group(f"rows-{path.parent.name}-{path.stem}"),
        )
        for path in POLICIES
        for rule in load(path).rules.values()
    ],
)
def test_minimal_sets_allow_and_nothing_less_does(path: Path, rule: str, opa_binary: Path) -> None:
    of_rule = answers(path, opa_binary)[rule]
    assert any(not case.allowed for case, _, _ in of_rule) or all(
        "nothing held" in c.description for c, _, _ in of_rule
    )
    wrong = [
        f"{case.description}: {case.request.to_json()} must be {case.allowed}; reference {reference}, OPA {opa}"
        for case, reference, opa in of_rule
        if not case.allowed == reference == opa
    ]
    assert not wrong, "\n".join(wrong)
