"""Who may do one operation on one entity: the users whom the reference allows it, whatever was asked before."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace

import generated_programs
import pytest
import worlds

from privtab.engines import Index, RowEngine
from privtab.ir import Program
from privtab.pipeline import policy_artifacts
from privtab.reference import Reference
from privtab.state import State, index_document
from privtab_analysis.entitlements import evaluator
from privtab_analysis.entitlements.evaluator import Evaluator
from privtab_analysis.entitlements.request_forms import RequestForms
from privtab_analysis.entitlements.rows import satisfied_sets
from privtab_analysis.entitlements.subjects import Subject, Subjects
from privtab_analysis.entitlements.universe import users
from privtab_analysis.principals import who_can

FEATURES: Sequence[tuple[str, ...]] = (
    (),
    ("implies", "below", "hierarchy"),
    ("attributes",),
    ("nested", "implies", "hierarchy"),
    ("flat", "below"),
    ("flat", "nested", "attributes"),
)
STRANGER = "stranger"


def opened(program: Program, state: State, names: Sequence[str]) -> Evaluator:
    found = Index(index_document(program, state))
    found.everyone = tuple(program.semantics.everyones)
    subjects = [
        Subject(principal=f"user:{name}", user=name, principals=found.principals(name), scopes=found.scopes(name))
        for name in names
    ]
    engine = RowEngine(policy_artifacts(program).program, found)
    return Evaluator(RequestForms(engine), found, Subjects(subjects, found))


def check(seed: int) -> int:
    """Hold one world against the reference and `who-can`; how many requests there were."""
    program = generated_programs.program(seed, *FEATURES[seed % len(FEATURES)])
    state = worlds.state(program, seed)
    reference = Reference(program, state)
    names = sorted({*users(program, state), *worlds.USERS, STRANGER})
    rights = opened(program, state, names)
    requests = worlds.requests(program, seed, per_rule=2)
    for request in requests:
        given = replace(request, user="", groups=(), attributes=replace(request.attributes, user={}))
        question = rights.question(given)
        who = frozenset[int]() if question is None else rights.who(question)
        found = {names[number] for number in who}
        allowed = {name for name in names if reference.decide(replace(given, user=name)).allowed}
        assert found == allowed, (seed, request)
        by_rows = who_can(reference, state, given)
        assert by_rows.anyone == (STRANGER in found)
        assert set(by_rows.users) - {STRANGER} <= found
        if question is None or "minimal_cut" in question.form.rule:
            continue
        first = list(satisfied_sets(rights, question, who, every=False))
        assert sorted(number for way in first for number in way.subjects) == sorted(who)
        assert all(len(sources) == len(way.subjects) for way in first for sources in way.sources)
    return len(requests)


@pytest.mark.parametrize("seed", range(6))
def test_the_users_are_those_whom_the_reference_allows_it(seed: int) -> None:
    assert check(seed)


@pytest.mark.slow
def test_what_was_worked_out_before_changes_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    for most, few in ((evaluator.MOST_REMEMBERED, 0), (0, evaluator.FEW), (50, 1)):
        monkeypatch.setattr(evaluator, "MOST_REMEMBERED", most)
        monkeypatch.setattr(evaluator, "FEW", few)
        assert sum(check(seed) for seed in range(10, 12)) > 10


@pytest.mark.long
def test_many_worlds(search_seed: int) -> None:
    assert sum(check(seed) for seed in range(search_seed, search_seed + 200)) > 1_000


def test_the_room_needs_no_arrays() -> None:
    code = "import privtab_analysis.entitlements.rows, sys; sys.exit(bool({'numpy', 'pyarrow', 'pyspark'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
