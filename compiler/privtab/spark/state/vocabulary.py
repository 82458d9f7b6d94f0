"""What rows of a state are checked by: a policy's names, without its conditions; and whether those of two policies are the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from privtab.ir.nodes import Program


def names_of(program: Program) -> dict[str, Any]:
    """What rows are told good from wrong by, and resolved by, as JSON.

    Where two policies agree in it, a state of one is one of the other, whatever their conditions are.
    """
    owner = program.semantics.owner
    return {
        "system": program.system,
        "types": {name: [e.parent, e.single] for name, e in sorted(program.entities.items())},
        "privileges": {name: sorted(p.on) for name, p in sorted(program.privileges.items())},
        "aliases": {name: alias.of for name, alias in sorted(program.aliases.items())},
        "sets": {name: sorted(members) for name, members in sorted(program.sets.items())},
        "roles": {name: role.scope for name, role in sorted(program.roles.items())},
        "denials": {"denials": program.semantics.deny},
        "owners": {"owners": None if owner is None else sorted(owner.kinds)},
    }


def differences(of_state: Mapping[str, Any], of_policy: Mapping[str, Any]) -> list[str]:
    """In what the names that a state was read by are others than a policy's, in words; empty where they are the same."""
    found = []
    for part in ("types", "privileges", "aliases", "sets", "roles", "denials", "owners"):
        one, other = of_state.get(part, {}), of_policy[part]
        changed = sorted(name for name in {*one, *other} if one.get(name, ...) != other.get(name, ...))
        if changed:
            more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
            named = ", ".join(f"`{name}`" for name in changed[:3])
            found.append(part if changed == [part] else f"{part} ({named}{more})")
    return found
