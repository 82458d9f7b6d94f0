"""Models of other systems as policies: a model of OpenFGA, or a schema and policies of Cedar."""

from __future__ import annotations

import re
from pathlib import Path

from privtab.base import FileError, read_text
from privtab_connect.models import cedar, fga

_ABOVE = r"(?:\s|#[^\n]*\n)*"
_FGA = re.compile(_ABOVE + r"model\s+schema\s|\s*\{(?=.*\"(?:schema_version|type_definitions)\")", re.DOTALL)
_FGA_PARTS = re.compile(
    rf"{_ABOVE}(?:module\s+[\w-]+\s{_ABOVE}(?:extend\s+)?type\s|schema:[^\n]*\ncontents:|(?:name:[^\n]*\n)?model(?:_file)?:)"
)
"""Texts that name or hold a model, or a part of one: modules, the list of them, and store files."""


def kind_of(text: str, *, policies: bool) -> str | None:
    r"""The kind of model in a text, as it is called; None for a text that is none. `policies`: whether policies of Cedar belong to it.

    >>> kind_of("model\n  schema 1.1\n", policies=False), kind_of("# Permissions", policies=False)
    ('a model of OpenFGA', None)
    """
    if policies:
        return "a schema and policies of Cedar"
    return "a model of OpenFGA" if _FGA.match(text) or _FGA_PARTS.match(text) else None


def policy_of(file: Path, policies: Path | None, system: str | None) -> fga.Derived:
    """The policy of a model, and what a table cannot say of it. `system`: by default the name of the file. Raises FileError."""
    name = system or file.stem.partition(".")[0].replace("-", "_")
    try:
        if policies is None:
            text = read_text(file)
            if _FGA_PARTS.match(text):
                raise FileError(
                    f"{file}: modules or a store; a model that begins with `model` is read, from a file of its own"
                )
            derived = fga.Derived(fga.read(text, str(file)), name, str(file))
        else:
            made = cedar.read(read_text(file), read_text(policies), (str(file), str(policies)))
            derived = fga.Derived(made.model, name, str(file), made.operations)
            derived.unsaid[:0] = made.unsaid
    except RecursionError:
        raise FileError(f"{file}: nested too deep") from None
    derived.unsaid.sort(key=lambda each: [part.zfill(9) for part in each.place.rsplit(":", 2)])
    return derived
