"""A real OPA that is killed in the middle of a batch and comes back two seconds later."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import failing_servers
import pytest
from failing_servers import CuttableProxy, free_port, opa_process, wait_for, write_bundles

from privtab import Client, DecisionUnavailable, Entity, Request
from privtab.client import AsyncClient

COUNT = 400
ASKED = [
    Request(user=user, action="read", resource=Entity("dataset", f"web/{name}"))
    for at in range(COUNT // 2)
    for user, name in (("ann", f"d{at}"), ("nobody", f"d{at}"))
]
RIGHT = [True, False] * (COUNT // 2)


class Outage:
    """An OPA that ends when it has been asked so often, and is there again after a while."""

    def __init__(self, opa: Path, folder: Path, after: int, seconds: float) -> None:
        self._opa, self._folder, self._after, self._seconds = opa, folder, after, seconds
        self._bundles = write_bundles(folder)
        self._stack = ExitStack()
        self.port = free_port()
        self.ended_at: float | None = None

    def start(self) -> None:
        self.process = self._stack.enter_context(
            opa_process(
                self._opa, self._folder / "opa.log", f"--addr=127.0.0.1:{self.port}", "--bundle", *self._bundles
            )
        )

    def on_request(self, number: int) -> None:
        if number == self._after:
            self.process.kill()
            self.process.wait()
            self.ended_at = time.monotonic()
            self.back = threading.Timer(self._seconds, self.start)
            self.back.start()

    def stop(self) -> None:
        if self.ended_at is not None:
            self.back.join()
        self._stack.close()


@pytest.fixture
def outage(tmp_path: Path, opa_binary: Path) -> Iterator[Callable[..., tuple[Outage, str]]]:
    with ExitStack() as stack:

        def make(after: int, seconds: float = 2.0) -> tuple[Outage, str]:
            outage = Outage(opa_binary, tmp_path, after, seconds)
            stack.callback(outage.stop)
            outage.start()
            with Client(f"http://127.0.0.1:{outage.port}") as probe:
                wait_for(probe.health)
            cable = stack.enter_context(CuttableProxy(outage.port, outage.on_request))
            return outage, cable.url

        yield make


@pytest.mark.slow
def test_a_batch_that_is_cut_is_an_error_and_the_client_finds_back(outage: Any) -> None:
    broken, url = outage(after=8)
    with Client(url, system=failing_servers.SYSTEM, chunk_size=40, timeout=1, total=1) as client:
        started = time.monotonic()
        with pytest.raises(DecisionUnavailable):
            client.check_many(ASKED)
        assert time.monotonic() - started < 3
        assert broken.ended_at is not None
        refusals = 0
        until = time.monotonic() + 15
        while True:
            assert time.monotonic() < until, "the client never found back"
            try:
                assert client.check_many(ASKED) == RIGHT
                break
            except DecisionUnavailable:
                refusals += 1
                time.sleep(0.05)
        assert refusals > 1
        assert time.monotonic() - broken.ended_at > 1.9
        assert client.status().circuit == "closed"


@pytest.mark.slow
def test_a_batch_with_enough_time_and_retries_outlasts_the_outage(outage: Any) -> None:
    broken, url = outage(after=6)
    settings: dict[str, Any] = {"timeout": 2, "total": 20, "retries": 100, "breaker_failures": 0, "concurrency": 3}
    with Client(url, system=failing_servers.SYSTEM, chunk_size=40, **settings) as client:
        assert client.check_many(ASKED) == RIGHT
        assert broken.ended_at is not None
        assert time.monotonic() - broken.ended_at > 1.9


@pytest.mark.slow
@pytest.mark.parametrize("window", [0.0, "off"])
def test_async_checks_that_are_cut_are_errors_and_the_client_finds_back(outage: Any, window: Any) -> None:
    broken, url = outage(after=8)

    async def main() -> None:
        settings: dict[str, Any] = {"timeout": 1, "total": 1, "batch_window": window}
        async with AsyncClient(url, system=failing_servers.SYSTEM, **settings) as client:
            wrong: list[object] = []
            unavailable = 0

            async def work(start: int) -> None:
                nonlocal unavailable
                for at in range(start, COUNT, 8):
                    try:
                        if await client.check(ASKED[at]) is not RIGHT[at]:
                            wrong.append(ASKED[at])
                    except DecisionUnavailable:
                        unavailable += 1

            await asyncio.gather(*(work(start) for start in range(8)))
            assert wrong == []
            assert unavailable > 0
            until = time.monotonic() + 15
            while not await recovered(client):
                assert time.monotonic() < until, "the client never found back"
                await asyncio.sleep(0.05)
            assert broken.ended_at is not None

    async def recovered(client: AsyncClient) -> bool:
        try:
            return await client.check_many(ASKED) == RIGHT
        except DecisionUnavailable:
            return False

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["Client", "AsyncClient"])
def test_many_callers_of_a_silent_opa_all_end_in_time(kind: str, tmp_path: Path) -> None:
    """They share a client, and one look at the names is made at a time."""
    settings: dict[str, Any] = {"timeout": 0.3, "total": 0.6, "retries": 5, "breaker_failures": 0}
    callers = 12
    seconds: list[float] = []

    def failed(started: float) -> None:
        seconds.append(time.monotonic() - started)

    async def run_workers(url: str) -> None:
        async with AsyncClient(url, **settings) as client:

            async def work() -> None:
                started = time.monotonic()
                with pytest.raises(DecisionUnavailable):
                    await client.check(failing_servers.READ)
                failed(started)

            await asyncio.gather(*(work() for _ in range(callers)))

    def silence(listener: socket.socket) -> str:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    with socket.create_server(("127.0.0.1", 0), backlog=200) as listener:  # it accepts and never reads
        if kind == "AsyncClient":
            asyncio.run(run_workers(silence(listener)))
        else:
            with Client(silence(listener), **settings) as client:

                def work() -> None:
                    started = time.monotonic()
                    with pytest.raises(DecisionUnavailable):
                        client.check(failing_servers.READ)
                    failed(started)

                threads = [threading.Thread(target=work) for _ in range(callers)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
    assert len(seconds) == callers
    assert max(seconds) < 0.6 + 1.0
