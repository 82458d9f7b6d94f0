"""Streams follow the state: what is revoked while they run is denied, within the bound that was asked for."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import decision_rows
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)

from privtab import Embedded, pipeline
from privtab.base import UsageError
from privtab.bundle import state_bundle
from privtab.pipeline import policy_artifacts
from privtab.state import load_raw_state, validate
from privtab_spark import Limits, decide, decide_with, each_batch, plan, visible
from privtab_spark.state import state_tables

BOX: dict[str, Any] = {"subject": "user", "action": "look", "resource": ("box", "path")}
REVOKED = decision_rows.STATE.replace(
    '  - {grantee: "user:ann", effect: allow, privilege: LOOK, entity: "shop:s"}\n', ""
)
_NAMES = (f"stream_{at}" for at in itertools.count())


class Stream:
    """Requests of ann for a box of hers, one more each time, and the answers so far."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder / "in"
        self.folder.mkdir()
        self.checkpoint = folder / "checkpoint"
        self.next_number = 0
        self.name = next(_NAMES)
        self.query: Any = None

    @property
    def rows(self) -> DataFrame:
        """The stream."""
        return self.spark.readStream.schema("n int, user string, path string").json(self.folder.as_uri())

    def started(self, decided: DataFrame) -> Stream:
        """With the answers in a table of memory."""
        writer = decided.writeStream.format("memory").queryName(self.name)
        self.query = writer.option("checkpointLocation", self.checkpoint.as_uri()).start()
        return self

    def each(self, function: Callable[[DataFrame, int], None]) -> Stream:
        """With a function for each micro-batch."""
        writer = self.rows.writeStream.foreachBatch(function)
        self.query = writer.option("checkpointLocation", self.checkpoint.as_uri()).start()
        return self

    def ask(self) -> None:
        """One more micro-batch with one request."""
        part = self.folder.parent / "part.json"
        part.write_text(f'{{"n": {self.next_number}, "user": "ann", "path": "s/a/1"}}\n')
        part.rename(self.folder / f"{self.next_number}.json")
        self.next_number += 1
        self.query.processAllAvailable()

    def answers(self) -> list[bool]:
        """Those of memory, in the order of the requests."""
        return [row["allowed"] for row in self.spark.table(self.name).orderBy("n").collect()]


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Iterator[Stream]:
    stream = Stream(spark, tmp_path)
    yield stream
    if stream.query is not None:
        stream.query.stop()


@pytest.fixture
def policy_and_state(tmp_path: Path) -> tuple[str, str]:
    return decision_rows.files(tmp_path)


def replaced(path: str | Path, content: str | bytes) -> None:
    """The file as a deployment replaces it: at once."""
    part = Path(f"{path}.part")
    part.write_bytes(content.encode() if isinstance(content, str) else content)
    part.rename(path)


def bundled(policy: str, state: str) -> bytes:
    program = pipeline.load_program(policy)
    Path(f"{policy}.state.yaml").write_text(state)
    return state_bundle(program, validate(program, load_raw_state(f"{policy}.state.yaml"))[0])


@pytest.mark.slow
def test_a_grant_that_is_revoked_in_mid_stream_is_denied_from_then_on(
    stream: Stream, policy_and_state: tuple[str, str]
) -> None:
    policy, state = policy_and_state
    stream.started(decide(stream.rows, policy, state, refresh=0, **BOX))
    stream.ask()
    stream.ask()
    replaced(state, REVOKED)
    stream.ask()
    stream.ask()
    replaced(state, decision_rows.STATE)
    stream.ask()
    assert stream.answers() == [True, True, False, False, True]


@pytest.mark.slow
def test_a_folder_of_bundles_is_followed_and_within_the_bound_an_older_look_counts(
    stream: Stream, policy_and_state: tuple[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "bundles"
    folder.mkdir()
    (folder / "policy.tar.gz").write_bytes(policy_artifacts(pipeline.load_program(policy_and_state[0])).bundle())
    replaced(folder / "state.tar.gz", bundled(policy_and_state[0], decision_rows.STATE))
    both = visible(
        stream.rows, policy_and_state[0], folder, refresh=0, action="look", subject="user", resource=("box", "path")
    )
    lasting = decide(both, folder / "policy.tar.gz", folder, refresh=3600, **BOX)
    stream.started(lasting)
    stream.ask()
    replaced(
        folder / "state.tar.gz",
        bundled(policy_and_state[0], decision_rows.STATE + "memberships: [{user: ann, group: it}]\n"),
    )
    stream.ask()
    replaced(folder / "state.tar.gz", bundled(policy_and_state[0], REVOKED))
    stream.ask()
    assert stream.answers() == [True, True], "the first decision follows at once, and drops the row"
    assert "no answer is based on a check more than 3600 seconds old" in str(
        plan(stream.rows, policy_and_state[0], folder, refresh=3600, **BOX)
    )


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder and the address at which a server has it."""
    folder = tmp_path / "served"
    folder.mkdir()

    class Quiet(SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(folder))

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.slow
def test_a_bundle_behind_an_address_is_followed_and_denies_once_it_cannot_be_checked(
    stream: Stream, policy_and_state: tuple[str, str], served: tuple[Path, str]
) -> None:
    folder, address = served
    replaced(folder / "state.tar.gz", bundled(policy_and_state[0], decision_rows.STATE))
    stream.started(decide(stream.rows, policy_and_state[0], f"{address}/state.tar.gz", refresh=0, **BOX))
    stream.ask()
    replaced(folder / "state.tar.gz", bundled(policy_and_state[0], REVOKED))
    stream.ask()
    assert stream.answers() == [True, False]
    (folder / "state.tar.gz").unlink()
    with pytest.raises(Exception, match="DecisionUnavailable"):
        stream.ask()
    assert stream.answers() == [True, False]


@pytest.mark.slow
def test_rows_that_are_wrong_end_the_stream(stream: Stream, policy_and_state: tuple[str, str]) -> None:
    stream.started(decide(stream.rows, *policy_and_state, refresh=0, **BOX))
    stream.ask()
    replaced(policy_and_state[1], "grants: [{grantee: 'user:ann', effect: deny, privilege: LOKO, entity: 'shop:s'}]\n")
    with pytest.raises(Exception, match="DecisionUnavailable"):
        stream.ask()
    assert stream.answers() == [True]


@pytest.mark.slow
def test_a_client_in_the_executors_follows_its_bundles(
    stream: Stream, policy_and_state: tuple[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "bundles"
    folder.mkdir()
    (folder / "policy.tar.gz").write_bytes(policy_artifacts(pipeline.load_program(policy_and_state[0])).bundle())
    replaced(folder / "state.tar.gz", bundled(policy_and_state[0], decision_rows.STATE))
    with pytest.raises(UsageError, match="keeps its first bundles"):
        decide_with(stream.rows, Embedded(folder), **BOX)
    with pytest.raises(UsageError, match="keeps its first bundles"):
        decide_with(stream.rows, lambda: Embedded(folder), **BOX)
    stream.started(decide_with(stream.rows, folder, refresh=0, **BOX))
    stream.ask()
    replaced(folder / "state.tar.gz", bundled(policy_and_state[0], REVOKED))
    stream.ask()
    assert stream.answers() == [True, False]


@pytest.mark.slow
@pytest.mark.parametrize("by", ["kernel", pytest.param("portions", marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", ["path", pytest.param("function", marks=pytest.mark.long)])
def test_each_micro_batch_is_decided_by_the_state_of_its_moment(
    by: str, kind: str, stream: Stream, policy_and_state: tuple[str, str], tmp_path: Path
) -> None:
    grants = tmp_path / "grants.csv"
    rows = "grantee,effect,privilege,entity\n"
    grant_of_ann = "user:ann,allow,LOOK,shop:s\n"
    grants.write_text(rows + grant_of_ann)
    path, out = policy_and_state[1], (tmp_path / "out").as_uri()

    def tables(spark: SparkSession) -> dict[str, DataFrame]:
        return {"grants": spark.read.csv(grants.as_uri(), header=True)}

    def write(decided: DataFrame, number: int) -> None:
        decided.withColumn("batch", F.lit(number)).write.mode("append").json(out)

    state: Any = path if kind == "path" else tables
    stream.each(each_batch(write, policy_and_state[0], state, plan=by, **BOX))
    stream.ask()
    replaced(path, REVOKED)
    replaced(grants, rows)
    stream.ask()
    answers = stream.spark.read.json(out).orderBy("batch").collect()
    assert [(row["batch"], row["allowed"]) for row in answers] == [(0, True), (1, False)]


def test_states_that_cannot_be_followed_are_refused_with_a_reason(
    stream: Stream, policy_and_state: tuple[str, str], spark: SparkSession
) -> None:
    program = pipeline.load_program(policy_and_state[0])
    rows = validate(program, load_raw_state(policy_and_state[1]))[0]
    calls: list[Callable[..., Any]] = [decide, visible, plan]
    for state in (rows, state_tables(spark, program, rows)):
        for call in calls:
            with pytest.raises(
                UsageError, match=r"executors cannot follow a .*State: give the path .* by `each_batch`"
            ):
                call(stream.rows, program, state, **BOX)
        text = str(plan(stream.rows, program, state, refresh=None, **BOX))
        assert "decides by the current state for as long as the stream runs: later revocations have no effect" in text
        with pytest.raises(UsageError, match="cannot change: give the path of a state, or a function"):
            each_batch(lambda *_: None, program, state, **BOX)  # type: ignore[arg-type]
    text = str(plan(stream.rows, *policy_and_state, **BOX))
    assert f"follows {policy_and_state[1]}: no answer is based on a check more than 60 seconds old" in text
    assert "checked before each chunk of rows" in str(plan(stream.rows, *policy_and_state, refresh=0, **BOX))
    asks: list[dict[str, Any]] = [{"plan": "portions"}, {"limits": Limits(rows=3)}]
    for arguments in asks:
        for call in calls:
            with pytest.raises(UsageError, match="a stream is not divided into portions: decide each micro-batch by"):
                call(stream.rows, *policy_and_state, **BOX, **arguments)
    for wrong in (-1, "60", float("nan")):
        with pytest.raises(UsageError, match=r"refresh is .*: give seconds, 0 or more, or None"):
            decide(stream.rows, *policy_and_state, refresh=wrong, **BOX)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_stream_can_keep_its_state(stream: Stream, policy_and_state: tuple[str, str]) -> None:
    stream.started(decide(stream.rows, *policy_and_state, refresh=None, **BOX))
    stream.ask()
    replaced(policy_and_state[1], REVOKED)
    stream.ask()
    assert stream.answers() == [True, True]
