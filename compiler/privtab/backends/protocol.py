"""The protocol of back ends, and the look-up of one by its name: in this folder, or among plug-ins."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from privtab.base.records import dataclass

if TYPE_CHECKING:
    from privtab.ir.nodes import Program

BACKENDS = ("describe", "rego")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """The input of a back end."""

    program: Program
    """The policy as written, for human readers."""
    optimised: Program
    """The policy after the passes, for engines."""
    name: str
    """The name of the outputs; by default, that of the system."""
    revision: str | None = None
    """The revision of the policy bundle; None while the bundle is being built."""
    sharded: bool = False
    """True if the state is split into shards."""


class Backend(Protocol):
    """A module of this folder, which emits a policy in one language."""

    def files(self, policy: Compilation, /) -> Mapping[str, str]:
        """The text of each file, by path. Raises UnsupportedError for a row that the language cannot express."""


def backend(name: str) -> Backend:
    """The back end with this name, from this folder or from a plug-in. Raises UsageError for a name that nothing has.

    >>> backend("describe").__name__
    'privtab.backends.describe'
    """
    if name in BACKENDS:
        return cast(Backend, import_module(f"{__package__}.{name}"))
    from privtab.base import plugins  # what only packs bundles needs none

    return cast(Backend, plugins.load_plugin("privtab.backends", name, BACKENDS))


def backend_names() -> tuple[str, ...]:
    """The names of all back ends, plug-ins included, for help and completion.

    >>> "rego" in backend_names()
    True
    """
    from privtab.base import plugins

    return (*BACKENDS, *plugins.plugin_names("privtab.backends"))
