"""Every line of the table "Failing closed" against a real socket that misbehaves so: the declared error, never an allow."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from privtab import Client, DecisionError, DecisionUnavailable, Entity, InvalidRequest, PolicyError, Request, UsageError
from privtab.client import HttpTransport, RequestsTransport
from privtab.engines.opa.server import OpaServer

YES = '{"result": true}'
Ask = Callable[[Client], object]
REQUEST = Request(user="alice", action="read", resource=Entity("doc", "s/d"))
FORCED = Request(
    user="alice",
    action="copy",
    resource=Entity("doc", "s/d"),
    with_={"source": Entity("doc", "s/e")},
    flags=frozenset({"force"}),
)
OTHER = Request(user="bob", action="read", resource=Entity("doc", "s/d"))
FORCED_OTHER = replace(FORCED, user="bob")
EVERY_WAY: dict[str, Ask] = {
    "check": lambda c: c.check(REQUEST),
    "decide": lambda c: c.decide(REQUEST),
    "require": lambda c: c.require(REQUEST),
    "check_many": lambda c: c.check_many([REQUEST, OTHER]),
    "check_many_mixed": lambda c: c.check_many([FORCED, FORCED_OTHER]),
    "decide_many": lambda c: c.decide_many([REQUEST, OTHER]),
    "visible": lambda c: c.visible("alice", "list", "doc", ["s/d", "s/e"]),
}


@pytest.fixture(params=sorted(EVERY_WAY))
def ask(request: pytest.FixtureRequest) -> Ask:
    return EVERY_WAY[request.param]


def raised(url: str, ask: Ask, **more: Any) -> DecisionError:
    """The error of a call that must not return, whichever transport it goes through."""
    more.setdefault("timeout", (0.5, 0.5))
    transports = [more.pop("transport")] if "transport" in more else [None, RequestsTransport(url)]
    caught: list[DecisionError] = []
    for transport in transports:
        with Client(url, system="demo", transport=transport, **more) as client, pytest.raises(DecisionError) as found:
            ask(client)
        caught.append(found.value)
    assert len({type(error) for error in caught}) == 1, caught
    return caught[0]


@pytest.mark.parametrize(
    "body",
    [
        "{}",
        '{"result": null}',
        '{"result": "true"}',
        '{"result": 1}',
        '{"result": {"allow": true}}',
        '{"result": {"decision": 1}}',
        '{"result": {"decision": "true", "context": {}}}',
        '{"result": {"decision": true, "context": []}}',
        '{"result": {"decision": true, "context": {"missing": 3}}}',
        '{"result": {"decision": true, "context": {"missing": ["READ"]}}}',
        '{"result": {"decision": true, "context": {"effects": [1]}}}',
        '{"result": []}',
        '{"result": [true]}',
        '{"result": [true, true, true]}',
        '{"result": [true, 1]}',
        '{"result": [true, null]}',
        '{"result": [{"decision": true}, true]}',
        '{"result": [{"decision": true}]}',
        '{"result": [-1, 0]}',
        '{"result": [0, 2]}',
        '{"result": [1, 0]}',
        '{"result": [0, 0]}',
        '{"result": [0.0, 1]}',
        "[true]",
        "true",
        "",
        "<html>fine</html>",
        '{"result": tr',
        "[" * 100_000,
        '{"result": "\ud800"}'.encode("utf-8", "surrogatepass"),
        '{"result": false, "result": true}',
        '{"result": true, "metrics": NaN}',
        '{"result": true} {"result": false}',
        '{"result": true}'.encode("utf-16"),
        '{"result": true}'.encode("utf-8-sig"),
    ],
)
@pytest.mark.parametrize("way", sorted(EVERY_WAY))
def test_an_answer_of_the_wrong_shape_is_a_policy_error(
    way: str, body: str | bytes, raw_server: Callable[..., Any], http_reply: Callable[..., bytes]
) -> None:
    # An empty listing is a right answer to `visible`.
    if way == "visible" and body == '{"result": []}':
        with Client(raw_server(http_reply(body)).url) as client:
            assert EVERY_WAY[way](client) == []
        return
    assert isinstance(raised(raw_server(http_reply(body)).url, EVERY_WAY[way]), PolicyError)


@pytest.mark.parametrize(
    "status", ["400 Bad Request", "401 Unauthorized", "403 Forbidden", "404 Not Found", "204 No Content", "206 Partial"]
)
def test_any_other_status_below_500_is_a_policy_error(
    status: str, ask: Ask, raw_server: Callable[..., Any], http_reply: Callable[..., bytes]
) -> None:
    body = "" if status.startswith("204") else YES
    error = raised(raw_server(http_reply(body, status)).url, ask)
    assert isinstance(error, PolicyError)
    assert status[:3] in str(error)


def test_the_words_of_opa_are_in_the_error(raw_server: Callable[..., Any], http_reply: Callable[..., bytes]) -> None:
    body = json.dumps({"code": "invalid_parameter", "message": "body contains malformed input document"})
    assert "malformed input document" in str(
        raised(raw_server(http_reply(body, "400 Bad Request")).url, EVERY_WAY["check"])
    )


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"])
def test_a_redirect_is_never_followed(
    status: str, ask: Ask, raw_server: Callable[..., Any], http_reply: Callable[..., bytes]
) -> None:
    other = raw_server(http_reply(YES))
    server = raw_server(http_reply("", status, f"Location: {other.url}/v1/data/privtab/demo/allow"))
    assert isinstance(raised(server.url, ask), PolicyError)
    assert other.connections == 0


@pytest.mark.parametrize("status", ["500 Internal Server Error", "502 Bad Gateway", "503 Unavailable", "504 Timeout"])
def test_a_5xx_is_unavailable(
    status: str, ask: Ask, raw_server: Callable[..., Any], http_reply: Callable[..., bytes]
) -> None:
    assert isinstance(raised(raw_server(http_reply(YES, status)).url, ask), DecisionUnavailable)


def test_a_refused_connection_is_unavailable(ask: Ask) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: refused
        assert isinstance(raised(f"http://127.0.0.1:{taken.getsockname()[1]}", ask), DecisionUnavailable)


def test_a_reset_is_unavailable(
    ask: Ask, raw_server: Callable[..., Any], http_reset: Callable[[socket.socket], None]
) -> None:
    assert isinstance(raised(raw_server(lambda c, _: http_reset(c)).url, ask, timeout=(0.2, 0.2)), DecisionUnavailable)


def test_a_reset_in_the_body_is_unavailable(
    ask: Ask,
    raw_server: Callable[..., Any],
    http_reply: Callable[..., bytes],
    http_reset: Callable[[socket.socket], None],
) -> None:
    def half(connection: socket.socket, _: str) -> None:
        connection.sendall(http_reply(YES, length=4000))
        time.sleep(0.05)
        http_reset(connection)

    assert isinstance(raised(raw_server(half).url, ask, timeout=(0.2, 0.2)), DecisionUnavailable)


def test_half_a_body_is_unavailable_though_it_reads_as_an_allow(
    ask: Ask, raw_server: Callable[..., Any], http_reply: Callable[..., bytes]
) -> None:
    def half(connection: socket.socket, _: str) -> None:
        connection.sendall(http_reply(YES, length=len(YES) + 1))
        connection.shutdown(socket.SHUT_RDWR)

    assert isinstance(raised(raw_server(half).url, ask), DecisionUnavailable)


def test_broken_chunks_are_unavailable(ask: Ask, raw_server: Callable[..., Any]) -> None:
    answer = f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{YES}\r\n0\r\n\r\n".encode()
    assert isinstance(raised(raw_server(answer).url, ask), DecisionUnavailable)


def test_an_end_without_an_answer_is_unavailable(ask: Ask, raw_server: Callable[..., Any]) -> None:
    assert isinstance(raised(raw_server(lambda c, _: c.shutdown(socket.SHUT_RDWR)).url, ask), DecisionUnavailable)


def test_no_http_at_all_is_unavailable(ask: Ask, raw_server: Callable[..., Any]) -> None:
    assert isinstance(raised(raw_server(b"SSH-2.0-OpenSSH_9.6\r\n\r\n").url, ask), DecisionUnavailable)


def test_silence_is_unavailable_after_the_timeout(ask: Ask, raw_server: Callable[..., Any]) -> None:
    started = time.monotonic()
    error = raised(raw_server(lambda _c, _p: time.sleep(3)).url, ask, timeout=(0.2, 0.2))
    assert isinstance(error, DecisionUnavailable)
    assert time.monotonic() - started < 2.5


def test_a_body_that_drips_is_unavailable_after_the_timeout(
    raw_server: Callable[..., Any], http_reply: Callable[..., bytes]
) -> None:
    def drip(connection: socket.socket, _: str) -> None:
        connection.sendall(http_reply("", length=4000))
        for _n in range(100):
            connection.sendall(b" ")
            time.sleep(0.05)

    started = time.monotonic()
    error = raised(raw_server(drip).url, EVERY_WAY["check"], timeout=(0.3, 0.3))
    assert isinstance(error, DecisionUnavailable)
    assert time.monotonic() - started < 3


@pytest.mark.parametrize("transport_class", [HttpTransport, RequestsTransport])
def test_a_huge_body_is_refused_before_it_is_read(
    transport_class: Any, raw_server: Callable[..., Any], http_reply: Callable[..., bytes]
) -> None:
    server = raw_server(http_reply(YES + " " * 300_000))
    transport = transport_class(server.url, max_body=100_000)
    error = raised(server.url, EVERY_WAY["check"], transport=transport)
    assert isinstance(error, PolicyError)
    assert "more than 100000 bytes" in str(error)


@pytest.mark.parametrize("transport_class", [HttpTransport, RequestsTransport])
def test_the_rest_of_a_bad_answer_is_not_the_next_one(
    transport_class: Any, raw_server: Callable[..., Any], http_reply: Callable[..., bytes]
) -> None:
    answers = [http_reply("[" + " " * 200_000 + "]") + http_reply(YES), http_reply('{"result": false}')]
    server = raw_server(lambda c, _: c.sendall(answers.pop(0)))
    transport = transport_class(server.url, max_body=100_000)
    with Client(server.url, transport=transport) as client:
        with pytest.raises(PolicyError):
            client.check(REQUEST)
        assert client.check(REQUEST) is False


@pytest.mark.parametrize("system", ["demo", None])
@pytest.mark.parametrize("program", [{}, {"result": {}}, {"result": []}, {"result": {"demo": 1}}])
def test_no_program_or_nonsense_in_its_place(
    program: dict[str, Any], system: str | None, raw_server: Callable[..., Any], http_reply: Callable[..., bytes]
) -> None:
    server = raw_server(http_reply(YES), program=program)
    with Client(server.url, system=system) as client, pytest.raises(DecisionError):
        client.check(REQUEST)
    assert not any(line.startswith("POST") for line in server.requests)


def test_a_policy_without_state_is_unavailable(
    ask: Ask, raw_server: Callable[..., Any], http_reply: Callable[..., bytes]
) -> None:
    server = raw_server(http_reply(YES), state={})
    error = raised(server.url, ask)
    assert isinstance(error, DecisionUnavailable)
    assert "no state bundle is active for system `demo`" in str(error)


def test_an_empty_opa_is_unavailable(opa_binary: Path, ask: Ask) -> None:
    with OpaServer(binary=opa_binary) as server:
        error = raised(server.url, ask)
        assert isinstance(error, DecisionUnavailable)
        assert "no bundle is active for system `demo`" in str(error)
        with Client(server.url) as client, pytest.raises(DecisionUnavailable, match="no privtab policy"):
            client.check(REQUEST)


def test_a_bundle_whose_rules_are_missing_is_a_policy_error(
    demo: Any, opa_binary: Path, tmp_path: Path, ask: Ask
) -> None:
    bundles = [demo.policy(tmp_path, rego="package privtab.demo\n\nother := true\n"), demo.write_state(tmp_path)]
    with OpaServer(bundles, binary=opa_binary) as server:
        assert isinstance(raised(server.url, ask), PolicyError)


BAD_CALLS: list[tuple[Any, ...]] = [
    (None, "read", "doc:s/d"),
    ("", "read", "doc:s/d"),
    (7, "read", "doc:s/d"),
    ("alice", None, "doc:s/d"),
    ("alice", "raed", "doc:s/d"),
    ("alice", "copy", "space:s"),
    ("alice", "read", None),
    ("alice", "read", "doc"),
    ("alice", "read", "dok:s/d"),
    ("alice", "read", "doc:s"),
    ("alice", "read", "doc:s/d/e"),
    ("alice", "read", "doc:s//d"),
    ("alice", "read", "doc:s/%d"),
    ("alice", "read", ("doc", None)),
    ("alice", "read", ("doc", "s/d", "e")),
    ("alice", "copy", "doc:s/d"),
    ("a\ud800", "read", "doc:s/d"),
    (REQUEST, "read", "doc:s/d"),
]


@pytest.mark.parametrize("call", BAD_CALLS, ids=repr)
def test_a_request_that_the_policy_does_not_know_is_never_sent(
    call: tuple[Any, ...], raw_server: Callable[..., Any], http_reply: Callable[..., bytes]
) -> None:
    server = raw_server(http_reply(YES))
    with Client(server.url) as client:
        for method in (client.check, client.decide, client.require):
            with pytest.raises(InvalidRequest):
                method(*call)
    assert not any(line.startswith("POST") for line in server.requests)


def test_bad_extras_are_never_sent(raw_server: Callable[..., Any], http_reply: Callable[..., bytes]) -> None:
    server = raw_server(http_reply(YES))
    extras: list[dict[str, Any]] = [
        {"with_": {"source": "space:s"}},
        {"with_": {"source": "doc:s"}},
        {"with_": {"other": "doc:s/e"}},
        {"with_": {"source": None}},
        {"with_": {"source": "doc:s/e"}, "flags": ["frce"]},
        {"with_": {"source": "doc:s/e"}, "flags": "force"},
        {"with_": {"source": "doc:s/e"}, "groups": "hr"},
        {"with_": {"source": "doc:s/e"}, "groups": [None]},
    ]
    with Client(server.url) as client:
        for more in extras:
            with pytest.raises(InvalidRequest):
                client.check("alice", "copy", "doc:s/d", **more)
        for bad in (None, "alice", Request(user="alice", action="raed", resource=Entity("doc", "s/d"))):
            with pytest.raises(InvalidRequest, match="request 1: "):
                client.check_many([REQUEST, bad])  # type: ignore[list-item]
        for items in (["s"], [None], ["doc:s/d"], [Entity("space", "s")]):
            with pytest.raises(InvalidRequest):
                client.visible("alice", "list", "doc", items)
    assert not any(line.startswith("POST") for line in server.requests)


@pytest.mark.parametrize(
    "more",
    [
        {"flags": "force"},
        {"flags": ["force"]},
        {"flags": None},
        {"flags": frozenset({1})},
        {"groups": None},
        {"groups": "hr"},
        {"with_": None},
        {"with_": []},
        {"with_": [("source", Entity("doc", "s/e"))]},
        {"with_": {1: Entity("doc", "s/e")}},
    ],
    ids=repr,
)
def test_a_request_made_by_hand_with_bad_extras_is_never_sent(
    more: dict[str, Any], raw_server: Callable[..., Any], http_reply: Callable[..., bytes]
) -> None:
    """A text as flags would ask for its letters, and so for less than was meant."""
    server = raw_server(http_reply(YES))
    request = Request(user="alice", action="read", resource=Entity("doc", "s/d"), **more)
    with Client(server.url) as client:
        for method in (client.check, client.decide, client.require):
            with pytest.raises(InvalidRequest):
                method(request)
        with pytest.raises(InvalidRequest, match="request 0: "):
            client.check_many([request])
    assert not any(line.startswith("POST") for line in server.requests)


def test_an_address_or_setting_that_cannot_be_is_refused_at_once() -> None:
    for url in ("opa:8181", "ftp://opa", "http://", "http://opa?x=1", ""):
        with pytest.raises(UsageError):
            Client(url)
    settings: list[dict[str, Any]] = [
        {"timeout": 0},
        {"timeout": (1, -1)},
        {"chunk_size": 0},
        {"pool_size": 0},
        {"system": "a/b"},
    ]
    for more in settings:
        with pytest.raises(UsageError):
            Client("http://127.0.0.1:1", **more)
