"""The keys of every mapping of a policy file; the reader checks against them, and the JSON Schema is generated from them."""

from __future__ import annotations

from typing import Any

from privtab.base.paths import MOST_LEVELS
from privtab.base.records import dataclass
from privtab.base.sql_text import DIALECTS

SNAKE = r"[a-z][a-z0-9_]*"
"""Systems, entity types, `with` objects: names that are the policy's own."""
NAME = r"[A-Za-z][A-Za-z0-9_]*"
"""Operations, attributes, flags: what requests name, in the spelling of their system."""
OPEN_NAME = r"[^\W\d](?:[\w.:\-]*\w)?"
"""Sets, roles, sources, readings, variants: names as other systems spell them, such as `server-1.1`."""
PRIVILEGE = rf"{OPEN_NAME}(?: {OPEN_NAME})*"
"""Privileges: also several words. Conditions have these in quotes: `"USE CATALOG" (catalog)`."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key: its name, the shape of its value (a definition of the JSON Schema), and its description."""

    name: str
    shape: str
    about: str
    example: str = ""
    """Of a required key."""

    @property
    def required(self) -> bool:
        """True if a mapping must have the key."""
        return self.example != ""


_ROW_BODY = (
    Key("requires", "condition", "may the call be made: a condition such as `READ (namespace) and owner (stream)`"),
    Key("each", "condition", "which items of a listing or a bulk call pass"),
    Key("report", "report", "`errors`: items that do not pass are reported instead of dropped"),
    Key("grants", "effects", "privileges that the caller gets on success: `ALL (entity)`, `read + write (job)`"),
    Key("becomes", "effects", "what the caller becomes on success: `owner`, `member`, `owner (TYPE)`"),
    Key("revokes", "effects", "what is revoked on success: `ALL (entity)`, `owner`"),
    Key(
        "delegates", "effects", "what the request gives to a principal that it names: `READ`, `any privilege`, `owner`"
    ),
    Key("withdraws", "effects", "what the request takes from a principal that it names, as in `delegates`"),
)

KEYS: dict[str, tuple[Key, ...]] = {
    "policy": (
        Key("privtab", "format", "version of this format", example="privtab: 1"),
        Key("system", "snake", "name of the system; it names the Rego package", example="system: NAME"),
        Key("version", "version", "version of the system that the file is about", example="version: NAME"),
        Key("title", "text", "title of the policy"),
        Key("sources", "sources", "documents that the rows come from, by a short name"),
        Key("entities", "entities", "entity types, nested as they contain each other", example="entities: {TYPE: }"),
        Key("types", "types", "more about entity types: single, nested, flat, title, principal"),
        Key("privileges", "privileges", "privileges, as a list or with details"),
        Key("sets", "sets", "named sets of privileges"),
        Key("conditions", "conditions", "named conditions, which cells use as `NAME (TYPE)`"),
        Key("dialect", "dialect", "the dialect of SQL in which row filters and column masks are written"),
        Key("attributes", "attributes", "attributes of users, entities and requests, which conditions compare"),
        Key("semantics", "semantics", "what grants mean throughout the file"),
        Key("core", "rows", "rows for every entity type that has no row of its own for the operation"),
        Key("tables", "tables", "rows by entity type and operation; under `any` as in the key `any`"),
        Key("any", "any_rows", "rows for every entity type, or for those in `for`"),
        Key("roles", "roles", "roles with default grants"),
        Key("conflicts", "conflicts", "operations that no one role may hold together"),
        Key("variants", "variants", "overlays: rows and roles that replace those of the same name"),
    ),
    "source document": (
        Key("document", "text", "file name of the document", example="document: FILE"),
        Key("title", "text", "title of the document"),
        Key("note", "text", "a remark"),
    ),
    "type": (
        Key("single", "flag", "there is one per parent, and it has the path of its parent"),
        Key("nested", "levels", "entities of this type may contain others of it; a number: at most this many levels"),
        Key("flat", "flag", "its ids are flat: rows of the state, in `entities`, say where its entities lie"),
        Key("title", "text", "its title in the document"),
        Key(
            "principal", "principal", "entities of this type are principals: user, group or role; `none`: they are not"
        ),
        Key(
            "row_filters", "filters", "which rows of its entities a caller sees: the first filter whose condition holds"
        ),
        Key("column_masks", "filters", "how a caller sees its entities, columns: the first mask whose condition holds"),
        Key("renamed_from", "snake", "its name before; `diff` compares it with that"),
        Key("note", "text", "a remark"),
    ),
    "filter": (
        Key("requires", "condition", "for whom it is: a condition, as of a row", example="requires: CONDITION"),
        Key("sql", "sql", "an SQL expression with placeholders: `manager = {user}`", example='sql: "TRUE"'),
        Key("title", "text", "the document's words for it"),
        Key("flags", "flags", "flags of the condition, as of a row"),
        Key("gate", "none", "`none`: the gate of the file does not apply"),
        Key("note", "text", "a remark"),
        Key("source", "row_source", "position of the filter in its source, as of a row"),
    ),
    "privilege": (
        Key("on", "words", "entity types that it can be granted on; all, where absent"),
        Key("alias_of", "privilege_name", "the privilege that this is another name of"),
        Key("implies", "words", "privileges and sets that a grant of it gives as well; one step"),
        Key("inheritance", "inheritance", "as in `semantics`, for this privilege; what `semantics` says, where absent"),
        Key("deprecated", "deprecated", "what to use instead"),
        Key("renamed_from", "privilege_name", "its name before; `diff` compares it with that"),
        Key("title", "text", "its title in the document"),
        Key("note", "text", "a remark"),
    ),
    "attributes": (
        Key("user", "attributes_of", "attributes of the caller: `user.NAME`"),
        Key("entity", "attributes_of", "attributes of entities: `entity.NAME`, `TYPE.NAME`, `OBJECT.NAME`"),
        Key("request", "attributes_of", "attributes of the request itself: `request.NAME`"),
    ),
    "attribute": (
        Key("text", "flag", "text, compared for equality"),
        Key("bool", "flag", "true or false"),
        Key("enum", "words", "one of these words"),
        Key("set", "words", "any of these words"),
        Key("integer", "bounds", "a whole number; `[LOWEST, HIGHEST]`: between these"),
        Key("on", "words", "of an entity: the types that have it; all, where absent"),
        Key(
            "from",
            "from",
            "of a user or an entity: `state`, `request` or both, where values come from; `state` where absent",
        ),
        Key("default", "scalar", "of the request: the value where a request gives none"),
        Key("note", "text", "a remark"),
    ),
    "semantics": (
        Key("inheritance", "inheritance", "`down`: a grant holds for everything below its object; `none`: there alone"),
        Key("deny", "deny", "`overrides`: denials exist and beat grants, at their object and below; `none`"),
        Key("owner", "owner", "what ownership means, or `none`"),
        Key("subjects", "names", "the types of subjects in requests that are users; `user`, where absent"),
        Key("grantees", "kinds", "who grants may be to: user, group, role; all, where absent"),
        Key("assignees", "kinds", "who roles may be assigned to: user, group, role; all, where absent"),
        Key("groups", "groups", "where groups come from: `state`, `request`"),
        Key("everyone", "privilege_name", "the group that every user belongs to without any row: `public`"),
        Key("hierarchy", "hierarchy", "which principals contain others: `groups`, `roles`"),
        Key(
            "active_roles",
            "active_roles",
            "`request`: a request may narrow the caller's roles to some of them; `request_grants`: for grants, not for ownership; `none`",
        ),
        Key("implication", "implication", "`transitive`: what implied privileges imply is given, too; `one_step`"),
        Key(
            "gate",
            "file_gate",
            "a condition conjoined to every row without `gate: none`; or `and`, such a condition, and `or`, which suffices for each",
        ),
    ),
    "gate": (
        Key("and", "condition", "a condition conjoined to every row"),
        Key("or", "condition", "a condition that suffices for every row, whatever `and` and the row require"),
    ),
    "ownership": (
        Key("kinds", "kinds", "who may own: user, group, role"),
        Key(
            "creator",
            "creator",
            "`true`: the creator of an entity becomes its owner; `active_role`: the first active role of the request does",
        ),
        Key("holds", "words", "privileges and sets that an owner has on what they own; `ALL`: every one"),
    ),
    "row": (
        *_ROW_BODY,
        Key("title", "text", "the document's words for the operation"),
        Key("with", "with", "further objects of the request, by name: a type, a list of types, or `any`"),
        Key(
            "flags",
            "flags",
            "flags of the conditions: `required`: every request must state it; `optional`: if omitted, it is not set",
        ),
        Key("gate", "none", "`none`: the gate of the file does not apply"),
        Key("creates", "flag", "the request may leave off the last name: the entity does not exist yet"),
        Key("destructive", "flag", "it destroys something: it deletes an entity or data, or takes rights away"),
        Key(
            "sensitive",
            "flag",
            "who gains it should be looked at, as where it gives rights; what destroys is sensitive",
        ),
        Key("note", "text", "a remark"),
        Key(
            "source",
            "row_source",
            "position of the row in its source: a line, `name:line`, or a list of these, the main one first",
        ),
        Key("ambiguous", "ambiguous", "other ways to read the cell"),
        Key("deprecated", "deprecated", "what to use instead"),
        Key("renamed_from", "name", "the operation's name before; `diff` compares it with that"),
    ),
    "row place": (
        Key("source", "open", "short name of the document"),
        Key("line", "line", "line in the document", example="line: 1"),
    ),
    "ambiguous": (
        Key("cell", "text", "the cell as the document has it"),
        Key(
            "readings",
            "readings",
            "other readings by name: a condition, or what the row would say",
            example="readings: {NAME: CONDITION}",
        ),
        Key("why", "text", "why the row's reading was chosen"),
    ),
    "reading": _ROW_BODY,
    "role": (
        Key("scope", "scopes", "entity type that it is assigned for, or a list of them"),
        Key("grants", "role_grants", "privileges by entity type"),
        Key("title", "text", "its title in the document"),
        Key("note", "text", "a remark"),
    ),
    "conflict": (
        Key(
            "operations",
            "operations",
            "two or more operations, each as `TYPE/OPERATION`",
            example="operations: [TYPE/OPERATION, TYPE/OPERATION]",
        ),
        Key("at_most", "count", "how many of them one role may hold; default: 1"),
        Key("why", "text", "why no role may hold more of them"),
    ),
    "variant": (
        Key("title", "text", "title of the variant"),
        Key("note", "text", "a remark"),
        Key("core", "rows", "rows that replace core rows of the same operation"),
        Key("tables", "tables", "rows that replace rows of the same entity type and operation, and `any` rows"),
        Key("any", "any_rows", "rows that replace `any` rows of the same operation"),
        Key("roles", "roles", "roles that replace those of the same name"),
    ),
}
KEYS["row of any"] = (*KEYS["row"], Key("for", "words", "entity types that the row holds for; all, where absent"))

VALUES: dict[str, tuple[str, ...]] = {
    "report": ("errors",),
    "none": ("none",),
    "saying": ("required", "optional"),
    "principal": ("user", "group", "role", "none"),
    "inheritance": ("none", "down"),
    "deny": ("none", "overrides"),
    "implication": ("one_step", "transitive"),
    "groups": ("state", "request"),
    "hierarchy": ("groups", "roles"),
    "active_roles": ("none", "request", "request_grants"),
    "kinds": ("user", "group", "role"),
    "from": ("state", "request"),
    "dialect": tuple(DIALECTS),
}
"""Shapes whose values are a closed set of words."""
LISTED = ("groups", "hierarchy", "kinds", "from")
"""The keys among them that are lists."""

SECTIONS: dict[str, str] = {
    "sources": "sources: {NAME: {document: FILE}}",
    "entities": "entities: {TYPE: {TYPE: }}",
    "types": "types: {TYPE: {single: true}}",
    "attributes": "attributes: {user: {NAME: text}}",
    "sets": "sets: {NAME: [PRIVILEGE, PRIVILEGE]}",
    "conditions": "conditions: {NAME: CONDITION}",
    "semantics": "semantics: {inheritance: down}",
    "core": "core: {OPERATION: CONDITION}",
    "tables": "tables: {TYPE: {OPERATION: CONDITION}}",
    "any": "any: {OPERATION: CONDITION}",
    "roles": "roles: {NAME: {grants: {TYPE: [PRIVILEGE]}}}",
    "variants": "variants: {NAME: {tables: {TYPE: {OPERATION: CONDITION}}}}",
}
"""The sections that are mappings, with an example of each."""


_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_TEXT = {"type": "string"}
_NOTHING = {"type": "null"}


def policy_schema() -> dict[str, Any]:
    """The schema, draft 2020-12: whatever can be checked without resolving names or parsing cells.

    >>> policy_schema()["title"]
    'privtab policy'
    """
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
    if kind in ("reading", "gate"):
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
_WORD = f"^{OPEN_NAME}$"
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
    "scopes": _one_or_many({"type": "string", "pattern": _SNAKE}),
    "names": _one_or_many({"type": "string", "pattern": _NAME}),
    "condition": {
        "type": "string",
        "minLength": 1,
        "examples": ["READ (namespace)", "READ/WRITE (x) and owner (y, z)", "can load (schema)", "anyone", "nobody"],
    },
    "file_gate": {"anyOf": [_ref("condition"), _ref("gate")]},
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
    "conditions": _by_name(_PRIVILEGE, _ref("condition")),
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
        {"anyOf": [_LINE, {"type": "string", "pattern": r"^\s*([^:]+:)?[0-9]+\s*$"}, _ref("row_place")]}
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
