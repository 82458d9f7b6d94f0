"""Conditions in which no atom repeats or affects another: they need no solver."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from privtab.ir.formula import resolve
from privtab.ir.nodes import (
    And,
    ByType,
    Can,
    Compare,
    Formula,
    Has,
    HasBelow,
    Member,
    Or,
    Owner,
    OwnsBelow,
    Program,
    When,
)


def unrelated(program: Program, formulas: Iterable[Formula], types: Mapping[str, Collection[str]]) -> bool:
    """Whether the conditions neither repeat an atom nor contain atoms that affect each other.

    If so, each part of them affects the decision. `types`: those of the object in each `with` slot.
    """
    owner = program.semantics.owner
    owner_privileges = frozenset(owner.holds) if owner else frozenset()
    kin = _related_privileges(program)
    inherited = any(map(program.inherits, program.privileges))
    visited: set[Formula] = set()
    privilege_keys: set[object] = set()
    owners = False
    waiting = list(formulas)
    while waiting:
        node = waiting.pop()
        match node:
            case Can():
                waiting.append(resolve(program, node))
            case And() | Or():
                if not node.parts:
                    return False
                waiting += node.parts
            case When():
                waiting.append(node.body)
            case ByType():
                if len(types[node.slot]) > 1:
                    return False
                waiting += (case_ for type_, case_ in node.cases if type_ in types[node.slot])
            case Has(target=target) | Owner(target=target) | Member(target=target) if target.level != "nearest":
                return False  # other levels of the same type affect each other
            case Has(privilege=privilege, target=target):
                # With inheritance, a privilege on one object affects others on the same path.
                of_kin = kin.get(privilege, privilege)
                key = (of_kin, target.slot) if inherited else (of_kin, target)
                if key in privilege_keys:
                    return False
                privilege_keys.add(key)
                owners |= privilege in owner_privileges
            case HasBelow() | OwnsBelow() | Compare():
                return False
            case _:
                if node in visited:
                    return False
                visited.add(node)
    return not (owners and any(isinstance(node, Owner) for node in visited))


def _related_privileges(program: Program) -> dict[str, str]:
    """For privileges that are connected by implications, one of those that they are connected with."""
    found: dict[str, str] = {}
    for privilege in program.privileges.values():
        for name in privilege.implies:
            root, other_root = found.get(privilege.name, privilege.name), found.get(name, name)
            found |= {key: root for key, value in found.items() if value == other_root} | {
                name: root,
                privilege.name: root,
            }
    return found
