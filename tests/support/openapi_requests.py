"""Requests generated from an OpenAPI document: most as it says, with names that mean something, the others wrong in one way."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

HOSTILE = (
    "",
    "'",
    '"; drop table head; --',
    "%2F%00",
    "../..",
    "\u202e名",
    "{}",
    "x" * 5_000,
    "user:",
    ":",
    "*",
    "a/b/c/d",
)
WRONG: tuple[Any, ...] = (None, True, -1, 1e300, [], {}, [[]], {"a": {}}, "\u0000", 10**30)


@dataclass(frozen=True)
class Generated:
    """One request, and the operation that it belongs to."""

    method: str
    path: str
    operation: Mapping[str, Any]
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes | None


class Requests:
    """Generates requests. `names`: values by the name of a property or parameter, or of a schema."""

    def __init__(self, document: Mapping[str, Any], seed: int, names: Mapping[str, Sequence[str]]) -> None:
        self.document = document
        self.random = random.Random(seed)
        self.names = names
        self._operations = [
            (method, path, operation) for path, item in document["paths"].items() for method, operation in item.items()
        ]

    def __iter__(self) -> Iterator[Generated]:
        while True:
            method, path, operation = self.random.choice(self._operations)
            yield self._request(method, path, operation)

    def resolved(self, node: Mapping[str, Any]) -> Mapping[str, Any]:
        while "$ref" in node:
            part: Any = self.document
            for name in node["$ref"].removeprefix("#/").split("/"):
                part = part[name]
            node = part
        return node

    def _request(self, method: str, path: str, operation: Mapping[str, Any]) -> Generated:
        query: dict[str, str] = {}
        headers: dict[str, str] = {}
        for parameter in map(self.resolved, operation.get("parameters", ())):
            if not parameter.get("required") and self.random.random() < 0.7:
                continue
            value = self.value(parameter["schema"], parameter["name"])
            text = value if isinstance(value, str) else json.dumps(value)
            match parameter["in"]:
                case "path":
                    path = path.replace(f"{{{parameter['name']}}}", quote(text, safe=""))
                case "query":
                    query[parameter["name"]] = text
                case "header":
                    headers[parameter["name"]] = "".join(c for c in text if " " <= c <= "~").strip()
        body = None
        if "requestBody" in operation:
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            value = self.value(schema, "")
            if self.random.random() < 0.1:
                value = self._broken(value)
            text = json.dumps(value)
            if self.random.random() < 0.03:
                text = text[: self.random.randrange(len(text) + 1)]
            body = text.encode()
        return Generated(method.upper(), path, operation, query, headers, body)

    def value(self, schema: Mapping[str, Any], name: str) -> Any:
        """A value of a schema; now and then another one."""
        reference = schema.get("$ref", "").rpartition("/")[2]
        schema = self.resolved(schema)
        known = self.names.get(name) or self.names.get(reference)
        chance = self.random.random()
        if known and chance < 0.95:
            return self.random.choice(known)
        if chance > 0.995:
            return self.random.choice(WRONG)
        if "enum" in schema:
            return self.random.choice(schema["enum"])
        match schema.get("type"):
            case "object":
                return self._object(schema)
            case "array":
                few = self.random.choice((0, 1, 1, 1, 2, 3))
                return [self.value(schema["items"], name) for _ in range(max(few, schema.get("minItems", 0)))]
            case "integer":
                low = schema.get("minimum", 0)
                return self.random.choice((low, low + 1, 7, schema.get("maximum", 99)))
            case "boolean":
                return self.random.random() < 0.5
            case _:
                return self.random.choice(HOSTILE)

    def _object(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        required = schema.get("required", ())
        properties = schema.get("properties", {})
        found = {
            name: self.value(part, name)
            for name, part in properties.items()
            if name in required or self.random.random() < self._more(name)
        }
        further = schema.get("additionalProperties")
        if isinstance(further, Mapping) and self.random.random() < 0.3:
            found[self.random.choice(HOSTILE)] = self.value(further, "")
        return found

    def _more(self, name: str) -> float:
        """How often a property that is not required is there."""
        return {"add": 0.6, "remove": 0.3, "resource": 0.4, "new": 0.3}.get(name, 0.1)

    def _broken(self, value: Any) -> Any:
        """A value with one part replaced."""
        if isinstance(value, dict) and value and self.random.random() < 0.8:
            name = self.random.choice(sorted(value))
            return {**value, name: self._broken(value[name])}
        if isinstance(value, list) and value and self.random.random() < 0.8:
            return [self._broken(value[0]), *value[1:]]
        return self.random.choice((*WRONG, *HOSTILE))
