"""`privtab init`: write a first policy with its files."""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from privtab import __version__
from privtab.base.errors import UsageError
from privtab.base.lazy import pattern
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
_EXAMPLE = {
    "data": {
        "noun": "table",
        "reading": "load",
        "removal": "drop",
        "allowed": "main/sales/orders",
        "denied": "main/sales/payroll",
        "user": "alice",
    },
    "service": {
        "noun": "document",
        "reading": "open",
        "removal": "delete",
        "allowed": "acme/site/plan",
        "denied": "acme/books/plan",
        "user": "alice",
    },
}


def run(
    folder: Annotated[
        Path, argument("FOLDER", "Folder to write to; created if missing.", show_default="this one")
    ] = Path(),
    system: Annotated[str | None, option("--system NAME", "Name of the system. (default: the folder's name)")] = None,
    start: Annotated[
        InitialTable | None, option("--start", "Template: catalogs of data, or workspaces of a service.")
    ] = None,
) -> None:
    """Write a first policy with its state, scenarios, settings, a CI workflow and a guarded example service.

    On a terminal, asks for missing options. Existing files are never overwritten.

    Example:
      privtab init shop
      privtab init . --system lake --start data
    """
    interactive = sys.stdin.isatty() and sys.stdout.isatty()
    default_name = _system_name(folder.resolve().name)
    if system is None:
        system = typer.prompt("Name of the system", default=default_name) if interactive else default_name
    if not _SYSTEM.fullmatch(system):
        raise UsageError(f"`{system}` cannot name a system: write lower case letters, digits and `_`, a letter first")
    if start is None:
        start = _prompt_for_start() if interactive else "data"
    policies = Path("policy_src") / system
    sources = {
        policies / "1.yaml": f"{start}/policy.yaml.j2",
        policies / "state.yaml": f"{start}/state.yaml.j2",
        policies / "1.scenarios.yaml": f"{start}/scenarios.yaml.j2",
        Path("privtab.toml"): "shared/privtab.toml.j2",
        Path(".github/workflows/policy.yml"): "shared/ci.yml.j2",
        Path("policy-requirements.txt"): "shared/requirements.txt.j2",
        Path("service.py"): "shared/service.py.j2",
    }
    wheel = installed_wheel()
    vendored = Path("vendor") / f"privtab-{__version__}-py3-none-any.whl"
    values = {
        "system": system,
        "wheel": vendored.as_posix(),
        "sha256": hashlib.sha256(wheel).hexdigest(),
        "lock": data_path("requirements/compiler.lock").read_text(encoding="utf-8"),
        **_EXAMPLE[start],
    }
    files = {path: text_templates("init").get_template(name).render(values).encode() for path, name in sources.items()}
    files[vendored] = wheel
    existing = [str(path) for path in files if (folder / path).exists()]
    if existing:
        raise UsageError(f"{folder} has {', '.join(existing)} already: nothing was written")
    for path, content in files.items():
        write_file(folder / path, content)
    console = out()
    for path in files:
        console.print(str(folder / path), style="dim")
    console.print("\nnext")
    for command in _next_commands(folder, system, start):
        console.print(f"  {command}")


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


def _next_commands(folder: Path, system: str, start: InitialTable) -> list[str]:
    example = _EXAMPLE[start]
    state = f"policy_src/{system}/state.yaml"
    question = f"{example['user']} {example['reading']} {example['noun']}:{example['denied']}"
    return [
        *([] if folder == Path() else [f"cd {folder}"]),
        "privtab lint",
        "privtab test --mutation",
        f"privtab explain {question} --policy {system}/1 --state {state}",
        f"privtab compile {system}/1 --state {state}",
        "python service.py",
    ]
