"""Parse the text of cells to conditions or effects. Offsets are relative to the cell, so equal cells share one tree.

Cells that differ only in names are parsed once: large tables have thousands of cells and a few dozen shapes. A fault in a cell
that does not parse is explained in plain words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, assert_never, cast

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from privtab.base.lazy import pattern
from privtab.base.names import invisible
from privtab.base.nodes import dataclass


@dataclass(frozen=True, slots=True)
class CellError:
    """A cell that does not parse: the position and the error, and what is expected there in plain words."""

    start: int
    end: int
    message: str
    expected: tuple[str, ...]


_WORDS = {
    "NAME": "a name",
    "TEXT": "a name in quotes",
    "LPAR": "`(`",
    "RPAR": "`)`",
    "COMMA": "`,`",
    "SLASH": "`/`",
    "PLUS": "`+`",
    "_AND": "`and`",
    "_OR": "`or`",
    "OR_BELOW": "`or below`",
    "WHEN": "`when`",
    "CAN": "`can`",
    "OWNER": "`owner`",
    "MEMBER": "`member`",
    "HOLDS": "`holds`",
    "RELATION": "a relation such as `=`",
    "SELF": "`self`",
    "ANYONE": "`anyone`",
    "NOBODY": "`nobody`",
    "SERVICE_ADMIN": "`service admin`",
    "QUOTES": "quotes around a name of several words",
    "$END": "the end of the cell",
}


_TERM = frozenset(
    {"NAME", "TEXT", "LPAR", "CAN", "OWNER", "MEMBER", "HOLDS", "SELF", "ANYONE", "NOBODY", "SERVICE_ADMIN"}
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
                expected |= _TERM  # keywords that look like names are not listed separately
        case _:
            end, message, expected = position + 1, "the cell does not parse", set()
    return CellError(position, end, message, _plain_words(expected))


def _plain_words(expected: set[str]) -> tuple[str, ...]:
    words: list[str] = []
    if expected - {"OR_BELOW"} == {"NAME", "RPAR", "COMMA"}:
        expected = expected - {"NAME"}  # the first of two names says a level; what is missing is the end of the target
    if expected >= _TERM:
        words.append("a condition such as `READ (table)`, `owner (…)`, `can OP (…)`")
        expected = expected - _TERM
    return (*words, *(_WORDS[name] for name in _WORDS if name in expected))


RelatedKind: TypeAlias = Literal["owner", "member", "holds"]
WordKind: TypeAlias = Literal["self", "service_admin", "anyone", "nobody"]


@dataclass(frozen=True, slots=True)
class Name:
    """A name in a cell and its position. For a target: the word before it (`any namespace`), and whether `or below` follows."""

    text: str
    start: int
    end: int
    below: bool = False
    selector: Name | None = None


class OnTargets:
    """A term about any of its targets."""

    __slots__ = ()
    targets: tuple[Name, ...]


@dataclass(frozen=True, slots=True)
class PrivilegeTerm(OnTargets):
    """Privileges on targets: any of them (`/`), or with `every` each of them (`+`), on any of the targets."""

    privileges: tuple[Name, ...]
    every: bool
    targets: tuple[Name, ...]


@dataclass(frozen=True, slots=True)
class Related(OnTargets):
    """`owner (…)`, `member (…)` or `holds (…)`: of any of the targets."""

    kind: RelatedKind
    targets: tuple[Name, ...]
    word: Name


@dataclass(frozen=True, slots=True)
class CanDo(OnTargets):
    """`can OP (…)`: the operation's row holds for any of the targets."""

    operation: Name
    targets: tuple[Name, ...]
    word: Name


@dataclass(frozen=True, slots=True)
class Word:
    """`self`, `service admin`, `anyone` or `nobody`."""

    kind: WordKind
    word: Name


@dataclass(frozen=True, slots=True)
class AllOf:
    """Every part holds."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """At least one part holds."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Required:
    """`E when FLAG`: the body is required if the request sets the flag."""

    body: Expression
    flag: Name
    word: Name


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant in a comparison: a word or a text, `true` or `false`, or an integer."""

    value: str | int | bool
    word: Name


@dataclass(frozen=True, slots=True)
class Comparison:
    """An attribute and another, or constants: `user.department = entity.department`, `entity.class in {public, internal}`.

    `"editor" in user.roles` is `contains`, whose left side is also the attribute.
    """

    left: Name
    relation: str
    right: Name | tuple[Constant, ...]


Expression: TypeAlias = PrivilegeTerm | Related | CanDo | Word | AllOf | AnyOf | Required | Comparison


def walk_expression(expression: Expression) -> Iterator[Expression]:
    """The expression and every expression inside it, from left to right."""
    yield expression
    match expression:
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from walk_expression(part)
        case Required(body):
            yield from walk_expression(body)
        case _:
            return


@dataclass(frozen=True, slots=True)
class EffectTerm:
    """Names and the targets of an effect; without targets, the row's own entity."""

    names: tuple[Name, ...]
    targets: tuple[Name, ...]


Effects: TypeAlias = tuple[EffectTerm, ...]


class NameUse(NamedTuple):
    """A name in a condition or in effects, and what it is there."""

    kind: Literal["privilege", "operation", "target", "attribute", "owner"]
    name: Name
    of: tuple[Name, ...] = ()
    """The targets of an operation."""


_DEEP = 100
RESERVED_WORDS = frozenset({"and", "or", "when", "can", "owner", "member", "holds", "self", "anyone", "nobody"})
"""The words of conditions that cannot be names of privileges or sets: `"owner" in RESERVED_WORDS`."""
_NO_SHAPE = pattern(r"[.=<>{\"]|[(,][ \t\r\n]*service[ \t\r\n]+admin\b")
"""The characters of comparisons and of names in quotes, and two names of a target that look like one word; cells with them are parsed as they are."""
_NAMES = frozenset({"NAME", "TEXT", "ANY_PRIVILEGE", "NAMED_PRIVILEGE"})
_PARENTHESIS_OR_OR = pattern(r"[()]|\bor\b")
_BLANKS = " \t\r\n"
_ANY_WORD = pattern(
    rf"(?P<kept>service[ \t\r\n]+admin\b|(?:any|named)[ \t\r\n]+privilege(?=[ \t\r\n]*\()|or[ \t\r\n]+below(?=[ \t\r\n]*[,)])|(?:{'|'.join(sorted(RESERVED_WORDS))})(?![\w.:\-]))|[^\W\d](?:[\w.:\-]*\w)?"
)


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
        return Word(cast("WordKind", "_".join(children[0].split())), _name(children[0]))

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
    grammar = Path(__file__).with_suffix(".lark").read_text("utf-8")
    return Lark(
        grammar,
        parser="lalr",
        start=["condition", "effects"],
        transformer=_Tree(),
        maybe_placeholders=True,
        propagate_positions=False,
    )


@lru_cache(maxsize=1 << 16)
def parse_condition(text: str) -> Expression | CellError:
    """The condition of a cell, or the error in it.

    >>> type(parse_condition("READ (table) or owner (table)")).__name__
    'AnyOf'
    """
    if _NO_SHAPE.search(text) or invisible(text) is not None:  # a character that nobody sees may be part of a word
        return cast("Expression | CellError", _parse(text, "condition"))
    shape, words = _shape(text)
    placed: list[Expression] = []
    for start, alternative in _alternatives(shape):
        parsed = _parse_shape(alternative, "condition")
        if isinstance(parsed, CellError):
            return cast("Expression | CellError", _parse(text, "condition"))
        placed.append(_placed(parsed, words, start))
    return placed[0] if len(placed) == 1 else AnyOf(tuple(placed))


def _alternatives(shape: str) -> Iterator[tuple[int, str]]:
    """The alternatives of a shape outside parentheses and where each starts: long lists have few different ones."""
    start = depth = 0
    for match in _PARENTHESIS_OR_OR.finditer(shape):
        if match.group() != "or":
            depth += 1 if match.group() == "(" else -1
        elif not depth:
            yield _stripped(shape, start, match.start())
            start = match.end()
    yield _stripped(shape, start, len(shape))


def _stripped(shape: str, start: int, end: int) -> tuple[int, str]:
    part = shape[start:end].rstrip(_BLANKS)
    stripped = part.lstrip(_BLANKS)
    return start + len(part) - len(stripped), stripped


def _shape(text: str) -> tuple[str, dict[int, Name]]:
    """The text with every name replaced by the same one, and the original words by their position in that text."""
    pieces: list[str] = []
    words: dict[int, Name] = {}
    copied_to = length = 0
    for match in _ANY_WORD.finditer(text):
        start, end = match.span()
        word = match.group()
        replacement = word if match["kept"] else "x"
        length += start - copied_to
        words[length] = Name(" ".join(word.split()), start, end)
        pieces += (text[copied_to:start], replacement)
        copied_to, length = end, length + len(replacement)
    pieces.append(text[copied_to:])
    return "".join(pieces), words


def _names(names: tuple[Name, ...], words: Mapping[int, Name], start: int) -> tuple[Name, ...]:
    return tuple([_word(name, words, start) for name in names])


def _word(name: Name, words: Mapping[int, Name], start: int) -> Name:
    word, selector = words[start + name.start], name.selector and words[start + name.selector.start]
    return Name(word.text, word.start, word.end, name.below, selector) if selector or name.below else word


def _placed(shape: Expression, words: Mapping[int, Name], start: int) -> Expression:
    """The tree of an alternative that starts there, filled with the words of a cell."""
    match shape:
        case PrivilegeTerm(privileges, every, targets):
            return PrivilegeTerm(_names(privileges, words, start), every, _names(targets, words, start))
        case Related(kind, targets, word):
            return Related(kind, _names(targets, words, start), words[start + word.start])
        case CanDo(operation, targets, word):
            return CanDo(words[start + operation.start], _names(targets, words, start), words[start + word.start])
        case Word(kind, word):
            return Word(kind, words[start + word.start])
        case AllOf(parts):
            return AllOf(tuple([_placed(part, words, start) for part in parts]))
        case AnyOf(parts):
            return AnyOf(tuple([_placed(part, words, start) for part in parts]))
        case Required(body, flag, word):
            return Required(_placed(body, words, start), words[start + flag.start], words[start + word.start])
        case Comparison():
            raise AssertionError("cells with comparisons have no shape")
        case _:
            assert_never(shape)


@lru_cache(maxsize=1 << 12)
def parse_effects(text: str) -> Effects | CellError:
    """The effects of a cell, or the error in it.

    >>> [name.text for term in parse_effects("READ + WRITE (entity)") for name in term.names]
    ['READ', 'WRITE']
    """
    shape, words = _shape(text)
    parsed = None if _NO_SHAPE.search(text) or invisible(text) else _parse_shape(shape, "effects")
    if parsed is None or isinstance(parsed, CellError):
        return cast("Effects | CellError", _parse(text, "effects"))
    return tuple([EffectTerm(_names(term.names, words, 0), _names(term.targets, words, 0)) for term in parsed])


def _parse(text: str, start: str) -> Any:
    if text.count("(") > _DEEP and (position := _too_deep(text)) is not None:
        return CellError(position, position + 1, "parentheses nest too deeply here", ())
    if (hidden := invisible(text)) is not None:  # also in quotes, where it would make another name or value
        position = next(index for index, character in enumerate(text) if invisible(character))
        return CellError(position, position + 1, f"{hidden}, which nobody sees or tells from a blank", ())
    try:
        return _parser().parse(text, start=start)
    except UnexpectedInput as error:
        return cell_error(text, error)


_parse_shape = lru_cache(maxsize=1 << 12)(_parse)


def _too_deep(text: str) -> int | None:
    depth = 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth > _DEEP:
            return position
    return None


def names_in(tree: Expression | Effects) -> Iterator[NameUse]:
    """Every name in a condition or in effects, in the order of the text."""
    for part in tree if isinstance(tree, tuple) else walk_expression(tree):
        match part:
            case PrivilegeTerm(privileges=names) | EffectTerm(names=names):
                yield from (NameUse("owner" if name.text == "owner" else "privilege", name) for name in names)
            case CanDo():
                yield NameUse("operation", part.operation, part.targets)
            case Related(kind="owner"):
                yield NameUse("owner", part.word)
            case Comparison():
                yield from (NameUse("attribute", term) for term in (part.left, part.right) if isinstance(term, Name))
            case _:
                pass
        if isinstance(part, OnTargets | EffectTerm):
            yield from (NameUse("target", target) for target in part.targets)


def cell_names(text: str, kind: Literal["condition", "effects"]) -> tuple[NameUse, ...] | str:
    """The names in the text of a cell, or what is wrong with the text.

    >>> [(use.kind, use.name.text) for use in cell_names("can load (schema) and owner (table)", "condition")]
    [('operation', 'load'), ('target', 'schema'), ('owner', 'owner'), ('target', 'table')]
    >>> cell_names("READ (table", "condition")
    'the cell ends too early'
    """
    tree = parse_condition(text) if kind == "condition" else parse_effects(text)
    return tree.message if isinstance(tree, CellError) else tuple(names_in(tree))


def parse_constants(relation: str, text: str) -> tuple[str | int | bool, ...] | None:
    """The constants beside an attribute in a comparison, or None if the text has none.

    >>> parse_constants("in", "{public, internal}"), parse_constants(">=", "3"), parse_constants("=", "a b")
    (('public', 'internal'), (3,), None)
    """
    parsed = parse_condition(f"{text} in user.a" if relation == "contains" else f"user.a {relation} {text}")
    if isinstance(parsed, Comparison) and isinstance(parsed.right, tuple):
        return tuple(constant.value for constant in parsed.right)
    return None
