"""Conditions on what is held on an entity or below it."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from worlds.policies import Draft


def target(draft: Draft, name: str, privileges: Collection[str]) -> str:
    """The target of a term, some with `or below`; `privileges`: those of the term, none for ownership."""
    rnd = draft.generator("below")
    if rnd is None or rnd.random() < 0.6:
        return name
    under = {type_ for type_ in draft.parents if type_ != name and name in draft.chain(type_)}
    can_be_granted = all(under.intersection(draft.on[privilege]) for privilege in privileges)
    # Privileges that roles have by default cannot be asked for below.
    return f"{name} or below" if under and can_be_granted and not (privileges and draft.roles) else name
