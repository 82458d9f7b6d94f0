"""Texts with placeholders: `table:{catalog}/{schema}/{name}`; `{id:users}` is what was kept in `users` under the value of `id`.

A cell of an optional column may be `{scope?}`: a row without a value has no such cell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from urllib.parse import quote

from privtab.base import encode_name
from privtab_connect.errors import TemplateError

ITEM = "it"
"""The placeholder for an item that has no fields of its own."""
_PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)\??(?::([A-Za-z_]\w*))?\}")


@dataclass(frozen=True, slots=True)
class Template:
    """A text with placeholders."""

    text: str

    @property
    def optional(self) -> str | None:
        """The name of the value, of which a row may have none."""
        return self.text[1:-2] if _PLACEHOLDER.fullmatch(self.text) and self.text.endswith("?}") else None

    def plain(self, values: Mapping[str, object], missing: str | None = None) -> str:
        """Fill in the values as they are. Raises TemplateError for a missing value, unless `missing` stands for it."""
        return self._filled(values, _plain, missing)

    def path(self, values: Mapping[str, object], wildcards: str = "") -> str:
        """As an entity: the names of its path are encoded; a list is a path from the root down.

        A name with one of `wildcards` keeps it. A text that is one placeholder is an entity as the source writes it.
        """
        if _PLACEHOLDER.fullmatch(self.text):
            return self.plain(values)
        return self._filled(values, lambda value: _path(value, wildcards))

    def principal(self, values: Mapping[str, object]) -> str:
        """As a principal: a name alone as it is; the names of a path, which a list or a `/` of the text makes, encoded."""
        placed = "/" in self.text
        return self._filled(values, lambda value: _path(value) if placed or isinstance(value, list) else _plain(value))

    def address(self, values: Mapping[str, object]) -> str:
        """As a path of a URL."""
        return self._filled(values, lambda value: quote("/".join(_texts(value)), safe=""))

    def varying(self, values: Mapping[str, object]) -> str:
        """As the parts of the query of a URL that have placeholders."""
        parts = self.text.partition("?")[2].split("&")
        return "&".join(Template(part).address(values) for part in parts if _PLACEHOLDER.search(part))

    def _filled(
        self, values: Mapping[str, object], written: Callable[[object], str], missing: str | None = None
    ) -> str:
        parts = _parts(self.text)
        if len(parts) == 1:
            return self.text
        filled = []
        for literal, name, lookup_name in parts:
            filled.append(literal)
            if name is None:
                continue
            value = values.get(name)
            if lookup_name is not None:
                lookup = values.get(lookup_name)
                value = lookup.get(value) if isinstance(lookup, dict) and isinstance(value, str | int) else None
            if value is None or value in ("", []):
                if missing is not None:
                    filled.append(missing)
                    continue
                placeholder = f"{{{name}}}" if lookup_name is None else f"{{{name}:{lookup_name}}}"
                key = f": `{lookup_name}` has no `{values[name]}`" if lookup_name and values.get(name) else ""
                raise TemplateError(f"no value for `{placeholder}` in `{self.text}`{key}")
            filled.append(written(value))
        return "".join(filled)


@cache
def _parts(text: str) -> tuple[tuple[str, str | None, str | None], ...]:
    """The text before each placeholder, and its names; behind the last one the text alone."""
    parts, end = [], 0
    for match in _PLACEHOLDER.finditer(text):
        parts.append((text[end : match.start()], match[1], match[2]))
        end = match.end()
    return (*parts, (text[end:], None, None))


@lru_cache(maxsize=1 << 16)
def _encoded(name: str, wildcards: str) -> str:
    """A name of a path; one with a wildcard keeps it."""
    if not any(sign in name for sign in wildcards):
        return encode_name(name)
    return "".join(sign if sign in wildcards or sign in "*?" else encode_name(sign) for sign in name)


def _path(value: object, wildcards: str = "") -> str:
    return "/".join([_encoded(name, wildcards) for name in _texts(value)])


def _plain(value: object) -> str:
    return value if isinstance(value, str) else "/".join(_texts(value))


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        if {*map(type, value)} == {str}:
            return value
        return [text for item in value for text in _texts(item)]
    if isinstance(value, int) and not isinstance(value, bool):
        return [str(value)]
    raise TemplateError(f"a name is {value!r:.60}, not text")
