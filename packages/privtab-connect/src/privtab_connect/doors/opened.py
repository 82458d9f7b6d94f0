"""Doors as the bundle of a policy takes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from privtab.ir import Program
from privtab_connect.doors import emit
from privtab_connect.doors.document import Door, load

if TYPE_CHECKING:
    from privtab.base import Diagnostic


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedDoor:
    """A `privtab.bundle.pack.BundledDoor`: a door document, read for a policy."""

    door: Door

    @property
    def name(self) -> str:
        """The name of its package in the bundle."""
        return self.door.name

    @property
    def notes(self) -> tuple[Diagnostic, ...]:
        """The remarks about the document."""
        return self.door.notes

    def to_json(self) -> dict[str, Any]:
        """The rows of operations, and the answers."""
        return emit.door_json(self.door)

    def modules(self, program: Program, name: str) -> Mapping[str, str]:
        """The Rego modules of the door, by path inside the bundle."""
        return emit.modules(self.door, program, name)


def opened(document: str, program: Program) -> OpenedDoor:
    """Read a door document by path or by name. Raises UsageError, and PolicyInvalid with every finding."""
    return OpenedDoor(door=load(document, program))
