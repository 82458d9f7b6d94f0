"""Compile times of whole processes, for the shipped policies and for generated ones of 1,000 and 10,000 rows."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from measure import Report, Spread, Table, Target

from privtab.pipeline import find_policies, load_program

SHIPPED = Path(__file__).resolve().parent.parent / "policy_src"
ROWS = (1_000, 10_000)
ROWS_PER_AREA = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Seconds that a process takes: wall time and processor time."""

    wall: float
    processor: float


def report(_sizes: Sequence[str], repetitions: int) -> Report:
    """Shipped policies, together and one by one, and generated ones."""
    with tempfile.TemporaryDirectory(prefix="privtab-bench-") as name:
        folder = Path(name)
        policies = {"every shipped policy": SHIPPED} | {short_name(path): path for path in find_policies([SHIPPED])}
        shipped = _race(policies, folder, repetitions)
        generated = {f"generated, {rows:,} rows": folder / f"rows_{rows}.yaml" for rows in ROWS}
        for rows, path in zip(ROWS, generated.values(), strict=True):
            path.write_text("\n".join(policy_text(rows)) + "\n", encoding="utf-8")
        grown = _race(generated, folder, min(repetitions, 3))
        counts = {
            name: len(load_program(path).rules) for name, path in {**policies, **generated}.items() if path.is_file()
        }
        start = _race({"nothing: `privtab --help`": None}, folder, repetitions)
    everything = {**start, **shipped, **grown}
    rows_of = {"every shipped policy": sum(counts[short_name(path)] for path in find_policies([SHIPPED]))} | counts
    table = Table(
        title="Seconds of `privtab compile`: median (min..max)",
        columns=("policy", "rules", "wall", "processor", "processor ms/rule, start excluded"),
        rows=tuple(
            (
                name,
                f"{rows_of[name]:,}" if name in rows_of else "",
                spread(costs, "wall").text(2),
                spread(costs, "processor").text(2),
                f"{1000 * _beyond(costs, start) / rows_of[name]:.2f}" if name in rows_of else "",
            )
            for name, costs in everything.items()
        ),
    )
    small, large = (spread(costs, "processor") for costs in grown.values())
    begin = spread(next(iter(start.values())), "processor").median
    per_row = [
        Spread(values=tuple((value - begin) / rows_of[name] for value in spread.values))
        for name, spread in zip(grown, (small, large), strict=True)
    ]
    largest = max((name for name in policies if name in counts), key=lambda name: counts[name])
    return Report(
        part="compile",
        tables=(table,),
        targets=(
            Target(
                what="every shipped policy", spread=spread(shipped["every shipped policy"], "wall"), wanted=5,
                sense="at most", unit=" s",
            ),
            Target(
                what=f"the largest, {largest}", spread=spread(shipped[largest], "wall"), wanted=2, sense="at most",
                unit=" s",
            ),
            Target(
                what="time of a row, 10,000 rows / 1,000 rows", spread=per_row[1].over(per_row[0]), wanted=1.3,
                sense="at most",
            ),
        ),
    )  # fmt: skip


def policy_text(rows: int) -> Iterator[str]:
    """A policy with that many rows: under one root, areas of four types, each with its own privileges and operations."""
    areas = range(rows // ROWS_PER_AREA)
    yield from (
        "privtab: 1",
        "system: generated",
        "version: 1.0.0",
        "title: A generated policy",
        "entities:",
        "  account:",
    )
    for n in areas:
        yield f"    area_{n}: {{folder_{n}: {{item_{n}:, report_{n}:}}}}"
    yield "privileges:"
    for n in areas:
        yield f"  USE_{n}: {{on: [account, area_{n}, folder_{n}]}}"
        for verb in ("CREATE", "READ", "WRITE"):
            yield f"  {verb}_{n}: {{on: [account, area_{n}, folder_{n}, item_{n}, report_{n}]}}"
    yield "sets:"
    for n in areas:
        yield f"  EDIT_{n}: [READ_{n}, WRITE_{n}]"
    yield from ("semantics:", "  inheritance: down", "  deny: overrides")
    yield from ("  owner: {kinds: [user, group], creator: true}", "  gate: member (account)", "tables:")
    for n in areas:
        yield from _area(n)


def _area(n: int) -> Iterator[str]:
    above = f"account, area_{n}"
    yield f"  area_{n}:"
    yield f"    create: {{requires: CREATE_{n} (account) or owner (account), note: Only for those who run the account.}}"
    yield f"    load: USE_{n} (area_{n}) or owner ({above})"
    yield f"    list: {{each: can load (area_{n})}}"
    yield f'    delete: {{requires: "owner ({above})", revokes: owner}}'
    yield f"  folder_{n}:"
    yield f"    create: can load (area_{n}) and (CREATE_{n} (area_{n}) or owner ({above}))"
    yield f"    load: can load (area_{n}) and (USE_{n} (folder_{n}) or owner ({above}, folder_{n}))"
    yield f"    list: {{requires: can load (area_{n}), each: can load (folder_{n})}}"
    yield f'    delete: {{requires: "can load (area_{n}) and owner ({above}, folder_{n})", revokes: owner}}'
    for kind in ("item", "report"):
        owner = f"owner ({above}, folder_{n}, {kind}_{n})"
        yield f"  {kind}_{n}:"
        yield f"    create: {{requires: can load (folder_{n}) and CREATE_{n} (folder_{n}), grants: EDIT_{n} ({kind}_{n})}}"
        yield f"    load: can load (folder_{n}) and (READ_{n}/WRITE_{n} ({kind}_{n}) or {owner})"
        yield f"    list: {{requires: can load (folder_{n}), each: can load ({kind}_{n})}}"
        yield f"    update, rename: can load (folder_{n}) and (WRITE_{n} ({kind}_{n}) or {owner})"
        yield f'    delete: {{requires: "can load (folder_{n}) and {owner}", revokes: owner}}'


def _race(policies: Mapping[str, Path | None], folder: Path, repetitions: int) -> dict[str, list[Cost]]:
    """The costs of compiling each policy; None runs `--help` only."""
    costs: dict[str, list[Cost]] = {name: [] for name in policies}
    for _ in range(repetitions):
        for name, path in policies.items():
            arguments = (
                ["--help"]
                if path is None
                else ["compile", str(path), "-o", str(folder / "out" / name.replace("/", "-"))]
            )
            costs[name].append(cost(arguments))
    return costs


def cost(arguments: Sequence[str], codes: Sequence[int] = (0,)) -> Cost:
    """Run privtab and measure it; raises CalledProcessError unless its exit code is one of `codes`."""
    command = [sys.executable, "-m", "privtab", *arguments]
    before = os.times()
    started = time.perf_counter()
    done = subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wall = time.perf_counter() - started
    if done.returncode not in codes:
        done.check_returncode()
    after = os.times()
    spent = after.children_user - before.children_user + after.children_system - before.children_system
    return Cost(wall=wall, processor=spent)


def spread(costs: Sequence[Cost], what: str) -> Spread:
    """The `wall` or `processor` time of each cost."""
    return Spread(values=tuple(getattr(cost, what) for cost in costs))


def _beyond(costs: Sequence[Cost], start: dict[str, list[Cost]]) -> float:
    begin = spread(next(iter(start.values())), "processor").median
    return max(spread(costs, "processor").median - begin, 0)


def short_name(path: Path) -> str:
    """The name of a shipped policy: `cdap/final`."""
    return path.relative_to(SHIPPED).with_suffix("").as_posix()
