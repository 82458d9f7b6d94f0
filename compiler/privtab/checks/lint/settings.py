"""The settings of a privtab.toml: where the policies are, how `privtab lint` treats each file, and who administers stores."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from privtab.base import resources
from privtab.base.diagnostics import Diagnostic, FindingKind, Severity, Span
from privtab.base.hints import nearest
from privtab.checks._every import kinds
from privtab.language.report import SuppressedFinding


class FailOn(StrEnum):
    """The least severity of a finding that makes a run fail."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"
    NEVER = "never"

    def fails(self, severity: Severity) -> bool:
        """Return whether a finding of this severity makes the run fail."""
        order = (Severity.ERROR, Severity.WARNING, Severity.NOTE)
        return self is not FailOn.NEVER and order.index(severity) <= order.index(Severity(self.value))


class LintFormat(StrEnum):
    """The output formats of findings; `text` is an alias of `pretty`."""

    PRETTY = "pretty"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"
    JUNIT = "junit"
    TEXT = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """The severity that a settings file gives to a code, None if it is off, and the span of that setting."""

    severity: Severity | None
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """Severities for some files; `paths` are patterns relative to the settings file."""

    paths: tuple[str, ...]
    severity: Mapping[str, Level]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The content of a settings file.

    >>> Settings(administrators=("ann",)).fails(Severity.WARNING)
    False
    """

    file: Path | None = None
    """The file; None if there is none."""
    policies: tuple[str, ...] | None = None
    """Files and folders with policies, relative to `root`."""
    administrators: tuple[str, ...] = ()
    """The first service administrators of stores."""
    fail_on: FailOn | None = None
    format: LintFormat | None = None
    severity: Mapping[str, Level] = field(default_factory=dict)
    overrides: tuple[Override, ...] = ()

    @property
    def shown(self) -> str:
        """` (settings: FILE)`, as commands print which file they followed; empty if there is none."""
        if self.file is None:
            return ""
        below = self.file.is_relative_to(Path.cwd())
        return f" (settings: {self.file.relative_to(Path.cwd()) if below else self.file})"

    @property
    def root(self) -> Path | None:
        """The folder of the file."""
        return None if self.file is None else self.file.parent

    def fails(self, severity: Severity) -> bool:
        """True for a finding that makes a run fail where the command line does not say otherwise."""
        return (self.fail_on or FailOn.ERROR).fails(severity)

    def levels(self, path: Path) -> dict[str, Level]:
        """The severities for one file, by code; later overrides win."""
        levels = dict(self.severity)
        for override in self.overrides:
            if self.root is not None and any(_matches(pattern, path, self.root) for pattern in override.paths):
                levels |= override.severity
        return levels


def _matches(pattern: str, path: Path, root: Path) -> bool:
    """Return whether a pattern matches a file: with `*` (which also matches `/`), or as a folder that contains it."""
    file = path.resolve()
    if not file.is_relative_to(root.resolve()):
        return False
    relative = file.relative_to(root.resolve()).as_posix()
    expected = pattern.removeprefix("./").rstrip("/")
    return fnmatchcase(relative, expected) or fnmatchcase(relative, f"{expected}/*")


@dataclass(frozen=True, slots=True, kw_only=True)
class LintResult:
    """The result for one file: its text, its findings, the ignored ones, and the severity from which it fails."""

    path: str
    text: str
    findings: tuple[Diagnostic, ...]
    ignored: tuple[SuppressedFinding, ...]
    settings: Settings
    fail_on: FailOn

    def failed(self) -> bool:
        """True if a finding fails the run."""
        return any(self.fail_on.fails(finding.severity) for finding in self.findings)


_FINDS = re.compile(r"## What it finds\n+(.*?)(?:\n\n|\n*\Z)", re.DOTALL)
_DIGITS = str.maketrans("OIL", "011")
FIRST_CONFIGURABLE = "P300"
"""Findings with smaller codes are errors that stop a policy; they can be neither ignored nor given another severity."""


class CatalogueEntry(FindingKind):
    """A kind of findings, with its page."""

    __slots__ = ()

    @property
    def configurable(self) -> bool:
        """True if the check can be ignored or given another severity."""
        return self.code >= FIRST_CONFIGURABLE

    @property
    def path(self) -> Path:
        """The path of its page."""
        return resources.rules() / f"{self.code}-{self.name}.md"

    def page(self) -> str:
        """The text of its page; empty if this installation has none."""
        try:
            return self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""

    def summary(self) -> str:
        """The findings of the check, on one line."""
        found = _FINDS.search(self.page())
        return " ".join(found[1].split()) if found else self.name.replace("-", " ")


@cache
def codes() -> dict[str, CatalogueEntry]:
    """Every code, in order.

    >>> codes()["P305"].severity.value
    'warning'
    """
    return {kind.code: CatalogueEntry(kind.code, kind.name, kind.severity) for kind in kinds()}


def intended_code(word: str) -> str | None:
    """The code that was most likely meant: another case, a letter for a digit, a digit too many, or a name."""
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
