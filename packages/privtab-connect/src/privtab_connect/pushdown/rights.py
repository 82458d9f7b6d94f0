"""Native rights: what a target system can hold. A right is one fact; rights are compared, recorded and shown.

A plan is the difference between the existing rights and the desired rights, by who granted them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import astuple, dataclass, field
from typing import Literal, TypeAlias

AccountKind: TypeAlias = Literal["login", "group", "role", "everyone"]
"""Kinds of accounts that have rights. Targets without groups of their own have groups as roles; `everyone` is PUBLIC in SQL."""
OWNER = "OWNER"
"""Name of ownership in mapping documents, in the place of a native privilege."""
GRANT_OPTION = " WITH GRANT OPTION"
"""The suffix of a privilege that its holder may pass on."""


@dataclass(frozen=True, slots=True, order=True)
class Account:
    """Someone who holds rights in the target; `name` is native. `host`: for targets whose logins have one."""

    kind: AccountKind
    name: str
    host: str = ""

    def __str__(self) -> str:
        """As in reports: `role analyst`."""
        at = f"@{self.host}" if self.host else ""
        return "everyone" if self.kind == "everyone" else f"{self.kind} {self.name}{at}"


EVERYONE = Account("everyone", "")
WITH_EVERYONE: tuple[AccountKind, ...] = ("login", "group", "role", "everyone")
"""All kinds of accounts, for targets that grant to each of them."""


@dataclass(frozen=True, slots=True, order=True)
class Object:
    """An object of the target: its kind there, and its native names from the outermost down."""

    kind: str
    names: tuple[str, ...]

    def __str__(self) -> str:
        """As in reports, and in those of an import: `table sales/orders`."""
        return f"{self.kind} {'/'.join(self.names)}".rstrip()


@dataclass(frozen=True, slots=True, order=True)
class NativeGrant:
    """An account is allowed or denied a native privilege on an object."""

    account: Account
    effect: Literal["allow", "deny"]
    privilege: str
    object: Object

    def __str__(self) -> str:
        """As in reports."""
        return f"{self.privilege} on {self.object} {'to' if self.effect == 'allow' else 'denied to'} {self.account}"


@dataclass(frozen=True, slots=True, order=True)
class NativeMembership:
    """An account holds a role, or is in a group, with all that this may do."""

    account: Account
    role: Account

    def __str__(self) -> str:
        """As in reports."""
        return f"{self.role} to {self.account}"


@dataclass(frozen=True, slots=True, order=True)
class NativeOwnership:
    """An account owns an object."""

    object: Object
    owner: Account

    def __str__(self) -> str:
        """As in reports."""
        return f"ownership of {self.object} to {self.owner}"


@dataclass(frozen=True, slots=True, order=True)
class DefaultRole:
    """A role is in force as soon as a login connects, for targets where a held role need not be."""

    account: Account
    role: Account

    def __str__(self) -> str:
        """As in reports."""
        return f"default {self.role} of {self.account}"


Right: TypeAlias = NativeGrant | NativeMembership | NativeOwnership | DefaultRole
_KINDS: Mapping[type, str] = {
    NativeOwnership: "owner", NativeMembership: "member", DefaultRole: "default", NativeGrant: "grant",
}  # fmt: skip
"""Kinds of rights by their names in records, in the order in which they are granted."""


def in_order(rights: set[Right]) -> tuple[Right, ...]:
    """Rights in the order in which they are granted."""
    order = list(_KINDS)
    return tuple(sorted(rights, key=lambda right: (order.index(type(right)), to_text(right))))


def to_text(right: Right) -> str:
    """A right as one line of JSON, for records: its kind, and the parts of its fields in their order."""
    values = (getattr(right, name) for name in right.__slots__)
    parts = (part for value in values for part in (astuple(value) if isinstance(value, Account | Object) else (value,)))
    return json.dumps([_KINDS[type(right)], *parts], ensure_ascii=False, separators=(",", ":"))


def from_text(text: str) -> Right:
    """Read what `to_text` wrote. Raises ValueError for anything else."""
    match json.loads(text):
        case ["grant", kind, name, host, ("allow" | "deny") as effect, privilege, object_kind, names]:
            return NativeGrant(Account(kind, name, host), effect, privilege, Object(object_kind, tuple(names)))
        case ["member", kind, name, host, role_kind, role, role_host]:
            return NativeMembership(Account(kind, name, host), Account(role_kind, role, role_host))
        case ["owner", object_kind, names, kind, name, host]:
            return NativeOwnership(Object(object_kind, tuple(names)), Account(kind, name, host))
        case ["default", kind, name, host, role_kind, role, role_host]:
            return DefaultRole(Account(kind, name, host), Account(role_kind, role, role_host))
    raise ValueError(f"`{text:.80}` is no recorded right")


def accounts_of(right: Right) -> tuple[Account, ...]:
    """The accounts that a right is about."""
    return tuple(value for name in right.__slots__ if isinstance(value := getattr(right, name), Account))


def linked(accounts: Collection[Account], links: Mapping[Account, AbstractSet[Account]]) -> set[Account]:
    """Some accounts, and the accounts to which links lead from them at any distance."""
    found, waiting = set(accounts), [*accounts]
    while waiting:
        further = links.get(waiting.pop(), frozenset()) - found
        found |= further
        waiting += further
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """The accounts, objects and rights in a target, as far as a mapping document concerns them."""

    accounts: frozenset[Account]
    objects: frozenset[Object]
    rights: frozenset[Right]
    predefined: frozenset[Account] = frozenset()
    """Accounts that the target makes itself, under names that it reserves."""
    inherent: frozenset[Right] = frozenset()
    """Rights among `rights` that owners have merely because they own an object."""
    unlimited: frozenset[Account] = frozenset()
    """Accounts that may do anything, whatever is granted."""
    recorded: frozenset[Right] = frozenset()
    """Rights that pushes under this name granted."""
    recorded_elsewhere: frozenset[Right] = frozenset()
    """Rights that pushes under other names granted."""
    unread: tuple[str, ...] = ()
    """Things in the target beside rights that may allow or deny something: neither compared nor changed."""
    within: tuple[str, ...] = field(default=())
    """The names of what contains all objects, such as the database of the connection, if objects are named without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """The rights and accounts that a target can express."""

    kinds: Mapping[str, tuple[str, ...]]
    """The kinds of the names of each kind of object, from the outermost down."""
    privileges: Mapping[str, tuple[str, ...]] | None
    """The native privileges of each kind of object; None if they are not listed."""
    denials: bool = False
    inherits: bool | None = False
    """True if a privilege on an object counts for everything in it; None: as the policy has it, since the target can do both."""
    links: tuple[tuple[AccountKind, AccountKind], ...] | None = None
    """Pairs of kinds of accounts of which one is granted to the other; None: any."""
    grantees: tuple[AccountKind, ...] = ("login", "group", "role")
    """The kinds of accounts that hold privileges."""
    adds_logins: bool = False
    """True if logins are added when rights name them; elsewhere somebody has to say how they prove who they are."""
    owners: bool = True
    groups_are_roles: bool = True
    """True if groups and roles share the target's roles."""
    one_namespace: bool = False
    """True if logins and roles share their names. Then a login is also the role of its name, and may have members."""
    role_kind: str | None = None
    """The kind of object that a role or a login is, for privileges on it such as granting it to others."""
    knows_names: bool = True
    """True if the target knows its accounts and objects; if not, all that rows name exist."""
    login_hosts: bool = False
    """True if a login has a host beside its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushPlan:
    """The changes that a push makes to a target."""

    create: frozenset[Account] = frozenset()
    """Roles and groups that are not there yet."""
    grant: frozenset[Right] = frozenset()
    revoke: frozenset[Right] = frozenset()
    foreign: frozenset[Right] = frozenset()
    """Rights that the state does not give, that privtab did not grant either, and that stay."""
    record: frozenset[Right] = frozenset()
    """Rights that this push has granted, once it is applied."""
    desired: frozenset[Right] = frozenset()
    """Rights that the state gives."""
    kept: frozenset[Right] = frozenset()
    """All rights that are there afterwards."""

    @property
    def changes(self) -> bool:
        """Return whether the target differs from the state, apart from foreign rights."""
        return bool(self.create or self.grant or self.revoke)


def difference(
    inventory: Inventory, desired: frozenset[Right], accounts: frozenset[Account], *, revoke_foreign: bool = False
) -> PushPlan:
    """Return the changes after which the target holds the desired rights. `accounts`: accounts that must exist.

    Only rights that this push recorded are revoked, unless `revoke_foreign`; a right that was there before stays foreign, even if it was
    desired for a time. A right that another push recorded too is only forgotten.
    """
    existing = inventory.rights
    surplus = existing - desired
    own = surplus & inventory.recorded
    foreign = surplus - inventory.recorded - inventory.inherent
    revoke = own - inventory.recorded_elsewhere
    if revoke_foreign:
        revoke |= foreign
        foreign = frozenset()
    grant = desired - existing
    return PushPlan(
        create=accounts - inventory.accounts,
        grant=grant,
        revoke=revoke,
        foreign=foreign,
        record=((inventory.recorded | inventory.recorded_elsewhere) & desired) | grant,
        desired=desired,
        kept=(existing - revoke) | grant,
    )
