"""Speculative copies of slow tasks: rows are decided once, outputs and bundles are those of a run without copies."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import sparks

PROGRAM = '''
import json, sys, time
from pathlib import Path

import decks, sparks
from privtab.pipeline import load_program
from privtab.spark import decide, visible
from privtab.spark.jobs import visible as job
from privtab.spark.state import build

folder, marks = Path(sys.argv[1]), Path(sys.argv[2])
# Speculation needs executors: local mode has none.
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local-cluster[2,1,1024]")
settings = {
    "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4", "spark.sql.adaptive.enabled": "false",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={sparks.LOGGING.as_uri()}",
    "spark.executor.memory": "768m", "spark.speculation": "true", "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.25", "spark.speculation.multiplier": "1.1", "spark.speculation.minTaskRuntime": "100ms",
}
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()

def slow(what):
    """The first attempt at the first partition takes so long that a second one overtakes it."""
    def run(batches):
        from pyspark import TaskContext
        task = TaskContext.get()
        Path(marks, f"{what}-{task.partitionId()}-{task.attemptNumber()}").touch()
        if task.partitionId() == 0 and task.attemptNumber() == 0:
            time.sleep(30)
        yield from batches
    return run

policy, state = decks.files(folder)
asked = spark.createDataFrame([(n, "ann", f"s/a/{n % 3 + 1}") for n in range(400)], "row int, user string, path string").repartition(4)
box = {"subject": "user", "action": "look", "resource": ("box", "path")}
out = {}
for by in ("kernel", "joins"):
    rows = asked.mapInArrow(slow(by), asked.schema)
    decided = decide(rows, policy, state, plan=by, **box)
    decided.write.parquet(str(folder / f"decided-{by}"))
    kept = spark.read.parquet(str(folder / f"decided-{by}")).collect()
    out[by] = sorted((row["row"], row["allowed"]) for row in kept)
grants = spark.createDataFrame(
    [(f"user:u{n}", "allow", "LOOK", f"box:s{n % 5}/a/{n}") for n in range(200)],
    "grantee string, effect string, privilege string, entity string",
)
for name, frame in (("plain", grants), ("slow", grants.repartition(4).mapInArrow(slow("build"), grants.schema))):
    build(spark, {"tables": {"grants": frame}}, load_program(policy), folder / name)
print(json.dumps(out))
'''


@pytest.mark.slow
def test_copies_of_slow_tasks_change_nothing(tmp_path: Path, connected: bool) -> None:
    if connected:
        pytest.skip("the session of this test is its own")
    marks = tmp_path / "marks"
    marks.mkdir()
    (tmp_path / "run.py").write_text(PROGRAM, encoding="utf-8")
    environment = sparks.environment() | {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, tmp_path / "run.py", tmp_path, marks],
        capture_output=True, text=True, check=False, timeout=540, env=environment, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    expected = [[n, n % 3 + 1 != 2] for n in range(400)]
    assert told == {"kernel": expected, "joins": expected}
    seen = {path.name for path in marks.iterdir()}
    for what in ("kernel", "joins", "build"):
        assert {f"{what}-0-0", f"{what}-0-1"} <= seen, f"no copy of a task ran: {sorted(seen)}"
    bundles = {
        name: {
            path.relative_to(tmp_path / name).as_posix(): path.read_bytes()
            for path in (tmp_path / name).rglob("*.tar.gz")
        }
        for name in ("plain", "slow")
    }
    assert len(bundles["plain"]) >= 6
    assert bundles["plain"] == bundles["slow"]
    left = [path for path in (tmp_path / "slow").rglob("*") if "tmp" in path.name or path.name.startswith(".privtab")]
    assert left == []
