"""Kept answers: found by the revisions that gave them, bounded, and never used for a grant that is gone."""

from __future__ import annotations

import asyncio
import copy
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from privtab import Client, DecisionUnavailable, Entity, Request
from privtab.client import AsyncClient
from privtab.client._resilience import Cache, request_key
from privtab.engines.opa.server import OpaServer

READ = Request(user="alice", action="read", resource=Entity("doc", "s/d"))
OTHER = Request(user="bob", action="read", resource=Entity("doc", "s/d"))


def revoked(state: dict[str, Any]) -> dict[str, Any]:
    """The demo's state without alice's role."""
    changed = copy.deepcopy(state)
    changed["principals"]["alice"] = ["user:alice"]
    changed["revision"] = "s2"
    return changed


def test_there_is_no_cache_unless_it_is_requested(
    raw_server: Callable[..., Any], http_reply: Callable[..., bytes]
) -> None:
    server = raw_server(http_reply('{"result": true}'))
    with Client(server.url) as client:
        assert all(client.check(READ) for _ in range(3))
    assert sum(line.startswith("POST") for line in server.requests) == 3


@pytest.mark.parametrize("answer", [True, False])
def test_allows_and_denials_are_kept_alike(
    answer: bool, raw_server: Callable[..., Any], http_reply: Callable[..., bytes]
) -> None:
    server = raw_server(http_reply(json.dumps({"result": answer})))
    with Client(server.url, cache_size=10, cache_refresh=60) as client:
        assert [client.check(READ) for _ in range(5)] == [answer] * 5
        assert client.check_many([READ, READ]) == [answer, answer]
    assert sum(line.startswith("POST") for line in server.requests) == 1


def test_changes_of_a_returned_decision_do_not_reach_the_cache(opa: OpaServer) -> None:
    """Whoever takes effects off the list as they carry them out takes them from themselves alone."""
    with Client(opa.url, cache_size=10, cache_refresh=60) as client:
        first = client.decide(OTHER)
        context = copy.deepcopy(first.context)
        for decision in (first, client.decide(OTHER), client.decide_many([OTHER])[0]):
            decision.context["missing"].clear()
            decision.context["effects"].append("grant READ (doc)")
        assert client.decide(OTHER).context == context
        assert client.decide_many([OTHER])[0].context == context


def test_an_error_is_not_kept(raw_server: Callable[..., Any], http_reply: Callable[..., bytes]) -> None:
    answers = [http_reply("", "500 Internal Server Error"), http_reply('{"result": true}')]
    server = raw_server(lambda c, _: c.sendall(answers.pop(0)))
    with Client(server.url, cache_size=10, retries=0) as client:
        with pytest.raises(DecisionUnavailable):
            client.check(READ)
        assert client.check(READ)


@pytest.mark.parametrize("kind", ["Client", "AsyncClient"])
def test_a_revoked_grant_is_seen_though_answers_are_kept_for_an_hour(
    kind: str, demo: Any, opa_binary: Path, tmp_path: Path
) -> None:
    bundles = [demo.policy(tmp_path), demo.write_state(tmp_path)]
    settings: dict[str, Any] = {"cache_size": 100, "cache_ttl": 3600, "cache_refresh": 0.2}

    async def asks(client: Any, request: Request) -> list[bool]:
        """By every method whose answers are kept."""
        answers = [client.check(request), client.check_many([request]), client.decide(request)]
        if kind == "AsyncClient":
            answers = [await answer for answer in answers]
        return [answers[0], answers[1][0], answers[2].allowed]

    async def main(server: OpaServer) -> None:
        client: Any = (Client if kind == "Client" else AsyncClient)(server.url, **settings)
        assert await asks(client, READ) == [True] * 3
        demo.write_state(tmp_path, revoked(demo.state))
        until = time.monotonic() + 20
        while (await asks(client, READ)) != [False] * 3:
            assert time.monotonic() < until, "the revoked grant is still believed"
            await asyncio.sleep(0.05)
        for _ in range(5):
            assert await asks(client, READ) == [False] * 3
        closed = client.close()
        if kind == "AsyncClient":
            await closed

    with OpaServer(bundles, binary=opa_binary) as server:
        asyncio.run(main(server))


def test_kept_answers_are_not_used_when_opa_is_gone(
    raw_server: Callable[..., Any], http_reply: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = raw_server(http_reply('{"result": true}'))
    with Client(server.url, cache_size=10, cache_refresh=0.05, retries=0) as client:
        assert client.check(READ)
        server.program = "gone"
        time.sleep(0.06)
        with pytest.raises(Exception, match=r"program|revision|object"):
            client.check(READ)


def test_kept_answers_are_not_used_beyond_max_staleness(demo: Any, opa_binary: Path, tmp_path: Path) -> None:
    bundles = {"policy": demo.policy(tmp_path), "state": demo.write_state(tmp_path)}
    delays = [f"--set=bundles.{n}.polling.{end}_delay_seconds=3600" for n in bundles for end in ("min", "max")]
    arguments = ["--set=status.prometheus=true", *delays]
    with (
        OpaServer(bundles, binary=opa_binary, extra_args=arguments) as server,
        Client(server.url, cache_size=10, cache_ttl=3600, cache_refresh=3600, max_staleness=1.5) as client,
    ):
        assert client.check(READ)
        assert client.check(READ)
        time.sleep(1.6)
        for ask in (client.check, client.decide, lambda r: client.check_many([r])):
            with pytest.raises(DecisionUnavailable, match="too old"):
                ask(READ)


@pytest.mark.slow
def test_while_opa_hears_from_its_server_staleness_is_no_matter(demo: Any, opa_binary: Path, tmp_path: Path) -> None:
    bundles = [demo.policy(tmp_path), demo.write_state(tmp_path)]
    with (
        OpaServer(bundles, binary=opa_binary, extra_args=["--set=status.prometheus=true"]) as server,
        Client(server.url, max_staleness=4) as client,
    ):
        until = time.monotonic() + 6
        while time.monotonic() < until:
            assert client.check(READ)
            time.sleep(0.25)


# --- the container ---


def test_the_cache_is_bounded_and_forgets_what_was_used_longest_ago() -> None:
    cache = Cache(3, 60)
    for key in "abc":
        cache.put(key, key)
    assert cache.get("a") == "a"
    cache.put("d", "d")
    assert [cache.get(key) for key in "abcd"] == ["a", None, "c", "d"]
    assert len(cache) == 3


def test_the_cache_forgets_after_a_while() -> None:
    now = [0.0]
    cache = Cache(3, 60, clock=lambda: now[0])
    cache.put("a", False)
    now[0] = 59.9
    assert cache.get("a") is False
    now[0] = 60.0
    assert cache.get("a") is None
    assert len(cache) == 0


def test_the_key_of_a_request_covers_everything_that_counts() -> None:
    def make(**more: Any) -> Request:
        return replace(Request(user="u", action="a", resource=Entity("t", "x")), **more)

    requests = [
        make(),
        make(user="v"),
        make(action="b"),
        make(resource=Entity("s", "x")),
        make(resource=Entity("t", "y")),
        make(groups=("g",)),
        make(flags=frozenset({"f"})),
        make(with_={"o": Entity("t", "x")}),
        make(with_={"o": Entity("t", "y")}),
        make(with_={"p": Entity("t", "x")}),
    ]
    assert len({request_key(request) for request in requests}) == len(requests)
    assert request_key(make()) == request_key(make())
    ordered = make(with_={"o": Entity("t", "x"), "p": Entity("t", "y")})
    assert request_key(ordered) == request_key(make(with_={"p": Entity("t", "y"), "o": Entity("t", "x")}))
