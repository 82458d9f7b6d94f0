"""The difference between the rights that are there and those that should be, by who granted them."""

from __future__ import annotations

from dataclasses import dataclass

from privtab.pushdown.rights import Account, Inventory, Right


@dataclass(frozen=True, slots=True, kw_only=True)
class PushPlan:
    """What a push does to a target."""

    create: frozenset[Account] = frozenset()
    """Roles and groups that are not there yet."""
    grant: frozenset[Right] = frozenset()
    revoke: frozenset[Right] = frozenset()
    foreign: frozenset[Right] = frozenset()
    """Rights that the state does not give, that privtab did not grant either, and that stay."""
    record: frozenset[Right] = frozenset()
    """What this push has granted, once it is applied."""
    desired: frozenset[Right] = frozenset()
    """What the state gives."""
    kept: frozenset[Right] = frozenset()
    """All rights that are there afterwards."""

    @property
    def changes(self) -> bool:
        """Whether the target differs from the state, apart from foreign rights."""
        return bool(self.create or self.grant or self.revoke)


def difference(
    inventory: Inventory, desired: frozenset[Right], accounts: frozenset[Account], *, revoke_foreign: bool = False
) -> PushPlan:
    """What makes the target hold the desired rights. `accounts`: those that must be there.

    Only rights that this push recorded are revoked, unless `revoke_foreign`; one that was there before stays foreign, even if it was
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
