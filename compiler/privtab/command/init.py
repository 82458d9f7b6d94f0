"""`privtab init`: write a first policy with its files."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Literal

import typer

from privtab import __version__
from privtab.base.errors import UsageError
from privtab.base.files import state_location
from privtab.base.lazy import pattern
from privtab.base.plugins import load_plugin
from privtab.base.resources import data_path, text_templates
from privtab.base.staged import write_file
from privtab.command._output import deliver, out
from privtab.command._parameters import argument, option
from privtab.command._wheel import installed_wheel

PANEL = "Start here"

_SYSTEM = pattern(r"[a-z][a-z0-9_]*")
InitialTable = Literal["data", "service"]
START_TITLES: dict[InitialTable, str] = {
    "data": "catalogs, schemas and tables",
    "service": "workspaces, projects and documents",
}
_WORDS = ("noun", "reading", "removal", "allowed", "denied", "user")
_EXAMPLE = {
    "data": ("table", "load", "drop", "main/sales/orders", "main/sales/payroll", "alice"),
    "service": ("document", "open", "delete", "acme/site/plan", "acme/books/plan", "alice"),
}
_SHARED = {
    "privtab.toml": "privtab.toml.j2",
    ".github/workflows/policy.yml": "ci.yml.j2",
    "policy-requirements.txt": "requirements.txt.j2",
    "service.py": "service.py.j2",
    ".gitignore": "gitignore.j2",
}


def run(
    folder: Annotated[
        Path, argument("FOLDER", "Folder to write to; created if missing.", show_default="this one")
    ] = Path(),
    system: Annotated[str | None, option("--system NAME", "Name of the system. (default: the folder's name)")] = None,
    start: Annotated[
        InitialTable | None, option("--start", "Template: catalogs of data, or workspaces of a service.")
    ] = None,
    page: Annotated[
        str | None, option("--from PAGE", "Take the policy from the tables of a page, as `import` does.")
    ] = None,
) -> None:
    """Write a first policy with its state, scenarios, settings, a CI workflow and a guarded example service.

    On a terminal, asks for missing options. Existing files are never overwritten. With `--from`, the page is copied into
    the project, and the workflow compares it with the policy; `PAGE?accept=NAME` is `import --accept NAME`.

    Example:
      privtab init shop
      privtab init . --system lake --start data
      privtab init wiki --from permissions.md
    """
    if page is not None and start is not None:
        raise UsageError("`--from` takes the table from a page: leave out `--start`")
    interactive = sys.stdin.isatty() and sys.stdout.isatty()
    default_name = _system_name(folder.resolve().name)
    if system is None:
        system = typer.prompt("Name of the system", default=default_name) if interactive else default_name
    if not _SYSTEM.fullmatch(system):
        raise UsageError(f"`{system}` cannot name a system: write lower case letters, digits and `_`, a letter first")
    policies = Path("policy_src") / system
    if page is not None:
        contents, example = load_plugin("privtab.commands", "import").project(*state_location(page), system)
        sources = {policies / "state.yaml": "page/state.yaml.j2"}
    else:
        start = start or (_prompt_for_start() if interactive else "data")
        contents, example = {}, dict(zip(_WORDS, _EXAMPLE[start], strict=True))
        sources = {policies / name: f"{start}/{name}.j2" for name in ("1.yaml", "state.yaml", "1.scenarios.yaml")}
    sources |= {Path(path): f"shared/{name}" for path, name in _SHARED.items()}
    wheel = installed_wheel()
    vendored = Path("vendor") / f"privtab-{__version__}-py3-none-any.whl"
    values = {
        "system": system,
        "wheel": vendored.as_posix(),
        "sha256": hashlib.sha256(wheel).hexdigest(),
        "lock": data_path("requirements/compiler.lock").read_text(encoding="utf-8"),
        **example,
    }
    files = {policies / name: content for name, content in contents.items()}
    files |= {p: text_templates("init").get_template(name).render(values).encode() for p, name in sources.items()}
    files[vendored] = wheel
    if (folder / ".gitignore").exists():  # of a repository that is there
        del files[Path(".gitignore")]
    existing = [str(path) for path in files if (folder / path).exists()]
    if existing:
        raise UsageError(f"{folder} has {', '.join(existing)} already: nothing was written")
    _write({folder / path: content for path, content in files.items()})
    console = out()
    for path in files:
        console.print(str(folder / path), style="dim")
    console.print("\nnext")
    for command in _next_commands(folder, system, example):
        console.print(f"  {command}")


def _write(files: Mapping[Path, bytes]) -> None:
    """Write new files, all or none."""
    with ExitStack() as undo:
        for path, content in files.items():
            write_file(path, content)
            undo.callback(path.unlink)
        undo.pop_all()


def _system_name(name: str) -> str:
    """A valid name of a system from the name of a folder."""
    system = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    return system if _SYSTEM.fullmatch(system) else f"system_{system}".rstrip("_")


def _prompt_for_start() -> InitialTable:
    answers: dict[str, InitialTable] = {}
    for number, (kind, title) in enumerate(START_TITLES.items(), start=1):
        deliver(f"  {number}  {kind:8} {title}\n")
        answers |= {str(number): kind, kind: kind}
    while (answer := typer.prompt("Table to start from", default="1").strip()) not in answers:
        deliver(f"answer with one of {', '.join(answers)}\n")
    return answers[answer]


def _next_commands(folder: Path, system: str, example: Mapping[str, str]) -> list[str]:
    state = f"policy_src/{system}/state.yaml"
    question = f"{example['user']} {example['reading']} {example['noun']}:{example['denied']}"
    return [
        *([] if folder == Path() else [f"cd {folder}"]),
        "privtab lint",
        f"privtab test{'' if 'page' in example else ' --mutation'}",
        f"privtab explain {question} --policy {system}/1 --state {state}",
        f"privtab compile {system}/1 --state {state}",
        "python service.py",
    ]
