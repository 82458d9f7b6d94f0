"""Find the two sides that `privtab diff` compares, and load their programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from privtab import source
from privtab._worker import Worker, spare_processes
from privtab.cli import _git
from privtab.cli._stored import is_stored, load_policy
from privtab.errors import FileError, UsageError
from privtab.ir.nodes import Program
from privtab.lint.config import OWN_FILE, SHARED_FILE, settings_in
from privtab.lint.settings import Settings
from privtab.marked_files import SUFFIXES, has_mark
from privtab.pipeline import MARK, find_policies, find_policy, policy_paths, program_of
from privtab.source import SourceFile

LARGE = 300_000
"""Size in characters from which two files are read in two processes; below, starting one costs more than it saves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The options with which a side is compiled."""

    variant: str | None = None
    readings: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.variant is not None or bool(self.readings)

    @property
    def display_name(self) -> str:
        """The options as text after the name of the policy."""
        words = [
            *([f"--variant {self.variant}"] if self.variant else []),
            *(f"{row}={name}" for row, name in self.readings.items()),
        ]
        return f" ({', '.join(words)})" if words else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A policy file and its options, or a bundle; with neither, a policy that does not exist."""

    file: SourceFile | None
    name: str
    choice: Choice = field(default_factory=Choice)
    stored: bool = False
    """Whether `name` is a bundle, or a release of a channel."""

    @property
    def display_name(self) -> str:
        """The display name of the side."""
        return f"{self.name}{self.choice.display_name}"


def sides(before: str | None, after: str | None, choices: tuple[Choice, Choice]) -> Iterator[tuple[Side, Side]]:
    """The pairs to compare: two policies, a policy and its earlier version, or all policies and their earlier versions.

    Raises UsageError and FileError if there is no such policy, revision or repository.
    """
    if after is not None and before is not None:
        yield _side(before, choices[0]), _side(after, choices[1])
    elif before is not None and any(choices):
        side = _side(before, Choice())
        if side.stored:
            raise UsageError(f"{before} is compiled already: `--variant` and `--reading` are for tables")
        yield replace(side, choice=choices[0]), replace(side, choice=choices[1])
    elif before is not None and is_stored(before):
        raise UsageError(f"{before} has no version in git: name the policy to compare it with, too")
    elif before is None or _is_only_revision(before):
        if any(choices):
            raise UsageError("variants and readings belong to one policy: name it")
        yield from _changed_policies(before or "HEAD")
    elif _revision_of(before) is not None:
        revision, path = before.split(":", 1)
        yield _side(before, choices[0]), _side(str(_working_tree_file(revision, path)), choices[1])
    else:
        policy_path = find_policy(before)
        content = _git.show_if_exists("HEAD", policy_path)
        name = policy_path.as_posix()
        committed = None if content is None else source.decode(content, f"HEAD:{name}")
        yield Side(file=committed, name=f"HEAD:{name}"), Side(file=source.load(policy_path), name=name)


def programs(before: Side, after: Side) -> tuple[Program, Program]:
    """The programs of two sides. A policy that does not exist gets the declarations of the other side, and no rows."""
    if before.stored or after.stored:
        from privtab.registry.deploy.program import comparable

        # Use the order of a bundle for types and operations on both sides.
        return comparable(_program(before)), comparable(_program(after))
    if before.file is None or after.file is None:
        existing = _program(after if before.file is None else before)
        empty = replace(existing, rules={})
        return (empty, existing) if before.file is None else (existing, empty)
    if before.file.text == after.file.text and before.choice == after.choice:
        program = _program(after)
        return program, program
    if min(len(before.file.text), len(after.file.text)) >= LARGE and spare_processes():
        return _load_in_parallel(before, after)
    return _program(before), _program(after)


def _program(side: Side) -> Program:
    if side.stored:
        return load_policy(side.name, variant=side.choice.variant, readings=side.choice.readings)
    assert side.file is not None
    return program_of(side.file, variant=side.choice.variant, readings=side.choice.readings)


def _load_in_parallel(before: Side, after: Side) -> tuple[Program, Program]:
    """Read one side in a child process; if that fails, read it here, so that errors are the same."""
    child = Worker.start(lambda: _program(before))
    try:
        after_program = _program(after)
    except BaseException:
        child.stop()
        raise
    return child.result(), after_program


def _side(text: str, choice: Choice) -> Side:
    """A policy by name or path, a bundle, or `REVISION:path` as in git; an existing file of that name takes precedence."""
    if is_stored(text):
        return Side(file=None, name=text, choice=choice, stored=True)
    revision = _revision_of(text)
    if revision is None:
        path = find_policy(text)
        return Side(file=source.load(path), name=text, choice=choice)
    path_text = text.split(":", 1)[1]
    return Side(file=source.decode(_git.show(revision, path_text), text), name=text, choice=choice)


def _revision_of(text: str) -> str | None:
    """The revision in `REVISION:path`; None if the text has another form."""
    revision, colon, path = text.partition(":")
    return revision if colon and revision and path and not Path(text).exists() else None


def _is_only_revision(text: str) -> bool:
    """Whether an argument is a revision and not a policy."""
    if _revision_of(text) is not None:
        return False
    try:
        find_policy(text)
    except (UsageError, FileError):
        return _git.is_revision(text)
    return False


def _working_tree_file(revision: str, path: str) -> Path:
    """The file in the working tree for `REVISION:path`."""
    if path.startswith(("./", "../")):
        return Path(path)
    file = _git.top() / path
    if not file.is_file():
        raise FileError(f"no such file: {file}: `{revision}:{path}` alone is compared with the working tree")
    return file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file


def _changed_policies(revision: str) -> Iterator[tuple[Side, Side]]:
    """All policies that differ between the revision and now; raises UsageError if there are no policies at all."""
    # Include the folders of the earlier settings: changed settings must not hide a policy.
    paths = sorted({*policy_paths(), *policy_paths(_settings_at(revision))})
    current_paths = {path.as_posix(): path for path in find_policies(path for path in paths if path.exists())}
    earlier_files = _policies_at(revision, paths)
    if not current_paths and not earlier_files:
        searched = ", ".join(map(str, paths))
        raise UsageError(
            f"no policy in {searched}, now or in `{revision}`: name one, or list their folders as `policies` in {OWN_FILE}"
        )
    for name in sorted({*current_paths, *earlier_files}):
        earlier, current = earlier_files.get(name), source.load(current_paths[name]) if name in current_paths else None
        if earlier is None or current is None or earlier.text != current.text:
            yield Side(file=earlier, name=f"{revision}:{name}"), Side(file=current, name=name)


def _policies_at(revision: str, paths: Iterable[Path]) -> dict[str, SourceFile]:
    """The policies of a revision at or below the paths, by path relative to the working directory."""
    names = {name for path in paths for name in _git.files(revision, path) if name.endswith(SUFFIXES)}
    files = {name: source.decode(_git.show(revision, f"./{name}"), f"{revision}:{name}") for name in names}
    return {name: file for name, file in files.items() if has_mark(file.text, MARK)}


def _settings_at(revision: str) -> Settings:
    """The settings of the working directory at a revision."""
    top, working_folder = _git.top().resolve(), Path.cwd().resolve()
    for folder in (working_folder, *working_folder.parents):
        for name in (OWN_FILE, SHARED_FILE):
            file = folder / name
            text = _git.show_if_exists(revision, file)
            settings = settings_in(source.decode(text, f"{revision}:{name}"), file) if text is not None else None
            if settings is not None:
                return settings
        if folder == top:
            break
    return Settings()
