"""SQL texts of row filters and column masks: their placeholders, and how values are written into them. Standard library only.

A text is one expression. Values stand in the place of whole tokens, as literals of the dialect, so that no value changes what the
rest of the text means; a text in which dialects would disagree about where a quoted part ends is refused.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

from privtab.base.errors import InvalidRequest
from privtab.base.lazy import pattern
from privtab.base.names import unencoded_name, unusable_character
from privtab.base.records import dataclass

FilterKind: TypeAlias = Literal["row_filter", "column_mask"]
FILTER_KINDS: tuple[FilterKind, ...] = ("row_filter", "column_mask")
"""What can be filtered: the rows of a table, `"row_filter"`, or the values of a column, `"column_mask"`."""
DENIAL: Mapping[FilterKind, str] = {"row_filter": "FALSE", "column_mask": "NULL"}
"""What stands for a filter or a mask where none applies."""
WORDS = ("user", "groups", "column")
"""Placeholders that are no attributes: the name of the caller, the names of their groups, and in masks the column itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quoting:
    """The quotes of a dialect."""

    identifier: str = '"'
    """What stands around names."""
    escapes: tuple[tuple[str, str], ...] = (("'", "''"),)
    """What characters of a text become in its literal, in this order."""
    text: tuple[str, str] = ("'", "'")
    """What stands around a text, with a collation where texts otherwise compare without case and accents."""
    base64: bool = False
    """Whether a text is written as the base64 of its UTF-8, not with escapes: otherwise the connection says where a literal ends."""
    pads: bool = False
    """Whether a text equals the same with blanks at its end: such values are refused, since two names must not be one."""
    refused: str = "`"
    """Further signs that begin or end something elsewhere."""


_DOUBLED = (("\\", "\\\\"), ("'", "''"))
_BACKSLASHES = (("\\", "\\\\"), ("'", "\\'"))
DIALECTS: Mapping[str, Quoting] = {
    "postgres": Quoting(),
    "mysql": Quoting(
        identifier="`",
        refused="",
        base64=True,
        text=("(CONVERT(FROM_BASE64('", "') USING utf8mb4) COLLATE utf8mb4_bin)"),
        pads=True,
    ),
    "sqlite": Quoting(refused="`["),
    "duckdb": Quoting(),
    # Spark puts what it is configured with in the place of `${…}`, in quotes too, before it looks where they end.
    "spark": Quoting(identifier="`", escapes=(*_BACKSLASHES, ("$", r"\u0024")), refused=""),
    "trino": Quoting(),
    "snowflake": Quoting(escapes=_DOUBLED),
    "bigquery": Quoting(identifier="`", escapes=_BACKSLASHES, refused=""),
}
"""By the names that SQLGlot gives the dialects."""
NO_IDENTIFIER = ("\\", "${")
"""What no quoted name may have, beside its quote: nothing escapes it there."""


@dataclass(frozen=True, slots=True)
class FilterWord:
    """A placeholder that is one of WORDS.

    >>> FilterWord("user").text
    'user'
    """

    text: str


def operation_of(kind: FilterKind, name: str) -> str:
    """The operation whose rule decides a filter; the names of the policy's own operations have no dot.

    >>> operation_of("row_filter", "eu_only")
    'row_filter.eu_only'
    """
    return f"{kind}.{name}"


@dataclass(frozen=True, slots=True)
class AppliedFilter:
    """The row filter or column mask that applies to a caller, and its SQL with the caller's values.

    >>> denial("row_filter").sql
    'FALSE'
    """

    name: str | None
    """None: no filter applies, or the mode of the client lets everything pass."""
    sql: str
    denied: bool = False
    """Whether nothing applies, so that the SQL shows nothing: `FALSE`, or `NULL` in the place of a column."""


def denial(kind: FilterKind) -> AppliedFilter:
    """The answer where no filter applies."""
    return AppliedFilter(name=None, sql=DENIAL[kind], denied=True)


# --- reading ---


@dataclass(frozen=True, slots=True)
class Placeholder:
    """The texts between braces, and their places, braces included."""

    words: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class TextError:
    """Why a text is refused, and where."""

    start: int
    end: int
    message: str
    advice: str


_TOKEN = pattern(
    r"""(?P<quoted>'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`)
    |(?P<brace>\{\{|\}\})
    |\{(?P<placeholder>[^{}]*)\}
    |(?P<refused>--|/\*|\*/|//|[#;$\\{}'"`\[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufffe\uffff])
    |(?P<parenthesis>[()])
    |.""",
    re.VERBOSE | re.DOTALL,
)
_BRACES = pattern(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_AMBIGUOUS = pattern(r"'''|\"\"\"|\\['\"`]")
_BEFORE = frozenset(" \t\r\n(,=<>|+-*/%")
_AFTER = frozenset(" \t\r\n),=<>!|+-*/%:")
_COMMENT = "write what there is to say in `note`"
_REFUSED = {
    ";": ("one expression has no `;`", "write one expression"),
    "$": ("`$` quotes in some dialects", "write quoted text between single quotes"),
    "[": ("`[` quotes names in this dialect", "write names between double quotes"),
    "`": ("a backtick quotes in other dialects", "write names between double quotes"),
    "\\": ("a backslash has no meaning outside of quotes", "leave it out"),
    "'": ("the quoted text does not end", "write `''` for a single quote in it"),
    '"': ("the quoted name does not end", 'write `""` for a double quote in it'),
    "{": ("a placeholder does not end", "write `}` behind it"),
    "}": ("no placeholder begins here", "write `{` before it"),
}


def read(text: str, dialect: str) -> tuple[str | Placeholder, ...] | TextError:
    """The parts of a text, or why it is refused.

    >>> read("manager = {user}", "trino")
    ('manager = ', Placeholder(words='user', start=10, end=16))
    """
    found = _AMBIGUOUS.search(text)
    if found:
        message = f"dialects disagree about where a text with `{found[0]}` ends"
        return TextError(found.start(), found.end(), message, "write it without, as `CHR(…)` or in two parts")
    if not text.strip():
        return TextError(0, len(text), "the text is empty", "write an expression, such as `TRUE`")
    parts: list[str | Placeholder] = []
    open_at: list[int] = []
    for token in _TOKEN.finditer(text):
        start, end, sign = token.start(), token.end(), token[0]
        wrong = None
        if token["placeholder"] is not None:
            wrong = _misplaced(text, start, end)
            parts.append(Placeholder(" ".join(token["placeholder"].split()), start, end))
            parts.append("")
            sign = ""
        elif token["brace"]:
            advice = "write a function in its place, such as `struct_pack(…)`"
            wrong = TextError(start, end, "braces stand in quotes only", advice)
        elif token["quoted"]:
            wrong = _wrong_quoted(sign, start, dialect)
            sign = sign.replace("{{", "{").replace("}}", "}")
        elif token["refused"] and (sign != "[" or "[" in DIALECTS[dialect].refused):
            message, advice = _REFUSED.get(sign, (f"`{sign}` begins a comment", _COMMENT))
            if not sign.isprintable():
                message, advice = "an expression has no control characters", "leave it out"
            wrong = TextError(start, end, message, advice)
        elif sign == "(":
            open_at.append(start)
        elif sign == ")" and not open_at:
            wrong = TextError(start, end, "no parenthesis is open here", "leave it out")
        elif sign == ")":
            open_at.pop()
        if wrong is not None:
            return wrong
        parts = [*parts[:-1], parts[-1] + sign] if parts and isinstance(parts[-1], str) else [*parts, sign]
    if open_at:
        return TextError(open_at[-1], open_at[-1] + 1, "the parenthesis does not end", "write `)` behind it")
    return tuple(part for part in parts if part)


def _misplaced(text: str, start: int, end: int) -> TextError | None:
    before, after = text[start - 1 : start], text[end : end + 1]
    if (not before or before in _BEFORE) and (not after or after in _AFTER):
        if not text[:start].rstrip().endswith("'"):
            return None
        # PostgreSQL joins texts on two lines to one, with the escapes of the first: of `E'…'` a backslash.
        advice = "write an operator between them, such as `||`: dialects join texts that follow each other"
        return TextError(start, end, f"`{text[start:end]}` follows quoted text", advice)
    advice = "a value stands on its own: put blanks around it, and `||` between it and other text"
    touched = before if before and before not in _BEFORE else after
    return TextError(start, end, f"`{text[start:end]}` touches `{touched}`", advice)


def _wrong_quoted(sign: str, start: int, dialect: str) -> TextError | None:
    if sign[0] in DIALECTS[dialect].refused:
        return TextError(start, start + 1, *_REFUSED[sign[0]])
    for brace in _BRACES.finditer(sign):
        if brace[0] not in ("{{", "}}"):
            message = f"`{brace[0]}` stands in quotes"
            advice = "leave the quotes off: a value is written as a literal; for a brace, write `{{` or `}}`"
            return TextError(start + brace.start(), start + brace.end(), message, advice)
    return None


# --- writing ---


def literal(value: object, dialect: str) -> str | None:
    """A value as a literal; of a list, a list of literals in parentheses. None if there is no value or if it is none.

    >>> literal("O'Hara", "trino"), literal(["b", "a"], "trino"), literal(-5, "trino"), literal([], "trino")
    ("'O''Hara'", "('a', 'b')", '(-5)', '(NULL)')
    """
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return str(value) if value >= 0 else f"({value})"
        case float() if value.is_integer():
            return literal(int(value), dialect)
        case str() if unusable_character(value) is None and not (DIALECTS[dialect].pads and value.endswith(" ")):
            quoting = DIALECTS[dialect]
            if quoting.base64:
                return b64encode(value.encode()).decode().join(quoting.text)
            for sign, escaped in quoting.escapes:
                value = value.replace(sign, escaped)
            return value.join(quoting.text)
        case Sequence() if not isinstance(value, str):
            listed = [literal(item, dialect) for item in sorted(set(value))]
            return None if None in listed else f"({', '.join(map(str, listed)) or 'NULL'})"
        case _:
            return None


def identifier(name: str, dialect: str) -> str | None:
    """A name as a quoted identifier; None for names with signs that end it in some dialect, or are replaced in one."""
    quote = DIALECTS[dialect].identifier
    sound = name and unusable_character(name) is None and not any(sign in name for sign in (quote, *NO_IDENTIFIER))
    return f"{quote}{name}{quote}" if sound else None


def shows_all(kind: FilterKind, name: str, dialect: str) -> AppliedFilter:
    """The text that shows every row, or a column as it is; `name`: the last name on its path. Raises InvalidRequest for a name that no column has."""
    text = identifier(unencoded_name(name), dialect) if kind == "column_mask" else "TRUE"
    if text is None:
        raise InvalidRequest(f"`{name}` is not the name of a column")
    return AppliedFilter(None, text)


def written(parts: Iterable[object], value: Callable[[Mapping[str, str]], str | None]) -> str | None:
    """The text of parts as the program's JSON has them, with the written value of each placeholder; None if one has none."""
    pieces = [value(part) if isinstance(part, Mapping) else str(part) for part in parts]
    return None if None in pieces else "".join(map(str, pieces))
