"""Names of privileges: what each stands for, and what a grant by it gives."""

from __future__ import annotations

from privtab.ir.nodes import Program


class PrivilegeNames:
    """Looks up privileges, aliases and sets of one policy."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._members: dict[str, tuple[str, ...] | None] = {}

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

    def given(self, name: str, type_: str) -> tuple[str, ...]:
        """The privileges that a grant of this name gives on a type; of a set, the members that can be granted on the type."""
        return tuple(m for m in self.privileges(name) or () if type_ in self.program.privileges[m].on)
