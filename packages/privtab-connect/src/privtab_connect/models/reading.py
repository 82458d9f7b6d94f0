"""Models of other systems as policies: a model of OpenFGA, or a schema and policies of Cedar."""

from __future__ import annotations

import re
from pathlib import Path

from privtab.base import FileError, read_text
from privtab_connect.models import cedar, fga

_FGA = re.compile(r"(?:\s*(?:#[^\n]*)?\n)*\s*model\s+schema\s|\s*\{")


def kind_of(text: str, *, policies: bool) -> str | None:
    r"""The kind of model in a text, as it is called; None for a text that is none. `policies`: whether policies of Cedar belong to it.

    >>> kind_of("model\n  schema 1.1\n", policies=False), kind_of("# Permissions", policies=False)
    ('a model of OpenFGA', None)
    """
    if policies:
        return "a schema and policies of Cedar"
    return "a model of OpenFGA" if _FGA.match(text) else None


def policy_of(file: Path, policies: Path | None, system: str | None) -> fga.Derived:
    """The policy of a model, and what a table cannot say of it. `system`: by default the name of the file. Raises FileError."""
    name = system or file.stem.partition(".")[0].replace("-", "_")
    try:
        if policies is None:
            return fga.Derived(fga.read(read_text(file), str(file)), name, str(file))
        made = cedar.read(read_text(file), read_text(policies), (str(file), str(policies)))
        derived = fga.Derived(made.model, name, str(file), made.operations)
    except RecursionError:
        raise FileError(f"{file}: nested too deep") from None
    derived.unsaid[:0] = made.unsaid
    return derived
