"""Every decision passes one place: ids, hooks, the log; and nothing secret is said anywhere."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from privtab import AccessDenied, Client, DecisionUnavailable, InvalidRequest
from privtab.client import AsyncClient, Hook, Outcome, Question
from privtab.engines.opa.server import OpaServer

SECRET = "t0p-s3cret"  # noqa: S105  (of a test)


class Seen(Hook):
    def __init__(self) -> None:
        self.begun: list[Question] = []
        self.ended: list[tuple[Question, Outcome, object]] = []

    def before(self, question: Question) -> object:
        self.begun.append(question)
        return len(self.begun)

    def after(self, question: Question, outcome: Outcome, begun: object) -> None:
        self.ended.append((question, outcome, begun))

    def headers(self) -> Mapping[str, str]:
        return {"traceparent": f"00-{len(self.begun):032x}-0000000000000001-01"}


def test_a_hook_is_called_for_every_decision(opa: OpaServer) -> None:
    seen = Seen()
    lines: list[tuple[str, int]] = []
    hooks: list[Any] = [seen, lambda question, outcome: lines.append((question.kind, outcome.allowed))]
    with Client(opa.url, hooks=hooks) as client:
        client.check("alice", "read", "doc:s/d")
        with pytest.raises(AccessDenied) as denied:
            client.require("bob", "read", "doc:s/d")
        client.check_many([denied.value.request])
        client.visible("bob", "list", "doc", ["t/d", "s/d"])
        client.filter("bob", "read", ["doc:t/d"])
        with pytest.raises(InvalidRequest):
            client.check("bob", "raed", "doc:s/d")
        with pytest.raises(InvalidRequest):
            client.check(None, "read", "doc:s/d")  # type: ignore[arg-type]
    assert lines == [
        ("check", 1),
        ("require", 0),
        ("check_many", 0),
        ("visible", 1),
        ("filter", 1),
        ("check", 0),
        ("check", 0),
    ]
    assert [begun for _, _, begun in seen.ended] == [1, 2, 3, 4, 5, 6, 7]
    question, outcome, _ = seen.ended[0]
    assert (question.engine, question.mode, question.count) == ("opa", "enforce", 1)
    assert (outcome.system, outcome.revision, outcome.rule) == ("demo", "p1", "demo/doc/read")
    assert outcome.seconds > 0
    require = seen.ended[1][1]
    assert require.decision is denied.value.decision
    assert require.id == denied.value.decision.id
    assert seen.ended[3][0].count == 2
    assert isinstance(seen.ended[5][1].error, InvalidRequest)
    assert len({outcome.id for _, outcome, _ in seen.ended}) == 7


def test_every_decision_has_an_id_of_its_own(opa: OpaServer) -> None:
    with Client(opa.url) as client:
        ids = [client.decide("alice", "read", "doc:s/d").id for _ in range(3)]
        assert len(set(ids)) == 3
        assert None not in ids
        decision = client.decide("alice", "read", "doc:s/d")
        assert "id" not in decision.to_json()


def test_the_id_is_that_of_the_decision_point_where_it_gives_one(
    raw_server: Callable[..., Any], http_reply: Callable[..., bytes]
) -> None:
    seen = Seen()
    body = '{"decision_id": "abc-1", "result": %s}'
    decision = '{"decision": false, "context": {"rule": "demo/doc/read", "revision": "p7"}}'
    server = raw_server(
        lambda c, path: c.sendall(http_reply(body.replace("%s", "true" if path.endswith("check") else decision)))
    )
    with Client(server.url, hooks=[seen]) as client:
        client.check("alice", "read", "doc:s/d")
        assert client.decide("alice", "read", "doc:s/d").id == "abc-1"
    assert [outcome.id for _, outcome, _ in seen.ended] == ["abc-1", "abc-1"]
    assert seen.ended[1][1].revision == "p7"
    assert all("traceparent: 00-0000000000000000000000000000000" in head for head in server.headers)

    async def main() -> None:
        async with AsyncClient(server.url, hooks=[seen]) as client:
            await asyncio.gather(client.check("alice", "read", "doc:s/d"))

    asyncio.run(main())
    assert seen.ended[2][1].id == "abc-1"


def test_a_hook_that_fails_does_not_touch_the_decision(opa: OpaServer, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Hook):
        def before(self, _question: Question) -> object:
            raise RuntimeError("before")

        def after(self, _question: Question, _outcome: Outcome, _begun: object) -> None:
            raise RuntimeError("after")

        def headers(self) -> Mapping[str, str]:
            raise RuntimeError("headers")

    with Client(opa.url, hooks=[Broken()]) as client:
        assert client.check("alice", "read", "doc:s/d")
        assert not client.check("bob", "read", "doc:s/d")
    assert sum("a hook failed" in record.getMessage() for record in caplog.records) >= 6


def test_the_log_tells_each_decision_and_nothing_secret(
    opa: OpaServer,
    raw_server: Callable[..., Any],
    http_reply: Callable[..., bytes],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    messages: list[str] = []
    with Client(opa.url, token=SECRET, cache_size=5) as client:
        assert client.check("alice", "read", "doc:s/d")
        client.check_many([client_request("bob")])
        with pytest.raises(InvalidRequest):
            client.check("alice", "raed", "doc:s/d")
        messages += [repr(client), str(client.status()), repr(client._transport), repr(client._settings)]
    for status in ("401 Unauthorized", "500 Internal Server Error"):
        server = raw_server(http_reply("no", status))
        with (
            Client(server.url, token=SECRET, retries=1) as client,
            pytest.raises(Exception, match=status[:3]) as caught,
        ):
            client.check("alice", "read", "doc:s/d")
        messages.append(str(caught.value))
    with Client("http://127.0.0.1:1", token=SECRET, retries=0, mode="observe") as client:
        client.check("alice", "read", "doc:s/d")

    async def main() -> None:
        async with AsyncClient(opa.url, token=SECRET) as asking:
            await asking.check("alice", "read", "doc:s/d")
            messages.append(repr(asking))

    asyncio.run(main())
    text = caplog.text + "\n".join(messages)
    assert "user:alice read doc:s/d: allow (engine opa, rule demo/doc/read, revision p1" in text
    assert "check_many 1 request(s): 0 allowed" in text
    assert "policy revision p1, state revision s1" in text
    assert SECRET not in text


def client_request(user: str) -> Any:
    from privtab import Entity, Request

    return Request(user=user, action="read", resource=Entity("doc", "s/d"))


def test_an_open_circuit_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    with Client("http://127.0.0.1:1", system="demo", retries=0, breaker_failures=2, breaker_seconds=30) as client:
        for _ in range(2):
            with pytest.raises(DecisionUnavailable, match="refused"):
                client.check("alice", "read", "doc:s/d")
        with pytest.raises(DecisionUnavailable, match="circuit is open"):
            client.check("alice", "read", "doc:s/d")
        assert client.status().circuit == "open"
        assert "circuit='open'" in repr(client)
        assert not client.health()
    assert any("the circuit is open for 30.0 seconds" in record.getMessage() for record in caplog.records)
