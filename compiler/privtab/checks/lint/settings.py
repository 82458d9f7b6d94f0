"""The settings of a privtab.toml, or of `[tool.privtab]` in a pyproject.toml.

They say where the policies are, how `privtab lint` treats each file, and who administers stores.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from collections.abc import Mapping as Values
from collections.abc import Sequence as Words
from dataclasses import field
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from privtab.base.diagnostics import Diagnostic, Severity, Span
from privtab.base.errors import SettingsInvalid, UsageError
from privtab.base.files import others_with_access
from privtab.base.hints import nearest
from privtab.base.lazy import pattern
from privtab.base.records import dataclass
from privtab.base.source import SourceFile
from privtab.checks._every import codes, unknown
from privtab.language.syntax.node_reader import DocumentProblem, DocumentReader
from privtab.language.syntax.yaml_tree import MappingNode, ScalarNode, SequenceNode, YamlNode


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
    severity: Values[str, Level]


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
    severity: Values[str, Level] = field(default_factory=dict)
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


OWN_FILE, SHARED_FILE = "privtab.toml", "pyproject.toml"
_PLACE = pattern(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_LEVELS: dict[str, Severity | None] = {**{str(s): s for s in Severity}, "off": None}
Choice = TypeVar("Choice", FailOn, LintFormat)


def settings_above(policy: Path, read: Callable[[Path], SourceFile | None] | None = None) -> Settings:
    """The settings of the nearest folder above a policy that has some. Raises SettingsInvalid with every mistake.

    They turn checks off and name administrators: raises UsageError for a file that other users could have written, unless
    PRIVTAB_CONFIG names it. `read`: what reads the files, if they are not to be read from the disk; None without a file.

    >>> settings_above(Path("/work/lake.yaml"), lambda file: None).policies is None
    True
    """
    for file in (folder / name for folder in policy.resolve().parents for name in (OWN_FILE, SHARED_FILE)):
        if read is not None:
            text = read(file)
            found = None if text is None else settings_in(text, file)
        elif found := _read(file, file.stat().st_mtime_ns) if file.is_file() else None:
            _check_access(file)
        if found is not None:
            return found
    return Settings()


def _check_access(file: Path) -> None:
    why = others_with_access(file)
    named = os.environ.get("PRIVTAB_CONFIG")
    if why is not None and not (named and Path(named).resolve() == file):
        raise UsageError(
            f"{file}: its settings are not taken, since {why}: change the owner or the permissions, or name the file in "
            "PRIVTAB_CONFIG if you trust it"
        )


def read_settings(file: Path) -> Settings:
    """The settings of a file. Raises SettingsInvalid, or FileError if it cannot be read."""
    return settings_in(SourceFile.load(file), file) or Settings(file=file.resolve())


@lru_cache(maxsize=64)
def _read(file: Path, changed: int) -> Settings | None:
    """The settings of a file; None for a pyproject.toml without `[tool.privtab]`. `changed` is only a cache key."""
    del changed
    text = SourceFile.load(file)
    return settings_in(text, file)


def settings_in(text: SourceFile, file: Path) -> Settings | None:
    """The settings in the text of a file; None for a pyproject.toml without any. Raises SettingsInvalid."""
    if file.name == SHARED_FILE and "privtab" not in text.text:
        return None
    try:
        node: YamlNode = toml_tree(text.text)
    except ValueError as error:
        if file.name == SHARED_FILE and "tool.privtab" not in text.text:
            return None  # a shared file: its main tool reports what is wrong with it
        raise SettingsInvalid((_syntax(text, str(error)),)) from None
    for name in ("tool", "privtab") if file.name == SHARED_FILE else ():
        values = [value for key, value in node.entries if key.text == name] if isinstance(node, MappingNode) else []
        if not values:
            return None
        node = values[0]
    reader = _SettingsReader(text, [])
    found = reader.document(node, file.resolve())
    if reader.found:
        raise SettingsInvalid(reader.found)
    return found


def _syntax(text: SourceFile, message: str) -> Diagnostic:
    place = _PLACE.search(message)
    end = len(text.text.rstrip())
    offset = text.starts[int(place[1]) - 1] + int(place[2]) - 1 if place and place[1] else end
    description = _PLACE.sub("", message)
    found: list[Diagnostic] = []
    _SettingsReader(text, found).report(
        "C001", text.span(offset, offset + 1), description[:1].lower() + description[1:]
    )
    return found[0]


class _SettingsReader(DocumentReader):
    NAMES: ClassVar = {"C001": "not-toml", "C002": "unknown-setting", "C003": "wrong-setting", "C004": "unknown-code"}
    MAPPING: ClassVar = "a table"
    CODES: ClassVar = dict.fromkeys(DocumentProblem, "C003") | {DocumentProblem.UNKNOWN_KEY: "C002"}

    def unknown(self, key: ScalarNode, value: YamlNode, what: str, known: Words[str]) -> None:
        help_ = self.advice(key, value, known)
        if key.text in codes():
            help_ = f"severities belong in a table of their own: `severity = {{{key.text} = …}}`"
        self.report("C002", key, f"unknown setting `{key.text}` in {what}", help_, nearest(key.text, known))

    def document(self, node: YamlNode, file: Path) -> Settings:
        # Clients read the table `client` themselves.
        top = self.fields(node, "the settings", ("policies", "lint", "client", "store")) or {}
        store, lint = (
            self.fields(top[table], f"`{table}`", keys) or {} if table in top else {}
            for table, keys in (
                ("store", ("administrators",)),
                ("lint", ("fail-on", "format", "severity", "overrides")),
            )
        )
        return Settings(
            file=file,
            policies=self.paths(top.get("policies"), "policies", "paths", "policies") or None,
            administrators=self.paths(store.get("administrators"), "administrators", "users", "ann"),
            fail_on=self.choice(lint, "fail-on", FailOn),
            format=self.choice(lint, "format", LintFormat),
            severity=self.severities(lint.get("severity")),
            overrides=tuple(self.overrides(lint["overrides"])) if "overrides" in lint else (),
        )

    def choice(self, table: dict[str, YamlNode], key: str, kind: type[Choice]) -> Choice | None:
        word = self.word(table.get(key), f"`{key}`", [word.value for word in kind])
        return None if word is None else kind(word)

    def severities(self, node: YamlNode | None) -> dict[str, Level]:
        levels: dict[str, Level] = {}
        for code, value in self.entries(node, "`severity`", 'write a table of codes, as in `{P305 = "note"}`'):
            known = codes().get(code.text)
            if known is None:
                self.report("C004", code, *unknown(code.text))
                continue
            word = self.word(value, f"`{code.text}`", tuple(_LEVELS))
            if word is not None and word != "error" and not known.configurable:
                message = f"`{code.text}` stays an error: a policy with `{code.text}` does not compile"
                self.report("C003", value, message, "leave it out")
            elif word is not None:
                levels[code.text] = Level(severity=_LEVELS[word], span=self.span(value))
        return levels

    def overrides(self, node: YamlNode) -> Iterator[Override]:
        for item in self.items(node, "`overrides`"):
            table = self.fields(item, "`overrides`", ("paths", "severity"))
            if table is None:
                continue
            severity = self.severities(table.get("severity"))
            if "paths" not in table:
                self.report("C003", item, "`paths` is missing in `overrides`", 'write `paths = ["policy_src/old/*"]`')
            elif paths := self.paths(table["paths"], "paths", "patterns", "policy_src/old/*"):
                yield Override(paths=paths, severity=severity)

    def paths(self, node: YamlNode | None, key: str, what: str, example: str) -> tuple[str, ...]:
        """A list of paths, patterns or names, or a single one; empty if it is neither, which is reported, or is absent."""
        if node is None:
            return ()
        items = node.items if isinstance(node, SequenceNode) else (node,)
        if items and all(isinstance(item, ScalarNode) and isinstance(item.value, str) and item.value for item in items):
            return tuple(item.text for item in items if isinstance(item, ScalarNode))
        self.report("C003", node, f"`{key}` is not a list of {what}", f'write `{key} = ["{example}"]`')
        return ()


KeyPath = tuple[str | int, ...]


def toml_tree(text: str) -> MappingNode:
    """The tree of a text with offsets. Raises tomllib.TOMLDecodeError.

    A table without a line of its own has the position of its parent.
    """
    import tomllib  # few policies have settings

    document = tomllib.loads(text)
    spots = places(text)
    return MappingNode(_entries(document, (), spots, (0, 0)), 0, 0)


def _node(value: Any, path: KeyPath, spots: Values[KeyPath, KeyOffsets], parent_span: tuple[int, int]) -> YamlNode:
    start, end = spots[path].value if path in spots else parent_span
    if isinstance(value, dict):
        return MappingNode(_entries(value, path, spots, (start, end)), start, end)
    if isinstance(value, list):
        items = (_node(item, (*path, number), spots, (start, end)) for number, item in enumerate(value))
        return SequenceNode(tuple(items), start, end)
    if isinstance(value, str):
        return ScalarNode(value, value, '"', start, end)
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return ScalarNode(value if isinstance(value, bool | int | float) else text, text, "", start, end)


def _entries(
    table: dict[str, Any], path: KeyPath, spots: Values[KeyPath, KeyOffsets], parent_span: tuple[int, int]
) -> tuple[tuple[ScalarNode, YamlNode], ...]:
    entries = []
    for name, value in table.items():
        entry_path = (*path, name)
        start, end = spots[entry_path].key if entry_path in spots else parent_span
        entries.append((ScalarNode(name, name, '"', start, end), _node(value, entry_path, spots, parent_span)))
    return tuple(entries)


_BLANK = pattern(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE = pattern(r"[A-Za-z0-9_-]+")
_STRING = pattern(r'"""(?:\\.|[^\\])*?"{3,5}|' r"'''(?:.)*?'{3,5}|" r'"(?:\\.|[^"\\\n])*"|' r"'[^'\n]*'", re.DOTALL)
_BARE_VALUE = pattern(r"[^\s,\]}#]+(?: [0-9][^\s,\]}#]*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyOffsets:
    """Offsets of a key and of its value; for items of a list both are the same."""

    key: tuple[int, int]
    value: tuple[int, int]


def places(text: str) -> dict[KeyPath, KeyOffsets]:
    """The positions of all keys of a valid TOML text by their path, including tables."""
    return _Scanner(text).scan()


@dataclass(slots=True)
class _Scanner:
    text: str
    position: int = 0
    found: dict[KeyPath, KeyOffsets] = field(default_factory=dict)
    lists: Counter[KeyPath] = field(default_factory=Counter)

    def scan(self) -> dict[KeyPath, KeyOffsets]:
        table: KeyPath = ()
        while self.blank() < len(self.text):
            if self.text[self.position] == "[":
                table = self.header()
            else:
                self.pair(table)
        return self.found

    def blank(self) -> int:
        found = _BLANK.match(self.text, self.position)
        self.position = found.end() if found else self.position
        return self.position

    def header(self) -> KeyPath:
        start = self.position
        double = self.text.startswith("[[", start)
        self.position += 2 if double else 1
        names = self.names()
        self.position = self.text.index("]", self.position) + (2 if double else 1)
        path: KeyPath = ()
        for name in names[:-1]:
            path = (*path, name)
            if self.lists[path]:
                path = (*path, self.lists[path] - 1)
        path = (*path, names[-1])
        self.found.setdefault(path, KeyOffsets(key=(start, self.position), value=(start, self.position)))
        if double:
            self.lists[path] += 1
            path = (*path, self.lists[path] - 1)
            self.found[path] = KeyOffsets(key=(start, self.position), value=(start, self.position))
        return path

    def names(self) -> list[str]:
        names: list[str] = []
        while True:
            self.blank()
            if found := _BARE.match(self.text, self.position) or _STRING.match(self.text, self.position):
                names.append(found.group().strip("\"'"))
                self.position = found.end()
            if self.blank() >= len(self.text) or self.text[self.position] != ".":
                return names
            self.position += 1

    def pair(self, table: KeyPath) -> None:
        start = self.position
        path: KeyPath = (*table, *self.names())
        end = len(self.text[start : self.position].rstrip()) + start
        self.position = self.text.index("=", self.position) + 1
        self.found[path] = KeyOffsets(key=(start, end), value=self.value(path))

    def value(self, path: KeyPath) -> tuple[int, int]:
        start = self.blank()
        character = self.text[start]
        if found := _STRING.match(self.text, start):
            self.position = found.end()
        elif character in "[{":
            self.position += 1
            number = 0
            while self.text[self.blank()] not in "]}":
                if character == "{":
                    self.pair(path)
                else:
                    spot = self.value((*path, number))
                    self.found[(*path, number)] = KeyOffsets(key=spot, value=spot)
                    number += 1
                if self.text[self.blank()] == ",":
                    self.position += 1
            self.position += 1
        elif found := _BARE_VALUE.match(self.text, start):
            self.position = found.end()
        else:
            self.position += 1
        return start, self.position
