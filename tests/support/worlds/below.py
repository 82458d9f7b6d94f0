"""Conditions on what is held on an entity or below it."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from worlds.policies import Draft


def target(draft: Draft, type_: str, name: str, privileges: Collection[str]) -> str:
    """The target of a term, some with `or below`: `name`, an entity of a type; `privileges`: those of the term, none for ownership."""
    rnd = draft.generator("below")
    if rnd is None or rnd.random() < 0.6:
        return name
    nests = draft.generator("nested") is not None and type_ == "mid"
    under = {other for other in draft.parents if (other != type_ or nests) and type_ in draft.chain(other)}
    can_be_granted = all(under.intersection(draft.on[privilege]) for privilege in privileges)
    # Privileges that roles have by default cannot be asked for below.
    return f"{name} or below" if under and can_be_granted and not (privileges and draft.roles) else name
