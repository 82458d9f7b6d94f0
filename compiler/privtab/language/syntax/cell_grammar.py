"""Read cells by the grammar's own tables, with a plain account of the first fault in one that the grammar does not allow."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, cast

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from privtab.base.names import invisible
from privtab.language.syntax.expression import (
    TERM,
    TOKENS,
    AllOf,
    AnyOf,
    CanDo,
    CellError,
    Comparison,
    Constant,
    EffectTerm,
    Expression,
    Name,
    PrivilegeTerm,
    Related,
    RelatedKind,
    Required,
    Word,
    WordKind,
    too_deep,
)


def cell_error(text: str, error: UnexpectedInput) -> CellError:
    """The parser's error, as an error of the cell."""
    position: int = getattr(error, "pos_in_stream", None) or 0
    match error:
        case UnexpectedToken(token=token) if token.type != "$END":
            position = token.start_pos or 0
            end, message = position + max(1, len(token)), f"unexpected `{token}`"
            expected = set(error.accepts) or {"$END"}  # the input is complete: nothing can follow
            if token.type == "NAME" and {"SLASH", "PLUS"} <= expected:
                expected.add("QUOTES")
        case UnexpectedToken():
            position = end = len(text.rstrip())
            message = "the cell ends too early" if text.strip() else "the cell is empty"
            expected = set(error.accepts)
        case UnexpectedCharacters():
            end, message = position + 1, f"unexpected character `{text[position : position + 1]}`"
            expected = set(error.allowed)
            if {"NAME", "LPAR"} <= expected:
                expected |= TERM  # keywords that look like names are not listed separately
        case _:
            end, message, expected = position + 1, "the cell does not parse", set()
    return CellError(position, end, message, _plain_words(expected))


def _plain_words(expected: set[str]) -> tuple[str, ...]:
    words: list[str] = []
    if expected - {"OR_BELOW"} == {"NAME", "RPAR", "COMMA"}:
        expected = expected - {"NAME"}  # the first of two names says a level; what is missing is the end of the target
    if expected >= TERM:
        words.append("a condition such as `READ (table)`, `owner (…)`, `can OP (…)`")
        expected = expected - TERM
    return (*words, *(TOKENS[name] for name in TOKENS if name in expected))


_NAMES = frozenset({"NAME", "TEXT", "ANY_PRIVILEGE", "NAMED_PRIVILEGE"})


def _name(token: Token) -> Name:
    start = token.start_pos or 0
    return Name(token[1:-1] if token.type == "TEXT" else " ".join(token.split()), start, start + len(token))


def _constant(token: Token) -> Constant:
    word = _name(token)
    match token.type:
        case "INTEGER":
            return Constant(int(token), word)
        case "TEXT":
            return Constant(word.text, word)
        case _:
            return Constant({"true": True, "false": False}.get(str(token), str(token)), word)


class _Tree(Transformer[Token, Expression]):
    def required(self, children: list[Any]) -> Expression:
        body, when, flag = children
        return Required(body, _name(flag), _name(when))

    def any_of(self, children: list[Any]) -> Expression:
        return AnyOf(tuple(children))

    def all_of(self, children: list[Any]) -> Expression:
        return AllOf(tuple(children))

    def targets(self, children: list[Any]) -> tuple[Any, ...]:
        return tuple(children)

    def below(self, children: list[Token | None]) -> Name:
        return replace(self.level(children[:2]), below=True)

    def level(self, children: list[Token | None]) -> Name:
        first, second = children
        assert first is not None
        return _name(first) if second is None else replace(_name(second), selector=_name(first))

    def held(self, children: list[Any]) -> Expression:
        *tokens, targets = children
        names = tuple(_name(t) for t in tokens if t.type in _NAMES)
        return PrivilegeTerm(names, any(t.type == "PLUS" for t in tokens), targets)

    def related(self, children: list[Any]) -> Expression:
        return Related(cast("RelatedKind", str(children[0])), children[1], _name(children[0]))

    def can(self, children: list[Any]) -> Expression:
        return CanDo(_name(children[1]), children[2], _name(children[0]))

    def word(self, children: list[Any]) -> Expression:
        return Word(cast("WordKind", children[0].type.lower()), _name(children[0]))

    def attribute(self, children: list[Token | None]) -> Name:
        return self.level(children if children[0] is not None else [children[1], None])

    def true_(self, children: list[Any]) -> Expression:
        word = children[0]
        return Comparison(word, "=", (Constant(value=True, word=word),))

    def compared(self, children: list[Any]) -> Expression:
        left, relation, *operands = children
        if isinstance(operands[0], Name):
            return Comparison(left, str(relation), operands[0])
        return Comparison(left, str(relation), tuple(map(_constant, operands)))

    def contained(self, children: list[Any]) -> Expression:
        word, _, attribute = children
        return Comparison(attribute, "contains", (_constant(word),))

    def effect(self, children: list[Any]) -> EffectTerm:
        *names, targets = children
        return EffectTerm(tuple(_name(t) for t in names if t.type in _NAMES), targets or ())

    effects = targets


@cache
def _parser() -> Lark:
    grammar = Path(__file__).with_name("expression.lark").read_text("utf-8")
    return Lark(
        grammar,
        parser="lalr",
        start=["condition", "effects"],
        transformer=_Tree(),
        maybe_placeholders=True,
        propagate_positions=False,
    )


def parse_by_grammar(text: str, start: str) -> Any:
    """The tree of a cell, or the error in it: `parse_by_grammar("READ (table)", "condition")`."""
    if (position := too_deep(text)) is not None:
        return CellError(position, position + 1, "parentheses nest too deeply here", ())
    if (hidden := invisible(text)) is not None:  # also in quotes, where it would make another name or value
        position = next(index for index, character in enumerate(text) if invisible(character))
        return CellError(position, position + 1, f"{hidden}, which nobody sees or tells from a blank", ())
    try:
        return _parser().parse(text, start=start)
    except UnexpectedInput as error:
        return cell_error(text, error)
