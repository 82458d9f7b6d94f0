"""Shared parts of targets with SQL: the connection, quoting using SQLAlchemy, and the record of granted rights in the target."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import sqlalchemy
from sqlalchemy import Connection, Dialect, Engine
from sqlalchemy.exc import SQLAlchemyError

from privtab.base import UsageError
from privtab_connect.errors import PushError
from privtab_connect.importing.answers import database, reason, transaction
from privtab_connect.pushdown.rights import (
    GRANT_OPTION,
    NativeGrant,
    NativeOwnership,
    PushPlan,
    Right,
    from_text,
    in_order,
    to_text,
)

RECORD = "privtab"
"""The schema or database with the table of recorded rights."""


class Quoting:
    """Identifiers in the SQL of one database, written by SQLAlchemy."""

    def __init__(self, dialect: Dialect) -> None:
        """`dialect`: with a parameter style that leaves `%` alone."""
        self._preparer = dialect.identifier_preparer

    def name(self, *names: str) -> str:
        """A name, or names joined by dots."""
        return ".".join(map(self._preparer.quote_identifier, names))


def engine(where: str, *dialects: str) -> tuple[Engine, str]:
    """The database at an address, which begins with one of `dialects`, and the address without its password. Raises UsageError."""
    created, shown = database(where)
    if created.name not in dialects:
        raise UsageError(f"the mapping document is for {dialects[-1]}, and the address is of {created.name}")
    return created, shown


class Sql:
    """A connection in one transaction; what the database refuses is a PushError with its first line."""

    def __init__(self, connection: Connection, where: str) -> None:
        self._connection = connection.execution_options(no_parameters=True)
        self.where = where

    def rows(self, query: str) -> Sequence[Any]:
        """The rows of a query."""
        with self.errors():
            return self._connection.exec_driver_sql(query).all()

    def run(self, statements: Iterable[str]) -> None:
        """Run statements as they are written."""
        for statement in statements:
            with self.errors(statement):
                self._connection.exec_driver_sql(statement)

    def record(self, table: str, pusher: str, before: frozenset[Right], after: frozenset[Right]) -> None:
        """Change the rights that are recorded for a pusher. `table`: its quoted name."""
        changes = (
            (f"DELETE FROM {table} WHERE pusher = :pusher AND held = :held", before - after),
            (f"INSERT INTO {table} (pusher, held) VALUES (:pusher, :held)", after - before),
        )
        for statement, rights in changes:
            rows = [{"pusher": pusher, "held": text} for text in sorted(map(to_text, rights))]
            if rows:
                with self.errors(statement):
                    self._connection.execute(sqlalchemy.text(statement), rows)

    def commit(self) -> None:
        """End the transaction for good."""
        with self.errors():
            self._connection.commit()

    @contextlib.contextmanager
    def errors(self, statement: str = "") -> Iterator[None]:
        """Turn what the database reports into a PushError; `statement`: what it was asked."""
        try:
            yield
        except SQLAlchemyError as error:
            asked = f" (`{statement}`)" if statement else ""
            raise PushError(f"{self.where}: {reason(error)}{asked}") from error


@contextlib.contextmanager
def connected(created: Engine, where: str) -> Iterator[Sql]:
    """A connection, whose transaction is rolled back unless it was committed."""
    with transaction(created, where, PushError) as connection:
        yield Sql(connection, where)


def recorded(rows: Iterable[tuple[str, str]], pusher: str, where: str) -> tuple[frozenset[Right], frozenset[Right]]:
    """Return the rights that pushes under this name recorded, and the rights that all other pushes recorded. `rows`: (pusher, right)."""
    own: set[Right] = set()
    others: set[Right] = set()
    for name, text in rows:
        try:
            (own if name == pusher else others).add(from_text(text))
        except ValueError as error:
            raise PushError(f"{where}: the record of earlier pushes cannot be read: {error}") from error
    return frozenset(own), frozenset(others)


def restored(plan: PushPlan) -> tuple[Right, ...]:
    """Privileges on columns that stay, and that go with the same ones on their table, or with its former owner."""
    grants = [r for r in plan.revoke if isinstance(r, NativeGrant) and r.object.kind == "table"]
    lost = {(r.account, r.privilege.removesuffix(GRANT_OPTION), r.object.names) for r in grants}
    owners = {(r.owner, r.object.names) for r in plan.grant if isinstance(r, NativeOwnership)}
    columns = {r for r in plan.kept - plan.grant if isinstance(r, NativeGrant) and r.object.kind == "column"}
    return in_order(
        {
            r
            for r in columns
            if (r.account, r.privilege.removesuffix(GRANT_OPTION), r.object.names[:2]) in lost
            or (r.account, r.object.names[:2]) in owners
        }
    )
