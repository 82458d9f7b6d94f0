"""Enforce, observe, off: what passes, what is said about it, and that no request can choose."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from privtab import AccessDenied, Client, Entity, InvalidRequest, Request, UsageError
from privtab.client import AsyncClient, Mode
from privtab.engines.opa.server import OpaServer

YES = Request(user="alice", action="read", resource=Entity("doc", "s/d"))
NO = Request(user="bob", action="read", resource=Entity("doc", "s/d"))
NOWHERE = "http://127.0.0.1:1"


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "privtab.client" and r.levelno == logging.WARNING]


def test_observing_decides_and_warns_of_what_would_be_denied(opa: OpaServer, caplog: pytest.LogCaptureFixture) -> None:
    with Client(opa.url, mode="observe") as client:
        assert "mode='observe'" in repr(client)
        assert client.status().mode is client.mode is Mode.OBSERVE
        assert any("not enforced" in line for line in warnings(caplog))
        caplog.clear()
        assert client.check(YES)
        assert client.decide(YES).context.get("mode") is None
        assert client.check_many([YES]) == [True]
        assert warnings(caplog) == []

        assert client.check(NO)
        assert "user:bob may not `read` on doc:s/d" in warnings(caplog)[-1]
        decision = client.require(NO)
        assert decision.allowed
        assert decision.context["mode"] == "observe"
        assert decision.missing == (("READ (doc:s/d)",),)
        assert "missing: READ (doc:s/d)" in warnings(caplog)[-1]
        assert client.check_many([YES, NO, NO]) == [True, True, True]
        assert "2 of 3 would be denied" in warnings(caplog)[-1]
        assert [d.allowed for d in client.decide_many([NO, YES])] == [True, True]
        assert client.visible("bob", "list", "doc", ["s/d", "t/d"]) == ["s/d", "t/d"]
        assert client.filter("bob", "read", ["doc:s/d", "doc:t/d"]) == ["doc:s/d", "doc:t/d"]
        assert client.effects(NO) == ()
        assert len(warnings(caplog)) == 7


def test_observing_lets_failures_pass_too(caplog: pytest.LogCaptureFixture) -> None:
    with Client(NOWHERE, system="demo", mode="observe", retries=0, breaker_failures=0) as client:
        assert client.check(NO)
        assert client.require("bob", "read", "doc:s/d").allowed
        assert client.check_many([YES, NO]) == [True, True]
        assert [d.allowed for d in client.decide_many([YES, NO])] == [True, True]
        assert client.visible("bob", "list", "doc", ["s/d"]) == ["s/d"]
        assert client.filter("bob", "read", ["doc:s/d"]) == ["doc:s/d"]
        assert client.check(None, "read", "doc:s/d")  # type: ignore[arg-type]
        assert not client.health()
    found = warnings(caplog)
    assert sum("DecisionUnavailable" in line for line in found) == 6
    assert sum("InvalidRequest: user is None" in line for line in found) == 1


def test_off_requests_no_decision_and_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    with Client(NOWHERE, mode="off") as client:
        assert "mode='off'" in repr(client)
        assert any("mode `off`" in line for line in warnings(caplog))
        caplog.clear()
        assert client.check(NO)
        assert client.decide(NO).context["mode"] == "off"
        assert client.require(NO).allowed
        assert client.effects(NO) == ()
        assert client.check_many(iter([YES, NO])) == [True, True]
        assert [d.allowed for d in client.decide_many([NO])] == [True]
        assert client.visible("bob", "list", "doc", ["s/d"]) == ["s/d"]
        assert client.visible("bob", "list", ["doc:s/d"]) == ["doc:s/d"]
        assert client.filter("bob", "read", [1, 2], key=str) == [1, 2]
        assert caplog.records == []


def test_enforcing_is_usual_and_no_request_changes_it(opa: OpaServer) -> None:
    with Client(opa.url) as client:
        assert client.mode is Mode.ENFORCE
        for context in ({"mode": "off"}, {"mode": "observe"}):
            document = NO.to_json() | {"context": context}
            assert not client.check(Request.from_json(document))
        with pytest.raises(AccessDenied):
            client.require(NO)
        with pytest.raises(InvalidRequest):
            client.check("bob", "read", "doc:s/d", flags=["off"])
        with pytest.raises(AttributeError):
            client.mode = Mode.OFF  # type: ignore[misc]
    with pytest.raises(UsageError, match="mode is `offf`: give one of enforce, observe, off"):
        Client(opa.url, mode="offf")


def test_the_async_client_has_the_same_modes(opa: OpaServer, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with AsyncClient(opa.url, mode="observe") as client:
            assert await client.check(NO)
            assert (await client.status()).mode is client.mode is Mode.OBSERVE
        async with AsyncClient(NOWHERE, mode="off") as client:
            assert await client.check(NO)
            assert await client.check_many([NO]) == [True]

    asyncio.run(main())
    found: Any = warnings(caplog)
    assert any("would be denied: user:bob may not" in line for line in found)
