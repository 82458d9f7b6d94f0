"""A store as a source of states for clients that decide in process: `store:grants.db`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from privtab.base import DecisionUnavailable, StateInvalid, UsageError
from privtab.client import BundleLocation, ReadBundle
from privtab.ir import Program, program_from_json
from privtab.state import index_bytes
from privtab_server.addresses import STORE
from privtab_server.errors import StoreError
from privtab_server.store.database import Database, address
from privtab_server.store.journal import Head, Journal
from privtab_server.store.lookups import Rows, checked

T = TypeVar("T")
LONGEST_WAIT = 2.0
"""Seconds for which a database that is a replica may lack a change that the caller names."""
PAUSE = 0.02
"""Seconds between two looks at the store in this time."""


class StoreLocation(BundleLocation):
    """The state of a store after its last change, for the policy in the bundles beside it.

    Reading looks at the last change; if there is a new one, the rows are brought forward by the journal, and indexed again.
    """

    numbered = True

    def __init__(self, where: str) -> None:
        """`where`: `store:` and the path or the URL of a store. Raises UsageError, FileError, DecisionUnavailable."""
        self._url = address(where)
        self._newest = 0, ""
        """The number and the hash of the last change that was read: states never go back."""
        super().__init__(f"{STORE}{Database(self._url).shown}")
        self._read(self._connect)

    def _connect(self) -> None:
        """Open the store in this process: connections are not for others."""
        self._pid = os.getpid()
        self._journal = Journal(Database(self._url).existing())
        self._last: tuple[Head, Rows] | None = None
        self._program: tuple[Mapping[str, Any], Program] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"where": self.where, "_url": self._url, "_newest": self._newest, "_pid": None}

    def is_at(self, number: int, bundles: Mapping[str, ReadBundle]) -> bool:
        """As BundleLocation.is_at."""
        mark: Any = bundles[self.where].mark if self.where in bundles else (0,)
        return bool(mark[0] >= number)

    def wait_for(self, number: int) -> None:
        """As BundleLocation.wait_for: where the database is a replica, a change comes later."""
        deadline = time.monotonic() + LONGEST_WAIT
        while (last := self._read(self._journal_here().head).number) < number:
            if time.monotonic() >= deadline:
                raise DecisionUnavailable(f"{self.where} is at change {last:,}, and change {number:,} is requested")
            time.sleep(PAUSE)

    def read_beside(
        self,
        others: Mapping[str, ReadBundle],
        before: Mapping[str, ReadBundle],
        keep: Callable[[Mapping[str, Any]], Any],
    ) -> list[ReadBundle]:
        """As BundleLocation.read_beside. Raises DecisionUnavailable, UsageError."""
        journal = self._journal_here()
        document = self._policy(others)
        head, rows = self._last = self._read(lambda: journal.latest(self._last))
        number, hash_ = self._newest
        if head.number < number or (head.number == number and head.hash != hash_):
            raise DecisionUnavailable(
                f"{self.where} is at change {head.number:,}, and another change {number:,} was read before: it was replaced "
                "by an older copy, or this is a replica that lags"
            )
        mark = head.number, head.hash, document.get("revision")
        known = before.get(self.where)
        if known is None or known.mark != mark:
            known = ReadBundle.of(self.where, mark, states=self._states(document, rows, keep))
        self._newest = head.number, head.hash
        return [known]

    def _states(
        self, document: Mapping[str, Any], rows: Rows, keep: Callable[[Mapping[str, Any]], Any]
    ) -> dict[str, Any]:
        if self._program is None or self._program[0] is not document:
            self._program = document, program_from_json(document, "the policy")
        program = self._program[1]
        state, _ = self._read(lambda: checked(program, rows, self.where))
        return {program.system: keep(json.loads(index_bytes(program, state)[1]))}

    def _policy(self, others: Mapping[str, ReadBundle]) -> Mapping[str, Any]:
        """The policy of the store's system in the bundles beside it."""
        system = self._journal.system
        programs = [program for bundle in others.values() for program in bundle.content.programs.values()]
        found = [program for program in programs if program.get("system") == system]
        if not found or any(program != found[0] for program in found):
            number = f"{len(found)} policies" if found else "no policy"
            raise UsageError(f"{self.where} is a store of {system}, and the bundles hold {number} of it: give one")
        return found[0]

    def _journal_here(self) -> Journal:
        if self._pid != os.getpid():
            self._read(self._connect)
        return self._journal

    def _read(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except (StoreError, StateInvalid) as error:
            raise DecisionUnavailable(f"{self.where} cannot be used: {error}") from error
