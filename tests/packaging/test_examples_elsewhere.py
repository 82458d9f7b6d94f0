"""Examples of `--help` that need Spark, OPAs, servers, buckets, databases or revisions, run from the wheel beside real ones."""

from __future__ import annotations

import csv
import json
import re
import shlex
import shutil
import signal
import ssl
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import certificates
import pyarrow
import pyarrow.parquet
import pytest
from buckets import bucket
from checkout import ROOT
from environments import Environment
from lsp_client import LspClient
from postgresql_server import postgresql
from pushed_lake import LAKE as PUSHED_LAKE
from pushed_lake import MAPPING
from ranger import LAKE as RANGER_LAKE
from ranger import ranger_policy
from reader_folder import examples, git, run, runs_here
from sidecars import configuration, running
from signed_door import door_server

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("packaging")]

SHIPPED = ROOT / "policy_src"
NOWHERE = {
    r"state import gravitino https": "no registry of packages has a server of Gravitino; packages/privtab-connect/tests/importing reads answers that one gave",
    r"serve store:\S+ .* --api gravitino": "the same",
}
"""Examples that run nowhere, and why."""
KINDS = {
    "database": r"postgresql\+psycopg://",
    "bucket": r"s3://|--canary",
    "served": r"https://grants|--url http|--push http|--opa http|--server http|explore |serve |opa run|lsp$",
    "spark": r"(certify|spark|state build) ",
    "file": r"",
}
"""The needs of examples by a part of their words; the first that fits counts."""
REST = sorted({line for name, line in examples() if not runs_here(name, line)})


def of(kind: str) -> list[str]:
    """The examples of a kind."""

    def kind_of(line: str) -> str:
        return next(kind for kind, words in KINDS.items() if re.search(words, line))

    return [line for line in REST if kind_of(line) == kind and not any(re.search(part, line) for part in NOWHERE)]


@pytest.fixture(scope="module")
def wheel_with_more(environment: Callable[..., Environment]) -> Environment:
    """The wheel with Spark, and with what opens buckets and databases."""
    return environment("compiler", "spark", beside=("s3fs", "psycopg", "psycopg-binary"))


@pytest.fixture
def place(home: Path, tmp_path: Path) -> Path:
    """A copy of the folder with what examples name."""
    return shutil.copytree(home, tmp_path / "home")


def ran(env: Environment, folder: Path, *lines: str, codes: tuple[int, ...] = (0,)) -> list[str]:
    """Run lines one after the other in a folder; their outputs."""
    outputs = []
    for line, (code, output) in zip(lines, run(env, folder, list(lines), apart=False), strict=True):
        assert code in codes, f"{line}\n{output}"
        assert "Traceback" not in output, f"{line}\n{output}"
        outputs.append(output)
    return outputs


@contextmanager
def started(
    env: Environment, folder: Path, line: str, says: str = r" at (https?://\S+); Ctrl-C ends it"
) -> Iterator[str]:
    """Run a line until it says something, such as where it answers, which is given; it must end well when it is told to."""
    command = [str(env.command), *shlex.split(line)[1:]]
    with (folder / "errors.txt").open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(
            command, cwd=folder, env=env.all_variables, stdout=subprocess.PIPE, stderr=errors, text=True
        )
    try:
        assert process.stdout is not None
        said = ""
        while (found := re.search(says, said)) is None:
            read = process.stdout.readline()
            assert read, f"{line}\n{said}\n{(folder / 'errors.txt').read_text(encoding='utf-8')}"
            said += read
        yield found[found.re.groups]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 0, (folder / "errors.txt").read_text(encoding="utf-8")
    finally:
        process.kill()
        process.wait()


def fetched(url: str, authority: Path | None = None, token: str = "") -> int:
    """The status of an answer."""
    trusted = None if authority is None else ssl.create_default_context(cafile=str(authority))
    asked = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})  # noqa: S310
    with urllib.request.urlopen(asked, timeout=60, context=trusted) as answer:  # noqa: S310
        status: int = answer.status
    return status


def write_csv(path: Path, names: list[str], rows: list[list[str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows(rows)


def put(lines: list[str], *replaced: tuple[str, str]) -> list[str]:
    """The lines with what is here in place of what they name; each place is in some line."""
    for before, after in replaced:
        assert any(before in line for line in lines), before
        lines = [line.replace(before, after) for line in lines]
    return lines


def test_every_example_runs_or_has_a_reason() -> None:
    """Those that run nowhere are still examples; the others are of one kind each."""
    assert all(any(re.search(part, line) for line in REST) for part in NOWHERE)
    assert len([line for kind in KINDS for line in of(kind)]) == len(REST) - len(NOWHERE)


@pytest.mark.long
def test_examples_with_spark(wheel_with_more: Environment, place: Path) -> None:
    """One process, and so one Java machine, for all of them."""
    shutil.copy(SHIPPED / "gravitino" / "state.yaml", place / "gravitino.yaml")
    shutil.copy(SHIPPED / "cdap" / "state.yaml", place / "cdap.yaml")
    (place / "staff.txt").write_text("alice\nben\n", encoding="utf-8")
    write_csv(place / "tables.csv", ["entity"], [["table:demo/hive/sales/orders"]])
    write_csv(place / "datasets.csv", ["path"], [["main/sales/totals"], ["main/billing/invoices"]])
    write_csv(place / "asked.csv", ["who", "what", "path"], [["nora", "get", "main/sales/totals"]])
    requests = {"user": ["nora", "dave"], "entity": ["dataset:main/sales/totals"] * 2}
    pyarrow.parquet.write_table(pyarrow.table(requests), place / "requests.parquet")
    write_csv(place / "grants.csv", [*GRANT], [["role:r", "allow", "USE_CATALOG", "catalog:m/c"]])
    (place / "sources.yaml").write_text("tables: {grants: {path: grants.csv}}\n", encoding="utf-8")
    lines = ["privtab state pack cdap.yaml --policy cdap/final -o state.tar.gz"]
    for line in put(
        of("spark"),
        (" /lake/", " lake/"),
        ("--user alice", "--user walt"),
        ("certified --people", "again --people"),
        ("-o matrix.csv", "-o rights.csv"),
        (" /shared/", " shared/"),
    ):
        policy = re.search(r"(?:-p|--policy) (cdap|gravitino)/", line)
        lines.append(line.replace("state.yaml", f"{policy[1]}.yaml") if policy else line)
    ran(wheel_with_more, place, *lines, codes=(0, 1))
    assert (place / "rights.csv").exists()
    assert "main/sales/totals" in "".join(
        part.read_text(encoding="utf-8") for part in (place / "mine.csv").glob("*.csv")
    )
    assert (place / "lake" / "iam" / "checked" / "_MANIFEST.json").is_file()


def test_examples_with_revisions_and_moments(wheel_with_more: Environment, place: Path, tmp_path: Path) -> None:
    env = wheel_with_more
    (stored,) = ran(env, place, "privtab registry status -r registry/ -c prod lake --history 2 --format json")
    first, last = (one["policy"] for one in json.loads(stored)["channels"][0]["history"])
    assert first != last
    (place / "my_lake.py").write_text(DRIVER, encoding="utf-8")
    write_ranger(place)
    with door_server(tmp_path, "trino/476", "trino", SHIPPED / "trino" / "state.yaml") as door:
        assert door.ask("allow", QUESTION) is not None
    shutil.copy(door.opa.log, place / "trino.log")
    shutil.copy(SHIPPED / "trino" / "state.yaml", place / "trino.yaml")
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    here = put(
        [line for line in of("file") if "--canary" not in line and line != CHANGED],
        ("lake@35f8e515", f"lake@{first}"),
        ("3f5a0c2be1d94f77", first),
        ("2026-03-03T12:00Z", now),
        ("--old-state state.yaml", "--old-state trino.yaml"),
        ("-p lake.yaml -o state/ --accept", "-p ranger.yaml -o imported/ --accept"),
    )
    ran(env, place, *(f"privtab registry put registry/ lake@{one} --channel dev" for one in (first, last)))
    outputs = dict(zip(here, ran(env, place, *here, codes=(0, 1)), strict=True))
    assert "1 replayed" in next(output for line, output in outputs.items() if "trino.log" in line)
    git(place, "checkout", "-q", "HEAD~1", "--", "policy_src/cdap")
    git(place, "commit", "-qm", "Have it again")
    final = place / "policy_src" / "cdap" / "final.yaml"
    final.write_text(
        final.read_text(encoding="utf-8").replace("delete: {requires: ADMIN", "delete: {requires: WRITE"),
        encoding="utf-8",
    )
    (compared,) = ran(env, place, CHANGED)
    assert "delete" in compared


CHANGED = "privtab diff cdap/final"
GRANT = ("grantee", "effect", "privilege", "entity")
DRIVER = """
from pathlib import Path

from privtab.pipeline import load_program
from privtab.reference.evaluate import Reference


class Driver:
    def prepare(self, world):
        self.reference = Reference(load_program(Path("lake.yaml")), world.state)

    def ask(self, request):
        return "allowed" if self.reference.decide(request).allowed else "refused"

    def clean(self):
        return ()
"""
QUESTION = {
    "context": {"identity": {"user": "ann", "groups": []}, "softwareStack": {"trinoVersion": "476"}},
    "action": {"operation": "AccessCatalog", "resource": {"catalog": {"name": "lake"}}},
}


def write_ranger(folder: Path) -> None:
    """An export of Ranger, the entities that there are, and a policy that its grants fit."""
    (folder / "ranger.yaml").write_text(RANGER_LAKE, encoding="utf-8")
    (folder / "policies.json").write_text(json.dumps({"policies": [ranger_policy(1)]}), encoding="utf-8")
    (folder / "tables.txt").write_text("schema:sales\ntable:sales/orders\n", encoding="utf-8")


@pytest.mark.long
def test_examples_with_servers(wheel_with_more: Environment, place: Path, tmp_path: Path) -> None:
    """Run what serves until it is ended, and meanwhile what asks about the same things."""
    token = "t" * 20
    env = replace(wheel_with_more, variables={"PRIVTAB_TOKEN": token})
    made = certificates.make(place)
    made.certificate.rename(place / "c.pem")
    made.key.rename(place / "k.pem")
    for name, text in (("tokens", f"dora {token}\n"), ("token", f"{token}\n"), ("sidecars", f"web {token} sidecar\n")):
        (place / name).write_text(text, encoding="utf-8")
        (place / name).chmod(0o600)
    asked = {"subject": user("nora"), "action": {"name": "get"}, "resource": DATASET}
    (place / "asked.jsonl").write_text(json.dumps(asked) + "\n", encoding="utf-8")
    shutil.copy(SHIPPED / "gravitino" / "state.yaml", place / "gravitino.yaml")
    (place / "policy_src" / "gravitino").mkdir()
    shutil.copy(SHIPPED / "gravitino" / "state.yaml", place / "policy_src" / "gravitino")
    demo = "gravitino/1.1.0 --state gravitino.yaml"
    ran(env, place, f"privtab store create demo.db -p {demo}", f"privtab compile {demo} -o build")
    serving = [line for line in of("served") if re.match("privtab (?:explore|serve|opa run)", line)]
    asking = [line for line in of("served") if line not in serving and line not in (WATCHING, "privtab lsp")]
    assert language_server(env, place) == 0
    urls = {}
    with ExitStack() as stack:
        cdap = stack.enter_context(started(env, place, "privtab opa run -p cdap/final -s sample:cdap/all --port 0"))
        for line in put(serving, ("0.0.0.0:8080", "0"), ("--opa http://127.0.0.1:8181", f"--opa {cdap}")):
            ending = "" if "--listen" in line else " --port 0" if "opa run" in line else " --listen 0"
            urls[line] = stack.enter_context(started(env, place, line + ending))
            path = "/health" if "opa run" in line or "serve" in line else "/"
            assert fetched(urls[line] + path, made.authority, token) == 200
        registry = next(url for line, url in urls.items() if "--logs" in line)
        stack.enter_context(started(env, place, WATCHING.replace("http://127.0.0.1:8180", registry), ""))
        store = stack.enter_context(
            started(env, place, "privtab serve store:demo.db -p gravitino/1.1.0 --token-file tokens --listen 0")
        )
        [bare, other] = [
            one.url for one in stack.enter_context(running(tmp_path, *[{"status": {"prometheus": True}}] * 2))
        ]
        first, *others = sorted(asking, key=lambda line: "--write-state" not in line)
        ran(env, place, first)
        conforming = stack.enter_context(
            started(env, place, "privtab serve -p cdap/final -s state.json --brief --listen 0")
        )
        for line in put(
            others,
            ("http://127.0.0.1:8180", registry),
            ("authzen --url http://127.0.0.1:8181", f"authzen --url {conforming}"),
            ("decide -p cdap/final --url http://127.0.0.1:8181", f"decide -p cdap/final --url {cdap}"),
            ("http://127.0.0.1:8181", bare),
            ("http://127.0.0.1:8182", other),
            ("https://grants.example", store),
            ("table:m/c/s/t", "table:demo/hive/sales/orders"),
        ):
            ran(env, place, line)


WATCHING = "privtab registry status --server http://127.0.0.1:8180 --watch 2"
DATASET = {"type": "dataset", "id": "main/sales/totals"}


def user(name: str) -> dict[str, str]:
    return {"type": "user", "id": name}


def language_server(env: Environment, folder: Path) -> int:
    """Ask the language server, end it, and return its exit code."""
    with subprocess.Popen([env.command, "lsp"], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        client = LspClient(process)
        assert "capabilities" in client.ask("initialize", processId=None, rootUri=folder.as_uri(), capabilities={})
        client.ask("shutdown")
        client.notify("exit")
        return process.wait(timeout=60)


@pytest.mark.long
def test_examples_with_buckets_and_sidecars(
    wheel_with_more: Environment, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A registry in a bucket, a server of it, and OPAs that fetch from the server: two of them, not twelve."""
    from moto.server import ThreadedMotoServer

    storage = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    storage.start()
    host, port = storage.get_host_and_port()
    options = bucket(f"http://{host}:{port}", "policies")
    bucket(f"http://{host}:{port}", "bundles")
    keys = {"AWS_ACCESS_KEY_ID": options["key"], "AWS_SECRET_ACCESS_KEY": options["secret"]}
    env = replace(
        wheel_with_more,
        variables={**keys, "AWS_DEFAULT_REGION": "us-east-1", "AWS_ENDPOINT_URL": f"http://{host}:{port}"},
    )
    shutil.copy(place / "prod.pub.pem", place / "release.pub.pem")
    served = next(line for line in of("bucket") if "serve registry:" in line)
    deployed, canary = next(line for line in of("bucket") if "deploy" in line), CANARY
    order = ["registry init", "registry check", "--stored"]
    lines = [next(line for line in of("bucket") if words in line) for words in order]
    try:
        ran(env, place, *lines, "privtab registry init s3://bundles", "privtab registry init own")
        with ExitStack() as stack:
            stack.enter_context(started(env, place, f"{served} --listen 0"))
            url = stack.enter_context(started(env, place, "privtab serve registry:s3://bundles --listen 0"))
            own = stack.enter_context(started(env, place, "privtab serve registry:own --listen 0"))
            stack.enter_context(
                running(
                    tmp_path,
                    *(configuration(url, instance=name, channel="prod", system="gravitino") for name in ("a", "b")),
                    configuration(own, instance="c", labels="zone=a", system="lake"),
                    configuration(own, instance="d", labels="zone=b", system="lake"),
                )
            )
            state = "--state gravitino.yaml"
            shutil.copy(SHIPPED / "gravitino" / "state.yaml", place / "gravitino.yaml")
            shown = next(line for line in of("bucket") if "--check" in line)
            ran(env, place, *put([deployed], ("https://registry:8080", url), ("=12", f"=2 {state}")), shown)
            ran(env, place, "privtab deploy lake.yaml -r own --state state.yaml --wait sidecars=2 --server " + own)
            line = put([canary], ("registry/", "own"), ("http://127.0.0.1:8080", own), (",10%", ""))[0]
            shutil.copy(place / "next.yaml", place / "lake.yaml")
            more = "--accept untested=tried --accept quiet-canary --canary-limit seconds=2 --fail-on none"
            (place / "lake.scenarios.yaml").unlink()
            ran(env, place, f"{line} {more}")
    finally:
        storage.stop()


CANARY = next(line for line in REST if "--canary" in line)


def test_examples_with_databases(wheel_with_more: Environment, place: Path) -> None:
    env = wheel_with_more
    mapped, imported = place / "mapped", place / "imported"
    for folder in (mapped, imported):
        folder.mkdir()
    write_ranger(place)
    (mapped / "lake.yaml").write_text(PUSHED_LAKE, encoding="utf-8")
    (mapped / "warehouse.yaml").write_text(MAPPING.replace('"{catalog}"', "c"), encoding="utf-8")
    (mapped / "state.yaml").write_text("service_admins: [{user: root}]\n", encoding="utf-8")
    shutil.copy(SHIPPED / "postgresql" / "15.yaml", imported / "warehouse.yaml")
    shutil.copy(ROOT / "examples" / "conform" / "postgresql.yaml", imported)
    (imported / "state.yaml").write_text("service_admins: []\n", encoding="utf-8")
    ran(env, mapped, "privtab store create grants.db -p lake.yaml -s state.yaml")
    with postgresql() as url:
        lines = [re.sub(r"postgresql\+psycopg://\w+@db/\w+", f"'{url}'", line) for line in of("database")]
        for line in lines:
            folder = mapped if "--expand" in line else place if "store create" in line else imported
            own = line.replace("-p lake.yaml", "-p ranger.yaml") if folder is place else line
            ran(env, folder, own, codes=(0, 1) if "--check" in line else (0,))
