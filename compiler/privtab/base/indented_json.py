"""Readable JSON, written in less than half the time of `json.dumps(indent=2)`, since Python's C encoder does not indent."""

from __future__ import annotations

import json
from collections.abc import Callable
from json.encoder import encode_basestring as quoted
from typing import Any, TypeAlias

Keys: TypeAlias = tuple[Any, ...]


def dumps(value: object, *, sort_keys: bool = False, default: Callable[[Any], Any] | None = None) -> str:
    """The text of `json.dumps(value, indent=2, ensure_ascii=False, …)`."""
    # By the keys of an object and its indentation: the keys in order, and a template for their values.
    layouts: dict[tuple[Keys, str], tuple[Keys, str]] = {}

    def text(value: Any, newline: str) -> str:
        kind = type(value)
        if kind is str:
            return quoted(value)
        if kind is dict:
            return mapping(value, newline) if value else "{}"
        if kind is list or kind is tuple:
            return sequence(value, newline) if value else "[]"
        if kind is int:
            return repr(value)
        if value is None or kind is bool:
            return "null" if value is None else "true" if value else "false"
        if isinstance(value, dict):
            return text(dict(value), newline)
        if isinstance(value, list | tuple):
            return text(list(value), newline)
        if default is None or isinstance(value, str | int | float):
            return json.dumps(value, ensure_ascii=False)  # raises TypeError for what is not JSON
        return text(default(value), newline)

    def mapping(value: dict[Any, Any], newline: str) -> str:
        inner = newline + "  "
        keys = tuple(value)
        layout = layouts.get((keys, newline))
        if layout is None:
            order = tuple(sorted(keys)) if sort_keys else keys
            fields = [quoted(_key(key)).replace("%", "%%") + ": %s" for key in order]
            layout = order, "{" + inner + ("," + inner).join(fields) + newline + "}"
            if all(isinstance(key, str) for key in keys):  # others may be equal and have different texts, as 1 and True
                layouts[keys, newline] = layout
        order, template = layout
        items = [value[key] for key in order]
        return template % tuple([quoted(item) if type(item) is str else text(item, inner) for item in items])

    def sequence(value: list[Any] | tuple[Any, ...], newline: str) -> str:
        inner = newline + "  "
        parts = [quoted(item) if type(item) is str else text(item, inner) for item in value]
        return "[" + inner + ("," + inner).join(parts) + newline + "]"

    return text(value, "\n")


def _key(key: object) -> str:
    return key if isinstance(key, str) else str(next(iter(json.loads(json.dumps({key: None})))))
