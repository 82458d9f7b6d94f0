"""OPA, asked directly, refuses a spoilt item beside a good one as it does among many: sound batches take a quicker path."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests as http
import worlds
from engine_agreement import put_state, serving
from malformed_requests import ODD
from row_cases import Rows, cases

from privtab.base.request import Entity
from privtab.reference.evaluate import Reference
from privtab.state.nodes import Grant, State

OPEN = """
privtab: 1
system: open
version: "1"
entities: {top: {low: , user: }}
privileges: [READ]
semantics: {inheritance: down, groups: [state, request]}
tables:
  low: {look: anyone, touch: READ (low) when strict, read: READ (low), ask: can look (low)}
  user: {get: self or READ (user)}
"""
CLOSED = OPEN.replace("system: open", "system: closed").replace("groups: [state, request]", "groups: [state]")
NAMELESS: tuple[Any, ...] = (
    "",
    "*",
    "??",
    "%",
    "*?%",
    "ann\n",
    "\x85*",
    "a\u2028b",
    5,
    None,
    True,
    [],
    ["ann"],
    {},
    {"ann": True},
)


def spoilt(user: str, keys: list[str], others: list[list[str]]) -> Iterator[Any]:
    """Items that are like a good one but for one thing."""
    for at, key in enumerate(keys):
        type_, _, path = key.partition(":")
        names = path.split("/")
        other_keys = {other[at] for other in others if len(other) == len(keys)} - {key}
        odd_keys = [f"{key}{end}" for end in ("/x", "/", "%", "%41", "%%2F25", "//", "\n", "\x85", "\u2029")]
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
def test_opa_refuses_one_malformed_item(opa_binary: Path) -> None:
    rnd = random.Random(20)
    refused = 0
    with serving([worlds.policy(seed, f"item{seed}") for seed in range(2)], opa_binary) as (url, loaded):
        for world in loaded:
            rows = Rows()
            requests = [case.request for case in cases(world.program, rows) if case.allowed]
            requests = [request for request in requests if not (request.with_ or request.groups or request.flags)]
            state = rows.state()
            with http.Session() as session:
                put_state(session, url, world.program, state)
                at = f"{url}/v1/data/privtab/{world.program.system}/decisions"
                keys_of = Reference(world.program, state).vocabulary.keys
                others = [keys_of(request.resource) for request in requests]
                for request in rnd.sample(requests, k=min(len(requests), 3)):
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


@pytest.mark.slow
def test_rows_that_hold_without_holdings_let_no_nameless_user_pass(opa_binary: Path) -> None:
    with serving([OPEN, CLOSED], opa_binary) as (url, loaded), http.Session() as session:
        for world in loaded:
            system = world.program.system
            grant = Grant(grantee="group:staff", effect="allow", privilege="READ", entity=Entity("top", "t"))
            state = State(memberships=(("ann", "staff"),), grants=(grant,))
            put_state(session, url, world.program, state)
            low = ["top:t", "low:t/x"]
            batches = [("low", operation, low) for operation in ("look", "touch", "read", "ask")]
            batches += [
                ("user", "get", ["top:t", f"user:t/{name}"]) for name in ("ann", "%2A", "%25", "%3F%3F", "*", "??")
            ]
            for type_, operation, keys in batches:
                for groups in ([], ["staff"]) if system == "open" else ([],):
                    body = {
                        "action": {"name": operation},
                        "resource": {"type": type_},
                        "subject": {"properties": {"groups": groups}},
                        "items": [["ann", keys], *([user, keys] for user in NAMELESS)],
                    }
                    found = session.post(f"{url}/v1/data/privtab/{system}/decisions", json={"input": body}, timeout=30)
                    # A bare wildcard is no name of an entity, for nobody.
                    named = not keys[-1].endswith(("*", "??"))
                    assert found.json()["result"] == [named, *[False] * len(NAMELESS)], (operation, keys, groups)
                    for user in NAMELESS:
                        listing = {
                            **body,
                            "subject": {"type": "user", "id": user, "properties": {"groups": groups}},
                            "items": [keys, keys],
                        }
                        shown = session.post(
                            f"{url}/v1/data/privtab/{system}/visible", json={"input": listing}, timeout=30
                        )
                        assert not shown.json().get("result"), (operation, keys, user)
