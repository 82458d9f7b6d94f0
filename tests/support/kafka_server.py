"""A real Kafka broker with OPA's authorizer, from the jars on Maven Central, and Kafka's own command line tools as its users."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from failing_servers import free_port
from maven import fetched
from trino_server import stop, write_properties

from privtab.base import user_cache

VERSION, LATEST, AUTHORIZER = "3.9.1", "4.4.0", "1.5.1"
FOLDER_VARIABLES = {VERSION: "PRIVTAB_KAFKA", LATEST: "PRIVTAB_KAFKA_4"}
"""The variables that may name a folder with the jars of a release."""
BESIDE_4 = (
    (
        "com.fasterxml.jackson.module",
        "jackson-module-scala_2.13",
        "2.21.7",
    ),  # of the authorizer; as Kafka's other jars of Jackson
    ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.5"),
)
"""Jars that Kafka 3 has, and Kafka 4 has not."""
TOOLS = Path(__file__).with_name("KafkaTools.java")
BROKER, ANONYMOUS = "broker", "ANONYMOUS"
PASSWORD = "secret"  # noqa: S105  (of the test alone)
START_SECONDS, COMMAND_SECONDS = 240, 240
DENIED = re.compile(r"\w+AuthorizationException|[Aa]uthorization failed|Not authorized to access \w+")
UNADDRESSED = "org.apache.kafka.tools.ProducerPerformance"
"""The tool for transactions, which finds the broker in its configuration alone."""
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
MOVED = {
    "kafka.tools.ConsoleProducer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka.admin.ConfigCommand": "org.apache.kafka.tools.ConfigCommand",
}
"""Tools that have other names since Kafka 4."""
LOGGING = """log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.target=System.err
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%p %m (%c)%n
"""
LOGGING_4 = """rootLogger.level=WARN
rootLogger.appenderRef.out.ref=out
appender.out.type=Console
appender.out.name=out
appender.out.target=SYSTEM_ERR
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%p %m (%c)%n
"""
"""The same for Log4j 2, which Kafka 4 has."""
CLIENT = {"request.timeout.ms": "10000", "default.api.timeout.ms": "20000", "max.block.ms": "20000"}


@dataclass(frozen=True)
class Output:
    """What a command of Kafka printed and logged, and how it ended."""

    code: int
    printed: str
    logged: str

    @property
    def denied(self) -> list[str]:
        """What says that an authorization failed."""
        return DENIED.findall(self.printed + self.logged)


@dataclass(frozen=True)
class Kafka:
    """A running broker, which is its own controller."""

    address: str
    anonymous_address: str
    """Where nobody authenticates."""
    folder: Path
    tools: subprocess.Popen[str]
    """The Java machine of the tools: a second for each of its own would be most of what a test takes."""
    version: str = VERSION

    def run(self, user: str, tool: str, *arguments: str, given: str = "") -> Output:
        """Run a class of Kafka's command line tools; `CONFIG` stands for the user's configuration, `given` is typed."""
        path = self.folder / f"{user}.properties"
        address = self.anonymous_address if user == ANONYMOUS else self.address
        login = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{LOGIN} username="{user}" password="{PASSWORD}";',
        }
        write_properties(path, CLIENT | {"bootstrap.servers": address} | (login if user != ANONYMOUS else {}))
        words = [str(path) if word == "CONFIG" else word for word in arguments]
        if tool != UNADDRESSED:
            words += ["--bootstrap-server", address]
        asked = "\t".join(b64encode(word.encode()).decode() for word in (self.named(tool), given, *words))
        timer = threading.Timer(COMMAND_SECONDS, self.tools.kill)
        timer.start()
        try:
            assert self.tools.stdin is not None
            assert self.tools.stdout is not None
            self.tools.stdin.write(f"{asked}\n")
            self.tools.stdin.flush()
            answer = self.tools.stdout.readline()
        finally:
            timer.cancel()
        assert answer, f"{tool} did not end within {COMMAND_SECONDS} seconds"
        code, printed, logged = answer.rstrip("\n").split("\t")
        return Output(int(code), b64decode(printed).decode(), b64decode(logged).decode())

    def named(self, tool: str) -> str:
        """The class of a tool in this version."""
        return tool if is_3(self.version) else MOVED.get(tool, tool)


def is_3(version: str) -> bool:
    """Return whether this is Kafka 3: it logs by Log4j 1, and some of its tools have other names."""
    return version.startswith("3.")


def artifacts(version: str) -> list[tuple[str, str, str]]:
    """The group, the name and the version of what is fetched, with all that it needs."""
    found = [("org.apache.kafka", name, version) for name in ("kafka_2.13", "kafka-tools")]
    found.append(("org.openpolicyagent.kafka", "opa-authorizer", AUTHORIZER))
    return found if is_3(version) else [*found, *BESIDE_4]


def jars(version: str = VERSION) -> Path:
    """The folder of Kafka's jars and the authorizer's; skips the test where they cannot be had."""
    if given := os.environ.get(FOLDER_VARIABLES[version]):
        return Path(given)
    folder = user_cache.folder() / f"kafka-{version}-opa-{AUTHORIZER}{'' if is_3(version) else '-more'}"
    if folder.is_dir():
        return folder
    if not fetched(artifacts(version), folder):
        variable = FOLDER_VARIABLES[version]
        pytest.skip(f"Kafka {version} (59 MB) cannot be had from Maven, and {variable} names no folder with it")
    return folder


def java(folder: Path, version: str = VERSION) -> list[str]:
    """The command that runs a class of the jars, whose log goes to the errors; skips the test if there is no Java."""
    if (program := shutil.which("java")) is None:
        pytest.skip(f"Kafka {version} needs Java, and there is none on the path")
    logging = folder / "log4j.properties"
    logging.write_text(LOGGING if is_3(version) else LOGGING_4, encoding="utf-8")
    setting = "log4j.configuration" if is_3(version) else "log4j2.configurationFile"
    return [program, "-XX:TieredStopAtLevel=1", f"-D{setting}=file:{logging}", "-cp", f"{jars(version)}/*"]


@contextmanager
def kafka(authorizer: Mapping[str, str], users: Sequence[str], version: str = VERSION) -> Iterator[Kafka]:
    """Start a broker with the authorizer's properties and these users. It has no super users: its own principal is `broker`."""
    with tempfile.TemporaryDirectory(prefix="privtab-kafka-") as name:
        folder = Path(name)
        clients, anonymous, controllers = (f"127.0.0.1:{free_port()}" for _ in range(3))
        known = " ".join(f'user_{user}="{PASSWORD}"' for user in (BROKER, *users))
        login = f'{LOGIN} username="{BROKER}" password="{PASSWORD}" {known};'
        listeners = f"CLIENT://{clients},ANYONE://{anonymous}"
        path = folder / "server.properties"
        write_properties(path, {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controllers}",
            "listeners": f"{listeners},CONTROLLER://{controllers}",
            "advertised.listeners": listeners,
            "inter.broker.listener.name": "CLIENT",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT,ANYONE:PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.client.plain.sasl.jaas.config": login,
            "listener.name.controller.plain.sasl.jaas.config": login,
            "log.dirs": str(folder / "log"),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "auto.create.topics.enable": "false",
            "delegation.token.secret.key": PASSWORD,
            **authorizer,
        })  # fmt: skip
        command = java(folder, version)
        shown = [*command, "-Xmx256m", "-XX:+UseSerialGC", "-Xlog:disable", str(TOOLS)]
        formatted = [*command, "kafka.tools.StorageTool", "format", "-t", "4L6g3nShT-eMCtK--X86sw", "-c", str(path)]
        subprocess.run(formatted, check=True, capture_output=True, timeout=COMMAND_SECONDS)
        log = folder / "broker.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*command, "-Xmx512m", "kafka.Kafka", str(path)],
                cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip
        tools = subprocess.Popen(
            shown, cwd=folder, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        try:
            running = Kafka(clients, anonymous, folder, tools, version)
            deadline = time.monotonic() + START_SECONDS
            while running.run(
                BROKER, "org.apache.kafka.tools.TopicCommand", "--list", "--command-config", "CONFIG"
            ).code:
                text = log.read_text(encoding="utf-8", errors="replace")
                assert process.poll() is None, f"Kafka ended:\n{text[-4000:]}"
                assert time.monotonic() < deadline, f"Kafka did not start:\n{text[-4000:]}"
            yield running
        finally:
            tools.kill()
            tools.communicate()
            stop(process)
