"""One request to the server of a store, read: who makes it, and what it wants. Independent of what is answered."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from privtab import strict_json
from privtab.errors import UsageError
from privtab.request import Entity
from privtab.store.guarded import DesiredChange, WriteOptions
from privtab.store.server.openapi import TABLES

JsonResponse: TypeAlias = tuple[int, Any]
"""The status and the JSON of an answer."""
_NUMBER = re.compile(r'(?:W/)?"?(\d{1,18})"?')


class NotFound(UsageError):
    """What the request names is not there, or the caller may not see it."""


class Malformed(UsageError):
    """The request does not have the form that the OpenAPI document describes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request: who makes it, and what it says."""

    user: str
    body: Mapping[str, Any] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    path: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    raw_path: str = ""
    """The path as it was sent, in which `%2F` is part of a name."""

    @property
    def dry_run(self) -> bool:
        """Whether the change is only proposed."""
        return flag(self.query, "dry_run")

    @property
    def write_options(self) -> WriteOptions:
        """The id of the request and the number of the last change that the caller knows."""
        text = self.headers.get("if-match")
        found = None if text is None else _NUMBER.fullmatch(text.strip())
        if text is not None and found is None:
            raise Malformed('If-Match is the number of a change, as in "12"')
        return WriteOptions(request_id=self.headers.get("idempotency-key"), expect=int(found[1]) if found else None)


def flag(query: Mapping[str, str], name: str) -> bool:
    """A truth value of the query. Raises Malformed for anything but `true` and `false`."""
    text = query.get(name, "false")
    if text not in ("true", "false"):
        raise Malformed(f"`{name}` is true or false")
    return text == "true"


def read_object(body: bytes) -> Mapping[str, Any]:
    """The object in a body. Raises Malformed."""
    try:
        found = strict_json.loads(body)
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise Malformed(f"the body is not JSON: {error}") from None
    if not isinstance(found, Mapping):
        raise Malformed("the body must be an object")
    return found


def read_desired(call: Call, names: set[str], **rows: Any) -> DesiredChange:
    """What the body wants, beside `names`. Raises Malformed."""
    known = {*names, "operation", "resource", "with", "flags"}
    if unknown := sorted(set(call.body) - known):
        raise Malformed(f"the body has `{unknown[0]:.80}`; it may have {', '.join(sorted(known))}")
    operation, flags, objects = call.body.get("operation"), call.body.get("flags", {}), call.body.get("with", {})
    if operation is not None and not isinstance(operation, str):
        raise Malformed("`operation` must be a string")
    if not isinstance(flags, Mapping) or not all(isinstance(value, bool) for value in flags.values()):
        raise Malformed("`flags` must be an object of truth values")
    if not isinstance(objects, Mapping):
        raise Malformed("`with` must be an object of entities")
    resource = call.body.get("resource")
    return DesiredChange(
        user=call.user,
        operation=operation,
        resource=None if resource is None else read_entity(resource, "resource"),
        with_={name: read_entity(value, f"with.{name:.80}") for name, value in objects.items()},
        flags=frozenset(name if value else f"{name}=false" for name, value in flags.items()),
        **rows,
    )


def read_entity(value: object, where: str) -> Entity:
    """An entity as text. Raises Malformed."""
    try:
        if isinstance(value, str):
            return Entity.parse(value)
    except ValueError:
        pass
    raise Malformed(f"`{where}` must be an entity: type:path, as in table:m/c/s/t")


def read_tables(value: object, where: str) -> dict[str, list[dict[str, str]]]:
    """Rows by table. Raises Malformed."""
    if not isinstance(value, Mapping):
        raise Malformed(f"`{where}` must be an object of tables")
    for name in value:
        if name not in TABLES:
            raise Malformed(f"`{where}` has `{name:.80}`; the tables are {', '.join(TABLES)}")
    found = {table: read_rows(rows, f"{where}.{table}") for table, rows in value.items()}
    return {table: rows for table, rows in found.items() if rows}


def read_rows(value: object, where: str) -> list[dict[str, str]]:
    """The rows of one table. Raises Malformed."""
    if not isinstance(value, list):
        raise Malformed(f"`{where}` must be a list of rows")
    if not all(isinstance(row, Mapping) and all(isinstance(cell, str) for cell in row.values()) for row in value):
        raise Malformed(f"a row of `{where}` must be an object of strings")
    return [dict(row) for row in value]
