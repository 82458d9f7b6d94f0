"""Sentences that change a store: `grant SELECT (table:l/web/t) to user:ben`, in the words of the policy language's effects."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from privtab.base import UsageError, WrongTime, hint, parse_moment
from privtab_analysis.commands._ask import entity, user_name

FORMS = (
    "grant PRIVILEGE (ENTITY) to PRINCIPAL [since TIME] [until TIME]",
    "deny PRIVILEGE (ENTITY) to PRINCIPAL [since TIME] [until TIME]",
    "revoke PRIVILEGE (ENTITY) from PRINCIPAL",
    "revoke deny PRIVILEGE (ENTITY) from PRINCIPAL",
    "assign ROLE to PRINCIPAL [for ENTITY] [since TIME] [until TIME]",
    "unassign ROLE from PRINCIPAL [for ENTITY]",
    "make PRINCIPAL owner of ENTITY",
    "add ROWS",
    "remove ROWS",
    "undo CHANGE",
    "about ENTITY",
    "perform OPERATION on ENTITY [creating ENTITY]",
    "delete ENTITY [by OPERATION]",
)
"""Every form of a sentence: words in lower case stand for themselves, what is in brackets may be left out, several privileges have `+` between them."""
_TOKEN = re.compile(r'"(?P<quoted>[^"]*)"|[()]|[^\s()"]+')
_NOT_BARE = re.compile(r"['`\u2018-\u201f].*|.*[,;]")
_STEPS = re.compile(r"\[[^]]*\]|[()]|[A-Za-z]+")


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence: its form, and what stands in it by the form's words, or by the word before one that may be left out."""

    form: str
    given: Mapping[str, Any]

    @property
    def verb(self) -> str:
        """The first word."""
        return self.form.split()[0]


class _Token(NamedTuple):
    text: str
    column: int
    quoted: bool


class _WrongSentence(Exception):
    """A column, counted from 1, and what is wrong there."""


def read_sentences(texts: Sequence[str]) -> list[Sentence]:
    """Read sentences. Raises UsageError with the fault of each one that has a fault.

    >>> read_sentences(["revoke deny SELECT (table:l/t) from ben"])[0].given
    {'PRIVILEGE': ('SELECT',), 'ENTITY': 'table:l/t', 'PRINCIPAL': 'user:ben'}
    """
    found, faults = [], []
    for number, text in enumerate(texts, start=1):
        try:
            found.append(_read(text))
        except _WrongSentence as error:
            faults.append("sentence {}, column {}: {}".format(number, *error.args))
    if faults:
        raise UsageError("\n".join(faults))
    return found


def principal(text: str) -> str:
    """A principal as rows have it; a bare name is a user's. Raises UsageError."""
    kind, colon, name = text.partition(":")
    if not text or (colon and kind in ("user", "group", "role") and not name):
        raise UsageError(f"`{text}` has no name")
    return text if colon and kind in ("user", "group", "role") else f"user:{user_name(text)}"


def _read(text: str) -> Sentence:
    verb, _, rest = text.strip().partition(" ")
    if verb in ("add", "remove") and rest.strip():
        return Sentence(f"{verb} ROWS", {"ROWS": rest.strip()})  # YAML, or a path
    tokens = list(_tokens(text))
    words = [token.text for token in tokens if not token.quoted]
    forms = [form for form in FORMS if words and form.split()[0] == words[0] and not tokens[0].quoted]
    if not forms:
        known = list(dict.fromkeys(form.split()[0] for form in FORMS))
        beginning = words[0] if words else ""
        raise _WrongSentence(1, f"a sentence begins with {', '.join(known)}{hint(beginning, known)}")
    form = forms[-1] if words[1:2] == ["deny"] and words[2:3] not in (["("], ["+"]) else forms[0]
    return Sentence(form, _Reader(text, tokens, form).read())


def _tokens(text: str) -> Iterator[_Token]:
    place = 0
    for found in _TOKEN.finditer(text):
        if text[place : found.start()].strip():
            break
        yield _Token(
            found[0] if found["quoted"] is None else found["quoted"], found.start() + 1, found["quoted"] is not None
        )
        place = found.end()
    if text[place:].strip():
        raise _WrongSentence(text.index('"', place) + 1, "the quotation mark is not closed")


class _Reader:
    """Reads the tokens of a sentence as its form says."""

    def __init__(self, text: str, tokens: Sequence[_Token], form: str) -> None:
        self._tokens = [*tokens, _Token("", len(text) + 1, quoted=True)]
        self._form = form
        self._at = 0

    def read(self) -> dict[str, Any]:
        given: dict[str, Any] = {}
        steps = _STEPS.findall(self._form)
        for step in (step for step in steps if not step.startswith("[")):
            if step.isupper():
                given[step] = self._value(step)
            else:
                self._word(step)
        optional = dict(step.strip("[]").split() for step in steps if step.startswith("["))
        while self._at < len(self._tokens) - 1:
            token = self._tokens[self._at]
            if token.quoted or token.text not in optional:
                raise self._wrong(token, f"`{token.text}` is not expected")
            self._at += 1
            given[token.text] = self._value(optional.pop(token.text))
        return given

    def _word(self, word: str) -> None:
        token = self._next()
        if token.quoted or token.text != word:
            raise self._wrong(token, f"`{word}` is expected")

    def _next(self) -> _Token:
        token = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def _value(self, slot: str) -> Any:
        token = self._next()
        if not token.text or (not token.quoted and token.text in "()"):
            raise self._wrong(token, f"{slot} is expected")
        if _NOT_BARE.fullmatch(token.text) and not token.quoted:
            several = "; several privileges have `+` between them" if slot == "PRIVILEGE" else ""
            why = "a name with other quotation marks, or with `,` or `;` at its end, stands in double quotes"
            raise _WrongSentence(token.column, f"`{token.text}`: {why}{several}")
        try:
            value = _VALUES.get(slot, str)(token.text)
        except WrongTime as error:
            raise _WrongSentence(token.column, f"`{token.text}` {error}; {error.help}") from None
        except UsageError as error:
            raise _WrongSentence(token.column, str(error)) from None
        if slot != "PRIVILEGE":
            return value
        plus = self._tokens[self._at]
        if plus.quoted or plus.text != "+":
            return (value,)
        self._at += 1
        return (value, *self._value(slot))

    def _wrong(self, token: _Token, message: str) -> _WrongSentence:
        return _WrongSentence(token.column, f"{message}: write `{self._form}`")


def _time(text: str) -> str:
    parse_moment(text)
    return text


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise UsageError(f"`{text}` is not the number of a change")
    return int(text)


_VALUES: Mapping[str, Callable[[str], Any]] = {
    "ENTITY": lambda text: str(entity(text)),
    "PRINCIPAL": principal,
    "ROLE": lambda text: text.removeprefix("role:"),
    "TIME": _time,
    "CHANGE": _number,
}
"""What reads the words of a form, and raises UsageError or WrongTime."""
