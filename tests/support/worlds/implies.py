"""Privileges that imply others: one step, in chains, in circles and by a set."""

from __future__ import annotations

import random
from collections.abc import Sequence


def implied(rnd: random.Random | None, privileges: Sequence[str]) -> dict[str, str]:
    """What to write after the types of some privileges."""
    if rnd is None:
        return {}
    found = {}
    for privilege in privileges:
        if rnd.random() < 0.6:
            others = [p for p in (*privileges, "BOTH", "OLD_READ") if privilege not in (p, p.removeprefix("OLD_"))]
            listed = rnd.sample(others, k=rnd.randint(1, 2))
            found[privilege] = f", implies: [{', '.join(listed)}]"
    return found
