"""Names that look like others: what cannot be seen is an error, mixed scripts are a warning, by rows and by columns alike."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable

import pytest

from privtab.base.names import invisible
from privtab.ir.nodes import Program
from privtab.state import raw
from privtab.state.findings import StateFinding
from privtab.state.load import from_tables, validate
from privtab.state.nodes import State

Checked = Callable[..., tuple[State, tuple[StateFinding, ...]]]


def denied(program: Program, grantee: str, entity: str = "table:l/s/t") -> list[StateFinding]:
    """The findings of a denial, which are the same by columns."""
    rows = {"grants": [{"grantee": grantee, "effect": "deny", "privilege": "SELECT", "entity": entity}]}
    state, findings = validate(program, from_tables(rows, "x"), notes=False)
    large, raw.LARGE = raw.LARGE, 0
    try:
        assert validate(program, from_tables(rows, "x"), notes=False) == (state, findings)
    finally:
        raw.LARGE = large
    assert len(state.grants) == (not any(f.severity == "error" for f in findings))
    return list(findings)


@pytest.mark.parametrize(
    ("grantee", "entity", "trimmed"),
    [
        ("user: ann", "table:l/s/t", "user:ann"),
        ("user:ann ", "table:l/s/t", "user:ann"),
        ("group:  a b ", "table:l/s/t", "group:a b"),
        ("user:ann", "table: l/s/t", "table:l/s/t"),
        ("user:ann", "table:l /s/t", "table:l/s/t"),
        ("user:ann", "table:l/ s/t", "table:l/s/t"),
        ("user:ann", "table:l/s/t ", "table:l/s/t"),
        ("user:ann", "table:l/s/ ", "table:l/s/"),
    ],
)
def test_a_blank_beside_a_name_is_an_error(program: Program, grantee: str, entity: str, trimmed: str) -> None:
    (finding,) = denied(program, grantee, entity)
    assert (finding.code, finding.severity, finding.help) == ("S108", "error", f"did you mean `{trimmed}`?")


@pytest.mark.parametrize(
    "grantee", ["user:Ann Smith", "group:Sales / EMEA", "group:a : b", "role:a: b", "user:каролина"]
)
@pytest.mark.parametrize("entity", ["table:l/s/Mein Tisch", "table:l/s/a: b", "table:l/s/表 A"])
def test_blanks_within_names_and_other_scripts_are_names(program: Program, grantee: str, entity: str) -> None:
    assert denied(program, grantee, entity) == []


@pytest.mark.parametrize(
    "character",
    "\u200b\u202e\u00ad\ufeff\u00a0\u3000\ufe0f\u034f\u3164\u115f\u2800\u180e\U000e0041\U000e0100\U00016fe4\U0001d159",
)
def test_what_cannot_be_seen_is_an_error_with_its_code_point(program: Program, character: str) -> None:
    for grantee, entity in ((f"user:a{character}n", "table:l/s/t"), ("user:ann", f"table:l/s/t{character}")):
        (finding,) = denied(program, grantee, entity)
        assert (finding.code, finding.severity) == ("S116", "error")
        assert f"U+{ord(character):04X} {unicodedata.name(character)}" in finding.message


@pytest.mark.parametrize(
    ("grantee", "entity", "letter"),
    [
        ("user:\u0430nn", "table:l/s/t", "U+0430 CYRILLIC SMALL LETTER A beside LATIN letters"),
        ("group:h\u03bfst", "table:l/s/t", "U+03BF GREEK SMALL LETTER OMICRON beside LATIN letters"),
        ("user:ann", "table:l/s/\u0455ales", "U+0455 CYRILLIC SMALL LETTER DZE beside LATIN letters"),
        ("user:\U0001d41ann", "table:l/s/t", "U+1D41A MATHEMATICAL BOLD SMALL A beside LATIN letters"),
    ],
)
def test_letters_of_two_scripts_are_a_warning(program: Program, grantee: str, entity: str, letter: str) -> None:
    (finding,) = denied(program, grantee, entity)
    assert (finding.code, finding.severity) == ("S118", "warning")
    assert finding.message.endswith(letter)


def test_values_of_attributes_have_no_blanks_around_them(checked: Checked) -> None:
    _, findings = checked(attributes=[{"user": "ann", "attribute": "x", "value": " a"}])
    assert [f.severity for f in findings] == ["error"]


@pytest.mark.slow
def test_all_that_unicode_calls_a_format_or_a_space_is_found() -> None:
    for character in map(chr, range(sys.maxunicode + 1)):
        hidden = unicodedata.category(character) in {"Cf", "Zs"} and character != " "
        assert not hidden or invisible(f"a{character}b"), hex(ord(character))


@pytest.mark.slow
def test_columns_doubt_each_character_that_is_found(program: Program) -> None:
    rows = [
        {"grantee": f"user:a{c}b", "effect": "allow", "privilege": "SELECT", "entity": "lake:l"}
        for c in map(chr, range(0x80, 0xF0000))
        if not "\ud800" <= c <= "\udfff"
        and (invisible(c) is not None or (unicodedata.category(c)[0] == "L" and ord(c) < 0x3000))
    ]
    expected = validate(program, from_tables({"grants": rows}, "x"), notes=False)
    large, raw.LARGE = raw.LARGE, 0
    try:
        assert validate(program, from_tables({"grants": rows}, "x"), notes=False)[1] == expected[1]
    finally:
        raw.LARGE = large
