"""Fuzz readers with corrupted bytes: briefly in every run, for a minute in `make test-long`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

Target: TypeAlias = Callable[[bytes], None]

TOKENS = (
    *(
        b"[",
        b"{",
        b"]",
        b"}",
        b":",
        b": ",
        b",",
        b"- ",
        b"? ",
        b"#",
        b"&a ",
        b"*a",
        b"!!str ",
        b"<<: ",
        b"'",
        b'"',
        b"|\n",
        b">\n",
    ),
    *(
        b"\n",
        b"\r",
        b"\t",
        b" ",
        b"\0",
        b"\x1b[2J",
        b"\x7f",
        b"\xc2\x85",
        b"\xe2\x80\xa8",
        b"\xef\xbb\xbf",
        b"\xff",
        b"\xed\xa0\x80",
    ),
    *(
        b"\\ud800",
        b"\\u0000",
        b"\\",
        b"%2F",
        b"%",
        b"..",
        b"/",
        b"null",
        b"true",
        b"NaN",
        b"1e999",
        b"0x1F",
        b"---\n",
        b"...\n",
    ),
    *(
        b"[" * 300,
        b'{"a":' * 300,
        b"- " * 300,
        b"a" * 5000,
        b"9" * 5000,
        b"\xf0\xa0\x9c\x8e",
        b"cafe\xcc\x81",
        b"(",
        b")",
        b" and ",
    ),
)
EDITS = st.lists(
    st.tuples(
        st.floats(0, 1),
        st.sampled_from(["insert", "replace", "delete", "repeat", "cut", "flip"]),
        st.sampled_from(TOKENS) | st.binary(max_size=12),
        st.integers(1, 60),
    ),
    min_size=1,
    max_size=8,
)


def edited(text: bytes, edits: Sequence[tuple[float, str, bytes, int]]) -> bytes:
    """The text with the edits applied."""
    for place, kind, token, length in edits:
        position = int(place * len(text))
        match kind:
            case "insert":
                text = text[:position] + token + text[position:]
            case "replace":
                text = text[:position] + token + text[position + len(token) :]
            case "delete":
                text = text[:position] + text[position + length :]
            case "repeat":
                text = text[:position] + text[position : position + length] * 3 + text[position + length :]
            case "cut":
                text = text[:position] if length > 50 else text
            case _:
                text = (
                    text[:position]
                    + bytes(byte ^ length for byte in text[position : position + 1])
                    + text[position + 1 :]
                )
    return text


def fuzzed(seeds: Sequence[bytes], target: Target, seconds: float | None) -> None:
    """Call the target with corrupted seeds, for `seconds` or a few times; the target raises if a reader misbehaves."""
    ends = time.monotonic() + (seconds or 30)

    @settings(
        max_examples=25 if seconds is None else 5_000,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.sampled_from(seeds), EDITS)
    def spoilt(seed: bytes, edits: list[tuple[float, str, bytes, int]]) -> None:
        if time.monotonic() < ends:
            target(edited(seed, edits))

    for seed in seeds:
        target(seed)
    spoilt()


LENGTHS = pytest.mark.parametrize("seconds", [None, pytest.param(60.0, marks=pytest.mark.long)], ids=["short", "long"])
