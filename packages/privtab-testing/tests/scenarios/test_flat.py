"""Cells and faults of policies with flat ids."""

from __future__ import annotations

import dataclasses

import generated_programs
import pytest
import worlds
from seeds import seeds
from shop_policy import Reads

from privtab.base import Undecided
from privtab.reference import EvaluationContext, Reference
from privtab_testing.scenarios.masks import Observed
from privtab_testing.scenarios.mutants import Mutants
from privtab_testing.scenarios.prove import Scoring, coverage, observe, score, suggested

POLICY = """\
privtab: 1
system: shop
version: "1"
entities: {drive: {folder: {document: {comment:}}}}
types: {folder: {nested: true, flat: true}, document: {flat: true}}
privileges: [READ]
semantics: {inheritance: down, deny: overrides, owner: {kinds: [user]}}
tables:
  document:
    read: READ (document)
    ping: anyone
    create: {requires: owner (any folder), creates: true}
  comment:
    read: READ (comment) and owner (drive)
"""
CASES = """\
state:
  entities:
    - {entity: folder:f1, parent: "drive:main"}
    - {entity: folder:f9, parent: folder:f1}
    - {entity: document:d7, parent: folder:f9}
  grants:
    - {grantee: user:ann, effect: allow, privilege: READ, entity: folder:f1}
    - {grantee: user:ben, effect: allow, privilege: READ, entity: folder:f1}
    - {grantee: user:fay, effect: allow, privilege: READ, entity: "drive:main"}
    - {grantee: user:fay, effect: deny, privilege: READ, entity: document:d7}
  owners:
    - {entity: "drive:main", owner: user:ann}
    - {entity: "drive:main", owner: user:cem}
    - {entity: folder:f1, owner: user:dan}
    - {entity: folder:f9, owner: user:eve}
    - {entity: document:d7, owner: user:gus}
cases:
  - {user: ann, action: [read, ping], resource: document:d7, decision: allow}
  - {user: fay, action: read, resource: document:d7, decision: deny}
  - {user: zoe, action: [read, ping], resource: document:d8, decision: deny}
  - {user: zoe, action: read, resource: document:d7, decision: deny}
  - {user: dan, action: create, resource: "document:folder:f9/", decision: allow}
  - {user: eve, action: create, resource: "document:folder:f9/", decision: allow}
  - {user: ann, action: create, resource: "document:folder:f9/", decision: deny}
  - {user: zoe, action: create, resource: "document:folder:f9/", decision: deny}
  - {user: ann, action: read, resource: comment:d7/c, decision: allow}
  - {user: ben, action: read, resource: comment:d7/c, decision: deny}
  - {user: cem, action: read, resource: comment:d7/c, decision: deny}
  - {user: gus, action: read, resource: comment:d7/c, decision: deny}
  - {user: zoe, action: read, resource: comment:d7/c, decision: deny}
"""


def test_cases_prove_every_cell_and_show_faults(reads: Reads) -> None:
    plan = reads(CASES, POLICY)
    for case in plan.cases:
        assert Reference(plan.program, plan.worlds[case.world]).decide(case.request).allowed is case.expected.allowed, (
            case
        )
    observed = observe(plan, plan.cases)
    assert [cell.text for cell in coverage(plan, observed).untested] == []
    # The reference denies what lies nowhere, whatever a row says.
    ping = observed["document", "ping"]
    assert [case.request.user for number, case in enumerate(ping.cases) if ping.allowed >> number & 1] == ["ann"]
    survived = [mutant.text for mutant in score(plan, observed).survived]
    assert survived == ["`READ (document)` for `READ (comment)`"]


BELOW = (
    POLICY.partition("tables:")[0]
    + """\
tables:
  folder:
    add: {requires: READ (parent), creates: true}
    show: READ (first folder or below) or owner (folder or below)
  document:
    read: READ (document)
    create: {requires: owner (any folder), creates: true}
    put: {with: {to: folder}, requires: "READ (document) and READ (to or below)"}
  comment:
    list: {requires: READ (document), each: READ (comment) and owner (drive)}
"""
)


@pytest.mark.parametrize("text", [POLICY, BELOW], ids=["levels", "below"])
def test_needs_with_places_are_suggested(reads: Reads, text: str) -> None:
    start = CASES.partition("cases:")[0] + "needs: [{ask: read document:d7, by: READ (document:d7)}]\n"
    plan = reads(start, text)
    plan = reads(suggested(plan, coverage(plan, observe(plan, [])), None), text)
    for case in plan.cases:
        allowed = Reference(plan.program, plan.worlds[case.world]).decide(case.request).allowed
        assert allowed is case.expected.allowed, case
    assert coverage(plan, observe(plan, plan.cases)).untested == ()


@pytest.mark.parametrize("seed", seeds(range(20), quick=2, full=4))
def test_outcomes_are_the_reference_s_and_equivalent_mutants_differ_in_no_state(seed: int) -> None:
    program = generated_programs.program(seed, "flat", *(("nested",) if seed % 2 else ()))
    scoring = Scoring(program, program.rules, {})
    states = [worlds.state(program, seed * 100 + number) for number in range(3)]
    references = [Reference(program, state) for state in states]
    requests = worlds.requests(program, seed, 8)
    for key, rule in program.rules.items():
        asked = [r for r in requests if (r.resource.type, r.action) == key]
        pairs = [(request, reference) for request in asked for reference in references]
        observed = Observed(program, rule, (EvaluationContext(reference, request) for request, reference in pairs))
        decided = [reference.decide(request).allowed for request, reference in pairs]
        assert [bool(observed.allowed >> number & 1) for number in range(len(pairs))] == decided
        for mutant in list(Mutants(program).of(rule))[seed % 3 :: 3]:
            try:
                if mutant.change in ("effect", "report") or not scoring.is_equivalent(mutant):
                    continue
            except Undecided:
                continue
            changed = dataclasses.replace(program, rules={**program.rules, key: mutant.rule})
            for state, reference in zip(states, references, strict=True):
                other = Reference(changed, state)
                for request in asked:
                    if rule.unnamed == mutant.rule.unnamed:
                        answers = reference.decide(request).allowed, other.decide(request).allowed
                        assert answers[0] is answers[1], (mutant.text, request)
