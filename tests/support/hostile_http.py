"""Hypothesis strategies for malformed HTTP responses."""

from __future__ import annotations

from hypothesis import strategies as st

NEXT = b'{"result": "the next answer"}'
GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(NEXT), NEXT)

LINES = [
    b"HTTP/1.1 200 OK", b"HTTP/1.1 200", b"HTTP/1.0 200 OK", b"HTTP/1.1 304 Not Modified", b"HTTP/1.1 100 Continue",
    b"HTTP/1.1 302 Found", b"HTTP/1.1 503 Busy", b"HTTP/2 200", b"HTTP/1.1 99999 ", b"ICY 200", b"", b" HTTP/1.1 200 OK",
    b"Content-Length: 2", b"Content-Length: 02", b"Content-Length: +2", b"Content-Length: 2, 2", b"Content-Length: -1",
    b"Content-Length: 99999999999999999999", b"Content-Length: \xb2", b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding:\tchunked", b"Connection: close", b"Connection: keep-alive",
    b"Location: /", b"Location: http://[", b"Location: //\xff", b"Content-Type: application/json", b" folded: x",
    b"Content-Encoding: gzip", b"Retry-After: nan", b"Retry-After: -1", b"Retry-After: 1e999", b"X" * 70_000, b"X: \x00",
    b"\xff\xfe: x", b"ETag: \r", b"2", b"0", b"zz", b"-2", b"ffffffffffffffffff", b"2;x=y", b"{}", b"{\"result\": true}",
]  # fmt: skip
line = st.one_of(st.sampled_from(LINES), st.binary(max_size=30))
ends = st.sampled_from([b"\r\n", b"\n", b"\r", b"\r\n\r\n", b""])
answers = st.one_of(
    st.lists(st.tuples(line, ends), max_size=14).map(lambda parts: b"".join(a + b for a, b in parts)),
    st.tuples(st.sampled_from(LINES[:4]), st.lists(line, max_size=5), st.lists(line, max_size=5)).map(
        lambda answer: b"\r\n".join([answer[0], *answer[1], b"", *answer[2]])
    ),
    st.tuples(st.just(GOOD), st.binary(max_size=20), st.sampled_from([b"", GOOD])).map(b"".join),
)
