"""`privtab fmt`: format policies and scenario files."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from privtab.base.caching import no_collection
from privtab.base.diagnostics import Diagnostic, Severity
from privtab.base.errors import UsageError
from privtab.base.printable import count
from privtab.base.records import dataclass
from privtab.base.staged import write_file
from privtab.command._output import FormatOption, fail_if, out, print_file, print_if_data, show_findings
from privtab.command._parameters import argument, option

if TYPE_CHECKING:
    from privtab.base.source import SourceFile

PANEL = "Write"

STDIN = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class FormattedFile:
    """One file: its path, None for standard input, and its text before and after."""

    path: Path | None
    source: SourceFile
    text: str

    @property
    def changed(self) -> bool:
        """True if the text changed."""
        return self.text != self.source.text


def run(
    paths: Annotated[
        list[str] | None,
        argument(
            "PATH",
            "Files, folders or policies by name; all policies by default; `-` for standard input.",
            kind="POLICY",
        ),
    ] = None,
    check: Annotated[
        bool, option("--check", "Write nothing; list files that would change, and exit with 1 if any.")
    ] = False,
    diff: Annotated[bool, option("--diff", "Write nothing; show the changes.")] = False,
    format_: FormatOption = "text",
) -> None:
    """Format policies and scenario files; meaning, order and comments stay.

    A folder stands for the policies and scenario files below it; a path may be any YAML file. If a file has errors, they
    are shown and nothing is written.

    Example:
      privtab fmt
      privtab fmt --check
      privtab fmt my.yaml --diff
      privtab fmt - < my.yaml
    """
    if paths and STDIN in paths and len(paths) > 1:
        raise UsageError("`-` must be the only path: standard input is one file")
    with no_collection(keep=True):
        formatted = _format(_sources(paths))
    changed = [file for file in formatted if file.changed]
    if diff:
        for file in changed:
            _show_diff(file)
    elif not check:
        _write(formatted if paths == [STDIN] else changed)
    written = not (check or diff)
    rows = [
        {"path": file.source.path, "changed": file.changed, "written": file.changed and written} for file in formatted
    ]
    if (
        not (paths != [STDIN] and print_if_data(format_, rows))
        and not (diff and changed)
        and (paths != [STDIN] or check)
    ):
        _show_summary(formatted, changed, check=check)
    fail_if(check and changed)


def _files(paths: Sequence[str] | None) -> list[Path]:
    from privtab.language.fmt import yaml_files
    from privtab.pipeline import find_policy, policy_paths

    found: dict[Path, None] = {}
    for path in policy_paths(paths, existing=True):
        files = list(yaml_files(path)) if path.is_dir() else [find_policy(path)]
        if not files:
            raise UsageError(f"no policy or scenario file in {path}")
        found |= dict.fromkeys(files)
    return list(found)


def _sources(paths: Sequence[str] | None) -> list[tuple[Path | None, SourceFile]]:
    """The files, each with its path; None for standard input."""
    from privtab.base.source import SourceFile

    if paths == [STDIN]:
        return [(None, SourceFile.decode(sys.stdin.buffer.read(), "<stdin>"))]
    return [(path, SourceFile.load(path)) for path in _files(paths)]


def _format(files: Sequence[tuple[Path | None, SourceFile]]) -> list[FormattedFile]:
    """Format every file; if one has errors, print the errors of all files and exit with code 1."""
    from privtab.language.fmt import format_source

    formatted: list[FormattedFile] = []
    found: list[Diagnostic] = []
    texts: dict[str, str] = {}
    for path, source in files:
        text, errors = format_source(source)
        if text is not None:
            errors = _syntax_errors(source)
        if errors or text is None:
            found += errors
            texts[source.path] = source.text
        else:
            formatted.append(FormattedFile(path=path, source=source, text=text))
    show_findings(tuple(sorted(set(found))), texts)
    fail_if(found)
    return formatted


def _syntax_errors(source: SourceFile) -> tuple[Diagnostic, ...]:
    """The syntax errors of a policy; errors in names and structure do not affect the layout."""
    from privtab.language import syntax
    from privtab.language.fmt import is_policy

    if not is_policy(source.text.splitlines()):
        return ()
    _, findings = syntax.read_policy(source)
    return tuple(finding for finding in findings if finding.severity is Severity.ERROR)


def _write(formatted: Sequence[FormattedFile]) -> None:
    for file in formatted:
        if file.path is None:
            print_file(file.text)
            continue
        # Write through symbolic links and keep the mode of the file.
        target = file.path.resolve()
        mode = target.stat().st_mode
        write_file(target, file.text.encode(), in_place=True)
        target.chmod(mode)


def _show_diff(file: FormattedFile) -> None:
    before, after = (text.splitlines(keepends=True) for text in (file.source.text, file.text))
    console = out()
    for line in difflib.unified_diff(before, after, file.source.path, file.source.path):
        style = {"+": "green", "-": "red", "@": "cyan"}.get(line[0]) if line[:3] not in ("+++", "---") else "bold"
        console.print(line.rstrip("\r\n"), style=style)


def _show_summary(formatted: Sequence[FormattedFile], changed: Sequence[FormattedFile], *, check: bool) -> None:
    console = out()
    for file in changed:
        console.print(file.source.path)
    unchanged = len(formatted) - len(changed)
    verb = "would be reformatted" if check else "reformatted"
    parts = [f"{count(len(changed), 'file')} {verb}"] if changed else []
    parts += [f"{count(unchanged, 'file')} unchanged"] if unchanged else []
    console.print(", ".join(parts), style="bold" if changed else "")
