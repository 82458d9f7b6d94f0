"""OPA's memory with a state loaded, beside the hand-written shape with the same tables; and what packing it costs."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from measure import Caller, Report, Spread, Table, Target, resident
from prepared import Prepared, entity, serve
from workload import ancestors

BATCH = 1_000
SETTLE_SECONDS = 2.0
"""How long OPA is left alone before its memory is read."""


def report(sizes: Sequence[str], repetitions: int) -> Report:
    """The largest size; each repetition starts both OPAs anew."""
    size = sizes[-1]
    with tempfile.TemporaryDirectory(prefix="privtab-bench-") as folder:
        prepared = Prepared(size=size, folder=Path(folder))
        index_seconds = Spread(values=tuple(prepared.time_index() for _ in range(min(repetitions, 3))))
        rows: list[tuple[str, ...]] = []
        targets: list[Target] = []
        for members in (False, True):
            ours, hand = _race(prepared, members=members, repetitions=repetitions)
            label = "with members" if members else "without members"
            rows += [_row(f"ours, {label}", ours), _row(f"by hand, {label}", hand)]
            targets.append(
                Target(
                    what=f"{size}: memory after 10,000 decisions, ours / by hand, {label}",
                    spread=ours[1].over(hand[1]),
                    wanted=1.2,
                    sense="at most",
                )
            )
        prepared.ours()
        sizes_of = {
            "ours, all tables": prepared.ours(),
            "ours, without owners and members": prepared.ours(everything=False, members=False),
            "by hand": prepared.by_hand(),
        }
        tables = (
            Table(
                title=f"Memory of OPA (RSS, MiB), {size}",
                columns=("bundles", "after loading", "after 10,000 decisions"),
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


def _row(name: str, figures: tuple[Spread, Spread]) -> tuple[str, ...]:
    return (name, *(figure.text() for figure in figures))


def _race(
    prepared: Prepared, *, members: bool, repetitions: int
) -> tuple[tuple[Spread, Spread], tuple[Spread, Spread]]:
    """MiB after loading and after the requests, of both."""
    world = prepared.world
    ours = [(user, [entity(path) for path in ancestors(table)]) for user, table in world.requests]
    shared = {"action": {"name": "select"}, "resource": {"type": "table"}}
    hand = [(user, ancestors(table)) for user, table in world.requests]
    found: dict[str, list[tuple[float, float]]] = {"ours": [], "hand": []}
    for _ in range(repetitions):
        bundles = prepared.ours(everything=False, members=members)
        found["ours"].append(_measure(bundles, "privtab/gravitino/decisions", shared, ours))
        bundles = prepared.by_hand(members=members)
        found["hand"].append(_measure(bundles, "by_hand/decisions", {}, hand))
    return (
        tuple(Spread(values=values) for values in zip(*found["ours"], strict=True)),
        tuple(Spread(values=values) for values in zip(*found["hand"], strict=True)),
    )  # type: ignore[return-value]  # two figures in each


def _measure(
    bundles: Mapping[str, Path], path: str, shared: Mapping[str, object], items: Sequence[object]
) -> tuple[float, float]:
    with serve(bundles) as opa:
        time.sleep(SETTLE_SECONDS)
        loaded = resident(opa.process.pid)
        caller = Caller(opa.url)
        for start in range(0, len(items), BATCH):
            caller.ask(path, {**shared, "items": items[start : start + BATCH]})
        time.sleep(SETTLE_SECONDS)
        return loaded, resident(opa.process.pid)
