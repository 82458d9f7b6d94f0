"""A real PostgreSQL 15 obeys the table of its documentation, and a wrong table is told from it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
from checkout import ROOT
from postgresql_server import postgresql

from privtab.base import Entity, Request
from privtab.pipeline import load_program
from privtab.reference import Reference
from privtab.state import Assignment, Grant, State
from privtab_testing.conform import SystemAnswer, Verdict, World
from privtab_testing.conform.document import load
from privtab_testing.conform.drivers import SqlDriver
from privtab_testing.conform.plan import PREFIX, plan
from privtab_testing.conform.report import Report, readings_of, report
from privtab_testing.conform.run import Settings, run

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("postgresql-15")]

POLICY = ROOT / "policy_src" / "postgresql" / "15.yaml"
DRIVER = ROOT / "examples" / "conform" / "postgresql.yaml"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with postgresql() as url:
        yield url


def conformance(policy: Path, url: str, *, jobs: int = 1, rows: str | None = None, document: Path = DRIVER) -> Report:
    program = load_program(policy)
    driver = SqlDriver(load(document, program), program, url)
    planned = plan(
        program,
        readings=readings_of(policy, program),
        changes=driver.changes,
        abilities=driver.abilities,
        rows=lambda rule: rows is None or rule.entity == rows,
    )
    outcome = run(planned, planned.questions, driver, Settings(jobs=jobs))
    return report(planned, outcome, driver, (), date(2030, 1, 1))


def left_behind(url: str) -> list[str]:
    import sqlalchemy

    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)
    with engine.connect() as connection:
        found = connection.exec_driver_sql(
            f"select rolname from pg_roles where rolname like '{PREFIX}%%' "  # noqa: S608
            f"union select datname from pg_database where datname like '{PREFIX}%%'"
        )
        return [str(name) for (name,) in found]


def test_every_cell_agrees_and_nothing_is_left_behind(url: str) -> None:
    result = conformance(POLICY, url, jobs=4)
    assert result.outcome.failure is None
    assert result.outcome.left == ()
    assert [(row.name, row.verdict) for row in result.rows if row.verdict is not Verdict.AGREES] == []
    assert set(result.cells) == {Verdict.AGREES}
    assert result.requests == len(result.plan.questions)
    assert left_behind(url) == []
    followed = {row.name: [r.name for r in row.readings if r.follows] for row in result.rows if row.readings}
    assert followed == {"schema/create_table": [""], "table/drop": [""]}


def test_public_and_memberships_with_and_without_inheritance_agree(url: str) -> None:
    """What no plan asks, since a grant to PUBLIC is one to every caller of the plan."""
    program = load_program(POLICY)
    names = {type_: f"{PREFIX}{type_}" for type_ in program.entities}
    database, schema = names["database"], f"{names['database']}/{names['schema']}"
    below = {type_: f"{schema}/{names[type_]}" for type_ in ("table", "sequence", "function", "type")}
    paths = {"database": database, "schema": schema, **below, "column": f"{below['table']}/{names['column']}"}
    at = {type_: Entity(type_, path) for type_, path in paths.items()}
    holder, chained, switching, other = (f"{PREFIX}{name}" for name in ("holder", "chained", "switching", "other"))
    reader, outer = f"{PREFIX}reader", f"{PREFIX}outer"
    public = {"database": "CONNECT", "schema": "USAGE", "column": "UPDATE", "function": "EXECUTE", "table": "INSERT"}
    through_role = {
        "table": "SELECT",
        "schema": "CREATE",
        "sequence": "UPDATE",
        "database": "TEMPORARY",
        "type": "USAGE",
    }
    users = (holder, chained, switching, other)
    state = State(
        memberships=tuple((user, "public") for user in users),
        assignments=(
            Assignment(principal=f"user:{holder}", role=reader),
            Assignment(principal=f"user:{chained}", role=outer),
            Assignment(principal=f"role:{outer}", role=reader),
        ),
        members=((switching, Entity("role", reader)),),
        grants=tuple(
            Grant(grantee=grantee, effect="allow", privilege=privilege, entity=at[type_])
            for grantee, privileges in (("group:public", public), (f"role:{reader}", through_role))
            for type_, privilege in privileges.items()
        ),
    )
    entities = (at["database"], at["schema"], at["table"], at["column"], at["sequence"], at["function"], at["type"])
    world = World(state=state, entities=entities, users=users, groups=("public",), roles=(reader, outer))
    reference, driver = Reference(program, state), SqlDriver(load(DRIVER, program), program, url)
    at["role"] = Entity("role", reader)
    requests = [
        Request(user=user, action=operation, resource=at[type_]) for user in users for type_, operation in program.rules
    ]
    try:
        driver.prepare(world)
        answers = [driver.ask(request) for request in requests]
    finally:
        assert driver.clean() == ()
    expected = [reference.decide(request).allowed for request in requests]
    answered = zip(requests, answers, expected, strict=True)
    assert [(request, answer) for request, answer, yes in answered if (answer is SystemAnswer.ALLOWED) != yes] == []
    assert set(answers) == {SystemAnswer.ALLOWED, SystemAnswer.REFUSED}
    named = ((request.user, f"{request.resource.type}/{request.action}") for request in requests)
    allowed = {pair for pair, yes in zip(named, expected, strict=True) if yes}
    assert {(other, "table/insert"), (chained, "table/select"), (switching, "role/set")} <= allowed
    assert not {(switching, "table/select"), (other, "role/set")} & allowed


def test_a_table_that_the_server_does_not_obey_is_reported_with_statements_to_paste(url: str, tmp_path: Path) -> None:
    policy = tmp_path / "wrong.yaml"
    text = POLICY.read_text(encoding="utf-8")
    text = text.replace(
        "use: USAGE (schema) or service admin", "use: USAGE (schema) or owner (schema) or service admin"
    )
    text = text.replace(
        "rename: owner (schema) and CREATE (database)", "rename: owner (schema) and CREATE (database, schema)"
    )
    policy.write_text(text, encoding="utf-8")
    rows = {row.name: row for row in conformance(policy, url, rows="schema").rows}
    assert rows["schema/use"].verdict is Verdict.NARROWER, "an owner who revoked USAGE cannot look names up"
    assert rows["schema/rename"].verdict is Verdict.NARROWER
    statement = rows["schema/use"].findings[0].reproduce
    assert statement.startswith('begin; set local session authorization "privtab_conform_caller')
    assert statement.endswith("rollback;")
    assert rows["schema/comment"].verdict is Verdict.AGREES


def test_a_world_that_cannot_be_made_ends_the_test_and_is_removed(url: str, tmp_path: Path) -> None:
    document = tmp_path / "driver.yaml"
    text = DRIVER.read_text(encoding="utf-8")
    document.write_text(text.replace("grant {privilege} on schema", "grant {privilege} on scheme"), encoding="utf-8")
    result = conformance(POLICY, url, rows="schema", document=document)
    assert result.outcome.failure is not None
    assert "cannot be made" in result.outcome.failure
    assert result.requests == 0
    assert left_behind(url) == []


def test_objects_that_the_test_did_not_create_stay(url: str) -> None:
    import sqlalchemy

    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)
    theirs = f"{PREFIX}caller2"
    with engine.connect() as connection:
        connection.exec_driver_sql(f'create role "{theirs}"')
        connection.commit()
    try:
        result = conformance(POLICY, url, rows="schema")
        message = f'user:{theirs} cannot be made: role "{theirs}" already exists'
        assert result.outcome.failure == f"{message} (`--clean` removes what an earlier test left)"
        assert left_behind(url) == [theirs]
    finally:
        with engine.connect() as connection:
            connection.exec_driver_sql(f'drop role "{theirs}"')
            connection.commit()


def test_a_server_that_is_not_there_is_a_failure(tmp_path: Path) -> None:
    result = conformance(POLICY, f"postgresql+psycopg://postgres:s3cret@/postgres?host={tmp_path}", rows="schema")
    assert result.outcome.failure is not None
    assert "s3cret" not in result.outcome.failure
    assert result.outcome.left == (), "nothing was made"
