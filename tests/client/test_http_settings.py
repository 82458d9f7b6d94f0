"""Everything that opens HTTP goes by the same rules: no proxy for this machine, no `.netrc`, one set of authorities."""

from __future__ import annotations

import ast
import asyncio
import shutil
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

import pytest
from checkout import sources
from failing_servers import POLICY, READ, Authority, reply
from proxies import proxy, use_proxy, without_proxies

from privtab import Client, Embedded, PrivtabError, pipeline
from privtab.base.errors import UsageError
from privtab.client import AsyncClient
from privtab.client._sender import Sender, SendError
from privtab.client._transport import RequestsTransport
from privtab.command._app import run
from privtab.pipeline import policy_artifacts
from privtab.state.nodes import State
from privtab_analysis.commands._ask import RequestOptions
from privtab_connect.importing import answers
from privtab_connect.pushdown import Options
from privtab_connect.pushdown.document import load as mapping
from privtab_connect.targets.gravitino import opened as target
from privtab_server.commands._store_session import RequestedChange, Settings, carry_out, listed, session
from privtab_server.registry import Registry
from privtab_server.registry.deploy.fleet import FleetUnreadable, OpaReader, ServerReader
from privtab_server.registry.deploy.push import push
from privtab_testing.conform import World
from privtab_testing.conform.drivers import open_driver

TOKEN = "a-token-of-the-test"  # noqa: S105
TROUBLE = (PrivtabError, FleetUnreadable)
DRIVER = """\
conform: 1
title: Datasets over HTTP
http:
  as: {X-User: "{user}"}
  users: {make: {put: "/users/{user}"}}
  roles: {make: {put: "/roles/{role}"}}
  entities:
    project: {make: {put: "/projects/{project}"}}
    dataset: {make: {put: "/projects/{project}/{dataset}"}}
  rows: {}
  operations:
    dataset: {read: {get: "/projects/{project}/{dataset}"}}
"""


def embedded(url: str, folder: Path) -> None:
    Embedded(f"{url}/policy.tar.gz", token=TOKEN)


def client(url: str, folder: Path) -> None:
    Client(url, system="studio", token=TOKEN, timeout=2).check("ann", "read", "dataset:web/clicks")


def client_over_requests(url: str, folder: Path) -> None:
    RequestsTransport(url, token=TOKEN).post("/v1/data/x", b"{}", (2.0, 2.0))


def async_client(url: str, folder: Path) -> None:
    async def ask() -> None:
        async with AsyncClient(url, system="studio", token=TOKEN, timeout=2) as client:
            await client.check("ann", "read", "dataset:web/clicks")

    asyncio.run(ask())


def registry(url: str, folder: Path) -> None:
    Registry.open(url, token=TOKEN).channel("prod", "studio")


def bucket(url: str, folder: Path) -> None:
    options = {"key": "some", "secret": TOKEN, "client_kwargs": {"region_name": "us-east-1"}}
    retries = {"config_kwargs": {"retries": {"max_attempts": 0}}}
    Registry.open("s3://kept/registry", endpoint_url=url, **options, **retries).channel("prod", "studio")


def server(url: str, folder: Path) -> None:
    if problem := ServerReader(url, TOKEN)().problem:
        raise FleetUnreadable(problem)


def opa(url: str, folder: Path) -> None:
    if problem := OpaReader([url], TOKEN)().sidecars[0].problem:
        raise FleetUnreadable(problem)


def pushed(url: str, folder: Path) -> None:
    path = folder / "studio.yaml"
    path.write_text(POLICY, encoding="utf-8")
    push(url, policy_artifacts(pipeline.load_program(path)), None, token=TOKEN)


def stored(url: str, folder: Path) -> None:
    opened = session(Settings(store=url, token=TOKEN), RequestOptions())
    carry_out(Settings(store=url, yes=True), opened, RequestedChange())


def imported(url: str, folder: Path) -> None:
    with answers.opened(url, token=TOKEN) as system:
        system.get("/users")


def gravitino(url: str, folder: Path) -> None:
    document = mapping("gravitino", pipeline.load_program("gravitino/1.1.0"), {"metalake": "m"})
    options = Options(token=TOKEN, record=folder / "record.json")
    with target(url, document, "privtab", options) as opened:
        opened.read()


def conforming(url: str, folder: Path) -> None:
    path = folder / "studio.yaml"
    path.write_text(POLICY, encoding="utf-8")
    (folder / "driver.yaml").write_text(DRIVER, encoding="utf-8")
    program = pipeline.load_program(path)
    driver = open_driver(str(folder / "driver.yaml"), program, url, {}, token=TOKEN, timeout=2.0)
    driver.prepare(World(state=State(grants=()), entities=(), users=("ann",), groups=(), roles=()))


def authzen(url: str, folder: Path) -> None:
    path = folder / "studio.yaml"
    path.write_text(POLICY, encoding="utf-8")
    program = pipeline.load_program(path)
    open_driver("authzen", program, url, {}, token=TOKEN, timeout=2.0).ask(READ)


CARRIERS = (embedded, registry, server, opa, pushed, stored, imported, gravitino, conforming, authzen)
"""Those beside the hot path of decisions."""
OPENERS = (client, client_over_requests, async_client, bucket, *CARRIERS)


@pytest.fixture
def nobody() -> Iterator[int]:
    """A port of this machine where nobody answers, and which nobody else can take."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1"])
@pytest.mark.parametrize("opener", OPENERS, ids=lambda opener: opener.__name__)
def test_no_proxy_hears_of_this_machine(
    opener: Callable[[str, Path], None], host: str, nobody: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with proxy(lambda _: reply('{"result": true, "sidecars": []}', "200 OK", "Connection: close")) as (where, heads):
        use_proxy(monkeypatch, where)
        with pytest.raises(TROUBLE):
            opener(f"http://{host}:{nobody}", tmp_path)
    assert heads == []


@pytest.mark.parametrize("opener", CARRIERS, ids=lambda opener: opener.__name__)
def test_requests_for_other_machines_go_through_a_proxy_with_the_token(
    opener: Callable[[str, Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine opa.invalid login somebody password else")
    monkeypatch.setenv("NETRC", str(netrc))
    with proxy(lambda _: reply("{}", "403 Forbidden", "Connection: close")) as (where, heads):
        use_proxy(monkeypatch, where)
        with pytest.raises(TROUBLE):
            opener("http://opa.invalid:8181", tmp_path)
        count = len(heads)
        monkeypatch.setenv("no_proxy", "10.0.0.0/8,opa.invalid")
        with pytest.raises(TROUBLE):
            opener("http://opa.invalid:8181", tmp_path)
        assert len(heads) == count > 0
    head = heads[0]
    assert b" http://opa.invalid:8181/" in head
    assert f"Authorization: Bearer {TOKEN}\r\n".encode() in head


@pytest.mark.parametrize("option", ["--server", "--opa"])
def test_status_asks_this_machine_itself(
    option: str, nobody: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PRIVTAB_TOKEN", TOKEN)
    with proxy(lambda _: reply('{"sidecars": []}', "200 OK", "Connection: close")) as (where, heads):
        use_proxy(monkeypatch, where)
        run(["registry", "status", option, f"http://127.0.0.1:{nobody}", "--check"])
    assert heads == []
    output = "".join(capsys.readouterr())
    assert "no answer from" in output
    assert "refused" in output


class Elsewhere(BaseHTTPRequestHandler):
    """Sends everybody on, or notes the token that came."""

    tokens: ClassVar[list[str | None]] = []
    to = ""

    def do_GET(self) -> None:
        self.tokens.append(self.headers.get("Authorization"))
        self.send_response(302 if self.to else 200)
        if self.to:
            self.send_header("Location", self.to)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def sends_on(to: str, certificate: tuple[Path, Path] | None = None) -> Iterator[int]:
    """The port of a server. It is ended before its socket is closed: its thread would look at the closed one without a pause."""
    forwarding = ThreadingHTTPServer(
        ("127.0.0.1", 0), type("Handler", (Elsewhere,), {"to": to, "tokens": Elsewhere.tokens})
    )
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        forwarding.socket = context.wrap_socket(forwarding.socket, server_side=True)
    Thread(target=forwarding.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield forwarding.server_port
    finally:
        forwarding.shutdown()
        forwarding.server_close()


def sending() -> Sender:
    return Sender(timeout=(2.0, 2.0), seconds=5.0, largest=1000, token=lambda: TOKEN)


def test_a_token_stays_with_the_host_that_it_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    without_proxies(monkeypatch)
    Elsewhere.tokens.clear()
    with sends_on("") as last, sends_on(f"http://127.0.0.1:{last}/there") as first:
        url = f"http://127.0.0.1:{first}/a"
        with sending() as sends:
            assert sends.get(url).status == 200
        assert Elsewhere.tokens == [f"Bearer {TOKEN}", None]
        Elsewhere.tokens.clear()
        with answers.opened(url, headers={"Authorization": "Basic c2VjcmV0"}) as system, pytest.raises(PrivtabError):
            system.get("/users")
    assert Elsewhere.tokens == ["Basic c2VjcmV0", None]


@pytest.mark.parametrize("opener", [pushed, stored, gravitino, conforming, authzen], ids=lambda opener: opener.__name__)
def test_what_changes_something_follows_no_redirect(
    opener: Callable[[str, Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_proxies(monkeypatch)
    with proxy(lambda _: reply("{}", "200 OK", "Connection: close")) as (there, heads):
        moved = reply("", "307 Temporary Redirect", f"Location: http://{there}/", "Connection: close")
        with proxy(lambda _: moved) as (here, asked), pytest.raises(TROUBLE):
            opener(f"http://{here}", tmp_path)
        assert len(asked) == 1
        assert heads == []


WRONG = (
    "{}",
    "[]",
    "null",
    '"x"',
    '{"message": "session expired"}',
    '{"rows": {}, "users": 3, "changes": [1], "number": 1}',
)


@pytest.mark.parametrize("answer", [*WRONG, "<html>", ""])
@pytest.mark.parametrize(
    "opener", [embedded, registry, server, opa, pushed, stored, gravitino], ids=lambda opener: opener.__name__
)
def test_a_wrong_answer_is_an_error(
    opener: Callable[[str, Path], None], answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_proxies(monkeypatch)
    with proxy(lambda _: reply(answer, "200 OK", "Connection: close")) as (where, _), pytest.raises(TROUBLE):
        opener(f"http://{where}", tmp_path)


@pytest.mark.parametrize(
    ("name", "says"),
    [("Host", "connection sets"), ("a b", "no name"), ("X\r\nY", "no name"), ("authorization", "give one of them")],
)
def test_headers_that_would_be_there_twice_or_are_none_are_refused(name: str, says: str, nobody: int) -> None:
    with sending() as sends, pytest.raises(UsageError, match=says):
        sends.get(f"http://127.0.0.1:{nobody}/", {name: "x"})


OPENS = frozenset(
    (
        "requests.Session", "requests.request", "requests.get", "requests.post", "requests.put", "requests.delete",
        "requests.patch", "requests.head", "http.client.HTTPConnection", "http.client.HTTPSConnection", "HTTPConnection",
        "HTTPSConnection", "Session", "urllib.request.urlopen", "urlopen", "build_opener", "urllib.request.build_opener",
        "httpx.Client", "httpx.AsyncClient", "httpx.get", "httpx.post", "PoolManager", "urllib3.PoolManager",
        "ProxyManager", "urllib3.ProxyManager", "HTTPConnectionPool", "HTTPSConnectionPool", "aiohttp.ClientSession",
        "ClientSession", "httpcore.ConnectionPool", "httpcore.AsyncConnectionPool", "OpaClient", "_Client",
        "create_connection", "socket.create_connection", "asyncio.open_connection", "open_connection",
    )
)  # fmt: skip
LAST_WORDS = frozenset(name.rpartition(".")[2] for name in OPENS)
SENDERS = {
    "client/_http.py": {"http.client.HTTPConnection"},  # decisions, and everything else through client/_sender.py
    "client/_transport.py": {"requests.Session"},  # RequestsTransport, restricted, where the caller gave no session
    "privtab_server/registry/deploy/push.py": {"_Client"},  # the client of OPA's makers, restricted likewise
    "engines/opa/server.py": {
        "http.client.HTTPConnection"
    },  # the health of a process that was started here; it carries nothing
}


def test_no_other_module_opens_connections() -> None:
    found: dict[str, set[str]] = {}
    for name, path in sources().items():
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        called = (node.func for node in nodes if isinstance(node, ast.Call))
        # Writing each expression as text takes most of the time.
        calls = (func for func in called if getattr(func, "attr", getattr(func, "id", None)) in LAST_WORDS)
        if opened := OPENS.intersection(map(ast.unparse, calls)):
            found[name] = set(opened)
    assert found == SENDERS


@pytest.mark.parametrize(
    ("to", "says"),
    [("/again", "more than 5 times"), ("file:///etc/passwd", "is not an address"), ("http://[", "address")],
)
def test_redirects_end(to: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    without_proxies(monkeypatch)
    with sends_on(to) as at, sending() as sends, pytest.raises(SendError, match=says):
        sends.get(f"http://127.0.0.1:{at}/a")


def test_no_line_of_a_head_comes_from_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    with proxy(lambda _: reply("{}", "200 OK", "Connection: close")) as (where, heads), sending() as sends:
        without_proxies(monkeypatch)
        sends.get(f"http://{where}/a b\x0b\x85?q=ü€ \x00")
    assert heads[0].startswith(b"GET /a%20b%0B%C2%85?q=%C3%BC%E2%82%AC%20%00 HTTP/1.1\r\nHost: ")


def read_by_server(url: str, ca: str | None, folder: Path) -> None:
    if problem := ServerReader(url, TOKEN, ca)().problem:
        raise FleetUnreadable(problem)


def listed_by_store(url: str, ca: str | None, folder: Path) -> None:
    listed(Settings(store=url, ca=None if ca is None else Path(ca)), None)


def pushed_to_opa(url: str, ca: str | None, folder: Path) -> None:
    (folder / "studio.yaml").write_text(POLICY, encoding="utf-8")
    push(url, policy_artifacts(pipeline.load_program(folder / "studio.yaml")), None, ca=ca)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")
@pytest.mark.parametrize("ask", [read_by_server, listed_by_store, pushed_to_opa], ids=lambda ask: ask.__name__)
def test_authorities_that_were_given_count_and_the_name_of_the_host(
    ask: Callable[[str, str | None, Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`requests` takes REQUESTS_CA_BUNDLE in place of what a session was given."""
    without_proxies(monkeypatch)
    own, other = Authority(tmp_path / "own"), Authority(tmp_path / "other")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(other.certificate))

    def problem(certificate: tuple[Path, Path], ca: str | None) -> str:
        with sends_on("", certificate) as at, pytest.raises(TROUBLE) as raised:
            ask(f"https://127.0.0.1:{at}", ca, tmp_path)
        return str(raised.value).lower()

    mine = own.sign("mine")
    assert "certificate" not in problem(mine, str(own.certificate))
    assert "certificate" in problem(mine, None)
    assert "certificate" in problem(own.sign("else", "IP:127.0.0.9"), str(own.certificate))
