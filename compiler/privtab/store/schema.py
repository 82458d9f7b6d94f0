"""The SQL tables of a store: one for each table of a state, the journal of changes, and its head."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    func,
    literal_column,
)

from privtab.state.raw import COLUMNS

METADATA = MetaData()
JOURNAL = Table(
    "journal",
    METADATA,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("at", String(40), nullable=False),
    Column("actor", Text, nullable=False),
    Column("request_id", String(200), unique=True),
    Column("action", Text, nullable=False),
    Column("resource", Text),
    Column("request", Text, nullable=False),
    Column("decision", Text, nullable=False),
    Column("changes", Text, nullable=False),
    Column("previous", String(64), nullable=False),
    Column("hash", String(64), nullable=False),
)
HEAD = Table(
    "head",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("number", BigInteger, nullable=False),
    Column("hash", String(64), nullable=False),
    Column("system", Text, nullable=False),
    Column("checked", String(64)),
)
"""One row, which every writer locks. `checked`: under which policy all rows are known to be valid."""
TABLES_VERSION = "0001"
"""The version of these tables: another one needs another number, and tables of the earlier ones are to be changed then."""
VERSION = Table("alembic_version", METADATA, Column("version_num", String(32), primary_key=True))
"""One row, in the form of Alembic, so that its migrations can lead to later versions."""
TEXT = Text().with_variant(Text(collation="C"), "postgresql")
"""Texts that are compared by their characters."""
STATE = {
    name: Table(
        f"state_{name}",
        METADATA,
        Column("id", String(64), primary_key=True),
        *(Column(cell, TEXT, nullable=cell not in columns.required) for cell in columns.all),
        Column("change", BigInteger, nullable=False),
    )
    for name, columns in COLUMNS.items()
}
"""The rows of a state by table. `id` is a hash, since names are too long for an index; `change` added the row.

`change` is no foreign key, which would cost a look-up and a lock for each row: `verify` compares the rows with the journal.
"""
CUT = 300
"""Characters of a text in an index: PostgreSQL takes at most 2,704 bytes for the columns of an index together."""
INDEXES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "members": (("user",), ("of",)),
    "memberships": (("user",), ("group",)),
    "assignments": (("principal",), ("role",), ("scope",)),
    "grants": (("entity", "grantee"), ("grantee",)),
    "owners": (("entity",), ("owner",)),
    "service_admins": (("user",),),
    "attributes": (("user",), ("entity",)),
    "entities": (("entity",), ("parent",)),
}
"""The columns by which rows are looked up, by table."""
BEGINNING = "0" * 64
"""The hash before the first entry of a journal."""


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
_TEXT: Callable[[str], str] = json.encoder.encode_basestring_ascii


def cut(column: ColumnElement[str]) -> ColumnElement[str]:
    """A text as it is in an index. The numbers are part of the statement, or no index would fit it."""
    return func.substr(column, literal_column("1"), literal_column(str(CUT)))


for _name, _indexes in INDEXES.items():
    for _columns in _indexes:
        Index(f"of_{_name}_{'_'.join(_columns)}", *(cut(STATE[_name].c[cell]) for cell in _columns))


def canonical(value: object) -> str:
    """JSON in ASCII with sorted keys and no spaces."""
    return _ENCODER.encode(value)


def row_id(cells: Mapping[str, str | None]) -> str:
    """The primary key of a row: a hash of its cells as canonical JSON, which is written here without the encoder's overhead."""
    texts = [f"{_TEXT(name)}:{'null' if text is None else _TEXT(text)}" for name, text in sorted(cells.items())]
    return hashlib.sha256(f"{{{','.join(texts)}}}".encode()).hexdigest()


def entry_hash(entry: Mapping[str, Any]) -> str:
    """The hash of a row of the journal, which covers the hash before it and every other column as it is stored."""
    content = {name: value for name, value in entry.items() if name != "hash"}
    return hashlib.sha256((entry["previous"] + canonical(content)).encode()).hexdigest()
