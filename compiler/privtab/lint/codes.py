"""The codes of findings, with their pages."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from privtab import _resources
from privtab.checks import kinds
from privtab.diagnostics import Severity

_FINDS = re.compile(r"## What it finds\n+(.*?)(?:\n\n|\n*\Z)", re.DOTALL)
_DIGITS = str.maketrans("OIL", "011")
FIRST_CONFIGURABLE = "P300"
"""Findings with smaller codes are errors that stop a policy; they can be neither ignored nor given another severity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueEntry:
    """A finding of the catalogue."""

    code: str
    name: str
    severity: Severity

    @property
    def configurable(self) -> bool:
        """Whether it can be ignored or given another severity."""
        return self.code >= FIRST_CONFIGURABLE

    @property
    def path(self) -> Path:
        """The path of its page."""
        return _resources.rules() / f"{self.code}-{self.name}.md"

    def page(self) -> str:
        """The text of its page; empty if this installation has none."""
        try:
            return self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""

    def summary(self) -> str:
        """What it finds, on one line."""
        found = _FINDS.search(self.page())
        return " ".join(found[1].split()) if found else self.name.replace("-", " ")


@cache
def codes() -> dict[str, CatalogueEntry]:
    """Every code, in order."""
    return {kind.code: CatalogueEntry(code=kind.code, name=kind.name, severity=kind.severity) for kind in kinds()}


def intended_code(word: str) -> str | None:
    """The code that was most likely meant: another case, a letter for a digit, a digit too many, or a name."""
    from privtab.hints import nearest

    upper = word.upper().translate(_DIGITS)
    for guess in (upper, upper[:4]):
        if guess in codes():
            return guess
    names = {code.name: code.code for code in codes().values()}
    near = nearest(word, names, cutoff=0.8)
    return None if near is None else names[near]


def unknown(word: str) -> tuple[str, str, str | None]:
    """A message for a code that does not exist, advice, and the code that was meant."""
    code = intended_code(word)
    help_ = f"did you mean `{code}`?" if code else "`privtab lint --explain all` lists them"
    return f"there is no finding `{word}`", help_, code
