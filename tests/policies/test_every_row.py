"""Every row of each shipped policy, tested with its minimal sets on every engine.

Each minimal set allows; the same set with one atom taken away denies; an empty state denies.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import requests as http
from engine_agreement import ask, put_state, serving
from row_cases import Case, Rows, cases
from shipped_policies import by_release
from wasm_engine import WasmEngine

from privtab import pipeline
from privtab.engines.index import Index
from privtab.engines.python import PythonEngine
from privtab.ir.nodes import Program
from privtab.pipeline import policy_artifacts
from privtab.reference.evaluate import Reference
from privtab.state.index import index_document

MANY = 3_000
"""Cases of a policy, of which each third or fourth is asked about, with all in which nothing is held; long tests ask about all."""


def answers(
    program: Program, text: str, opa: Path, *, whole: bool
) -> Mapping[str, list[tuple[Case, Mapping[str, bool]]]]:
    """By rule: each case with the answers of the reference, OPA and each engine in process, by name."""
    rows = Rows()
    every_case = list(cases(program, rows))
    apart = 1 if whole else len(every_case) // MANY + 1
    every_case = [
        case for number, case in enumerate(every_case) if number % apart == 0 or "nothing held" in case.description
    ]
    state = rows.state()
    with serving([text], opa) as (url, [world]), http.Session() as session:
        put_state(session, url, world.program, state)
        sent = {"requests": [case.request.to_json() for case in every_case]}
        by_engine = {"opa": ask(session, url, world.program.system, "decisions", sent)}
    requests = [case.request for case in every_case]
    by_engine["python"] = PythonEngine(
        policy_artifacts(program).program, Index(index_document(program, state))
    ).allow_many(requests)
    by_engine["wasm"] = WasmEngine(program, state, opa).allow_many(requests)
    reference = Reference(program, state)
    by_engine["reference"] = [reference.decide(request).allowed for request in requests]
    found: dict[str, list[tuple[Case, Mapping[str, bool]]]] = {}
    for number, case in enumerate(every_case):
        found.setdefault(case.rule, []).append((case, {name: by[number] for name, by in by_engine.items()}))
    return found


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.long)], ids=["some", "whole"])
@pytest.mark.parametrize("path", by_release())
def test_minimal_sets_allow_and_nothing_less_does(path: Path, whole: bool, opa_binary: Path) -> None:
    program = pipeline.load_program(path)
    found = answers(program, path.read_text(encoding="utf-8"), opa_binary, whole=whole)
    assert found.keys() == {rule.id for rule in program.rules.values()}
    for rule, of_rule in found.items():
        for_anyone = any("nothing held" in case.description and case.allowed for case, _ in of_rule)
        assert (
            for_anyone
            or all("nothing held" in case.description for case, _ in of_rule)
            or any(not case.allowed for case, _ in of_rule)
        ), rule
    wrong = [
        f"{rule}, {case.description}: {case.request.to_json()} must be {case.allowed}; {answered}"
        for rule, of_rule in found.items()
        for case, answered in of_rule
        if any(answer != case.allowed for answer in answered.values())
    ]
    assert not wrong, "\n".join(wrong)
