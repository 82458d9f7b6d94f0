"""Policies with flat ids are compared as others; witnesses say where entities lie."""

from __future__ import annotations

from dataclasses import replace

import generated_programs
import pytest
import worlds
from seeds import seeds

from privtab.base import SourceFile
from privtab.ir import Program
from privtab.pipeline import load_program
from privtab.reference import Reference
from privtab_analysis.diff import RowChange, Verdict, diff
from privtab_analysis.diff.summary import holding_texts
from privtab_testing.scenarios.mutants import Mutants

POLICY = """
privtab: 1
system: drives
version: "1"
entities: {drive: {folder: {document: {comment:}}}}
types:
  folder: {nested: true, flat: true}
  document: {flat: true}
privileges: [READ, WRITE]
semantics: {inheritance: down, deny: overrides}
tables:
  document:
    read: READ (document)
    ping: anyone
    create: {requires: WRITE (folder), creates: true}
  comment:
    read: READ (comment)
"""


def program(*changes: tuple[str, str]) -> Program:
    text = POLICY
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return load_program(SourceFile.of("drives.yaml", text))


def rows(after: Program) -> dict[str, RowChange]:
    return {row.name: row for row in diff(program(), after).rows}


def test_witnesses_say_where_entities_lie() -> None:
    found = rows(
        program(("read: READ (document)", "read: READ (document) or WRITE (any folder)"), ("anyone", "READ (drive)"))
    )
    assert {name: row.verdict for name, row in found.items() if row.verdict is not Verdict.EQUAL} == {
        "document/read": Verdict.WIDER,
        "document/ping": Verdict.NARROWER,
    }
    [witness] = found["document/read"].witnesses
    assert str(witness.request.resource) == "document:document1"
    assert holding_texts(witness.state, witness.request) == [
        "alice holds WRITE on folder:folder1",
        "folder:folder1 lies in drive:drive1",
        "document:document1 lies in folder:folder1",
    ]


def test_calls_without_the_id_name_what_is_around() -> None:
    # Only calls without the id are valid on both sides of the second row; `creates` makes the first invalid.
    before = program(
        ("create: {requires: WRITE (folder), creates: true}", "list: {requires: WRITE (folder), each: READ (document)}")
    )
    after = program(
        (
            "create: {requires: WRITE (folder), creates: true}",
            "list: {requires: WRITE (parent) or READ (drive), each: READ (document) and WRITE (drive)}",
        )
    )
    [row] = [row for row in diff(before, after).rows if row.operation == "list"]
    resources = {witness.shows: str(witness.request.resource) for witness in row.witnesses}
    assert (row.verdict, resources) == (
        Verdict.INCOMPARABLE,
        {"wider": "document:folder:folder1/", "narrower": "document:document1"},
    )


@pytest.mark.parametrize(
    "changes",
    [
        (("document: {flat: true}", "document: {}"),),
        (
            ("{drive: {folder: {document: {comment:}}}}", "{drive: {folder: , document: {comment:}}}"),
            ("WRITE (folder)", "WRITE (drive)"),
        ),
    ],
)
def test_ids_and_places_that_changed_are_not_decided(changes: tuple[tuple[str, str], ...]) -> None:
    found = rows(program(*changes))
    assert {row.verdict for row in found.values()} == {Verdict.UNKNOWN}
    assert "type document" in found["document/read"].because
    kept = rows(program(("{comment:}", "{comment: , note:}")))
    assert {row.verdict for row in kept.values()} == {Verdict.EQUAL}


@pytest.mark.parametrize("seed", seeds(range(10), quick=1, full=2))
def test_verdicts_are_those_of_generated_states(seed: int) -> None:
    before = generated_programs.program(
        seed, "flat", *(("nested",) if seed % 2 else ()), *(("below",) if seed % 3 else ())
    )
    states = [worlds.state(before, seed * 100 + number) for number in range(4)]
    references = [Reference(before, state) for state in states]
    requests = worlds.requests(before, seed, 8)
    mutants = [m for rule in before.rules.values() for m in Mutants(before).of(rule)]
    for mutant in [m for m in mutants if m.change not in ("effect", "report") and m.rule.unnamed == m.original.unnamed][
        seed % 15 :: 15
    ]:
        key = mutant.rule.entity, mutant.rule.operation
        after = replace(before, rules={**before.rules, key: mutant.rule})
        [row] = [row for row in diff(before, after).rows if (row.entity, row.operation) == key]
        if row.verdict is Verdict.UNKNOWN:
            continue
        shown = {witness.shows for witness in row.witnesses}
        for state, reference in zip(states, references, strict=True):
            other = Reference(after, state)
            for request in requests:
                if (request.resource.type, request.action) == key:
                    was, now = reference.decide(request).allowed, other.decide(request).allowed
                    assert was is now or ("wider" if now else "narrower") in shown, (mutant.text, request)
