"""What can go wrong between a client and its decision point, and what the caller gets: one table.

It drives the tests of every client and every way of asking, and writes `docs/reference/failures.md`.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import faulty
import requests
from faulty import MAX_BODY, Authority, free_port, opa_process, reply, reset, scripted, wait_for, write_bundles

from privtab import Client, DecisionError, DecisionUnavailable, InvalidRequest, PolicyError
from privtab.opa.server import OpaServer

EVERY_WAY = ("check", "require", "decide", "check_many", "decide_many", "visible", "filter")
ALONE = ("check", "require", "decide")
MANY = ("check_many", "decide_many", "filter")
YES = '{"result": true}'
TOTAL = 0.8
SETTINGS: Mapping[str, Any] = {"timeout": (0.25, 0.25), "total": TOTAL, "retries": 2, "max_body": MAX_BODY}


@dataclass(frozen=True, kw_only=True)
class World:
    """Where a client is pointed at."""

    url: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    decisions: Callable[[], int] | None = None


@dataclass(frozen=True, kw_only=True)
class Place:
    """What a world is made with."""

    folder: Path
    opa: Path


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One thing that goes wrong."""

    group: str
    what: str
    raises: type[DecisionError]
    says: str
    """A regular expression that the message holds."""
    world: Callable[[Place], AbstractContextManager[World]]
    ways: tuple[str, ...] = EVERY_WAY
    tries: int | None = None
    """How often one call asks for the decision; None where nothing counts."""
    at_most: bool = False
    """`tries` is the most: time may end before."""


Answer = bytes | Callable[[socket.socket], None]


def script(answer: Answer, **more: Any) -> Callable[[Place], AbstractContextManager[World]]:
    """A scripted server."""

    @contextlib.contextmanager
    def world(place: Place) -> Iterator[World]:
        with scripted(place.folder, answer, **more).running() as server:
            yield World(url=server.url, decisions=lambda: server.decisions)

    return world


@contextlib.contextmanager
def refused(_: Place) -> Iterator[World]:
    """A port that is taken and not listened on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield World(url=f"http://127.0.0.1:{taken.getsockname()[1]}")


@contextlib.contextmanager
def no_socket(place: Place) -> Iterator[World]:
    """A unix socket that is not there."""
    yield World(url=f"unix:{place.folder}/none.sock")


# --- answers that misbehave ---


def reset_in_body(connection: socket.socket) -> None:
    """Half a body, then a reset."""
    connection.sendall(reply(YES, length=4000))
    time.sleep(0.02)
    reset(connection)


def ends_early(connection: socket.socket) -> None:
    """A body that reads as an allow, one byte shorter than announced."""
    connection.sendall(reply(YES, length=len(YES) + 1))
    connection.shutdown(socket.SHUT_RDWR)


def drip(text: bytes) -> Callable[[socket.socket], None]:
    """A byte now and then: every single wait is short."""

    def answer(connection: socket.socket) -> None:
        for at in range(len(text)):
            connection.sendall(text[at : at + 1])
            time.sleep(0.05)

    return answer


def slow_body(connection: socket.socket) -> None:
    """A head at once, then a body that drips."""
    connection.sendall(reply("", length=4000))
    drip(b" " * 100)(connection)


def silent(connection: socket.socket) -> None:
    """Nothing for long."""
    time.sleep(1.5)
    connection.close()


def huge_endless(connection: socket.socket) -> None:
    """A body without an end, in chunks."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        connection.sendall(b"4000\r\n" + b" " * 0x4000 + b"\r\n")


# --- real OPAs ---


@contextlib.contextmanager
def no_bundle(place: Place) -> Iterator[World]:
    """An OPA that has nothing."""
    with OpaServer(binary=place.opa) as opa:
        yield World(url=opa.url)


@contextlib.contextmanager
def no_state(place: Place) -> Iterator[World]:
    """An OPA with a policy alone."""
    policy, _ = write_bundles(place.folder)
    with OpaServer([policy], binary=place.opa) as opa:
        yield World(url=opa.url)


def heard(url: str) -> bool:
    """Whether OPA's status tells when each of the two bundles was last asked for."""
    status = requests.get(f"{url}/v1/status", timeout=5).json().get("result", {})
    bundles = status.get("bundles") or {}
    return len(bundles) == 2 and all(one.get("last_successful_request") for one in bundles.values())


@contextlib.contextmanager
def stale(place: Place) -> Iterator[World]:
    """An OPA that has not heard from its bundle server for a while."""
    delays = [
        f"--set=bundles.{name}.polling.{end}_delay_seconds=3600"
        for name in ("policy", "state")
        for end in ("min", "max")
    ]
    with OpaServer(
        write_bundles(place.folder), binary=place.opa, extra_args=["--set=status.prometheus=true", *delays]
    ) as opa:
        # OPA tells its status a while after it is ready; the age counts from what is told there.
        wait_for(lambda: heard(opa.url))
        time.sleep(0.4)
        yield World(url=opa.url, settings={"max_staleness": 0.3})


@contextlib.contextmanager
def silent_on_age(place: Place) -> Iterator[World]:
    """An OPA whose status is not on."""
    with OpaServer(write_bundles(place.folder), binary=place.opa) as opa:
        yield World(url=opa.url, settings={"max_staleness": 60})


AUTHZ = """\
package system.authz

default allow := false

allow if input.identity == "right"

allow if input.path == ["health"]
"""


def token(**settings: Any) -> Callable[[Place], AbstractContextManager[World]]:
    """An OPA that wants a token."""

    @contextlib.contextmanager
    def world(place: Place) -> Iterator[World]:
        authz = place.folder / "authz.rego"
        authz.write_text(AUTHZ, encoding="utf-8")
        arguments = ["--authentication=token", "--authorization=basic"]
        with OpaServer(write_bundles(place.folder), binary=place.opa, paths=[authz], extra_args=arguments) as opa:
            yield World(url=opa.url, settings=settings)

    return world


def tls(
    name: str = "opa", *, host: str = "IP:127.0.0.1", expired: bool = False, trusted: bool = True, scheme: str = "https"
) -> Callable[[Place], AbstractContextManager[World]]:
    """An OPA that speaks TLS with this certificate."""

    @contextlib.contextmanager
    def world(place: Place) -> Iterator[World]:
        authority = Authority(place.folder / "authority")
        certificate, key = authority.sign(name, host, expired=expired)
        port = free_port()
        arguments = [
            f"--addr=https://127.0.0.1:{port}",
            f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}",
        ]
        arguments += ["--bundle", *map(str, write_bundles(place.folder))]
        with opa_process(place.opa, place.folder / "opa.log", *arguments):
            with Client(f"https://127.0.0.1:{port}", verify=False) as probe:
                wait_for(probe.health)
            settings = {"verify": str(authority.certificate)} if trusted else {}
            yield World(url=f"{scheme}://127.0.0.1:{port}", settings=settings)

    return world


@contextlib.contextmanager
def plain_http(place: Place) -> Iterator[World]:
    """An OPA without TLS, asked with it."""
    with OpaServer(write_bundles(place.folder), binary=place.opa) as opa:
        yield World(url=opa.url.replace("http://", "https://"))


NETWORK, ANSWERS, SHAPES, STATE, TRUST = "The network", "Answers", "Shapes", "Policy and state", "Trust"

FAULTS: dict[str, Fault] = {
    "refused": Fault(
        group=NETWORK,
        what="nobody listens: connection refused",
        raises=DecisionUnavailable,
        says="refused",
        world=refused,
    ),
    "no-socket": Fault(
        group=NETWORK,
        what="the unix socket is not there",
        raises=DecisionUnavailable,
        says="did not answer",
        world=no_socket,
    ),
    "reset": Fault(
        group=NETWORK,
        what="the connection is reset before an answer",
        raises=DecisionUnavailable,
        says="did not answer",
        world=script(reset),
        tries=3,
    ),
    "reset-in-body": Fault(
        group=NETWORK,
        what="the connection is reset within the body",
        raises=DecisionUnavailable,
        says="did not answer",
        world=script(reset_in_body),
        tries=3,
    ),
    "end": Fault(
        group=NETWORK,
        what="the connection ends without an answer",
        raises=DecisionUnavailable,
        says="did not answer",
        world=script(lambda c: c.shutdown(socket.SHUT_RDWR)),
        tries=3,
    ),
    "short": Fault(
        group=NETWORK,
        what="the body ends early, though it reads as an allow",
        raises=DecisionUnavailable,
        says="did not answer",
        world=script(ends_early),
        tries=3,
    ),
    "silence": Fault(
        group=NETWORK,
        what="no answer at all",
        raises=DecisionUnavailable,
        says="in time|within",
        world=script(silent),
        tries=3,
        at_most=True,
    ),
    "slow-headers": Fault(
        group=NETWORK,
        what="headers that drip in, byte after byte",
        raises=DecisionUnavailable,
        says="in time|within",
        world=script(drip(reply(YES))),
        tries=3,
        at_most=True,
    ),
    "slow-body": Fault(
        group=NETWORK,
        what="a body that drips in, byte after byte",
        raises=DecisionUnavailable,
        says="in time|within",
        world=script(slow_body),
        tries=3,
        at_most=True,
    ),
    "no-http": Fault(
        group=NETWORK,
        what="something that is no HTTP",
        raises=DecisionUnavailable,
        says="did not answer",
        world=script(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"),
        tries=3,
    ),
    "broken-chunks": Fault(
        group=NETWORK,
        what="a chunked body with broken chunks",
        raises=DecisionUnavailable,
        says="did not answer",
        world=script(f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{YES}\r\n0\r\n\r\n".encode()),
        tries=3,
    ),
    "two-lengths": Fault(
        group=NETWORK,
        what="an answer that says twice how long it is, each time otherwise",
        raises=DecisionUnavailable,
        says="did not answer",
        world=script(reply(YES, "200 OK", f"Content-Length: {2 * len(YES)}") + YES.encode()),
        tries=3,
    ),
    "400": Fault(
        group=ANSWERS,
        what="400 Bad Request",
        raises=PolicyError,
        says="400: .*malformed",
        tries=1,
        world=script(reply('{"message": "malformed"}', "400 Bad Request")),
    ),
    "404": Fault(
        group=ANSWERS,
        what="404 Not Found",
        raises=PolicyError,
        says="404",
        tries=1,
        world=script(reply(YES, "404 Not Found")),
    ),
    "429": Fault(
        group=ANSWERS,
        what="429 Too Many Requests",
        raises=PolicyError,
        says="429",
        tries=1,
        world=script(reply(YES, "429 Too Many Requests")),
    ),
    "429-after": Fault(
        group=ANSWERS,
        what="429 with `Retry-After`",
        raises=DecisionUnavailable,
        says="429",
        tries=3,
        world=script(reply(YES, "429 Too Many Requests", "Retry-After: 0")),
    ),
    "500": Fault(
        group=ANSWERS,
        what="500 Internal Server Error",
        raises=DecisionUnavailable,
        says="500",
        tries=3,
        world=script(reply(YES, "500 Internal Server Error")),
    ),
    "503-after": Fault(
        group=ANSWERS,
        what="503 with a `Retry-After` beyond the time that is left",
        raises=DecisionUnavailable,
        says="503",
        tries=1,
        world=script(reply(YES, "503 Service Unavailable", "Retry-After: 60")),
    ),
    "204": Fault(
        group=ANSWERS,
        what="another 2xx, without a body",
        raises=PolicyError,
        says="204",
        tries=1,
        world=script(b"HTTP/1.1 204 No Content\r\n\r\n"),
    ),
    "redirect": Fault(
        group=ANSWERS,
        what="a redirect",
        raises=PolicyError,
        says="redirect",
        tries=1,
        world=script(reply("", "307 Temporary Redirect", "Location: http://127.0.0.1:1/")),
    ),
    "content-type": Fault(
        group=ANSWERS,
        what="another content type, though the body is an allow",
        raises=PolicyError,
        says="text/html",
        tries=1,
        world=script(reply(YES, "200 OK", "Content-Type: text/html")),
    ),
    "huge": Fault(
        group=ANSWERS,
        what="a body longer than `max_body`",
        raises=PolicyError,
        says="more than 100000 bytes",
        tries=1,
        world=script(reply(YES + " " * 300_000)),
    ),
    "endless": Fault(
        group=ANSWERS,
        what="a body without end",
        raises=PolicyError,
        says="more than 100000 bytes",
        tries=1,
        world=script(huge_endless),
    ),
    "half-json": Fault(
        group=SHAPES,
        what="half a JSON document",
        raises=PolicyError,
        says="not JSON",
        tries=1,
        world=script(reply('{"result": tr')),
    ),
    "key-twice": Fault(
        group=SHAPES,
        what="an object with a key that stands there twice",
        raises=PolicyError,
        says="twice",
        tries=1,
        world=script(reply('{"result": false, "result": true}')),
    ),
    "undefined": Fault(
        group=SHAPES,
        what="undefined: 200 without a `result`",
        raises=PolicyError,
        says="undefined",
        tries=2,
        world=script(reply("{}")),
    ),
    "wrong-shape": Fault(
        group=SHAPES,
        what='another shape: `"true"` for `true`',
        raises=PolicyError,
        says="is not a|not a decision",
        tries=1,
        world=script(reply('{"result": "true"}')),
    ),
    "one-for-all": Fault(
        group=SHAPES,
        what="one `true` for many requests",
        raises=PolicyError,
        says="is not a list",
        tries=1,
        world=script(reply(YES)),
        ways=(*MANY, "visible"),
    ),
    "empty": Fault(
        group=SHAPES,
        what="an empty batch",
        raises=PolicyError,
        says="is not a list of 2",
        tries=1,
        world=script(reply('{"result": []}')),
        ways=MANY,
    ),
    "too-few": Fault(
        group=SHAPES,
        what="too few answers",
        raises=PolicyError,
        says="is not a list of 2",
        tries=1,
        world=script(reply('{"result": [true]}')),
        ways=MANY,
    ),
    "null-in-batch": Fault(
        group=SHAPES,
        what="an answer of a batch that is `null`",
        raises=PolicyError,
        says="more than booleans|not a decision",
        tries=1,
        world=script(reply('{"result": [true, null]}')),
        ways=MANY,
    ),
    "out-of-range": Fault(
        group=SHAPES,
        what="a position beyond the listing",
        raises=PolicyError,
        says="positions below 2",
        tries=1,
        world=script(reply('{"result": [0, 7]}')),
        ways=("visible",),
    ),
    "no-bundle": Fault(
        group=STATE,
        what="no bundle is active yet",
        raises=DecisionUnavailable,
        says="no bundle is active",
        world=no_bundle,
    ),
    "no-state": Fault(
        group=STATE,
        what="a policy without its state",
        raises=DecisionUnavailable,
        says="no state bundle is active",
        world=no_state,
    ),
    "stale": Fault(
        group=STATE,
        what="OPA has not heard from its bundle server for longer than `max_staleness`",
        raises=DecisionUnavailable,
        says="too old",
        world=stale,
    ),
    "age-unknown": Fault(
        group=STATE,
        what="`max_staleness` is set and OPA does not tell its status",
        raises=DecisionUnavailable,
        says="does not tell",
        world=silent_on_age,
    ),
    "unknown-name": Fault(
        group=STATE,
        what="an operation, type, flag or path that the policy does not know; null",
        raises=InvalidRequest,
        says="unknown operation",
        world=script(reply(YES)),
        tries=0,
    ),
    "token-missing": Fault(
        group=TRUST, what="OPA wants a token, none is sent", raises=PolicyError, says="401", world=token()
    ),
    "token-wrong": Fault(
        group=TRUST,
        what="the token is wrong",
        raises=PolicyError,
        says="401",
        world=token(token="wrong"),  # noqa: S106  (of a test)
    ),
    "authority-unknown": Fault(
        group=TRUST,
        what="a certificate of an authority that is not trusted",
        raises=DecisionUnavailable,
        says="not trusted",
        world=tls(trusted=False),
    ),
    "certificate-expired": Fault(
        group=TRUST,
        what="an expired certificate",
        raises=DecisionUnavailable,
        says="not trusted: .*expired",
        world=tls("old", expired=True),
    ),
    "certificate-of-another": Fault(
        group=TRUST,
        what="a certificate for another host",
        raises=DecisionUnavailable,
        says="not trusted: .*mismatch",
        world=tls("other", host="DNS:opa.example"),
    ),
    "no-tls": Fault(
        group=TRUST,
        what="https to a port that speaks http",
        raises=DecisionUnavailable,
        says="no TLS connection",
        world=plain_http,
    ),
    "tls-only": Fault(
        group=TRUST, what="http to a port that speaks https", raises=PolicyError, says="400", world=tls(scheme="http")
    ),
}


def ask(client: Any, way: str, *, wrong: bool = False) -> Any:
    """Ask in one way; a coroutine of an AsyncClient."""
    read = faulty.READ
    action = "raed" if wrong else "read"
    one = (read.user, action, read.resource)
    both = [faulty.READ, faulty.OTHER]
    if wrong:
        both = [faulty.READ, type(read)(user="ben", action=action, resource=read.resource)]
    match way:
        case "check" | "require" | "decide":
            return getattr(client, way)(*one)
        case "check_many" | "decide_many":
            return getattr(client, way)(both)
        case "visible":
            return client.visible("ann", "lits" if wrong else "list", "dataset", faulty.ITEMS)
        case _:
            return client.filter("ann", action, faulty.ITEMS, key=lambda path: ("dataset", path))


def page() -> str:
    """The table for the documentation."""
    lines: list[str] = []
    for group in dict.fromkeys(fault.group for fault in FAULTS.values()):
        lines += [f"## {group}", "", "| what happens | what the caller gets | tries | asked by |", "|---|---|---|---|"]
        for fault in FAULTS.values():
            if fault.group == group:
                ways = "every method" if fault.ways == EVERY_WAY else ", ".join(f"`{way}`" for way in fault.ways)
                tries = "" if fault.tries is None else f"{'up to ' if fault.at_most else ''}{fault.tries}"
                lines.append(f"| {fault.what} | `{fault.raises.__name__}` | {tries} | {ways} |")
        lines.append("")
    return "\n".join(lines)
