"""Plans: every cell and every fault has a question, in a world in which each has its answer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from privtab.base import Span
from privtab.ir import Program, vocabulary
from privtab.pipeline import load_program
from privtab.reference import Reference
from privtab_testing.conform import Question, QuestionPlan
from privtab_testing.conform.plan import PREFIX, plan
from privtab_testing.conform.worlds import needed_world
from privtab_testing.scenarios import Case, Expected, Subject
from privtab_testing.scenarios import CasePlan as Cases
from privtab_testing.scenarios.prove import coverage, observe, score

LIBRARY = """\
privtab: 1
system: library
version: "1"
entities: {folder: {page:}, reader:}
types: {reader: {principal: user}}
privileges: [READ, WRITE, DELETE]
semantics: {inheritance: down, deny: overrides, owner: {creator: true}, gate: READ (folder) or owner (folder)}
tables:
  folder:
    open: {requires: anyone, gate: none}
  page:
    create: WRITE (folder)
    list: {each: READ (page)}
    read: READ (page) or owner (page)
    copy: {with: {to: folder}, requires: "READ (page) and WRITE (to) and (owner (to) when replace)"}
    rename: {requires: owner (page), gate: none}
    delete: DELETE (page)
  reader:
    greet: {requires: self or READ (reader), gate: none}
"""


SHELVES = """\
privtab: 1
system: shelves
version: "1"
entities: {store: {shelf: {box: {item: }, label: }}}
types: {shelf: {nested: true}, label: {single: true}}
privileges: [READ, WRITE]
semantics: {inheritance: down, deny: overrides, owner: {kinds: [user], holds: [WRITE], creator: true}}
tables:
  shelf:
    add: {requires: WRITE (parent), creates: true}
    list: {requires: READ (parent), each: READ/WRITE (shelf)}
    rename: owner (any shelf)
  box:
    open: READ (every shelf) or owner (first shelf)
    put: {with: {to: shelf}, requires: WRITE (box) and READ (to)}
  item:
    take: READ (item) and can open (box)
"""
"""A type nests."""

VISIBLE = """\
privtab: 1
system: visible
version: "1"
entities: {store: {shelf: {box: {item: }, label: }}}
types: {label: {single: true}}
privileges: [READ, WRITE]
semantics: {inheritance: down, deny: overrides, owner: {kinds: [user], holds: [WRITE], creator: true}}
tables:
  store:
    browse: READ (store or below)
    visit: owner (store or below)
  shelf:
    add: {requires: READ (store or below) and WRITE (store), creates: true}
    list: {each: READ/WRITE (shelf or below)}
  box:
    put: {with: {to: shelf}, requires: "WRITE (box) and (READ (to or below) or owner (to or below))"}
  item:
    take: READ (item) and can list (shelf)
"""
"""Conditions are about what lies below."""
NESTED = VISIBLE.replace("types: {", "types: {shelf: {nested: true}, ").replace(
    "{each: READ/WRITE (shelf or below)}",
    "{requires: READ (parent or below), each: READ/WRITE (shelf or below) or owner (first shelf or below)}",
)
"""Both."""
COMPARED = """\
privtab: 1
system: compared
version: "1"
entities: {store: {shelf: {item: }}}
privileges: [READ]
attributes:
  user: {rank: {integer: [0, 9], from: [state, request]}, badges: {set: [red, blue]}, team: text}
  entity:
    color: {enum: [red, blue, gray], on: [shelf, item]}
    team: {text: true, on: [item]}
    size: {integer: [0, 5], on: [item], from: [state, request]}
  request: {mfa: bool}
semantics: {inheritance: down, deny: overrides, owner: {kinds: [user]}}
tables:
  shelf:
    open: {requires: request.mfa, each: shelf.color = red or READ (shelf)}
  item:
    add: {requires: READ (shelf) and shelf.color = gray, creates: true}
    look: READ (item) and user.team = entity.team
    see: entity.color in {red, gray} or user.rank > 3
    sell: entity.color in user.badges and request.mfa
    sort: user.rank <= entity.size and user.team in {one, two}
    move: {with: {to: item}, requires: "user.rank >= 2 and (READ (to) or to.color = red and to.team = entity.team)"}
"""
"""Attributes of users, entities, objects and requests are compared."""
SEMANTICS = "inheritance: down, deny: overrides, owner: {kinds: [user], holds: [WRITE], creator: true}"
OTHER_SEMANTICS = (
    SEMANTICS,
    SEMANTICS.replace("down", "none"),
    SEMANTICS.replace("overrides", "none"),
    SEMANTICS.replace(" holds: [WRITE],", ""),
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Program:
    path = tmp_path_factory.mktemp("library") / "library.yaml"
    path.write_text(LIBRARY, encoding="utf-8")
    return load_program(path)


def written(folder: Path, text: str, semantics: str = SEMANTICS) -> Program:
    """The program of a policy with other semantics."""
    path = folder / "policy.yaml"
    path.write_text(text.replace(SEMANTICS, semantics), encoding="utf-8")
    return load_program(path)


def as_cases(planned: QuestionPlan) -> Cases:
    """The questions as scenario cases, for the coverage and the mutation score of `privtab test`."""
    nowhere = Span(path="", line=1, column=1, end_line=1, end_column=1)

    def case(question: Question) -> Case:
        expected = Expected(allowed=question.expected)
        return Case(name=question.id, kind="case", world=0, request=question.request, expected=expected, span=nowhere)

    return Cases(
        subject=Subject(policy=Path("none.yaml")),
        program=planned.program,
        worlds=(planned.world.state,),
        cases=tuple(map(case, planned.questions)),
        rules=planned.program.rules,
    )


def everything_is_proved(planned: QuestionPlan) -> None:
    cases = as_cases(planned)
    observed = observe(cases, cases.cases)
    covered = coverage(cases, observed)
    assert [cell.text for cell in covered.untested] == []
    assert len(planned.cells) == len(covered.cells), "a cell is what coverage counts"
    survived = [
        f"{m.original.id}: {m.text}" for m in score(cases, observed).survived if m.change not in ("effect", "report")
    ]
    assert survived == []


def test_every_cell_and_every_fault_of_a_small_policy_has_a_question(library: Program) -> None:
    planned = plan(library)
    assert not planned.undecided
    everything_is_proved(planned)
    assert len(planned.questions) <= 3 * len(planned.cells)


@pytest.mark.parametrize(
    "semantics", OTHER_SEMANTICS, ids=["as written", "no inheritance", "no denials", "idle owners"]
)
@pytest.mark.parametrize(
    "text",
    [SHELVES, VISIBLE, pytest.param(NESTED, marks=pytest.mark.long)],
    ids=["levels", "below", "both"],
)
def test_levels_and_things_below_are_in_the_proof(tmp_path: Path, text: str, semantics: str) -> None:
    planned = plan(written(tmp_path, text, semantics), abilities=None)
    assert not planned.undecided
    everything_is_proved(planned)


def test_comparisons_of_attributes_are_in_the_proof(tmp_path: Path) -> None:
    planned = plan(written(tmp_path, COMPARED))
    assert not planned.undecided
    everything_is_proved(planned)
    given = [question.request.attributes for question in planned.questions]
    assert {kind for values in given for kind, *_ in values.each()} == {"entity", "request"}
    assert {row.attribute for row in planned.world.state.attributes} == {"rank", "badges", "team", "color"}


def test_rows_that_compare_what_cannot_be_given_are_named(tmp_path: Path) -> None:
    program = written(tmp_path, COMPARED + "    list: READ (item)\n")
    planned = plan(program, attributes=False)
    compares = "it compares attributes, which the driver cannot give"
    assert dict(planned.undecided) == {rule.id: compares for rule in program.rules.values() if rule.operation != "list"}
    assert {question.row for question in planned.questions} == {"item/list"}


def test_each_level_of_a_nested_type_has_questions(tmp_path: Path) -> None:
    planned = plan(written(tmp_path, SHELVES))
    for row in ("shelf/rename", "shelf/add", "box/open"):
        levels = {(q.request.resource.id.count("/"), q.expected) for q in planned.questions if q.row == row}
        lowest = min(number for number, _ in levels)
        assert levels == {(lowest + level, expected) for level in range(3) for expected in (True, False)}
    purposes = {question.purpose for question in planned.questions if question.row == "shelf/list"}
    assert any("inherits READ (shelf:s/sh/she/shel) from shelf:s/sh" in purpose for purpose in purposes)


def test_entities_below_are_created_and_have_questions(tmp_path: Path) -> None:
    planned = plan(written(tmp_path, VISIBLE))
    browsing = [question for question in planned.questions if question.row == "store/browse"]
    answers = {question.purpose: question.expected for question in browsing}
    assert answers["held below, on an entity `item` in a `box`"] is True
    assert answers["held elsewhere, on an entity `item` in a `box`"] is False
    assert any(purpose.startswith("denied READ (box:") and not allowed for purpose, allowed in answers.items())
    granted = {str(grant.entity) for grant in planned.world.state.grants}
    assert {key.partition(":")[0] for key in granted} >= {"store", "shelf", "box", "item"}
    assert {key for key in granted if not key.startswith("label:")} <= set(map(str, planned.world.entities))


@pytest.mark.parametrize(
    "policy", ["cdap/final", "cdap/manual", "streams/teracloud", pytest.param("polaris/1.7", marks=pytest.mark.long)]
)
def test_every_cell_and_every_fault_of_a_shipped_policy_has_a_question(policy: str) -> None:
    planned = plan(load_program(policy), abilities=None)
    everything_is_proved(planned)
    assert len(planned.questions) <= 3 * len(planned.cells)


@pytest.mark.long
def test_every_cell_and_every_fault_of_the_largest_shipped_policy_has_a_question() -> None:
    planned = plan(load_program("gravitino/1.1.0"), abilities=None)
    everything_is_proved(planned)
    assert len(planned.questions) <= 3 * len(planned.cells)


def test_the_smallest_world_of_a_question_gives_its_answer(library: Program) -> None:
    planned = plan(library)
    whole = Reference(library, planned.world.state)
    for question in planned.questions:
        assert Reference(library, question.state).decide(question.request).allowed is question.expected
        assert whole.decide(question.request).allowed is question.expected


@pytest.mark.parametrize(
    "text", [LIBRARY, SHELVES, VISIBLE, COMPARED], ids=["library", "levels", "below", "attributes"]
)
def test_the_world_of_one_question_suffices_for_its_answer(tmp_path: Path, text: str) -> None:
    planned = plan(written(tmp_path, text))
    whole = set(map(str, planned.world.entities))
    keys = vocabulary(planned.program).keys
    for question in planned.questions:
        world = needed_world(planned, [question])
        assert Reference(planned.program, world.state).decide(question.request).allowed is question.expected
        assert question.request.user in world.users
        about = {
            key for entity in (question.request.resource, *question.request.with_.values()) for key in keys(entity)
        }
        created = {str(question.request.resource)} if question.rule.creates else set()
        assert (about & whole) - created <= set(map(str, world.entities))
    assert needed_world(planned, planned.questions) == planned.world


def test_inheritance_from_each_level_and_each_denial_have_questions(library: Program) -> None:
    purposes = {question.purpose for question in plan(library).questions if question.row == "page/read"}
    assert "inherits READ (page:f/p) from folder:f" in purposes
    assert {"denied READ (page:f/p)", "denied READ (folder:f)"} <= purposes
    assert "through a role" in purposes
    renaming = {question.purpose for question in plan(library).questions if question.row == "page/rename"}
    assert "owner of folder:f, not of page:f/p" in renaming


def test_every_name_begins_with_the_prefix(library: Program) -> None:
    planned = plan(library)
    world = planned.world
    names = {*world.users, *world.groups, *world.roles, *(name for entity in world.entities for name in entity.names)}
    assert names
    assert all(name.startswith(PREFIX) for name in names)
    assert all(question.request.user.startswith(PREFIX) for question in planned.questions)


def test_callers_who_hold_the_same_are_one_user(library: Program) -> None:
    planned = plan(library)
    assert len(planned.world.users) < len(planned.questions)


def test_no_entity_has_two_owners(library: Program) -> None:
    owned = [str(entity) for entity, _ in plan(library).world.state.owners]
    assert len(owned) == len(set(owned)), "most systems know only one owner of an entity"


def test_questions_that_change_something_come_last_on_an_entity_of_their_own(library: Program) -> None:
    planned = plan(library, changes=lambda rule: rule.operation == "delete")
    last = [question.row == "page/delete" for question in planned.questions]
    assert last == sorted(last)
    deleted = [str(q.request.resource) for q in planned.questions if q.row == "page/delete"]
    others = {str(q.request.resource) for q in planned.questions if q.row != "page/delete"}
    assert len(set(deleted)) == len(deleted)
    assert not others & set(deleted)
    existing = {str(entity) for entity in planned.world.entities}
    assert set(deleted) <= existing


def test_entities_to_be_created_do_not_exist_before(library: Program) -> None:
    planned = plan(library, changes=lambda rule: rule.creates is not None)
    existing = {str(entity) for entity in planned.world.entities}
    created = {str(q.request.resource) for q in planned.questions if q.row == "page/create" and q.named}
    assert created
    assert not created & existing


def test_the_same_program_has_the_same_plan(library: Program) -> None:
    assert plan(library) == plan(library)


def test_a_plan_is_the_same_in_every_process(tmp_path: Path) -> None:
    """So that answers are kept for `--resume`, and a state that was written is that of the test."""
    path = tmp_path / "policy.yaml"
    path.write_text(LIBRARY, encoding="utf-8")
    code = "import sys; from privtab_testing.conform.plan import plan; from privtab.pipeline import load_program; "
    code += "found = plan(load_program(sys.argv[1])); print(found.digest, found.world)"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code, str(path)],
            check=True,
            capture_output=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(outputs) == 1


def test_the_callers_of_another_plan_have_other_names_if_the_state_is_kept(library: Program) -> None:
    users = {question.request.user for question in plan(library, marked=True).questions}
    others = plan(library, marked=True, rows=lambda rule: rule.operation != "read").questions
    assert users == {question.request.user for question in plan(library, marked=True).questions}
    assert not users & {question.request.user for question in others}
    assert all(user.startswith(PREFIX) for user in users)


def test_only_selected_rows_have_questions(library: Program) -> None:
    planned = plan(library, rows=lambda rule: rule.operation == "read")
    assert {question.row for question in planned.questions} == {"page/read"}
