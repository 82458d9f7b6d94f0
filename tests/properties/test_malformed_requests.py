"""OPA alone, without the client's checks, never allows a request that is none."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import requests as http
import worlds
from engine_agreement import ask, put_state, serving
from malformed_requests import broken
from row_cases import Rows, cases

from privtab.errors import InvalidRequest
from privtab.reference.evaluate import Reference
from privtab.request import Request


@pytest.mark.slow
def test_opa_alone_denies_what_is_no_request(opa_binary: Path) -> None:
    rnd = random.Random(11)
    refused = allowed = 0
    with serving([worlds.policy(seed, f"odd{seed}") for seed in range(8)], opa_binary) as (url, loaded):
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
    assert refused > 500
    assert allowed > 30
