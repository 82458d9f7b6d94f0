"""The table of failures between a client and its decision point, with what the caller gets.

It parametrises the tests of every client and method, and generates `docs/reference/failures.md`.
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

import failing_servers
import requests
from failing_servers import MAX_BODY, Authority, free_port, opa_process, reply, reset, scripted, wait_for, write_bundles

from privtab import Client, DecisionError, DecisionUnavailable, InvalidRequest, PolicyError
from privtab.engines.opa.server import OpaServer

EVERY_WAY = ("check", "require", "decide", "check_many", "decide_many", "visible", "filter")
ALONE = ("check", "require", "decide")
MANY = ("check_many", "decide_many", "filter")
YES = '{"result": true}'
TOTAL = 0.8
SETTINGS: Mapping[str, Any] = {"timeout": (0.25, 0.25), "total": TOTAL, "retries": 2, "max_body": MAX_BODY}
PATIENT: Mapping[str, Any] = {**SETTINGS, "timeout": (10, 10), "total": 20}
"""For cases that do not depend on time: on a busy machine a short time limit would be reached first."""


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """The decision point of a client, with settings for the client."""

    url: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    decisions: Callable[[], int] | None = None


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What is needed to start an endpoint."""

    folder: Path
    opa: Path


@dataclass(frozen=True, kw_only=True)
class FailureCase:
    """One kind of failure."""

    group: str
    description: str
    raises: type[DecisionError]
    says: str
    """A regular expression that the message must match."""
    starts: Callable[[Setup], AbstractContextManager[Endpoint]]
    ways: tuple[str, ...] = EVERY_WAY
    tries: int | None = None
    """How often one call requests the decision; None if the endpoint does not count."""
    at_most: bool = False
    """Whether `tries` is an upper bound, because the time may run out before."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings of the client that makes the request."""
        timed = self.raises is DecisionUnavailable and self.group not in (STATE, TRUST)
        return SETTINGS if timed else PATIENT


Answer = bytes | Callable[[socket.socket], None]


def script(answer: Answer, **more: Any) -> Callable[[Setup], AbstractContextManager[Endpoint]]:
    """An endpoint that is a scripted server."""

    @contextlib.contextmanager
    def endpoint(setup: Setup) -> Iterator[Endpoint]:
        with scripted(setup.folder, answer, **more).running() as server:
            yield Endpoint(url=server.url, decisions=lambda: server.decisions)

    return endpoint


@contextlib.contextmanager
def refused(_: Setup) -> Iterator[Endpoint]:
    """A port that is bound but not listening."""
    with socket.socket() as occupied:
        occupied.bind(("127.0.0.1", 0))
        yield Endpoint(url=f"http://127.0.0.1:{occupied.getsockname()[1]}")


@contextlib.contextmanager
def no_socket(setup: Setup) -> Iterator[Endpoint]:
    """A unix socket that does not exist."""
    yield Endpoint(url=f"unix:{setup.folder}/none.sock")


# --- answers that misbehave ---


def reset_in_body(connection: socket.socket) -> None:
    """Send half a body, then reset the connection."""
    connection.sendall(reply(YES, length=4000))
    time.sleep(0.02)
    reset(connection)


def ends_early(connection: socket.socket) -> None:
    """Send a body that is an allow, but one byte shorter than announced."""
    connection.sendall(reply(YES, length=len(YES) + 1))
    connection.shutdown(socket.SHUT_RDWR)


def drip(text: bytes) -> Callable[[socket.socket], None]:
    """Send one byte at a time, so that every single wait is short."""

    def answer(connection: socket.socket) -> None:
        for position in range(len(text)):
            connection.sendall(text[position : position + 1])
            time.sleep(0.05)

    return answer


def slow_body(connection: socket.socket) -> None:
    """Send the head at once, then the body byte by byte."""
    connection.sendall(reply("", length=4000))
    drip(b" " * 100)(connection)


def silent(connection: socket.socket) -> None:
    """Send nothing for a long time."""
    time.sleep(1.5)
    connection.close()


def huge_endless(connection: socket.socket) -> None:
    """Send an endless body in chunks."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        connection.sendall(b"4000\r\n" + b" " * 0x4000 + b"\r\n")


# --- real OPAs ---


@contextlib.contextmanager
def no_bundle(setup: Setup) -> Iterator[Endpoint]:
    """An OPA without bundles."""
    with OpaServer(binary=setup.opa) as opa:
        yield Endpoint(url=opa.url)


@contextlib.contextmanager
def no_state(setup: Setup) -> Iterator[Endpoint]:
    """An OPA with a policy and no state."""
    policy, _ = write_bundles(setup.folder)
    with OpaServer([policy], binary=setup.opa) as opa:
        yield Endpoint(url=opa.url)


def has_loaded_bundles(url: str) -> bool:
    """Whether OPA's status has the time of the last successful request for both bundles."""
    status = requests.get(f"{url}/v1/status", timeout=5).json().get("result", {})
    bundles = status.get("bundles") or {}
    return len(bundles) == 2 and all(bundle.get("last_successful_request") for bundle in bundles.values())


@contextlib.contextmanager
def stale(setup: Setup) -> Iterator[Endpoint]:
    """An OPA that has not reached its bundle server for a while."""
    delays = [
        f"--set=bundles.{name}.polling.{end}_delay_seconds=3600"
        for name in ("policy", "state")
        for end in ("min", "max")
    ]
    with OpaServer(
        write_bundles(setup.folder), binary=setup.opa, extra_args=["--set=status.prometheus=true", *delays]
    ) as opa:
        # OPA reports its status a while after it is ready; the age counts from the times in it.
        wait_for(lambda: has_loaded_bundles(opa.url))
        time.sleep(0.4)
        yield Endpoint(url=opa.url, settings={"max_staleness": 0.3})


@contextlib.contextmanager
def silent_on_age(setup: Setup) -> Iterator[Endpoint]:
    """An OPA that does not report its status."""
    with OpaServer(write_bundles(setup.folder), binary=setup.opa) as opa:
        yield Endpoint(url=opa.url, settings={"max_staleness": 60})


AUTHZ = """\
package system.authz

default allow := false

allow if input.identity == "right"

allow if input.path == ["health"]
"""


def token(**settings: Any) -> Callable[[Setup], AbstractContextManager[Endpoint]]:
    """An OPA that requires a token."""

    @contextlib.contextmanager
    def endpoint(setup: Setup) -> Iterator[Endpoint]:
        authz = setup.folder / "authz.rego"
        authz.write_text(AUTHZ, encoding="utf-8")
        arguments = ["--authentication=token", "--authorization=basic"]
        with OpaServer(write_bundles(setup.folder), binary=setup.opa, paths=[authz], extra_args=arguments) as opa:
            yield Endpoint(url=opa.url, settings=settings)

    return endpoint


def tls(
    name: str = "opa", *, host: str = "IP:127.0.0.1", expired: bool = False, trusted: bool = True, scheme: str = "https"
) -> Callable[[Setup], AbstractContextManager[Endpoint]]:
    """An OPA that serves TLS with a new certificate."""

    @contextlib.contextmanager
    def endpoint(setup: Setup) -> Iterator[Endpoint]:
        authority = Authority(setup.folder / "authority")
        certificate, key = authority.sign(name, host, expired=expired)
        port = free_port()
        arguments = [
            f"--addr=https://127.0.0.1:{port}",
            f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}",
        ]
        arguments += ["--bundle", *map(str, write_bundles(setup.folder))]
        with opa_process(setup.opa, setup.folder / "opa.log", *arguments):
            with Client(f"https://127.0.0.1:{port}", verify=False) as probe:
                wait_for(probe.health)
            settings = {"verify": str(authority.certificate)} if trusted else {}
            yield Endpoint(url=f"{scheme}://127.0.0.1:{port}", settings=settings)

    return endpoint


@contextlib.contextmanager
def plain_http(setup: Setup) -> Iterator[Endpoint]:
    """An OPA without TLS, with an https address."""
    with OpaServer(write_bundles(setup.folder), binary=setup.opa) as opa:
        yield Endpoint(url=opa.url.replace("http://", "https://"))


NETWORK, ANSWERS, SHAPES, STATE, TRUST = "The network", "Answers", "Shapes", "Policy and state", "Trust"

FAILURE_CASES: dict[str, FailureCase] = {
    "refused": FailureCase(
        group=NETWORK,
        description="nothing listens: connection refused",
        raises=DecisionUnavailable,
        says="refused",
        starts=refused,
    ),
    "no-socket": FailureCase(
        group=NETWORK,
        description="the unix socket is not there",
        raises=DecisionUnavailable,
        says="did not answer",
        starts=no_socket,
    ),
    "reset": FailureCase(
        group=NETWORK,
        description="the connection is reset before an answer",
        raises=DecisionUnavailable,
        says="did not answer",
        starts=script(reset),
        tries=3,
    ),
    "reset-in-body": FailureCase(
        group=NETWORK,
        description="the connection is reset within the body",
        raises=DecisionUnavailable,
        says="did not answer",
        starts=script(reset_in_body),
        tries=3,
    ),
    "end": FailureCase(
        group=NETWORK,
        description="the connection ends without an answer",
        raises=DecisionUnavailable,
        says="did not answer",
        starts=script(lambda c: c.shutdown(socket.SHUT_RDWR)),
        tries=3,
    ),
    "short": FailureCase(
        group=NETWORK,
        description="the body ends early, though it reads as an allow",
        raises=DecisionUnavailable,
        says="did not answer",
        starts=script(ends_early),
        tries=3,
    ),
    "silence": FailureCase(
        group=NETWORK,
        description="no answer at all",
        raises=DecisionUnavailable,
        says="in time|within",
        starts=script(silent),
        tries=3,
        at_most=True,
    ),
    "slow-headers": FailureCase(
        group=NETWORK,
        description="headers that drip in, byte after byte",
        raises=DecisionUnavailable,
        says="in time|within",
        starts=script(drip(reply(YES))),
        tries=3,
        at_most=True,
    ),
    "slow-body": FailureCase(
        group=NETWORK,
        description="a body that drips in, byte after byte",
        raises=DecisionUnavailable,
        says="in time|within",
        starts=script(slow_body),
        tries=3,
        at_most=True,
    ),
    "no-http": FailureCase(
        group=NETWORK,
        description="a response that is not HTTP",
        raises=DecisionUnavailable,
        says="did not answer",
        starts=script(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"),
        tries=3,
    ),
    "broken-chunks": FailureCase(
        group=NETWORK,
        description="a chunked body with broken chunks",
        raises=DecisionUnavailable,
        says="did not answer",
        starts=script(f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{YES}\r\n0\r\n\r\n".encode()),
        tries=3,
    ),
    "two-lengths": FailureCase(
        group=NETWORK,
        description="two `Content-Length` headers that differ",
        raises=DecisionUnavailable,
        says="did not answer",
        starts=script(reply(YES, "200 OK", f"Content-Length: {2 * len(YES)}") + YES.encode()),
        tries=3,
    ),
    "400": FailureCase(
        group=ANSWERS,
        description="400 Bad Request",
        raises=PolicyError,
        says="400: .*malformed",
        tries=1,
        starts=script(reply('{"message": "malformed"}', "400 Bad Request")),
    ),
    "404": FailureCase(
        group=ANSWERS,
        description="404 Not Found",
        raises=PolicyError,
        says="404",
        tries=1,
        starts=script(reply(YES, "404 Not Found")),
    ),
    "429": FailureCase(
        group=ANSWERS,
        description="429 Too Many Requests",
        raises=PolicyError,
        says="429",
        tries=1,
        starts=script(reply(YES, "429 Too Many Requests")),
    ),
    "429-after": FailureCase(
        group=ANSWERS,
        description="429 with `Retry-After`",
        raises=DecisionUnavailable,
        says="429",
        tries=3,
        starts=script(reply(YES, "429 Too Many Requests", "Retry-After: 0")),
    ),
    "500": FailureCase(
        group=ANSWERS,
        description="500 Internal Server Error",
        raises=DecisionUnavailable,
        says="500",
        tries=3,
        starts=script(reply(YES, "500 Internal Server Error")),
    ),
    "503-after": FailureCase(
        group=ANSWERS,
        description="503 with a `Retry-After` beyond the time that is left",
        raises=DecisionUnavailable,
        says="503",
        tries=1,
        starts=script(reply(YES, "503 Service Unavailable", "Retry-After: 60")),
    ),
    "204": FailureCase(
        group=ANSWERS,
        description="another 2xx, without a body",
        raises=PolicyError,
        says="204",
        tries=1,
        starts=script(b"HTTP/1.1 204 No Content\r\n\r\n"),
    ),
    "redirect": FailureCase(
        group=ANSWERS,
        description="a redirect",
        raises=PolicyError,
        says="redirect",
        tries=1,
        starts=script(reply("", "307 Temporary Redirect", "Location: http://127.0.0.1:1/")),
    ),
    "content-type": FailureCase(
        group=ANSWERS,
        description="another content type, though the body is an allow",
        raises=PolicyError,
        says="text/html",
        tries=1,
        starts=script(reply(YES, "200 OK", "Content-Type: text/html")),
    ),
    "huge": FailureCase(
        group=ANSWERS,
        description="a body longer than `max_body`",
        raises=PolicyError,
        says="more than 100000 bytes",
        tries=1,
        starts=script(reply(YES + " " * 300_000)),
    ),
    "endless": FailureCase(
        group=ANSWERS,
        description="a body without end",
        raises=PolicyError,
        says="more than 100000 bytes",
        tries=1,
        starts=script(huge_endless),
    ),
    "half-json": FailureCase(
        group=SHAPES,
        description="half a JSON document",
        raises=PolicyError,
        says="not JSON",
        tries=1,
        starts=script(reply('{"result": tr')),
    ),
    "key-twice": FailureCase(
        group=SHAPES,
        description="an object with a duplicate key",
        raises=PolicyError,
        says="twice",
        tries=1,
        starts=script(reply('{"result": false, "result": true}')),
    ),
    "undefined": FailureCase(
        group=SHAPES,
        description="undefined: 200 without a `result`",
        raises=PolicyError,
        says="undefined",
        tries=2,
        starts=script(reply("{}")),
    ),
    "wrong-shape": FailureCase(
        group=SHAPES,
        description='another shape: `"true"` for `true`',
        raises=PolicyError,
        says="is not a|not a decision",
        tries=1,
        starts=script(reply('{"result": "true"}')),
    ),
    "one-for-all": FailureCase(
        group=SHAPES,
        description="one `true` for many requests",
        raises=PolicyError,
        says="is not a list",
        tries=1,
        starts=script(reply(YES)),
        ways=(*MANY, "visible"),
    ),
    "empty": FailureCase(
        group=SHAPES,
        description="an empty batch",
        raises=PolicyError,
        says="is not a list of 2",
        tries=1,
        starts=script(reply('{"result": []}')),
        ways=MANY,
    ),
    "too-few": FailureCase(
        group=SHAPES,
        description="too few answers",
        raises=PolicyError,
        says="is not a list of 2",
        tries=1,
        starts=script(reply('{"result": [true]}')),
        ways=MANY,
    ),
    "null-in-batch": FailureCase(
        group=SHAPES,
        description="an answer of a batch that is `null`",
        raises=PolicyError,
        says="more than booleans|not a decision",
        tries=1,
        starts=script(reply('{"result": [true, null]}')),
        ways=MANY,
    ),
    "out-of-range": FailureCase(
        group=SHAPES,
        description="a position beyond the listing",
        raises=PolicyError,
        says="positions below 2",
        tries=1,
        starts=script(reply('{"result": [0, 7]}')),
        ways=("visible",),
    ),
    "no-bundle": FailureCase(
        group=STATE,
        description="no bundle is active yet",
        raises=DecisionUnavailable,
        says="no bundle is active",
        starts=no_bundle,
    ),
    "no-state": FailureCase(
        group=STATE,
        description="a policy without its state",
        raises=DecisionUnavailable,
        says="no state bundle is active",
        starts=no_state,
    ),
    "stale": FailureCase(
        group=STATE,
        description="OPA has not heard from its bundle server for longer than `max_staleness`",
        raises=DecisionUnavailable,
        says="too old",
        starts=stale,
    ),
    "age-unknown": FailureCase(
        group=STATE,
        description="`max_staleness` is set and OPA does not report its status",
        raises=DecisionUnavailable,
        says="does not tell",
        starts=silent_on_age,
    ),
    "unknown-name": FailureCase(
        group=STATE,
        description="an operation, type, flag or path that the policy does not know; null",
        raises=InvalidRequest,
        says="unknown operation",
        starts=script(reply(YES)),
        tries=0,
    ),
    "token-missing": FailureCase(
        group=TRUST, description="OPA wants a token, none is sent", raises=PolicyError, says="401", starts=token()
    ),
    "token-wrong": FailureCase(
        group=TRUST,
        description="the token is wrong",
        raises=PolicyError,
        says="401",
        starts=token(token="wrong"),  # noqa: S106  (of a test)
    ),
    "authority-unknown": FailureCase(
        group=TRUST,
        description="a certificate of an authority that is not trusted",
        raises=DecisionUnavailable,
        says="not trusted",
        starts=tls(trusted=False),
    ),
    "certificate-expired": FailureCase(
        group=TRUST,
        description="an expired certificate",
        raises=DecisionUnavailable,
        says="not trusted: .*expired",
        starts=tls("old", expired=True),
    ),
    "certificate-of-another": FailureCase(
        group=TRUST,
        description="a certificate for another host",
        raises=DecisionUnavailable,
        says="not trusted: .*mismatch",
        starts=tls("other", host="DNS:opa.example"),
    ),
    "no-tls": FailureCase(
        group=TRUST,
        description="https to a port that speaks http",
        raises=DecisionUnavailable,
        says="no TLS connection",
        starts=plain_http,
    ),
    "tls-only": FailureCase(
        group=TRUST,
        description="http to a port that speaks https",
        raises=PolicyError,
        says="400",
        starts=tls(scheme="http"),
    ),
}


def ask(client: Any, way: str, *, wrong: bool = False) -> Any:
    """Call one method of a client; returns a coroutine for an AsyncClient."""
    read = failing_servers.READ
    action = "raed" if wrong else "read"
    request = (read.user, action, read.resource)
    both = [failing_servers.READ, failing_servers.OTHER]
    if wrong:
        both = [failing_servers.READ, type(read)(user="ben", action=action, resource=read.resource)]
    match way:
        case "check" | "require" | "decide":
            return getattr(client, way)(*request)
        case "check_many" | "decide_many":
            return getattr(client, way)(both)
        case "visible":
            return client.visible("ann", "lits" if wrong else "list", "dataset", failing_servers.ITEMS)
        case _:
            return client.filter("ann", action, failing_servers.ITEMS, key=lambda path: ("dataset", path))


def page() -> str:
    """The tables for the documentation."""
    lines: list[str] = []
    for group in dict.fromkeys(case.group for case in FAILURE_CASES.values()):
        lines += [f"## {group}", "", "| what happens | what the caller gets | tries | asked by |", "|---|---|---|---|"]
        for case in FAILURE_CASES.values():
            if case.group == group:
                ways = "every method" if case.ways == EVERY_WAY else ", ".join(f"`{way}`" for way in case.ways)
                tries = "" if case.tries is None else f"{'up to ' if case.at_most else ''}{case.tries}"
                lines.append(f"| {case.description} | `{case.raises.__name__}` | {tries} | {ways} |")
        lines.append("")
    return "\n".join(lines)
