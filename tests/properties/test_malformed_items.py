"""OPA, asked directly, refuses a spoilt item beside a good one as it does among many: sound batches take a quicker path."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests as http
import worlds
from agreement import put_state, serving
from malformed import ODD
from rowcases import Rows, cases

from privtab.reference.evaluate import Reference


def spoilt(user: str, keys: list[str], others: list[list[str]]) -> Iterator[Any]:
    """Items that are like a good one but for one thing."""
    for at, key in enumerate(keys):
        type_, _, path = key.partition(":")
        names = path.split("/")
        other_keys = {other[at] for other in others if len(other) == len(keys)} - {key}
        odd_keys = [f"{key}{end}" for end in ("/x", "/", "%", "%41", "%%2F25", "//", "\n")]
        odd_keys += [f"x{key}", f"{type_}:", path, f"{type_}:{'/'.join([*names[:-1], 'other'])}"]
        for odd in (*other_keys, *odd_keys, *ODD):
            yield [user, [*keys[:at], odd, *keys[at + 1 :]]]
        yield [user, [*keys[:at], *keys[at + 1 :]]]
        yield [user, [*keys[:at], key, *keys[at:]]]
        yield [user, [*keys[:at], "//".join(keys[at : at + 2]), *keys[at + 2 :]]]
        yield [user, ["//".join(keys[: at + 1]), *keys[at + 1 :], *keys[-1:]]]
    yield from ([odd, keys] for odd in (*ODD, "*", "??", "%"))
    yield from ([user], [user, keys, user], [keys, user], {"0": user, "1": keys})
    yield from ([user, {str(n): key for n, key in enumerate(keys)}], [user, "//".join(keys)])


@pytest.mark.slow
def test_opa_refuses_one_spoilt_item(opa_binary: Path) -> None:
    rnd = random.Random(20)
    refused = 0
    with serving([worlds.policy(seed, f"item{seed}") for seed in range(2)], opa_binary) as (url, loaded):
        for world in loaded:
            rows = Rows()
            made = [case.request for case in cases(world.program, rows) if case.allowed]
            made = [request for request in made if not (request.with_ or request.groups or request.flags)]
            state = rows.state()
            with http.Session() as session:
                put_state(session, url, world.program, state)
                at = f"{url}/v1/data/privtab/{world.program.system}/decisions"
                keys_of = Reference(world.program, state).vocabulary.keys
                others = [keys_of(request.resource) for request in made]
                for request in rnd.sample(made, k=min(len(made), 3)):
                    keys = keys_of(request.resource)
                    good = [request.user, keys]
                    body = {"action": {"name": request.action}, "resource": {"type": request.resource.type}}

                    def ask(*items: Any, body: Any = body, at: str = at, session: http.Session = session) -> Any:
                        found = session.post(at, json={"input": {**body, "items": items}}, timeout=30)
                        return found.json().get("result")

                    assert ask(good, good) == [True, True]
                    bad = list(spoilt(request.user, keys, others))
                    together = ask(good, *bad)
                    for item, answer in zip(bad, together[1:], strict=True):
                        assert ask(good, item) == [True, answer], item
                        assert ask(item) == [answer], item
                        refused += not answer
    assert refused > 150
