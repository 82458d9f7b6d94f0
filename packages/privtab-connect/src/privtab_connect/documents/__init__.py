"""Find the documents about other systems: in the user's folders of policies, among the shipped policies, and here.

This folder has the documents for no single system: `scim`, and `tables` of a database.
"""

from __future__ import annotations

from pathlib import Path

from privtab.base import Documents, SettingsInvalid
from privtab.pipeline import policy_paths


def documents(kind: str) -> dict[str, Path]:
    """The documents of a kind, by name."""
    return dict(sorted(Documents(kind, _folders()).items()))


def names(kind: str) -> str:
    """The names of a kind's documents, for a help text: only the shipped ones if the settings are wrong, which commands report."""
    try:
        return ", ".join(documents(kind))
    except SettingsInvalid:
        return ", ".join(sorted(Documents(kind, [_HERE])))


def document(name: str, kind: str) -> tuple[str, Path]:
    """The name of a document and its file, of a path or of a name. Raises UsageError."""
    return Documents(kind, _folders()).find(name)


def _folders() -> tuple[Path, ...]:
    return (*policy_paths(), _HERE)


_HERE = Path(__file__).parent
