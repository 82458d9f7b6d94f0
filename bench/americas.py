"""Decide all of a real data set: 3,485 users by 10,127 permissions on Spark, and a sample with OPA.

    python bench/americas.py [FOLDER]     a single run

The data is `americas_large` of the role mining literature (HP Labs), in FOLDER, $PRIVTAB_AMERICAS, or `../shared/data/americas_large`
relative to the checkout. Each permission of a role is a grant of READ on a dataset, each role of a user an assignment.
"""

from __future__ import annotations

import csv
import gzip
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure import Report, Spread, Table, Target, WrongAnswerError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from privtab.state.nodes import State

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT.parent / "shared" / "data" / "americas_large"
VARIABLE = "PRIVTAB_AMERICAS"
POLICY = "cdap/final"
SAMPLE = 100_000
SECONDS, MIB = 60.0, 4096.0
STAGES = ("start Spark", "read the data", "prepare the state", "decide every pair", "compare")


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """Roles of users, permissions of roles, and the resulting (user, permission) pairs. All are numbers as text."""

    user_role: tuple[tuple[str, str], ...]
    role_permission: tuple[tuple[str, str], ...]
    user_permission: frozenset[tuple[str, str]]

    @property
    def users(self) -> list[str]:
        """All users, sorted."""
        return sorted({user for user, _ in self.user_role} | {user for user, _ in self.user_permission})

    @property
    def permissions(self) -> list[str]:
        """All permissions, sorted."""
        return sorted({p for _, p in self.role_permission} | {p for _, p in self.user_permission})

    def state(self) -> State:
        """The data as a state."""
        from privtab.base.request import Entity
        from privtab.state.nodes import Assignment, Grant, State

        entities = {p: Entity("dataset", path(p)) for _, p in self.role_permission}
        return State(
            assignments=tuple(Assignment(principal=f"user:{user}", role=role) for user, role in self.user_role),
            grants=tuple(
                Grant(grantee=f"role:{role}", effect="allow", privilege="READ", entity=entities[permission])
                for role, permission in self.role_permission
            ),
        )


def path(permission: str) -> str:
    """The path of the dataset that represents a permission."""
    return f"i/n/d{permission}"


def folder() -> Path | None:
    """The folder with the data; None if there is none."""
    given = os.environ.get(VARIABLE)
    found = Path(given) if given else FOLDER
    return found if (found / "user_permission.csv.gz").is_file() else None


def read(where: Path) -> Data:
    """Read the three tables."""
    return Data(
        user_role=tuple(_rows(where / "user_role.csv.gz")),
        role_permission=tuple(_rows(where / "role_permission.csv.gz")),
        user_permission=frozenset(_rows(where / "user_permission.csv.gz")),
    )


def made_up(users: int, roles: int, permissions: int, seed: int = 0) -> Data:
    """Random data of the same shape."""
    rnd = random.Random(seed)
    held = {(str(u), str(rnd.randint(1, roles))) for u in range(1, users + 1) for _ in range(rnd.randint(0, 3))}
    given = {(str(r), str(rnd.randint(1, permissions))) for r in range(1, roles + 1) for _ in range(rnd.randint(1, 40))}
    by_role: dict[str, list[str]] = {}
    for role, permission in given:
        by_role.setdefault(role, []).append(permission)
    follows = frozenset((user, p) for user, role in held for p in by_role[role])
    return Data(user_role=tuple(sorted(held)), role_permission=tuple(sorted(given)), user_permission=follows)


def _rows(file: Path) -> Iterator[tuple[str, str]]:
    with gzip.open(file, "rt", encoding="ascii", newline="") as lines:
        rows = csv.reader(lines)
        next(rows)
        yield from ((one, other) for one, other in rows)


@dataclass
class Clock:
    """Seconds by stage."""

    stages: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage; times of stages with the same name are added."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.stages[name] = self.stages.get(name, 0.0) + time.perf_counter() - started


def on_spark(spark: SparkSession, data: Data, clock: Clock, plan: str = "auto") -> int:
    """Decide every pair of a user and a permission; returns their number. Raises WrongAnswerError for wrong answers."""
    import pyarrow as pa
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812  (the conventional name)

    from privtab_spark import decide

    users, permissions = data.users, data.permissions
    with clock.stage(STAGES[2]):
        one = spark.createDataFrame(pa.table({"user": users})).repartition(8)
        other = spark.createDataFrame(pa.table({"path": [path(p) for p in permissions]}))
        pairs = one.crossJoin(F.broadcast(other))
        decided = decide(
            pairs, POLICY, data.state(), subject="user", action="get", resource=("dataset", "path"), plan=plan
        )  # fmt: skip
    with clock.stage(STAGES[3]):
        seen = Observation("pairs")
        counted = decided.observe(seen, F.count(F.lit(1)).alias("rows"), F.count_if(F.col("allowed")).alias("allowed"))
        table = counted.where("allowed").select("user", "path").toArrow()
    with clock.stage(STAGES[4]):
        found = list(zip(table["user"].to_pylist(), table["path"].to_pylist(), strict=True))
        wanted = {(user, path(permission)) for user, permission in data.user_permission}
        got = set(found)
        if len(found) != len(got) or got != wanted:
            raise WrongAnswerError(
                f"Spark: {len(got - wanted)} pairs too many, {len(wanted - got)} too few, {len(found) - len(got)} twice"
            )
        figures: Mapping[str, Any] = seen.get
        if figures["rows"] != len(users) * len(permissions) or figures["allowed"] != len(wanted):
            raise WrongAnswerError(f"Spark decided {figures['rows']} pairs and allowed {figures['allowed']}")
    return int(figures["rows"])


def sampled(data: Data, count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Random pairs, at least half of them allowed."""
    rnd = random.Random(seed)
    allowed = sorted(data.user_permission)
    users, permissions = data.users, data.permissions
    half = rnd.choices(allowed, k=count // 2)
    return [*half, *((rnd.choice(users), rnd.choice(permissions)) for _ in range(count - len(half)))]


def through_bundles(data: Data, count: int, clock: Clock) -> None:
    """Decide a sample with a real OPA; raises WrongAnswerError if an answer differs from the data."""
    from privtab import Client
    from privtab.base.request import Entity, Request
    from privtab.bundle.pack import state_bundle
    from privtab.engines.opa.server import OpaServer
    from privtab.pipeline import load_program, policy_artifacts

    program = load_program(POLICY)
    pairs = sampled(data, count)
    requests = [Request(user=u, action="get", resource=Entity("dataset", path(p))) for u, p in pairs]
    truth = [pair in data.user_permission for pair in pairs]
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        (place / "policy.tar.gz").write_bytes(policy_artifacts(program).bundle())
        (place / "state.tar.gz").write_bytes(state_bundle(program, data.state()))
        bundles = {"policy": place / "policy.tar.gz", "state": place / "state.tar.gz"}
        with OpaServer(bundles) as opa, Client(opa.url, system=program.system) as client, clock.stage("OPA"):
            _compare("OPA", client.check_many(requests), truth)


def _compare(name: str, answers: Sequence[object], truth: Sequence[bool]) -> None:
    wrong = sum(bool(answer) is not wanted for answer, wanted in zip(answers, truth, strict=True))
    if wrong:
        raise WrongAnswerError(f"{name}: {wrong} of {len(truth)} answers differ from the data")


def report(sizes: Sequence[str], repetitions: int) -> Report:
    """Each repetition is a new process, including the start of Spark; without the data, the report only says so."""
    del sizes
    where = folder()
    if where is None:
        told = f"not measured: no data in {FOLDER.name}; ${VARIABLE} names its folder"
        return Report(part="americas", tables=(Table(title="Real data", columns=("americas_large",), rows=((told,),)),))
    runs = [_run(where) for _ in range(max(1, min(repetitions, 3)))]
    total = Spread(values=tuple(run["seconds"] for run in runs))
    peak = Spread(values=tuple(run["mib"] for run in runs))
    pairs = runs[0]["pairs"]
    stages = [(name, Spread(values=tuple(run["stages"][name] for run in runs))) for name in STAGES]
    rows = [(name, spread.text(1), f"{spread.median / total.median:.0%}") for name, spread in stages]
    rows.append(("**end to end**", total.text(1), "100%"))
    clock = Clock()
    through_bundles(read(where), SAMPLE, clock)
    sample = [(name, f"{SAMPLE / seconds:,.0f}") for name, seconds in clock.stages.items()]
    return Report(
        part="americas",
        tables=(
            Table(
                title=f"{pairs:,} pairs of real data on Spark, local[2]",
                columns=("stage", "s", "share"),
                rows=tuple(rows),
            ),
            Table(
                title=f"{SAMPLE:,} of them elsewhere, the same answers",
                columns=("engine", "decisions/s"),
                rows=tuple(sample),
            ),
        ),
        targets=(
            Target(
                what="the americas matrix end to end",
                spread=total,
                wanted=SECONDS,
                sense="at most",
                digits=1,
                unit=" s",
            ),
            Target(
                what="memory of driver, JVM and workers",
                spread=peak,
                wanted=MIB,
                sense="at most",
                digits=0,
                unit=" MiB",
            ),
        ),
    )


def _run(where: Path) -> dict[str, Any]:
    """One run in a new process."""
    done = subprocess.run([sys.executable, __file__, str(where), "--json"], capture_output=True, text=True, check=False)
    if done.returncode == 1:
        raise WrongAnswerError(done.stderr.strip().splitlines()[-1])
    done.check_returncode()
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def whole(where: Path) -> dict[str, Any]:
    """Start Spark, decide everything and compare; returns seconds by stage and peak memory."""
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    import spark_sessions
    from tree import Peak

    clock = Clock()
    started = time.perf_counter()
    with Peak() as peak:
        with clock.stage(STAGES[0]):
            session = spark_sessions.session(memory="2g")
            session.range(1).count()
        try:
            with clock.stage(STAGES[1]):
                data = read(where)
            pairs = on_spark(session, data, clock)
            seconds = time.perf_counter() - started
        finally:
            session.stop()
    return {"pairs": pairs, "seconds": seconds, "mib": peak.mib, "stages": clock.stages}


def main(arguments: Sequence[str]) -> int:
    """One run; exit code 1 for wrong answers, 2 without data."""
    named = [argument for argument in arguments if not argument.startswith("-")]
    where = Path(named[0]) if named else folder()
    if where is None or not (where / "user_permission.csv.gz").is_file():
        sys.stderr.write(f"no data: name the folder of americas_large, or set {VARIABLE}\n")
        return 2
    try:
        found = whole(where)
    except WrongAnswerError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if "--json" in arguments:
        print(json.dumps(found))
    else:
        stages = itertools.chain(found["stages"].items(), [("end to end", found["seconds"])])
        print("\n".join(f"{name:20} {seconds:6.1f} s" for name, seconds in stages))
        print(f"{found['pairs']:,} pairs, {found['mib']:,.0f} MiB at the most")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
