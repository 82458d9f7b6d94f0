"""The asynchronous client: the same answers, and checks that begin together in one exchange."""

from __future__ import annotations

import asyncio
import json
import pickle
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from privtab import AccessDenied, Client, DecisionUnavailable, Entity, InvalidRequest, PolicyError, Request, UsageError
from privtab.client import AsyncClient, HttpTransport, Revision
from privtab.client._opa import OpaFlows
from privtab.client.aio import AsyncHttpTransport
from privtab.engines.opa.server import OpaServer

READ = Request(user="alice", action="read", resource=Entity("doc", "s/d"))


class Recorder:
    """A transport that remembers what passed through it."""

    def __init__(self, url: str) -> None:
        self.inner = AsyncHttpTransport(HttpTransport(url))
        self.sent: list[tuple[str, Any]] = []

    async def post(self, path: str, body: bytes, limits: Any) -> bytes:
        self.sent.append((path.rpartition("/")[2], json.loads(body)["input"]))
        return await self.inner.post(path, body, limits)

    async def get(self, path: str, limits: Any) -> bytes:
        return await self.inner.get(path, limits)

    async def close(self) -> None:
        await self.inner.close()


def within(opa: OpaServer, work: Callable[[AsyncClient, Recorder], Awaitable[Any]], **settings: Any) -> Any:
    """What `work` gives, with a client of the demo."""

    async def main() -> Any:
        recorder = Recorder(opa.url)
        async with AsyncClient(opa.url, transport=recorder, **settings) as client:
            return await work(client, recorder)

    return asyncio.run(main())


@pytest.mark.parametrize("window", [0.0, 0.01, "off"])
def test_every_way_of_asking_gives_the_right_answer(opa: OpaServer, decision_bundle: Any, window: Any) -> None:
    async def work(client: AsyncClient, _: Recorder) -> None:
        requests = [request for request, _ in decision_bundle.cases]
        right = [expected for _, expected in decision_bundle.cases]
        assert list(await asyncio.gather(*(client.check(request) for request in requests))) == right
        assert await client.check_many(iter(requests)) == right
        with Client(opa.url) as other:
            assert await client.decide_many(requests) == other.decide_many(requests)
        for request, expected in decision_bundle.cases:
            decision = await client.explain(request)
            assert decision.allowed is expected
            if expected:
                assert await client.effects(request) == decision.effects
            else:
                with pytest.raises(AccessDenied):
                    await client.require(request)
        assert await client.visible("bob", "list", "doc", ["t/d", "s/a", "t/d"]) == ["t/d", "t/d"]
        items = [{"id": "s/a"}, {"id": "t/d"}]
        assert await client.filter("bob", "read", items, key=lambda item: ("doc", item["id"])) == items[1:]
        assert await client.system() == "demo"
        assert await client.health()
        assert await client.revision() == Revision(policy="p1", state="s1")
        assert (await client.status()).circuit == "closed"

    within(opa, work, batch_window=window, chunk_size=5, concurrency=3)


def test_checks_of_one_turn_go_together_and_a_lone_one_alone(opa: OpaServer, decision_bundle: Any) -> None:
    async def work(client: AsyncClient, recorder: Recorder) -> None:
        assert await client.check(READ)
        assert [path for path, _ in recorder.sent] == ["check"]
        recorder.sent.clear()
        cases = [*decision_bundle.cases, *decision_bundle.cases]
        answers = await asyncio.gather(*(client.check(request) for request, _ in cases))
        assert answers == [expected for _, expected in cases]
        (sent,) = recorder.sent
        assert sent[0] == "decisions"
        assert len(sent[1]["requests"]) == len(decision_bundle.cases)  # each once

    within(opa, work)


def test_many_of_one_kind_take_the_faster_form(opa: OpaServer) -> None:
    async def work(client: AsyncClient, recorder: Recorder) -> None:
        await client.check(READ)
        recorder.sent.clear()
        answers = await asyncio.gather(*(client.check("alice", "read", ("doc", f"s/{at}")) for at in range(50)))
        assert answers == [True] * 50
        (sent,) = recorder.sent
        assert len(sent[1]["items"]) == 50

    within(opa, work)


def test_off_means_each_on_its_own(opa: OpaServer) -> None:
    async def work(client: AsyncClient, recorder: Recorder) -> None:
        await asyncio.gather(*(client.check("alice", "read", ("doc", f"s/{at}")) for at in range(5)))
        assert [path for path, _ in recorder.sent] == ["check"] * 5

    within(opa, work, batch_window="off")


def test_an_invalid_check_fails_alone_and_is_not_sent(opa: OpaServer) -> None:
    async def work(client: AsyncClient, recorder: Recorder) -> None:
        results = await asyncio.gather(
            client.check(READ), client.check("alice", "raed", "doc:s/d"), client.check(READ), return_exceptions=True
        )
        assert results[0] is results[2] is True
        assert isinstance(results[1], InvalidRequest)
        assert "raed" not in json.dumps(recorder.sent)

    within(opa, work)


def test_a_request_that_opa_rejects_fails_alone(
    raw_server: Callable[..., Any], http_reply: Callable[..., bytes]
) -> None:
    def answer(connection: Any, path: str) -> None:
        connection.sendall(http_reply("", "400 Bad") if path.endswith("decisions") else http_reply('{"result": true}'))

    async def main() -> None:
        async with AsyncClient(raw_server(answer).url) as client:
            assert (
                await asyncio.gather(*(client.check("alice", "read", ("doc", f"s/{at}")) for at in range(3)))
                == [True] * 3
            )

    asyncio.run(main())


def test_a_name_that_cannot_be_sent_fails_alone(
    raw_server: Callable[..., Any], http_reply: Callable[..., bytes]
) -> None:
    async def main() -> None:
        async with AsyncClient(raw_server(http_reply('{"result": true}')).url) as client:
            good, bad = await asyncio.gather(
                client.check(READ), client.check("\udcff", "read", "doc:s/d"), return_exceptions=True
            )
            assert good is True
            assert isinstance(bad, InvalidRequest)

    asyncio.run(main())


def test_an_operation_that_is_gone_when_its_turn_comes_fails_alone(opa: OpaServer) -> None:
    """Another caller may find newer names between the check of a request's names and its sending."""

    async def work(client: AsyncClient, _: Recorder) -> None:
        assert await client.check(READ)
        flows = client._client_flows.engine
        assert isinstance(flows, OpaFlows)
        known = flows._active
        assert known is not None
        rest = {name: shape for name, shape in known.vocabulary.operations["doc"].items() if name != "copy"}
        older = replace(known.vocabulary, operations={**known.vocabulary.operations, "doc": rest})
        copying = client.check("alice", "copy", "doc:s/d", with_={"source": "doc:s/e"})
        tasks = [asyncio.create_task(copying), asyncio.create_task(client.check(READ))]
        asyncio.get_running_loop().call_soon(setattr, flows, "_active", replace(known, vocabulary=older))
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert results[1] is True
        assert not isinstance(results[0], KeyError)

    within(opa, work)


def test_each_caller_gets_an_error_of_its_own(raw_server: Callable[..., Any], http_reply: Callable[..., bytes]) -> None:
    async def main() -> None:
        server = raw_server(http_reply("", "500 Internal Server Error"))
        async with AsyncClient(server.url, retries=0) as client:
            results = await asyncio.gather(
                *(client.check("alice", "read", ("doc", f"s/{at}")) for at in range(3)), return_exceptions=True
            )
            assert all(isinstance(error, DecisionUnavailable) for error in results)
            assert len({id(error) for error in results}) == 3
            with pytest.raises(DecisionUnavailable):
                await client.check(READ)

    asyncio.run(main())


def test_a_caller_that_gives_up_leaves_the_others_alone(opa: OpaServer) -> None:
    async def work(client: AsyncClient, _: Recorder) -> None:
        await client.check(READ)
        tasks = [asyncio.create_task(client.check(READ)) for _ in range(3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert results[0] is results[2] is True
        assert isinstance(results[1], asyncio.CancelledError)

    within(opa, work)


def test_names_are_fetched_once_for_all_who_begin(
    raw_server: Callable[..., Any], http_reply: Callable[..., bytes]
) -> None:
    server = raw_server(http_reply('{"result": true}'))

    async def main() -> None:
        async with AsyncClient(server.url, batch_window="off") as client:
            assert await asyncio.gather(*(client.check(READ) for _ in range(20))) == [True] * 20

    asyncio.run(main())
    assert sum(line.startswith("GET") for line in server.requests) == 2


def test_a_client_may_be_used_in_one_loop_after_another(opa: OpaServer) -> None:
    client = AsyncClient(opa.url)

    async def twice() -> list[bool]:
        return list(await asyncio.gather(client.check(READ), client.check("bob", "read", "doc:s/d")))

    assert asyncio.run(twice()) == [True, False]
    assert asyncio.run(twice()) == [True, False]
    asyncio.run(client.close())


def test_cancelling_at_any_moment_leaves_a_client_that_works(opa: OpaServer) -> None:
    async def work(client: AsyncClient, _: Recorder) -> None:
        for turns in range(40):
            task = asyncio.create_task(client.check(READ) if turns % 2 else client.check_many([READ]))
            for _turn in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert await client.check(READ)
        assert await client.check_many([READ]) == [True]

    within(opa, work)


def test_the_body_is_bounded_and_no_redirect_is_followed(
    raw_server: Callable[..., Any], http_reply: Callable[..., bytes]
) -> None:
    other = raw_server(http_reply('{"result": true}'))
    answers = [http_reply("[" + " " * 300_000), http_reply("", "307 Temporary Redirect", f"Location: {other.url}/")]
    server = raw_server(lambda c, _: c.sendall(answers.pop(0)))

    async def main() -> None:
        async with AsyncClient(server.url, max_body=100_000) as client:
            with pytest.raises(PolicyError, match="more than 100000 bytes"):
                await client.check(READ)
            with pytest.raises(PolicyError, match="redirect"):
                await client.check(READ)

    asyncio.run(main())
    assert other.connections == 0


def test_settings_are_checked_and_the_token_is_sent(
    raw_server: Callable[..., Any], http_reply: Callable[..., bytes]
) -> None:
    with pytest.raises(UsageError):
        AsyncClient("ftp://opa")
    with pytest.raises(UsageError):
        AsyncClient(timeout=0)
    server = raw_server(http_reply('{"result": true}'))

    async def main() -> None:
        async with AsyncClient(server.url, token="t0ken") as client:  # noqa: S106  (of a test)
            assert "t0ken" not in repr(client)
            assert await client.check(READ)
            with pytest.raises(TypeError, match="cannot be pickled"):
                pickle.dumps(client)

    asyncio.run(main())
    assert all("authorization: bearer t0ken" in head.lower() for head in server.headers)
