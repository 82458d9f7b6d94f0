"""A real Trino with its OPA plugin, from the archive on Maven Central, and SQL over its HTTP protocol."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import time
import zipfile
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import requests
from failing_servers import free_port
from maven import fetched

from privtab.base import user_cache

VERSION, LATEST = "476", "483"
"""The last release that Maven Central has as a server, and one that it has in parts."""
JAVA = {VERSION: 24, LATEST: 25}
"""The first Java that runs each."""
PLUGINS = ("iceberg", "memory", "opa", "tpch")
ARTIFACT = f"io.trino:trino-server:{VERSION}:tar.gz"
FOLDER_VARIABLE, JAVA_VARIABLE = "PRIVTAB_TRINO", "PRIVTAB_TRINO_JAVA_HOME"
LAKE = {
    "connector.name": "iceberg",
    "iceberg.catalog.type": "TESTING_FILE_METASTORE",
    "hive.metastore.catalog.dir": "local:///lake",
    "fs.native-local.enabled": "true",
}
"""A catalog of Iceberg without a metastore: it updates, merges, and has materialized views and table procedures."""
START_SECONDS = 600
DENIED = "PERMISSION_DENIED"
PROBE = "SELECT count(*) FROM tpch.tiny.region"
"""What fails until Trino has found its node."""


@dataclass(frozen=True)
class Result:
    """What a statement answered."""

    rows: list[list[Any]] = field(default_factory=list)
    error: str | None = None
    """The name of the error."""
    message: str = ""

    @property
    def denied(self) -> bool:
        return self.error == DENIED

    @property
    def column(self) -> list[Any]:
        """The first column, sorted."""
        return sorted(row[0] for row in self.rows)


class Trino:
    """A running Trino."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.session = requests.Session()
        self.session.trust_env = False

    def ready(self) -> bool:
        try:
            return self.session.get(f"{self.url}/v1/info", timeout=5).json().get("starting") is False
        except (requests.RequestException, ValueError):
            return False

    def run(self, user: str, sql: str, *, through: str | None = None) -> Result:
        """Run a statement. `through`: who is logged in, and runs it as the user."""
        headers = {"X-Trino-User": user}
        if through is not None:
            headers["Authorization"] = f"Basic {b64encode(f'{through}:'.encode()).decode()}"
        answer = self._json(self.session.post(f"{self.url}/v1/statement", sql.encode(), headers=headers, timeout=60))
        rows: list[list[Any]] = []
        while True:
            rows += answer.get("data", ())
            if "error" in answer:
                return Result(error=answer["error"]["errorName"], message=answer["error"]["message"])
            if "nextUri" not in answer:
                return Result(rows)
            answer = self._json(self.session.get(answer["nextUri"], headers=headers, timeout=60))

    @staticmethod
    def _json(response: requests.Response) -> dict[str, Any]:
        if response.status_code == 403:
            return {"error": {"errorName": DENIED, "message": response.text}}
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()
        return found


def distribution(version: str = VERSION) -> Path:
    """The folder of an unpacked server; skips the test where the archive cannot be had."""
    if version == LATEST:
        return assembled()
    if given := os.environ.get(FOLDER_VARIABLE):
        return Path(given)
    folder = user_cache.folder() / f"trino-server-{VERSION}"
    if all((folder / "plugin" / name).is_dir() for name in PLUGINS):
        return folder
    archive = Path.home() / ".m2/repository/io/trino/trino-server" / VERSION / f"trino-server-{VERSION}.tar.gz"
    if not archive.is_file() and (maven := shutil.which("mvn")) is not None:
        command = [maven, "-q", "dependency:get", f"-Dartifact={ARTIFACT}", "-Dtransitive=false"]
        subprocess.run(command, check=False, timeout=1800, capture_output=True)
    if not archive.is_file():
        pytest.skip(f"{ARTIFACT} (821 MB) cannot be had from Maven, and {FOLDER_VARIABLE} names no unpacked server")
    kept = re.compile(rf"trino-server-{VERSION}/(?:lib|plugin/(?:{'|'.join(PLUGINS)}))/(?!hdfs/)")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as staged, tarfile.open(archive) as tar:
        tar.extractall(staged, (m for m in tar if kept.match(m.name)), filter="data")
        shutil.rmtree(folder, ignore_errors=True)
        (Path(staged) / folder.name).rename(folder)
    return folder


CONNECTORS = {"": "main", "iceberg": "iceberg", "memory": "memory", "tpch": "tpch"}
"""The folders of plugins, and the server's own, with the artifacts that go there."""
LAUNCHER = (
    'package io.trino.server; class TrinoServer { public static void main(String[] a) { new Server().start("%s"); } }'
)
"""The server's main class: it has no artifact."""


def assembled() -> Path:
    """The folder of a Trino of the latest release from its parts, as its archive is not on Maven Central; skips the test where one is missing.

    Nor is the plugin `opa`: it is that of the earlier release, and asks what that one asks.
    """
    folder = user_cache.folder() / f"trino-server-{LATEST}-opa-{VERSION}"
    if folder.is_dir():
        return folder
    compiler, plugin = java(LATEST).with_name("javac"), distribution() / "plugin" / "opa"
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        staged = Path(name) / folder.name
        for place, part in CONNECTORS.items():
            jars = staged / "plugin" / place if place else staged / "lib"
            if not fetched([("io.trino", f"trino-{part}", LATEST)], jars):
                pytest.skip(f"Trino {LATEST} (516 MB in parts) cannot be had from Maven: io.trino:trino-{part}")
            if place:
                with zipfile.ZipFile(jars / "services.jar", "w") as services:
                    named = f"io.trino.plugin.{part}.{part.capitalize()}Plugin\n"
                    services.writestr("META-INF/services/io.trino.spi.Plugin", named)
        shutil.copytree(plugin, staged / "plugin" / "opa")
        source = Path(name) / "TrinoServer.java"
        source.write_text(LAUNCHER % LATEST, encoding="utf-8")
        lib = staged / "lib"
        command = [str(compiler), "-cp", f"{lib}/*", "-d", str(Path(name) / "classes"), str(source)]
        if subprocess.run(command, check=False, capture_output=True, timeout=300).returncode:
            pytest.skip(f"{compiler} does not compile: Trino {LATEST} needs a JDK")
        with zipfile.ZipFile(lib / "launcher.jar", "w") as launcher:
            launcher.write(
                Path(name) / "classes/io/trino/server/TrinoServer.class", "io/trino/server/TrinoServer.class"
            )
        staged.rename(folder)
    return folder


def java(version: str = VERSION) -> Path:
    """A Java that is new enough; skips the test if there is none."""
    homes = [Path(home) for home in (os.environ.get(JAVA_VARIABLE), os.environ.get("JAVA_HOME")) if home]
    for home in (*homes, *sorted(Path("/usr/lib/jvm").glob("*"))):
        release = home / "release"
        found = re.search(r'JAVA_VERSION="(\d+)', release.read_text(encoding="utf-8")) if release.is_file() else None
        if found and int(found[1]) >= JAVA[version]:
            return home / "bin" / "java"
    pytest.skip(
        f"Trino {version} needs Java {JAVA[version]}: {JAVA_VARIABLE} names none, and no JAVA_HOME or system package has one"
    )


@contextmanager
def trino(
    access_control: Mapping[str, str],
    owner: str,
    log: Path | None = None,
    further: Mapping[str, str] | None = None,
    version: str = VERSION,
) -> Iterator[Trino]:
    """A Trino with the catalogs `tpch`, `memory` and `lake`, of Iceberg in local files, that asks an OPA, as the properties say.

    `owner`: who may read `tpch`. `further`: more of Trino's configuration.
    """
    server, program = distribution(version), java(version)
    with tempfile.TemporaryDirectory(prefix="privtab-trino-") as name:
        folder, port = Path(name), free_port()
        etc = folder / "etc"
        (etc / "catalog").mkdir(parents=True)
        for catalog in ("tpch", "memory"):
            write_properties(etc / "catalog" / f"{catalog}.properties", {"connector.name": catalog})
        write_properties(etc / "catalog" / "lake.properties", {**LAKE, "local.location": name})
        write_properties(etc / "access-control.properties", {"access-control.name": "opa", **access_control})
        config = {
            "node.environment": "test",
            "node.id": "test",
            "node.internal-address": "127.0.0.1",
            "node.bind-ip": "127.0.0.1",
            "coordinator": "true",
            "node-scheduler.include-coordinator": "true",
            "http-server.http.port": str(port),
            "discovery.uri": f"http://127.0.0.1:{port}",
            "plugin.dir": str(server / "plugin"),
            "access-control.config-files": str(etc / "access-control.properties"),
            "query.max-memory-per-node": "200MB",
        }
        write_properties(etc / "config.properties", config | dict(further or {}))
        options = [
            "--add-modules=jdk.incubator.vector",
            "-Xmx1G",
            "-XX:+UseG1GC",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UnlockDiagnosticVMOptions",
            "-XX:-BytecodeVerificationRemote",
            "-Djdk.attach.allowAttachSelf=true",
        ]
        options += ["-Dfile.encoding=UTF-8", f"-Dconfig={etc / 'config.properties'}", "-cp", f"{server}/lib/*"]
        environment = {key: value for key, value in os.environ.items() if key != "JDK_JAVA_OPTIONS"}
        path = log or folder / "trino.log"
        with path.open("wb") as output:
            process = subprocess.Popen(
                [str(program), *options, "io.trino.server.TrinoServer"],
                cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip
        try:
            running = Trino(f"http://127.0.0.1:{port}")
            deadline = time.monotonic() + START_SECONDS
            while not running.ready():
                text = path.read_text(encoding="utf-8", errors="replace")
                assert process.poll() is None, f"Trino ended:\n{text[-4000:]}"
                assert time.monotonic() < deadline, f"Trino did not start:\n{text[-4000:]}"
                time.sleep(0.5)
            while running.run(owner, PROBE).error == "NO_NODES_AVAILABLE":
                time.sleep(0.5)
            yield running
        finally:
            stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a server, and kill it if it does not."""
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def write_properties(path: Path, values: Mapping[str, str]) -> None:
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items()), encoding="utf-8")
