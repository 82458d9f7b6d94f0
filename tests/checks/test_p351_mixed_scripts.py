from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "privileges: [READ, WR\u0406TE]",
            "privilege `WR\u0406TE` mixes scripts: U+0406 CYRILLIC CAPITAL LETTER BYELORUSSIAN-UKRAINIAN I beside LATIN letters",
        ),
        (
            "roles: {keep\u0435r: }",
            "role `keep\u0435r` mixes scripts: U+0435 CYRILLIC SMALL LETTER IE beside LATIN letters",
        ),
        (
            "sets: {\u0391LL: [READ]}",
            "privilege `\u0391LL` mixes scripts: U+0391 GREEK CAPITAL LETTER ALPHA beside LATIN letters",
        ),
        (
            "semantics: {everyone: \u0430ll}",
            "group `\u0430ll` mixes scripts: U+0430 CYRILLIC SMALL LETTER A beside LATIN letters",
        ),
    ],
)
def test_names(only: Callable[..., Any], text: str, message: str) -> None:
    assert only(f"{text}\n", "P351").message == f"the {message}"


@pytest.mark.parametrize(
    "name", ["caf\u00e9", "\u0447\u0438\u0442\u0430\u0442\u044c", "HR\u90e8", "\u304b\u30ad\u66f8", "\ud55c_A"]
)
def test_no_finding(codes: Callable[[str], list[str]], name: str) -> None:
    assert "P351" not in codes(f"roles: {{{name}: }}\n")


@pytest.mark.parametrize("hidden", ["\u200b", "\u00ad", "\u3164", "\u202e", "\ufe0f", "\u115f"])
def test_a_character_that_nobody_sees_is_an_error_with_its_code_point(
    codes: Callable[[str], list[str]], hidden: str
) -> None:
    assert "P010" in codes(f'roles: {{"keep\\u{ord(hidden):04x}er": }}\n')


@pytest.mark.parametrize("hidden", ["\u200b", "\u00a0", "\u3164", "\U000e01f0", "\ufff0"])
@pytest.mark.parametrize(
    ("written", "code"),
    [
        ('attributes: {{request: {{mode: {{enum: [a, "b{}c"]}}}}}}', "P009"),
        ('sets: {{BOTH: [READ, "WR{}ITE"]}}', "P009"),
        ('attributes: {{request: {{net: text}}}}\ntables: {{shop: {{look: "READ (shop) and request.net = \\"a{}b\\""}}}}', "P011"),
        ('tables: {{shop: {{look: "\\"A{}LL\\" (shop)"}}}}', "P011"),
    ],
)  # fmt: skip
def test_a_word_that_is_listed_or_compared_is_seen_whole(
    codes: Callable[[str], list[str]], hidden: str, written: str, code: str
) -> None:
    assert code in codes(written.format(f"\\U{ord(hidden):08x}") + "\n")
