"""Every kind of mistake that a policy allows, planted in a decision point, is found by the questions of a plan."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from functools import cache
from itertools import combinations

import pytest
from conforming_server import served, shipped_plan

from privtab.base import Request, SourceFile
from privtab.ir import Program
from privtab.pipeline import load_program
from privtab.reference import Reference
from privtab.state import from_tables, validate
from privtab_testing.conform import QuestionPlan, SystemAnswer, World
from privtab_testing.conform.driver import Driver, state_bytes
from privtab_testing.conform.formats import mistake_lines
from privtab_testing.conform.misreadings import Misreading, View
from privtab_testing.conform.mistakes import Mistake, mistakes
from privtab_testing.conform.plan import plan
from privtab_testing.conform.report import Report, report
from privtab_testing.conform.run import Settings, run

EVERYTHING = """\
privtab: 1
system: full
version: "1"
entities: {lake: {schema: {table: {column: }, view: }, settings: , user: , group: , role: }}
types: {settings: {single: true}, user: {principal: user}, group: {principal: group}, role: {principal: role}}
privileges:
  READ:
  WRITE:
  ALL: {implies: [READ, WRITE]}
  MANAGE: {on: [lake, schema, table]}
semantics:
  inheritance: down
  deny: overrides
  owner: {kinds: [user, group, role], creator: true, holds: [READ]}
  hierarchy: [groups, roles]
  groups: [state, request]
  active_roles: request
  gate: member (lake)
attributes:
  request: {mfa: bool}
tables:
  schema:
    list: {each: READ (schema)}
  table:
    read: READ (table)
    write: WRITE (table) and (MANAGE (schema) when force)
    move: {with: {to: schema}, requires: owner (table) and WRITE (to)}
    copy: {with: {to: table}, requires: READ (table) and WRITE (to)}
    drop: {requires: "owner (table, schema) or service admin", destructive: true}
    grant: {requires: MANAGE (table) and request.mfa}
    peek: READ (table or below)
  view:
    read: READ (view) or owner (view)
    keep: owner (view or below)
  column:
    read: READ (column)
  settings:
    change: WRITE (settings) or MANAGE (lake)
  user:
    show: self or MANAGE (lake)
  role:
    take: holds (role) or owner (role)
"""
LISTED = 84
"""What EVERYTHING allows of all kinds; the others need that nothing is inherited, types that nest, and roles with default grants."""
MOST = 4


class Mistaken(Driver):
    """A system that decides by the prepared state, with a mistake."""

    def __init__(self, program: Program, mistake: Mistake) -> None:
        self._program, self._mistake = program, mistake

    def prepare(self, world: World) -> None:
        self._answers = self._mistake.answers(View(self._program, world.state, world.entities))

    def ask(self, request: Request) -> SystemAnswer:
        return SystemAnswer.ALLOWED if self._answers(request) else SystemAnswer.REFUSED

    def clean(self) -> tuple[str, ...]:
        return ()


def report_of(planned: QuestionPlan, driver: Driver) -> Report:
    outcome = run(planned, planned.questions, driver, Settings())
    return report(planned, outcome, driver, (), date(2030, 1, 1))


def missed(planned: QuestionPlan) -> list[str]:
    """The planted mistakes that no answer shows."""
    found = []
    for mistake in planned.mistakes:
        result = report_of(planned, Mistaken(planned.program, mistake))
        # A system that allows nothing at all is taken to lack the state.
        if result.outcome.failure is None and not any(row.findings for row in result.rows):
            found.append(mistake.id)
    return found


@cache
def everything() -> QuestionPlan:
    """The plan for EVERYTHING, which no test changes."""
    return plan(load_program(SourceFile.decode(EVERYTHING.encode(), "full.yaml")))


def test_there_are_enough_kinds_and_each_says_what_it_is() -> None:
    assert len(mistakes()) >= 60
    assert (
        len({mistake.id for mistake in mistakes()}) == len({mistake.text for mistake in mistakes()}) == len(mistakes())
    )


def test_a_table_with_every_feature_shows_every_kind() -> None:
    planned = everything()
    assert len(planned.mistakes) == LISTED
    assert (planned.unseen, missed(planned)) == ((), [])


class Remembering(Mistaken):
    """A system that keeps answers by user, operation and path."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._kept: dict[tuple[str, str, str], bool] = {}

    def prepare(self, world: World) -> None:
        self._reference = Reference(self._program, world.state)

    def ask(self, request: Request) -> SystemAnswer:
        key = request.user, request.action, request.resource.id
        answer = self._kept.setdefault(key, self._reference.decide(request).allowed)
        return SystemAnswer.ALLOWED if answer else SystemAnswer.REFUSED


SIBLINGS = """\
privtab: 1
system: shop
version: "1"
entities: {store: {shelf:, till:}}
privileges: {READ: {on: [shelf, till]}, COUNT: {on: [till]}}
tables:
  shelf: {look: READ (shelf)}
  till: {look: READ (till) and COUNT (till)}
"""


def test_answers_kept_without_the_type_are_seen() -> None:
    program = load_program(SourceFile.decode(SIBLINGS.encode(), "shop.yaml"))
    planned = plan(program)
    assert "type-forgotten" in {mistake.id for mistake in planned.mistakes} - {mistake.id for mistake in planned.unseen}
    result = report_of(planned, Remembering(program))
    assert [row.name for row in result.rows if row.findings]
    assert not [row.name for row in report_of(planned, served(program)).rows if row.findings]


ROLES = """\
privtab: 1
system: shop
version: "1"
entities: {store: {shelf:}}
privileges: [READ, WRITE]
semantics: {inheritance: down, deny: overrides, hierarchy: [roles], grantees: [user, role]}
tables:
  shelf: {look: READ (shelf), fill: WRITE (shelf)}
"""


@pytest.mark.parametrize(
    "id_",
    [
        "denials-of-roles-ignored",
        "third-role-ignored",
        "beginning-of-name",
        "end-of-name",
        "end-of-users",
        "end-of-roles",
    ],
)
def test_one_mistake_alone_is_seen_where_there_are_no_groups(id_: str) -> None:
    planned = plan(load_program(SourceFile.decode(ROLES.encode(), "shop.yaml")))
    [mistake] = [mistake for mistake in planned.mistakes if mistake.id == id_]
    assert mistake not in planned.unseen
    assert missed(replace(planned, mistakes=(mistake,))) == []


def together(first: Mistake, second: Mistake) -> Mistake:
    """Two mistakes in one system."""
    one, other = first.misread, second.misread
    misread = Misreading(
        program=lambda program: other.program(one.program(program)),
        view=lambda view: other.view(one.view(view)),
        request=lambda request, program: other.request(one.request(request, program), program),
    )
    return Mistake(f"{first.id} and {second.id}", "two mistakes", misread)


@pytest.mark.parametrize("share", [pytest.param(120, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.long)])
def test_two_mistakes_do_not_hide_each_other(share: int) -> None:
    planned = everything()
    alone = [mistake for mistake in planned.mistakes if mistake.kept_by is None]
    pairs = [together(first, second) for first, second in combinations(alone, 2)]
    assert missed(replace(planned, mistakes=tuple(pairs[::share]))) == []


def test_callers_are_named_with_their_kind_on_request() -> None:
    planned = plan(load_program("cdap/final"), abilities=None)
    for obeys in (True, False):
        driver = served(planned.program, prefixed=True, strips=obeys)
        assert bool([row.name for row in report_of(planned, driver).rows if row.findings]) is not obeys


def test_a_system_that_obeys_answers_the_further_questions_rightly() -> None:
    planned = everything()
    result = report_of(planned, served(planned.program))
    assert result.outcome.failure is None
    assert not [finding.question.id for row in result.rows for finding in row.findings]


FIRST_ROW = """
privtab: 1
system: shop
version: "1"
entities: {store:}
privileges: [READ, WRITE]
tables:
  store:
    close: can empty (store) and WRITE (store)
    empty: can look (store) or WRITE (store)
    look: READ (store)
"""


def test_the_first_row_of_a_type_may_refer_to_others() -> None:
    planned = plan(load_program(SourceFile.decode(FIRST_ROW.encode(), "shop.yaml")))
    assert "first-row" in {mistake.id for mistake in planned.mistakes} - {mistake.id for mistake in planned.unseen}
    assert mistake_lines(planned)[0].endswith(
        f"{len(mistakes()) - len(planned.mistakes)} more cannot be made with this policy"
    )


def test_rights_of_every_user_that_are_ignored_are_seen() -> None:
    text = FIRST_ROW.replace("tables:", "semantics: {everyone: all}\ntables:")
    planned = plan(load_program(SourceFile.decode(text.encode(), "shop.yaml")))
    [mistake] = [mistake for mistake in planned.mistakes if mistake.id == "everyone-ignored"]
    assert missed(replace(planned, mistakes=(mistake,))) == []
    assert "all" not in planned.world.groups, "it is there, and every user is in it"
    result = report_of(planned, served(planned.program))
    assert not [finding.question.id for row in result.rows for finding in row.findings]


def test_owning_groups_and_roles_are_seen_where_privileges_come_first() -> None:
    text = FIRST_ROW.replace("WRITE (store)", "(WRITE (store) or owner (store))")
    text = text.replace("tables:", "semantics: {owner: {kinds: [user, group, role]}}\ntables:")
    planned = plan(load_program(SourceFile.decode(text.encode(), "shop.yaml")))
    owning = [mistake for mistake in planned.mistakes if mistake.id.startswith("owning-")]
    assert (len(owning), missed(replace(planned, mistakes=tuple(owning)))) == (2, [])
    result = report_of(planned, served(planned.program))
    assert not [finding.question.id for row in result.rows for finding in row.findings]


@pytest.mark.parametrize(
    "policy",
    [
        "cdap/final",
        pytest.param("mariadb/10.11", marks=pytest.mark.slow),
        *(
            pytest.param(policy, marks=pytest.mark.long)
            for policy in (
                "cdap/manual",
                "postgresql/15",
                "streams/teracloud",
                "gravitino/1.1.0",
                "polaris/1.7",
                "unitycatalog/0.6",
                "lakekeeper/4.9",
            )
        ),
    ],
)
def test_shipped_tables_show_what_they_allow_with_few_questions(policy: str) -> None:
    planned = shipped_plan(policy)
    before = plan(planned.program, abilities=None)
    assert len(planned.questions) <= MOST * len(before.questions)
    unseen = {mistake.id for mistake in planned.unseen}
    assert unseen <= UNSEEN.get(policy, set())
    every = 1 if len(planned.questions) < 1_000 else 9
    assert set(missed(replace(planned, mistakes=planned.mistakes[::every]))) <= unseen


@pytest.mark.parametrize(
    "policy",
    [
        "mariadb/10.11",
        *(
            pytest.param(policy, marks=mark)
            for policy, mark in (
                ("unitycatalog/0.6", pytest.mark.long),
                ("lakekeeper/4.9", pytest.mark.long),
                ("polaris/1.7", pytest.mark.long),
            )
        ),
    ],
)
def test_what_a_plan_needs_is_a_state_and_its_requests_are_valid(policy: str) -> None:
    """Also where nobody but users, or nobody but roles, can be granted anything, and where the root is the only entity of its type."""
    planned = shipped_plan(policy)
    state, findings = validate(planned.program, from_tables(json.loads(state_bytes(planned.world.state)), "rows"))
    assert not [finding for finding in findings if finding.severity == "error"]
    reference = Reference(planned.program, state)
    for question in planned.questions:
        reference.decide(question.request)  # raises InvalidRequest otherwise


UNSEEN = {
    "lakekeeper/4.9": {"scopes-ignored"},
    "mariadb/10.11": {"other-type"},
    "cdap/manual": {"roots-ignored"},
    "polaris/1.7": {
        "roles-of-roles-ignored",
        "third-role-ignored",
        "links-reversed",
        "active-roles-ignored",
    },
}
"""What a policy could show by its declarations, and no question does: the report names it."""


def test_any_object_of_a_type_for_any_other_is_found_in_every_row_about_one() -> None:
    planned = shipped_plan("cdap/final")
    [mistake] = [mistake for mistake in mistakes() if mistake.id == "any-object"]
    result = report_of(planned, Mistaken(planned.program, mistake))
    about_objects = {question.row for question in planned.questions if question.expected and question.state.grants}
    assert {row.name for row in result.rows if row.findings} == about_objects
