"""Effects of allowed operations: the text in decisions, and the row of the state that each adds or removes.

Standard library only: the adapter and every engine share it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self, TypeAlias

from privtab.base.lazy import pattern
from privtab.base.names import PrincipalKind
from privtab.base.records import dataclass

EffectKind: TypeAlias = Literal["grant", "become", "revoke", "delegate", "withdraw"]
DELEGATION: frozenset[EffectKind] = frozenset(("delegate", "withdraw"))
"""The kinds of effects whose principal the request names, and of several privileges which one."""
PRINCIPAL_TABLES = ("members", "memberships", "assignments", "grants", "owners")
"""What `revokes` may name besides privileges, on a principal: tables of the state whose rows about the principal are removed."""

TABLE_OF_TYPE: Mapping[PrincipalKind | None, str] = {
    None: "assignments",
    "role": "assignments",
    "group": "memberships",
    "user": "members",
}
"""What `delegates` may name besides privileges and ownership, by what the type of the row represents: rows that give a role, also within an
entity, that let somebody join a group, or that make a user a member of what contains the user."""

BY_ACTIVE_ROLE = " by active_role"
"""In the text of ownership: not the caller becomes the owner but the first active role of the request."""

_TEXT = pattern(rf"(grant|become|revoke) ([^()]+?)({BY_ACTIVE_ROLE})? \((.+)\)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Change:
    """A change that an effect makes to a table of the state: it adds a row, or removes every row that has these values.

    `row`: values by column; its `entity` (`of` for members) is None where the request leaves off the name of the entity
    to create. `about`: instead of a row, the entity of a principal; all rows of the table about this principal, within
    what contains the entity, are removed.

    >>> Change("add", "owners", row={"entity": "dataset:web/new", "owner": "user:ann"}).to_json()["add"]
    'owners'
    """

    action: Literal["add", "remove"]
    table: str
    row: Mapping[str, str | None] | None = None
    about: str | None = None

    @classmethod
    def of(cls, text: str, user: str, active_roles: Sequence[str] | None = ()) -> Change:
        """The change of an effect by its text, for a caller and the active roles of the request.

        Raises ValueError if the text is not an effect, or is about an active role and there is none.

        >>> Change.of("become owner (dataset:web/new)", "ann").to_json()
        {'add': 'owners', 'row': {'entity': 'dataset:web/new', 'owner': 'user:ann'}}
        """
        parts = _TEXT.fullmatch(text)
        if parts is None or (parts[3] and (parts[1], parts[2]) != ("become", "owner")):
            raise ValueError(f"`{text}` is not an effect")
        kind, what, by_role, key = parts.groups()
        if by_role and not active_roles:
            raise ValueError(f"`{text}` is an effect for a request that names active roles, and this one names none")
        if kind == "revoke" and what in PRINCIPAL_TABLES:
            return cls("remove", what, about=key)
        entity = key if ":" in key else None
        row: dict[str, str | None]
        match what:
            case "owner":
                owner = f"role:{active_roles[0]}" if by_role and active_roles else f"user:{user}"
                table, row = "owners", {"entity": entity, "owner": owner}
            case "member":
                table, row = "members", {"user": user, "of": entity}
            case _:
                row = {"grantee": f"user:{user}", "effect": "allow", "privilege": what, "entity": entity}
                table = "grants"
        return cls("remove" if kind == "revoke" else "add", table, row=row)

    def to_json(self) -> dict[str, Any]:
        """`{"add": "owners", "row": {…}}`, or `{"remove": "assignments", "about": "user:m/ann"}`."""
        return {self.action: self.table} | ({"about": self.about} if self.row is None else {"row": dict(self.row)})

    @classmethod
    def from_json(cls, value: object) -> Change:
        """Read `to_json`. Raises ValueError for anything else."""
        if not isinstance(value, Mapping):
            raise ValueError("a change is not an object")
        action: Literal["add", "remove"] = "add" if "add" in value else "remove"
        table, row, about = value.get(action), value.get("row"), value.get("about")
        if (
            ("add" in value) == ("remove" in value)
            or not isinstance(table, str)
            or ("row" in value) == ("about" in value)
        ):
            raise ValueError("a change has a table, and a row or a principal")
        if isinstance(about, str):
            return cls(action, table, about=about)
        if not isinstance(row, Mapping) or not all(
            isinstance(name, str) and (cell is None or isinstance(cell, str)) for name, cell in row.items()
        ):
            raise ValueError("the row of a change has texts by column")
        return cls(action, table, row=dict(row))


class Effect(str):
    """The text of an effect, as in `grant ALL (dataset:web/new)`, with its change to the state.

    >>> Effect("grant ALL (dataset:web/new)").change
    """

    __slots__ = ("change",)
    change: Change | None
    """None if the decision that lists the effect does not say it."""

    def __new__(cls, text: str, change: Change | None = None) -> Self:
        """The text, and what it changes."""
        effect = super().__new__(cls, text)
        effect.change = change
        return effect

    def __reduce__(self) -> tuple[type[Effect], tuple[str, Change | None]]:
        """The parts from which `pickle` and `copy` make the effect."""
        return Effect, (str(self), self.change)


def with_changes(context: Mapping[str, Any], user: str, active_roles: Sequence[str] | None) -> dict[str, Any]:
    """A decision's context with the `changes` of its `effects`, by position. Raises ValueError for a text that is no effect."""
    found: dict[str, Any] = {}
    for name, value in context.items():
        found[name] = value
        if name == "effects" and value:
            found["changes"] = [Change.of(text, user, active_roles).to_json() for text in value]
    return found
