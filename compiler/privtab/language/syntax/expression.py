"""The trees of conditions and effects, and a parser that reads them in cells as the grammar in `expression.lark` says.

Offsets are relative to the cell. A cell with a fault is read by the grammar's own parser, which explains the fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, TypeAlias, cast

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
TOKENS = {
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
"""What the grammar's tokens are to a reader, in the order of messages: `TOKENS["LPAR"]`."""
TERM = frozenset(
    {"NAME", "TEXT", "LPAR", "CAN", "OWNER", "MEMBER", "HOLDS", "SELF", "ANYONE", "NOBODY", "SERVICE_ADMIN"}
)
"""The tokens that a condition can begin with: `"NAME" in TERM`."""
RESERVED_WORDS = frozenset({"and", "or", "when", "can", "owner", "member", "holds", "self", "anyone", "nobody"})
"""The words of conditions that cannot be names of privileges or sets: `"owner" in RESERVED_WORDS`."""
_TOKEN = pattern(r'[ \t\r\n]*([^\W\d](?:[\w.:\-]*\w)?|"[^"\n]*"|[()/+,&{}]|[<>]=?|=|-?[0-9]+)[ \t\r\n]*')
_ATTRIBUTE = pattern(r"[a-z][a-z0-9_]*\.[A-Za-z][A-Za-z0-9_]*")
_NO_NAMES = frozenset({"and", "or", "when", "can"})
_RELATED = frozenset({"owner", "member", "holds"})
_WORDS = frozenset({"self", "anyone", "nobody"})
_RELATIONS = frozenset({"=", "<", ">", "<=", ">="})


class _UnclearError(Exception):
    """The grammar's own parser is to read the cell."""


class _Cell:
    """The tokens of a cell, each with its start, and the place of the next one; a method for each rule of the grammar."""

    __slots__ = ("at", "tokens")

    def __init__(self, text: str) -> None:
        found = list(_TOKEN.finditer(text))
        if sum([match.end() - match.start() for match in found]) != len(text):
            raise _UnclearError  # a character that is in no token
        self.tokens = [(match[1], match.start(1)) for match in found]
        self.tokens += [("", 0)] * 3
        """With what no rule takes at the end, for looking ahead."""
        self.at = 0

    def next_is(self, word: str) -> bool:
        if self.tokens[self.at][0] == word:
            self.at += 1
            return True
        return False

    def need(self, word: str) -> None:
        if not self.next_is(word):
            raise _UnclearError

    def any_name(self) -> Name:
        """The next token, whatever it is."""
        text, start = self.tokens[self.at]
        self.at += 1
        return Name(text[1:-1] if text[:1] == '"' else text, start, start + len(text))

    def name(self, *, quoted: bool = False) -> Name:
        text = self.tokens[self.at][0]
        if text in _NO_NAMES or not (text[:1].isalpha() or text[:1] == "_" or (quoted and text[:1] == '"')):
            raise _UnclearError
        return self.any_name()

    def two_words(self) -> Name:
        """The next two tokens as one name."""
        (first, start), (second, begin) = self.tokens[self.at : self.at + 2]
        self.at += 2
        return Name(f"{first} {second}", start, begin + len(second))

    def condition(self) -> Expression:
        parts = [self.all_of()]
        while self.next_is("or"):
            parts.append(self.all_of())
        return AnyOf(tuple(parts)) if len(parts) > 1 else parts[0]

    def all_of(self) -> Expression:
        parts = [self.part()]
        while self.next_is("and") or self.next_is("&"):
            parts.append(self.part())
        return AllOf(tuple(parts)) if len(parts) > 1 else parts[0]

    def part(self) -> Expression:
        term = self.term()
        if self.tokens[self.at][0] != "when":
            return term
        when = self.any_name()
        return Required(term, self.name(), when)

    def term(self) -> Expression:
        text, following = self.tokens[self.at][0], self.tokens[self.at + 1][0]
        if text == "(":
            self.at += 1
            inner = self.condition()
            self.need(")")
            return inner
        if text == "can":
            word = self.any_name()
            return CanDo(self.name(), self.targets(), word)
        if text in _RELATED:
            word = self.any_name()
            return Related(cast("RelatedKind", text), self.targets(), word)
        if text in _WORDS:
            return Word(cast("WordKind", text), self.any_name())
        if text == "service" and following == "admin":
            return Word("service_admin", self.two_words())
        if text in {"any", "named"} and following == "privilege":
            return PrivilegeTerm((self.two_words(),), every=False, targets=self.targets())
        if following in _BEHIND_PRIVILEGES:
            return self.held(following)
        return self.comparison()

    def held(self, between: str) -> Expression:
        names = [self.name(quoted=True)]
        while between != "(" and self.next_is(between):
            names.append(self.name(quoted=True))
        return PrivilegeTerm(tuple(names), between == "+", self.targets())

    def targets(self) -> tuple[Name, ...]:
        self.need("(")
        found = [self.target()]
        while self.next_is(","):
            found.append(self.target())
        self.need(")")
        return tuple(found)

    def target(self) -> Name:
        name, selector = self.name(), None
        if self.tokens[self.at][0] not in _BEHIND_TARGET:
            name, selector = self.name(), name
        if below := self.next_is("or"):
            self.need("below")
        return Name(name.text, name.start, name.end, below, selector) if selector or below else name

    def attribute(self) -> Name | None:
        """An attribute, if one is next."""
        first, second = self.tokens[self.at][0], self.tokens[self.at + 1][0]
        if _ATTRIBUTE.fullmatch(first):
            return self.any_name()
        if not _ATTRIBUTE.fullmatch(second) or first[:1] == '"':
            return None
        selector, name = self.name(), self.any_name()
        return Name(name.text, name.start, name.end, selector=selector)

    def comparison(self) -> Expression:
        left = self.attribute()
        if left is None:
            constant = self.constant()
            self.need("in")
            right = self.attribute()
            if right is None or not isinstance(constant.value, str | bool):
                raise _UnclearError
            return Comparison(right, "contains", (constant,))
        relation = self.tokens[self.at][0]
        if relation != "in" and relation not in _RELATIONS:
            return Comparison(left, "=", (Constant(value=True, word=left),))
        self.at += 1
        if (other := self.attribute()) is not None:
            return Comparison(left, relation, other)
        if relation != "in":
            return Comparison(left, relation, (self.constant(),))
        self.need("{")
        constants = [self.constant()]
        while self.next_is(","):
            constants.append(self.constant())
        self.need("}")
        return Comparison(left, relation, tuple(constants))

    def constant(self) -> Constant:
        text = self.tokens[self.at][0]
        if text[:1] == "-" or text[:1].isdecimal():
            return Constant(int(text), self.any_name())
        word = self.name(quoted=True)
        return Constant({"true": True, "false": False}.get(text, word.text), word)

    def effects(self) -> Effects:
        found = [self.effect()]
        while self.next_is("and") or self.next_is("&"):
            found.append(self.effect())
        return tuple(found)

    def effect(self) -> EffectTerm:
        if self.tokens[self.at][0] == "any" and self.tokens[self.at + 1][0] == "privilege":
            names = [self.two_words()]
        else:
            names = [self.name(quoted=True)]
            while self.next_is("+"):
                names.append(self.name(quoted=True))
        return EffectTerm(tuple(names), self.targets() if self.tokens[self.at][0] == "(" else ())


_BEHIND_PRIVILEGES = frozenset("(/+")
_BEHIND_TARGET = frozenset({",", ")", "or"})


def too_deep(text: str) -> int | None:
    """Where parentheses nest too deeply: `too_deep("(a)")` is None."""
    if text.count("(") <= _DEEP:
        return None
    depth = 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth > _DEEP:
            return position
    return None


def read_cell(text: str, rule: Literal["condition", "effects"]) -> Any:
    """The tree of a cell; None if the grammar is to read the cell: `read_cell("READ (table", "condition")`."""
    if invisible(text) is not None or too_deep(text) is not None:
        return None
    try:
        cell = _Cell(text)
        tree = getattr(cell, rule)()
    except _UnclearError:
        return None
    return tree if cell.at == len(cell.tokens) - 3 else None


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
