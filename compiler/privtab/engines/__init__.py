"""Engines in process: they run the program of a policy bundle over the index of a state bundle, without a server.

`ENGINES` lists them. Each is a module of this folder with an `Opener`; clients, commands and tests find them by the list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol, TypeAlias

from privtab.moments import ALWAYS, Window
from privtab.request import Decision, Entity, Request

ENGINES = ("python", "wasm")
"""By name; the first is the default."""

Shortcuts: TypeAlias = Mapping[tuple[str, str], Callable[[str, str], bool | None]]
"""By (type, operation): the decision for (user, path); None: ask the engine."""


class Engine(Protocol):
    """Decides requests whose names were checked, by one policy and one state."""

    def allow(self, request: Request) -> bool:
        """Whether the request is allowed."""

    def allow_many(self, requests: Sequence[Request]) -> list[bool]:
        """Whether each request is allowed, by position."""

    def decide(self, request: Request) -> Decision:
        """The decision with its explanation."""

    def decide_many(self, requests: Sequence[Request]) -> list[Decision]:
        """Decisions with explanations, by position."""

    def visible(self, request: Request, items: Sequence[Entity]) -> list[int]:
        """The positions of the items that are allowed."""

    def columns(self, requests: Sequence[Request]) -> list[bool] | None:
        """As `allow_many`, for unchecked requests; None if the engine cannot do that or a request is not valid."""


class NoShortcuts(dict[tuple[str, str], Callable[[str, str], bool | None]]):
    """For engines without shortcuts."""

    def __missing__(self, key: tuple[str, str]) -> Callable[[str, str], bool | None]:
        return lambda user, path: None  # noqa: ARG005  (what a shortcut takes)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenEngine:
    """An engine over a policy and a state."""

    engine: Engine
    revision: str | None
    """The revision of the state."""
    missing: frozenset[str] = frozenset()
    """The keys of the root entities whose shards of the state are missing."""
    shortcuts: Shortcuts = field(default_factory=NoShortcuts)
    window: Window = ALWAYS
    """The time in which the engine's answers count: at its end, some row of the state begins or ends to hold."""


class Opener(Protocol):
    """Opens an engine on the content of bundles. It can be pickled, with its data."""

    takes_wasm: bool
    """Whether a bundle with the policy's Wasm is preferred to one with its Rego."""

    def keep(self, document: Mapping[str, Any]) -> Any:
        """Return what the engine keeps of a state's document, or of that of one of its parts."""

    def open(self, program: Mapping[str, Any], state: Sequence[Any], module: bytes | None, moment: int) -> OpenEngine:
        """Open the engine for a moment. Raises PolicyError, UsageError.

        `state`: what was kept, whole or in parts; `module`: the policy's Wasm.
        """


def opener(name: str) -> Opener:
    """A new opener of the engine with this name."""
    new: Opener = import_module(f"{__name__}.{name}").Opener()
    return new
