"""Read single values of a policy from the YAML tree; each is either returned or leaves one finding."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Sequence_
from functools import lru_cache
from typing import Literal

from privtab.base.diagnostics import Diagnostic, Located, Span
from privtab.base.effects import EffectKind
from privtab.base.hints import listed_names, nearest, not_a_condition
from privtab.base.lazy import pattern
from privtab.base.names import ANY_PRIVILEGE, NAMED_PRIVILEGE, invisible
from privtab.base.paths import LEVELS, MOST_LEVELS
from privtab.base.source import SourceFile
from privtab.language.findings import unreadable
from privtab.language.syntax.cells import parse_condition, parse_effects
from privtab.language.syntax.expression import CellError
from privtab.language.syntax.keys import KEYS, NAME, OPEN_NAME, PRIVILEGE, SNAKE, VALUES, Key
from privtab.language.syntax.node_reader import NodeReader, kind_of
from privtab.language.syntax.nodes import Cell, ConditionCell, EffectCell, Word
from privtab.language.syntax.yaml_tree import MappingNode, ScalarNode, SequenceNode, YamlNode

_SPELLINGS = {
    "snake": pattern(SNAKE),
    "name": pattern(NAME),
    "open": pattern(OPEN_NAME),
    "privilege": pattern(PRIVILEGE),
}
Spelling = Literal["snake", "name", "open", "privilege"]
Fields = dict[str, tuple[ScalarNode, YamlNode]]

_RULE = "names begin with a letter; then come letters, digits, `_`, `-`, `.` and `:`"
_ADVICE = {"open": _RULE, "privilege": f"{_RULE}, in one word or several with one blank between them"}


class PolicyReader(NodeReader):
    """The reader of a policy."""

    def __init__(self, source: SourceFile, found: list[Diagnostic]) -> None:
        super().__init__(source, found)
        self.any_privilege = self.named_privilege = False
        self.lost: set[str] = set()
        """Names whose declaration has a finding: their use is not reported again."""
        self.unknown_values: list[YamlNode] = []
        """Values of unknown keys at the top of the file."""

    def wrong_type(self, node: YamlNode, what: str, expected: str, help_: str | None) -> None:
        """As NodeReader.wrong_type."""
        self.take(unreadable.wrong_type(self.span(node), what, expected, _kind(node), help_))

    def repeated(self, key: ScalarNode, first: ScalarNode, what: str) -> None:
        """As NodeReader.repeated."""
        del what
        self.take(unreadable.duplicate_key(self.span(key), key.text, self.span(first)))

    def refuse(self, at: YamlNode | Span, message: str, advice: str | None = None) -> None:
        """Report a value that is wrong in its own way."""
        span = at if isinstance(at, Span) else self.span(at)
        self.take(unreadable.wrong_value_other(span, message, advice))

    def fields(self, node: YamlNode, kind: str, where: str | None = None, example: str | None = None) -> Fields | None:
        """The entries of a mapping by key, checked against the keys of `kind`."""
        where = where or f"a {kind}"
        if not isinstance(node, MappingNode):
            self.wrong(node, where, "a mapping", example)
            return None
        known = _known_keys(kind)
        fields: Fields = {}
        present = {key.text for key, _ in node.entries}
        unknown_values: list[YamlNode] = []
        for key, value in self.cut_cells(node):
            if key.text not in known:
                self.take(unreadable.unknown_key(self.span(key), key.text, where, tuple(known)))
                has_advice = key.text in unreadable.UNKNOWN_KEY_INSTEAD.get(where, {})
                intended = None if has_advice else nearest(key.text, known, cutoff=0.75)
                if intended is not None and intended not in present:
                    fields.setdefault(intended, (key, value))
                else:
                    unknown_values.append(value)
            elif key.text in fields:
                self.repeated(key, fields[key.text][0], where)
            else:
                fields[key.text] = (key, value)
        for key_ in [one for one in known.values() if one.required and one.name not in fields]:
            if key_.shape != "entities" or not any(isinstance(n, MappingNode) for n in unknown_values):
                span = self.source.span(node.start, node.start + 1)
                self.take(unreadable.missing_key(span, key_.name, where, key_.example))
        if kind == "policy":
            self.unknown_values = unknown_values
        return fields

    def pairs_of(self, node: MappingNode) -> list[tuple[ScalarNode, YamlNode]]:
        """As NodeReader.pairs_of."""
        return self.cut_cells(node)

    def cut_cells(self, node: MappingNode) -> list[tuple[ScalarNode, YamlNode]]:
        """The entries of a mapping, without the rest of cells that a comma splits inside `{ }`: `{requires: owner (a, b)}`."""
        entries: list[tuple[ScalarNode, YamlNode]] = []
        in_cut_cell = False
        for key, value in node.entries:
            if in_cut_cell and value.empty:
                in_cut_cell = ")" not in key.text
                continue
            in_cut_cell = isinstance(value, ScalarNode) and not value.style and self._cut(value)
            entries.append((key, ScalarNode(None, "", "*", value.start, value.end) if in_cut_cell else value))
        return entries

    def cut_items(self, node: YamlNode) -> tuple[YamlNode, ...]:
        """The items of a list, without items that a comma splits inside `[ ]`; for any other node, the node itself."""
        if not isinstance(node, SequenceNode):
            return (node,)
        items: list[YamlNode] = []
        in_cut_cell = False
        for item in node.items:
            if in_cut_cell:
                in_cut_cell = not (isinstance(item, ScalarNode) and ")" in item.text)
            elif isinstance(item, ScalarNode) and not item.style and self._cut(item):
                in_cut_cell = True
            else:
                items.append(item)
        return tuple(items)

    def _cut(self, value: ScalarNode) -> bool:
        """Return whether a comma ends the value inside its parentheses; if so, report it."""
        if value.text.count("(") <= value.text.count(")") or self.source.text[value.end : value.end + 1] != ",":
            return False
        span = self.source.span(value.end, value.end + 1)
        self.take(
            unreadable.cell_syntax(
                span, "this comma ends the cell, inside `{ }` or `[ ]`", (), "put the cell in quotes"
            )
        )
        return True

    def text(self, node: YamlNode, what: str) -> str | None:
        """The value of a node that must be text."""
        if isinstance(node, ScalarNode) and isinstance(node.value, str):
            return node.value
        written = isinstance(node, ScalarNode) and node.value is not None and node.text
        self.wrong(node, what, "text", f'put it in quotes: "{written}"' if written else None)
        return None

    def optional_text(self, fields: Fields, key: str) -> str | None:
        """The text under a key; None if it is missing."""
        return self.text(fields[key][1], f"`{key}`") if key in fields else None

    def version(self, node: YamlNode) -> Word | None:
        """Text, or a number as written."""
        if isinstance(node, ScalarNode) and node.value is not None and not isinstance(node.value, bool):
            if node.text.strip():
                return Located(node.text, self.span(node))
            self.refuse(node, "`version` is empty", "name it: `version: final`")
            return None
        self.wrong(node, "`version`", "text")
        return None

    def flag(self, node: YamlNode, what: str, others: tuple[str, ...] = ()) -> Located[bool] | None:
        """`true` or `false`; `others`: the values besides, for the finding."""
        if isinstance(node, ScalarNode) and isinstance(node.value, bool):
            return Located(node.value, self.span(node))
        intended = _word_for_boolean(node, ("false", "true"), no="false")
        self.wrong(
            node, what, listed_names(("true", "false", *others), last="or"), f"write `{intended}`" if intended else None
        )
        return None

    def levels(self, node: YamlNode, what: str) -> Located[int] | None:
        """`true`, `false` or the most levels of a type that nests; None for `false`."""
        if isinstance(node, ScalarNode) and isinstance(node.value, bool):
            return Located(LEVELS, self.span(node)) if node.value else None
        if isinstance(node, ScalarNode) and isinstance(node.value, int):
            if 1 <= node.value <= MOST_LEVELS:
                return Located(node.value, self.span(node))
            advice = f"a type may nest to 1 to {MOST_LEVELS} levels"
            self.refuse(node, f"`{node.text}` is not a value of {what}", advice)
            return None
        self.wrong(node, what, f"`true`, or a number from 1 to {MOST_LEVELS}")
        return None

    def choice(self, node: YamlNode, shape: str, what: str) -> str | None:
        """One of the words of a closed set."""
        known = VALUES[shape]
        if isinstance(node, ScalarNode) and isinstance(node.value, str) and node.text in known:
            return node.text
        intended = _word_for_boolean(node, known)
        if not isinstance(node, ScalarNode) or not isinstance(node.value, str):
            self.wrong(node, what, listed_names(known, last="or"), f"write `{intended}`" if intended else None)
        elif intended:
            self.take(unreadable.wrong_value_intended(self.span(node), what, node.text, intended))
        else:
            self.take(unreadable.wrong_value(self.span(node), what, node.text, known))
        return None

    def choices(self, node: YamlNode, shape: str, what: str) -> tuple[Word, ...] | None:
        """A list of words of a closed set, or a single one."""
        items = node.items if isinstance(node, SequenceNode) else (node,)
        words = [(self.choice(item, shape, what), item) for item in items]
        if not items:
            self.refuse(node, f"{what} is empty", "leave the key out")
            return None
        return tuple(Located(word, self.span(item)) for word, item in words if word is not None)

    def name(self, node: YamlNode, what: str, spelling: Spelling = "open") -> Word | None:
        """A name; `what` describes what it names, with an article."""
        if isinstance(node, ScalarNode) and node.value is not None:
            hidden = invisible(node.text)
            if hidden is None and _SPELLINGS[spelling].fullmatch(node.text) and isinstance(node.value, str):
                return Located(node.text, self.span(node))
            if isinstance(node.value, str):
                found = unreadable.bad_name_of_request if spelling == "name" else unreadable.bad_name
                advice = _ADVICE.get(spelling) if hidden is None else f"leave out {hidden}, which nobody sees"
                self.take(found(self.span(node), what, node.text, advice))
                self.lost |= {node.text, unreadable.snake_case(node.text), unreadable.as_name(node.text)}
                self.lost.add(" ".join(node.text.split()))
                return None
        self.wrong(node, f"the name of {what}", "a word")
        return None

    def former_name(self, fields: Fields, what: str, spelling: Spelling) -> str | None:
        """The name in `renamed_from`."""
        found = self.name(fields["renamed_from"][1], what, spelling) if "renamed_from" in fields else None
        return None if found is None else found.value

    def words(self, node: YamlNode, what: str) -> tuple[Word, ...] | None:
        """A list of words, or a single word."""
        if isinstance(node, MappingNode):
            self.wrong(node, what, "a list of words")
            return None
        mistakes_before = self.mistakes
        items = node.items if isinstance(node, SequenceNode) else (node,)
        found: list[Word] = []
        for item in items:
            text = self.text(item, f"an item of {what}" if isinstance(node, SequenceNode) else what)
            if text is not None and (hidden := invisible(text)) is not None:
                self.refuse(item, f"{what} has a word with {hidden}", "leave out what nobody sees")
            elif text is not None:
                found.append(Located(text, self.span(item)))
        if not items:
            self.refuse(node, f"{what} is an empty list", "leave the key out")
        return tuple(found) if found or self.mistakes == mistakes_before else None

    def cell(self, node: YamlNode, what: str, expected: str, instead: str) -> Cell | None:
        """The text of a cell with its place; `expected` and `instead` are for the finding if it is no text."""
        if isinstance(node, ScalarNode) and isinstance(node.value, str):
            return Cell(node=node, source=self.source)
        self.wrong(node, what, expected, instead)
        return None

    def condition(self, node: YamlNode, what: str) -> ConditionCell | None:
        """A condition; its expression is None if the cell does not parse."""
        everybody = isinstance(node, ScalarNode) and node.value is True
        instead = "write `anyone` to allow every caller" if everybody else "a condition reads `READ (TYPE)`"
        cell = self.cell(node, what, "a condition", instead)
        if cell is None:
            return None
        match parse_condition(cell.text):
            case CellError() as error:
                self.cell_error(cell, error)
                return ConditionCell(cell=cell, expression=None)
            case expression:
                self.any_privilege |= ANY_PRIVILEGE in cell.line
                self.named_privilege |= NAMED_PRIVILEGE in cell.line
                return ConditionCell(cell=cell, expression=expression)

    def effects(self, node: YamlNode, kind: EffectKind, what: str) -> Iterator[EffectCell]:
        """An effect or a list of effects."""
        for item in self.cut_items(node):
            example = "READ (TYPE)" if kind in ("grant", "delegate", "withdraw") else "owner"
            cell = self.cell(item, what, "an effect", f"an effect reads `{example}`")
            if cell is None:
                continue
            match parse_effects(cell.text):
                case CellError() as error:
                    self.cell_error(cell, error)
                case terms:
                    yield EffectCell(kind=kind, cell=cell, terms=terms)

    def cell_error(self, cell: Cell, error: CellError) -> None:
        """Report a cell that does not parse."""
        span = cell.part(error.start, error.end) if error.start < len(cell.text) else _after_cell(cell)
        instead, complete = advice(cell.text, error)
        self.take(unreadable.cell_syntax(span, error.message, () if complete else error.expected, instead))

    def split(self, node: ScalarNode, separator: str) -> list[Word]:
        """The words of `start, stop, debug` or `read + write`, each with its position."""
        if separator not in node.text and node.text and node.text == node.text.strip():
            return [Located(node.text, node.part(self.source, 0, len(node.text)))]
        word = rf"[^\s{separator}](?:[^{separator}]*[^\s{separator}])?"
        return [Located(m.group(), node.part(self.source, *m.span())) for m in re.finditer(word, node.text)]


@lru_cache
def _known_keys(kind: str) -> Mapping[str, Key]:
    return {key.name: key for key in KEYS[kind]}


def _after_cell(cell: Cell) -> Span:
    node = cell.node
    end = node.end - (node.style in ("'", '"'))
    start = node.start + len(cell.source.text[node.start : end].rstrip())
    return cell.source.span(start, start + 1)


def _word_for_boolean(node: YamlNode, known: Sequence_[str], *, no: str = "none") -> str | None:
    """The word that a boolean stands for, if there are two: `no` for off, the other for on."""
    on_words = [word for word in known if word != no]
    if not isinstance(node, ScalarNode) or len(on_words) != 1 or no not in known:
        return None
    word = str(node.text).lower()
    return on_words[0] if word in ("true", "yes", "on") else no if word in ("false", "no", "off") else None


def _kind(node: YamlNode) -> str:
    match node:
        case ScalarNode(value=None):
            return "nothing"
        case ScalarNode(value=str()):
            return "text"
        case ScalarNode(value=int() | float()) if not isinstance(node.value, bool):
            return f"the number {kind_of(node)}"
        case _:
            return kind_of(node)


_NEGATION = pattern(r"(?:^|[\s(&|])(?:(?:not|no|without|unless|except)\s|!(?!=))", re.IGNORECASE)
_ATTRIBUTE = pattern(r"[=<>~]|\w\s+(?:in|like|matches|contains)\s+[\[\"'(\w]", re.IGNORECASE)
_PRINCIPAL = pattern(r"\b(role|group|user)s?\b(?:[\s:]|\s*={1,2})+(?!(?:or|and|when|in)\b)[\w\"']", re.IGNORECASE)
_NAME = r"[^\W\d](?:[\w.:\-]*\w)?"
_NO_TARGET = pattern(rf"(can\s+{_NAME}|{_NAME})(?:\s+(?:on|of|at|for|in)?\s*({_NAME}))?", re.IGNORECASE)
_EVERYBODY = {"any", "all", "everyone", "everybody", "true", "yes", "public", "allow", "open", "authenticated"}
_NOBODY = {"false", "no", "nobody", "none", "never", "deny"}

NEGATION = (
    "negation is not a condition; write what a caller must hold: "
    "who must not is denied in the state, with `semantics: {deny: overrides}`"
)
ATTRIBUTES = (
    "attributes are declared under `attributes`, and compared as in `user.team = entity.team`, "
    "`entity.color in {red, blue}`, `request.hour >= 8`"
)
_BELOW = pattern(r"\(([^()]*)\)\s+or\s+below\b", re.IGNORECASE)
_COMPARISONS = {
    r"!=|<>": "there is no `!=`: name the values that are allowed, as in `entity.color in {red, blue}`",
    r"==": "write `=`",
    r"\bin\s*[\[(]": "write constants in braces: `in {red, blue}`",
}


def advice(text: str, error: CellError) -> tuple[str | None, bool]:
    """The advice on an error, and whether it is all there is to say: then a list of expected words does not help."""
    for_cell = _for_whole_cell(text.strip())
    if for_cell is not None:
        return for_cell, True
    return _for_error(text, error)


def _for_whole_cell(text: str) -> str | None:
    """Advice for cells that as a whole mean something other than a condition."""
    if _NEGATION.search(text) and text.lower() not in _NOBODY:
        return NEGATION
    principal = _PRINCIPAL.search(text)
    if principal is not None:
        return not_a_condition(principal[1])
    below = _BELOW.search(text)
    if below is not None:
        return f"write `or below` in the parentheses: `({below[1]} or below)`"
    if _ATTRIBUTE.search(text):
        return next((say for pattern, say in _COMPARISONS.items() if re.search(pattern, text)), ATTRIBUTES)
    word = text.lower()
    if word in _EVERYBODY:
        return "write `anyone`"
    if word in _NOBODY:
        return "write `nobody`"
    if word in ("admin", "service_admin", "superuser", "root"):
        return "write `service admin` for the service administrators of the state, or a privilege: `ADMIN (TYPE)`"
    lone = _NO_TARGET.fullmatch(text)
    if lone is None or text.lower().startswith(
        ("allow ", "deny ", "if ", "is ", "requires ", "self ", "anyone ", "nobody ")
    ):
        return None
    return f"write the entity type in parentheses: `{lone[1]} ({lone[2] or 'TYPE'})`"


def _for_error(text: str, error: CellError) -> tuple[str | None, bool]:
    found, before, after = text[error.start : error.end], text[: error.start], text[error.end :]
    if found in ("/", "+") and ("/" in before or "+" in before) and "(" not in before.rpartition(")")[2]:
        return "`/` (any of) and `+` (all of) do not mix in one term: write two terms with `and` or `or`", False
    first = text.split(None, 1)[0].lower() if text.strip() else ""
    if first in ("allow", "requires", "require", "is", "has", "grant"):
        return f"leave `{text.split(None, 1)[0]}` out: a row says what is required", True
    if first == "deny":
        return "rows require, and denials are rows of the state: `{grantee: …, effect: deny, …}`", True
    inside = before.count("(") > before.count(")")
    instead: str | None = {
        "||": "write `or`", "|": "write `or`", "or": "write `or`",
        "&&": "write `and`", "and": "write `and`",
        "if": "write `when`, followed by the name of a flag", "provided": "write `when`, followed by the name of a flag",
        "*": "there are no wildcards: name each entity type" if inside
        else "there are no wildcards: name the privileges, or a set of them",
        "?": "a character lost from the document, most likely `/`",
    }.get(found.lower())  # fmt: skip
    if found in ("and", "or"):
        instead = None
    if instead is None and found == "&" and (before.endswith("&") or after.startswith("&")):
        instead = "write `and`"
    if instead is None and found == "," and not inside:
        instead = "write `READ/WRITE (TYPE)` for any of them, `READ + WRITE (TYPE)` for all"
    if instead is None and found == "/" and inside:
        instead = "separate entity types by commas: any of them will do"
    if instead is None and found == "(" and re.search(r"\b(self|anyone|nobody)\s*$", before):
        instead = "`self`, `anyone` and `nobody` take no parentheses"
    if instead is None and (found == "[" or (found == "-" and after.startswith("-"))):
        instead = "write targets in `( )`" if found == "[" else "write remarks in `note:`, or after ` #`"
    return instead, False
