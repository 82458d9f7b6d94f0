from __future__ import annotations

import time
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.lark import from_lark
from lark import Lark

from privtab.language.syntax import cell_grammar, cells
from privtab.language.syntax import expression as x
from privtab.language.syntax.cell_grammar import parse_by_grammar
from privtab.language.syntax.expression import CellError


def names(*found: x.Name) -> list[str]:
    return [name.text for name in found]


def shape(e: object) -> str:
    """A condition with every parenthesis written out."""
    match e:
        case x.PrivilegeTerm(privileges, every, targets):
            return f"{('+' if every else '/').join(names(*privileges))}({','.join(names(*targets))})"
        case x.Related(kind, targets, _):
            return f"{kind}({','.join(names(*targets))})"
        case x.CanDo(operation, targets, _):
            return f"can {operation.text}({','.join(names(*targets))})"
        case x.Word(kind, _):
            return kind
        case x.AllOf(parts):
            return "[" + " & ".join(shape(p) for p in parts) + "]"
        case x.AnyOf(parts):
            return "[" + " | ".join(shape(p) for p in parts) + "]"
        case x.Required(body, flag, _):
            return f"[{shape(body)} when {flag.text}]"
        case _:
            raise AssertionError(e)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("READ/WRITE/ADMIN (namespace)", "READ/WRITE/ADMIN(namespace)"),
        ("search + delete (hosts)", "search+delete(hosts)"),
        ("READ(x)", "READ(x)"),
        ("WRITE (namespace) & ADMIN (stream)", "[WRITE(namespace) & ADMIN(stream)]"),
        ("A (x) or B (x) and C (x)", "[A(x) | [B(x) & C(x)]]"),
        ("(A (x) or B (x)) and C (x)", "[[A(x) | B(x)] & C(x)]"),
        ("A (x) when f", "[A(x) when f]"),
        ("A (x) and B (x) when f", "[A(x) & [B(x) when f]]"),
        ("A (x) or B (x) when f", "[A(x) | [B(x) when f]]"),
        ("A (x) when f and B (x) or C (x)", "[[[A(x) when f] & B(x)] | C(x)]"),
        ("A (x) when f or B (x) when g", "[[A(x) when f] | [B(x) when g]]"),
        ("A/B (x, y) & can load (y) when f", "[A/B(x,y) & [can load(y) when f]]"),
        ("A (x) and (B (x) when f)", "[A(x) & [B(x) when f]]"),
        ("(A (x) and B (x)) when f", "[[A(x) & B(x)] when f]"),
        ("(A (x) or B (x) when f) when g", "[[A(x) | [B(x) when f]] when g]"),
        ("self when owner", "[self when owner]"),
        ("owner (metalake, catalog) or USE_CATALOG (catalog)", "[owner(metalake,catalog) | USE_CATALOG(catalog)]"),
        ("can load (schema) and member (m)", "[can load(schema) & member(m)]"),
        ("self or service  admin or anyone or holds (role)", "[self | service_admin | anyone | holds(role)]"),
        ("owner (owner) and self (self)", "[owner(owner) & self(self)]"),
        ("android (x) or orc (y)", "[android(x) | orc(y)]"),
        ("storage.objects.get/iam:Pass-Role (x)", "storage.objects.get/iam:Pass-Role(x)"),
        ("A (x)\n  or\n  B (y)", "[A(x) | B(y)]"),
    ],
)
def test_cells(text: str, expected: str) -> None:
    if text.endswith("self (self)"):
        assert isinstance(cells.parse_condition(text), CellError)
    else:
        assert shape(cells.parse_condition(text)) == expected


@pytest.mark.parametrize("cell", ["READ (service admin)", "READ (x, service admin)", "owner (service admin or below)"])
def test_two_names_of_a_target_may_be_those_of_a_keyword(cell: str) -> None:
    parsed = cells.parse_condition(cell)
    assert isinstance(parsed, x.PrivilegeTerm | x.Related)
    (target,) = parsed.targets[-1:]
    assert (target.text, target.selector and target.selector.text) == ("admin", "service")
    assert cell[target.start : target.end].startswith("admin")


def test_names_know_where_they_stand() -> None:
    text = "READ/WRITE (x) and can load (y)"
    parsed = cells.parse_condition(text)
    assert isinstance(parsed, x.AllOf)
    privilege, can = parsed.parts
    assert isinstance(privilege, x.PrivilegeTerm)
    assert isinstance(can, x.CanDo)
    for name in (*privilege.privileges, *privilege.targets, can.operation, *can.targets, can.word):
        assert text[name.start : name.end] == name.text


@pytest.mark.parametrize(
    ("text", "at", "message", "some_expected"),
    [
        ("", "", "the cell is empty", "a condition such as `READ (table)`, `owner (…)`, `can OP (…)`"),
        ("READ", "", "the cell ends too early", "`(`"),
        ("READ (x", "", "the cell ends too early", "`)`"),
        ("READ (x))", ")", "unexpected `)`", "the end of the cell"),
        ("READ ()", ")", "unexpected `)`", "a name"),
        ("can (x)", "(", "unexpected `(`", "a name"),
        (
            "READ (x) or or WRITE (x)",
            "or",
            "unexpected `or`",
            "a condition such as `READ (table)`, `owner (…)`, `can OP (…)`",
        ),
        ("A (x) when f when g", "when", "unexpected `when`", "the end of the cell"),
        ("A (x) when f B (x)", "B", "unexpected `B`", "`or`"),
        ("A (x) when (f)", "(", "unexpected `(`", "a name"),
        (
            "A (x) and when f",
            "when",
            "unexpected `when`",
            "a condition such as `READ (table)`, `owner (…)`, `can OP (…)`",
        ),
        ("not A (x)", "A", "unexpected `A`", "`(`"),
        ("A (x), B (x)", ",", "unexpected `,`", "`or`"),
        ("A (x) ! B (x)", "!", "unexpected character `!`", "`and`"),
        ("A/B+C (x)", "+", "unexpected `+`", "`/`"),
        ("when f", "when", "unexpected `when`", "a condition such as `READ (table)`, `owner (…)`, `can OP (…)`"),
    ],
)
def test_errors_say_what_stands_where_and_what_could(text: str, at: str, message: str, some_expected: str) -> None:
    error = cells.parse_condition(text)
    assert isinstance(error, CellError)
    assert error.message == message
    assert text[error.start : error.end] == at
    assert some_expected in error.expected


def test_deep_parentheses_are_refused_in_place_of_a_crash() -> None:
    text = "(" * 5000 + "A (x)" + ")" * 5000
    error = cells.parse_condition(text)
    assert isinstance(error, CellError)
    assert error.message == "parentheses nest too deeply here"


def test_long_cells_are_no_trouble() -> None:
    parsed = cells.parse_condition(" or ".join(f"P{i} (x)" for i in range(3000)))
    assert isinstance(parsed, x.AnyOf)
    assert len(parsed.parts) == 3000


def test_equal_cells_are_parsed_once() -> None:
    first = cells.parse_condition("READ (cached_by_text)")
    assert cells.parse_condition("READ (cached_by_text)") is first


def test_effects() -> None:
    effects = cells.parse_effects("read + write (job) & owner")
    assert isinstance(effects, tuple)
    assert [(names(*t.names), names(*t.targets)) for t in effects] == [(["read", "write"], ["job"]), (["owner"], [])]
    assert isinstance(cells.parse_effects("ALL"), tuple)
    assert isinstance(cells.parse_effects("READ/WRITE (x)"), CellError)


@pytest.mark.slow
def test_parsing_is_linear() -> None:
    def seconds(number: int) -> float:
        begin = time.process_time()
        for i in range(number):
            cells.parse_condition(f"L{number}_{i} (x) or owner (a, b)")
        return time.process_time() - begin

    seconds(200)
    few = min(seconds(500), seconds(501))
    assert min(seconds(4000), seconds(4001)) < few * 8 * 4


WORDS = (
    *("A", "b", "x", "xx", "É_1", "A.b:c-d", "ownerx", "owner.x", "or-", "can.x", "andy", "serviceable"),
    *("and", "or", "when", "can", "owner", "member", "holds", "self", "anyone", "service admin", "service \n admin"),
    *(
        "service",
        "admin",
        "(",
        ")",
        "(a)",
        "(a, b)",
        "(owner, service)",
        ",",
        "/",
        "+",
        "&",
        "1",
        "1a",
        "?",
        ".",
        "-",
        "not",
    ),
    *('"A b"', "user.a", "=", "<=", "in", "{", "}", "-1", "true", "any privilege", "named", "or below", "\xa0"),
)
TERMS = (
    *("A/B (x)", "A + B (x, y)", "owner (a)", "owner(owner)", "member ( m )", "holds (r)", "can load (self)", "self"),
    *("service  admin", "service (admin)", "anyone", "A (x) when f", "x.y (service)", "(A (b) or B (a))", "É (é)"),
    *("user.a", "any user.a = entity.b", "user.n >= -3", 'user.c in {a, 1, true, "x y"}', "editor in user.roles"),
    *("user.a in entity.b", 'B/"C D" (x or below, any y)', "any  privilege (x)", "nobody", "named privilege (x)"),
)


GRAMMAR = Lark(
    Path(cell_grammar.__file__).with_name("expression.lark").read_text("utf-8"), start=["condition", "effects"]
)
NAMES = st.sampled_from(["A", "b", "owner", "self", "any", "service", "in", "x.y", "a.b-c:d", "É_1", "²x", "_"])
BLANKS = st.sampled_from([" ", "\n ", "\t"])


@given(from_lark(GRAMMAR, start="condition", explicit={"NAME": NAMES, "__IGNORE_0": BLANKS}))
def test_what_the_grammar_makes_is_read_as_by_the_grammar(text: str) -> None:
    assert cells.parse_condition(text) == parse_by_grammar(text, "condition")


@given(from_lark(GRAMMAR, start="effects", explicit={"NAME": NAMES, "__IGNORE_0": BLANKS}))
def test_effects_that_the_grammar_makes_are_read_as_by_the_grammar(text: str) -> None:
    assert cells.parse_effects(text) == parse_by_grammar(text, "effects")


@given(st.lists(st.sampled_from(TERMS), min_size=1, max_size=5), st.sampled_from([" and ", " or ", "\n or\n ", " & "]))
def test_a_sound_cell_is_read_as_by_the_grammar_and_without_it(terms: list[str], between: str) -> None:
    text = between.join(terms)
    with patch.object(cell_grammar, "parse_by_grammar", side_effect=AssertionError):
        parsed = cells.parse_condition.__wrapped__(text)
    assert not isinstance(parsed, CellError)
    assert parsed == parse_by_grammar(text, "condition")


@given(st.lists(st.sampled_from(WORDS), max_size=9), st.sampled_from(["", " ", "  ", "\n"]))
def test_a_cell_is_read_as_by_the_grammar(words: list[str], between: str) -> None:
    text = between.join(words)
    assert cells.parse_condition(text) == parse_by_grammar(text, "condition")
    assert cells.parse_effects(text) == parse_by_grammar(text, "effects")


EFFECTS = (
    "A",
    "A + B",
    "any privilege",
    "owner",
    "A (x)",
    "any  privilege (x, y)",
    "A + owner (any x)",
    '"A B" + C (x or below)',
    "A.b-c (own x or  below, y)",
    "READ + member",
)


@given(st.lists(st.sampled_from(EFFECTS), min_size=1, max_size=4), st.sampled_from([" and ", " & ", "\n and\t"]))
def test_effects_are_read_as_by_the_grammar(terms: list[str], between: str) -> None:
    text = between.join(terms)
    assert not isinstance(cells.parse_effects(text), CellError)
    assert cells.parse_effects(text) == parse_by_grammar(text, "effects")


def test_names_of_several_words_stand_in_quotes() -> None:
    text = '"USE CATALOG" (catalog) and READ/"ALL PRIVILEGES" (table) and "a b" in user.roles'
    parsed = cells.parse_condition(text)
    assert isinstance(parsed, x.AllOf)
    first, second, third = parsed.parts
    assert isinstance(first, x.PrivilegeTerm)
    assert isinstance(second, x.PrivilegeTerm)
    assert isinstance(third, x.Comparison)
    assert [name.text for name in (*first.privileges, *second.privileges)] == ["USE CATALOG", "READ", "ALL PRIVILEGES"]
    assert text[first.privileges[0].start : first.privileges[0].end] == '"USE CATALOG"'


def test_a_name_of_several_words_without_quotes_is_an_error_that_says_so() -> None:
    error = cells.parse_condition("USE CATALOG (catalog)")
    assert isinstance(error, CellError)
    assert error.expected[-1] == "quotes around a name of several words"


@pytest.mark.parametrize("hidden", ["\u3164", "\u115f", "\u1160", "\uffa0", "\u200b", "\ufe0f"])
@pytest.mark.parametrize(
    "cell", ["READ (table) when force?", "READ? (table)", "READ (table?)", "owner? (table)", 'user.a? = "b"']
)
def test_a_character_that_nobody_sees_is_an_error_in_any_word(hidden: str, cell: str) -> None:
    parsed = cells.parse_condition(cell.replace("?", hidden))
    assert isinstance(parsed, CellError)
    assert parsed.start == cell.index("?")
    assert "which nobody sees" in parsed.message
