"""The order of atoms in minimal sets, and so in every output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from privtab.ir.levels import level_text
from privtab.ir.nodes import ByType, Compare, Has, HasBelow, Holds, Member, Owner, OwnsBelow, Self, ServiceAdmin
from privtab.ir.shapes import Leaf


def order(position: Mapping[str, int], atom: Leaf) -> tuple[int, str, int, str]:
    """Sort key: membership first, then privileges and roles, then ownership; from the root down. `position`: that of each type."""
    match atom:
        case Member(target=target):
            return (0, target.slot, position[target.type], level_text(target))
        case ServiceAdmin():
            return (1, "", 0, "")
        case Self(target=target):
            return (2, target.slot, 0, "")
        case Has(target=target, privilege=privilege):
            return (3, target.slot, position[target.type], f"{privilege}{level_text(target)}")
        case Holds(target=target):
            return (4, target.slot, position[target.type], "")
        case Owner(target=target):
            return (5, target.slot, position[target.type], level_text(target))
        case HasBelow(target=target, privilege=privilege):
            return (3, target.slot, position[target.type], f"{privilege} or below")
        case OwnsBelow(target=target):
            return (5, target.slot, position[target.type], "or below")
        case Compare():
            return (7, "", 0, repr(atom))
        case ByType(slot=slot, text=text):
            return (6, slot, 0, text)
        case _:
            assert_never(atom)
