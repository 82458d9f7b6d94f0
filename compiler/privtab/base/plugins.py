"""Plug-ins: modules that installed packages name by entry points, privtab's own package of systems among them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, TypeAlias

from privtab.base.errors import UsageError
from privtab.base.hints import hint, listed_names

Group: TypeAlias = Literal[
    "privtab.backends",
    "privtab.commands",
    "privtab.doors",
    "privtab.engines",
    "privtab.gates",
    "privtab.push_targets",
    "privtab.schemas",
    "privtab.states",
    "privtab.store_apis",
]
"""The groups of entry points, one for each kind of plug-in."""


def plugin_names(group: Group) -> tuple[str, ...]:
    """The names of all plug-ins of a kind: `plugin_names("privtab.gates")` may be `("replay", "test")`."""
    return tuple(sorted(plugin_places(group)))


def load_plugin(group: Group, name: str, built_in: Sequence[str] = ()) -> Any:
    """The module of a plug-in, loaded. Raises UsageError if no installed package has it, or its package cannot be imported.

    `built_in` are the names that need no plug-in, for the hint.

        load_plugin("privtab.gates", "test").failed_cases(policy, variant, readings, engine)
    """
    value = plugin_places(group).get(name)
    if value is None:
        known = sorted({*built_in, *plugin_names(group)})
        near = hint(name, known) or (f"; there are {listed_names(known)}" if known else "")
        raise UsageError(f"no installed package has `{name}` among its entry points `{group}`{near}")
    module, _, attribute = value.partition(":")
    try:
        loaded = import_module(module)
        return attrgetter(attribute)(loaded) if attribute else loaded
    except ImportError as error:
        package = module.partition(".")[0]
        if (error.name or "").partition(".")[0] != package:
            raise  # a library that an extra installs, which the caller names
        raise UsageError(f"`{name}` is in the package `{package}`, which cannot be imported: {error}") from error


@cache
def plugin_places(group: Group) -> dict[str, str]:
    """The modules of the plug-ins of a kind, by name. Raises UsageError where two packages give one name."""
    found: dict[str, str] = {}
    for name, value in _points(group):
        if (other := found.setdefault(name, value)) != value:
            raise UsageError(f"two entry points `{group}` are `{name}`: {other} and {value}")
    return found


def _points(group: Group) -> Iterator[tuple[str, str]]:
    """The entry points of a group, of each distribution once: as `importlib.metadata`, whose import takes longer than a command."""
    folders = [path for path in map(Path, sys.path) if path.exists()]
    elsewhere = sum(hasattr(finder, "find_distributions") for finder in sys.meta_path) > 1
    if elsewhere or any(folder.is_file() for folder in folders):
        from importlib.metadata import entry_points

        yield from ((point.name, point.value) for point in entry_points(group=group))
        return
    seen: set[str] = set()
    for place, info in ((folder, info) for folder in folders for info in os.listdir(folder)):  # noqa: PTH208  thousands of names
        name = info.partition("-")[0].replace(".", "_").lower()
        if name in seen or not info.endswith((".dist-info", ".egg-info")):
            continue
        seen.add(name)
        with suppress(FileNotFoundError, NotADirectoryError):
            section = ""
            for line in map(str.strip, Path(place, info, "entry_points.txt").read_text(encoding="utf-8").splitlines()):
                word, equals, value = line.partition("=")
                if line.startswith("["):
                    section = line
                elif section == f"[{group}]" and equals and not line.startswith("#"):
                    yield word.strip(), value.strip()
