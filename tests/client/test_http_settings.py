"""Everything that opens HTTP goes by the same rules: no proxy for this machine, no `.netrc`, one set of authorities."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

import pytest
from failing_servers import POLICY, Authority, free_port, reply
from proxies import proxy, use_proxy, without_proxies

from privtab import Client, Embedded, PrivtabError, pipeline
from privtab.cli._app import run
from privtab.client import AsyncClient
from privtab.client._fetch import Fetcher, FetchError
from privtab.client._transport import RequestsTransport
from privtab.pipeline import policy_artifacts
from privtab.registry import Registry
from privtab.registry.deploy.fleet import FleetUnreadable, OpaReader, ServerReader
from privtab.registry.deploy.push import push

TOKEN = "a-token-of-the-test"  # noqa: S105
TROUBLE = (PrivtabError, FleetUnreadable)


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


OPENERS = (client, client_over_requests, async_client, embedded, registry, bucket, server, opa, pushed)


@pytest.fixture
def nobody() -> int:
    """A port of this machine where nobody answers."""
    return free_port()


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


@pytest.mark.parametrize("opener", [embedded, registry, server, opa, pushed], ids=lambda opener: opener.__name__)
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
        run(["status", option, f"http://127.0.0.1:{nobody}", "--check"])
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


def sends_on(to: str) -> ThreadingHTTPServer:
    forwarding = ThreadingHTTPServer(
        ("127.0.0.1", 0), type("Handler", (Elsewhere,), {"to": to, "tokens": Elsewhere.tokens})
    )
    Thread(target=forwarding.serve_forever, args=(0.01,), daemon=True).start()
    return forwarding


def fetcher() -> Fetcher:
    return Fetcher(timeout=(2.0, 2.0), seconds=5.0, largest=1000, token=lambda: TOKEN)


def test_a_token_stays_with_the_host_that_it_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    without_proxies(monkeypatch)
    Elsewhere.tokens.clear()
    last = sends_on("")
    first = sends_on(f"http://127.0.0.1:{last.server_port}/there")
    with fetcher() as sends:
        assert sends.get(f"http://127.0.0.1:{first.server_port}/a").status == 200
    assert Elsewhere.tokens == [f"Bearer {TOKEN}", None]


@pytest.mark.parametrize(
    ("to", "says"),
    [("/again", "more than 5 times"), ("file:///etc/passwd", "is not an address"), ("http://[", "address")],
)
def test_redirects_end(to: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    without_proxies(monkeypatch)
    at = sends_on(to)
    with fetcher() as sends, pytest.raises(FetchError, match=says):
        sends.get(f"http://127.0.0.1:{at.server_port}/a")


def test_no_line_of_a_head_comes_from_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    with proxy(lambda _: reply("{}", "200 OK", "Connection: close")) as (where, heads), fetcher() as sends:
        without_proxies(monkeypatch)
        sends.get(f"http://{where}/a b\x0b\x85?q=ü€ \x00")
    assert heads[0].startswith(b"GET /a%20b%0B%C2%85?q=%C3%BC%E2%82%AC%20%00 HTTP/1.1\r\nHost: ")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")
def test_authorities_that_were_given_count_and_the_name_of_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`requests` takes REQUESTS_CA_BUNDLE in place of what a session was given."""
    without_proxies(monkeypatch)
    own, other = Authority(tmp_path / "own"), Authority(tmp_path / "other")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(other.certificate))

    def answers(certificate: tuple[Path, Path], ca: str | None) -> str | None:
        forwarding = sends_on("")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        forwarding.socket = context.wrap_socket(forwarding.socket, server_side=True)
        with forwarding.socket:
            return ServerReader(f"https://127.0.0.1:{forwarding.server_port}", TOKEN, ca)().problem

    mine = own.sign("mine")
    assert "something else than JSON" in str(answers(mine, str(own.certificate)))
    assert "certificate is not trusted" in str(answers(mine, None))
    assert "certificate is not trusted" in str(answers(own.sign("else", "IP:127.0.0.9"), str(own.certificate)))
