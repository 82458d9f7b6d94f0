"""The driver of `examples/conform/gravitino.yaml`: against a server with Gravitino's API, and its answers as documented."""

from __future__ import annotations

import json
from datetime import date

import pytest
from checkout import ROOT
from gravitino_server import Gravitino, error, serving

from privtab.ir import Program
from privtab.pipeline import load_program
from privtab_testing.conform import SystemAnswer, Verdict
from privtab_testing.conform.document import load
from privtab_testing.conform.drivers import HttpDriver, read_answer
from privtab_testing.conform.plan import plan
from privtab_testing.conform.report import Report, report
from privtab_testing.conform.run import Settings, run

DRIVER = ROOT / "examples" / "conform" / "gravitino.yaml"


@pytest.fixture(scope="module")
def table() -> Program:
    return load_program("gravitino/1.1.0")


def report_of(program: Program, url: str, *types: str) -> Report:
    driver = HttpDriver(load(DRIVER, program), program, url, token=None, timeout=30.0)
    planned = plan(
        program,
        rows=lambda rule: rule.entity in types,
        asks=driver.asks,
        changes=driver.changes,
        through_roles=driver.through_roles,
        abilities=driver.abilities,
    )
    outcome = run(planned, planned.questions, driver, Settings())
    assert outcome.failure is None
    return report(planned, outcome, driver, (), date(2030, 1, 1))


def test_a_server_that_obeys_agrees_and_is_left_empty(table: Program) -> None:
    system = Gravitino(table)
    with serving(system) as url:
        result = report_of(table, url, "tag")
    wrong = {row.name: row.findings[0] for row in result.rows if row.findings}
    assert not wrong
    verdicts = {row.name: row.verdict for row in result.rows}
    assert {name for name, verdict in verdicts.items() if verdict is Verdict.AGREES} == {
        f"tag/{operation}" for operation in ("create", "list", "get", "alter", "delete")
    }
    assert verdicts["tag/associate"] is Verdict.UNTESTED
    assert not system.entities


@pytest.mark.slow
def test_every_operation_of_the_driver_agrees_on_a_server_that_obeys(table: Program) -> None:
    with serving(Gravitino(table)) as url:
        result = report_of(table, url, "metalake", "catalog", "schema", "fileset")
    assert [row.findings[0] for row in result.rows if row.findings] == []
    document = load(DRIVER, table)
    agreed = {row.name for row in result.rows if row.verdict is Verdict.AGREES}
    assert agreed == {"/".join(key) for key in document.operations if key[0] != "tag"}


def test_a_missing_check_and_a_crash_have_different_verdicts(table: Program) -> None:
    with serving(Gravitino(table, lax=frozenset({"tag/delete"}), crashing=frozenset({"tag/get"}))) as url:
        rows = {row.name: row for row in report_of(table, url, "tag").rows}
    assert rows["tag/delete"].verdict is Verdict.WIDER
    assert rows["tag/get"].verdict is Verdict.BROKEN
    assert rows["tag/list"].verdict is Verdict.AGREES
    assert rows["tag/delete"].findings[0].reproduce.startswith("curl -s -X DELETE http://127.0.0.1")


@pytest.mark.parametrize(
    ("status", "content", "answer"),
    [
        (200, {"code": 0, "tag": {"name": "pii"}}, SystemAnswer.ALLOWED),
        (
            *error(403, 1008, "ForbiddenException", "User 'ann' is not authorized to perform operation"),
            SystemAnswer.REFUSED,
        ),
        (*error(404, 1003, "NoSuchTagException", "Tag pii does not exist"), SystemAnswer.HIDDEN),
        (401, "<html>Unauthorized</html>", SystemAnswer.REFUSED),
        (*error(409, 1009, "MetalakeNotInUseException", "Metalake lake is not in use"), SystemAnswer.BROKEN),
        (*error(400, 1001, "IllegalArgumentException", '"name" field is required'), SystemAnswer.BROKEN),
        (*error(409, 1004, "TagAlreadyExistsException", "Tag pii already exists"), SystemAnswer.BROKEN),
        (*error(500, 1002, "RuntimeException", "Internal Server Error"), SystemAnswer.BROKEN),
        (405, {"code": 1006, "type": "UnsupportedOperationException", "message": ""}, SystemAnswer.BROKEN),
        (502, "<html>Bad Gateway</html>", SystemAnswer.BROKEN),
    ],
)
def test_answers_of_the_documented_shape_are_classified(
    table: Program, status: int, content: object, answer: SystemAnswer
) -> None:
    signs = load(DRIVER, table).operations["tag", "get"].signs
    assert read_answer(signs, status, json.dumps(content).encode()) is answer
