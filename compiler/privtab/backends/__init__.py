"""Back ends: each turns a policy into the text of files. `BACKENDS` lists them; each is a module of this folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from privtab.ir.nodes import Program

BACKENDS = ("describe", "rego", "stubs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """What a back end compiles."""

    program: Program
    """The policy as written, which people read."""
    optimised: Program
    """The same after the passes, which engines run."""
    name: str
    """The name of the outputs: that of the system, unless another one was chosen."""
    revision: str | None = None
    """The revision of the policy bundle; None while that is being made."""
    sharded: bool = False
    """Whether the state comes in parts."""


class Backend(Protocol):
    """A module of this folder: it writes a policy in one language."""

    def files(self, policy: Compilation, /) -> Mapping[str, str]:
        """The text of each file, by path. Raises UnsupportedError for a row that the language cannot express."""


def backend(name: str) -> Backend:
    """The back end with this name."""
    return cast(Backend, import_module(f"{__name__}.{name}"))
