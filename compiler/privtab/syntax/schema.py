"""The JSON Schema of policy files, generated from the tables of keys that the reader uses."""

from __future__ import annotations

from typing import Any

from privtab.paths import MOST_LEVELS
from privtab.syntax.keys import KEYS, LISTED, NAME, OPEN, PRIVILEGE, SECTIONS, SNAKE, VALUES, Key

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_TEXT = {"type": "string"}
_NOTHING = {"type": "null"}


def policy_schema() -> dict[str, Any]:
    """The schema, draft 2020-12: whatever can be checked without resolving names or parsing cells."""
    return {
        "$schema": _DIALECT,
        "$id": "https://privtab.invalid/schema/policy.schema.json",
        "title": "privtab policy",
        "description": "One system at one version: entity types, privileges, and who may do what.",
        **_object("policy"),
        "$defs": _SHAPES | {kind.replace(" ", "_"): _object(kind) for kind in KEYS if kind != "policy"},
    }


def _object(kind: str) -> dict[str, Any]:
    keys = KEYS[kind]
    shape: dict[str, Any] = {
        "type": "object",
        "additionalProperties": False,
        "properties": {key.name: _property(key) for key in keys},
    }
    required = [key.name for key in keys if key.required]
    if required:
        shape["required"] = required
    if kind == "reading":
        shape["minProperties"] = 1
    if kind in ("row", "row of any"):
        shape["anyOf"] = [{"required": ["requires"]}, {"required": ["each"]}]
    return shape


def _property(key: Key) -> dict[str, Any]:
    shape = _ref(key.shape)
    if key.name in _MAY_BE_EMPTY:
        shape = {"anyOf": [shape, _NOTHING]}
    return {"description": key.about, **shape}


def _ref(shape: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{shape}"}


def _one_or_many(shape: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [shape, {"type": "array", "items": shape, "minItems": 1}]}


def _by_name(pattern: str, value: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "propertyNames": {"pattern": pattern}, "additionalProperties": value}


def _rows(row: str) -> dict[str, Any]:
    return _by_name(_OPERATIONS, {"anyOf": [_ref("condition"), _ref(row)]})


_SNAKE = f"^{SNAKE}$"
_NAME = f"^{NAME}$"
_WORD = f"^{OPEN}$"
_PRIVILEGE = f"^{PRIVILEGE}$"
_OPERATIONS = rf"^\s*{NAME}(\s*,\s*{NAME})*\s*,?\s*$"
_MAY_BE_EMPTY = frozenset((*SECTIONS, "privileges", "conflicts")) - {"entities"}
_LINE = {"type": "integer", "minimum": 0}

_SHAPES: dict[str, dict[str, Any]] = {
    "format": {"const": 1},
    "text": _TEXT,
    "version": {"type": ["string", "number"], "minLength": 1},
    "snake": {"type": "string", "pattern": _SNAKE},
    "open": {"type": "string", "pattern": _WORD},
    "privilege_name": {"type": "string", "pattern": _PRIVILEGE},
    "flag": {"type": "boolean"},
    "scalar": {"type": ["string", "boolean", "integer"]},
    "creator": {"enum": [True, False, "active_role"]},
    "levels": {"anyOf": [{"type": "boolean"}, {"type": "integer", "minimum": 1, "maximum": MOST_LEVELS}]},
    "line": _LINE,
    "deprecated": {"type": ["string", "boolean"]},
    "words": _one_or_many({"type": "string"}),
    "names": _one_or_many({"type": "string", "pattern": _NAME}),
    "condition": {
        "type": "string",
        "minLength": 1,
        "examples": ["READ (namespace)", "READ/WRITE (x) and owner (y, z)", "can load (schema)", "anyone"],
    },
    "effects": _one_or_many({"type": "string", "minLength": 1, "examples": ["ALL (entity)", "owner"]}),
    "entities": {
        "type": "object",
        "propertyNames": {"pattern": _SNAKE, "not": {"enum": ["parent", "entity", "any"]}},
        "additionalProperties": {"anyOf": [_NOTHING, _ref("entities")]},
    },
    "sources": _by_name(_WORD, {"anyOf": [_TEXT, _ref("source_document")]}),
    "types": _by_name(_SNAKE, _ref("type")),
    "privileges": {
        "anyOf": [
            {"type": "array", "items": _ref("privilege_name"), "uniqueItems": True},
            _by_name(_PRIVILEGE, {"anyOf": [_NOTHING, _ref("privilege")]}),
        ]
    },
    "sets": _by_name(_WORD, _ref("words")),
    "filters": _by_name(_NAME, _ref("filter")),
    "sql": {"type": "string", "minLength": 1, "examples": ["region = 'EU'", "manager = {user}"]},
    "attributes_of": _by_name(_NAME, {"anyOf": [{"enum": ["text", "bool", "integer"]}, _ref("attribute")]}),
    "bounds": {
        "anyOf": [{"type": "boolean"}, {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}]
    },
    "owner": {"anyOf": [{"const": "none"}, _ref("ownership")]},
    "rows": _rows("row"),
    "any_rows": _rows("row_of_any"),
    "tables": {
        **_by_name(_SNAKE, {"anyOf": [_NOTHING, _ref("rows")]}),
        "properties": {"any": {"anyOf": [_NOTHING, _ref("any_rows")]}},
    },
    "with": _by_name(_SNAKE, _ref("words")),
    "flags": _by_name(_NAME, _ref("saying")),
    "row_source": _one_or_many(
        {
            "anyOf": [
                _LINE,
                {"type": "string", "pattern": r"^\s*([^:]+:)?[0-9]+\s*$"},
                _ref("row_place"),
            ]
        }
    ),
    "readings": _by_name(_WORD, {"anyOf": [_ref("condition"), _ref("reading")]}),
    "roles": _by_name(_WORD, {"anyOf": [_NOTHING, _ref("role")]}),
    "role_grants": _by_name(_SNAKE, {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]}),
    "conflicts": {"type": "array", "items": _ref("conflict")},
    "operations": {
        "type": "array",
        "items": {"type": "string", "pattern": f"^{SNAKE}/{NAME}$"},
        "minItems": 2,
        "uniqueItems": True,
    },
    "count": {"type": "integer", "minimum": 1},
    "variants": _by_name(_WORD, _ref("variant")),
    **{shape: {"enum": list(words)} for shape, words in VALUES.items() if shape not in LISTED},
    **{shape: _one_or_many({"enum": list(VALUES[shape])}) for shape in LISTED},
}
