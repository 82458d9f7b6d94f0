"""The names of a policy by which rows of a state are validated, without conditions, and their comparison."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from privtab.bundle.archive import json_bytes
from privtab.ir.nodes import EntityType, Program
from privtab.ir.serialise import program_json
from privtab.names import KINDS
from privtab.state.uses import uses


def names_of(program: Program) -> dict[str, Any]:
    """The names by which rows are validated and resolved, as JSON.

    If they are equal for two policies, a state of one is valid for the other, whatever their conditions.
    """
    owner = program.semantics.owner
    hierarchy = program.semantics.hierarchy
    given = program.attributes.from_origin("state").to_json()
    attributes = {f"{kind}.{name}": declared for kind, of_kind in given.items() for name, declared in of_kind.items()}
    implied = {name: sorted(p.implies) for name, p in sorted(program.privileges.items()) if p.implies}
    return {
        "system": program.system,
        "types": {name: _type(e) for name, e in sorted(program.entities.items())},
        "privileges": {name: sorted(p.on) for name, p in sorted(program.privileges.items())},
        **({"implied": implied} if implied else {}),
        "aliases": {name: alias.of for name, alias in sorted(program.aliases.items())},
        "sets": {name: sorted(members) for name, members in sorted(program.sets.items())},
        "roles": {name: role.scope for name, role in sorted(program.roles.items())},
        "denials": {"denials": program.semantics.deny},
        "owners": {"owners": None if owner is None else sorted(owner.kinds)},
        **({} if program.semantics.grantees == KINDS else {"grantees": sorted(program.semantics.grantees)}),
        **({} if program.semantics.assignees == KINDS else {"assignees": sorted(program.semantics.assignees)}),
        **({"hierarchy": dict.fromkeys(sorted(hierarchy), True)} if hierarchy else {}),
        **({"attributes": attributes} if attributes else {}),
    }


def _type(entity: EntityType) -> list[Any]:
    nested = [f"nested: {entity.nested}"] if entity.nested else []
    return [entity.parent, entity.single, *nested, *(["flat"] if entity.flat else [])]


def policy_digest(program: Program, orphans: str, format_: int) -> str:
    """Hash of everything a build depends on besides its rows: names and semantics of the policy, and how orphans are treated."""
    used = uses(program)
    parts = [sorted(used.member_types), used.group_membership, used.holds, used.service_admins]
    document = {k: v for k, v in program_json(program).items() if k not in {"rules", "title"}}
    return hashlib.sha256(json_bytes([document, parts, orphans, format_])).hexdigest()[:16]


def differences(of_state: Mapping[str, Any], of_policy: Mapping[str, Any]) -> list[str]:
    """Descriptions of how the names by which a state was read differ from a policy's; empty if they are equal."""
    found = []
    for part in (
        "types",
        "privileges",
        "implied",
        "aliases",
        "sets",
        "roles",
        "denials",
        "owners",
        "hierarchy",
        "attributes",
    ):
        in_state, in_policy = of_state.get(part, {}), of_policy.get(part, {})
        changed = sorted(
            name for name in {*in_state, *in_policy} if in_state.get(name, ...) != in_policy.get(name, ...)
        )
        if changed:
            more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
            named = ", ".join(f"`{name}`" for name in changed[:3])
            found.append(part if changed == [part] else f"{part} ({named}{more})")
    return found
