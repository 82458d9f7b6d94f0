"""Which parts of a state the conditions of a policy use."""

from __future__ import annotations

from dataclasses import dataclass

from privtab._once import once
from privtab.ir.formula import atoms, item_condition
from privtab.ir.levels import types_of
from privtab.ir.nodes import Holds, Member, Program, ServiceAdmin


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedParts:
    """The parts of a state that some condition of the policy uses."""

    member_types: frozenset[str]
    """The entity types on which membership is checked."""
    group_membership: bool
    """Whether entities of one of these types are groups, so that memberships count too."""
    holds: bool
    """Whether the roles that a user holds are checked: by a condition, or because requests name active ones."""
    service_admins: bool
    """Whether service administrators are checked."""
    state_groups: bool
    """Whether the groups of the state count."""
    request_groups: bool
    """Whether the groups that a request brings count."""
    roles_of_roles: bool = False
    """Whether the roles that a role holds are looked up, which active roles bring."""


@once
def uses(program: Program) -> UsedParts:
    """Walk every rule; `can` need not be followed, since it refers to another rule of the same policy.

    A program without rules has only names, and may be asked for anything.
    """
    narrows = program.semantics.active_roles == "request"
    roles_of_roles = narrows and "roles" in program.semantics.hierarchy
    if not program.rules:
        return UsedParts(
            member_types=frozenset(program.entities),
            group_membership=True,
            holds=True,
            service_admins=True,
            state_groups="state" in program.semantics.groups,
            request_groups="request" in program.semantics.groups,
            roles_of_roles=roles_of_roles,
        )
    member_types: set[str] = set()
    holds, service_admins = narrows, False
    for rule in program.rules.values():
        for atom in atoms(item_condition(rule)):
            if isinstance(atom, Member):
                member_types.update(types_of(program, atom.target))
            holds = holds or isinstance(atom, Holds)
            service_admins = service_admins or isinstance(atom, ServiceAdmin)
    return UsedParts(
        member_types=frozenset(member_types),
        group_membership=any(program.entities[t].principal == "group" for t in member_types),
        holds=holds,
        service_admins=service_admins,
        state_groups="state" in program.semantics.groups,
        request_groups="request" in program.semantics.groups,
        roles_of_roles=roles_of_roles,
    )
