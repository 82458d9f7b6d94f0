"""OPA alone, without the client's checks, never allows a request that is none."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import pytest
import requests as http
import worlds
from agreement import ask, put_state, serving
from rowcases import Rows, cases

from privtab.errors import InvalidRequest
from privtab.ir.evaluate import Reference
from privtab.request import Request

ODD: tuple[Any, ...] = (
    None, True, False, 0, 5, "", "/", "x", "x/", "/x", "x//y", "%41", "x/%2f", "x/%", "..", [], ["x"], {}, {"type": "user"},
    {"id": "x"}, "top", "user", "op0", "\u0000", "a" * 300,
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    if isinstance(value, dict):
        for key, inner in value.items():
            found += places(inner, (*path, key))
    return found


def broken(request: dict[str, Any], rnd: random.Random) -> dict[str, Any]:
    """A copy with one or two places left out or replaced by something odd."""
    made = copy.deepcopy(request)
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
            at[last] += rnd.choice(["/extra", "/", " ", "%", "%%2F25"])
        else:
            at[last] = rnd.choice(ODD)
    return made


@pytest.mark.slow
def test_opa_alone_denies_what_is_no_request(opa_binary: Path) -> None:
    rnd = random.Random(11)
    refused = allowed = 0
    with serving([worlds.policy(seed, f"odd{seed}") for seed in range(8)], opa_binary) as (url, loaded):
        session = http.Session()
        for world in loaded:
            rows = Rows()
            made = [case for case in cases(world.program, rows) if case.allowed]
            made = rnd.sample(made, k=min(len(made), 60))
            state = rows.state()
            put_state(session, url, world.program, state)
            reference = Reference(world.program, state)
            asked = [broken(case.request.to_json(), rnd) for case in made for _ in range(4)]
            plain = ask(session, url, world.program.system, "decisions", {"requests": asked})
            explained = ask(session, url, world.program.system, "explained", {"requests": asked})
            assert [answer["decision"] for answer in explained] == plain
            for request, answer in zip(asked, plain, strict=True):
                try:
                    expected = reference.decide(Request.from_json(request)).allowed
                except InvalidRequest:
                    expected = False
                    refused += 1
                    # What the row does not look at may be anything: OPA reads no more of a request than it needs.
                    if answer and only_ignored_parts_are_wrong(request, reference):
                        continue
                assert answer == expected, request
                allowed += answer
    assert refused > 500
    assert allowed > 30


def only_ignored_parts_are_wrong(request: dict[str, Any], reference: Reference) -> bool:
    """Whether the request is sound without the brought groups and without objects that its row does not know."""
    sound = copy.deepcopy(request)
    sound["subject"].pop("properties", None)
    context = sound.get("context")
    shape = reference.vocabulary.check_operation(sound["resource"]["type"], sound["action"]["name"])
    if not isinstance(context, dict):
        sound.pop("context", None)
    elif isinstance(context.get("with"), dict):
        context["with"] = {name: o for name, o in context["with"].items() if name in shape.withs}
    else:
        context.pop("with", None)
    try:
        return reference.decide(Request.from_json(sound)).allowed
    except InvalidRequest:
        return False
