"""The callers under load: threads that share a Client, tasks that share an AsyncClient, threads that share an Embedded."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from load_judge import Call, Caller, Method
from load_world import Listing, World

from privtab import AsyncClient, Client, Embedded, Request
from privtab.base.errors import PrivtabError

MIX: tuple[tuple[Method, int], ...] = (
    ("check", 60), ("check_many", 12), ("check_many mixed", 8), ("decide", 12), ("visible", 8),
)  # fmt: skip
"""Methods with their weights."""
BATCH = 20
SIMPLE = ("open", "read", "write")
"""Operations without flags and second objects; a batch of requests for one of them is sent in one HTTP request."""
EMBEDDED_REFRESH = 0.5


class Callers:
    """All callers, until `stop`. `tell` receives each call; `broken` receives errors that should never happen."""

    def __init__(
        self, world: World, *, think: float, stop: threading.Event, tell: Callable[[Call], None], broken: list[str]
    ) -> None:
        self._world = world
        self._think = think
        self._stop = stop
        self._tell = tell
        self._broken = broken
        by_action = {
            action: [number for number, request in enumerate(world.requests) if request.action == action]
            for action in SIMPLE
        }
        self._by_action = tuple(by_action.values())

    def threads(self, client: Client | Embedded, caller: Caller, size: int) -> None:
        """Run `size` threads that share a client, and close it afterwards."""
        with client:
            join(start(self._broken, *(self._thread(client, caller, seed) for seed in range(size))))

    def tasks(self, client: AsyncClient, size: int) -> None:
        """Run `size` tasks in one event loop that share a client, and close it afterwards."""

        async def run_tasks() -> None:
            async with client:
                await asyncio.gather(*(self._task(client, seed) for seed in range(size)))

        asyncio.run(run_tasks())

    def _thread(self, client: Client | Embedded, caller: Caller, seed: int) -> Callable[[], None]:
        def work() -> None:
            chance = random.Random(f"{caller}{seed}")
            while not self._stop.wait(chance.uniform(0, 2 * self._think)):
                method, questions = self._draw(chance)
                asked = self._asked(method, questions)
                began = time.monotonic()
                try:
                    answer = _ask(client, method, asked)
                except Exception as error:  # noqa: BLE001  (whatever it is, it is judged)
                    answer = error
                self._told(caller, method, questions, began, answer)

        return work

    async def _task(self, client: AsyncClient, seed: int) -> None:
        chance = random.Random(f"task{seed}")
        while not self._stop.is_set():
            await asyncio.sleep(chance.uniform(0, 2 * self._think))
            method, questions = self._draw(chance)
            asked = self._asked(method, questions)
            began = time.monotonic()
            try:
                answer = await _ask(client, method, asked)
            except Exception as error:  # noqa: BLE001  (whatever it is, it is judged)
                answer = error
            self._told("AsyncClient", method, questions, began, answer)

    def _draw(self, chance: random.Random) -> tuple[Method, Sequence[int]]:
        """A random method, and the numbers of its requests or of its listing."""
        methods, weights = zip(*MIX, strict=True)
        method: Method = chance.choices(methods, weights)[0]
        match method:
            case "visible":
                return method, (chance.randrange(len(self._world.listings)),)
            case "check_many":
                return method, chance.choices(chance.choice(self._by_action), k=BATCH)
            case "check_many mixed":
                return method, chance.choices(range(len(self._world.requests)), k=BATCH)
            case _:
                return method, (chance.randrange(len(self._world.requests)),)

    def _asked(self, method: Method, questions: Sequence[int]) -> Listing | Request | list[Request]:
        if method == "visible":
            return self._world.listings[questions[0]]
        requests = [self._world.requests[question] for question in questions]
        return requests if method.startswith("check_many") else requests[0]

    def _told(self, caller: Caller, method: Method, questions: Sequence[int], began: float, answer: Any) -> None:
        if isinstance(answer, PrivtabError):
            # The traceback would keep the frames of the call alive until it is judged.
            answer = answer.with_traceback(None)
        ended = time.monotonic()
        self._tell(Call(caller=caller, method=method, questions=questions, began=began, ended=ended, answer=answer))


def _ask(client: Client | Embedded | AsyncClient, method: Method, asked: Listing | Request | list[Request]) -> Any:
    """An answer, or a coroutine that returns it."""
    if isinstance(asked, Listing):
        return client.visible(asked.user, "list", "table", asked.items)
    return getattr(client, method.removesuffix(" mixed"))(asked)


def start(broken: list[str], *bodies: Callable[[], None]) -> list[threading.Thread]:
    """Start a thread for each body; uncaught exceptions are added to `broken`."""

    def guarded(body: Callable[[], None]) -> None:
        try:
            body()
        except BaseException as error:  # noqa: BLE001  (told at the end)
            broken.append(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=guarded, args=(body,), daemon=True) for body in bodies]
    for thread in threads:
        thread.start()
    return threads


def join(threads: Sequence[threading.Thread]) -> None:
    """Wait for the threads, at most a minute for each."""
    for thread in threads:
        thread.join(60)
