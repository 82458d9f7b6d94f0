from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privtab.base.errors import FileError, UsageError
from privtab.base.names import PRINCIPAL_KINDS, encode_name, invisible, is_wildcard
from privtab.base.request import Entity
from privtab.ir.nodes import Program
from privtab.state.load import from_tables, load_raw_state, validate
from privtab.state.nodes import Assignment, Grant, State
from privtab.state.raw import RawState

Read = Callable[..., RawState]
Codes = Callable[..., list[str]]

# Everything that names hold: no control characters, which YAML refuses, and nothing that cannot be seen.
NAMES = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs")), min_size=1, max_size=6).filter(
    lambda name: invisible(name) is None and name == name.strip(" ")
)
PRINCIPALS = NAMES.filter(lambda name: not is_wildcard(name) and name.partition(":")[0].lower() not in PRINCIPAL_KINDS)
PLAIN = PRINCIPALS.filter(lambda name: ":" not in name)


def entities(*types: tuple[str, int]) -> st.SearchStrategy[Entity]:
    def of(type_: str, depth: int) -> st.SearchStrategy[Entity]:
        paths = st.lists(NAMES.map(encode_name), min_size=depth, max_size=depth)
        return paths.map(lambda names: Entity(type_, "/".join(names)))

    return st.one_of(*(of(type_, depth) for type_, depth in types))


def principals(*kinds: str) -> st.SearchStrategy[str]:
    return st.builds(lambda kind, name: f"{kind}:{name}", st.sampled_from(kinds), PRINCIPALS)


STATES = st.builds(
    State,
    members=st.lists(st.tuples(PLAIN, entities(("lake", 1), ("schema", 2))), unique=True, max_size=4).map(tuple),
    memberships=st.lists(st.tuples(PLAIN, PLAIN), unique=True, max_size=4).map(tuple),
    assignments=st.lists(
        st.builds(
            Assignment,
            principal=principals("user", "group"),
            role=PLAIN,
            scope=st.none() | entities(("lake", 1), ("table", 3)),
        ),
        unique=True,
        max_size=4,
    ).map(tuple),
    grants=st.lists(
        st.builds(
            Grant,
            grantee=principals("user", "group", "role"),
            effect=st.sampled_from(["allow", "deny"]),
            privilege=st.sampled_from(["SELECT", "READ", "ALL"]),
            entity=entities(("lake", 1), ("schema", 2), ("table", 3)),
        ),
        unique=True,
        max_size=4,
    ).map(tuple),
    owners=st.lists(st.tuples(entities(("settings", 2), ("role", 2)), principals("user")), unique=True, max_size=4).map(
        tuple
    ),
    service_admins=st.lists(PLAIN, unique=True, max_size=3).map(tuple),
)


@pytest.mark.parametrize("format_", ["yaml", "json", "csv", "parquet", "yaml files", "json files"])
@given(state=STATES)
@settings(max_examples=8)
def test_written_states_are_read_back(
    format_: str, state: State, program: Program, dump: Callable[[State, Path, str], Path]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        raw = load_raw_state(dump(state, Path(directory), format_))
    found, findings = validate(program, raw)
    assert found == state
    assert not [f for f in findings if f.severity == "error"]


def test_a_missing_path_is_not_the_user_s_rows(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="no such state"):
        load_raw_state(tmp_path / "absent.yaml")


def test_one_table_alone_is_bad_usage(tmp_path: Path) -> None:
    (tmp_path / "grants.csv").write_text("grantee,effect,privilege,entity\n")
    with pytest.raises(UsageError, match="one table"):
        load_raw_state(tmp_path / "grants.csv")


@pytest.mark.parametrize("content", ["grants:\n", "grants: []\n", "# nothing yet\nowners: null\n"])
@pytest.mark.parametrize("name", ["state.yaml", "state.yml", "state"])
def test_a_table_without_rows_is_an_empty_state(read: Read, content: str, name: str) -> None:
    assert read(content, name) == RawState()


@pytest.mark.parametrize("content", ['{"grants": []}', '{"grants": null}'])
def test_a_table_of_json_without_rows_is_an_empty_state(read: Read, content: str) -> None:
    assert read(content, "state.json") == RawState()


@pytest.mark.parametrize("content", ["", "\n", "# nothing yet\n", "null\n", "{}"])
@pytest.mark.parametrize("name", ["state.yaml", "state.json", "state"])
def test_a_file_without_any_table_is_no_state(read: Read, content: str, name: str) -> None:
    if name == "state.json" and content.startswith("#"):
        return
    with pytest.raises(UsageError, match=r"has no table of a state; the tables are members, .*`grants: \[\]`"):
        read(content, name)


@pytest.mark.parametrize(
    ("files", "advice"),
    [
        ({}, "a table's file has its name, as in `grants.csv`; the tables are members"),
        ({"grant.csv": "grantee"}, "`grant.csv`: did you mean `grants.csv`?"),
        ({"README.md": "", "state.yaml": "grants: []"}, "a file with all tables is named itself, as in "),
    ],
    ids=str,
)
def test_a_directory_without_any_table_is_no_state(read: Read, files: dict[str, str], advice: str) -> None:
    with pytest.raises(UsageError) as raised:
        read(files)
    assert "has no file of a table of a state" in str(raised.value)
    assert advice in str(raised.value)


@pytest.mark.parametrize(
    ("name", "content"),
    [("grants.csv", "grantee,effect,privilege,entity\n"), ("grants.json", "[]"), ("grants.yaml", "[]")],
)
def test_a_directory_with_an_empty_table_is_an_empty_state(read: Read, name: str, content: str) -> None:
    assert read({name: content}) == RawState()


@pytest.mark.parametrize("content", ["", "\n \n", "null\n", "# nothing\n"])
@pytest.mark.parametrize("name", ["grants.csv", "grants.json", "grants.jsonl", "grants.yaml"])
def test_a_file_of_a_table_that_says_nothing_is_an_error(read: Read, name: str, content: str) -> None:
    (finding, *_) = read({name: content}).findings
    assert finding.severity == "error"
    assert finding.place.row == 0


def test_a_file_without_suffix_is_json_when_it_begins_like_json(read: Read) -> None:
    raw = read('{"service_admins": [{"user": "\\ud83d\\ude00"}]}', "state")
    assert raw.rows["service_admins"][0].cells == {"user": "😀"}


def test_a_directory_may_mix_formats(read: Read) -> None:
    raw = read(
        {
            "members.csv": "user,of\nalice,lake:l\n",
            "memberships.json": '[{"user": "alice", "group": "hr"}]',
            "service_admins.yml": "- {user: root}\n",
            "owners.yaml": "owners:\n- {entity: 'lake:l', owner: alice}\n",
            "assignments.json": '{"assignments": [{"principal": "user:alice", "role": "r"}]}',
        }
    )
    assert not raw.findings
    assert list(raw.rows) == ["members", "memberships", "assignments", "owners", "service_admins"]


def test_two_files_for_one_table_are_a_finding_and_neither_is_read(read: Read) -> None:
    raw = read({"members.csv": "user,of\nalice,lake:l\n", "members.yaml": "- {user: bob, of: 'lake:l'}\n"})
    assert raw.rows == {}
    assert [f.code for f in raw.findings] == ["S005"]
    assert "`members.csv` and `members.yaml`" in raw.findings[0].message


@pytest.mark.parametrize("name", [".grants.csv.swp", "_SUCCESS", ".grants.csv.crc", "_grants.csv"])
def test_files_of_no_consequence_are_left_out(read: Read, name: str) -> None:
    assert read({name: "anything", "owners.yaml": "[]"}) == RawState()


@pytest.mark.parametrize("name", ["grants.csv", "grants.json", "grants.yaml"])
def test_text_that_is_not_utf8_is_a_finding_with_its_line(read: Read, name: str) -> None:
    (finding,) = read({name: b"grantee,effect,privilege,entity\nuser:caf\xe9,allow,SELECT,lake:l\n"}).findings
    assert (finding.code, finding.place.table, finding.place.line) == ("S001", "grants", 2)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("members.csv", "user,of\nalice,lake:l\n"),
        ("members.json", '[{"user": "alice", "of": "lake:l"}]'),
        ("members.yaml", "- {user: alice, of: 'lake:l'}\n"),
    ],
)
def test_a_byte_order_mark_is_left_out(read: Read, name: str, content: str) -> None:
    raw = read({name: b"\xef\xbb\xbf" + content.encode()})
    assert not raw.findings
    assert raw.rows["members"][0].cells == {"user": "alice", "of": "lake:l"}


def test_values_may_come_from_memory() -> None:
    raw = from_tables({"memberships": ({"user": 17, "group": "hr"},)}, "the warehouse")
    (row,) = raw.rows["memberships"]
    assert row.cells == {"user": "17", "group": "hr"}
    assert (row.place.path, row.place.row, row.place.line) == ("the warehouse", 1, None)


def test_a_directory_in_the_place_of_a_table_is_a_finding(tmp_path: Path, codes: Codes) -> None:
    (tmp_path / "grants.csv").mkdir()
    assert codes(load_raw_state(tmp_path).findings) == ["S005"]
