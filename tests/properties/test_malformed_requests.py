"""OPA alone, without the client's checks, never allows a request that is none."""

from __future__ import annotations

import random
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import requests as http
import worlds
from engine_agreement import ask, put_state, serving
from malformed_requests import broken
from row_cases import Rows, cases
from unusual_names import UNUSABLE
from wasm_engine import WasmEngine

from privtab.base.errors import InvalidRequest
from privtab.base.names import is_unicode
from privtab.base.request import Entity, Request
from privtab.base.vocabulary import Vocabulary
from privtab.reference.evaluate import Reference
from privtab.state.nodes import State

OPEN = """
privtab: 1
system: open
version: "1"
entities: {top: {low: }}
privileges: [READ]
semantics: {inheritance: down, deny: overrides, groups: [state, request], active_roles: request}
tables: {low: {look: anyone, move: {with: {to: low}, requires: anyone}}}
"""
USABLE = (" ", "~", "\xa0", "\u2027", "\u202a", "\ufffd", "\ufff0", "\U00010000", "\U0010ffff", "%25", '"', "\\", "a*")
"""Names that are close to those which no name may be."""


def everywhere(name: str) -> list[Request]:
    """Requests that are allowed if every name is one, each with this name in another place."""
    low = Entity("low", "t/x")
    good = Request(user="ann", action="look", resource=low)
    odd = f"a{name}b"
    return [
        replace(good, user=odd),
        replace(good, resource=Entity("low", f"t/{odd}")),
        replace(good, resource=Entity("low", f"{odd}/x")),
        replace(good, groups=("hr", odd)),
        replace(good, action="move", with_={"to": Entity("low", f"t/{odd}")}),
    ]


@pytest.mark.slow
def test_every_engine_takes_the_same_characters_for_parts_of_names(opa_binary: Path) -> None:
    names = [*USABLE, *filter(is_unicode, UNUSABLE)]
    requests = [request for name in names for request in everywhere(name)]
    expected = [name in USABLE for name in names for _ in everywhere(name)]
    narrowed = [Request(user="ann", action="look", resource=Entity("low", "t/x"), active_roles=(n,)) for n in names]
    with serving([OPEN], opa_binary) as (url, [world]), http.Session() as session:
        put_state(session, url, world.program, State())
        sent = [request.to_json() for request in requests]
        assert ask(session, url, "open", "decisions", {"requests": sent}) == expected
        answers = [session.post(f"{url}/v1/data/privtab/open/check", json={"input": one}).json() for one in sent]
        assert [answer["result"] for answer in answers] == expected
        items = [[f"a{name}b", ["top:t", f"low:t/{name}"]] for name in names]
        body = {"action": {"name": "look"}, "resource": {"type": "low"}, "items": items}
        assert ask(session, url, "open", "decisions", body) == [name in USABLE for name in names]
        subject = {"type": "user", "id": "ann"}
        shown = ask(session, url, "open", "visible", {**body, "subject": subject, "items": [keys for _, keys in items]})
        assert shown == list(range(len(USABLE)))
        assert not any(ask(session, url, "open", "decisions", {"requests": [r.to_json() for r in narrowed]}))
        document = world.artifacts.program
        assert WasmEngine(world.program, State(), opa_binary).allow_many(requests) == expected
    checked = Vocabulary.from_program(document)
    for request, good in zip([*requests, *narrowed], [*expected, *(name in USABLE for name in names)], strict=True):
        with nullcontext() if good else pytest.raises(InvalidRequest, match="cannot contain the character U"):
            checked.check(request)


@pytest.mark.slow
def test_opa_alone_denies_what_is_no_request(opa_binary: Path) -> None:
    rnd = random.Random(11)
    refused = allowed = 0
    with serving([worlds.policy(seed, f"odd{seed}") for seed in range(4)], opa_binary) as (url, loaded):
        session = http.Session()
        for world in loaded:
            rows = Rows()
            chosen = [case for case in cases(world.program, rows) if case.allowed]
            chosen = rnd.sample(chosen, k=min(len(chosen), 60))
            state = rows.state()
            put_state(session, url, world.program, state)
            reference = Reference(world.program, state)
            requests = [broken(case.request.to_json(), rnd) for case in chosen for _ in range(4)]
            plain = ask(session, url, world.program.system, "decisions", {"requests": requests})
            explained = ask(session, url, world.program.system, "explained", {"requests": requests})
            assert [answer["decision"] for answer in explained] == plain
            for request, answer in zip(requests, plain, strict=True):
                try:
                    expected = reference.decide(Request.from_json(request)).allowed
                except InvalidRequest:
                    expected = False
                    refused += 1
                assert answer == expected, request
                allowed += answer
    assert refused > 250
    assert allowed > 30
