"""The project that `privtab init --from` makes of a page: its policy and scenarios, the page itself, and an example."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from privtab.base import UsageError
from privtab.ir import Program
from privtab_pages.draft import Draft

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)


class Project(NamedTuple):
    """The parts of a project that come from a page."""

    files: Mapping[str, bytes]
    """The contents of files by their names in the folder of the system."""
    example: Mapping[str, str]
    """The values for the templates of `init`."""


def project(page: Path, draft: Draft, program: Program, policy: str, accepted: Sequence[str]) -> Project:
    """The project of a page that was read whole."""
    if not _NAME.fullmatch(page.name) or page.suffix in (".yaml", ".yml"):  # it stands in a command of the workflow
        raise UsageError(
            f"`{page.name}` cannot name a file of the project: use letters, digits, `.`, `_` and `-`, and the ending of a page"
        )
    if any("${{" in name or not name.isprintable() for name in accepted):  # they, too, stand in the workflow
        raise UsageError("`accept` takes no name with `${{` or a line break: change the page")
    files = {"1.yaml": policy.encode(), "1.scenarios.yaml": draft.scenarios(program, "1.yaml").encode()}
    options = " ".join(f"--accept {shlex.quote(name)}" for name in accepted)
    example = {"page": page.name, "accepted": options, **_example(draft)}
    return Project(files={**files, page.name: page.read_bytes()}, example=example)


def _example(draft: Draft) -> dict[str, str]:
    """A user with a role that may do something; without marks, a user who holds nothing."""
    mark = next((mark for mark in draft.marks if mark.allowed), None)
    type_ = mark.type if mark else next(iter(draft.rows))
    operations = list(draft.rows[type_])
    denied = [m.operation for m in draft.marks if mark and m[:3] == mark[:3] and not m.allowed]
    path = draft.path(type_, "main")
    held = {}
    if mark:
        scope = f"{mark.scope}:{draft.path(mark.scope, 'main')}"
        held = {"role": draft.role_name(mark.role, mark.scope), "scope": scope}
    return {
        "noun": type_,
        "reading": mark.operation if mark else operations[0],
        "removal": (denied or operations)[-1],
        "allowed": path,
        "denied": path if not mark else draft.path(type_, "other"),
        "user": "alice",
        **held,
    }
