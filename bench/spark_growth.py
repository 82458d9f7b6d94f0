"""Growing numbers of rows, decided by the kernel: seconds, and the memory of all processes."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from measure import Spread, Table, Target, WrongAnswerError

GROWTH = (1_000_000, 10_000_000, 100_000_000)
MEMORY_MIB = 4096


def growth(size: str, repetitions: int) -> tuple[Mapping[int, Spread], float]:
    """Seconds by number of rows, which are generated while they are decided and not written; and the peak memory in MiB."""
    import spark_sessions
    from prepared import Prepared
    from pyspark.sql import functions as F  # noqa: N812
    from tree import Peak

    from privtab_spark import decide

    seconds: dict[int, list[float]] = {rows: [] for rows in GROWTH}
    session = spark_sessions.session(memory="2g")
    try:
        with tempfile.TemporaryDirectory(prefix="privtab-bench-") as name:
            prepared = Prepared(size=size, folder=Path(name))
            of = prepared.world.size
            bundle = prepared.ours()["state"]
            user = F.expr(f"concat('u', cast(pmod(xxhash64(id), {of.users}) as string))")
            table = F.expr(
                f"concat_ws('/', 'm', concat('c', pmod(xxhash64(id, 1), {of.catalogs})), "
                f"concat('s', pmod(xxhash64(id, 2), {of.schemas})), concat('t', pmod(xxhash64(id, 3), {of.tables})))"
            )

            def run(rows: int) -> int:
                made = session.range(rows, numPartitions=max(2, rows // 2_000_000)).select(
                    user.alias("user"), table.alias("table")
                )
                decided = decide(
                    made, prepared.program, bundle, subject="user", action="select", resource=("table", "table"),
                    plan="kernel",
                )  # fmt: skip
                return int(decided.where("allowed").count())

            run(GROWTH[0])
            with Peak() as peak:
                for _ in range(repetitions):
                    counted = []
                    for rows in GROWTH:
                        started = time.perf_counter()
                        counted.append(run(rows))
                        seconds[rows].append(time.perf_counter() - started)
                    if not all(counted):
                        raise WrongAnswerError(f"growing: nobody may do anything: {counted}")
    finally:
        session.stop()
    return {rows: Spread(values=tuple(of_rows)) for rows, of_rows in seconds.items()}, peak.mib


def growth_table(seconds: Mapping[int, Spread], mib: float) -> Table:
    """Seconds and rates by number of rows."""
    return Table(
        title=f"Growing, kernel, rows made by `spark.range`; all processes together at most {mib:,.0f} MiB",
        columns=("rows", "seconds", "rows a second"),
        rows=tuple((f"{n:,}", s.text(1), f"{n / s.median:,.0f}") for n, s in seconds.items()),
    )


def growth_targets(seconds: Mapping[int, Spread], mib: float) -> list[Target]:
    """The time grows as the number of rows, and the memory is bounded."""
    steps = itertools.pairwise(GROWTH)
    return [
        *(
            Target(
                what=f"time for {more:,} rows / ten times that for {rows:,}",
                spread=Spread(values=tuple(s / 10 for s in seconds[more].over(seconds[rows]).values)),
                wanted=1.15,
                sense="at most",
            )
            for rows, more in steps
        ),
        Target(
            what="memory of all processes", spread=Spread(values=(mib,)), wanted=MEMORY_MIB, sense="at most", digits=0,
            unit=" MiB",
        ),
    ]  # fmt: skip
