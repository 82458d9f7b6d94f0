"""AuthZEN decisions on a store, each on all changes that were committed before the request."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from privtab.authzen.directory import Directory
from privtab.engines.index import Index
from privtab.engines.python import PythonEngine
from privtab.errors import DecisionUnavailable, StoreError
from privtab.request import Decision, Request
from privtab.store.view import Snapshot, View
from privtab.vocabulary import Vocabulary


class StoreDecisionPoint:
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

    async def refresh(self) -> None:
        """As DecisionPoint.refresh; each call looks itself."""

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
