"""The work of `privtab diff`: find the two sides in files and in git, and show the comparison as text."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privtab.base import FileError, SourceFile, UsageError, Worker, dataclass
from privtab.checks import settings_above
from privtab.command import is_stored, load_policy
from privtab.ir import Program
from privtab.pipeline import ChosenPolicy, find_policies, find_policy, load_program, policy_paths
from privtab_analysis.diff.nodes import Diff
from privtab_analysis.diff.summary import groups, summary

if TYPE_CHECKING:
    from privtab.command import Terminal

LARGE = 300_000
"""Size in characters from which two files are read in two processes; below, starting one costs more than it saves."""
_LIKE_A_REVISION = re.compile(r"(HEAD|@|origin/|refs/|.*[~^]|main$|master$|[0-9a-f]{7,40}$)")
"""What a name of git looks like, if no policy has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A policy file and what is chosen of it, or a bundle; with neither, a policy that does not exist."""

    file: SourceFile | None
    name: str
    """The policy as written, with what is chosen."""
    chosen: Mapping[str, Any] = field(default_factory=dict)
    """The variant and the readings."""
    stored: bool = False
    """True if `name` is a bundle, or a release of a channel."""


def sides(before: str | None, after: str | None) -> Iterator[tuple[Side, Side]]:
    """The pairs to compare: two policies, a policy and its earlier version, or all policies and their earlier versions.

    Raises UsageError and FileError if there is no such policy, revision or repository.
    """
    if after is not None and before is not None:
        yield _side(before), _side(after)
        return
    named = None if before is None or is_stored(before) else ChosenPolicy.of(before)
    if named is None and before is not None:
        raise UsageError(f"{before} has no version in git: name the policy to compare it with, too")
    if named is None or before is None or _is_only_revision(before, named):
        yield from _changed_policies(before or "HEAD")
    elif _revision_of(named.policy) is not None:
        path = _working_tree_file(*named.policy.split(":", 1))
        yield _side(before), _side(str(replace(named, policy=str(path))))
    else:
        path = find_policy(named.policy)
        content = file_at("HEAD", path)
        old, new = (str(replace(named, policy=name)) for name in (f"HEAD:{path.as_posix()}", path.as_posix()))
        committed = None if content is None else SourceFile.decode(content, f"HEAD:{path.as_posix()}")
        chosen = named.chosen()
        yield (
            Side(file=committed, name=old, chosen=chosen),
            Side(file=SourceFile.load(path), name=new, chosen=chosen),
        )


def programs(before: Side, after: Side, known: Program | None = None) -> tuple[Program, Program]:
    """The programs of two sides, of which that of `after` may be known. A policy that does not exist gets the other's declarations, and no rows."""
    if before.stored or after.stored:
        from privtab_analysis.diff import comparable

        # Use the order of a bundle for types and operations on both sides.
        return comparable(_program(before)), comparable(_program(after, known))
    if before.file is None or after.file is None:
        existing = _program(after, known) if before.file is None else _program(before)
        empty = replace(existing, rules={})
        return (empty, existing) if before.file is None else (existing, empty)
    if before.file.text == after.file.text and before.chosen == after.chosen:
        program = _program(after, known)
        return program, program
    if known is None and min(len(before.file.text), len(after.file.text)) >= LARGE and Worker.spare():
        return _load_in_parallel(before, after)
    return _program(before), _program(after, known)


def _program(side: Side, known: Program | None = None) -> Program:
    if known is not None:
        return known
    if side.stored:
        return load_policy(side.name)
    assert side.file is not None
    return load_program(side.file, **side.chosen)


def _load_in_parallel(before: Side, after: Side) -> tuple[Program, Program]:
    """Read one side in a child process; if that fails, read it here, so that errors are the same."""
    child = Worker.start(lambda: _program(before))
    try:
        after_program = _program(after)
    except BaseException:
        child.stop()
        raise
    return child.result(), after_program


def _side(text: str) -> Side:
    """A policy by name or path, a bundle, or `REVISION:path` as in git; an existing file of that name takes precedence."""
    if is_stored(text):
        return Side(file=None, name=text, stored=True)
    named = ChosenPolicy.of(text)
    if (revision := _revision_of(named.policy)) is None:
        return Side(file=SourceFile.load(find_policy(named.policy)), name=text, chosen=named.chosen())
    content = required_file_at(revision, named.policy.split(":", 1)[1])
    return Side(file=SourceFile.decode(content, named.policy), name=text, chosen=named.chosen())


def _revision_of(text: str) -> str | None:
    """The revision in `REVISION:path`; None if the text has another form."""
    revision, colon, path = text.partition(":")
    return revision if colon and revision and path and not Path(text).exists() else None


def _is_only_revision(text: str, named: ChosenPolicy) -> bool:
    """Return whether an argument is a revision and not a policy."""
    if _revision_of(named.policy) is not None:
        return False
    try:
        find_policy(named.policy)
    except (UsageError, FileError):
        with suppress(FileError):  # without git
            if not (known := _knows(text)) and _LIKE_A_REVISION.match(text):
                raise _unknown_revision(text) from None
            return known
    return False


def _working_tree_file(revision: str, path: str) -> Path:
    """The file in the working tree for `REVISION:path`."""
    if path.startswith(("./", "../")):
        return Path(path)
    file = top_folder() / path
    if not file.is_file():
        raise FileError(f"no such file: {file}: `{revision}:{path}` alone is compared with the working tree")
    return file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file


def _changed_policies(revision: str) -> Iterator[tuple[Side, Side]]:
    """All policies that differ between the revision and now; raises UsageError if there are no policies at all."""
    # Include the folders of the earlier settings: changed settings must not hide a policy.
    paths = sorted(
        {*policy_paths(), *policy_paths(settings=settings_above(Path("privtab.toml"), _reader_at(revision)))}
    )
    current_paths = {path.as_posix(): path for path in find_policies(path for path in paths if path.exists())}
    earlier_files = _policies_at(revision, paths)
    if not current_paths and not earlier_files:
        searched = ", ".join(map(str, paths))
        raise UsageError(
            f"no policy in {searched}, now or in `{revision}`: name one, or list their folders as `policies` in privtab.toml"
        )
    for name in sorted({*current_paths, *earlier_files}):
        earlier, current = (
            earlier_files.get(name),
            SourceFile.load(current_paths[name]) if name in current_paths else None,
        )
        if earlier is None or current is None or earlier.text != current.text:
            yield Side(file=earlier, name=f"{revision}:{name}"), Side(file=current, name=name)


def _policies_at(revision: str, paths: Iterable[Path]) -> dict[str, SourceFile]:
    """The policies of a revision at or below the paths, by path relative to the working directory."""
    names = {name for path in paths for name in files_at(revision, path) if name.endswith(SourceFile.SUFFIXES)}
    files = {name: SourceFile.decode(required_file_at(revision, f"./{name}"), f"{revision}:{name}") for name in names}
    return {name: file for name, file in files.items() if file.has_mark("privtab")}


def _reader_at(revision: str) -> Callable[[Path], SourceFile | None]:
    """Return what reads a file of the repository at a revision."""
    top = top_folder().resolve()

    def read(file: Path) -> SourceFile | None:
        text = file_at(revision, file) if file.is_relative_to(top) else None
        return None if text is None else SourceFile.decode(text, f"{revision}:{file.name}")

    return read


def required_file_at(revision: str, path: str) -> bytes:
    """The file at a revision. `path` is relative to the top of the repository, or to this folder if it begins with `./`.

    Raises UsageError if there is no such revision, FileError without the file, a repository or git.
    """
    _require_revision(revision)
    return _output(f"no `{path}` in `{revision}`", "show", f"{revision}:{path}")


def file_at(revision: str, path: Path) -> bytes | None:
    """A file of the working tree at a revision; None if it did not exist. Raises like `required_file_at`."""
    _require_revision(revision, path.parent)
    process = _git("show", f"{revision}:./{path.name}", folder=path.parent)
    return None if process.returncode else process.stdout


def files_at(revision: str, path: Path) -> list[str]:
    """The files at or below a path at a revision, relative to the working directory."""
    _require_revision(revision)
    listing = ("ls-tree", "-r", "-z", "--name-only", revision, "--", path.as_posix())
    output = _output(f"cannot list `{path}` in `{revision}`", *listing)
    return [name for name in output.decode("utf-8", "surrogateescape").split("\0") if name]


def top_folder() -> Path:
    """The top of the repository that contains the working directory."""
    output = _output("no git repository here", "rev-parse", "--show-toplevel")
    return Path(output.decode("utf-8", "surrogateescape").rstrip("\n"))


def _require_revision(revision: str, folder: Path | None = None) -> None:
    _output(f"no git repository here to look up `{revision}` in", "rev-parse", "--git-dir", folder=folder)
    if not _knows(revision, folder):
        raise _unknown_revision(revision)


def _unknown_revision(revision: str) -> UsageError:
    return UsageError(
        f"git knows no revision `{revision}`: fetch it first; a clone that CI makes often has one commit (`git fetch --unshallow`, `fetch-depth: 0`)"
    )


def _knows(revision: str, folder: Path | None = None) -> bool:
    if not revision or revision.startswith("-"):
        return False
    return not _git("rev-parse", "--verify", "--quiet", f"{revision}^{{tree}}", folder=folder).returncode


def _output(problem: str, *arguments: str, folder: Path | None = None) -> bytes:
    """The output of git. Raises FileError, which begins with the problem, if git fails."""
    process = _git(*arguments, folder=folder)
    if process.returncode:
        lines = process.stderr.decode("utf-8", "replace").strip().splitlines()
        why = lines[0].removeprefix("fatal: ") if lines else f"git ended with {process.returncode}"
        raise FileError(f"{problem}: {why}")
    return process.stdout


def _git(*arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[bytes]:
    folder_options = [] if folder is None else ["-C", str(folder)]
    try:
        # The caller's git, from their PATH.
        return subprocess.run(["git", *folder_options, *arguments], capture_output=True, check=False)  # noqa: S607
    except FileNotFoundError as error:
        raise FileError("git is not installed: give two files to compare") from error


MAX_WIDTH = 110
"""Maximum width of tables, so that rows stay readable."""
MAX_GROUPS = 60
"""Maximum groups of changes shown."""


def show(diff: Diff, console: Terminal, *, everything: bool = False) -> None:
    """Print the comparison; of very many changes only the first ones, unless `everything` is set."""
    console.print(f"{diff.before.shown} → {diff.after.shown}", style="bold")
    console.print(summary(diff))
    width, all_groups = min(console.width, MAX_WIDTH), groups(diff)
    if diff.declared or all_groups:
        from privtab_analysis.commands import _changes

        _changes.show(diff.declared, all_groups, console, width, most=len(all_groups) if everything else MAX_GROUPS)
    if diff.rewritten:
        names = ", ".join(row.name for row in diff.rewritten)
        console.print()
        console.print(f"the same decisions in other words: {names}", style="dim", width=width)
