"""Engines in process: they run the program of a policy bundle over the index of a state bundle, and need no server.

`ENGINES` lists them. Each is a module of this folder with an `Opener`; clients, commands and tests find them by the list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol, TypeAlias

from privtab.request import Decision, Entity, Request

ENGINES = ("python", "wasm")
"""By name; the first is the one that runs where nobody chooses."""

Quick: TypeAlias = Mapping[tuple[str, str], Callable[[str, str], bool | None]]
"""By (type, operation): yes or no to (user, path); None: ask the long way."""


class Engine(Protocol):
    """Decides requests whose names were checked, by one policy and one state."""

    def allow(self, request: Request) -> bool:
        """Yes or no."""

    def allow_many(self, requests: Sequence[Request]) -> list[bool]:
        """Yes or no, by position."""

    def decide(self, request: Request) -> Decision:
        """The answer with its explanation."""

    def decide_many(self, requests: Sequence[Request]) -> list[Decision]:
        """Answers with explanations, by position."""

    def visible(self, request: Request, items: Sequence[Entity]) -> list[int]:
        """The positions of the items that pass."""

    def columns(self, requests: Sequence[Request]) -> list[bool] | None:
        """As `allow_many` for requests that nobody has checked; None where that cannot be or one of them is none."""


class NoQuickWays(dict[tuple[str, str], Callable[[str, str], bool | None]]):
    """For engines without quick ways: every request goes the long way."""

    def __missing__(self, key: tuple[str, str]) -> Callable[[str, str], bool | None]:
        return lambda user, path: None  # noqa: ARG005  (what a quick way takes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """An engine over a policy and a state."""

    engine: Engine
    revision: str | None
    """Of the state."""
    missing: frozenset[str] = frozenset()
    """The root entities, by key, whose shards of the state are not there."""
    quick: Quick = field(default_factory=NoQuickWays)


class Opener(Protocol):
    """Makes an engine of what bundles hold. It can be pickled with what it knows."""

    takes_wasm: bool
    """Whether a bundle with the policy's Wasm comes before one with its Rego."""

    def keep(self, document: Mapping[str, Any]) -> Any:
        """What is kept of a state's document, or of that of one of its parts."""

    def open(self, program: Mapping[str, Any], state: Sequence[Any], module: bytes | None) -> Opened:
        """The engine. `state`: what was kept, whole or in parts; `module`: the policy's Wasm. PolicyError, UsageError."""


def opener(name: str) -> Opener:
    """A new opener of the engine with this name."""
    made: Opener = import_module(f"{__name__}.{name}").Opener()
    return made
