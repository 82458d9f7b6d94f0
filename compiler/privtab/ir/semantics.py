"""The file-wide semantics of grants: what they mean throughout a policy."""

from __future__ import annotations

from typing import Literal, TypeAlias

from privtab.base.names import PRINCIPAL_KINDS, PrincipalKind
from privtab.base.nodes import dataclass

Creator: TypeAlias = bool | Literal["active_role"]
Inheritance: TypeAlias = Literal["none", "down"]
DenyMode: TypeAlias = Literal["none", "overrides"]
GroupSource: TypeAlias = Literal["state", "request"]
HierarchyKind: TypeAlias = Literal["groups", "roles"]
RoleNarrowing: TypeAlias = Literal["none", "request"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerSemantics:
    """The meaning of ownership: which kinds of principals may own, whether creators do, and the privileges that owners have."""

    kinds: tuple[PrincipalKind, ...] = ("user",)
    creator: Creator = False
    holds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Semantics:
    """The file-wide semantics of grants."""

    inheritance: Inheritance = "none"
    deny: DenyMode = "none"
    owner: OwnerSemantics | None = None
    subjects: tuple[str, ...] = ("user",)
    """The types of subjects in requests. All are users, and one name is one user."""
    grantees: tuple[PrincipalKind, ...] = PRINCIPAL_KINDS
    """The kinds of principals that grants may be to."""
    assignees: tuple[PrincipalKind, ...] = PRINCIPAL_KINDS
    """The kinds of principals that roles may be assigned to; to roles only with a hierarchy of them."""
    groups: tuple[GroupSource, ...] = ("state",)
    everyone: str | None = None
    """The name of the group that every user belongs to, whatever rows and requests say."""
    hierarchy: tuple[HierarchyKind, ...] = ()
    """The kinds of principals that contain others of their kind: groups in groups, roles held by roles."""
    active_roles: RoleNarrowing = "none"
    """Whether a request may name the roles of the caller that count."""
    inactive_owners: bool = False
    """Whether ownership through a role that does not count is ownership all the same."""
    gate: str | None = None

    @property
    def everyones(self) -> frozenset[str]:
        """The groups of every user: that of `everyone`, if there is one."""
        return frozenset(() if self.everyone is None else (self.everyone,))

    @property
    def everybody(self) -> str | None:
        """The principal that every user is: `group:…`."""
        return self.everyone and f"group:{self.everyone}"

    def inherits(self, own: Inheritance | None) -> bool:
        """As `Program.inherits`; `own`: what the privilege has of its own."""
        return (own or self.inheritance) == "down"
