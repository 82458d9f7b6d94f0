"""The two versions of the CDAP table that one document compares, read from it once more.

Line, entity, operations | before | after, where it differs | effects | title.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from privtab.ir.nodes import Program
from privtab.pipeline import load_program

if TYPE_CHECKING:
    from tests.policies.conftest import Tools

TABLE = """
    27 namespace create | WRITE (instance) | grant ALL (namespace) |
    28 namespace update | ADMIN (namespace) | |
    29 namespace list | READ (instance); each anyone | |
    30 namespace get | READ (namespace) | |
    31 namespace delete | ADMIN (namespace) | |
    32 namespace set_preference | WRITE (namespace) | |
    33 namespace get_preference | READ (namespace) | |
    34 namespace search | READ/WRITE/ADMIN (namespace) | READ (namespace) | |
    35 artifact add | WRITE (namespace) | grant ALL (artifact) |
    36 artifact delete | ADMIN (artifact) | |
    37 artifact get | READ (artifact) | |
    38 artifact list | READ (namespace); each anyone | |
    39 artifact write_property | ADMIN (artifact) | |
    40 artifact delete_property | ADMIN (artifact) | |
    41 artifact get_property | READ (artifact) | |
    42 artifact write_metadata | ADMIN (artifact) | |
    43 artifact read_metadata | READ (artifact) | |
    44 application deploy | WRITE (namespace) | grant ALL (application) |
    45 application get | READ (application) | |
    46 application list | anyone; each READ (application) | READ (namespace); each anyone | |
    47 application update | ADMIN (application) | |
    48 application delete | ADMIN (application) | |
    49 application set_preference | WRITE (application) | |
    50 application get_preference | READ (application) | |
    51 application add_metadata | ADMIN (application) | |
    52 application get_metadata | READ (application) | |
    53 program start, stop, debug | EXECUTE (program) | |
    54 program set_instances | ADMIN (program) | |
    55 program list | READ/WRITE/ADMIN (application); each anyone | READ (application); each anyone | |
    56 program set_runtime_args | ADMIN (program) | |
    57 program get_runtime_args | READ/WRITE/ADMIN/EXECUTE (program) | READ (program) | |
    58 program get_instances | READ/WRITE/ADMIN/EXECUTE (program) | READ (program) | |
    59 program set_preference | ADMIN (program) | WRITE (program) | |
    60 program get_preference | READ (program) | |
    61 program get_status | READ/WRITE/ADMIN/EXECUTE (program) | READ (program) | |
    62 program get_history | READ/WRITE/ADMIN/EXECUTE (program) | READ (program) | |
    63 program add_metadata | ADMIN (program) | |
    64 program get_metadata | READ (program) | |
    65 program emit_logs | WRITE (program) | WRITE (namespace) | |
    66 program view_logs | READ (program) | |
    67 program emit_metrics | WRITE (program) | WRITE (namespace) | |
    68 program view_metrics | READ (program) | |
    69 stream create | WRITE (namespace) | grant ALL (stream) |
    70 stream update_properties | ADMIN (stream) | |
    71 stream delete | ADMIN (stream) | |
    72 stream truncate | ADMIN (stream) | |
    73 stream enqueue | WRITE (stream) | |
    74 stream async_enqueue | WRITE (stream) | | asyncEnqueue
    75 stream batch | WRITE (stream) | |
    77 stream get | READ/WRITE/ADMIN (stream) | READ (stream) | |
    78 stream list | READ/WRITE/ADMIN (namespace); each anyone | READ (namespace); each anyone | |
    79 stream read_events | READ (stream) | |
    80 stream set_preferences | ADMIN (stream) | WRITE (stream) | |
    81 stream get_preferences | READ (stream) | |
    82 stream add_metadata | ADMIN (stream) | |
    83 stream get_metadata | READ (stream) | |
    84 stream view_lineage | READ (stream) | |
    85 stream emit_metrics | WRITE (stream) | WRITE (namespace) | |
    86 stream view_metrics | READ (stream) | |
    88 dataset get | READ/WRITE/ADMIN (dataset) | READ (dataset) | |
    90 dataset update | ADMIN (dataset) | |
    91 dataset drop | ADMIN (dataset) | |
    92 dataset truncate | ADMIN (dataset) | |
    93 dataset upgrade | ADMIN (dataset) | |
    94 dataset add_metadata | ADMIN (dataset) | |
    95 dataset get_metadata | READ (dataset) | |
    96 dataset view_lineage | READ (dataset) | |
    97 dataset emit_metrics | WRITE (dataset) | WRITE (namespace) | |
    98 dataset view_metrics | READ (dataset) | |
"""
REORDERED = {
    "draft": """
        87 dataset list | READ/WRITE/ADMIN (namespace); each anyone | |
        89 dataset create | WRITE (namespace) | grant ALL (dataset) |
    """,
    "revised": """
        87 dataset create | WRITE (namespace) | grant ALL (dataset) |
        89 dataset list | READ (namespace); each anyone | |
    """,
}
"""The rows of the data set whose place, and so whose line, differs."""
MERGED = {34, 46, 55, 57, 58, 59, 61, 62, 65, 67, 77, 78, 80, 85, 87, 88, 89, 97}
"""Lines where old and new text share a cell."""
READING = {"draft": "after", "revised": "before"}
COLUMN = {"draft": 1, "revised": 2}
VERSIONS = ("draft", "revised")


@pytest.fixture(scope="module")
def programs(tools: Tools) -> dict[str, Program]:
    return {version: load_program(tools.policies / "cdap" / f"{version}.yaml") for version in VERSIONS}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_cell(tools: Tools, programs: dict[str, Program], version: str) -> None:
    expected = tools.read_table(TABLE, COLUMN[version]) | tools.read_table(REORDERED[version])
    assert tools.compiled_table(programs[version]) == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_rows_stand_in_the_order_of_the_document(tools: Tools, programs: dict[str, Program], version: str) -> None:
    lines = [row.line for row in tools.compiled_table(programs[version]).values()]
    assert lines == sorted(lines)


@pytest.mark.parametrize(("version", "core"), [("draft", []), ("revised", range(9, 19))])
def test_every_line_is_cited(tools: Tools, version: str, core: list[int]) -> None:
    assert tools.cited_lines(f"cdap/{version}.yaml") == {*core, *range(27, 99)}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_merged_cell_has_a_record(programs: dict[str, Program], version: str) -> None:
    rules = programs[version].rules.values()
    assert {r.source.line for r in rules if r.ambiguous is not None and r.source is not None} == MERGED


@pytest.mark.parametrize("version", VERSIONS)
def test_the_other_reading_of_a_cell_is_the_other_version(
    tools: Tools, programs: dict[str, Program], version: str
) -> None:
    readings = {
        f"{entity}/{operation}": READING[version]
        for (entity, operation), rule in programs[version].rules.items()
        if rule.ambiguous is not None and READING[version] in dict(rule.ambiguous.readings)
    }
    assert len(readings) == len(MERGED) - 1, "all but the creation of a data set, where only the line differs"
    other = load_program(tools.policies / "cdap" / f"{version}.yaml", readings=readings)
    (elsewhere,) = set(VERSIONS) - {version}
    for key, row in tools.compiled_table(programs[elsewhere]).items():
        read = tools.compiled_row(other, other.rules[key])
        assert (read.requires, read.each, read.effects) == (row.requires, row.each, row.effects), key


def test_the_draft_has_no_core_policies(programs: dict[str, Program]) -> None:
    assert {rule.origin for rule in programs["draft"].rules.values()} == {"row"}
    assert ("dataset", "delete_all") not in programs["draft"].rules


@pytest.mark.parametrize(
    ("operation", "line", "cell"),
    [
        ("delete", 10, "ADMIN (dataset)"),
        ("set_preference", 14, "WRITE (dataset)"),
        ("set_preferences", 14, "WRITE (dataset)"),
        ("get_preference", 15, "READ (dataset)"),
        ("get_preferences", 15, "READ (dataset)"),
        ("write_metadata", 17, "ADMIN (dataset)"),
        ("read_metadata", 18, "READ (dataset)"),
    ],
)
def test_core_policies_of_the_revision(
    tools: Tools, programs: dict[str, Program], operation: str, line: int, cell: str
) -> None:
    row = tools.compiled_row(programs["revised"], programs["revised"].rules["dataset", operation])
    assert (row.line, row.requires, row.each) == (line, tools.read_sets(cell), None)


@pytest.mark.parametrize(
    ("operation", "line", "cell", "effects"),
    [
        ("create", 9, "WRITE (application)", ("grant ALL (program)",)),
        ("update", 16, "ADMIN (program)", ()),
        ("get", 13, "READ (program)", ()),
    ],
)
def test_core_policies_of_the_revision_where_programs_have_no_row(
    tools: Tools, programs: dict[str, Program], operation: str, line: int, cell: str, effects: tuple[str, ...]
) -> None:
    row = tools.compiled_row(programs["revised"], programs["revised"].rules["program", operation])
    assert (row.line, row.requires, row.effects) == (line, tools.read_sets(cell), effects)


def test_delete_all_of_the_revision(tools: Tools, programs: dict[str, Program]) -> None:
    row = tools.compiled_row(programs["revised"], programs["revised"].rules["stream", "delete_all"])
    assert (row.line, row.requires, row.each, row.report) == (
        11,
        tools.read_sets("anyone"),
        tools.read_sets("ADMIN (stream)"),
        "errors",
    )


@pytest.mark.parametrize(
    ("version", "words"), [("draft", "does not have access too it."), ("revised", "does not have access to it.")]
)
def test_the_note_of_the_namespace_list(programs: dict[str, Program], version: str, words: str) -> None:
    note = programs[version].rules["namespace", "list"].note
    assert note == f"Listing will list all the namespaces, even if the current user {words}"
