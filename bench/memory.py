"""Memory of OPA with a state loaded, compared with hand-written data for the same tables, and the cost of packing it."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from measure import Caller, Report, Spread, Table, Target, resident
from prepared import Prepared, entity, serve
from workload import ancestors

BATCH = 1_000
SETTLE_SECONDS = 2.0
"""Seconds that OPA is idle before its memory is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Memory of an OPA in MiB, one figure for each repetition."""

    loaded: Spread
    asked: Spread
    live: Spread
    """Memory in use after a garbage collection; Go keeps the rest in reserve."""


def report(sizes: Sequence[str], repetitions: int) -> Report:
    """Only the largest size; each repetition starts both OPAs anew."""
    size = sizes[-1]
    with tempfile.TemporaryDirectory(prefix="privtab-bench-") as folder:
        prepared = Prepared(size=size, folder=Path(folder))
        state = prepared.state
        index_seconds = Spread(values=tuple(prepared.time_index(state) for _ in range(min(repetitions, 3))))
        rows: list[tuple[str, ...]] = []
        targets: list[Target] = []
        for members in (False, True):
            ours, hand = _race(prepared, members=members, repetitions=repetitions)
            label = "with members" if members else "without members"
            rows += [_row(f"ours, {label}", ours), _row(f"by hand, {label}", hand)]
            for when, spread in (
                ("after loading", ours.loaded.over(hand.loaded)),
                ("after 10,000 decisions", ours.asked.over(hand.asked)),
            ):
                what = f"{size}: memory {when}, ours / by hand, {label}"
                targets.append(Target(what=what, spread=spread, wanted=1.2, sense="at most"))
        prepared.ours()
        sizes_of = {
            "ours, all tables": prepared.ours(),
            "ours, without owners and members": prepared.ours(everything=False, members=False),
            "by hand": prepared.by_hand(),
        }
        tables = (
            Table(
                title=f"Memory of OPA (RSS, MiB), {size}",
                columns=("bundles", "after loading", "after 10,000 decisions", "of it live"),
                rows=tuple(rows),
            ),
            Table(
                title=f"Packing the state, {size}",
                columns=("step", "seconds"),
                rows=(
                    ("read rows that are in memory", f"{prepared.seconds['read rows']:.1f}"),
                    ("validate every row", f"{prepared.seconds['validate']:.1f}"),
                    ("build the index", index_seconds.text(1)),
                    ("build the index and pack the bundle", f"{prepared.seconds['ours-True-True']:.1f}"),
                ),
            ),
            Table(
                title=f"State bundle, {size}",
                columns=("bundle", "MB"),
                rows=tuple((name, f"{b['state'].stat().st_size / 1e6:.2f}") for name, b in sizes_of.items()),
            ),
        )
    return Report(part="memory", tables=tables, targets=tuple(targets))


def _row(name: str, memory: Memory) -> tuple[str, ...]:
    return (name, memory.loaded.text(), memory.asked.text(), memory.live.text())


def _race(prepared: Prepared, *, members: bool, repetitions: int) -> tuple[Memory, Memory]:
    """Measure ours and the hand-written one alternately."""
    world = prepared.world
    shared = {"action": {"name": "select"}, "resource": {"type": "table"}}
    our_items = [(user, [entity(path) for path in ancestors(table)]) for user, table in world.requests]
    hand_items = [(user, ancestors(table)) for user, table in world.requests]
    our_bundles, hand_bundles = prepared.ours(everything=False, members=members), prepared.by_hand(members=members)
    ours: list[tuple[float, float, float]] = []
    hand: list[tuple[float, float, float]] = []
    for _ in range(repetitions):
        ours.append(_measure(our_bundles, "privtab/gravitino/decisions", shared, our_items))
        hand.append(_measure(hand_bundles, "by_hand/decisions", {}, hand_items))
    return _memory(ours), _memory(hand)


def _memory(figures: Sequence[tuple[float, float, float]]) -> Memory:
    loaded, asked, live = (Spread(values=values) for values in zip(*figures, strict=True))
    return Memory(loaded=loaded, asked=asked, live=live)


def _measure(
    bundles: Mapping[str, Path], path: str, shared: Mapping[str, object], items: Sequence[object]
) -> tuple[float, float, float]:
    """MiB after loading, after the requests, and live."""
    with serve(bundles, "--pprof") as opa:
        time.sleep(SETTLE_SECONDS)
        loaded = resident(opa.process.pid)
        caller = Caller(opa.url)
        for start in range(0, len(items), BATCH):
            caller.ask(path, {**shared, "items": items[start : start + BATCH]})
        time.sleep(SETTLE_SECONDS)
        return loaded, resident(opa.process.pid), _live(caller)


def _live(caller: Caller) -> float:
    """MiB in use after a garbage collection, from OPA's heap profile."""
    profile = caller.read("/debug/pprof/heap?gc=1&debug=1").decode()
    found = re.search(r"# HeapAlloc = (\d+)", profile)
    if found is None:
        raise ValueError("the profile does not tell the size of the heap")
    return int(found[1]) / 2**20
