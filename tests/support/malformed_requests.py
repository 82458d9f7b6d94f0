"""Malformed requests."""

from __future__ import annotations

import copy
import random
from typing import Any

ODD: tuple[Any, ...] = (
    None, True, False, 0, 5, "", "/", "x", "x/", "/x", "x//y", "%41", "x/%2f", "x/%", "..", [], ["x"], {}, {"type": "user"},
    {"id": "x"}, "top", "user", "op0", "\u0000", "a" * 300, "*", "?", "%", "%2A", "x/*", "x/%2A", "x/a*",
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    if isinstance(value, dict):
        for key, inner in value.items():
            found += places(inner, (*path, key))
    return found


def broken(request: dict[str, Any], rnd: random.Random) -> dict[str, Any]:
    """A copy with one or two values removed or replaced by odd ones, or with odd values added."""
    made = copy.deepcopy(request)
    if rnd.random() < 0.3:
        odd = rnd.choice(ODD)
        match rnd.randrange(4):
            case 0:
                made["context"] = odd
            case 1:
                made["subject"]["properties"] = odd
            case 2:
                made["subject"]["properties"] = {"groups": rnd.choice([odd, [odd], {"0": "hr"}, {"hr": "hr"}])}
            case _:
                context = made.setdefault("context", {})
                context["with"] = rnd.choice([odd, context.get("with", {}) | {rnd.choice(["other", ""]): odd}])
        return made
    for _ in range(rnd.randint(1, 2)):
        found = places(made)
        if not found:
            return made
        *above, last = rnd.choice(found)
        at = made
        for key in above:
            at = at[key]
        change = rnd.random()
        if change < 0.25:
            del at[last]
        elif change < 0.4 and isinstance(at[last], str):
            at[last] += rnd.choice(["/extra", "/", " ", "%", "%%2F25", "/*", "%2A", "*"])
        else:
            at[last] = rnd.choice(ODD)
    return made
