"""Names of privileges: what each stands for, and what a grant by it gives."""

from __future__ import annotations

from privtab._once import once
from privtab.ir.nodes import Program


class PrivilegeNames:
    """Looks up privileges, aliases and sets of one policy."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._members: dict[str, tuple[str, ...] | None] = {}
        self._giving: dict[tuple[str, str, str], tuple[str, ...]] = {}

    def privileges(self, name: str) -> tuple[str, ...] | None:
        """The privileges that a name stands for: itself, an alias's privilege or a set's members; None if the name is unknown."""
        if name not in self._members:
            self._members[name] = self._privileges(name, frozenset())
        return self._members[name]

    def _privileges(self, name: str, visiting: frozenset[str]) -> tuple[str, ...] | None:
        if name in self.program.privileges:
            return (name,)
        parts = (self.program.aliases[name].of,) if name in self.program.aliases else self.program.sets.get(name)
        if parts is None or name in visiting:
            return None
        members = [self._privileges(part, visiting | {name}) or () for part in parts]
        return tuple(dict.fromkeys(member for inner in members for member in inner))

    def known_privileges(self) -> tuple[str, ...]:
        """Every name that a grant may use."""
        return (*self.program.privileges, *self.program.aliases, *self.program.sets)

    def privileges_of(self, name: str, type_: str, effect: str) -> tuple[str, ...]:
        """The privileges that a row of this name allows or denies on a type.

        They are those that the name stands for and that can be granted on the type; if it allows, also what these imply there.
        """
        privileges = self.program.privileges
        members = [privilege for privilege in self.privileges(name) or () if type_ in privileges[privilege].on]
        if effect == "allow":
            members += [p for member in members for p in privileges[member].implies if type_ in privileges[p].on]
        return tuple(dict.fromkeys(members))

    def giving(self, privilege: str, type_: str, effect: str) -> tuple[str, ...]:
        """The names whose rows allow or deny a privilege on a type: those for which `given` has it."""
        key = privilege, type_, effect
        if key not in self._giving:
            names = self.known_privileges()
            self._giving[key] = tuple(name for name in names if privilege in self.privileges_of(name, type_, effect))
        return self._giving[key]

    def names(self) -> dict[str, tuple[str, ...]]:
        """For each name that a grant may use, the privileges that a row of this name allows on one type or another."""
        found = {name: self.privileges(name) or () for name in self.known_privileges()}
        implied = {name: privilege.implies for name, privilege in self.program.privileges.items()}
        return {
            name: tuple(dict.fromkeys((*members, *(p for member in members for p in implied[member]))))
            for name, members in found.items()
        }

    @property
    def one_for_one(self) -> bool:
        """Whether every name of a grant gives exactly the privilege of that name."""
        program = self.program
        return not program.aliases and not program.sets and not program.implies


@once
def privilege_names(program: Program) -> PrivilegeNames:
    """The names of a policy; looked up once for all that share them."""
    return PrivilegeNames(program)
