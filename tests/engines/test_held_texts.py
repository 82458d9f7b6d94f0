"""Holders that are read from a text only when they are looked up are those that a reader of the whole document finds, or are left to it."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from privtab import DecisionUnavailable, Embedded, Request
from privtab.base.request import Entity
from privtab.base.source import SourceFile
from privtab.base.strict_json import strict_loads
from privtab.bundle.archive import archive_entries, json_bytes, packed_archive
from privtab.bundle.pack import state_bundle
from privtab.client import _bundles
from privtab.engines.held_texts import HeldTexts, TextTable, read_held
from privtab.engines.index import Index
from privtab.pipeline import load_program, policy_artifacts
from privtab.state.nodes import Assignment, Grant, State

EMPTY: dict[str, Any] = {
    "revision": "r", "allow": {}, "deny": {}, "owners": {}, "members": {}, "principals": {}, "group_principals": {},
    "within": {}, "scoped": {}, "group_scoped": {}, "service_admins": [],
}  # fmt: skip
NAMES = st.text(st.sampled_from('ab:;/}{,é "\\\r\n\t\x00\x7f\u2028tru'), max_size=4)
HOLDERS = st.dictionaries(NAMES, st.just(True), min_size=1, max_size=3)
KEYS = st.builds("{}:{}".format, st.sampled_from(["a", "b", "a;", "lake"]), NAMES)
HELD = st.dictionaries(
    st.sampled_from(["READ", "WRITE", "}}", "deny"]), st.dictionaries(KEYS, HOLDERS, max_size=4), max_size=3
)
PIECES = (
    '":true,"',
    '":true},"',
    '":{"',
    "}}",
    "}",
    "{",
    '"',
    ",",
    ":",
    "true",
    "\\",
    "\n",
    '"a:b":',
    "1",
    "\\u0061",
    " ",
    '},"deny":{',
    "\ud800",
)


def as_read(document: Any) -> Any:
    """The document with the holders of all entities."""
    if isinstance(document, HeldTexts):
        return {key: dict(holders) for key, holders in document.items()}
    return {key: as_read(value) for key, value in document.items()} if isinstance(document, dict) else document


@given(HELD, HELD)
def test_an_index_has_the_holders_of_its_document(allow: Any, deny: Any) -> None:
    content = json_bytes({**EMPTY, "allow": allow, "deny": deny})
    document = json.loads(content)
    found = read_held(content)
    assert found is not None
    assert as_read(found) == document
    lazy, whole = Index(found), Index(document)
    assert lazy.tables == whole.tables
    assert {type_: dict(table) for type_, table in lazy.tables.items()} == whole.tables
    assert pickle.loads(pickle.dumps(lazy.tables)) == whole.tables  # noqa: S301


@given(
    HELD, HELD, st.lists(st.tuples(st.integers(0, 300), st.sampled_from(PIECES), st.booleans()), min_size=1, max_size=3)
)
@example({"READ": {"a:b": {"c": True}}}, {}, [(20, '"a:b":', False)])
def test_a_changed_text_is_read_as_by_the_general_reader_or_left_to_it(
    allow: Any, deny: Any, changes: list[tuple[int, str, bool]]
) -> None:
    text = json_bytes({"allow": allow, "deny": deny, "z": 1}).decode()
    for position, piece, instead in changes:
        at = position % len(text)
        text = text[:at] + piece + text[at + len(piece) * instead :]
    content = text.encode(errors="surrogatepass")
    if (found := read_held(content)) is not None:
        assert json.dumps(as_read(found)) == json.dumps(strict_loads(content))


ODD = {
    "an entity twice": '"table:a":{"role:r":true},"table:a":{"role:s":true}',
    "a holder twice": '"table:a":{"role:r":true,"role:r":true}',
    "an escape": '"table:\\u0061":{"role:r":true}',
    "an escaped quote": '"table:a":{"role:\\"r":true}',
    "a holder that is false": '"table:a":{"role:r":false}',
    "a holder with a number": '"table:a":{"role:r":2}',
    "an entity that is true": '"table:a":{"role:r":true},"table:b":true',
    "an entity that is true, first": '"":true',
    "holders in holders": '"table:a":{"role:r":{"role:s":true}}',
    "types that are not sorted": '"table:a":{"role:r":true},"lake:a":{"role:r":true},"table:b":{"role:r":true}',
    "braces in a name": '"table:a}}b":{"role:r":true}',
    "a control character": '"table:a\n":{"role:r":true}',
    "no holders": '"table:a":{}',
    "a type alone": '"table":{"role:r":true}',
    "a list": '"table:a":["role:r"]',
    "spaces": '"table:a": {"role:r": true}',
    "the end is missing": '"table:a":{"role:r":true',
    "nothing": "",
}


@pytest.mark.parametrize("inside", ODD.values(), ids=ODD)
def test_odd_grants_are_answered_or_refused_with_the_same_words(
    inside: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = load_program(SourceFile(path="lake.yaml", text=LAKE))
    (tmp_path / "policy.tar.gz").write_bytes(policy_artifacts(program).bundle())
    files = {name: file.read() for name, _, file in archive_entries(io.BytesIO(state_bundle(program, State())))}
    name = "privtab_state/lake/data.json"
    principals = b'"principals":{"ann":"user:ann\\nrole:r"}'
    assert b'"allow":{}' in files[name]
    files[name] = files[name].replace(b'"allow":{}', f'"allow":{{"READ":{{{inside}}}}}'.encode())
    files[name] = files[name].replace(b'"principals":{}', principals)
    (tmp_path / "state.tar.gz").write_bytes(packed_archive(files))

    def answers() -> str:
        try:
            client = Embedded(tmp_path / "policy.tar.gz", tmp_path / "state.tar.gz")
        except DecisionUnavailable as error:
            return str(error)
        index = client.contents()[1]
        return f"{client.check('ann', 'read', 'table:l/a')} {dict(index.tables)} {client.check('ann', 'read', 'table:a/b')}"

    found = answers()
    monkeypatch.setattr(_bundles, "read_held", lambda _: None)
    assert found == answers()


LAKE = """\
privtab: 1
system: lake
version: "1"
entities: {lake: {table: }}
privileges: [READ, WRITE]
semantics: {inheritance: down, deny: overrides}
tables: {table: {read: READ (table), both: READ (table) and WRITE (table)}}
"""


def test_a_client_reads_the_holders_of_an_entity_when_it_is_asked_about(tmp_path: Path) -> None:
    program = load_program(SourceFile(path="lake.yaml", text=LAKE))
    grants: list[tuple[str, str, Literal["allow", "deny"]]] = [
        ("READ", "lake:l", "allow"),
        ("READ", "table:l/a", "deny"),
        ("WRITE", "lake:l", "allow"),
        ("READ", "table:l/c", "allow"),
    ]
    state = State(
        grants=tuple(Grant("role:r", effect, name, Entity.parse(on)) for name, on, effect in grants),
        assignments=(Assignment(principal="user:ann", role="r", scope=None),),
    )
    for name, bundle in (("policy", policy_artifacts(program).bundle()), ("state", state_bundle(program, state))):
        (tmp_path / f"{name}.tar.gz").write_bytes(bundle)
    client = Embedded(tmp_path / "policy.tar.gz", tmp_path / "state.tar.gz")
    tables: Mapping[str, Any] = client.contents()[1].tables
    assert all(isinstance(tables[type_], TextTable) for type_ in ("lake", "table"))
    assert {type(held) for table in tables.values() for held in table.raw.values()} == {str}
    asked = [("read", "l/a", False), ("read", "l/b", True), ("both", "l/b", True), ("both", "l/a", False)]
    assert [client.check("ann", operation, f"table:{path}") for operation, path, _ in asked] == [a for *_, a in asked]
    assert {path: type(held) for path, held in tables["table"].raw.items()} == {"l/a": dict, "l/c": str}
    assert client.decide("ann", "both", "table:l/a").missing == (("deny READ (table:l/a) to role:r",),)
    columns = [
        Request(user="ann", action=operation, resource=Entity("table", path)) for operation, path, _ in asked
    ] * 600
    assert client.check_many(columns) == [answer for *_, answer in asked] * 600
    assert Embedded(tmp_path / "policy.tar.gz", tmp_path / "state.tar.gz").check_many(columns) == client.check_many(
        columns
    )
