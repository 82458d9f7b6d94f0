"""From paths to a program, and from a program to what engines run: the only module that chains the stages."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privtab import model
from privtab.base import resources, user_cache
from privtab.base.caching import once
from privtab.base.diagnostics import Diagnostic, Severity
from privtab.base.errors import FileError, PolicyInvalid, UsageError
from privtab.base.hints import did_you_mean
from privtab.base.records import dataclass
from privtab.base.source import SourceFile, files_below
from privtab.base.worker import LARGE, beside
from privtab.checks.lint.settings import OWN_FILE, Settings, settings_above
from privtab.ir.nodes import Program
from privtab.language import syntax
from privtab.language.syntax.keys import OPEN_NAME
from privtab.model.lower import lower

if TYPE_CHECKING:
    from privtab.bundle.pack import BundledDoor, PolicyArtifacts, Provenance
    from privtab.checks.lint.judge import FilteredFindings

__all__ = [
    "ChosenPolicy",
    "find_policies",
    "find_policy",
    "load_program",
    "optimised",
    "policy_artifacts",
    "policy_names",
    "policy_paths",
    "policy_revision",
    "resolve_policy",
    "system_folder",
]

POLICIES = "policy_src"
"""The default folder of policies."""
MARK = "privtab"
"""The key that makes a file a policy; scenario and state files do not have it."""


@dataclass(frozen=True, slots=True)
class ChosenPolicy:
    """A policy by name or path, and what `POLICY@VARIANT,ROW=READING` chooses of its tables."""

    policy: str
    variant: str | None = None
    readings: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str | Path) -> ChosenPolicy:
        """Parse a policy; a text that is a path, or that ends as one, chooses nothing. Raises UsageError.

        >>> ChosenPolicy.of("cdap/initial@use_cases").chosen()
        {'variant': 'use_cases', 'readings': {}}
        """
        policy, _, choice = (text := str(text)).rpartition("@")
        words = [word.rpartition("=") for word in choice.split(",")]
        whole = not policy or text.startswith("registry:") or text.endswith(SourceFile.SUFFIXES) or Path(text).exists()
        if whole or not all(re.fullmatch(OPEN_NAME, name) and bool(row) == bool(sign) for row, sign, name in words):
            return cls(text)
        variants, rows = [name for row, _, name in words if not row], [row for row, *_ in words if row]
        if len(variants) > 1 or len(rows) > len({*rows}):
            raise UsageError(f"`{text}` chooses twice: one variant, and one reading for each row")
        return cls(policy, variants[0] if variants else None, {row: name for row, _, name in words if row})

    def __str__(self) -> str:
        words = [*filter(None, [self.variant]), *(f"{row}={name}" for row, name in self.readings.items())]
        return f"{self.policy}@{','.join(words)}" if self else self.policy

    def __bool__(self) -> bool:
        return self.variant is not None or bool(self.readings)

    def chosen(self, variant: str | None = None, readings: Mapping[str, str] | None = None) -> dict[str, Any]:
        """The variant and the readings, as functions take them; readings that are given come first. Raises UsageError for two variants."""
        if variant and self.variant not in (None, variant):
            raise UsageError(f"`{self}` chooses a variant, and `{variant}` is another: give one")
        variant = self.variant if variant is None else variant
        return {"variant": variant, "readings": {**self.readings, **(readings or {})}}


def load_program(
    policy: str | Path | SourceFile, *, variant: str | None = None, readings: Mapping[str, str] | None = None
) -> Program:
    """Load the program of a policy.

    `policy`: as `ChosenPolicy` reads it, or a file that was read already. Raises PolicyInvalid with every finding, UsageError if
    the policy, variant or reading does not exist, FileError if the file cannot be read.

    >>> load_program("cdap/final@namespace/list=parent").system
    'cdap'
    """
    named = ChosenPolicy("") if isinstance(policy, SourceFile) else ChosenPolicy.of(policy)
    file = policy if isinstance(policy, SourceFile) else SourceFile.load(find_policy(named.policy))
    resolved, found = _resolve(file, **named.chosen(variant, readings))
    if resolved is None:
        raise PolicyInvalid(found)
    return lower(resolved)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyCheck:
    """The result of checking a policy: its program, and its findings, including ignored ones."""

    source: SourceFile
    program: Program | None
    findings: FilteredFindings
    settings: Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedPolicy:
    """A policy whose names are resolved, unless errors prevent it, and what finds out the rest about it."""

    path: Path
    source: SourceFile
    policy: model.Policy | None
    found: list[Diagnostic]
    checked: Callable[[], list[Diagnostic]]
    """Returns the findings of all checks; call it once."""
    complete: bool
    """Whether this is the policy as it is in force, without a variant and readings."""

    @property
    def program(self) -> Program:
        """The program, although checks may still find errors. Needs a `policy`."""
        assert self.policy is not None
        return lower(self.policy)

    def check(self, settings: Settings | None = None) -> PolicyCheck:
        """The findings by `settings`, or by those in the folders above the policy; call it once. Raises SettingsInvalid if they are invalid."""
        from privtab.checks.lint.judge import filter_findings

        found = [*self.found, *self.checked()]
        stopped = self.policy is None or any(d.severity is Severity.ERROR for d in found)
        settings = settings or settings_above(self.path)
        filtered = filter_findings(found, self.source, self.path, settings, complete=self.complete and not stopped)
        stopped = stopped or any(d.severity is Severity.ERROR for d in filtered.kept)
        program = None if stopped else self.program
        return PolicyCheck(source=self.source, program=program, findings=filtered, settings=settings)


def resolve_policy(
    policy: str | Path,
    *,
    variant: str | None = None,
    readings: Mapping[str, str] | None = None,
    source: SourceFile | None = None,
    parallel: bool = False,
    begin: bool = False,
) -> ResolvedPolicy:
    """Resolve a policy, whose `check` gives all findings. Raises UsageError and FileError as `load_program`.

    `source`: the text of the policy at that path, if an editor has it. `parallel`: check a large policy in several processes. `begin`: begin to
    check a large policy in a child process if a processor is free; for commands only.

    >>> resolve_policy("cdap/final").check().program.system
    'cdap'
    """
    from privtab import checks

    named = ChosenPolicy.of(policy)
    chosen = named.chosen(variant, readings)
    path = find_policy(named.policy) if source is None else Path(policy)
    file = source or SourceFile.load(path)
    resolved, found = _resolve(file, **chosen)
    checked: Callable[[], list[Diagnostic]] = (
        list if resolved is None else partial(checks.run, resolved, parallel=parallel)
    )
    if begin and resolved is not None:
        lower(resolved)  # which both processes need
        checked = beside(checked, large=len(resolved.rows) >= LARGE)
    complete = chosen["variant"] is None and not chosen["readings"]
    return ResolvedPolicy(path=path, source=file, policy=resolved, found=found, checked=checked, complete=complete)


def _resolve(
    file: SourceFile, variant: str | None, readings: Mapping[str, str]
) -> tuple[model.Policy | None, list[Diagnostic]]:
    """Resolve a policy and return its findings, without the advice of `checks.run`."""
    tables, found = syntax.read_policy(file)
    if tables is None:
        return None, found
    resolved, model_findings = model.resolve(tables, variant=variant, readings=readings)
    return resolved, [*found, *model_findings]


@once
def optimised(program: Program) -> Program:
    """The program after the passes, which every engine runs.

    >>> optimised(load_program("cdap/final")).system
    'cdap'
    """
    from privtab.ir import passes

    return passes.run(program)


def policy_artifacts(
    program: Program,
    name: str | None = None,
    *,
    sharded: bool = False,
    provenance: Provenance | None = None,
    parallel: bool = False,
    doors: Sequence[BundledDoor] = (),
) -> PolicyArtifacts:
    """Compile a program: the passes, the Rego, the program as JSON. Arguments as for `bundle.pack.pack_policy`.

    >>> policy_artifacts(load_program("cdap/final")).name
    'cdap'
    """
    from privtab.bundle.pack import pack_policy
    from privtab.ir.support import Feature, Tool, refusal

    if sharded and program.flat:
        raise refusal(Feature.FLAT, Tool.SHARDS)
    return pack_policy(
        program,
        name,
        optimised=optimised(program),
        sharded=sharded,
        provenance=provenance,
        parallel=parallel,
        doors=doors,
    )


def policy_revision(program: Program, *, parallel: bool = False) -> str:
    """The revision of a program's policy bundle, from the user's cache if the revision was computed before.

    >>> len(policy_revision(load_program("cdap/final")))
    16
    """
    return user_cache.revision_of(program, lambda: policy_artifacts(program, parallel=parallel).revision)


def backend_files(program: Program, name: str, artifacts: PolicyArtifacts) -> Mapping[str, str]:
    """The files that the back end with this name writes for a compiled policy, by path."""
    from privtab.backends.protocol import Compilation, backend

    optimised_program = optimised(program)
    policy = Compilation(program=program, optimised=optimised_program, name=artifacts.name, revision=artifacts.revision)
    return backend(name).files(policy)


def wasm_modules(program: Program, name: str | None = None) -> Mapping[str, str]:
    """The Rego modules of a program for OPA's Wasm compiler, which does not index rules."""
    from privtab.backends import rego

    return rego.render(optimised(program), name, indexed=False)


def find_policy(policy: str | Path) -> Path:
    """The file of a policy: a path, or a name in the folders of `policy_paths` or among the shipped policies.

    Raises FileError if a path to a YAML file does not exist, UsageError for a compiled policy, and UsageError with the
    nearest name for an unknown name.

    >>> find_policy("cdap/final").name
    'final.yaml'
    """
    path = Path(policy)
    if str(policy).startswith("registry:") or path.name.endswith((".tar.gz", ".tgz")):
        raise UsageError(
            f"`{policy}` is compiled already: give the tables that it was made of, or serve the bundle as it is "
            "(`privtab registry get` writes one out of a registry)"
        )
    if path.exists() and not path.is_dir():
        return path
    if named := ChosenPolicy.of(policy):
        raise UsageError(f"`{policy}` chooses tables, and this is about the whole file: write {named.policy}")
    for folder in policy_folders():
        for suffix in SourceFile.SUFFIXES:
            found = folder / f"{policy}{suffix}"
            if found.is_file() and found.stem not in resources.RESERVED:
                return found
    if path.suffix in SourceFile.SUFFIXES:
        raise FileError(f"no such file: {path}")
    known = policy_names()
    near = did_you_mean(str(policy), known, cutoff=0.4)
    hint = near or (f"there are: {', '.join(known)}" if known else "there are none")
    form = "; a variant and readings are written POLICY@VARIANT,ROW=READING" if "@" in str(policy) else ""
    raise UsageError(f"no policy `{policy}`: {hint}{form}")


def find_policies(paths: Iterable[str | Path]) -> list[Path]:
    """Every policy file at or below the paths, sorted; a path may also be a name such as `shop/1`, or `shop` for all versions.

    >>> find_policies(["cdap/final"]) == [find_policy("cdap/final")]
    True
    """
    found: set[Path] = set()
    for path in map(Path, paths):
        folder = path if path.is_dir() else system_folder(path)
        found |= {find_policy(path)} if folder is None else set(_below(folder))
    return sorted(found)


def system_folder(name: Path) -> Path | None:
    """The folder with the policies of a system, among the folders in which names are looked up; None if there is none.

    >>> system_folder(Path("cdap")).name
    'cdap'
    """
    if name.is_absolute() or name.exists() or ".." in name.parts or not name.parts:
        return None
    below = (folder / name for folder in policy_folders())
    return next((folder for folder in below if folder.is_dir() and _below(folder)), None)


def policy_folders() -> list[Path]:
    """The folders in which names are looked up: the folders of `policy_paths`, then the shipped policies.

    >>> all(folder.is_dir() for folder in policy_folders())
    True
    """
    return [folder for folder in (*policy_paths(), resources.policies()) if folder.is_dir()]


def policy_paths(
    given: Iterable[str | Path] | None = None, *, settings: Settings | None = None, existing: bool = False
) -> list[Path]:
    """The given paths or, if none are given, the default paths of policies: `policies` of the settings, otherwise `policy_src/`.

    `settings`: by default, the settings of the working directory. Raises SettingsInvalid if the settings are invalid, and
    UsageError if a default path is to be an `existing` one and is not.

    >>> from privtab.checks.lint.settings import Settings
    >>> policy_paths(settings=Settings()), policy_paths(["shop.yaml"])
    ([PosixPath('policy_src')], [PosixPath('shop.yaml')])
    """
    if named := [Path(path) for path in given or ()]:
        return named
    settings = settings or settings_above(Path.cwd() / OWN_FILE)
    paths = [Path(POLICIES)]
    if settings.root is not None and settings.policies is not None:
        paths = [Path(os.path.relpath(settings.root / path)) for path in settings.policies]
    missing = next((path for path in paths if not path.exists()), None) if existing else None
    if missing is not None:
        raise UsageError(
            f"there is no {missing}{'' if missing.suffix else '/'} here: name a policy (cdap/final, or a path), "
            "or list their folders as `policies` in privtab.toml"
        )
    return paths


def policies_at(paths: Iterable[str | Path] | None) -> list[Path]:
    """Every policy file at or below the given paths, or below `policy_paths` if none are given.

    Raises UsageError if one of them has no policy: a command that checks nothing must not look like one that found
    nothing wrong.
    """
    found: set[Path] = set()
    for path in policy_paths(paths, existing=True):
        policies = find_policies([path])
        if not policies:
            raise UsageError(f"no policy file in {path}")
        found |= set(policies)
    return sorted(found)


def policy_names() -> list[str]:
    """The names by which policies can be found.

    >>> "cdap/final" in policy_names()
    True
    """
    found = ((path, folder) for folder in policy_folders() for path in _below(folder))
    return sorted({path.relative_to(folder).with_suffix("").as_posix() for path, folder in found})


def _below(folder: Path) -> list[Path]:
    # YAML that cannot be read is listed, so that it is reported.
    return [path for path in files_below(folder) if SourceFile.is_marked(path, MARK, unreadable=path.suffix != ".json")]
