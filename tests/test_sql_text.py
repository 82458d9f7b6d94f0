"""SQL texts with placeholders: whatever a value is, it is one literal, and the rest of the text means what it meant."""

from __future__ import annotations

import random
import sqlite3
from base64 import b64encode
from collections.abc import Callable, Mapping

import duckdb
import pytest
import sqlglot
from pyspark.sql import SparkSession
from sqlglot import exp
from sqlglot.errors import SqlglotError

from privtab.base.names import unusable_character
from privtab.base.sql_text import DIALECTS, Placeholder, TextError, identifier, literal, read, written

HOSTILE = (
    "'",
    '"',
    "`",
    "\\",
    "''",
    "\\'",
    ";",
    "--",
    "/*",
    "*/",
    "#",
    "$$",
    "{",
    "}",
    "%",
    "\u00e9",
    "\u2019",
    "\U0001f600",
    " ",
    "x",
)
WORDS = (
    "'; DROP TABLE t; --",
    "' OR '1'='1",
    "\\' OR 1=1 #",
    "E'\\''",
    "${user}",
    "{{user}}",
    "a" * 10_000,
    "NULL",
    "x\u202ey",
)
TEXTS = (
    "manager = {user}",
    "a IN (1, 2) AND {user} = b OR c LIKE 'of {{%' || {user}",
    "(SELECT max(v) FROM acl WHERE acl.who = {user} AND acl.id = t.id) >= 3",
)
PIECES = (*"'\"`\\()[]{}$#;-/*, =ax", "''", '""', "--", "/*", "*/", "$$", "$q$", "E'", "r'", "'''", "{{", "}}", " = ", " || ", "{user}", "{user}", " {user} ")  # fmt: skip


def hostile(rng: random.Random) -> str:
    """A name that a user could have."""
    return rng.choice(WORDS) if rng.random() < 0.1 else "".join(rng.choices(HOSTILE, k=rng.randint(1, 8)))


def rendered(text: str, dialect: str, value: str) -> str | None:
    parts = read(text, dialect)
    assert not isinstance(parts, TextError), parts
    document = [{"word": part.words} if isinstance(part, Placeholder) else part for part in parts]
    return written(document, lambda _: literal(value, dialect))


def tree(sql: str, dialect: str, value: str) -> exp.Expression | None:
    """The text as SQLGlot reads it, with a mark in the place of each literal that is the value; None if it is no expression."""
    try:
        found = sqlglot.parse_one(sql, read=dialect, into=exp.Condition)
    except (SqlglotError, ValueError):
        return None
    literals = exp.Literal.string(value), exp.Literal.string(b64encode(value.encode()).decode())
    return found.transform(lambda node: exp.Literal.string("\ue000") if node in literals else node)


MANY = pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.long)])


@MANY
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_value_is_one_literal(dialect: str, count: int) -> None:
    rng = random.Random(f"values {dialect}")
    plain = {text: tree(str(rendered(text, dialect, "\ue001")), dialect, "\ue001") for text in TEXTS}
    for _ in range(count // len(TEXTS)):
        value = hostile(rng).rstrip(" ")  # which MySQL refuses, since its texts are padded
        for text, expected in plain.items():
            assert expected is not None
            assert tree(str(rendered(text, dialect, value)), dialect, value) == expected, value


@MANY
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_text_in_which_a_value_could_be_more_than_a_literal_is_refused(dialect: str, count: int) -> None:
    """Texts of random pieces: those that are taken read the same with any value, by SQLGlot's own reading of quotes and comments."""
    rng = random.Random(f"texts {dialect}")
    taken = 0
    for _ in range(count):
        text = "".join(rng.choices(PIECES, k=rng.randint(1, 9)))
        if "{user}" not in text or isinstance(read(text, dialect), TextError):
            continue
        expected = tree(str(rendered(text, dialect, "\ue001")), dialect, "\ue001")
        for value in ("' OR 1=1 --", "\\", "\\' OR 1=1 --", '" OR 1=1 --', "*/ x /*", "a'b"):
            assert tree(str(rendered(text, dialect, value)), dialect, value) == expected, text
        taken += expected is not None
    assert taken > count / 500


def test_databases_read_the_value_back() -> None:
    rng = random.Random(5)
    lite, duck = sqlite3.connect(":memory:"), duckdb.connect()
    run: Mapping[str, Callable[[str], object]] = {
        "sqlite": lambda sql: lite.execute(sql).fetchall(),
        "duckdb": lambda sql: duck.execute(sql).fetchall(),
    }
    values = sorted({hostile(rng) for _ in range(10_000)})
    assert len(values) > 7_000
    for dialect, query in run.items():
        for start in range(0, len(values), 200):
            some = values[start : start + 200]
            assert query("SELECT " + ", ".join(str(literal(value, dialect)) for value in some)) == [tuple(some)]
        names = [value for value in values[:2_000] if identifier(value, dialect)]
        for name in names:
            quoted = identifier(name, dialect)
            assert query(f"SELECT {quoted} FROM (SELECT 1 AS {quoted}) t") == [(1,)]  # noqa: S608  (what is tested)


@pytest.mark.slow
def test_spark_puts_nothing_in_the_place_of_a_value(spark: SparkSession) -> None:
    """It replaces `${…}` by what it is configured with, in quotes and before it parses."""
    spark.conf.set("spark.sql.mine", "x' OR 'a' = 'a")
    for value in ("${spark.sql.mine}", "$${spark.sql.mine}", "\\${spark.sql.mine}", "$"):
        text = str(literal(value, "spark"))
        assert spark.sql(f"SELECT {text}").collect() == [(value,)]
        assert spark.range(1).where(f"'ann' = {text}").count() == 0
    for dialect in DIALECTS:
        assert identifier("a$b", dialect)
        assert identifier("a${spark.sql.mine}", dialect) is None


def test_what_no_name_can_have_is_no_value() -> None:
    for text in ("a\nb", "a\x00", "\u2028", "\ud800"):
        assert unusable_character(text)
        assert literal(text, "trino") is None
        assert identifier(text, "trino") is None
        assert literal(["a", text], "trino") is None
    assert literal(None, "trino") is None
    assert literal(1.5, "trino") is None
    assert literal(float("inf"), "trino") is None
    assert (literal(5.0, "trino"), literal(-5.0, "trino"), literal(True, "trino")) == ("5", "(-5)", "TRUE")
    assert written(["a = ", {"word": "user"}], lambda _: None) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = '{user}'", "`{user}` stands in quotes"),
        ("a = E{user}", "`{user}` touches `E`"),
        ("a = {user}b", "`{user}` touches `b`"),
        ("{user}b = a", "`{user}` touches `b`"),
        ("a = 'b'{user}", "`{user}` touches `'`"),
        ("a = b\x07", "an expression has no control characters"),
        ("a = {user}'b'", "`{user}` touches `'`"),
        ("a = E'b'\n{user}", "`{user}` follows quoted text"),
        ("a = 1; DROP TABLE t", "one expression has no `;`"),
        ("a = 1 -- {user}", "`--` begins a comment"),
        ("a = 1 /* x */", "`/*` begins a comment"),
        ("a = 'it\\'s'", "dialects disagree about where a text with `\\'` ends"),
        ("a = '''b'''", "dialects disagree about where a text with `'''` ends"),
        ("a = $$b$$", "`$` quotes in some dialects"),
        ("a = 'b", "the quoted text does not end"),
        ("a) OR (b", "no parenthesis is open here"),
        ("(a", "the parenthesis does not end"),
        ("a = {user", "a placeholder does not end"),
        ("{{ {user} }}", "braces stand in quotes only"),
        ("a = user}", "no placeholder begins here"),
        ("", "the text is empty"),
    ],
)
def test_a_refused_text_says_why(text: str, message: str) -> None:
    found = read(text, "trino")
    assert isinstance(found, TextError)
    assert found.message == message


def test_signs_that_quote_in_one_dialect_alone() -> None:
    assert isinstance(read("[a'] = 'x {user} y' || [b']", "sqlite"), TextError)
    assert read("a[1] = {user}", "postgres") == ("a[1] = ", Placeholder("user", 7, 13))
    assert isinstance(read("a ` ' ` {user} ` ' `", "postgres"), TextError)
    assert read("`a` = {user}", "spark") == ("`a` = ", Placeholder("user", 6, 12))
