"""AuthZEN decisions on a store, each on all changes that were committed before the request."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Sequence

from starlette.requests import Request as HttpRequest

from privtab.authzen.points import DecisionPoint, Directory
from privtab.engines.index import Index
from privtab.engines.python import PythonEngine
from privtab.errors import DecisionUnavailable, StoreError
from privtab.request import Decision, Request
from privtab.serving.endpoint import HttpError
from privtab.store.journal import Journal
from privtab.store.view import Snapshot, View
from privtab.vocabulary import Vocabulary

AT_LEAST = "X-Privtab-At-Least"
"""The header with the number of a change that a decision must know."""
LONGEST_WAIT = 2.0
"""Seconds that a question waits for that change: where the database is a replica, it comes later."""
_NUMBER = re.compile(r'(?:W/)?"?(\d{1,18})"?')


def wait_for_change(journal: Journal) -> Callable[[HttpRequest], Awaitable[None]]:
    """Let questions wait until the store has the change that they name. Raises Refused if it does not come."""

    async def admit(request: HttpRequest) -> None:
        text = request.headers.get(AT_LEAST)
        if text is None:
            return
        named = _NUMBER.fullmatch(text.strip())
        if named is None:
            raise HttpError(400, f'{AT_LEAST} is the number of a change, as in "12"')
        deadline = time.monotonic() + LONGEST_WAIT
        while (last := (await asyncio.to_thread(_head, journal))) < int(named[1]):
            if time.monotonic() >= deadline:
                raise HttpError(
                    503, f"the store is at change {last}, and change {named[1]} is requested", Retry_After="1"
                )
            await asyncio.sleep(0.02)

    return admit


def _head(journal: Journal) -> int:
    try:
        return journal.head().number
    except StoreError as error:
        raise DecisionUnavailable(str(error)) from error


class StoreDecisionPoint(DecisionPoint):
    """A PDP over a store: each call looks at its last change first."""

    searches = True

    def __init__(self, view: View) -> None:
        self._view = view
        self._vocabulary = Vocabulary.from_program(view.document)
        self._directory: tuple[Index, Directory] | None = None

    async def vocabulary(self) -> Vocabulary:
        """As DecisionPoint.vocabulary."""
        return self._vocabulary

    async def check_many(self, requests: Sequence[Request]) -> list[bool]:
        """As DecisionPoint.check_many."""
        self._check(requests)
        return await asyncio.to_thread(lambda: self._now().opened().engine.allow_many(requests))

    async def decide_many(self, requests: Sequence[Request]) -> list[Decision]:
        """As DecisionPoint.decide_many."""
        self._check(requests)
        return await asyncio.to_thread(lambda: self._now().opened().engine.decide_many(requests))

    async def directory(self) -> Directory:
        """As DecisionPoint.directory; built once for each state."""
        return await asyncio.to_thread(self._directory_now)

    async def ready(self) -> bool:
        """As DecisionPoint.ready."""
        try:
            await asyncio.to_thread(self._now)
        except DecisionUnavailable:
            return False
        return True

    async def close(self) -> None:
        """As DecisionPoint.close."""
        self._view.journal.database.engine.dispose()

    def _check(self, requests: Sequence[Request]) -> None:
        for request in requests:
            self._vocabulary.check(request)

    def _directory_now(self) -> Directory:
        engine = self._now().opened().engine
        assert isinstance(engine, PythonEngine)
        if self._directory is None or self._directory[0] is not engine.index:
            self._directory = engine.index, Directory(self._view.document, engine.index)
        return self._directory[1]

    def _now(self) -> Snapshot:
        try:
            return self._view.now()
        except StoreError as error:
            raise DecisionUnavailable(str(error)) from error
