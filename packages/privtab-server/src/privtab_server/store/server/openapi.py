"""The OpenAPI document of a store's endpoints, with the names of its policy."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, TypeAlias

from privtab.ir import Program
from privtab.state import TABLE_COLUMNS

PREFIX = "/store/v1"
TABLES = tuple(name for name in TABLE_COLUMNS if name != "service_admins")
"""The tables that are read and changed over HTTP."""
MOST_LISTED = 1000
"""The most items of a page."""
Schema: TypeAlias = dict[str, Any]
_JSON = "application/json"
_ERRORS = {
    "400": "The request is malformed.",
    "401": "There is no token, or it is not known.",
    "403": "The policy denies the request, or the token lacks the scope.",
    "404": "The resource does not exist, or the caller may not see it.",
    "408": "The request did not come in time.",
    "409": "Another change came first, what is to be created exists, or the idempotency key belongs to another request.",
    "413": "The body is too large.",
    "415": "The body is compressed.",
    "422": "Rows are invalid, no operation authorises them, or a name is unknown to the policy.",
    "503": "The store cannot be read or written at the moment.",
}


def openapi(program: Program, base: str) -> dict[str, Any]:
    """The document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": f"privtab store of {program.system}",
            "version": "1",
            "description": "Rows that say who holds what, changed as the policy allows.",
        },
        "servers": [{"url": base}],
        "security": [{"bearer": []}, {}],
        "paths": {f"{PREFIX}/{path}": methods for path, methods in _paths().items()},
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": _schemas(program),
            "parameters": _PARAMETERS,
        },
    }


# --- schemas ---------------------------------------------------------------------------------------------------------


def _ref(kind: str, name: str) -> Schema:
    return {"$ref": f"#/components/{kind}/{name}"}


def _typed(type_: str | list[str], description: str = "", **more: Any) -> Schema:
    return {"type": type_, **({"description": description} if description else {}), **more}


def _array(items: Schema, **more: Any) -> Schema:
    return {"type": "array", "items": items, **more}


def _object(**properties: Any) -> Schema:
    return {"type": "object", **({"properties": properties} if properties else {})}


def _closed(required: Iterable[str] = (), /, **properties: Any) -> Schema:
    """An object without other properties."""
    needed = {"required": list(required)} if required else {}
    return {**_object(**properties), **needed, "additionalProperties": False}


_TEXT = _typed("string")
_ENTITY, _OPERATION = _ref("schemas", "Entity"), _ref("schemas", "Operation")
_BOOLEAN, _INTEGER = _typed("boolean"), _typed("integer")
_NEXT = _typed(["string", "null"])
_REQUEST = {
    "operation": _OPERATION,
    "resource": _ENTITY,
    "with": {"type": "object", "additionalProperties": _ENTITY},
    "flags": {"type": "object", "additionalProperties": _BOOLEAN},
}
"""Fields that every change may have."""


def _schemas(program: Program) -> dict[str, Schema]:
    types = "|".join(re.escape(name) for name in program.entities)
    privileges = sorted({*program.grantable, *program.aliases, *program.sets})
    time = _typed("string", "A time in UTC.", examples=["2026-03-03T12:00:00Z"])
    principal = _typed("string", pattern="^(user|group|role):.+")
    cells: dict[str, Any] = {
        **dict.fromkeys(("entity", "of", "scope", "parent"), _ENTITY),
        **dict.fromkeys(("grantee", "principal", "owner"), principal),
        **dict.fromkeys(("from", "until"), time),
        "privilege": _typed("string", enum=privileges) if privileges else _TEXT,
        "effect": _typed("string", enum=["allow", "deny"]),
    }
    name = _typed("string", minLength=1)
    rows = {table: _ref("schemas", f"Row_{table}") for table in TABLES}
    by_table = _closed(**{table: _array(row, maxItems=1000) for table, row in rows.items()})
    new = {
        **_ENTITY,
        "description": "The entity with a flat id to create; `resource` then names what contains it, as in document:folder:f1/.",
    }
    return {
        "Entity": _typed("string", pattern=f"^({types}):.*", examples=["table:m/c/s/t"]),
        "Operation": _typed("string", enum=sorted({operation for _, operation in program.rules})),
        **{
            f"Row_{table}": _closed(
                TABLE_COLUMNS[table].required, **{cell: cells.get(cell, name) for cell in TABLE_COLUMNS[table].all}
            )
            for table in TABLES
        },
        **{f"Add_{table}": _closed(["rows"], rows=_array(row, minItems=1), **_REQUEST) for table, row in rows.items()},
        "ChangeRows": _closed(add=by_table, remove=by_table, **_REQUEST),
        "Perform": _closed(["operation", "resource"], **_REQUEST, new=new),
        "DeleteEntities": _closed(["entities"], entities=_array(_ENTITY, minItems=1, maxItems=MOST_LISTED)),
        "Deleted": _object(
            results=_array(
                _object(entity=_TEXT, status=_INTEGER),
                description="One for each entity: `status` and the body that deleting it alone would be answered with.",
            )
        ),
        "Changed": _object(
            number=_typed("integer", "The number of the change; in a dry run, of the last one."),
            repeated=_typed("boolean", "Whether an earlier request with the same key did it."),
            dry_run=_BOOLEAN,
            changes=_array(_object()),
            decision=_object(),
            effect=_typed(["object", "null"], "In a dry run: who gains and loses which operations."),
            undecided=_TEXT,
        ),
        "Error": _object(
            error=_object(
                kind=_TEXT,
                message=_TEXT,
                decision=_typed("object", "Of a denial, with what is missing."),
                findings=_array(_TEXT),
            )
        ),
    }


# --- paths -----------------------------------------------------------------------------------------------------------


def _parameter(
    name: str, schema: Schema, description: str = "", *, place: str = "query", required: bool = False
) -> Schema:
    said = {"description": description} if description else {}
    return {"name": name, "in": place, **said, **({"required": True} if required else {}), "schema": schema}


_PARAMETERS = {
    "limit": _parameter("limit", _typed("integer", minimum=1, maximum=MOST_LISTED)),
    "after": _parameter("after", _TEXT, "The `next` of the page before."),
    "about": _parameter("about", _TEXT, "Only rows that name this principal or entity."),
    "type": _parameter("type", _TEXT, "Only entities of this type."),
    "dry_run": _parameter("dry_run", _BOOLEAN, "Change nothing; answer with the exact effect."),
    "idempotency_key": _parameter(
        "Idempotency-Key",
        _typed("string", minLength=1, maxLength=200),
        "A second request with this key does nothing, and is answered as the first.",
        place="header",
    ),
    "if_match": _parameter(
        "If-Match",
        _typed("string", pattern='^"[0-9]{1,18}"$'),
        "The number of the last change that the caller has seen: a later one about the same is a conflict.",
        place="header",
    ),
}


def _paths() -> dict[str, Any]:
    """The methods of each path below the prefix."""
    after = _parameter("after", _typed("integer", minimum=0, maximum=10**15))
    metrics = _operation("metrics", "Metrics for Prometheus.", {}, errors=("401", "403"))
    metrics["responses"]["200"]["content"] = {"text/plain": {"schema": _TEXT}}
    paths: dict[str, Any] = {
        "openapi.json": {"get": _operation("describe", "This document.", _object(), errors=())},
        "authority": {
            "get": _operation("authority", "Which operation authorises which rows.", _object(), errors=("401", "403"))
        },
        "journal": {
            "get": _operation(
                "listChanges", "The changes, oldest first; for auditors.", _object(entries=_array(_object())), [after]
            )
        },
        "operations": {"post": _write("perform", "Carry out the effects of an operation.", "Perform")},
        "changes": {"post": _write("change", "Add and remove rows, all or none.", "ChangeRows")},
        "rows": {"get": _rows_operation("listRows", "The rows of all tables that the caller may see.")},
        "metrics": {"get": metrics},
        "deletions": {
            "post": _write(
                "deleteEntities",
                "Delete each of some entities that may be deleted.",
                "DeleteEntities",
                answer="Deleted",
            )
        },
    }
    for kind in ("users", "groups", "roles", "entities"):
        names = ("limit", "after", "type") if kind == "entities" else ("limit", "after")
        listed = _object(number=_INTEGER, next=_NEXT, **{kind: _array(_TEXT)})
        summary = f"The {kind} in the rows that the caller may see."
        paths[kind] = {"get": _operation(f"list{kind.title()}", summary, listed, _shared(*names))}
    paths["entities"]["delete"] = _write(
        "deleteEntity",
        "Delete an entity by the policy's operation: every row on it, and below it, goes too.",
        None,
        [_parameter("entity", _ENTITY, required=True), _parameter("operation", _OPERATION)],
    )
    id_ = _parameter("id", _typed("string", pattern="^[0-9a-f]{64}$"), place="path", required=True)
    for table in TABLES:
        paths[f"rows/{table}"] = {
            "get": _rows_operation(f"list_{table}", f"The rows of `{table}` that the caller may see."),
            "post": _write(f"add_{table}", f"Add rows to `{table}`, all or none.", f"Add_{table}"),
        }
        parameters = [id_, _parameter("resource", _ENTITY)]
        paths[f"rows/{table}/{{id}}"] = {
            "delete": _write(f"remove_{table}", f"Remove a row of `{table}`.", None, parameters)
        }
    return paths


def _shared(*names: str) -> list[Schema]:
    return [_ref("parameters", name) for name in names]


def _write(
    name: str, summary: str, schema: str | None, parameters: Iterable[Schema] = (), answer: str = "Changed"
) -> dict[str, Any]:
    common = _shared("dry_run", "idempotency_key", "if_match")
    found = _operation(name, summary, _ref("schemas", answer), [*parameters, *common], errors=tuple(_ERRORS))
    if schema is not None:
        content = {_JSON: {"schema": _ref("schemas", schema)}}
        found["requestBody"] = {"required": True, "content": content}
    return found


def _rows_operation(name: str, summary: str) -> dict[str, Any]:
    row = _object(table=_TEXT, id=_TEXT, row=_object())
    listed = _object(number=_INTEGER, rows=_array(row), next=_NEXT)
    return _operation(name, summary, listed, _shared("about", "limit", "after"))


def _operation(
    name: str,
    summary: str,
    schema: Schema,
    parameters: Iterable[Schema] = (),
    errors: tuple[str, ...] = ("400", "401", "403", "503"),
) -> dict[str, Any]:
    wrong = {_JSON: {"schema": _ref("schemas", "Error")}}
    return {
        "operationId": name,
        "summary": summary,
        **({"parameters": list(parameters)} if parameters else {}),
        "responses": {
            "200": {"description": "Done.", "content": {_JSON: {"schema": schema}}},
            **{status: {"description": _ERRORS[status], "content": wrong} for status in errors},
        },
    }
