"""docs/how-to/kafka.md: its files and commands, with a real OPA and a real Kafka, as they are written."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import requests
from documentation_pages import Block, read
from kafka_server import kafka

from privtab.command._app import run
from privtab.engines.opa.server import OpaServer

PAGE = "docs/how-to/kafka.md"
ADDRESS = "127.0.0.1:8181"
TOOLS = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-console-producer.sh": "kafka.tools.ConsoleProducer",
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
}
NUMBERS = re.compile(r"[\d,]+ B|\b[0-9a-f]{16}\b|\d+ ms")


def commands(block: Block) -> Iterator[tuple[str, str, list[str], str, list[str]]]:
    """The user, the tool, its arguments, what is typed and the output of each command of a block."""
    for part in block.text.split("$ ")[1:]:
        command, *output = part.splitlines()
        typed, _, rest = command.rpartition(" | ")
        tool, option, address, *words = shlex.split(rest)
        assert (option, address) == ("--bootstrap-server", "localhost:9092"), command
        (user,) = (word.removesuffix(".properties") for word in words if word.endswith(".properties"))
        arguments = ["CONFIG" if word == f"{user}.properties" else word for word in words]
        yield user, TOOLS[tool], arguments, typed.removeprefix("echo ") + "\n" if typed else "", output


@pytest.mark.long
@pytest.mark.xdist_group("kafka")
def test_the_page_works_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    shown, url, properties = 0, "", ""
    with ExitStack() as stack:
        for block in read(PAGE).blocks:
            if names := block.names("state"):
                (tmp_path / names[0]).write_text(block.text, encoding="utf-8")
            elif "serve" in block.says:
                bundles = {part: tmp_path / f"build/kafka/3.9/{part}.tar.gz" for part in ("policy", "state")}
                url = stack.enter_context(OpaServer(bundles)).url.removeprefix("http://")
            elif block.language == "properties":
                properties = block.text.replace(ADDRESS, url)
            elif "kafka" in block.says:
                settings = dict(line.split("=", 1) for line in properties.splitlines())
                broker = stack.enter_context(kafka(settings, ["olga", "ann", "ben", "zoe"]))
                for user, tool, words, typed, output in commands(block):
                    found = broker.run(user, tool, *words, given=typed)
                    assert [line for line in found.printed.splitlines() if line.strip(">")] == output, (
                        user,
                        words,
                        found,
                    )
                    shown += 1
            elif "asked" in block.says:
                command, _, answer = block.text.replace("\\\n", "").partition("\n")
                words = shlex.split(command.removeprefix("$ ").replace(ADDRESS, url))
                kind = dict([words[4].split(": ")])
                found_text = requests.post(f"http://{words[2]}", words[-1], headers=kind, timeout=10).text
                assert found_text.strip() == answer.strip()
                shown += 1
            elif block.language == "console":
                command, _, expected = block.text.removeprefix("$ ").partition("\n")
                assert run(shlex.split(command)[1:]) == 0
                written = capsys.readouterr().out
                assert [NUMBERS.sub("#", " ".join(line.split())) for line in written.splitlines()] == [
                    NUMBERS.sub("#", " ".join(line.split())) for line in expected.splitlines()
                ]
                shown += 1
    assert shown == 9
