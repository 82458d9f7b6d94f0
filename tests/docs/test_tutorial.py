"""docs/tutorial/first-service.md: its commands, files and services, in order, in an empty folder and as they are typed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from documentation_pages import Block, read

PAGE = "docs/tutorial/first-service.md"
PORTS = ("8000", "8181")
_VARIES = (
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "ID"),
    (re.compile(r"\b[0-9a-f]{16,64}\b"), "HASH"),
    (re.compile(r"\b\d+(\.\d)? (s|ms)\b"), "TIME"),
    (re.compile(r"\b[\d,]+ (B|bytes|lines of Rego)\b"), "SIZE"),
)


def tidy(text: str) -> list[str]:
    for pattern, shown in _VARIES:
        text = pattern.sub(shown, text)
    return [" ".join(line.split()) for line in text.strip().splitlines()]


def same(output: str, shown: str) -> bool:
    actual, expected = tidy(output), tidy(shown)
    if expected[-1:] == ["…"]:
        expected.pop()
        actual = actual[: len(expected)]
    return actual == expected


def free_port() -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return str(taken.getsockname()[1])


class Terminal:
    """A shell whose folder, files and services last from block to block. Ports of the page stand for free ones."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = {port: free_port() for port in PORTS}
        self.services: dict[str, subprocess.Popen[bytes]] = {}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.environment = os.environ | {"PATH": path, "COLUMNS": "120", "PYTHONDONTWRITEBYTECODE": "1"}
        self.environment.pop("PRIVTAB_URL", None)

    def real(self, command: str) -> str:
        """The command with free ports. `opa run` leaves its port off on the page, since 8181 is the default."""
        for port, own in self.ports.items():
            command = command.replace(port, own)
        return command.replace("privtab opa run ", f"privtab opa run --port {self.ports['8181']} ")

    def run(self, command: str) -> str:
        if command.startswith("cd "):
            self.folder /= command.removeprefix("cd ")
            return ""
        done = subprocess.run(
            ["bash", "-c", self.real(command)],  # noqa: S607
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        return done.stdout

    def start(self, command: str, port: str) -> None:
        """Start a service in place of the one on the same port, and wait until it listens."""
        self.stop(port)
        service = subprocess.Popen(
            ["bash", "-c", f"exec env {self.real(command)}"],  # noqa: S607
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.services[port] = service
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and service.poll() is None:
            with suppress(OSError), socket.create_connection(("127.0.0.1", int(self.ports[port])), timeout=1):
                return
            time.sleep(0.1)
        raise AssertionError(f"{command}: does not listen on {port}")

    def stop(self, port: str) -> None:
        if (service := self.services.pop(port, None)) is not None:
            service.send_signal(signal.SIGINT)
            try:
                service.wait(20)
            except subprocess.TimeoutExpired:
                service.kill()
                service.wait()


@contextmanager
def terminal(folder: Path) -> Iterator[Terminal]:
    opened = Terminal(folder)
    try:
        yield opened
    finally:
        for port in list(opened.services):
            opened.stop(port)


def edit(block: Block, folder: Path) -> None:
    """Write a file, append to one, or insert below the first line that begins with a word."""
    if "file" in block.says:
        (folder / block.says["file"][0]).write_text(block.text, encoding="utf-8")
    elif "append" in block.says:
        with (folder / block.says["append"][0]).open("a", encoding="utf-8") as file:
            file.write(block.text)
    else:
        name, _, word = block.says["insert"]
        lines = (folder / name).read_text(encoding="utf-8").splitlines(keepends=True)
        at = next(n for n, line in enumerate(lines) if line.split()[:1] in ([word], [f"{word}:"]))
        (folder / name).write_text("".join([*lines[: at + 1], block.text, *lines[at + 1 :]]), encoding="utf-8")


def check(opened: Terminal, command: str, shown: str) -> None:
    """Run a command and compare its output; an HTTP answer may take a while, until OPA has the new state."""
    deadline = time.monotonic() + (30 if command.startswith("curl") else 0)
    while not same(output := opened.run(command), shown):
        assert time.monotonic() < deadline, f"{command}\n{output}"
        time.sleep(0.3)


@pytest.mark.slow
def test_the_tutorial_works_as_typed(tmp_path: Path) -> None:
    assert shutil.which("curl"), "the tutorial calls its service with curl"
    commands = 0
    with terminal(tmp_path) as opened:
        for block in read(PAGE).blocks:
            if "sketch" in block.says:
                continue
            if block.language != "console":
                edit(block, opened.folder)
            elif "background" in block.says:
                opened.start(block.text.strip().removeprefix("$ "), block.says["background"][0])
            else:
                for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
                    command, _, shown = part.partition("\n")
                    check(opened, command, shown)
                    commands += 1
    assert commands >= 19
