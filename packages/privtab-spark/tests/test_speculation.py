"""Speculative copies of slow tasks: rows are decided once, outputs and bundles are those of a run without copies."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyspark
import pytest
import spark_sessions
from failing_servers import free_port

PROGRAM = '''
import json, sys, time
from pathlib import Path

import decision_rows, spark_sessions
from privtab.pipeline import load_program
from privtab_spark import decide
from privtab_spark.state import build

folder, marks = Path(sys.argv[1]), Path(sys.argv[2])
from pyspark.sql import SparkSession
builder = SparkSession.builder.master(sys.argv[3])
settings = {
    "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4", "spark.sql.adaptive.enabled": "false",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={spark_sessions.LOGGING.as_uri()}",
    "spark.executor.memory": "768m", "spark.executor.cores": "1", "spark.pyspark.python": sys.executable,
    "spark.executorEnv.PYTHONPATH": ":".join(sys.path), "spark.cores.max": "2",
    "spark.speculation": "true", "spark.speculation.interval": "100ms",
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
            time.sleep(150)
        yield from batches
    return run

# What Python workers take to start is no measure of a slow task.
spark.range(8).repartition(4).mapInArrow(lambda batches: batches, "id long").count()
policy, state = decision_rows.files(folder)
asked = spark.createDataFrame([(n, "ann", f"s/a/{n % 3 + 1}") for n in range(400)], "row int, user string, path string").repartition(4)
box = {"subject": "user", "action": "look", "resource": ("box", "path")}
out = {}
for by in ("kernel", "portions"):
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


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """A master and two workers. Local modes have no copies: Spark starts one only on another host, as 127.0.0.3 is here."""
    start = Path(pyspark.__file__).parent / "bin" / "spark-class"
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    master = ["master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
    workers = [
        [
            "worker.Worker", "--host", f"127.0.0.{n}", "--cores", "1", "--memory", "1g", "--webui-port", "0",
            "--work-dir", str(tmp_path / f"work-{n}"), url,
        ]
        for n in (2, 3)
    ]  # fmt: skip
    with ExitStack() as stack:
        for name, *arguments in (master, *workers):
            host = arguments[1]
            log = stack.enter_context((tmp_path / f"{host}.log").open("wb"))
            process = subprocess.Popen(
                [start, f"org.apache.spark.deploy.{name}", *arguments],
                stdout=log, stderr=log, env=spark_sessions.environment() | {"SPARK_LOCAL_IP": host}, cwd=tmp_path,
            )  # fmt: skip
            stack.callback(process.wait)
            stack.callback(process.terminate)
        yield url


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="all of 127.0.0.0/8 is this machine on Linux")
def test_copies_of_slow_tasks_change_nothing(tmp_path: Path, connected: bool, cluster: str) -> None:
    if connected:
        pytest.skip("the session of this test is its own")
    marks = tmp_path / "marks"
    marks.mkdir()
    (tmp_path / "run.py").write_text(PROGRAM, encoding="utf-8")
    environment = spark_sessions.environment() | {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    done = subprocess.run(
        [sys.executable, tmp_path / "run.py", tmp_path, marks, cluster],
        capture_output=True, text=True, check=False, timeout=540, env=environment, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    document = json.loads(done.stdout.splitlines()[-1])
    expected = [[n, n % 3 + 1 != 2] for n in range(400)]
    assert document == {"kernel": expected, "portions": expected}
    seen = {path.name for path in marks.iterdir()}
    for what in ("kernel", "portions", "build"):
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
