"""The engine `python`: a policy's program over the index of a state, in this process.

The common request, with only a user and a named resource, is one function that looks up nothing but the state.

Where rows hold for a time, the index is that of one moment, until the next at which it differs. Windows only add to what holds
at any time, a denial as well as a grant. So the index at a moment is a copy of the lasting one, with the entries that are open
added; both share what these do not concern.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from time import time_ns
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from privtab.base import moments
from privtab.base.errors import DecisionUnavailable
from privtab.base.moments import FIRST, LAST, WINDOWED, Window, parts_of
from privtab.base.names import is_wildcard
from privtab.base.records import dataclass
from privtab.base.request import Request
from privtab.engines.conditions import ALWAYS_TRUE, RESOURCE, Atom
from privtab.engines.held_texts import Holders
from privtab.engines.index import (
    OWNER_BIT,
    Index,
    PrivilegeNumbers,
    RawTable,
    StatePart,
    is_state_part,
    raw_table,
    reading,
)
from privtab.engines.plan import FormPlan, Special, needed
from privtab.engines.rows import RowEngine

if TYPE_CHECKING:
    from privtab.engines.batches import Batches
    from privtab.engines.columns import TextPool
    from privtab.engines.varying import Answers


class WindowedIndex:
    """A state with windows, from its bundle. It can be pickled."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        """Read `data.privtab_state.<system>`. Raises PolicyError if it is not an index."""
        with reading("an index"):
            lasting, windows = parts_of(document)
            self._read(Index(lasting), windows)

    @classmethod
    def of(cls, combined: Index) -> WindowedIndex:
        """The index of the parts of a sharded state (`Index.of`), some of which have windows. Raises PolicyError."""
        found = cls.__new__(cls)
        with reading("an index"):
            found._read(combined, combined.windows)  # noqa: SLF001  (its own)
        return found

    def _read(self, lasting: Index, windows: Mapping[str, Any]) -> None:
        self.lasting = lasting
        # Every moment has a copy of what was read.
        lasting.tables = {type_: dict(table) for type_, table in lasting.tables.items()}
        self._windows = windows
        self.revision: str = lasting.revision
        edges = {edge for spans in _spans(windows) for begin, end in spans for edge in (begin, end)}
        self._edges = sorted(edges - {FIRST, LAST})
        if not all(type(edge) is int and FIRST < edge < LAST for edge in self._edges):
            raise ValueError("the edge of a window is not a moment")
        self.at(FIRST)

    def window(self, moment: int) -> Window:
        """The time around a moment in which the index is the same."""
        position = bisect_right(self._edges, moment)
        return Window(
            self._edges[position - 1] if position else FIRST,
            self._edges[position] if position < len(self._edges) else LAST,
        )

    def at(self, moment: int) -> Index:
        """The index at a moment."""
        found = copy(self.lasting)
        found.windows = {}
        found.tables = {type_: dict(table) for type_, table in found.tables.items()}
        found.origins = dict(found.origins)
        for effect in ("allow", "deny"):
            for privilege, keys in self._windows[effect].items():
                bit = found.numbers.allowed(privilege) if effect == "allow" else found.numbers.denied(privilege)
                for key, holders in keys.items():
                    for principal, origins in holders.items():
                        open_origins = [origin for origin, spans in origins.items() if _is_open(spans, moment)]
                        if open_origins:
                            _add(found, key, principal, bit)
                            _add_origins(found, (effect, privilege, key, principal), open_origins)
        for key, owners in self._windows["owners"].items():
            for owner in _open_names(owners, moment):
                _add(found, key, owner, OWNER_BIT)
        found.below = _open_below(self._windows.get("below", {}), moment)
        found.owned_below = {
            key: dict.fromkeys(_open_names(owners, moment), True)
            for key, owners in self._windows.get("owned_below", {}).items()
        }
        found.users = _with_open(found.users, self._windows["principals"], moment)
        found.groups = _with_open(found.groups, self._windows["group_principals"], moment, own_prefix="group:")
        found.scoped = _more_scopes(found.scoped, self._windows["scoped"], moment)
        found.group_scoped = _more_scopes(found.group_scoped, self._windows["group_scoped"], moment)
        brought = dict(found.roles_of_roles)
        for role, times in self._windows.get("brought", {}).items():
            brought[role] = (*brought.get(role, ()), *_open_names(times, moment))
        found.roles_of_roles = brought
        return found


def _spans(value: Any) -> Iterator[list[list[int]]]:
    """Every list of times in nested maps."""
    if isinstance(value, Mapping):
        for part in value.values():
            yield from _spans(part)
    else:
        yield value


def _is_open(spans: list[list[int]], moment: int) -> bool:
    return any(begin <= moment < end for begin, end in spans)


def _open_names(times: Mapping[str, list[list[int]]], moment: int) -> list[str]:
    return [name for name, spans in times.items() if _is_open(spans, moment)]


def _open_below(windows: Mapping[str, Any], moment: int) -> dict[str, dict[str, dict[str, Any]]]:
    """What is held below entities at a moment: privilege → key → principal → for each row, those to whom it is denied."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for privilege, keys in windows.items():
        for key, holders in keys.items():
            for principal, rows in holders.items():
                entry = [_open_names(row["denied"], moment) for row in rows.values() if _is_open(row["times"], moment)]
                if entry:
                    found.setdefault(privilege, {}).setdefault(key, {})[principal] = entry
    return found


def _add(index: Index, key: str, principal: str, bit: int) -> None:
    """Add to what a principal holds on an entity, without changing the holders that the index shares."""
    type_, _, path = key.partition(":")
    table = index.table(type_)
    holders = table.get(path, {})
    table[path] = {**holders, principal: holders.get(principal, 0) | bit}


def _add_origins(index: Index, key: tuple[str, str, str, str], origins: list[str]) -> None:
    """The entities of the rows, for a role within a scope; other principals have their rows on the entity itself."""
    if key[3] in index.within:
        index.origins[key] = tuple(sorted({*index.origins.get(key, ()), *origins}))


def _with_open(
    listed: Mapping[str, tuple[str, ...]], windows: Mapping[str, Any], moment: int, *, own_prefix: str | None = None
) -> dict[str, tuple[str, ...]]:
    """The principals of each name, with those of the moment; a name without any has itself if it begins with `own_prefix`."""
    found = dict(listed)
    for name, times in windows.items():
        now_open = _open_names(times, moment)
        if now_open:
            principals = found.get(name, () if own_prefix is None else (f"{own_prefix}{name}",))
            found[name] = tuple(sorted({*principals, *now_open}))
    return found


def _more_scopes(
    listed: Mapping[str, Mapping[str, tuple[str, ...]]], windows: Mapping[str, Any], moment: int
) -> dict[str, Mapping[str, tuple[str, ...]]]:
    found = dict(listed)
    for name, scopes in windows.items():
        own = dict(found.get(name, {}))
        for scope, times in scopes.items():
            now_open = _open_names(times, moment)
            if now_open:
                own[scope] = tuple(sorted({*own.get(scope, ()), *now_open}))
        if own:
            found[name] = own
    return found


Shortcut: TypeAlias = Callable[[str, str], bool | None]
"""Decides (user, path of the resource). None: the path or the user may be malformed, which the engine reports."""

_NOBODY: tuple[str, ...] = ()


class Level(NamedTuple):
    """One entity of the path and all that is checked on it."""

    table: RawTable
    opened: Callable[[str], Holders]
    needed: int
    """The privileges without which the request is denied."""
    checked: int
    """The same, and their denials."""
    mask: int
    shift: int
    """As in Step."""
    tests: tuple[tuple[int, Special], ...]


def shortcut(plan: FormPlan) -> Shortcut | None:
    """Compile a plan to such a function; None if its form needs more."""
    chain = plan.reader.chains[plan.form.types[RESOURCE]]
    # Each entity down the path adds one name.
    straight = [depth for _, depth in chain] == list(range(1, len(chain) + 1))
    on_path = all(any(step.type == type_ for type_, _ in chain) for step in plan.steps)
    plain = len(plan.form.types) == 1 and plan.form.named and not (plan.semantics.roles or plan.comparisons)
    if not (straight and on_path and plain):
        return None
    required, rest = needed(plan.condition)
    levels = [_level(plan, type_, depth, required) for type_, depth in chain]
    inherited = all(plan.semantics.inherits(atom.privilege) for atom in required)
    simple = rest == ALWAYS_TRUE and inherited and plan.semantics.denies and not plan.owner_bits
    return _conjunction(levels, plan) if simple else _by_facts(plan, levels)


def _level(plan: FormPlan, type_: str, depth: int, required: Sequence[Atom]) -> Level:
    step = next((step for step in plan.steps if step.type == type_), None)
    allowed = plan.index.numbers.allowed
    bits = sum({allowed(atom.privilege) for atom in required if atom.type == type_})
    # Facts about the caller alone are checked at the root.
    tests = [test for test in plan.tests if max(test.depth, 1) == depth]
    table, opened = raw_table(plan.index.table(step.base) if step else {})
    return Level(
        table=table,
        opened=opened,
        needed=bits,
        checked=bits | bits << 1,
        mask=step.mask if step else 0,
        shift=step.shift if step else 0,
        tests=tuple((test.bit, test.through) for test in tests),
    )


def _conjunction(levels: Sequence[Level], plan: FormPlan) -> Shortcut:
    """For conditions that need some inherited privileges and nothing else, with denials."""
    users, stranger = plan.index.callers, plan.index.stranger or _NOBODY
    upper = tuple(level[:4] for level in levels[:-1])
    last, open_last, last_needed, last_looked = levels[-1][:4]

    def answer(user: str, path: str) -> bool | None:
        principals = users.get(user, stranger)
        if (
            (principals is stranger and not _is_name(user))
            or "%" in path
            or "*" in path
            or "?" in path
            or not path.isprintable()
        ):
            return None
        known = 0
        denied = False
        end = -1
        for table, opened, required, checked in upper:
            start = end + 1
            end = path.find("/", start)
            if end <= start:
                return None
            if not denied:
                holders = table.get(path[:end])
                if holders is not None:
                    if isinstance(holders, str):
                        holders = opened(path[:end])
                    for principal in principals:
                        if principal in holders:
                            known |= holders[principal]
                # The rest of the path must still be checked: it may be malformed.
                denied = known & checked != required
        if path.find("/", end + 1) >= 0 or end + 1 == len(path):
            return None
        if denied:
            return False
        holders = last.get(path)
        if holders is not None:
            if isinstance(holders, str):
                holders = open_last(path)
            for principal in principals:
                if principal in holders:
                    known |= holders[principal]
        return known & last_looked == last_needed

    return answer


def _by_facts(plan: FormPlan, levels: Sequence[Level]) -> Shortcut:
    """For all other conditions: gather the atoms along the path into one number, and evaluate the condition on it."""
    users, stranger = plan.index.callers, plan.index.stranger or _NOBODY
    decide, owner_bits = plan.decide, plan.owner_bits
    inherited, denies = plan.inherited, plan.semantics.denies
    slashes = len(levels) - 1

    def answer(user: str, path: str) -> bool | None:
        principals = users.get(user, stranger)
        if (
            (principals is stranger and not _is_name(user))
            or "%" in path
            or "*" in path
            or "?" in path
            or not path.isprintable()
        ):
            return None
        if path.count("/") != slashes or not path or path[0] == "/" or path[-1] == "/" or "//" in path:
            return None
        gathered = known = 0
        end = -1
        for table, opened, required, _, mask, shift, tests in levels:
            end = path.find("/", end + 1)
            prefix = path[:end] if end >= 0 else path
            for bit, through in tests:
                if through(user, principals, principals, prefix):
                    gathered |= bit
            bits = 0
            holders = table.get(prefix)
            if holders is not None:
                if isinstance(holders, str):
                    holders = opened(prefix)
                for principal in principals:
                    if principal in holders:
                        bits |= holders[principal]
            known = known & inherited | bits
            if mask:
                effective = known & ~(known >> 1) if denies else known
                if owner_bits and known & OWNER_BIT:
                    effective |= owner_bits if bits & OWNER_BIT else owner_bits & inherited
                if effective & required != required:
                    return False
                gathered |= (((effective & ~OWNER_BIT) | (bits & OWNER_BIT)) & mask) << shift
        return decide(gathered)

    return answer


def _is_name(user: object) -> bool:
    return type(user) is str and user.isprintable() and ":" not in user and not is_wildcard(user) and user != ""


NAME = "python"
MANY = 1000
"""Requests from which on columns pay off."""

Shortcuts: TypeAlias = Mapping[tuple[str, str], Shortcut]
"""By (type, operation): the decision for (user, path); None: ask the engine."""


def _no_shortcut(user: str, path: str) -> None:
    """The shortcut of operations that have none."""


class LazyShortcuts(dict[tuple[str, str], Shortcut]):
    """Shortcuts by (type, operation), each made on first use; none if shards are missing: each request must be checked then."""

    def __init__(self, engine: RowEngine) -> None:
        super().__init__()
        self._engine = engine

    def __missing__(self, key: tuple[str, str]) -> Shortcut:
        if self._engine.index.missing or key not in self._engine.shapes:
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
    """An engine over a policy and a state.

    Example: `OpenEngine.of(policy_artifacts(program).program, index_document(program, state), moment).engine.allow(request)`.
    """

    engine: PythonEngine
    revision: str | None
    """The revision of the state."""
    missing: frozenset[str]
    """The keys of the root entities whose shards of the state are missing."""
    shortcuts: Shortcuts
    window: Window = moments.ALWAYS
    """The time in which the engine's answers count: at its end, some row of the state begins or ends to hold."""

    @classmethod
    def of(cls, program: Mapping[str, Any], state: Mapping[str, Any], moment: int) -> OpenEngine:
        """Open the engine for a moment, on the documents in the bundles of a policy and a state. Raises PolicyError."""
        opener = Opener()
        return opener.open(program, [opener.keep(state)], moment)


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
        now, opened = time_ns(), self._opened
        if opened is None or not opened.window.holds(now):
            opened = self._opened = Opener().open(self._program, self._state, now)
        return opened.engine.batches().decide_columns(users, resources, **options)


class Opener:
    """Opens the engine on the content of bundles. It can be pickled.

    For example:

        opener = Opener()
        engine = opener.open(program_document, [opener.keep(document)], moment)
    """

    def __init__(self) -> None:
        self._numbers: PrivilegeNumbers | None = None

    def keep(self, document: Mapping[str, Any]) -> Index | StatePart | WindowedIndex:
        """What is kept of a state's document, or of that of one of its parts: the index, or a part of it."""
        if not is_state_part(document):
            return WindowedIndex(document) if WINDOWED in document else Index(document)
        # Parts that are loaded one by one become one index, so they must number privileges alike.
        self._numbers = self._numbers or PrivilegeNumbers()
        return StatePart(document, self._numbers)

    def combined(self, kept: Sequence[Any]) -> Index | WindowedIndex | None:
        """The index of what was kept of a state, whole or in parts; None for several states. Raises PolicyError."""
        if all(isinstance(part, StatePart) for part in kept):
            return Index.of(kept)
        whole: Index | WindowedIndex | None = kept[0] if len(kept) == 1 else None
        return whole

    def open(self, program: Mapping[str, Any], state: Sequence[Any], moment: int) -> OpenEngine:
        """Open the engine for a moment, on what was kept of a state, whole or in parts. Raises PolicyError."""
        index = self.combined(state) or state[0]
        if isinstance(index, WindowedIndex) or index.windows:
            windowed = index if isinstance(index, WindowedIndex) else WindowedIndex.of(index)
            now = self.open(program, [windowed.at(moment)], moment)
            now.engine.timed = TimedBatches(program, state)
            return replace(now, window=windowed.window(moment))
        engine = PythonEngine(program, index, partial=True)
        shortcuts = LazyShortcuts(engine)
        return OpenEngine(engine=engine, revision=index.revision, missing=index.missing, shortcuts=shortcuts)
