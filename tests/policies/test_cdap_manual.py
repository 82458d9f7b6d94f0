"""The table of CDAP's administration manual, read once more: line, entity, operations | condition | title."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from privtab.ir.nodes import Program
from privtab.pipeline import load_program

if TYPE_CHECKING:
    from tests.policies.conftest import Tools

TABLE = """
    127 namespace create | ADMIN (namespace) | |
    129 namespace update | ADMIN (namespace) | |
    131 namespace delete | ADMIN (namespace) | |
    135 namespace list | anyone; each ANY (namespace or below) | | list/view
    138 namespace get | ANY (namespace or below) | |
    152 artifact add | ADMIN (artifact) | |
    154 artifact add_property | ADMIN (artifact) | | add a property
    156 artifact remove_property | ADMIN (artifact) | | remove a property
    158 artifact delete | ADMIN (artifact) | |
    160 artifact list | anyone; each ANY (artifact) | | list/view
    162 artifact get | ANY (artifact) | |
    176 application add | ADMIN (application) and ANY (artifact) | |
    179 application delete | ADMIN (application) | |
    181 application list | anyone; each ANY (application or below) | | list/view
    184 application get | ANY (application or below) | |
    198 program start, stop, debug | EXECUTE (program) | |
    200 program set_instances | ADMIN (program) | | set instances
    202 program set_runtime_arguments | ADMIN (program) | | set runtime arguments
    204 program get_runtime_arguments | READ/EXECUTE/ADMIN (program) | | retrieve runtime arguments
    206 program get_status | ANY (program) | | retrieve status
    208 program list | anyone; each ANY (program) | | list/view
    210 program get | ANY (program) | |
    212 program resume_schedule, suspend_schedule | EXECUTE (program) | |
    226 dataset create | ADMIN (dataset) | |
    229 dataset read | READ (dataset) | |
    231 dataset write | WRITE (dataset) | |
    233 dataset update | ADMIN (dataset) | |
    235 dataset upgrade | ADMIN (dataset) | |
    237 dataset truncate | ADMIN (dataset) | |
    239 dataset drop | ADMIN (dataset) | |
    241 dataset list | anyone; each ANY (dataset) | | list/view
    243 dataset get | ANY (dataset) | |
    257 dataset_module deploy | ADMIN (dataset_module) | |
    259 dataset_module delete | ADMIN (dataset_module) | |
    261 dataset_module delete_all | anyone; each ADMIN (dataset_module) | | delete-all in the namespace
    263 dataset_module list | anyone; each ANY (dataset_module) | | list/view
    265 dataset_module get | ANY (dataset_module) | |
    279 dataset_type list | anyone; each ANY (dataset_type) | | list/view
    281 dataset_type get | ANY (dataset_type) | |
    295 secure_key create | ADMIN (secure_key) | |
    297 secure_key read | READ (secure_key) | | read the secure data
    299 secure_key delete | ADMIN (secure_key) | |
    301 secure_key list | anyone; each ANY (secure_key) | | list/view
    315 stream create | ADMIN (stream) | |
    317 stream read_events | READ (stream) | | retrieving events
    319 stream send_events | WRITE (stream) | | sending events to a stream
    321 stream drop | ADMIN (stream) | |
    323 stream drop_all | anyone; each ADMIN (stream) | | drop-all in the namespace
    325 stream update | ADMIN (stream) | |
    327 stream truncate | ADMIN (stream) | |
    329 stream list | anyone; each ANY (stream) | | list/view
    331 stream get | ANY (stream) | |
    345 kerberos_principal deploy_application | ADMIN (kerberos_principal) | | deploy an app to impersonate a Kerberos principal
    347 kerberos_principal create_namespace | ADMIN (kerberos_principal) | | create a namespace with owner principal
    349 kerberos_principal create_dataset | ADMIN (kerberos_principal) | | create a dataset with owner principal
    351 kerberos_principal create_stream | ADMIN (kerberos_principal) | | create a stream with owner principal
""".replace("ANY", "READ/WRITE/EXECUTE/ADMIN")


@pytest.fixture(scope="module")
def program(tools: Tools) -> Program:
    return load_program(tools.policies / "cdap" / "manual.yaml")


def test_every_cell(tools: Tools, program: Program) -> None:
    found = tools.compiled_table(program)
    assert {key: replace(row, report=None) for key, row in found.items()} == tools.read_table(TABLE)
    assert {key for key, row in found.items() if row.report == "errors"} == {
        ("dataset_module", "delete_all"),
        ("stream", "drop_all"),
    }


def test_flags_require_more(tools: Tools, program: Program) -> None:
    with_flags = tools.compiled_table(program, frozenset({"new_artifact", "custom"}))
    assert with_flags["application", "add"].requires == tools.read_sets("ADMIN (application) and ADMIN (artifact)")
    assert with_flags["dataset", "create"].requires == tools.read_sets(
        "ADMIN (dataset) and READ/WRITE/EXECUTE/ADMIN (type)"
    )


def test_lines_stand_in_the_order_of_the_document(tools: Tools, program: Program) -> None:
    lines = [row.line for row in tools.compiled_table(program).values()]
    assert lines == sorted(lines)
