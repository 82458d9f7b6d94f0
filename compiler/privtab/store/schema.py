"""The SQL tables of a store: one for each table of a state, the journal of changes, and its head."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import BigInteger, Column, ForeignKey, Integer, MetaData, String, Table, Text

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
)
"""One row, which every writer locks."""
STATE = {
    name: Table(
        f"state_{name}",
        METADATA,
        Column("id", String(64), primary_key=True),
        *(Column(cell, Text, nullable=cell not in columns.required) for cell in columns.all),
        Column("change", BigInteger, ForeignKey("journal.number"), nullable=False),
    )
    for name, columns in COLUMNS.items()
}
"""The rows of a state by table. `id` is a hash, since names are too long for an index; `change` added the row."""
BEGINNING = "0" * 64
"""The hash before the first entry of a journal."""


def canonical(value: object) -> str:
    """JSON in ASCII with sorted keys and no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def row_id(cells: Mapping[str, str | None]) -> str:
    """The primary key of a row."""
    return hashlib.sha256(canonical(dict(cells)).encode()).hexdigest()


def entry_hash(entry: Mapping[str, Any]) -> str:
    """The hash of a row of the journal, which covers the hash before it and every other column as it is stored."""
    content = {name: value for name, value in entry.items() if name != "hash"}
    return hashlib.sha256((entry["previous"] + canonical(content)).encode()).hexdigest()
