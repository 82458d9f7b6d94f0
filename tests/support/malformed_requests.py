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
    document = copy.deepcopy(request)
    if rnd.random() < 0.3:
        bad_value = rnd.choice(ODD)
        match rnd.randrange(4):
            case 0:
                document["context"] = bad_value
            case 1:
                document["subject"]["properties"] = bad_value
            case 2:
                document["subject"]["properties"] = {
                    "groups": rnd.choice([bad_value, [bad_value], {"0": "hr"}, {"hr": "hr"}])
                }
            case _:
                context = document.setdefault("context", {})
                context["with"] = rnd.choice(
                    [bad_value, context.get("with", {}) | {rnd.choice(["other", ""]): bad_value}]
                )
        return document
    for _ in range(rnd.randint(1, 2)):
        found = places(document)
        if not found:
            return document
        *above, last = rnd.choice(found)
        part = document
        for key in above:
            part = part[key]
        change = rnd.random()
        if change < 0.25:
            del part[last]
        elif change < 0.4 and isinstance(part[last], str):
            part[last] += rnd.choice(
                ["/extra", "/", " ", "%", "%%2F25", "/*", "%2A", "*", "\n", "\x85", "\u2028", "\uffff"]
            )
        else:
            part[last] = rnd.choice(ODD)
    return document
