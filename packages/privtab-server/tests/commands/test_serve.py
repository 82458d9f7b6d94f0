"""What `privtab serve` refuses before it listens; what it does when it runs is in packages/privtab-server/tests/authzen."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_origin, get_type_hints

import pytest

from privtab.base import FileError
from privtab_server.commands import serve
from privtab_server.commands._serving import StoreOptions
from privtab_server.serving.server import is_loopback, listen

TOKENS = "gateway a-token-0123456789\n"


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text(TOKENS, encoding="utf-8")
    return path


def test_help_has_examples(privtab: Callable[..., Any]) -> None:
    ran = privtab("serve", "--help")
    assert ran.code == 0
    assert "privtab serve --opa" in ran.out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "who decides"),
        (["--state", "STATE"], "who decides"),
        (["--policy", "POLICY"], "one `--state` for each `--policy`"),
        (["--policy", "POLICY", "--state", "STATE", "--opa", "http://127.0.0.1:1"], "who decides"),
        (["--bundles", "built", "--opa", "http://127.0.0.1:1"], "who decides"),
        (["--bundles", "built", "--state", "STATE"], "one `--state` for each `--policy`"),
        (["--policy", "POLICY", "--policy", "POLICY", "--state", "STATE", "--state", "STATE"], "two policies"),
        (["--policy", "POLICY", "--state", "STATE", "--listen", "0.0.0.0:0"], "--insecure"),
        (["--policy", "POLICY", "--state", "STATE", "--listen", "[::]:0"], "--insecure"),
        (["--policy", "POLICY", "--state", "STATE", "--tls", "cert=STATE"], "go together"),
        (["--policy", "POLICY", "--state", "STATE", "--tls", "client-ca=STATE"], "go together"),
        (["--policy", "POLICY", "--state", "STATE", "--tls", "cert=STATE", "--tls", "key=STATE"], "for TLS"),
        (["--policy", "POLICY", "--state", "STATE", "--tls", "certificate=STATE"], "there are cert, key, client-ca"),
        (["--policy", "POLICY", "--state", "STATE", "--limit", "body=100"], "write a number from 1024"),
        (["--policy", "POLICY", "--state", "STATE", "--limit", "head=soon"], "write a number from 0.1"),
        (["--policy", "POLICY", "--state", "STATE", "--limit", "connections=-1"], "write a number from 0"),
        (["--policy", "POLICY", "--state", "STATE", "--limit", "bodies=1"], "there are body, head, connections"),
        (["--policy", "POLICY", "--state", "STATE", "--token-file", "STATE"], "state.yaml:1"),
        (["--policy", "POLICY", "--state", "STATE", "--public-url", "pdp.example.com"], "https://host"),
        (["--policy", "POLICY", "--state", "STATE", "--public-url", "https://pdp.example.com/?a"], "https://host"),
        (["--policy", "POLICY", "--state", "STATE", "--page-size", "0"], "page-size"),
        (["--opa", "no address"], "no address"),
        (["grants.db"], "`grants.db`: write store:STORE"),
        (["store:"], "`store:`: write store:STORE"),
        (["store:grants.db@12", "--policy", "POLICY"], "not as it was at a moment"),
        (["registry:registry#prod"], "by `--channel`"),
        (["store:grants.db"], "a store has one `--policy POLICY`"),
        (["store:grants.db", "--policy", "POLICY", "--policy", "POLICY"], "a store has one `--policy POLICY`"),
        (["store:grants.db", "-p", "POLICY", "--channel", "a", "--channel", "b"], "one `--channel NAME` or none"),
        (["store:grants.db", "--policy", "POLICY", "--limit", "logs=1"], "there are body, head, connections"),
        (["registry:registry", "--policy", "POLICY"], "leave out `--policy`"),
        (["--policy", "POLICY", "--state", "STATE", "--channel", "prod"], "`--channel` is for a store or a registry"),
    ],
)
def test_bad_usage(privtab: Callable[..., Any], policy: Path, state: Path, arguments: list[str], says: str) -> None:
    places = {"POLICY": str(policy), "STATE": str(state)}
    ran = privtab(
        "serve", "--listen", "0", *(re.sub("POLICY|STATE", lambda word: places[word[0]], a) for a in arguments)
    )
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err
    assert "Traceback" not in ran.err


def test_what_is_served_has_its_own_options(privtab: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """An option about something else would be lost: whoever gives `--anonymous` or `--brief` relies on it."""
    groups = {"decisions": serve.DecisionOptions, "store": StoreOptions, "registry": serve.RegistryOptions}
    served = {
        "decisions": ["-p", "cdap/final"],
        "store": ["store:g.db", "-p", "cdap/final"],
        "registry": ["registry:r"],
    }
    monkeypatch.setenv("PRIVTAB_SIGNING_KEY", "in the environment for other commands")
    tried = 0
    for owner, group in groups.items():
        for annotation in get_type_hints(group, include_extras=True).values():
            if get_origin(annotation) is not Annotated:
                continue
            (written,) = annotation.__metadata__
            name = max(written.names, key=len)
            value = [] if annotation.__origin__ is bool else ["17"]
            for kind, words in served.items():
                if kind != owner:
                    ran = privtab("serve", *words, name, *value)
                    assert (ran.code, f"`{name}` is for {serve.KINDS[owner]}" in ran.err) == (2, True), ran.err
                    tried += 1
    assert tried > 30


def test_a_limit_that_a_server_does_not_have_is_refused(privtab: Callable[..., Any], tmp_path: Path) -> None:
    for command in (["serve", f"registry:{tmp_path}"], ["explore", "cdap/final"]):
        for limit in ("body=2048", " body =2048"):
            ran = privtab(*command, "--listen", "0", "--limit", limit)
            assert (ran.code, "head, connections" in ran.err) == (2, True), ran.err
    assert privtab("explore", "cdap/final", "--limit", "poll=1").code == 2
    assert privtab("serve", f"registry:{tmp_path}", "--limit", "forget=0.5").code == 2


@pytest.mark.parametrize(
    "where", ["", "a", ":8080", "::1", "::1:8080", "[::1]", "127.0.0.1:", "0.0.0.0:65536", "[a]:1"]
)
def test_an_address_is_whole_or_refused(where: str, privtab: Callable[..., Any], tmp_path: Path) -> None:
    ran = privtab("serve", f"registry:{tmp_path}", "--insecure", "--listen", where)
    assert (ran.code, "write 8080, 0.0.0.0:8080 or [::1]:8080" in ran.err) == (2, True), ran.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--bundles", "nowhere"],
        ["--policy", "POLICY", "--state", "nowhere.yaml"],
        ["--policy", "POLICY", "--state", "STATE", "--token-file", "nowhere"],
        ["--policy", "POLICY", "--state", "STATE", "--tls", "cert=nowhere", "--tls", "key=nowhere"],
        ["--policy", "POLICY", "--state", "STATE", "--listen", "192.0.2.1:0", "--insecure"],
    ],
)
def test_failures_outside_exit_with_3(
    privtab: Callable[..., Any], policy: Path, state: Path, arguments: list[str]
) -> None:
    places = {"POLICY": str(policy), "STATE": str(state)}
    ran = privtab(
        "serve", "--listen", "0", *(re.sub("POLICY|STATE", lambda word: places[word[0]], a) for a in arguments)
    )
    assert (ran.code, ran.out) == (3, "")
    assert "Traceback" not in ran.err


def test_wrong_rows_of_a_state_stop_it(privtab: Callable[..., Any], policy: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("grants: [{grantee: user:a, effect: allow, privilege: FLY, entity: store:s}]\n", encoding="utf-8")
    ran = privtab("serve", "--policy", policy, "--state", wrong, "--listen", "0")
    assert ran.code == 1
    assert "FLY" in ran.err


def test_a_port_that_is_taken(privtab: Callable[..., Any], policy: Path, state: Path) -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        ran = privtab("serve", "--policy", policy, "--state", state, "--listen", str(port))
    assert ran.code == 3
    assert f"127.0.0.1:{port}" in ran.err


def test_sockets_send_at_once() -> None:
    """asyncio sets TCP_NODELAY by this."""
    with listen("localhost", 0) as listening:
        assert listening.proto == socket.IPPROTO_TCP
    with pytest.raises(FileError):
        listen("no-such-host.invalid", 0)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),  # noqa: S104  (asked about, not bound)
        ("::", False),
        ("10.0.0.1", False),
        ("example.com", False),
        ("localhost.example.com", False),
        ("", False),
    ],
)
def test_addresses_of_this_machine_alone(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_without_the_extra_it_says_what_to_install(policy: Path, state: Path) -> None:
    program = (
        "import sys; sys.modules['starlette'] = None\n"
        f"from privtab.command._app import run; sys.exit(run(['serve', '-p', {str(policy)!r}, '-s', {str(state)!r}]))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert "pip install '.[compiler,serve]'" in ran.stderr


def test_a_registry_server_without_its_extra_says_what_to_install(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        f"from privtab.command._app import run; sys.exit(run(['serve', {f'registry:{tmp_path}'!r}]))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert "pip install '.[compiler,registry]'" in ran.stderr


def test_the_first_line_is_for_a_person_unless_said(policy: Path, state: Path, tokens: Path) -> None:
    command = [sys.executable, "-c", "from privtab.command import main; main()", "serve", "--listen", "0", "-q"]
    options = ["-p", str(policy), "-s", str(state), "--listen", "0.0.0.0:0", "--token-file", str(tokens)]
    process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    process.terminate()
    _, errors = process.communicate(timeout=30)
    assert line.startswith("shop at http://0.0.0.0:")
    assert line.endswith("; Ctrl-C ends it\n")
    assert "no TLS" in errors
    assert process.returncode == 0
