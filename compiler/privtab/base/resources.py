"""Locate templates, shipped policies and OPA's own files, in the installed package or else in the checkout; and load templates.

How to install extras: privtab is on no package index yet, so from a checkout or a wheel. A release changes `SOURCE`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from privtab.base.errors import UsageError
from privtab.base.hints import did_you_mean, listed_names

if TYPE_CHECKING:
    from jinja2 import Environment


_PACKAGE = Path(__file__).resolve().parents[1]


DATA = ("templates", "policy_src", "opa", "docs/rules", "requirements/compiler.lock")
"""The folders and the file that the wheel has below `_data`, and the checkout at its top."""


def data_path(name: str) -> Path:
    """One of `DATA` in the wheel's data or in the checkout. Raises FileNotFoundError if neither has it."""
    for root in (_PACKAGE / "_data", _PACKAGE.parent.parent):
        if (root / name).exists():
            return root / name
    raise FileNotFoundError(f"`{name}` is missing from this installation of privtab")


def templates_folder() -> Path:
    """The Jinja2 templates, one folder for each back end.

    >>> templates_folder().name
    'templates'
    """
    return data_path("templates")


def policies() -> Path:
    """The shipped policies: `<system>/<version>.yaml`, with scenarios and sample states beside them."""
    return data_path("policy_src")


DOCUMENTS = {"mapping": "push.yaml", **{kind: f"{kind}.yaml" for kind in ("import", "door", "log", "names")}}
"""The files beside the policies of a system, by kind of document."""
RESERVED = frozenset({"conform", "releases", "state", *(Path(file).stem for file in DOCUMENTS.values())})
"""Names of files in the folder of a system that are no versions."""


class Documents(dict[str, Path]):
    """The documents of a kind by the names of their systems' folders: those below `folders`, then the shipped ones.

    >>> Documents("door")["trino"].name
    'door.yaml'
    """

    def __init__(self, kind: str, folders: Iterable[Path] = ()) -> None:
        self.kind = kind
        for folder in dict.fromkeys((*folders, policies())):
            for path in sorted(folder.glob(f"*/{DOCUMENTS[kind]}")):
                self.setdefault(path.parent.name, path)

    def find(self, name: str) -> tuple[str, Path]:
        """The name of a document and its file, of a path or of a name. Raises UsageError.

        A document in the folder of a system has the name of the folder, any other that of its file.
        """
        path = Path(name)
        if path.is_file():
            return path.resolve().parent.name if path.name == DOCUMENTS[self.kind] else path.stem, path
        if name in self:
            return name, self[name]
        advice = did_you_mean(name, self) or f"there are {', '.join(sorted(self))}"
        raise UsageError(f"no {self.kind} document `{name}`: {advice}")


def sample_state(location: str) -> Path | None:
    """The file of a shipped state, `sample:SYSTEM` or `sample:SYSTEM/NAME`; None for other locations. Raises UsageError."""
    if not location.startswith("sample:"):
        return None
    system, _, name = location.removeprefix("sample:").partition("/")
    shipped = policies() / system / f"{name}{'.' if name else ''}state.yaml"
    found = sorted(policies().glob("*/*state.yaml"))
    if shipped not in found:
        names = [f"sample:{one.parent.name}/{one.name[: -len('.state.yaml')]}".removesuffix("/") for one in found]
        raise UsageError(f"no `{location}`: {did_you_mean(location, names) or f'there are {listed_names(names)}'}")
    return shipped


def rules() -> Path:
    """The pages of findings: `P101-unknown-privilege.md`."""
    return data_path("docs/rules")


def opa() -> Path:
    """The files that OPA itself reads: configuration, capabilities, the Rego that guards the sidecar."""
    return data_path("opa")


@cache
def text_templates(folder: str) -> Environment:
    """The templates of one folder, or of all. The output is not HTML, so nothing is escaped: quote values with a filter.

    >>> text_templates("docs").from_string("{{ a }}").render(a="<")
    '<'
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(templates_folder() / folder),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - see the docstring
    )


SOURCE = "."  # what pip installs, relative to a checkout


def how_to_install(*extras: str) -> str:
    """The command that installs extras, for messages.

    >>> how_to_install("compiler", "serve")
    "pip install '.[compiler,serve]' in a checkout of privtab, or with the path of its wheel for the dot"
    """
    return f"pip install '{SOURCE}[{','.join(extras)}]' in a checkout of privtab, or with the path of its wheel for the dot"


@contextmanager
def needing(what: str, *extras: str) -> Iterator[None]:
    """Import what extras install, or no extra does. Raises UsageError, which says how to install a library that is missing.

    >>> with needing("a server", "server"):
    ...     import json
    """
    try:
        yield
    except ImportError as error:
        advice = how_to_install(*extras) if extras else f"pip install {error.name}"
        raise UsageError(f"{what} needs {error.name}: {advice}") from error
