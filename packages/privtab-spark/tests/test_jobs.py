"""Jobs: whole outputs or none, exit codes, figures; one of them through a real spark-submit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import decision_rows
import pyarrow as pa
import pyspark
import pytest
import spark_sessions
from checkout import ROOT
from pyarrow import parquet
from pyspark.sql import SparkSession

from privtab_spark import jobs
from privtab_spark.jobs import _session

POLICY, STATE = "gravitino/1.1.0", "policy_src/gravitino/state.yaml"
LOADS = ["--subject", "who", "--action", "load", "--resource", "what"]
LISTED = (("alice", "table:demo/hive/sales/orders"), ("bob", "table:demo/hive/sales/customers"), ("nick", None))


@pytest.fixture(scope="module")
def requests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("asked") / "asked.parquet"
    columns = list(zip(*LISTED, strict=True))
    parquet.write_table(pa.table({"who": pa.array(columns[0]), "what": pa.array(columns[1], pa.string())}), file)
    return file


def run(capsys: pytest.CaptureFixture[str], job: str, *arguments: object) -> tuple[int, Any, str]:
    """Exit code, what was said in JSON, and what was complained about."""
    capsys.readouterr()
    code = import_module(f"privtab_spark.jobs.{job}").main([*map(str, arguments), "--format", "json"])
    output = capsys.readouterr()
    return code, json.loads(output.out) if output.out.strip() else None, output.err


def test_every_job_is_a_module() -> None:
    for job in jobs.JOBS:
        assert callable(import_module(f"privtab_spark.jobs.{job}").main)


@pytest.mark.slow
def test_decide_writes_every_row(
    spark: SparkSession, requests: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "decided"
    common = ["-p", POLICY, "-s", STATE, "-i", requests, "--subject", "who", "--action", "load", "--resource", "what"]
    code, output, err = run(capsys, "decide", *common, "-o", out)
    assert code == 0, err
    assert (output["rows"], output["allowed"], output["denied"], output["no_request"]) == (3, 2, 1, 1)
    found = {row["who"]: row for row in parquet.read_table(out).to_pylist()}
    assert [found[user]["allowed"] for user, _ in LISTED] == [True, True, False]
    assert (found["alice"]["reason"], found["nick"]["reason"]) == (None, "null")
    assert "decide: kernel: the state has" in err
    assert "writing" in err

    code, output, err = run(capsys, "decide", *common, "-o", out)
    assert (code, output) == (2, None)
    assert "add `--overwrite`" in err

    code, output, _ = run(capsys, "decide", *common, "-o", tmp_path / "few.csv", "--keep", "denied")
    assert (code, output["format"], output["kind"], output["rows"]) == (0, 1, "csv", 1)

    code, output, _ = run(capsys, "decide", *common, "--explain")
    assert (code, output["plan"]) == (0, "kernel")
    assert [step.endswith("has this version of privtab") for step in output["steps"]] == [True]
    assert output["why"].endswith("fit every executor")


@pytest.mark.slow
def test_groups_of_a_table_of_texts(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy, state = decision_rows.files(tmp_path)
    table = tmp_path / "asked.csv"
    table.write_text("who,box,brought\ndan,s/a/1,it|hr\ndan,s/a/1, hr |it\ndan,s/a/1,\nbob,s/a/1,\ndan,s/a/1,it||hr\n")
    of_row = ["--subject", "who", "--resource", "box:box", "--action", "take"]
    arguments = ["-p", policy, "-s", state, "-i", table, *of_row]
    code, output, err = run(capsys, "decide", *arguments, "-o", tmp_path / "out", "--groups", "brought")
    assert (code, output) == (2, None)
    assert "give the separator of groups by `--separator`" in err
    more = ["--groups", "brought", "--separator", "|"]
    code, output, err = run(capsys, "decide", *arguments, *more, "-o", tmp_path / "out.json")
    assert code == 0, err
    lines = [line for file in (tmp_path / "out.json").glob("part-*") for line in file.read_text().splitlines()]
    assert [json.loads(line)["allowed"] for line in lines] == [True, True, False, True, False]
    assert (output["allowed"], output["no_request"]) == (3, 1)


@pytest.mark.slow
def test_rows_name_active_roles(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lake.yaml").write_text(
        "{privtab: 1, system: lake, version: '1', entities: {table: }, privileges: [READ],\n"
        " semantics: {active_roles: request, hierarchy: [roles]}, tables: {table: {read: READ (table)}}}\n"
    )
    (tmp_path / "state.yaml").write_text(
        'grants: [{grantee: "role:clerk", effect: allow, privilege: READ, entity: "table:t"}]\n'
        'assignments: [{principal: "user:ann", role: head}, {principal: "role:head", role: clerk}, {principal: "user:ann", role: x}]\n'
    )
    table = tmp_path / "asked.csv"
    table.write_text(
        "who,what,roles\nann,table:t,x|head\nann,table:t,x\nann,table:t,\nann,table:t,boss\nann,table:t,clerk\n"
    )
    common = ["-p", tmp_path / "lake.yaml", "-s", tmp_path / "state.yaml", "-i", table, "-o", tmp_path / "out"]
    common += ["--subject", "who", "--action", "read", "--resource", "what", "--active-roles", "roles"]
    code, _, err = run(capsys, "decide", *common)
    assert code == 2
    assert "give the separator of roles by `--separator`" in err
    separator = ["--separator", "|"]
    code, output, err = run(capsys, "decide", *common, *separator, "-o", tmp_path / "out.json")
    assert code == 0, err
    lines = [line for file in (tmp_path / "out.json").glob("part-*") for line in file.read_text().splitlines()]
    assert [json.loads(line)["allowed"] for line in lines] == [True, False, False, False, True]
    arrays = pa.table({"who": ["ann"] * 2, "what": ["table:t"] * 2, "roles": [["head"], None]})
    parquet.write_table(arrays, tmp_path / "arrays.parquet")
    code, output, err = run(
        capsys, "decide", *common, "-i", tmp_path / "arrays.parquet", "--action", "read", "--keep", "visible"
    )
    assert (code, output["rows"]) == (0, 1), err


@pytest.fixture
def given(tmp_path: Path) -> Path:
    """A folder with a policy whose requests give attributes, and a state."""
    (tmp_path / "lake.yaml").write_text(
        "{privtab: 1, system: lake, version: '1', entities: {table: },\n"
        " attributes: {request: {mfa: bool}, user: {team: {text: true, from: request}}},\n"
        " privileges: [READ], tables: {table: {read: READ (table) and request.mfa}}}\n"
    )
    (tmp_path / "state.yaml").write_text(
        'grants: [{grantee: "user:ann", effect: allow, privilege: READ, entity: "table:t"}]\n'
    )
    return tmp_path


@pytest.mark.slow
@pytest.mark.usefixtures("given")
def test_columns_give_attributes(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = pa.table({"who": ["ann"] * 3, "what": ["table:t"] * 3, "n": [0, 1, 2], "mfa": [True, False, None]})
    parquet.write_table(asked, tmp_path / "asked.parquet")
    common = ["-p", tmp_path / "lake.yaml", "-s", tmp_path / "state.yaml", "-i", tmp_path / "asked.parquet"]
    common += ["-o", tmp_path / "out", "--subject", "who", "--action", "read", "--resource", "what", "--with"]
    code, output, err = run(capsys, "decide", *common, "request.mfa=mfa")
    assert (code, output["allowed"], output["no_request"]) == (0, 1, 0), err
    for part, said in (("mfa=mfa", "mfa"), ("mfa=what", "mfa"), ("request.=mfa", "of the request")):
        code, output, err = run(capsys, "decide", *common, part, "--overwrite")
        assert (code, output) == (2, None), err
        assert said in err.splitlines()[-1]


@pytest.mark.slow
def test_visible_keeps_rows(
    spark: SparkSession, requests: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "seen"
    code, output, err = run(
        capsys, "decide", "--keep", "visible", "-p", POLICY, "-s", STATE, "-i", requests, "-o", out, "--user", "alice", "--action", "load", "--resource", "what"
    )  # fmt: skip
    assert code == 0, err
    assert output["rows"] == 2
    assert parquet.read_table(out).column_names == ["who", "what"]


@pytest.mark.slow
def test_entitlements_are_written(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entities = tmp_path / "entities.txt"
    entities.write_text("table:demo/hive/sales/orders\n")
    code, output, err = run(
        capsys, "certify", "-p", POLICY, "-s", STATE, "-e", entities, "-o", tmp_path / "m.parquet", "--operation", "load", "--user", "alice"
    )  # fmt: skip
    assert code == 0, err
    assert output["rows"] == 1
    assert parquet.read_table(tmp_path / "m.parquet")["via_principal"].to_pylist() == ["role:analyst"]


@pytest.mark.slow
def test_entitlements_of_requests_that_give_attributes(
    spark: SparkSession, given: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["-p", given / "lake.yaml", "-s", given / "state.yaml", "-o", given / "m.orc", "--overwrite"]
    for options, rows in (([], 0), (["--with", "request.mfa=true"], 1), (["--with", "request.mfa=false"], 0)):
        code, output, err = run(capsys, "certify", *common, *options)
        assert (code, output["rows"]) == (0, rows), err


def test_certified_requests_give_attributes(given: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["-p", given / "lake.yaml", "-s", given / "state.yaml", "-o", given / "it", "--plan", "process"]
    code, output, err = run(capsys, "certify", *common, "--with", "request.mfa=true")
    assert (code, output["totals"]["entitlements"]) == (0, 1), err
    for options, expected in (
        (["request.mfa=yes"], "the attribute `mfa` of the request must be"),
        (["request.mf=true"], "unknown attribute `request.mf`; did you mean `mfa`?"),
        (["mfa=true"], "no operation uses the flag `mfa`"),
        (["user.team=a"], "a matrix is about many users: their attributes come from the state alone"),
    ):
        code, _, err = run(capsys, "certify", *common, "--overwrite", "--with", *options)
        assert code == 2
        assert expected in err


def test_rows_that_are_left_out_are_said(given: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = '{grantee: "user:ann", effect: allow, privilege: READ, entity: "tabel:t"}'
    rows = (given / "state.yaml").read_text(encoding="utf-8")
    (given / "state.yaml").write_text(rows.replace("}]", f"}}, {row}]"), encoding="utf-8")
    common = ["-p", given / "lake.yaml", "-s", given / "state.yaml", "-o", given / "it", "--plan", "process"]
    for overwrite in ([], ["--overwrite"]):  # the second time, the rows are known already
        code, output, err = run(capsys, "certify", *common, "--with", "request.mfa=true", *overwrite)
        assert output["totals"]["entitlements"] == 1
        assert output["origin"]["asked"]["wrong rows"] == "left out: 1 finding of `privtab state validate`"
        assert "left out: 1 finding" in (given / "it" / "report.html").read_text(encoding="utf-8")
        if not overwrite:
            assert code == 1
            assert "unknown entity type `tabel`" in err


def test_certify_fails_on_findings(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    people = tmp_path / "people.txt"
    people.write_text("alice\n")
    arguments = ["-p", POLICY, "-s", STATE, "--people", people, "--operation", "table/load", "-o", tmp_path / "it"]
    code, output, err = run(capsys, "certify", *arguments, "--fail-on", "high")
    assert code == 1, err
    assert output["findings"]["departed user"] > 0
    assert (tmp_path / "it" / "report.html").is_file()


@pytest.mark.parametrize(
    ("job", "arguments", "code", "message"),
    [
        ("decide", ["--subject", "who", "--action", "load", "--resource", "table:"], 2, "write COLUMN, or TYPE:COLUMN"),
        ("decide", ["--subject", "who", "--action", "load", "--resource", "tabel:what"], 2, "did you mean `table`?"),
        ("decide", ["--subject", "who", "--resource", "what"], 2, "`--action OPERATION` or `--action-column COLUMN`"),
        ("decide", ["--subject", "whom", "--action", "load", "--resource", "what"], 2, "did you mean `who`?"),
        ("decide", ["--subject", "who", "--action", "lod", "--resource", "what"], 2, "did you mean `load`?"),
        (
            "decide",
            ["--subject", "who", "--action", "load", "--resource", "what", "-s", "none.yaml"],
            3,
            "no such state",
        ),
        ("decide", ["--subject", "who", "--action", "load", "--resource", "what", "-i", "no/such"], 3, "no such table"),
        ("decide", [*LOADS, "-i", "ask"], 3, "no such file, and no such table: ask"),
        ("decide", [*LOADS, "-i", "pyproject.csv"], 3, "no such table: pyproject.csv; did you mean `pyproject.toml`?"),
        ("decide", [*LOADS, "-o", "out.xlsx"], 2, "`.xlsx` is not the suffix of a format that can be written"),
        ("decide", [*LOADS, "--with", "forse"], 2, "unknown flag `forse`"),
        ("decide", [*LOADS, "--separator", ";"], 2, "`--separator TEXT` needs `--groups COLUMN` or"),
        ("decide", [*LOADS, "--groups", "who", "--separator", ""], 2, "`--separator TEXT` needs"),
        ("decide", [*LOADS, "--input-option", "format=nope"], 3, "nope"),
        ("decide", [*LOADS, "--user", "x"], 2, "`--user NAME` or `--subject COLUMN`"),
        ("decide", [*LOADS, "-p", "gravitino/1.1"], 2, "no policy `gravitino/1.1`"),
        ("decide", ["--resource", "what"], 2, "`--user NAME` or `--subject COLUMN`"),
        (
            "decide",
            ["--resource", "what", "--action", "load", "--user", "x", "--conf", "oops"],
            2,
            "write KEY=VALUE",
        ),
    ],
)
def test_failures_have_an_exit_code_and_leave_nothing(
    spark: SparkSession,
    requests: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    job: str,
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    base = ["-p", POLICY, "-s", STATE, "-i", requests, "-o", tmp_path / "out"]
    exit_code, output, err = run(capsys, job, *base, *arguments)
    assert (exit_code, output) == (code, None), err
    assert message in err
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_mistakes_in_a_file_are_reported_by_line_before_spark_is_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    people, entities = tmp_path / "people.txt", tmp_path / "entities.txt"
    people.write_bytes(b"\xef\xbb\xbfalice\n\n\xff\n")
    entities.write_text("table:demo/hive/sales/orders\n\ndemo/hive\n")
    common = ["-p", POLICY, "-s", STATE, "-o", tmp_path / "out"]
    wrong: list[tuple[str, list[object], int, str]] = [
        ("certify", ["--people", people], 3, f"{people}:3: not UTF-8"),
        ("certify", ["-o", tmp_path / "m.csv", "--by", "me", "--shown", "2000"], 2, "`--by`, `--shown`: for the page"),
        ("certify", ["--at", "2026-03-03", "--ways", "all"], 2, "`--at`, `--ways`: for rows alone"),
        ("certify", ["--shown", "-1"], 2, "`--shown -1`: give a number of rows"),
        ("certify", ["-e", entities], 2, f"{entities}:3: `demo/hive` is not an entity"),
        ("certify", ["--with", "to=demo"], 2, "`--with to=demo`: write SLOT=TYPE:PATH"),
        ("certify", ["-e", "no/such.csv"], 3, "no such table: no/such.csv"),
    ]
    for job, more, code, message in wrong:
        exit_code, output, err = run(capsys, job, *common, *more)
        assert (exit_code, output) == (code, None), err
        assert message in err
        assert "starting Spark" not in err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_job_that_fails_half_way_leaves_nothing(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "in" / "broken.csv"
    broken.parent.mkdir()
    # Without the third cell it would be another request.
    broken.write_text("who,what\nalice,table:demo/hive/sales/orders\nalice,table:demo/hive/sales,orders\n")
    code, output, err = run(
        capsys, "decide", "-p", POLICY, "-s", STATE, "-i", broken, "-o", tmp_path / "out", "--subject", "who", "--action", "load",
        "--resource", "what",
    )  # fmt: skip
    assert (code, output) == (3, None)
    assert "privtab: Spark: [FAILED_READ_FILE" in err
    assert "Malformed CSV record: alice,table:demo/hive/sales,orders" in err
    assert "Traceback" not in err
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_progress_tells_what_is_written_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    done, going = tmp_path / "_temporary" / "0" / "task_1", tmp_path / "_temporary" / "0" / "_temporary" / "attempt_2"
    for folder in (done, going):
        folder.mkdir(parents=True)
    assert _session.written_so_far(tmp_path) == ""
    (going / "part-1.parquet").write_bytes(b"PAR1")
    parquet.write_table(pa.table({"n": [1, 2, 3]}), done / "part-0.parquet")
    assert _session.written_so_far(tmp_path) == "3 rows so far"
    monkeypatch.setattr(_session, "BEAT", 0.01)
    progress = _session.ProgressReporter()
    progress("writing it")
    progress.place = tmp_path
    deadline = time.monotonic() + 20
    while "3 rows so far" not in (errors := capsys.readouterr().err):
        assert time.monotonic() < deadline, errors
        time.sleep(0.02)
    progress.end()


@pytest.mark.slow
def test_spark_submit_runs_a_job(requests: Path, tmp_path: Path, connected: bool) -> None:
    if connected:
        pytest.skip("spark-submit is tried once, beside the Classic session")
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    job = ROOT / "packages" / "privtab-spark" / "src" / "privtab_spark" / "jobs" / "decide.py"
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    ran = subprocess.run(
        [
            submit, "--master", "local[1]", "--conf", "spark.ui.enabled=false", job,
            "-p", POLICY, "-s", STATE, "-i", requests, "-o", tmp_path / "out", "--subject", "who", "--action", "load", "--resource", "what",
        ],
        check=False, capture_output=True, text=True, timeout=300, env=environment, cwd=ROOT,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert "3 rows, 2 allowed, 1 denied, 1 invalid (see `reason`)" in ran.stdout
    assert parquet.read_table(tmp_path / "out").num_rows == 3


@pytest.mark.long
def test_a_job_shows_no_warnings_of_spark(requests: Path, tmp_path: Path, connected: bool) -> None:
    if connected:
        pytest.skip("the session of a job is its own")
    arguments = ["-p", POLICY, "-s", STATE, "-i", str(requests), *LOADS]
    done = subprocess.run(
        [sys.executable, "-m", "privtab", "spark", "decide", *arguments, "-o", str(tmp_path / "out"), "--conf", "spark.master=local[1]"],
        capture_output=True, text=True, check=False, timeout=420, env=spark_sessions.environment(), cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not [line for line in done.stderr.splitlines() if "WARN" in line or "log4j" in line or "log level" in line]


def test_the_warning_of_java_is_dropped_and_all_else_passes(capfd: pytest.CaptureFixture[str]) -> None:
    warning = b"WARNING: Using incubator modules: jdk.incubator.vector\n"
    pieces = [
        b"first\nWARN",
        b"ING: Using",
        b" incubator modules: jdk.incubator.vector\n",
        b"\rbar",
        warning,
        b"WARNING: x\n",
    ]
    with _session._java_warning_dropped():
        standard_error = os.dup(2)
        for piece in pieces:
            os.write(standard_error, piece)
            time.sleep(0.02)
        os.close(standard_error)
    printed, ends = "", time.monotonic() + 20
    while "WARNING: x\n" not in printed:
        assert time.monotonic() < ends, printed
        printed += capfd.readouterr().err
        time.sleep(0.01)
    assert printed == "first\n\rbarWARNING: x\n"
