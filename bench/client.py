"""The overhead of the clients: one call against a bare connection, many against a batch loop, and 64 concurrent callers."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import requests
from measure import Caller, Contestant, Report, Spread, Table, Target, race
from prepared import Prepared, entity, serve
from workload import ancestors

from privtab import AsyncClient, Client, Entity, Request

BATCH = 1_000
SINGLES = 2_000
CALLERS = 64
ALONE = 512
"""Number of checks for the contestant that sends each separately."""

BARE, BY_REQUESTS = "bare http.client, one per call", "requests.Session, one per call"
CHECK, REQUIRE = "Client.check", "Client.decide"
LOOP, MIXED_LOOP = "hand-written batch loop, http.client", "the same with mixed requests"
CHECK_MANY, CONCURRENT = "Client.check_many", "Client.check_many, concurrency=2"
BARE_THREADS = f"bare http.client, {CALLERS} threads"
CLIENT_THREADS = f"Client.check, {CALLERS} threads"
ASYNC, ASYNC_ALONE = f"AsyncClient.check, {CALLERS} callers", f"AsyncClient.check, {CALLERS} callers, each alone"
ALLOW, DECISIONS = "privtab/gravitino/allow", "privtab/gravitino/decisions"


def report(sizes: Sequence[str], repetitions: int) -> Report:
    """Every contestant at every size."""
    raced: dict[tuple[str, str], Spread] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="privtab-bench-")))
        for size in sizes:
            prepared = Prepared(size=size, folder=folder)
            with serve(prepared.ours()) as opa, Client(opa.url, pool_size=CALLERS) as client:
                for contestants in (
                    _singles(prepared, opa.url, client),
                    _batches(prepared, opa.url, client),
                    _callers(prepared, opa.url, client),
                ):
                    raced |= race(contestants, repetitions)
    rates = {size: {name: raced[name, size] for name, of in raced if of == size} for size in sizes}
    shown = Table(
        title="Decisions a second: median of the repetitions (min..max)",
        columns=("contestant", *sizes),
        rows=tuple((name, *(rates[size][name].text() for size in sizes)) for name in rates[sizes[0]]),
    )
    return Report(part="client", tables=(shown,), targets=tuple(_targets(rates)))


def _targets(rates: dict[str, dict[str, Spread]]) -> list[Target]:
    targets: list[Target] = []
    for size, found in rates.items():
        best = max((found[name] for name in (BARE, BARE_THREADS, CLIENT_THREADS, CHECK)), key=lambda s: s.median)
        targets += [
            Target(
                what=f"{size}: time of `Client.check` / a bare `http.client` loop",
                spread=found[BARE].over(found[CHECK]),
                wanted=1.3,
                sense="at most",
            ),
            Target(
                what=f"{size}: `Client.check_many` / a hand-written batch loop",
                spread=found[CHECK_MANY].over(found[LOOP]),
                wanted=0.9,
                sense="at least",
            ),
            Target(
                what=f"{size}: `AsyncClient`, {CALLERS} callers / the best that singles reach otherwise",
                spread=found[ASYNC].over(best),
                wanted=0.9,
                sense="at least",
            ),
        ]
    return targets


def _singles(prepared: Prepared, url: str, client: Client) -> list[Contestant]:
    asked, truth = prepared.world.requests[:SINGLES], prepared.world.may_select[:SINGLES]
    documents = [_request(user, table).to_json() for user, table in asked]
    opa, session = Caller(url), requests.Session()

    def by_requests() -> list[bool]:
        return [session.post(f"{url}/v1/data/{ALLOW}", json={"input": one}).json()["result"] for one in documents]

    runs: dict[str, Callable[[], list[bool]]] = {
        BARE: lambda: [opa.ask(ALLOW, one) for one in documents],
        BY_REQUESTS: by_requests,
        CHECK: lambda: [client.check(user, "select", ("table", table)) for user, table in asked],
        REQUIRE: lambda: [client.decide(user, "select", ("table", table)).allowed for user, table in asked],
    }
    return [Contestant(name=name, size=prepared.size, run=run, truth=truth) for name, run in runs.items()]


def _batches(prepared: Prepared, url: str, client: Client) -> list[Contestant]:
    world = prepared.world
    whole = [_request(user, table) for user, table in world.requests]
    opa = Caller(url)

    def loop() -> list[bool]:
        shared = {"action": {"name": "select"}, "resource": {"type": "table"}}
        return [
            answer
            for start in range(0, len(whole), BATCH)
            for answer in opa.ask(
                DECISIONS,
                shared
                | {
                    "items": [
                        [user, [entity(path) for path in ancestors(table)]]
                        for user, table in world.requests[start : start + BATCH]
                    ]
                },
            )
        ]

    def mixed_loop() -> list[bool]:
        return [
            answer
            for start in range(0, len(whole), BATCH)
            for answer in opa.ask(DECISIONS, {"requests": [r.to_json() for r in whole[start : start + BATCH]]})
        ]

    def concurrent() -> list[bool]:
        with Client(url, concurrency=2) as other:
            return other.check_many(whole)

    runs: dict[str, Callable[[], list[bool]]] = {
        LOOP: loop,
        MIXED_LOOP: mixed_loop,
        CHECK_MANY: lambda: client.check_many(whole),
        CONCURRENT: concurrent,
    }
    return [Contestant(name=name, size=prepared.size, run=run, truth=world.may_select) for name, run in runs.items()]


def _callers(prepared: Prepared, url: str, client: Client) -> list[Contestant]:
    asked, truth = prepared.world.requests[: 2 * SINGLES], prepared.world.may_select[: 2 * SINGLES]
    documents = [_request(user, table).to_json() for user, table in asked]
    callers = [Caller(url) for _ in range(CALLERS)]

    def bare() -> list[bool]:
        return _by_threads(len(asked), lambda caller, at: callers[caller].ask(ALLOW, documents[at]))

    def threads() -> list[bool]:
        return _by_threads(len(asked), lambda _, at: client.check(asked[at][0], "select", ("table", asked[at][1])))

    runs: dict[str, Callable[[], list[bool]]] = {
        BARE_THREADS: bare,
        CLIENT_THREADS: threads,
        ASYNC: lambda: asyncio.run(_by_tasks(url, asked)),
    }
    alone = Contestant(
        name=ASYNC_ALONE,
        size=prepared.size,
        run=lambda: asyncio.run(_by_tasks(url, asked[:ALONE], batch_window="off")),
        truth=truth[:ALONE],
    )
    return [*(Contestant(name=name, size=prepared.size, run=run, truth=truth) for name, run in runs.items()), alone]


def _by_threads(count: int, ask: Callable[[int, int], bool]) -> list[bool]:
    answers: list[Any] = [None] * count

    def work(caller: int) -> None:
        for at in range(caller, count, CALLERS):
            answers[at] = ask(caller, at)

    running = [threading.Thread(target=work, args=(caller,)) for caller in range(CALLERS)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return answers


async def _by_tasks(url: str, asked: Sequence[tuple[str, str]], **settings: Any) -> list[bool]:
    answers: list[Any] = [None] * len(asked)
    async with AsyncClient(url, pool_size=CALLERS, **settings) as client:

        async def work(caller: int) -> None:
            for at in range(caller, len(asked), CALLERS):
                answers[at] = await client.check(asked[at][0], "select", ("table", asked[at][1]))

        await asyncio.gather(*(work(caller) for caller in range(CALLERS)))
    return answers


def _request(user: str, table: str) -> Request:
    return Request(user=user, action="select", resource=Entity("table", table))
