"""Finding and reading settings: `privtab.toml` above a policy, or `[tool.privtab]` of a pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from privtab import source
from privtab.diagnostics import Diagnostic, Severity, Span, in_order
from privtab.errors import SettingsInvalid
from privtab.hints import did_you_mean, listed, nearest
from privtab.lint.codes import codes, unknown
from privtab.lint.settings import FailOn, Level, LintFormat, Override, Settings
from privtab.lint.toml_places import Path as Way
from privtab.lint.toml_places import Spot, places
from privtab.source import SourceFile

OWN, SHARED = "privtab.toml", "pyproject.toml"
_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_LEVELS: dict[str, Severity | None] = {**{str(s): s for s in Severity}, "off": None}
Choice = TypeVar("Choice", FailOn, LintFormat)


def settings_for(policy: Path) -> Settings:
    """The settings of the nearest folder above a policy that has some; raises SettingsInvalid with what is wrong there."""
    for folder in policy.resolve().parents:
        for name in (OWN, SHARED):
            file = folder / name
            if file.is_file() and (found := _read(file, file.stat().st_mtime_ns)) is not None:
                return found
    return Settings()


def read_settings(file: Path) -> Settings:
    """The settings of a file; raises SettingsInvalid, or FileError where it cannot be read."""
    return settings_in(source.load(file), file) or Settings(root=file.resolve().parent)


@lru_cache(maxsize=64)
def _read(file: Path, changed: int) -> Settings | None:
    """The settings of a file, None where it is a pyproject.toml that speaks of other tools; `changed` is for the cache."""
    del changed
    text = source.load(file)
    return settings_in(text, file)


def settings_in(text: SourceFile, file: Path) -> Settings | None:
    """The settings in the text of a file, None where it is a pyproject.toml without any; raises SettingsInvalid."""
    if file.name == SHARED and "privtab" not in text.text:
        return None
    try:
        document = tomllib.loads(text.text)
    except tomllib.TOMLDecodeError as error:
        if file.name == SHARED:
            return None  # not ours alone: the tool that the file is for says what is wrong with it
        raise SettingsInvalid((_syntax(text, str(error)),)) from None
    reader = _Reader(text, places(text.text))
    if file.name == SHARED:
        tool = document.get("tool", {})
        if "privtab" not in tool:
            return None
        found = reader.document(tool["privtab"], ("tool", "privtab"), file.resolve().parent)
    else:
        found = reader.document(document, (), file.resolve().parent)
    if reader.found:
        raise SettingsInvalid(in_order(reader.found))
    return found


def _syntax(text: SourceFile, message: str) -> Diagnostic:
    place = _PLACE.search(message)
    end = len(text.text.rstrip())
    at = text.starts[int(place[1]) - 1] + int(place[2]) - 1 if place and place[1] else end
    what = _PLACE.sub("", message)
    return _wrong("C001", "not-toml", what[:1].lower() + what[1:], text.span(at, at + 1), None)


def _wrong(code: str, name: str, message: str, span: Span, help_: str | None, fix: str | None = None) -> Diagnostic:
    severity = Severity.ERROR
    return Diagnostic(code=code, name=name, severity=severity, message=message, span=span, help=help_, fix=fix)


@dataclass(slots=True)
class _Reader:
    """Reads one document; every mistake becomes a finding."""

    file: SourceFile
    places: Mapping[Way, Spot]
    found: list[Diagnostic] = field(default_factory=list)

    def document(self, value: Any, way: Way, root: Path) -> Settings:
        top = self.table(value, way, ("policies", "lint", "client"))  # `client` is for those who ask for decisions
        policies = (
            self.paths(top["policies"], (*way, "policies"), "policies", "paths", "policies")
            if "policies" in top
            else None
        )
        lint = self.table(top.get("lint", {}), (*way, "lint"), ("fail-on", "format", "severity", "overrides"))
        way = (*way, "lint")
        return Settings(
            root=root,
            policies=policies or None,
            fail_on=self.choice(lint, way, "fail-on", FailOn),
            format=self.choice(lint, way, "format", LintFormat),
            severity=self.severities(lint.get("severity", {}), (*way, "severity")),
            overrides=self.overrides(lint.get("overrides", []), (*way, "overrides")),
        )

    def table(self, value: Any, way: Way, known: tuple[str, ...]) -> dict[str, Any]:
        """A table with its unknown keys told and left out."""
        if not isinstance(value, dict):
            self.wrong(way, "is a table", None)
            return {}
        for key in value:
            if key not in known:
                help_ = did_you_mean(key, known) or f"the settings here are {listed(known)}"
                if key in codes():
                    help_ = f"severities stand in a table of their own: `severity = {{{key} = …}}`"
                span = self.span((*way, key), key=True)
                self.found.append(
                    _wrong("C002", "unknown-setting", f"unknown setting `{key}`", span, help_, nearest(key, known))
                )
        return {key: value[key] for key in value if key in known}

    def choice(self, table: dict[str, Any], way: Way, key: str, kind: type[Choice]) -> Choice | None:
        if key not in table:
            return None
        value = table[key]
        words = [word.value for word in kind]
        if isinstance(value, str) and value in words:
            return kind(value)
        near = did_you_mean(value, words) if isinstance(value, str) else None
        self.wrong((*way, key), f"is one of {listed(words, last='or')}", near)
        return None

    def severities(self, value: Any, way: Way) -> dict[str, Level]:
        if not isinstance(value, dict):
            self.wrong(way, 'is a table of codes, as in `{P305 = "note"}`', None)
            return {}
        levels: dict[str, Level] = {}
        for code, word in value.items():
            here = (*way, code)
            known = codes().get(code)
            if known is None:
                message, help_, fix = unknown(code)
                self.found.append(_wrong("C004", "unknown-code", message, self.span(here, key=True), help_, fix))
            elif not isinstance(word, str) or word not in _LEVELS:
                near = did_you_mean(word, _LEVELS) if isinstance(word, str) else None
                self.wrong(here, f"is one of {listed(_LEVELS, last='or')}", near)
            elif not known.may_go and word != "error":
                self.wrong(here, f"stays an error: a policy with `{code}` does not compile", "leave it out")
            else:
                levels[code] = Level(severity=_LEVELS[word], span=self.span(here))
        return levels

    def overrides(self, value: Any, way: Way) -> tuple[Override, ...]:
        if not isinstance(value, list):
            self.wrong(way, "is a list of tables: `[[lint.overrides]]`", None)
            return ()
        found: list[Override] = []
        for number, item in enumerate(value):
            here = (*way, number)
            table = self.table(item, here, ("paths", "severity"))
            severity = self.severities(table.get("severity", {}), (*here, "severity"))
            at = (*here, "paths") if "paths" in table else here
            if paths := self.paths(table.get("paths"), at, "paths", "patterns", "policy_src/old/*"):
                found.append(Override(paths=paths, severity=severity))
        return tuple(found)

    def paths(self, value: Any, way: Way, key: str, what: str, example: str) -> tuple[str, ...]:
        """A list of paths or patterns, or one alone; empty where it is neither, which is reported."""
        paths = [value] if isinstance(value, str) else value
        if isinstance(paths, list) and paths and all(isinstance(path, str) and path for path in paths):
            return tuple(paths)
        self.wrong(
            way,
            f"takes `{key}`, a list of {what}" if way[-1] != key else f"is a list of {what}",
            f'write `{key} = ["{example}"]`',
        )
        return ()

    def wrong(self, way: Way, what: str, help_: str | None) -> None:
        name = next((str(part) for part in reversed(way) if isinstance(part, str)), "the file")
        self.found.append(_wrong("C003", "wrong-setting", f"`{name}` {what}", self.span(way), help_))

    def span(self, way: Way, *, key: bool = False) -> Span:
        """The place of what stands there, or of the nearest table above it."""
        while way and way not in self.places:
            way = way[:-1]
        if not way:
            return self.file.span(0, 0)
        spot = self.places[way]
        start, end = spot.key if key else spot.value
        end = (
            min(end, max(self.file.text.find("\n", start, end), start + 1))
            if "\n" in self.file.text[start:end]
            else end
        )
        return self.file.span(start, end)
