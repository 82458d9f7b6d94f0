"""Our transport and bare `http.client` on the same bytes: ours reads the same answers, and refuses some that are ambiguous."""

from __future__ import annotations

import http.client
import io
import socket
import time
from itertools import pairwise
from typing import Any

import pytest
from hostile_http import answers
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from privtab.client import _http
from privtab.client._transport import MAX_BODY

Answer = tuple[int, list[tuple[str, str]], bytes]


class Given:
    """What http.client takes for a socket."""

    def __init__(self, content: bytes) -> None:
        self.file = io.BytesIO(content)
        self.file.close = lambda: None  # type: ignore[method-assign]  # what is left is looked at

    def makefile(self, mode: str) -> io.BytesIO:
        del mode
        return self.file


def by_http_client(content: bytes) -> tuple[Answer | None, bytes, http.client.HTTPMessage | None]:
    """The answer (None: an error), what is left behind it, and its headers."""
    source = Given(content)
    response = http.client.HTTPResponse(source, method="POST")  # type: ignore[arg-type]  # only makefile is used
    try:
        response.begin()
        body = response.read()
    except (http.client.HTTPException, OSError, ValueError, OverflowError):
        return None, b"", None
    return (response.status, response.headers.items(), body), source.file.read(), response.headers


def by_ours(content: bytes) -> tuple[Answer | None, bool]:
    """The answer (None: an error), and whether the connection would be used again."""
    near, far = socket.socketpair()
    with near, far:
        far.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        far.settimeout(20)
        far.sendall(content)
        far.shutdown(socket.SHUT_WR)
        connection = _http._Connection(near)
        connection.read_timeout, connection.deadline = 20.0, time.monotonic() + 20
        try:
            response, body = connection.exchange("POST", b"", MAX_BODY)
        except (http.client.HTTPException, OSError, ValueError):
            return None, False
        return (response.status, response.headers.items(), body), connection.reusable


def agrees(content: bytes) -> None:
    theirs, left, headers = by_http_client(content)
    ours, reusable = by_ours(content)
    event("refused by both" if theirs is None else "refused by ours" if ours is None else "read")
    if ours is not None:
        assert ours == theirs
        assert not (reusable and left), "what follows an answer would be taken for the next one"
    elif theirs is not None:
        assert headers is not None
        with pytest.raises(http.client.HTTPException):
            _http._check_framing(headers)


quick = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
thorough = settings(max_examples=6_000, deadline=None, suppress_health_check=list(HealthCheck))


@quick
@given(answers)
def test_the_parser_reads_what_http_client_reads_or_refuses_it(content: bytes) -> None:
    assume(len(content) < 150_000)
    agrees(content)


@pytest.mark.long
@thorough
@given(answers)
def test_the_parser_reads_what_http_client_reads_or_refuses_it_often(content: bytes) -> None:
    assume(len(content) < 150_000)
    agrees(content)


names = st.from_regex(r"[A-Za-z][A-Za-z0-9-]{0,10}", fullmatch=True).filter(
    lambda name: name.lower() not in ("content-length", "transfer-encoding", "connection")
)
values = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20)


@st.composite
def sound(draw: Any) -> tuple[int, bytes, bytes]:
    """Status, body and bytes of an answer as servers send them, whole or in chunks."""
    status = draw(st.sampled_from([200, 201, 400, 404, 500, 503]))
    body = draw(st.binary(max_size=200))
    head = [f"HTTP/1.1 {status} said"] + [f"{n}: {v}" for n, v in draw(st.lists(st.tuples(names, values), max_size=5))]
    if draw(st.booleans()):
        head.append(f"Content-Length: {len(body)}")
        content = body
    else:
        head.append("Transfer-Encoding: chunked")
        cuts = sorted(draw(st.sets(st.integers(0, len(body)), max_size=4)) | {0, len(body)})
        pieces = [body[start:end] for start, end in pairwise(cuts)]
        content = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    return status, body, ("\r\n".join([*head, "", ""])).encode() + content


@pytest.mark.slow
@quick
@given(sound(), st.binary(max_size=3))
def test_sound_answers_are_read_whole_and_the_connection_is_kept_if_nothing_follows(
    answer: tuple[int, bytes, bytes], more: bytes
) -> None:
    status, body, content = answer
    ours, reusable = by_ours(content + more)
    assert ours is not None
    assert (ours[0], ours[2]) == (status, body)
    assert reusable is (not more)
    agrees(content + more)
