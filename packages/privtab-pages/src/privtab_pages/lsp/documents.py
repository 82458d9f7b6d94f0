"""The files of an editor: the content of each, from its buffer if it is open, else from the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from privtab.base import (
    Diagnostic,
    FileError,
    FindingKind,
    PolicyInvalid,
    PrivtabError,
    SettingsInvalid,
    Severity,
    SourceFile,
)
from privtab.ir import Program
from privtab.language import MappingNode, ScalarNode, SequenceNode, YamlNode, compose_yaml, read_policy
from privtab.model import DeclaredNames
from privtab.pipeline import load_program, resolve_policy
from privtab_pages.lsp.occurrences import Occurrence, in_policy, in_scenarios
from privtab_testing.scenarios.collect import MARK, check_script, default_policy, is_scenarios, read_script

NOT_CHECKED = FindingKind("L001", "not-checked", Severity.ERROR)
"""A finding for anything that prevents checks at all, such as invalid settings; it must not look like a file without findings."""


@dataclass(frozen=True, kw_only=True)
class Document:
    """The text of one file, and everything that follows from the text alone."""

    path: Path
    source: SourceFile
    occurrences: tuple[Occurrence, ...]
    policy: Path | None
    """The policy that it is, or is for; None if that is not clear."""

    def findings(self) -> tuple[Diagnostic, ...]:
        """The findings, as commands report them."""
        try:
            return self._findings()
        except (SettingsInvalid, PolicyInvalid) as error:
            return error.diagnostics
        except (PrivtabError, OSError) as error:
            return (NOT_CHECKED.at(self.source.span(0, 0), str(error)),)

    def _findings(self) -> tuple[Diagnostic, ...]:
        return check_script(self.path, self.source)

    def at(self, line: int, column: int) -> Occurrence | None:
        """The name at a position, or just before it."""
        place = (line, column)
        found = (
            o for o in self.occurrences if (o.span.line, o.span.column) <= place <= (o.span.end_line, o.span.end_column)
        )
        return next(found, None)


@dataclass(frozen=True, kw_only=True)
class PolicyDocument(Document):
    """A policy."""

    names: DeclaredNames | None
    """The declarations of the file, valid or not; None if the file cannot be read at all."""

    def _findings(self) -> tuple[Diagnostic, ...]:
        return resolve_policy(self.path, source=self.source).check().findings.kept

    @cached_property
    def program(self) -> Program | None:
        """The program; None if errors stop it."""
        try:
            return load_program(self.source)
        except PolicyInvalid:
            return None


@dataclass(kw_only=True)
class Documents:
    """The documents, each policy read once for each text. `buffer` returns the text of an open file, None for others."""

    buffer: Callable[[Path], str | None]
    _policies: dict[Path, PolicyDocument] = field(default_factory=dict)
    _readable: dict[Path, PolicyDocument] = field(default_factory=dict)
    _valid: dict[Path, PolicyDocument] = field(default_factory=dict)
    _states: dict[Path, list[Path]] = field(default_factory=dict)

    def get(self, path: Path) -> Document | None:
        """The document of a file; None if it is neither a policy nor scenarios, or cannot be read."""
        file = self.text(path)
        if file is None:
            return None
        if file.has_mark("privtab"):
            return self._policy(path, file)
        if ".scenarios." not in path.name and not file.has_mark(MARK):
            return None
        script = read_script(path, default_policy(path), [], file)
        about = None if script is None else script.subject.policy.resolve()
        # What is no policy is a finding of these scenarios, whatever it is: scenarios may name themselves.
        policy = None
        if about is not None and (text := self.text(about)) is not None and text.has_mark("privtab"):
            policy = self._policy(about, text)
        readable = None if policy is None else self._readable.get(policy.path)
        root = compose_yaml(file, [])
        names = () if readable is None or root is None else tuple(in_scenarios(root, file, readable.occurrences))
        return Document(path=path, source=file, occurrences=names, policy=about)

    def text(self, path: Path) -> SourceFile | None:
        """The text of a file; None if it cannot be read."""
        text = self.buffer(path)
        if text is not None:
            return SourceFile.of(str(path), text)
        try:
            return SourceFile.load(path, display=str(path))
        except FileError:
            return None

    def _policy(self, path: Path, file: SourceFile) -> PolicyDocument:
        known = self._policies.get(path)
        if known is not None and known.source.text == file.text:
            return known
        tables, _ = read_policy(file)
        names = None if tables is None else DeclaredNames.of(tables, [])
        occurrences = () if names is None else in_policy(names)
        policy = PolicyDocument(path=path, source=file, occurrences=occurrences, policy=path, names=names)
        self._policies[path] = policy
        if names is not None:
            self._readable[path] = policy
        return policy

    def policy(self, document: Document) -> PolicyDocument | None:
        """The policy of a document: itself, or the one that scenarios are for."""
        found = (
            document if isinstance(document, PolicyDocument) or document.policy is None else self.get(document.policy)
        )
        return found if isinstance(found, PolicyDocument) else None

    def readable(self, document: Document) -> PolicyDocument | None:
        """The last text of the policy of a document that could be read as one."""
        return None if document.policy is None else self._readable.get(document.policy)

    def typed(self, document: Document) -> PolicyDocument | None:
        """The same while scenarios are typed and cannot be read, which may be for the policy that their name says."""
        about = document.policy or default_policy(document.path)
        if about is not None and document.policy is None:
            self.get(about.resolve())
        return None if about is None else self._readable.get(about.resolve())

    def program(self, document: Document) -> Program | None:
        """The program of the last text of the policy of a document that was valid."""
        policy = self.policy(document)
        if policy is None:
            return None
        if policy.program is not None:
            self._valid[policy.path] = policy
        valid = self._valid.get(policy.path)
        return None if valid is None else valid.program

    def beside(self, policy: PolicyDocument) -> tuple[list[Document], list[Document]]:
        """The scenario files in the folder of a policy: the files for it, and the files for other policies.

        Raises PolicyInvalid if one of them cannot be read.
        """
        own: list[Document] = []
        others: list[Document] = []
        for path in sorted(policy.path.parent.glob("*.*")):
            document = self.get(path) if path.is_file() and is_scenarios(path) else None
            if document is not None and document.policy is None:
                raise PolicyInvalid(document.findings())
            if document is not None:
                (own if document.policy == policy.path else others).append(document)
        return own, others

    def state(self, path: Path) -> Document | None:
        """The state in a YAML file, if scenarios in its folder name it."""
        for near in sorted(path.parent.glob("*.scenarios.*")):
            scenarios = self.get(near)
            policy = None if scenarios is None else self.policy(scenarios)
            if scenarios is not None and policy is not None:
                for state in self.states(scenarios, policy):
                    if state.path == path:
                        return state
        return None

    def states(self, scenarios: Document, policy: PolicyDocument) -> Iterator[Document]:
        """The states in YAML that a scenario file names, or named when it could last be read, with the names of a policy in them."""
        root = compose_yaml(scenarios.source, [])
        if root is not None:
            self._states[scenarios.path] = sorted(set(_states(root, scenarios.path.parent)))
        for path in self._states.get(scenarios.path, ()):
            if path.suffix in (".yaml", ".yml"):
                file = self.text(path)
                state = None if file is None else compose_yaml(file, [])
                if file is not None:
                    names = () if state is None else tuple(in_scenarios(state, file, policy.occurrences))
                    yield Document(path=path, source=file, occurrences=names, policy=policy.path)


def _states(node: YamlNode, folder: Path) -> Iterator[Path]:
    """The files that `state` names, wherever it stands."""
    match node:
        case MappingNode(entries=entries):
            for key, value in entries:
                if key.text == "state" and isinstance(value, ScalarNode):
                    yield (folder / value.text).resolve()
                else:
                    yield from _states(value, folder)
        case SequenceNode(items=items):
            for item in items:
                yield from _states(item, folder)
        case ScalarNode():
            pass
