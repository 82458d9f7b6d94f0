"""The table and the use cases of CDAP's first design, read from the document once more.

Line, entity, operations | condition of the table | with what a use case adds | effects | title.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from privtab.ir.nodes import Program
from privtab.pipeline import load_program

if TYPE_CHECKING:
    from tests.policies.conftest import Tools

TABLE = """
    25 namespace create | ADMIN (instance) | grant ADMIN (namespace) |
    26 namespace update | ADMIN (namespace) | |
    27 namespace list | READ (instance); each anyone | |
    28 namespace get | READ (namespace) | |
    29 namespace delete | ADMIN (namespace) | |
    30 namespace set_preference | WRITE (namespace) | |
    31 namespace get_preference | READ (namespace) | |
    32 namespace search | READ (namespace) | |
    33 artifact add | WRITE (namespace) | grant ADMIN (artifact) |
    34 artifact delete | ADMIN (artifact) | |
    35 artifact get | READ (artifact) | |
    36 artifact list | READ (namespace); each anyone | |
    37 artifact write_property | ADMIN (artifact) | |
    38 artifact delete_property | ADMIN (artifact) | |
    39 artifact get_property | READ (artifact) | |
    40 artifact refresh | WRITE (instance) | |
    41 artifact write_metadata | ADMIN (artifact) | |
    42 artifact read_metadata | READ (artifact) | |
    43 application deploy | WRITE (namespace) | grant ADMIN (application) |
    44 application get | READ (application) | |
    45 application list | READ (namespace); each anyone | |
    46 application update | ADMIN (application) | |
    47 application delete | ADMIN (application) | |
    48 application set_preference | WRITE (application) | |
    49 application get_preference | READ (application) | |
    50 application add_metadata | ADMIN (application) | |
    51 application get_metadata | READ (application) | |
    52 program start, stop | EXECUTE (program) | READ (namespace) and READ (application) and EXECUTE (program) | |
    52 program debug | EXECUTE (program) | |
    53 program set_instances | ADMIN (program) | |
    54 program list | READ (namespace); each anyone | |
    55 program set_runtime_args | EXECUTE (program) | |
    56 program get_runtime_args | READ (program) | |
    57 program get_instances | READ (program) | |
    58 program set_preference | ADMIN (program) | |
    59 program get_preference | READ (program) | |
    60 program get_status | READ (program) | |
    61 program get_history | READ (program) | |
    62 program add_metadata | ADMIN (program) | |
    63 program get_metadata | READ (program) | |
    64 program emit_logs | WRITE (program) | |
    65 program view_logs | READ (program) | |
    66 program emit_metrics | WRITE (program) | |
    67 program view_metrics | READ (program) | |
    68 stream create | WRITE (namespace) | grant ADMIN (stream) |
    69 stream update_properties | ADMIN (stream) | |
    70 stream delete | ADMIN (stream) | |
    71 stream truncate | ADMIN (stream) | |
    72 stream enqueue, batch | WRITE (stream) | READ (namespace) and WRITE (stream) | |
    72 stream async_enqueue | WRITE (stream) | READ (namespace) and WRITE (stream) | | asyncEnqueue
    73 stream get | READ (stream) | |
    74 stream list | READ (namespace); each anyone | |
    75 stream read_events | READ (stream) | READ (namespace) and READ (stream) | |
    76 stream set_preferences | ADMIN (stream) | |
    77 stream get_preferences | READ (stream) | |
    78 stream add_metadata | ADMIN (stream) | |
    79 stream get_metadata | READ (stream) | |
    80 stream view_lineage | READ (stream) | |
    81 stream emit_metrics | WRITE (stream) | |
    82 stream view_metrics | READ (stream) | |
    83 dataset list | READ (namespace); each anyone | |
    84 dataset get | READ (dataset) | |
    85 dataset create | WRITE (namespace) | grant ADMIN (dataset) |
    86 dataset update | ADMIN (dataset) | |
    87 dataset drop | ADMIN (dataset) | |
    88 dataset exists | ADMIN (dataset) | | executeAdmin (exists)
    88 dataset truncate | ADMIN (dataset) | | executeAdmin (truncate)
    88 dataset upgrade | ADMIN (dataset) | | executeAdmin (upgrade)
    89 dataset add_metadata | ADMIN (dataset) | |
    90 dataset get_metadata | READ (dataset) | |
    91 dataset view_lineage | READ (dataset) | |
    92 dataset emit_metrics | WRITE (dataset) | |
    93 dataset view_metrics | READ (dataset) | |
    94 stream_view create | WRITE (namespace) and ADMIN (stream) | grant ADMIN (stream_view) |
    95 stream_view delete | ADMIN (stream_view) | |
    96 stream_view list | READ (namespace) and READ (stream); each anyone | |
    97 stream_view get | READ (stream_view) | |
    98 stream_view add_metadata | ADMIN (stream_view) | |
    99 stream_view get_metadata | READ (stream_view) | |
"""
ADDED = {
    ("program", "start"): 13,
    ("program", "stop"): 13,
    ("stream", "read_events"): 17,
    ("stream", "enqueue"): 18,
    ("stream", "async_enqueue"): 18,
    ("stream", "batch"): 18,
}
"""Where a use case, on its line, adds conditions to those of the table."""
DISAGREE = {
    ("namespace", "create"): "WRITE (instance)",
    ("namespace", "update"): "WRITE (instance)",
    ("namespace", "delete"): "WRITE (instance)",
    ("program", "set_runtime_args"): "WRITE (program)",
}
"""What a use case asks for in place of the condition of the table."""
SAID = {5, 6, 8, 10, 11, 13, 14, 15, 17, 18}
"""Lines of the use cases that name a condition or a result."""


@pytest.fixture(scope="module")
def program(tools: Tools) -> Program:
    return load_program(tools.policies / "cdap" / "initial.yaml")


@pytest.fixture(scope="module")
def use_cases(tools: Tools) -> Program:
    return load_program(tools.policies / "cdap" / "initial.yaml", variant="use_cases")


def test_every_cell(tools: Tools, program: Program) -> None:
    assert tools.compiled_table(program) == tools.read_table(TABLE)


def test_rows_stand_in_the_order_of_the_document(tools: Tools, program: Program) -> None:
    lines = [row.line for row in tools.compiled_table(program).values()]
    assert lines == sorted(lines)


def test_every_line_is_cited(tools: Tools) -> None:
    assert tools.cited_lines("cdap/initial.yaml") == {*SAID, *range(25, 100)}


def test_the_variant_is_the_table_and_what_the_use_cases_add(tools: Tools, use_cases: Program) -> None:
    expected = tools.read_table(TABLE, column=2)
    for key, row in tools.compiled_table(use_cases).items():
        if key == ("instance", "grant_permissions"):
            assert (row.line, row.requires) == (8, tools.read_sets("ADMIN (instance)"))
            continue
        before = expected.pop(key)
        assert (row.requires, row.each, row.effects) == (before.requires, before.each, before.effects), key
        assert row.line == ADDED.get(key, before.line), key
    assert expected == {}


def test_use_cases_are_recorded_as_readings(tools: Tools, program: Program) -> None:
    assert {key for key, rule in program.rules.items() if rule.ambiguous is not None} == {*ADDED, *DISAGREE}
    readings = {f"{entity}/{operation}": "use_case" for entity, operation in (*ADDED, *DISAGREE)}
    read = tools.compiled_table(load_program(tools.policies / "cdap" / "initial.yaml", readings=readings))
    added = tools.read_table(TABLE, column=2)
    for key in ADDED:
        assert read[key].requires == added[key].requires, key
    for key, cell in DISAGREE.items():
        assert read[key].requires == tools.read_sets(cell), key


def test_the_names_of_the_document(program: Program) -> None:
    assert list(program.privileges) == ["READ", "WRITE", "EXECUTE", "ADMIN"]
    assert program.sets == {}, "ALL came with the next version"
    assert {name: entity.parent for name, entity in program.entities.items()} == {
        "instance": None,
        "namespace": "instance",
        "artifact": "namespace",
        "application": "namespace",
        "program": "application",
        "stream": "namespace",
        "stream_view": "stream",
        "dataset": "namespace",
    }
