"""Plug-ins: modules that installed packages name by entry points, privtab's own package of systems among them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points
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
    return tuple(sorted(_found(group)))


def load_plugin(group: Group, name: str, built_in: Sequence[str] = ()) -> Any:
    """The module of a plug-in, loaded. Raises UsageError if no installed package has it, or its package cannot be imported.

    `built_in` are the names that need no plug-in, for the hint.

        load_plugin("privtab.gates", "test").failed_cases(policy, variant, readings, engine)
    """
    found = _found(group).get(name)
    if found is None:
        known = sorted({*built_in, *plugin_names(group)})
        near = hint(name, known) or (f"; there are {listed_names(known)}" if known else "")
        raise UsageError(f"no installed package has `{name}` among its entry points `{group}`{near}")
    try:
        return found.load()
    except ImportError as error:
        package = found.value.partition(".")[0]
        if (error.name or "").partition(".")[0] != package:
            raise  # a library that an extra installs, which the caller names
        raise UsageError(f"`{name}` is in the package `{package}`, which cannot be imported: {error}") from error


@cache
def _found(group: Group) -> dict[str, EntryPoint]:
    """The entry points of a group by name. Raises UsageError where two packages give one name."""
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=group):
        other = found.setdefault(point.name, point)
        if other.value != point.value:
            raise UsageError(f"two entry points `{group}` are `{point.name}`: {other.value} and {point.value}")
    return found
