"""The engine of `Embedded`: keeps bundles current, refuses bundles older than what it has run, and decides with them."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, Any, TypeAlias

from privtab.base import files, strict_json
from privtab.base.errors import (
    DecisionError,
    DecisionUnavailable,
    FileError,
    PolicyError,
    PrivtabError,
    SignatureRefused,
    UsageError,
)
from privtab.base.moments import ALWAYS
from privtab.base.records import dataclass
from privtab.base.request import Decision, Entity, Request
from privtab.base.sql_text import AppliedFilter
from privtab.base.staged import locked, write_file
from privtab.base.vocabulary import OperationShape
from privtab.client import _plan as plan
from privtab.client import _protocol as protocol
from privtab.client._bundles import BundleLocation, ReadBundle
from privtab.client._observe import LOG
from privtab.client._protocol import ActiveSystem, Revision
from privtab.engines.index import StatePart
from privtab.engines.python import NAME, OpenEngine, Opener, PythonEngine, Shortcuts

if TYPE_CHECKING:
    from privtab.filters.filter import Filter

Sequences: TypeAlias = Mapping[tuple[str, str], tuple[int, object]]
"""The highest sequence and its revision, by kind and name of a policy or a state."""


class RollbackGuard:
    """Refuses signed bundles that are older than before: tracks the highest sequence of each policy and state.

    `least`: the lowest sequence of all. `file`: keeps the highest ones for later processes, and others that run.
    """

    def __init__(self, least: int | None = None, file: str | None = None) -> None:
        self._least = least
        self._file = None if file is None else Path(file)
        self._highest: Sequences = {}

    def __getstate__(self) -> dict[str, Any]:
        """The sequences without the file: another process may run on another machine."""
        return {**self.__dict__, "_file": None}

    def check(self, bundles: Iterable[ReadBundle]) -> Sequences:
        """The argument for `keep` before these bundles are active.

        Raises SignatureRefused if one is older than before, FileError if the file cannot be read.
        """
        highest = dict(self._known(self._highest))
        for bundle in bundles:
            signed = bundle.content.signed
            if signed is None:
                continue
            sequence = signed.sequence
            text = "no sequence" if sequence is None else f"the sequence {sequence}"
            if self._least is not None and (sequence is None or sequence < self._least):
                raise SignatureRefused(
                    f"the bundle {bundle.where} is refused: its signature has {text}, and min_sequence is {self._least}"
                )
            for key, revision in _revisions(bundle):
                before, known_revision = max(
                    highest.get(key, (-1, None)), _other_layout(highest, key), key=lambda found: found[0]
                )
                if before >= 0 and (
                    sequence is None or sequence < before or (sequence == before and known_revision != revision)
                ):
                    raise SignatureRefused(
                        f"the bundle {bundle.where} is refused: it is older than what runs: its signature has {text}, "
                        f"and that of the {key[0]} of `{key[1]}` was {before} before"
                    )
                if sequence is not None:
                    highest[key] = sequence, revision
        return highest

    def keep(self, highest: Sequences) -> None:
        """Remember the result of `check`. Raises FileError if the file cannot be written."""
        if self._file is not None:
            try:
                self._file.parent.mkdir(parents=True, exist_ok=True)
                with locked(self._file.parent):
                    if (known := self._known(highest)) != self._known({}):
                        self._write(_text(known))
            except OSError as error:
                raise FileError(f"sequence_file: {error}") from error
        self._highest = dict(highest)

    def _write(self, text: bytes) -> None:
        assert self._file is not None
        try:
            write_file(self._file, text, in_place=True)
        except FileError as error:
            raise FileError(f"sequence_file: {error}") from error

    def _known(self, highest: Sequences) -> Sequences:
        """The highest of these sequences and of the sequences in the file."""
        known = dict(highest)
        for key, found in _read(self._file).items() if self._file is not None else ():
            known[key] = max(known.get(key, found), found, key=lambda entry: entry[0])
        return known


def _read(file: Path) -> Sequences:
    try:
        document = strict_json.strict_loads(files.read_content(file))
        return {
            (kind, name): (_number(sequence), revision)
            for kind, names in document.items()
            for name, (sequence, revision) in names.items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise FileError(f"sequence_file: {file} cannot be read: {error}") from error


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"`{value}` is no sequence")
    return value


def _text(highest: Sequences) -> bytes:
    document: dict[str, dict[str, tuple[int, object]]] = {}
    for (kind, name), found in sorted(highest.items()):
        document.setdefault(kind, {})[name] = found
    return (json.dumps(document, indent=1) + "\n").encode()


def _other_layout(highest: Sequences, key: tuple[str, str]) -> tuple[int, object]:
    """The highest sequence of the same state in the other layout, whole or sharded.

    Otherwise switching the layout would let an older state return.
    """
    kind, name = key
    whole, slash, _ = name.partition("/")
    others = [(kind, whole)] if slash else [other for other in highest if other[1].startswith(f"{name}/")]
    sequences = [highest[other][0] for other in others if kind == "state" and other in highest]
    return max(sequences, default=-1), None


def _revisions(bundle: ReadBundle) -> Iterable[tuple[tuple[str, str], Any]]:
    for name, program in bundle.content.programs.items():
        yield ("policy", name), program.get("revision")
    for name, state in bundle.content.states.items():
        # Shards of a state are signed separately.
        parts = state.revisions.items() if isinstance(state, StatePart) else ()
        yield from ((("state", f"{name}/{part}"), revision) for part, revision in parts)
        if not parts:
            yield ("state", name), state.revision


RECHECK_SECONDS = 5.0
"""Seconds after a check for newer bundles in which an unknown name is refused without another check."""


def elapsed() -> float:
    """Monotonic seconds, independent of the wall clock; where available, they include time in which the machine slept."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveBundles:
    """A policy and a state that belong together; replaced together."""

    bundles: Mapping[str, ReadBundle]
    active: ActiveSystem
    opened: OpenEngine

    @property
    def engine(self) -> PythonEngine:
        return self.opened.engine

    @property
    def revision(self) -> Revision:
        return Revision(policy=self.active.revision, state=self.opened.revision)

    def check_shards(self, request: Request, items: Sequence[Entity] = ()) -> None:
        """Raise DecisionUnavailable for a request that needs a missing shard; its names were checked."""
        chains = self.active.vocabulary.chains
        shape = self.active.vocabulary.check_operation(request.resource.type, request.action)
        entities = (*request.objects(shape.withs).values(), *items)
        needed = {f"{chains[entity.type][0][0]}:{entity.id.partition('/')[0]}" for entity in entities}
        if not needed.isdisjoint(self.opened.missing):
            raise protocol.no_shard(self.active.system, needed & self.opened.missing)


class BundledEngine:
    """Keeps bundles current, and decides with the bundles: `BundledEngine(locations, refresh=10.0, …).now().engine`."""

    def __init__(
        self,
        locations: Sequence[BundleLocation],
        *,
        system: str | None,
        refresh: float | None,
        max_staleness: float | None,
        order: RollbackGuard | None = None,
    ) -> None:
        self.locations = locations
        self.name = NAME
        self.circuit = None
        self.problem: str | None = None
        self._system = system
        self._refresh = refresh
        self._max_staleness = max_staleness
        self._loaded: ActiveBundles | None = None
        self._opener = Opener()
        self._order = order or RollbackGuard()
        self.shortcuts: Shortcuts = {}
        """Shortcuts of the active policy and state; use it without further checks only if `still` and `timeless`."""
        self.still = refresh is None and max_staleness is None
        """True if the bundles stay active until `refresh()` is called."""
        self.timeless = True
        """True if no row of the active state holds for a time only."""
        self._last_checked = elapsed()
        self._init_process()

    def _init_process(self) -> None:
        """Set up what belongs to this process."""
        age = max(elapsed() - self._last_checked, 0.0)
        self._due = time.monotonic() + self._refresh - age if self._refresh is not None else None
        self._lock = threading.RLock()
        self._last_known = threading.local()
        """The last result of `active_system` in each thread."""
        self._pid = os.getpid()

    def __getstate__(self) -> dict[str, Any]:
        state = {
            name: value
            for name, value in self.__dict__.items()
            if name not in ("_lock", "_last_known", "_pid", "_due", "_loaded", "_last_checked", "shortcuts")
        }
        loaded = self._loaded
        # The copy may go to another machine, which shares only the wall clock with this one.
        age = elapsed() - self._last_checked
        return state | {"bundles": dict(loaded.bundles) if loaded is not None else None, "aged": (age, time.time())}

    def __setstate__(self, state: dict[str, Any]) -> None:
        bundles, (age, pickled_at) = state.pop("bundles"), state.pop("aged")
        self._last_checked = elapsed() - age - max(time.time() - pickled_at, 0.0)
        self.__dict__.update(state)
        self._loaded, self.shortcuts, self.timeless = None, {}, True
        if bundles is not None:
            self._activate(self._opened(bundles))
        self._init_process()

    # --- bundles ---

    def now(self) -> ActiveBundles:
        """The active policy and state, after checking for newer bundles if that is due."""
        if self._due is not None and time.monotonic() >= self._due:
            self._refresh_quietly()
        if self._max_staleness is not None and (age := elapsed() - self._last_checked) > self._max_staleness:
            raise DecisionUnavailable(
                f"the bundles are too old: newer ones were last looked for with success {age:.0f} seconds ago, "
                f"and max_staleness is {self._max_staleness:g}" + (f": {self.problem}" if self.problem else "")
            )
        loaded = self._loaded or self.load()
        return loaded if loaded.opened.window == ALWAYS or loaded.opened.window.holds(time_ns()) else self._of_now()

    def _of_now(self) -> ActiveBundles:
        """The active policy and state after a row of the state began or ended to hold."""
        if os.getpid() != self._pid:
            self._init_process()
        with self._lock:
            loaded = self._loaded or self.load()
            if not loaded.opened.window.holds(time_ns()):
                self._activate(self._opened(loaded.bundles))
        assert self._loaded is not None
        return self._loaded

    def _activate(self, active: ActiveBundles) -> None:
        self.timeless = self.timeless and active.opened.window == ALWAYS
        self._loaded = active
        self.shortcuts = active.opened.shortcuts
        self.timeless = active.opened.window == ALWAYS

    def load(self) -> ActiveBundles:
        """Read the bundles unless they have been read."""
        with self._lock:
            if self._loaded is None:
                self.refresh()
        assert self._loaded is not None
        return self._loaded

    def refresh(self) -> bool:
        """Load newer bundles, if there are any; on FileError or DecisionUnavailable the active ones stay."""
        with self._lock:
            before = self._loaded.bundles if self._loaded is not None else {}
            started = elapsed()
            try:
                bundles: dict[str, ReadBundle] = {}
                for location in self.locations:
                    bundles |= {
                        bundle.where: bundle for bundle in location.read_beside(bundles, before, self._opener.keep)
                    }
                changed = list(bundles.values()) != list(before.values())
                if changed:
                    order = self._order.check(bundles.values())
                    opened = self._opened(bundles)
                    self._order.keep(order)
                    self._activate(opened)
            except PrivtabError as error:
                unusable = isinstance(error, PolicyError) and not isinstance(error, SignatureRefused)
                self.problem = f"the bundles cannot be used: {error}" if unusable else str(error)
                if unusable:
                    raise DecisionUnavailable(self.problem) from error
                raise
            finally:
                if self._refresh is not None:
                    self._due = time.monotonic() + self._refresh
            self.problem = None
            self._last_checked = started
            if changed and before and self._loaded is not None:
                LOG.info(
                    "newer bundles: policy revision %s, state revision %s",
                    self._loaded.revision.policy,
                    self._loaded.revision.state,
                )
            return changed

    def refresh_to(self, number: int) -> bool:
        """As `refresh`, once the store has a change. Raises UsageError if no location is a store."""
        numbered = [location for location in self.locations if location.numbered]
        if not numbered:
            raise UsageError(
                'bundles have no numbered changes: `at_least` is for the state of a store, state="store:…"'
            )
        loaded = self._loaded
        if loaded is not None and all(location.is_at(number, loaded.bundles) for location in numbered):
            return False
        for location in numbered:
            location.wait_for(number)
        return self.refresh()

    def _refresh_quietly(self) -> None:
        """Refresh unless another thread is doing so; a failure is logged and the active bundles stay."""
        if os.getpid() != self._pid:
            # Forked: a thread that holds the lock does not exist here.
            self._init_process()
        if not self._lock.acquire(blocking=False):
            return
        earlier_problem = self.problem
        try:
            self.refresh()
        except (FileError, DecisionError, UsageError) as error:
            if str(error) != earlier_problem:
                LOG.warning("bundles were not refreshed, the last good ones stay in force: %s", error)
        finally:
            self._lock.release()

    def _opened(self, bundles: Mapping[str, ReadBundle]) -> ActiveBundles:
        """Open an engine on these bundles; raises if the policy or its state is missing or ambiguous."""
        programs = _programs(bundles.values())
        states = _states((bundle.where, bundle.content.states) for bundle in bundles.values())
        if self._system is None and len(programs) > 1:
            names = ", ".join(f"`{name}`" for name in sorted(programs))
            raise UsageError(f"the bundles have {len(programs)} systems, {names}: say which, as in Embedded(system=…)")
        name = self._system or next(iter(programs), None)
        if name is None or name not in programs:
            raise protocol.no_bundle(name)
        program, active = programs[name], protocol.read_active_system(name, programs[name])
        if active.vocabulary.system not in states:
            raise protocol.no_bundle(active.vocabulary.system, "state")
        opened = self._opener.open(program, states[active.vocabulary.system], time_ns())
        return ActiveBundles(bundles=bundles, active=active, opened=opened)

    # --- answers ---

    def active_system(self) -> ActiveSystem:
        self._last_known.active = active = self.now().active
        return active

    def newer(self, active: ActiveSystem) -> ActiveSystem:  # noqa: ARG002  (the active policy is returned in any case)
        if elapsed() - self._last_checked >= RECHECK_SECONDS:
            self._refresh_quietly()
        return self.active_system()

    def allow(self, request: Request) -> bool:
        return self._active_for([request]).engine.allow(request)

    def allow_many(self, requests: Sequence[Request], shapes: Sequence[OperationShape]) -> list[bool]:
        del shapes
        return self._active_for(requests).engine.allow_many(requests)

    def decide(self, request: Request) -> Decision:
        return self._active_for([request]).engine.decide(request)

    def decide_many(self, requests: Sequence[Request]) -> list[Decision]:
        return self._active_for(requests).engine.decide_many(requests)

    def visible(self, request: Request, items: Sequence[Entity]) -> list[int]:
        loaded = self.now()
        if loaded.active is not getattr(self._last_known, "active", None):
            plan.check_listing(request, items, loaded.active)
        if loaded.opened.missing and items:
            # The request of a listing has no path; those of its items count.
            loaded.check_shards(replace(request, resource=items[0]), items)
        return loaded.engine.visible(request, items)

    def filter(self, request: Request) -> Filter:
        from privtab.filters.filter import filter_of

        loaded = self.now()
        if loaded.active is not getattr(self._last_known, "active", None):
            plan.check_listing(request, (), loaded.active)
        return filter_of(loaded.engine, request, loaded.opened.window)

    def applied(self, requests: Sequence[Request]) -> list[AppliedFilter]:
        loaded = self.now()
        for request in requests:
            loaded.check_shards(loaded.active.vocabulary.check_filtered(request))
        return [loaded.engine.applied(request) for request in requests]

    def columns(self, requests: Sequence[Request]) -> list[bool] | None:
        """Decide unchecked requests column by column; None if they must be checked and decided as usual."""
        loaded = self.now()
        return loaded.engine.columns(requests) if not loaded.opened.missing else None

    def revision(self) -> Revision:
        return self.now().revision

    def healthy(self) -> bool:
        try:
            self.now()
        except PrivtabError:
            return False
        return True

    def close(self) -> None:
        """As ClientEngine.close; nothing is held open."""

    def _active_for(self, requests: Sequence[Request]) -> ActiveBundles:
        """The active policy and state; checks the requests again if they are newer than this thread's `active_system()`."""
        loaded = self.now()
        if loaded.active is not getattr(self._last_known, "active", None):
            for request in requests:
                loaded.active.vocabulary.check(request)
        if loaded.opened.missing:
            for request in requests:
                loaded.check_shards(request)
        return loaded


def _states(sources: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, list[Any]]:
    """The documents of each system's state, one whole or several shards; raises UsageError for duplicates."""
    states: dict[str, list[tuple[str, Any]]] = {}
    for where, documents in sources:
        for name, document in documents.items():
            states.setdefault(name, []).append((where, document))
    for name, parts in states.items():
        if len(parts) > 1 and not all(isinstance(kept, StatePart) for _, kept in parts):
            raise UsageError(f"{parts[0][0]} and {parts[1][0]} both hold `{name}`: name one of them")
    return {name: [document for _, document in parts] for name, parts in states.items()}


def _programs(bundles: Iterable[ReadBundle]) -> dict[str, Any]:
    """The program of each package; of a policy as Rego and as Wasm, the one beside the Rego. Raises UsageError for duplicates."""
    chosen: dict[str, ReadBundle] = {}
    for bundle in sorted(bundles, key=lambda bundle: bundle.content.wasm):
        for name in bundle.content.programs:
            other = chosen.setdefault(name, bundle)
            if other is not bundle and other.content.wasm is bundle.content.wasm:
                raise UsageError(f"{other.where} and {bundle.where} both hold `{name}`: name one of them")
    return {name: bundle.content.programs[name] for name, bundle in chosen.items()}
