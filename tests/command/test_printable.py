"""What is printed holds nothing that a terminal would obey, whichever command prints it."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import socket
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest

from privtab.base.printable import printable_json, printable_text
from privtab.command import _app
from privtab.command._app import run

Privtab = Callable[..., Any]
MARK = "h4x"
ODD = "h4x\x1b]0;title\x07\x9b31m\u202e\u2066\x7f\u061c"
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ud800-\udfff]")
YAML = json.dumps(ODD)[1:-1]

POLICY = f"""\
privtab: 1
system: shop
version: "1"
title: "title {YAML}"
sources: {{it: {{document: "{YAML}.txt"}}}}
entities: {{store: {{shelf: {{item:}}}}}}
types: {{shelf: {{title: "{YAML}"}}}}
privileges: [READ, WRITE]
semantics: {{inheritance: down, deny: overrides}}
tables:
  store: {{open: {{requires: READ (store), title: "{YAML}", note: "note {YAML}", source: {{line: 3}}}}}}
  shelf: {{list: {{each: READ (shelf), ambiguous: {{cell: "{YAML}", readings: {{other: WRITE (shelf)}}, why: "{YAML}"}}}}}}
  item: {{read: READ (item)}}
"""
STATE = f"""\
grants:
  - {{grantee: "user:ann", effect: allow, privilege: READ, entity: "store:s"}}
  - {{grantee: "user:{YAML}", effect: allow, privilege: READ, entity: "store:s"}}
  - {{grantee: "user:bob", effect: allow, privilege: "{YAML}", entity: "store:{YAML}"}}
"""
SCENARIOS = f"""\
scenarios: 1
policy: shop.yaml
cases:
  - {{user: bob, action: open, resource: "store:s", decision: allow, why: "{YAML}"}}
"""


def commands(at: Any = None, name: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command that there is, by its words."""
    below = getattr(at or _app.command(), "commands", None)
    if below is None:
        yield name
        return
    for word, command in below.items():
        yield from commands(command, (*name, word))


ALL = sorted(commands())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with an odd name, and odd texts in every file of it."""
    place = tmp_path / ODD
    place.mkdir()
    (place / "shop.yaml").write_text(POLICY, encoding="utf-8")
    (place / "wider.yaml").write_text(POLICY.replace("READ (item)", "READ/WRITE (item)"), encoding="utf-8")
    (place / f"{ODD}.yaml").write_text(POLICY, encoding="utf-8")
    (place / "wrong.yaml").write_text(f'privtab: 1\nsystem: "{YAML}"\nwrong: "{YAML}"\n', encoding="utf-8")
    (place / "raw.yaml").write_text(f"privtab: 1\nsystem: {ODD}\nother: # {ODD}\n", encoding="utf-8")
    (place / "state.yaml").write_text(STATE, encoding="utf-8")
    (place / "good.yaml").write_text("\n".join(STATE.splitlines()[:2]) + "\n", encoding="utf-8")
    (place / "shop.scenarios.yaml").write_text(SCENARIOS, encoding="utf-8")
    request = {
        "subject": {"type": "user", "id": ODD},
        "action": {"name": ODD},
        "resource": {"type": "store", "id": ODD},
    }
    good = request | {"action": {"name": "open"}}
    (place / "asked.jsonl").write_text(f"{json.dumps(request)}\n{json.dumps(good)}\n{ODD}\n", encoding="utf-8")
    monkeypatch.chdir(place)
    return place


def check(ran: Any, *, marked: bool = True) -> None:
    text = ran.out + ran.err
    assert not RAW.search(text), RAW.search(text)
    assert "Traceback" not in text
    assert (MARK in text) or not marked, "the odd text was not printed at all"


def test_the_filter_knows_every_control_and_format_character() -> None:
    shapes = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD, *range(0x13430, 0x13440)}
    every = [chr(code) for code in range(sys.maxunicode + 1)]
    hidden = {c for c in every if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") and ord(c) not in shapes}
    for character in hidden:
        assert (printable_text(character) != character) == (character not in "\t\n"), hex(ord(character))
        assert json.loads(printable_json(character)) == character
        assert printable_json(character).isprintable()
    # All others at once: one that were hidden would be missing.
    shown = "".join(c for c in every if c not in hidden)
    assert printable_text(shown) == shown


@pytest.mark.parametrize("command", ALL, ids=" ".join)
def test_no_command_repeats_its_arguments_raw(command: tuple[str, ...], privtab: Privtab, folder: Path) -> None:
    # What Spark's jobs take is looked at option by option: the first that is missing ends it.
    check(privtab(*command, f"--{ODD}"), marked=command[0] not in ("spark", "certify"))
    check(privtab(*command, ODD, ODD, ODD, ODD, ODD, ODD, ODD, ODD), marked=False)


@pytest.mark.parametrize(
    "line",
    [
        "lint raw.yaml --format pretty",
        "lint raw.yaml --format text",
        "lint wrong.yaml --format github",
        "lint wrong.yaml --format json",
        "lint wrong.yaml --format sarif",
        "compile raw.yaml",
        "fmt raw.yaml",
        "fmt shop.yaml --diff",
        "describe shop.yaml",
        "describe shop.yaml --format json",
        "describe wrong.yaml",
        "explain ann open store:s -p shop.yaml -s good.yaml",
        "explain ann open store:s -p shop.yaml -s good.yaml --format json",
        "explain {odd} open store:{odd} -p shop.yaml -s good.yaml",
        "who-can open store:{odd} -p shop.yaml -s good.yaml",
        "who-can open store:s -p shop.yaml -s state.yaml",
        "who-can open store:s -p shop.yaml -s state.yaml --format csv",
        "what-can {odd} -p shop.yaml -s good.yaml",
        "decide -p shop.yaml -s good.yaml --requests asked.jsonl",
        "what-can ann store:{odd} --gain READ -p shop.yaml -s good.yaml",
        "diff {odd}.yaml wider.yaml",
        "diff {odd}.yaml wider.yaml --format json",
        "diff {odd}.yaml wider.yaml --format sarif",
        "diff {odd}.yaml wider.yaml --format markdown",
        "diff shop.yaml wrong.yaml",
        "test shop.scenarios.yaml",
        "test shop.scenarios.yaml --format json",
        "test shop.scenarios.yaml --format junit",
        "state validate state.yaml --policy shop.yaml",
        "state validate state.yaml --policy shop.yaml --format json",
        "deploy shop.yaml --state good.yaml --registry {odd} --why {odd} --channel {odd}",
        "registry init {odd}",
        "bundle keys {odd}",
        "bundle sign {odd} --signing-key {odd} --output {odd}",
        "bundle verify {odd} --verification-key {odd}",
        "bundle inspect {odd}",
        "serve --policy {odd} --state {odd}",
        "opa run -p {odd}",
    ],
)
def test_texts_of_files_are_printed_as_text(line: str, privtab: Privtab, folder: Path) -> None:
    ran = privtab(*(word.replace("{odd}", ODD) for word in line.split(" ")))
    assert ran.code in range(4)
    check(ran)
    # JSON says all of it, so that no two names look the same to a program.
    if line.endswith(("json", "sarif")):
        assert ODD in unquote("".join(texts(json.loads(ran.out))))


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield name
            yield from texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)
    else:
        yield str(value)


def test_texts_of_a_registry_are_printed_as_text(privtab: Privtab, folder: Path) -> None:
    (folder / "shop.scenarios.yaml").unlink()
    arguments = ["-r", ODD, "--why", ODD, "--accept", f"untested={ODD}"]
    assert privtab("deploy", "shop.yaml", "--state", "good.yaml", *arguments).code == 0
    assert privtab("deploy", "wider.yaml", *arguments, "--fail-on", "none").code == 0
    for line in (
        ["registry", "status", "shop", "-r", ODD, "-c", "dev", "--history", "9"],
        ["registry", "status", "-r", ODD],
        ["registry", "status", "-r", ODD, "--format", "json"],
    ):
        ran = privtab(*line)
        check(ran)
        assert ran.code == 0, (line, ran)
        if line[-1] == "json":
            assert ODD in "".join(texts(json.loads(ran.out)))


def test_decisions_are_json_that_says_all_of_it(privtab: Privtab, folder: Path) -> None:
    ran = privtab("decide", "-p", "shop.yaml", "-s", "good.yaml", "--requests", "asked.jsonl")
    first, second, third = map(json.loads, ran.out.splitlines())
    for refused in (first, second):
        assert MARK in refused["context"]["error"]["message"]
    assert third["decision"] is False


@pytest.mark.parametrize("command", ["who-can open store:s", "what-can =1+1"])
def test_no_cell_is_a_formula_to_a_spreadsheet(command: str, privtab: Privtab, folder: Path) -> None:
    users = ["=1+1", "+1", "-1", "@SUM(A1)", "\uff1d1", "ann"]
    rows = [{"grantee": f"user:{u}", "effect": "allow", "privilege": "READ", "entity": "store:=s"} for u in users]
    rows += [{**row, "entity": "store:s"} for row in rows]
    (folder / "formulas.json").write_text(json.dumps({"grants": rows}), encoding="utf-8")
    ran = privtab(*command.split(), "-p", "shop.yaml", "-s", "formulas.json", "--format", "csv")
    cells = [cell for row in csv.reader(io.StringIO(ran.out)) for cell in row]
    assert len(cells) > 4
    assert not [cell for cell in cells if cell.strip().startswith(("=", "+", "-", "@", "\uff1d"))]
    document = json.loads(privtab(*command.split(), "-p", "shop.yaml", "-s", "formulas.json", "--format", "json").out)
    assert "=1+1" in texts(document)
    if command.startswith("who"):
        assert {f"'{user}" for user in users if user != "ann"} | {"ann"} <= set(cells)


@pytest.mark.slow
def test_a_file_goes_unchanged_to_a_pipe_and_as_text_to_a_person(folder: Path) -> None:
    text = POLICY.replace("title: ", "title: \u202e # ", 1).replace(YAML, "b")
    command = [sys.executable, "-m", "privtab", "fmt", "-"]
    piped = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    assert "\u202e" in piped.stdout
    master, slave = pty.openpty()
    subprocess.run(command, input=text.encode(), stdout=slave, stderr=subprocess.PIPE, check=True)
    os.close(slave)
    shown = b""
    while b"item: " not in shown:
        shown += os.read(master, 65536)
    os.close(master)
    assert "\\u202e" in shown.decode()
    assert "\u202e" not in shown.decode()


@pytest.mark.slow
def test_colours_stay_on_a_terminal_and_nothing_else_does(folder: Path) -> None:
    for arguments in (["describe", "shop.yaml"], ["lint", "raw.yaml"], ["explain", "--help"], ["lint", f"--{ODD}"]):
        master, slave = pty.openpty()
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
        environment.pop("NO_COLOR", None)
        process = subprocess.Popen(
            [sys.executable, "-m", "privtab", *arguments], stdout=slave, stderr=slave, env=environment
        )
        os.close(slave)
        shown = b""
        try:
            while piece := os.read(master, 65536):
                shown += piece
        except OSError:
            pass  # Linux says that the other side has gone.
        os.close(master)
        process.wait()
        text = shown.decode()
        assert "\x1b[1m" in text, arguments
        # A command that takes a while shows that it works, in a line that it takes away.
        left = re.sub(r"\x1b\[(?:[0-9;]*m|\?25[lh]|2K|1A)", "", text).replace("\r", "")
        assert not RAW.search(left), (arguments, RAW.search(left))


def test_the_function_is_the_command() -> None:
    assert run(["--version"]) == 0
    assert len(ALL) > 40


@pytest.mark.parametrize("kind", ["AuthZEN", "registry"])
def test_a_hostile_request_is_one_printable_line_in_the_log(kind: str, privtab: Privtab, folder: Path) -> None:
    (folder / "tokens").write_text("web secret-enough-for-a-test\n", encoding="utf-8")
    (folder / "tokens").chmod(0o600)
    what = ["--policy", "shop.yaml", "--state", "good.yaml"] if kind == "AuthZEN" else ["registry:kept"]
    command = [
        sys.executable,
        "-m",
        "privtab",
        "serve",
        *what,
        "--listen",
        "0",
        "--format",
        "json",
        "--token-file",
        "tokens",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            url = json.loads(process.stdout.readline())["url"]
            port = int(url.rpartition(":")[2])
            for path in (quote(ODD) + "%0aWARNING+forged", "bundles/dev/shop/policy.tar.gz" + quote(ODD)):
                with socket.create_connection(("127.0.0.1", port), timeout=20) as caller:
                    head = f"GET /{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                    head += f"X-Request-ID: h4x\x9b31m\x7f\r\nX-Privtab-Instance: {ODD[-2]}\x85\r\n\r\n"
                    caller.sendall(head.encode("latin-1", "ignore"))
                    while caller.recv(65536):
                        pass
            if kind == "registry":
                (folder / "mine").write_text("secret-enough-for-a-test\n", encoding="utf-8")
                ran = privtab("registry", "status", "--server", url, "--token-file", "mine")
                check(ran)
                assert "h4x" in ran.out
        finally:
            process.terminate()
            log = process.stderr.read()
    assert "h4x" in log
    assert not RAW.search(log), RAW.search(log)
    assert not [line for line in log.splitlines() if line.startswith("WARNING")]
