"""Pure functions that every sender shares."""

from __future__ import annotations

import pytest

from privtab import DecisionUnavailable, Entity, InvalidRequest, PolicyError, Request
from privtab.client import _protocol as protocol


def test_text_goes_out_as_utf8() -> None:
    assert protocol.encode({"a": "ü", "b": [1, True]}) == '{"a":"ü","b":[1,true]}'.encode()


def test_a_lone_surrogate_does_not_go_out() -> None:
    with pytest.raises(InvalidRequest, match="not valid Unicode"):
        protocol.encode({"a": "\udcff"})


def test_an_undefined_program_is_no_bundle_and_a_wrong_one_is_an_error() -> None:
    with pytest.raises(DecisionUnavailable, match="no bundle is active for system `x`"):
        protocol.program("x").read(b"{}")
    with pytest.raises(PolicyError, match="not a program"):
        protocol.program("x").read(b'{"result": {"system": "x"}}')


def test_an_allow_is_asked_with_the_whole_request() -> None:
    request = Request(
        user="alice",
        action="copy",
        resource=Entity("doc", "s/d"),
        groups=("hr",),
        with_={"source": Entity("doc", "s/e")},
        flags=frozenset({"force"}),
    )
    call = protocol.allow("demo", request)
    assert call.path == "/v1/data/privtab/demo/check"
    assert call.body == (
        b'{"input":{"subject":{"type":"user","id":"alice","properties":{"groups":["hr"]}},"action":{"name":"copy"},'
        b'"resource":{"type":"doc","id":"s/d"},"context":{"force":true,"with":{"source":{"type":"doc","id":"s/e"}}}}}'
    )
    assert call.read(b'{"result": true}') is True
    assert Request.from_json(request.to_json()) == request


def test_a_long_answer_is_cut_in_messages() -> None:
    with pytest.raises(PolicyError) as caught:
        protocol.check_status(404, b"x" * 10_000, "http://opa")
    assert len(str(caught.value)) < 400
