"""Options with named values: one form, one message for other texts, and no name twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from privtab.base.errors import UsageError
from privtab.base.key_values import parse_key_values


def test_a_value_may_contain_the_sign_and_spaces() -> None:
    assert parse_key_values(["filter=a=b", "sep= "], "--set") == {"filter": "a=b", "sep": " "}
    assert parse_key_values(["X-Url: http://a:1"], "--header", "NAME:VALUE") == {"X-Url": "http://a:1"}
    assert parse_key_values(None, "--set") == {}


@pytest.mark.parametrize("text", ["", "x", "=1", " =1", "x=", "x:1"])
def test_other_texts_are_refused_with_the_form_and_an_example(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_key_values(["a=1", text], "--set", example="region=eu")
    assert str(raised.value) == f"`--set {text}`: write NAME=VALUE, as in region=eu"


def test_other_names_can_be_refused() -> None:
    assert parse_key_values(["cert=c.pem"], "--tls", names=("cert", "key")) == {"cert": "c.pem"}
    with pytest.raises(UsageError, match="there are cert, key"):
        parse_key_values(["cret=c.pem"], "--tls", names=("cert", "key"))


def test_an_empty_value_can_be_allowed() -> None:
    assert parse_key_values(["x="], "--header", "KEY=VALUE", allow_empty=True) == {"x": ""}


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (lambda texts: parse_key_values(texts, "--set"), "region=eu", "`--set` is given twice for `region`"),
    ],
)
def test_a_repeated_name_is_refused(read: Callable[[list[str]], Any], text: str, message: str) -> None:
    assert read([text])
    with pytest.raises(UsageError) as raised:
        read([text, text])
    assert str(raised.value) == message
