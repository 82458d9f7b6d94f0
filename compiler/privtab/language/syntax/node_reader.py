"""Read values from the node tree of a document, with positions; each is either returned or leaves one finding.

Policies, scenarios, waivers and settings all use this reader; each kind of document adds its codes and its own rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Words
from enum import Enum, auto
from typing import Any, ClassVar, TypeAlias, TypeVar, assert_never

from privtab.base.diagnostics import Diagnostic, Located, Severity, Span
from privtab.base.errors import PolicyInvalid
from privtab.base.hints import did_you_mean, listed_names, nearest
from privtab.base.source import SourceFile
from privtab.language.findings import unreadable
from privtab.language.syntax.yaml_tree import MappingNode, ScalarNode, SequenceNode, YamlNode, compose_yaml

Text: TypeAlias = Located[str]
T = TypeVar("T")


class DocumentProblem(Enum):
    """The problems that any document can have: a kind of document gives each a code, `{DocumentProblem.UNKNOWN_KEY: "W001"}`."""

    UNKNOWN_KEY = auto()
    MISSING_KEY = auto()
    WRONG_TYPE = auto()
    WRONG_VALUE = auto()
    DUPLICATE_KEY = auto()


class NodeReader:
    """The findings of one file, and the methods that all readers share."""

    MAPPING: ClassVar = "a mapping"
    """The document format's word for a mapping."""

    def __init__(self, source: SourceFile, found: list[Diagnostic]) -> None:
        self.source = source
        self.found = found
        self.mistakes = 0
        """Errors so far, including values that already have a finding."""

    def span(self, node: YamlNode) -> Span:
        """The span of a node; for a mapping or list on several lines, of its first line."""
        if isinstance(node, ScalarNode):
            return self.source.span(node.start, max(node.end, node.start))
        end = self.source.text.find("\n", node.start, node.end)
        return self.source.span(node.start, node.end if end < 0 else max(end, node.start + 1))

    def take(self, diagnostic: Diagnostic) -> None:
        """Add a finding."""
        self.found.append(diagnostic)
        self.mistakes += diagnostic.severity is Severity.ERROR

    def wrong(self, node: YamlNode, what: str, expected: str, help_: str | None = None) -> None:
        """Report a value of the wrong type, unless another finding about its syntax covers it."""
        if isinstance(node, ScalarNode) and node.style == "*":
            self.mistakes += 1
        else:
            self.wrong_type(node, what, expected, help_)

    def wrong_type(self, node: YamlNode, what: str, expected: str, help_: str | None) -> None:
        """Report a value of the wrong type."""
        raise NotImplementedError

    def repeated(self, key: ScalarNode, first: ScalarNode, what: str) -> None:
        """Report a duplicate key."""
        raise NotImplementedError

    def pairs_of(self, node: MappingNode) -> Iterable[tuple[ScalarNode, YamlNode]]:
        """The entries of a mapping that are to be read."""
        return node.entries

    def entries(
        self, node: YamlNode | None, what: str, example: str | None = None
    ) -> list[tuple[ScalarNode, YamlNode]]:
        """The entries of a mapping, each key once; none, with a finding, if it is not a mapping."""
        if node is None:
            return []
        if not isinstance(node, MappingNode):
            self.wrong(node, what, self.MAPPING, example)
            return []
        first: dict[str, ScalarNode] = {}
        entries: list[tuple[ScalarNode, YamlNode]] = []
        for key, value in self.pairs_of(node):
            if key.text in first:
                self.repeated(key, first[key.text], what)
            else:
                first[key.text] = key
                entries.append((key, value))
        return entries

    def plain(self, node: YamlNode) -> Any:
        """A tree as dictionaries, lists and values; a duplicate key is a finding."""
        match node:
            case ScalarNode():
                return node.value
            case SequenceNode():
                return [self.plain(item) for item in node.items]
            case MappingNode():
                first: dict[str, ScalarNode] = {}
                for key, _ in node.entries:
                    earlier = first.setdefault(key.text, key)
                    if earlier is not key:
                        self.take(unreadable.duplicate_key(self.span(key), key.text, self.span(earlier)))
                return {key.text: self.plain(value) for key, value in node.entries}
        assert_never(node)


class DocumentReader(NodeReader):
    """A reader of documents whose scalars are texts: numbers and the like are read as written.

    class _Reader(DocumentReader):
        NAMES = {"W001": "unknown-key"}
        CODES = dict.fromkeys(DocumentProblem, "W001")
    """

    NAMES: ClassVar[dict[str, str]]
    """The codes of the findings in this kind of document, and their names."""
    CODES: ClassVar[dict[DocumentProblem, str]]

    @staticmethod
    def whole(file: SourceFile, begins: str, read: Callable[[list[Diagnostic], YamlNode], T | None]) -> T:
        """Read a whole document using `read`. `begins`: the usual beginning. Raises PolicyInvalid with every finding."""
        found: list[Diagnostic] = []
        root = compose_yaml(file, found, begins)
        value = None if root is None else read(found, root)
        if value is None or found:
            raise PolicyInvalid(found)
        return value

    @staticmethod
    def near(name: str, known: Iterable[str], what: str) -> str:
        """`did you mean …?`, or the list of known names."""
        names = list(known)
        return did_you_mean(name, names) or (f"{what}: {listed_names(names)}" if names else f"there are no {what}")

    def report(
        self, code: str, at: YamlNode | Span, message: str, help_: str | None = None, fix: str | None = None
    ) -> None:
        """Add an error at a node or a span."""
        span = at if isinstance(at, Span) else self.span(at)
        name, severity = self.NAMES[code], Severity.ERROR
        self.take(Diagnostic(code=code, name=name, severity=severity, message=message, span=span, help=help_, fix=fix))

    def wrong_type(self, node: YamlNode, what: str, expected: str, help_: str | None) -> None:
        """As NodeReader.wrong_type."""
        self.report(self.CODES[DocumentProblem.WRONG_TYPE], node, f"{what} is {kind_of(node)}, not {expected}", help_)

    def repeated(self, key: ScalarNode, first: ScalarNode, what: str) -> None:
        """As NodeReader.repeated."""
        message = f"`{key.text}` occurs twice in {what}, first on line {self.span(first).line}"
        self.report(self.CODES[DocumentProblem.DUPLICATE_KEY], key, message)

    def unknown(self, key: ScalarNode, value: YamlNode, what: str, known: Words[str]) -> None:
        """Report an unknown key."""
        message, help_ = f"unknown key `{key.text}` in {what}", self.advice(key, value, known)
        self.report(self.CODES[DocumentProblem.UNKNOWN_KEY], key, message, help_, nearest(key.text, known))

    def advice(self, key: ScalarNode, value: YamlNode, known: Words[str]) -> str:
        """The most likely meaning of an unknown key, or the list of known keys."""
        del value
        return self.near(key.text, known, "its keys are")

    def fields(
        self, node: YamlNode, what: str, keys: Iterable[str], required: Iterable[str] = ()
    ) -> dict[str, YamlNode] | None:
        """The values of a mapping by key, without empty ones; None if it is not a mapping or lacks a required key."""
        known = tuple(keys)
        if not isinstance(node, MappingNode):
            self.wrong(node, what, self.MAPPING)
            return None
        fields: dict[str, YamlNode] = {}
        has_unknown_keys = False
        for key, value in self.entries(node, what):
            if key.text not in known:
                self.unknown(key, value, what, known)
                has_unknown_keys = True
            elif not value.empty:
                fields[key.text] = value
        missing = [name for name in required if name not in fields]
        for name in missing if not has_unknown_keys else ():
            self.report(
                self.CODES[DocumentProblem.MISSING_KEY], node, f"`{name}` is missing in {what}", self.example(name)
            )
        return None if missing else fields

    def example(self, key: str) -> str | None:
        """An example of a missing key."""
        del key
        return None

    def items(self, node: YamlNode, what: str) -> tuple[YamlNode, ...]:
        """The items of a list."""
        if not isinstance(node, SequenceNode):
            self.wrong(node, what, "a list")
            return ()
        return node.items

    def text(self, node: YamlNode | None, what: str) -> Text | None:
        """A scalar as text."""
        if node is None:
            return None
        if not isinstance(node, ScalarNode) or node.value is None:
            self.wrong(node, what, "text")
            return None
        return Located(node.text, self.span(node))

    def texts(self, node: YamlNode | None, what: str) -> tuple[Text, ...]:
        """A text, or a list of texts."""
        nodes = () if node is None else node.items if isinstance(node, SequenceNode) else (node,)
        found = (self.text(item, what) for item in nodes)
        return tuple(text for text in found if text is not None)

    def pairs(self, node: YamlNode | None, what: str) -> tuple[tuple[Text, Text], ...]:
        """A mapping from text to text."""
        found = (
            (Located(key.text, self.span(key)), self.text(value, f"`{key.text}`"))
            for key, value in self.entries(node, what)
        )
        return tuple((key, value) for key, value in found if value is not None)

    def truth(self, node: YamlNode | None, what: str) -> bool:
        """`true` or `false`; what is left out is false."""
        return self.word(node, what, ("true", "false")) == "true"

    def word(self, node: YamlNode | None, what: str, words: Words[str]) -> str | None:
        """One of a few words."""
        text = self.text(node, what)
        if text is None:
            return None
        if text.value in words:
            return text.value
        help_ = self.near(text.value, words, "write one of")
        self.report(self.CODES[DocumentProblem.WRONG_VALUE], text.span, f"{what} is `{text.value}`", help_)
        return None


def kind_of(node: YamlNode) -> str:
    """The kind of a value, for messages."""
    match node:
        case MappingNode():
            return "a mapping"
        case SequenceNode():
            return "a list"
        case ScalarNode():
            return "empty" if node.value is None else f"`{node.text}`"
