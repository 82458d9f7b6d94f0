"""The final CDAP table, read from the document once more: line, entity, operations | condition | effects | title."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from privtab.ir.nodes import Program
from privtab.pipeline import load_program

if TYPE_CHECKING:
    from tests.policies.conftest import Tools

TABLE = """
    15 namespace create | WRITE (instance) | grant ALL (namespace) |
    16 namespace update | ADMIN (namespace) | |
    17 namespace list | anyone; each READ/WRITE/ADMIN (namespace) | |
    18 namespace get | READ (namespace) | |
    19 namespace delete | ADMIN (namespace) | |
    20 namespace set_preference | WRITE (namespace) | |
    21 namespace get_preference | READ (namespace) | |
    22 namespace search | READ (namespace) | |
    23 artifact add | WRITE (namespace) | grant ALL (artifact) |
    24 artifact delete | ADMIN (artifact) | |
    25 artifact get | READ (artifact) | |
    26 artifact list | anyone; each READ/WRITE/ADMIN (artifact) | |
    27 artifact write_property | ADMIN (artifact) | |
    28 artifact delete_property | ADMIN (artifact) | |
    29 artifact get_property | READ (artifact) | |
    30 artifact write_metadata | ADMIN (artifact) | |
    31 artifact read_metadata | READ (artifact) | |
    32 application deploy | WRITE (namespace) | grant ALL (application) |
    33 application get | READ (application) | |
    34 application list | anyone; each READ/WRITE/ADMIN (application) | |
    35 application update | ADMIN (application) | |
    36 application delete | ADMIN (application) | |
    37 application set_preference | WRITE (application) | |
    38 application get_preference | READ (application) | |
    39 application add_metadata | ADMIN (application) | |
    40 application get_metadata | READ (application) | |
    41 program start, stop, debug | EXECUTE (program) | |
    42 program set_instances | ADMIN (program) | |
    43 program list | anyone; each READ/WRITE/ADMIN (program) | |
    44 program set_runtime_args | ADMIN (program) | |
    45 program get_runtime_args | READ (program) | |
    46 program get_instances | READ (program) | |
    47 program set_preference | WRITE (program) | |
    48 program get_preference | READ (program) | |
    49 program get_status | READ (program) | |
    50 program get_history | READ (program) | |
    51 program add_metadata | ADMIN (program) | |
    52 program get_metadata | READ (program) | |
    53 program emit_logs | WRITE (namespace) | |
    54 program view_logs | READ (program) | |
    55 program emit_metrics | WRITE (namespace) | |
    56 program view_metrics | READ (program) | |
    57 stream create | WRITE (namespace) | grant ALL (stream) |
    58 stream update_properties | ADMIN (stream) | |
    59 stream delete | ADMIN (stream) | |
    60 stream truncate | ADMIN (stream) | |
    61 stream enqueue, batch | WRITE (stream) | |
    61 stream async_enqueue | WRITE (stream) | | asyncEnqueue
    62 stream get | READ (stream) | |
    63 stream list | anyone; each READ/WRITE/ADMIN (stream) | |
    64 stream read_events | READ (stream) | |
    65 stream set_preferences | WRITE (stream) | |
    66 stream get_preferences | READ (stream) | |
    67 stream add_metadata | ADMIN (stream) | |
    68 stream get_metadata | READ (stream) | |
    69 stream view_lineage | READ (stream) | |
    70 stream emit_metrics | WRITE (namespace) | |
    71 stream view_metrics | READ (stream) | |
    72 dataset create | WRITE (namespace) | grant ALL (dataset) |
    73 dataset get | READ (dataset) | |
    74 dataset list | anyone; each READ/WRITE/ADMIN (dataset) | |
    75 dataset update | ADMIN (dataset) | |
    76 dataset drop | ADMIN (dataset) | |
    77 dataset truncate | ADMIN (dataset) | |
    78 dataset upgrade | ADMIN (dataset) | |
    79 dataset add_metadata | ADMIN (dataset) | |
    80 dataset get_metadata | READ (dataset) | |
    81 dataset view_lineage | READ (dataset) | |
    82 dataset emit_metrics | WRITE (namespace) | |
    83 dataset view_metrics | READ (dataset) | |
"""
PARENTS = {
    "namespace": "instance",
    "artifact": "namespace",
    "application": "namespace",
    "program": "application",
    "stream": "namespace",
    "dataset": "namespace",
}
ASKS = {
    "create": "WRITE",
    "delete": "ADMIN",
    "get": "READ",
    "set_preference": "WRITE",
    "set_preferences": "WRITE",
    "get_preference": "READ",
    "get_preferences": "READ",
    "update": "ADMIN",
    "add_metadata": "ADMIN",
    "write_metadata": "ADMIN",
    "read_metadata": "READ",
    "get_metadata": "READ",
}
"""The core policies that ask for one privilege, by every spelling."""


@pytest.fixture(scope="module")
def program(tools: Tools) -> Program:
    return load_program(tools.policies / "cdap" / "final.yaml")


def test_every_cell(tools: Tools, program: Program) -> None:
    assert tools.compiled_table(program) == tools.read_table(TABLE)


def test_rows_stand_in_the_order_of_the_document(tools: Tools, program: Program) -> None:
    assert [row.line for row in tools.compiled_table(program).values()] == sorted(
        row.line for row in tools.read_table(TABLE).values()
    )


def test_every_line_of_the_table_and_of_the_core_policies_is_cited(tools: Tools) -> None:
    assert tools.cited_lines("cdap/final.yaml") == {*range(2, 12), *range(15, 84)}


def test_the_names_of_the_document(program: Program) -> None:
    assert list(program.privileges) == ["READ", "WRITE", "EXECUTE", "ADMIN"]
    assert program.sets == {"ALL": ("READ", "WRITE", "EXECUTE", "ADMIN")}
    assert {name: entity.parent for name, entity in program.entities.items()} == {"instance": None, **PARENTS}


def test_core_policies_fill_what_the_table_leaves_out(tools: Tools, program: Program) -> None:
    table = tools.read_table(TABLE)
    for entity, parent in {"instance": None, **PARENTS}.items():
        for operation, privilege in ASKS.items():
            if (entity, operation) in table:
                continue
            if operation == "create" and parent is None:
                assert (entity, operation) not in program.rules
                continue
            row = tools.compiled_row(program, program.rules[entity, operation])
            target = parent if operation == "create" else entity
            assert row.requires == tools.read_sets(f"{privilege} ({target})"), (entity, operation)
            assert row.each is None
            assert row.effects == ((f"grant ALL ({entity})",) if operation == "create" else ())
            assert program.rules[entity, operation].origin == "core"


def test_the_spellings_of_one_core_policy_agree_with_each_other_and_with_the_rows(
    tools: Tools, program: Program
) -> None:
    """A second spelling must not be a way around a row that asks for more."""
    for entity in PARENTS:
        for name, other_name in (
            ("set_preference", "set_preferences"),
            ("get_preference", "get_preferences"),
            ("add_metadata", "write_metadata"),
            ("read_metadata", "get_metadata"),
        ):
            first, second = (
                tools.compiled_row(program, program.rules[entity, spelling]) for spelling in (name, other_name)
            )
            assert first.requires == second.requires, (entity, name, other_name)


@pytest.mark.parametrize("entity", ["instance", *PARENTS])
def test_delete_all_decides_for_each_member_and_reports_the_rest(tools: Tools, program: Program, entity: str) -> None:
    row = tools.compiled_row(program, program.rules[entity, "delete_all"])
    assert (row.line, row.requires, row.each, row.report) == (
        4,
        tools.read_sets("anyone"),
        tools.read_sets(f"ADMIN ({entity})"),
        "errors",
    )


def test_the_note_of_the_namespace_list_is_kept(program: Program) -> None:
    rule = program.rules["namespace", "list"]
    assert rule.note == "Listing will list all the namespaces, even if the current user does not have access to it."
    assert rule.ambiguous is not None
    assert rule.ambiguous.cell == "READ/WRITE/ADMIN (InstanceNamespace)"


@pytest.mark.parametrize(("entity", "parent"), PARENTS.items())
def test_lists_can_be_read_on_the_parent(tools: Tools, entity: str, parent: str) -> None:
    other = load_program(tools.policies / "cdap" / "final.yaml", readings={f"{entity}/list": "parent"})
    row = tools.compiled_row(other, other.rules[entity, "list"])
    assert row.requires == tools.read_sets(f"READ/WRITE/ADMIN ({parent})")
    assert row.each == tools.read_sets("anyone")
