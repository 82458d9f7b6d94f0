"""Back ends: each turns a policy into the text of files. `BACKENDS` lists the modules of this folder; plug-ins add others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from privtab.base import plugins
from privtab.base.lazy import face

if TYPE_CHECKING:
    from privtab.backends.describe import (
        described_policy,
        described_row,
        minimal_set_texts,
        type_forest,
        unlisted_sets,
    )
    from privtab.backends.rego import rego_string, rego_template
    from privtab.ir.nodes import Program
else:
    __getattr__, __dir__, __all__ = face(
        __name__,
        {
            "describe": "described_policy described_row minimal_set_texts type_forest unlisted_sets",
            "rego": "rego_string rego_template",
        },
    )

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
        return cast(Backend, import_module(f"{__name__}.{name}"))
    return cast(Backend, plugins.load_plugin("privtab.backends", name, BACKENDS))


def backend_names() -> tuple[str, ...]:
    """The names of all back ends, plug-ins included, for help and completion.

    >>> "rego" in backend_names()
    True
    """
    return (*BACKENDS, *plugins.plugin_names("privtab.backends"))
