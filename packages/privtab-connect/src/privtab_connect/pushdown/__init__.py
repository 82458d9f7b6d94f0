"""The rows of a state as native privileges of another system: what is there, what should be there, and the difference.

Here is what every target is: one protocol. A new target is one module, which a package names as an entry point.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from privtab.base import load_plugin
from privtab_connect.pushdown.rights import Account, Inventory, Object, Right, Traits

if TYPE_CHECKING:
    from privtab_connect.pushdown.document import MappingDocument
    from privtab_connect.pushdown.rights import PushPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options to reach a target, beside its address."""

    values: Mapping[str, str] = field(default_factory=dict)
    """Values of the mapping document's placeholders."""
    token: str | None = None
    """A bearer token."""
    headers: Mapping[str, str] = field(default_factory=dict)
    record: Path | None = None
    """The file that keeps what was granted, for targets that have no place for it."""


class Session(Protocol):
    """One push to an opened target."""

    @property
    def where(self) -> str:
        """The name of the target in messages."""

    def prepare(self) -> None:
        """Keep other pushes away, before reading anything that will be changed. Raises PushError."""

    def read(self) -> Inventory:
        """Read the target's accounts, objects and rights now. Raises PushError."""

    def normalised(self, desired: frozenset[Right], inventory: Inventory) -> frozenset[Right]:
        """The desired rights in the target's own terms."""

    def moved(self, inventory: Inventory, desired: frozenset[Right]) -> Inventory:
        """Return the inventory after the owners change, with the side effects of that."""

    def requests(self, plan: PushPlan) -> tuple[str, ...]:
        """Return the requests of the plan, in order, as text."""

    def apply(self, plan: PushPlan) -> None:
        """Carry out the plan and its record, all or nothing where the target can. Raises PushError."""


class TargetModule(Protocol):
    """The interface of a target's module."""

    TRAITS: Traits

    def name_problem(self, item: Account | Object) -> str | None:
        """Explain why the target cannot have this name; None if it can."""

    def opened(
        self, where: str, document: MappingDocument, pusher: str, options: Options
    ) -> AbstractContextManager[Session]:
        """Open the target at an address. Raises UsageError for an address of another kind, PushError if it is not reached."""


def target_module(name: str) -> TargetModule:
    """The module of a target."""
    module: TargetModule = load_plugin("privtab.push_targets", name)
    return module
