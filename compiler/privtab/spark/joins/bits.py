"""A bit for everything that conditions may look up of what a principal holds at a place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from privtab.engines.plan import GrantSemantics

WORD = 60
"""Number of bits in a column."""

OWNER, MEMBER, ADMIN, OWNS_BELOW = "owner", "member", "service admin", "owns below"
BitKey: TypeAlias = str | tuple[str, str]
"""What a principal may hold: one of the above, (`allow` or `deny`, privilege), or (`role`, a declared role with default grants).

Below a place: (`below`, privilege), or (`blocked`, privilege) if it is denied to somebody there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedBelow:
    """What conditions ask about below entities: by privilege, the types of these, and the types below which ownership counts."""

    privileges: Mapping[str, frozenset[str]]
    owned: frozenset[str]

    @classmethod
    def by(cls, program: Mapping[str, Any], semantics: GrantSemantics) -> AskedBelow:
        """What the conditions of a program ask."""
        privileges: dict[str, set[str]] = {}
        owned: set[str] = set()
        for kind, atom in nodes(program["rules"]):
            if kind not in ("has_below", "owns_below"):
                continue
            types = {atom["type"]}
            if atom.get("level") == "parent":
                types |= {program["entities"][atom["type"]]["parent"]}
            if kind == "has_below":
                privileges.setdefault(atom["privilege"], set()).update(types)
            if kind == "owns_below" or atom["privilege"] in semantics.owner_holds:
                owned |= types
        return cls(
            privileges={name: frozenset(types) for name, types in sorted(privileges.items())}, owned=frozenset(owned)
        )

    def __bool__(self) -> bool:
        """Whether conditions ask about anything."""
        return bool(self.privileges or self.owned)


def nodes(value: object) -> Iterator[tuple[str, Any]]:
    """Every key of the mappings in a program's JSON, with its value."""
    match value:
        case Mapping():
            for name, inner in value.items():
                yield name, inner
                yield from nodes(inner)
        case list():
            for inner in value:
                yield from nodes(inner)


class BitNumbers:
    """A bit for everything that a policy may look up, independent of the requests, so that a state is prepared only once."""

    def __init__(self, program: Mapping[str, Any], semantics: GrantSemantics) -> None:
        items: list[BitKey | None] = [OWNER, MEMBER, ADMIN, *(("role", role) for role in semantics.roles)]
        items += [None] * (len(items) % 2)  # A privilege and its denial share a word.
        for privilege in program["privileges"]:
            items += [("allow", privilege), ("deny", privilege)]
        self.below = AskedBelow.by(program, semantics)
        self._inactive_owners = semantics.inactive_owners
        items += [OWNS_BELOW] if self.below.owned else []
        items += [(kind, privilege) for privilege in self.below.privileges for kind in ("below", "blocked")]
        self._numbers = {item: number for number, item in enumerate(items) if item is not None}
        self.words = (len(items) - 1) // WORD + 1
        """Number of columns of bits."""

    def bit(self, key: BitKey) -> tuple[int, int]:
        """The position of a bit: (word, bit)."""
        word, position = divmod(self._numbers[key], WORD)
        return word, 1 << position

    def of_roles(self, word: int) -> int:
        """The bits of a word that count only for active roles: all that allow, and ownership, unless it always counts."""
        owning = () if self._inactive_owners else (OWNER, OWNS_BELOW)
        allowing = (
            self.bit(key) for key in self._numbers if key in owning or (isinstance(key, tuple) and key[0] != "deny")
        )
        return sum(bit for number, bit in allowing if number == word)
