"""The engine `python`: a policy's program over the index of a state, in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from privtab import moments
from privtab.engines.index import Index, PrivilegeNumbers, StatePart, in_parts
from privtab.engines.rows import RowEngine
from privtab.engines.shortcuts import Shortcut, shortcut
from privtab.engines.windowed import WindowedIndex, is_windowed
from privtab.errors import DecisionUnavailable
from privtab.moments import ALWAYS, Window
from privtab.request import Request

if TYPE_CHECKING:
    from privtab.engines.batches import Batches
    from privtab.engines.columns import TextPool
    from privtab.engines.varying import Answers

NAME = "python"
MANY = 1000
"""Requests from which on columns pay off."""

Shortcuts: TypeAlias = Mapping[tuple[str, str], Shortcut]
"""By (type, operation): the decision for (user, path); None: ask the engine."""


def _no_shortcut(user: str, path: str) -> None:
    """The shortcut of operations that have none."""


class NoShortcuts(dict[tuple[str, str], Shortcut]):
    """For states in which each request must be checked first."""

    def __missing__(self, key: tuple[str, str]) -> Shortcut:
        return _no_shortcut


class LazyShortcuts(dict[tuple[str, str], Shortcut]):
    """Shortcuts by (type, operation), each made on first use."""

    def __init__(self, engine: RowEngine) -> None:
        super().__init__()
        self._engine = engine

    def __missing__(self, key: tuple[str, str]) -> Shortcut:
        if key not in self._engine.shapes:
            return _no_shortcut
        fixed = self._engine.needs_only_resource(*key) and not (
            key[0] in self._engine.reader.nested or self._engine.reader.flat
        )
        built = shortcut(self._engine.plan_of(*key, frozenset(), {}, named=True)) if fixed else None
        self[key] = built or _no_shortcut
        return self[key]


class PythonEngine(RowEngine):
    """Decides requests one by one, and large batches column by column."""

    _batches: Batches | Literal[False] | None = None
    """False: numpy or pyarrow is not installed."""
    timed: TimedBatches | None = None
    """If this is the engine of one moment, the evaluator for columns at any moment."""

    def allow_many(self, requests: Sequence[Request]) -> list[bool]:
        """Whether each request is allowed, by position."""
        answers = self.columns(requests)
        return answers if answers is not None else [self.allow(request) for request in requests]

    def columns(self, requests: Sequence[Request]) -> list[bool] | None:
        """As `allow_many`, column by column, for unchecked requests; None: decide them one by one.

        Columns need many requests, all of them valid, and numpy and pyarrow.
        """
        if len(requests) < MANY or self._batches is False:
            return None
        try:
            return self.batches().allow_requests(requests)
        except ImportError:
            self._batches = False
            return None

    def batches(self) -> Batches:
        """The evaluator for columns, cached because it holds the index as arrays. Raises ImportError without numpy or pyarrow.

        Raises DecisionUnavailable if shards of the state are missing, since a column cannot express that a decision is unknown.
        """
        if self.index.missing:
            raise DecisionUnavailable(
                f"columns need the whole state: the shard of `{min(self.index.missing)}` is missing"
            )
        if not self._batches:
            from privtab.engines.batches import Batches

            self._batches = Batches(self)
        return self._batches


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenEngine:
    """An engine over a policy and a state."""

    engine: PythonEngine
    revision: str | None
    """The revision of the state."""
    missing: frozenset[str]
    """The keys of the root entities whose shards of the state are missing."""
    shortcuts: Shortcuts
    window: Window = ALWAYS
    """The time in which the engine's answers count: at its end, some row of the state begins or ends to hold."""


class TimedBatches:
    """Batches over a state in which rows hold for a time: each call is answered for the moment at which it is made."""

    def __init__(self, program: Mapping[str, Any], state: Sequence[Any]) -> None:
        """As `Opener.open`."""
        self._program = program
        self._state = state
        self._opened: OpenEngine | None = None

    def __getstate__(self) -> tuple[Mapping[str, Any], Sequence[Any]]:
        return self._program, self._state

    def __setstate__(self, state: tuple[Mapping[str, Any], Sequence[Any]]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def decide_columns(self, users: TextPool, resources: TextPool, **options: Any) -> Answers:
        """As Batches.decide_columns."""
        now, opened = moments.now(), self._opened
        if opened is None or not opened.window.holds(now):
            opened = self._opened = Opener().open(self._program, self._state, now)
        return opened.engine.batches().decide_columns(users, resources, **options)


class Opener:
    """Opens the engine on the content of bundles. It can be pickled."""

    def __init__(self) -> None:
        self._numbers: PrivilegeNumbers | None = None

    def keep(self, document: Mapping[str, Any]) -> Index | StatePart | WindowedIndex:
        """What is kept of a state's document, or of that of one of its parts: the index, or a part of it."""
        if not in_parts(document):
            return WindowedIndex(document) if is_windowed(document) else Index(document)
        # Parts that are loaded one by one become one index, so they must number privileges alike.
        self._numbers = self._numbers or PrivilegeNumbers()
        return StatePart(document, self._numbers)

    def open(self, program: Mapping[str, Any], state: Sequence[Any], moment: int) -> OpenEngine:
        """Open the engine for a moment, on what was kept of a state, whole or in parts. Raises PolicyError."""
        index = Index.of(state) if isinstance(state[0], StatePart) else state[0]
        if isinstance(index, WindowedIndex) or index.windows:
            windowed = index if isinstance(index, WindowedIndex) else WindowedIndex.of(index)
            now = self.open(program, [windowed.at(moment)], moment)
            now.engine.timed = TimedBatches(program, state)
            return replace(now, window=windowed.window(moment))
        engine = PythonEngine(program, index, partial=True)
        shortcuts = NoShortcuts() if index.missing else LazyShortcuts(engine)
        return OpenEngine(engine=engine, revision=index.revision, missing=index.missing, shortcuts=shortcuts)
