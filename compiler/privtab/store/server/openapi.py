"""The OpenAPI document of a store's endpoints, with the names of its policy."""

from __future__ import annotations

import re
from typing import Any

from privtab.ir.nodes import Program
from privtab.state.raw import COLUMNS

PREFIX = "/store/v1"
TABLES = tuple(name for name in COLUMNS if name != "service_admins")
"""The tables that are read and changed over HTTP."""
MOST_LISTED = 1000
"""The most items of a page."""
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
        "paths": _paths(),
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": _schemas(program),
            "parameters": _PARAMETERS,
        },
    }


def _paths() -> dict[str, Any]:
    paths: dict[str, Any] = {
        f"{PREFIX}/openapi.json": {"get": _operation("describe", "This document.", _object(), errors=())},
        f"{PREFIX}/authority": {
            "get": _operation("authority", "Which operation authorises which rows.", _object(), errors=("401", "403"))
        },
        f"{PREFIX}/journal": {
            "get": _operation(
                "listChanges",
                "The changes, oldest first; for auditors.",
                _object(entries={"type": "array", "items": {"type": "object"}}),
                [{"name": "after", "in": "query", "schema": {"type": "integer", "minimum": 0, "maximum": 10**15}}],
            )
        },
        f"{PREFIX}/operations": {
            "post": _write("perform", "Carry out the effects of an operation.", "Perform"),
        },
        f"{PREFIX}/changes": {"post": _write("change", "Add and remove rows, all or none.", "ChangeRows")},
        f"{PREFIX}/rows": {"get": _rows_operation("listRows", "The rows of all tables that the caller may see.")},
    }
    for kind in ("users", "groups", "roles", "entities"):
        listed = _object(
            number={"type": "integer"},
            next={"type": ["string", "null"]},
            **{kind: {"type": "array", "items": {"type": "string"}}},
        )
        parameters = [_ref("parameters", "limit"), _ref("parameters", "after")]
        if kind == "entities":
            parameters.append(_ref("parameters", "type"))
        paths[f"{PREFIX}/{kind}"] = {
            "get": _operation(
                f"list{kind.title()}", f"The {kind} in the rows that the caller may see.", listed, parameters
            )
        }
    entity = {"name": "entity", "in": "query", "required": True, "schema": _ref("schemas", "Entity")}
    operation = {"name": "operation", "in": "query", "schema": _ref("schemas", "Operation")}
    paths[f"{PREFIX}/entities"]["delete"] = _write(
        "deleteEntity",
        "Delete an entity by the policy's operation: every row on it, and below it, goes too.",
        None,
        [entity, operation],
    )
    paths[f"{PREFIX}/deletions"] = {
        "post": _write(
            "deleteEntities", "Delete each of some entities that may be deleted.", "DeleteEntities", answer="Deleted"
        )
    }
    metrics = _operation("metrics", "Metrics for Prometheus.", {}, errors=("401", "403"))
    metrics["responses"]["200"]["content"] = {"text/plain": {"schema": {"type": "string"}}}
    paths[f"{PREFIX}/metrics"] = {"get": metrics}
    for table in TABLES:
        paths[f"{PREFIX}/rows/{table}"] = {
            "get": _rows_operation(f"list_{table}", f"The rows of `{table}` that the caller may see."),
            "post": _write(f"add_{table}", f"Add rows to `{table}`, all or none.", f"Add_{table}"),
        }
        id_ = {"name": "id", "in": "path", "required": True, "schema": {"type": "string", "pattern": "^[0-9a-f]{64}$"}}
        resource = {"name": "resource", "in": "query", "schema": _ref("schemas", "Entity")}
        paths[f"{PREFIX}/rows/{table}/{{id}}"] = {
            "delete": _write(f"remove_{table}", f"Remove a row of `{table}`.", None, [id_, resource])
        }
    return paths


def _schemas(program: Program) -> dict[str, Any]:
    types = "|".join(re.escape(name) for name in program.entities)
    privileges = sorted({*program.grantable, *program.aliases, *program.sets})
    time = {"type": "string", "description": "A time in UTC.", "examples": ["2026-03-03T12:00:00Z"]}
    principal = {"type": "string", "pattern": "^(user|group|role):.+"}
    cells: dict[str, Any] = {
        "entity": _ref("schemas", "Entity"),
        "of": _ref("schemas", "Entity"),
        "scope": _ref("schemas", "Entity"),
        "parent": _ref("schemas", "Entity"),
        "privilege": {"type": "string", "enum": privileges} if privileges else {"type": "string"},
        "effect": {"type": "string", "enum": ["allow", "deny"]},
        "grantee": principal,
        "principal": principal,
        "owner": principal,
        "from": time,
        "until": time,
    }
    rows = {
        f"Row_{table}": {
            "type": "object",
            "properties": {name: cells.get(name, {"type": "string", "minLength": 1}) for name in COLUMNS[table].all},
            "required": list(COLUMNS[table].required),
            "additionalProperties": False,
        }
        for table in TABLES
    }
    request_fields = {
        "operation": _ref("schemas", "Operation"),
        "resource": _ref("schemas", "Entity"),
        "with": {"type": "object", "additionalProperties": _ref("schemas", "Entity")},
        "flags": {"type": "object", "additionalProperties": {"type": "boolean"}},
    }
    by_table = {
        "type": "object",
        "properties": {
            table: {"type": "array", "items": _ref("schemas", f"Row_{table}"), "maxItems": 1000} for table in TABLES
        },
        "additionalProperties": False,
    }
    return {
        "Entity": {"type": "string", "pattern": f"^({types}):.*", "examples": ["table:m/c/s/t"]},
        "Operation": {"type": "string", "enum": sorted({operation for _, operation in program.rules})},
        **rows,
        **{
            f"Add_{table}": {
                "type": "object",
                "properties": {
                    "rows": {"type": "array", "items": _ref("schemas", f"Row_{table}"), "minItems": 1},
                    **request_fields,
                },
                "required": ["rows"],
                "additionalProperties": False,
            }
            for table in TABLES
        },
        "ChangeRows": {
            "type": "object",
            "properties": {"add": by_table, "remove": by_table, **request_fields},
            "additionalProperties": False,
        },
        "Perform": {
            "type": "object",
            "properties": {
                **request_fields,
                "new": {
                    **_ref("schemas", "Entity"),
                    "description": "The entity with a flat id to create; `resource` then names what contains it, as in document:folder:f1/.",
                },
            },
            "required": ["operation", "resource"],
            "additionalProperties": False,
        },
        "DeleteEntities": {
            "type": "object",
            "properties": {
                "entities": {
                    "type": "array",
                    "items": _ref("schemas", "Entity"),
                    "minItems": 1,
                    "maxItems": MOST_LISTED,
                }
            },
            "required": ["entities"],
            "additionalProperties": False,
        },
        "Deleted": _object(
            results={
                "type": "array",
                "description": "One for each entity: `status` and the body that deleting it alone would be answered with.",
                "items": _object(entity={"type": "string"}, status={"type": "integer"}),
            }
        ),
        "Changed": _object(
            number={"type": "integer", "description": "The number of the change; in a dry run, of the last one."},
            repeated={"type": "boolean", "description": "Whether an earlier request with the same key did it."},
            dry_run={"type": "boolean"},
            changes={"type": "array", "items": {"type": "object"}},
            decision={"type": "object"},
            effect={"type": ["object", "null"], "description": "In a dry run: who gains and loses which operations."},
            undecided={"type": "string"},
        ),
        "Error": _object(
            error=_object(
                kind={"type": "string"},
                message={"type": "string"},
                decision={"type": "object", "description": "Of a denial, with what is missing."},
                findings={"type": "array", "items": {"type": "string"}},
            )
        ),
    }


_PARAMETERS = {
    "limit": {"name": "limit", "in": "query", "schema": {"type": "integer", "minimum": 1, "maximum": MOST_LISTED}},
    "after": {
        "name": "after",
        "in": "query",
        "description": "The `next` of the page before.",
        "schema": {"type": "string"},
    },
    "about": {
        "name": "about",
        "in": "query",
        "description": "Only rows that name this principal or entity.",
        "schema": {"type": "string"},
    },
    "type": {"name": "type", "in": "query", "description": "Only entities of this type.", "schema": {"type": "string"}},
    "dry_run": {
        "name": "dry_run",
        "in": "query",
        "description": "Change nothing; answer with the exact effect.",
        "schema": {"type": "boolean"},
    },
    "idempotency_key": {
        "name": "Idempotency-Key",
        "in": "header",
        "description": "A second request with this key does nothing, and is answered as the first.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 200},
    },
    "if_match": {
        "name": "If-Match",
        "in": "header",
        "description": "The number of the last change that the caller has seen: a later one about the same is a conflict.",
        "schema": {"type": "string", "pattern": '^"[0-9]{1,18}"$'},
    },
}


def _write(
    name: str,
    summary: str,
    schema: str | None,
    parameters: list[dict[str, Any]] | None = None,
    answer: str = "Changed",
) -> dict[str, Any]:
    common = [_ref("parameters", key) for key in ("dry_run", "idempotency_key", "if_match")]
    found = _operation(name, summary, _ref("schemas", answer), [*(parameters or []), *common], errors=tuple(_ERRORS))
    if schema is not None:
        content = {_JSON: {"schema": _ref("schemas", schema)}}
        found["requestBody"] = {"required": True, "content": content}
    return found


def _rows_operation(name: str, summary: str) -> dict[str, Any]:
    row = _object(table={"type": "string"}, id={"type": "string"}, row={"type": "object"})
    listed = _object(
        number={"type": "integer"}, rows={"type": "array", "items": row}, next={"type": ["string", "null"]}
    )
    return _operation(name, summary, listed, [_ref("parameters", key) for key in ("about", "limit", "after")])


def _operation(
    name: str,
    summary: str,
    schema: dict[str, Any],
    parameters: list[dict[str, Any]] | None = None,
    errors: tuple[str, ...] = ("400", "401", "403", "503"),
) -> dict[str, Any]:
    wrong = {_JSON: {"schema": _ref("schemas", "Error")}}
    return {
        "operationId": name,
        "summary": summary,
        **({"parameters": parameters} if parameters else {}),
        "responses": {
            "200": {"description": "Done.", "content": {_JSON: {"schema": schema}}},
            **{status: {"description": _ERRORS[status], "content": wrong} for status in errors},
        },
    }


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", **({"properties": properties} if properties else {})}


def _ref(kind: str, name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/{kind}/{name}"}
