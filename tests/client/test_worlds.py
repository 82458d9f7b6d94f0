"""Generated policies and states: every client, in every way of sending, gives the answers of the reference meaning."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import engine_agreement
import pytest
import requests
import worlds

from privtab import AsyncClient, Client, Request
from privtab.reference.evaluate import Reference

WORLDS = 4
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"chunk_size": 7, "concurrency": 3},
    {"cache_size": 40, "chunk_size": 50},
    {"cache_size": 10_000, "concurrency": 2},
)


@pytest.mark.slow
def test_all_clients_agree_with_the_reference(opa_binary: Path) -> None:
    texts = [worlds.policy(seed, system=f"world{seed}") for seed in range(WORLDS)]
    checked = allowed = 0
    with engine_agreement.serving(texts, opa_binary) as (url, loaded), requests.Session() as session:
        for seed, world in enumerate(loaded):
            state = worlds.state(world.program, seed)
            engine_agreement.put_state(session, url, world.program, state)
            reference = Reference(world.program, state)
            request_list = worlds.requests(world.program, seed, per_rule=3)
            request_list += request_list[::3]
            right = [reference.decide(request) for request in request_list]
            expected = [decision.allowed for decision in right]
            for settings in SETTINGS:
                with Client(url, system=world.program.system, **settings) as client:
                    for _ in range(2):
                        assert client.check_many(request_list) == expected, (seed, settings)
                    assert [client.check(request) for request in request_list[:60]] == expected[:60]
                    explained = client.decide_many(request_list[:60])
                    assert [d.allowed for d in explained] == expected[:60]
                    assert [client.decide(request) for request in request_list[:20]] == explained[:20]
            assert asyncio.run(check_concurrently(url, world.program.system, request_list)) == expected * 2
            checked += len(request_list)
            allowed += sum(expected)
    assert checked > 200
    assert 0.05 < allowed / checked < 0.95


async def check_concurrently(url: str, system: str, requests: list[Request]) -> list[bool]:
    """All at once, coalesced; then all as one call."""
    async with AsyncClient(url, system=system, chunk_size=64, concurrency=2) as client:
        first = await asyncio.gather(*(client.check(request) for request in requests))
        return [*first, *await client.check_many(requests)]
