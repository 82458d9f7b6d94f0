"""Follow changes of the state while a stream runs: its executors check the state again within a stated bound.

A state that executors cannot reach (Spark tables, rows in memory) needs `each_batch`, where the driver reads the state at the
beginning of each micro-batch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privtab.base import DecisionUnavailable, FileError, PrivtabError, UsageError
from privtab.client import BundledEngine, BundleLocation, ReadBundle
from privtab_spark.policies import OpenPolicy
from privtab_spark.shipping import WorkerCache
from privtab_spark.state.bundles import is_bundle, missing_shards_error
from privtab_spark.state.schemas import is_written
from privtab_spark.states import cache_key

if TYPE_CHECKING:
    from privtab.engines import Batches

REFRESH = 60.0
"""Default bound in seconds: the longest time for which a stream relies on a check of the state."""
BY_BATCH = "; or decide each micro-batch by `each_batch`"
"""The alternative for a streaming query, appended to messages."""
_ATTEMPTS = 3
"""Attempts at reading rows that change while they are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedState:
    """A state that workers follow: its location, and the seconds for which a check of it is valid."""

    policy: OpenPolicy
    where: str
    refresh: float

    @property
    def key(self) -> tuple[str, str, float]:
        """The key of the state in a worker's cache."""
        return self.policy.digest, self.where, self.refresh

    def __str__(self) -> str:
        bound = f"no answer is based on a check more than {self.refresh:g} seconds old"
        return (
            f"follows {self.where}: {bound if self.refresh else 'it is checked before each chunk of rows is decided'}"
        )


def check_refresh(refresh: object) -> None:
    """Raise UsageError for an invalid bound."""
    if refresh is not None and not (isinstance(refresh, int | float) and refresh >= 0):
        raise UsageError(f"refresh is {refresh!r}: give seconds, 0 or more, or None for a state that is read only once")


def followed(policy: OpenPolicy, state: Any, refresh: float, alternative: str = "") -> FollowedState:
    """A state that executors can follow, loaded once here as a check. Raises UsageError for one that they cannot read.

    `alternative`: an alternative to suggest in the message.
    """
    if not isinstance(state, str | os.PathLike) or is_written(state):
        kind = "tables that Spark wrote" if isinstance(state, str | os.PathLike) else f"a {type(state).__name__}"
        raise UsageError(
            f"executors cannot follow {kind}: give the path of rows or bundles, or the address of a bundle"
            f"{alternative}; `refresh=None` reads the state only once"
        )
    where = os.fspath(state)
    policy_ = policy if not is_bundle(where) else replace(policy, program=None)
    found = FollowedState(
        policy=policy_, where=where if "://" in where else str(Path(where).absolute()), refresh=refresh
    )
    current_engine(found)
    return found


def current_engine(source: FollowedState) -> Batches:
    """On an executor: the engine for the current state. Raises DecisionUnavailable if the state was not seen within its bound."""
    engine = _FOLLOWED.get(source.key, lambda: _engine(source))
    current = engine.now()
    if engine.problem is not None and not source.refresh:
        raise DecisionUnavailable(f"the state cannot be checked: {engine.problem}", retry=False)
    if current.opened.missing:
        raise missing_shards_error(current.opened.missing)
    python: Any = current.engine
    batches: Batches = python.batches()
    return batches


_FOLLOWED: WorkerCache[tuple[str, str, float], BundledEngine] = WorkerCache()


def _engine(source: FollowedState) -> BundledEngine:
    """Checks the state after half of the bound, so that a failed check can be repeated within the bound."""
    return BundledEngine(
        [_PolicyLocation(source.policy), _state_location(source)],
        system=source.policy.system,
        refresh=source.refresh / 2,
        max_staleness=source.refresh or None,
    )


def _state_location(source: FollowedState) -> BundleLocation:
    if is_bundle(source.where):
        return _StateLocation(BundleLocation.of(source.where))
    return _RowsLocation(source.policy, source.where)


class _PolicyLocation(BundleLocation):
    """The policy that the stream was started with."""

    def __init__(self, policy: OpenPolicy) -> None:
        super().__init__("the policy")
        self.policy = policy

    def read(self, before: Mapping[str, ReadBundle], keep: Callable[[Mapping[str, Any]], Any]) -> list[ReadBundle]:
        """As BundleLocation.read; the policy never changes."""
        del keep
        programs = {self.policy.system: self.policy.json}
        return [before.get(self.where) or ReadBundle.of(self.where, None, programs=programs)]


class _StateLocation(BundleLocation):
    """A location of bundles, of which only the states are used."""

    def __init__(self, location: BundleLocation) -> None:
        super().__init__(location.where)
        self.location = location

    def read(self, before: Mapping[str, ReadBundle], keep: Callable[[Mapping[str, Any]], Any]) -> list[ReadBundle]:
        """As BundleLocation.read."""
        found = self.location.read(before, keep)
        return [
            bundle
            if before.get(bundle.where) is bundle
            else replace(bundle, content=replace(bundle.content, programs={}))
            for bundle in found
        ]


class _RowsLocation(BundleLocation):
    """A file or folder with rows, which are validated and indexed when they are read."""

    def __init__(self, policy: OpenPolicy, where: str) -> None:
        super().__init__(where)
        self.policy = policy

    def read(self, before: Mapping[str, ReadBundle], keep: Callable[[Mapping[str, Any]], Any]) -> list[ReadBundle]:
        """As BundleLocation.read; raises DecisionUnavailable for invalid rows, and for rows that change while they are read."""
        known = before.get(self.where)
        for _ in range(_ATTEMPTS):
            key = cache_key(self.where)
            if known is not None and known.mark == key:
                return [known]
            states = {self.policy.system: keep(self._index())}
            if cache_key(self.where) == key:
                return [ReadBundle.of(self.where, key, states=states)]
        raise DecisionUnavailable(f"{self.where} changes while it is read")

    def _index(self) -> dict[str, Any]:
        from privtab.state import index_document
        from privtab_spark.state.schemas import checked_rows

        program = self.policy.checked("a state")
        try:
            return index_document(program, checked_rows(program, Path(self.where))[0])
        except (FileError, UsageError):
            raise
        except PrivtabError as error:
            raise DecisionUnavailable(f"the state {self.where} cannot be used: {error}") from error
