"""The rows of filters in a table of a store's database, so that queries beside the store ask it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from sqlalchemy import Column, Index, Integer, MetaData, Table, Text

from privtab.errors import UsageError
from privtab.store.database import METADATA, TEXT, Database, address

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")


def keep_rows(
    url: str, name: str, columns: Sequence[str], rows: Iterable[tuple[object, ...]], key: str, revision: str | None
) -> None:
    """Replace the rows of a filter in a table, which is made if there is none, in one transaction.

    `url`: that of a store. `columns` and `rows`: those of the filter; `revision`, of the state, gets a column of its own.
    Raises UsageError for a name that is no plain one or is of the store itself, FileError, StoreError.
    """
    if not _NAME.fullmatch(name) or name in METADATA.tables:
        raise UsageError(
            f"`{name}` is no name for a table of filters: small letters, digits and `_`, and none of the store's"
        )
    numbers = ("depth", "allowed")
    made = (Column(one, Integer if one in numbers else TEXT, nullable=one.startswith("name")) for one in columns)
    table = Table(name, MetaData(), *made, Column("revision", Text))
    Index(f"of_{name}", table.c.filter)
    added = [dict(zip((*columns, "revision"), (*row, revision), strict=True)) for row in rows]
    with Database(address(url)).existing().writing() as connection:
        table.create(connection, checkfirst=True)
        connection.execute(table.delete().where(table.c.filter == key))
        if added:
            connection.execute(table.insert(), added)
