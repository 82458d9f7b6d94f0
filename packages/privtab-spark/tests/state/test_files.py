"""Files beside what Spark writes, on a folder and on object stores, and whole builds in a bucket."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
import signing_keys
import spark_sessions

from privtab.base import FileError, UsageError
from privtab_spark.state.files import Root, place

HERE = Path(__file__).parent
HADOOP = {"4.0": "3.4.1", "4.1": "3.4.2", "4.3": "3.5.0"}
"""By version of Spark the Hadoop that it is built with, whose S3 client it takes."""
KEYS = {"AWS_ACCESS_KEY_ID": "some", "AWS_SECRET_ACCESS_KEY": "thing", "AWS_DEFAULT_REGION": "us-east-1"}


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A new bucket of a server that speaks S3, whose address and keys stand in the environment."""
    import boto3
    from moto.server import ThreadedMotoServer

    for name, value in {**KEYS, "AWS_EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(name, value)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    bucket = uuid.uuid4().hex
    boto3.client("s3", endpoint_url=f"http://{host}:{port}").create_bucket(Bucket=bucket)
    yield bucket
    server.stop()


def use(root: Root) -> None:
    assert (root.read("a/b"), root.names("a"), root.read_json("a")) == (None, [], None)
    with pytest.raises(FileNotFoundError), root.open("a/b"):
        pass
    root.write("a/b", b"{}")
    root.write("a/b", b'{"one": 1}')
    root.write_pieces("a/c/d", iter([b"x", b"y"]))
    assert (root.read_json("a/b"), root.read("a/c/d"), root.names("a")) == ({"one": 1}, b"xy", ["b", "c"])
    with root.open("a/c/d") as file:
        assert (file.read(1), file.seek(0), file.read()) == (b"x", 0, b"xy")

    def broken() -> Iterator[bytes]:
        yield b"half"
        raise RuntimeError

    with pytest.raises(RuntimeError):
        root.write_pieces("a/b", broken())
    assert (root.read("a/b"), root.names("a")) == (b'{"one": 1}', ["b", "c"])
    root.remove("a/c")
    root.remove("a/c")
    assert (root.names("a"), root.read("a/c/d")) == (["b"], None)


def test_a_folder(tmp_path: Path) -> None:
    use(place(tmp_path.as_uri()))
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot write"):
        place(tmp_path / "file").write("x", b"")
    with pytest.raises(FileError, match="cannot read"):
        place(tmp_path).read("a")


def test_addresses_that_fsspec_opens() -> None:
    use(place(f"memory://{uuid.uuid4().hex}/state"))
    with pytest.raises(UsageError, match="nothing://x"):
        place("nothing://x").read("a")


def test_spark_calls_s3_by_the_name_of_its_client() -> None:
    assert place("s3://iam/state/").spark("results") == "s3a://iam/state/results"
    assert place("gs://iam/state").spark("results") == "gs://iam/state/results"


@pytest.mark.long
def test_a_bucket(s3: str) -> None:
    root = place(f"s3://{s3}/state")
    use(root)
    assert root.names("bundles") == []
    # Executors write while the driver has listed the folder before.
    subprocess.run(
        [sys.executable, "-c", f"from privtab_spark.state.files import place; place({root.url!r}).write('bundles/x', b'')"],
        check=True, timeout=120,
    )  # fmt: skip
    assert root.names("bundles") == ["x"]
    with pytest.raises(FileError, match="s3://no-such-bucket-here/x"):
        place("s3://no-such-bucket-here").write("x", b"")
    assert place("s3://no-such-bucket-here").read("x") is None


@pytest.mark.long
def test_a_build_in_a_bucket_is_that_of_a_folder(s3: str, policy_file: Path, tmp_path: Path) -> None:
    """Spark's own client of S3 is fetched, which is large."""
    hadoop = HADOOP.get(pyspark.__version__[:3])
    if hadoop is None:
        pytest.skip(f"nobody has said which Hadoop Spark {pyspark.__version__} is built with")
    exports = tmp_path / "exports"
    exports.mkdir()
    grants = "grantee,effect,privilege,entity\nrole:a,allow,SELECT,lake:l\nrole:a,allow,SELECT,schema:m/s\n"
    (exports / "grants.csv").write_text(grants)
    (exports / "assignments.csv").write_text("principal,role\nuser:ann,a\n")
    key, _ = signing_keys.pair().write(tmp_path)
    steps: list[object] = [
        ["state", "build", str(exports), "-p", str(policy_file), "-o", folder, "--signing-key", str(key)]
        for folder in (f"s3://{s3}/state", str(tmp_path / "state"))
    ]
    steps.append(f"{exports}/grants.csv\nrole:a,allow,MANAGE,lake:l\n")
    steps += [steps[0], steps[0], steps[1]]
    steps += 2 * [
        ["state", "build", str(exports), "-p", str(policy_file), "--rows", "parquet", "-o", f"s3://{s3}/checked"]
    ]
    steps += [f"{exports}/grants.csv\nrole:a,allow,NONE,lake:l\n", steps[0]]
    steps += [["state", "build", str(exports), "-p", str(policy_file), "-o", "s3://no-such-bucket-here/state"]]
    (tmp_path / "steps.json").write_text(json.dumps(steps))
    done = subprocess.run(
        [sys.executable, str(HERE / "bucketed.py"), os.environ["AWS_ENDPOINT_URL"],
         f"org.apache.hadoop:hadoop-aws:{hadoop}", str(tmp_path / "steps.json")],
        capture_output=True, text=True, check=False, timeout=1500,
        env=spark_sessions.environment(),
    )  # fmt: skip
    if "UNRESOLVED DEPENDENCIES" in done.stdout + done.stderr:
        pytest.skip("the jars cannot be fetched: no Maven Central")
    assert done.returncode == 0, done.stderr[-3000:]
    codes = [line for line in done.stdout.splitlines() if line in ("0", "1", "2", "3")]
    assert codes == ["0"] * 7 + ["1", "3"], done.stdout + done.stderr[-3000:]
    assert "Traceback" not in done.stderr
    bucket, folder = place(f"s3://{s3}/state"), place(tmp_path / "state")
    assert bucket.read("shards.json") == folder.read("shards.json")
    assert bucket.names("bundles") == folder.names("bundles")
    assert [bucket.read(f"bundles/{name}") for name in bucket.names("bundles")] == [
        folder.read(f"bundles/{name}") for name in folder.names("bundles")
    ]
    left = [name for name in bucket.names("") if name.startswith(("work-", "results-"))]
    manifests = [bucket.read_json(name) or {} for name in ("manifest.json", "manifest.previous.json")]
    assert set(left) == {manifest["results"] for manifest in manifests}
    assert bucket.names("rejected")
    checked = place(f"s3://{s3}/checked")
    manifest = checked.read_json("_MANIFEST.json") or {}
    assert checked.names("") == ["_MANIFEST.json", manifest["data"]]
