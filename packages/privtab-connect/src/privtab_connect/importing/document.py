"""Import documents: which answers of a system become which rows. `docs/reference/importing.md` describes them."""

from __future__ import annotations

import re
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, TypeAlias

from jmespath.exceptions import JMESPathError

from privtab.base import Diagnostic, Located, SourceFile
from privtab.language import DocumentProblem, DocumentReader, MappingNode, SequenceNode, YamlNode
from privtab.state import TABLE_COLUMNS
from privtab_connect.documents import document as find
from privtab_connect.importing.expression import Expression
from privtab_connect.importing.fields import ONE_OF, TYPES, Field, Fields, Loss, Many, Type, Word
from privtab_connect.importing.template import Template
from privtab_connect.names import Names, names_beside

MARK = "import"
QueryKind: TypeAlias = Literal["get", "sql", "tables"]
_ASKING = ("get", "sql", "tables", "ask_when", "fields", "bare", "page", "optional")
STEP = (*_ASKING, "each", "when", "keep", "rows", "not_taken", "steps")
LISTS = ("needs", "takes", "everyone")
PAGE = ("parameter", "next", "items", "total", "id", "first", "size")
EXCLUDED = ("name", "each", "why", "denies", "count")
DENIES = "denies"
LOSSES = (DENIES, "lost")
FIELDS_EXAMPLE = (
    'as in `users: [{name: text, "owner?": text, active: switch, limits: denies, it holds for some hours only}]`'
)
_NAME = re.compile(r"(?P<name>.+?)(?P<optional>\?)?(?P<nullable> or null)?")
"""The name of a field, whether it may be left out, and whether it may be null."""
UNIQUE, FOLDED = "unique", "without case"
"""Words that may follow the type of a field."""
DEEPEST = 12
"""Steps within steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The way to the next page of an answer: a token in the answer, or the number of items so far."""

    parameter: str
    next: Expression | None = None
    items: Expression | None = None
    total: Expression | None = None
    id: Expression | None = None
    """The value that tells an item from all others."""
    first: int = 1
    """The number of the first item."""
    size: int | None = None
    """Maximum number of items in a server's answer: an answer without a total that has fewer, or more, is whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Excluded:
    """Things without rows, and the reason."""

    name: Template
    """Name under which things of this kind are accepted."""
    each: Expression
    why: Template
    denies: Expression | bool
    """True if the state could allow more without it."""
    count: Template | None
    """Number of things that an item stands for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportStep:
    """One question to the system, the meaning of each item of the answer, and further questions for each item."""

    kind: QueryKind | None
    """None: the step looks at what is known already."""
    ask: Template | None
    fields: Fields | None
    """Fields that the answer may hold; None for `tables`, whose items have a `table` and its `columns`."""
    page: Page | None
    optional: bool
    """True if there may be nothing at the address (404)."""
    ask_when: Expression | None
    """The condition of the question; without a question, the step uses the data that is known already."""
    each: tuple[Expression, ...]
    when: Expression | None
    keep: MappingOf[str, tuple[Template, Template]]
    """Look-ups that items are entered in: by name, the key and the value."""
    rows: tuple[tuple[str, MappingOf[str, Template]], ...]
    not_taken: tuple[Excluded, ...]
    steps: tuple[ImportStep, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportDocument:
    """An import document."""

    path: str
    title: str
    needs: tuple[str, ...]
    """Names whose values the caller must give."""
    takes: tuple[str, ...]
    """Names whose values the caller may give."""
    everyone: tuple[str, ...]
    """Principals that everyone is."""
    names: Names
    steps: tuple[ImportStep, ...]


def load(document: str) -> ImportDocument:
    """Read an import document by path or by name. Raises UsageError, and PolicyInvalid with every finding."""
    path = find(document, "import")[1]
    file, names = SourceFile.load(path), names_beside(path)
    begins = "an import document begins with `import: 1`"
    return DocumentReader.whole(file, begins, lambda found, root: _MappingReader(file, found, names).document(root))


class ExpressionReader(DocumentReader):
    """A reader of documents with JMESPath expressions."""

    def expressions(self, node: YamlNode | None, where: str) -> tuple[Expression, ...]:
        """An expression or a list of them."""
        read = map(self.expression, self.texts(node, where))
        return tuple(expression for expression in read if expression is not None)

    def template(self, node: YamlNode | None, where: str) -> Template | None:
        """A text with placeholders."""
        text = self.text(node, where)
        return None if text is None else Template(text.value)

    def templates(self, nodes: MappingOf[str, YamlNode]) -> dict[str, Template]:
        """Texts with placeholders, by key."""
        read = {key: self.template(node, f"`{key}`") for key, node in nodes.items()}
        return {key: template for key, template in read.items() if template is not None}

    def one_expression(self, node: YamlNode | None, where: str) -> Expression | None:
        """A value that is one expression."""
        text = self.text(node, where)
        return None if text is None else self.expression(text)

    def expression(self, text: Located[str]) -> Expression | None:
        """Parse an expression in JMESPath; report a wrong expression."""
        try:
            return Expression.parse(text.value)
        except JMESPathError as error:
            reason = str(error).splitlines()[0].rstrip(":")
            code = self.CODES[DocumentProblem.WRONG_VALUE]
            self.report(code, text.span, f"`{text.value}` is not a JMESPath expression: {reason}")
            return None


class _MappingReader(ExpressionReader):
    """The reader of import documents."""

    NAMES: ClassVar = {"I001": "bad-import-document"}
    CODES: ClassVar = dict.fromkeys(DocumentProblem, "I001")

    def __init__(self, file: SourceFile, found: list[Diagnostic], names: Names) -> None:
        super().__init__(file, found)
        self._names = names

    def document(self, root: YamlNode) -> ImportDocument | None:
        """The whole document."""
        needed = (MARK, "title", "steps")
        fields = self.fields(root, "an import document", (*needed, *LISTS), needed)
        if fields is None:
            return None
        self.word(fields[MARK], f"`{MARK}`", ("1",))
        title = self.text(fields["title"], "`title`")
        lists = {key: tuple(text.value for text in self.texts(fields.get(key), f"`{key}`")) for key in LISTS}
        steps = self.steps(fields["steps"], 1)
        if title is None:
            return None
        return ImportDocument(path=self.source.path, title=title.value, **lists, names=self._names, steps=steps)

    def steps(self, node: YamlNode | None, depth: int) -> tuple[ImportStep, ...]:
        """A list of steps."""
        if node is None:
            return ()
        if depth > DEEPEST:
            self.report("I001", node, f"steps lie more than {DEEPEST} deep")
            return ()
        read = (self.step(item, depth) for item in self.items(node, "`steps`"))
        return tuple(step for step in read if step is not None)

    def step(self, node: YamlNode, depth: int) -> ImportStep | None:
        """Read a step with the steps inside it."""
        fields = self.fields(node, "a step", STEP)
        if fields is None:
            return None
        asking: tuple[QueryKind, ...] = ("get", "sql", "tables")
        kinds = [kind for kind in asking if kind in fields]
        if len(kinds) > 1:
            self.report("I001", fields[kinds[1]], f"a step has either `{kinds[0]}` or `{kinds[1]}`")
            return None
        kind = kinds[0] if kinds else None
        ask = self.template(fields[kind], f"`{kind}`") if kind else None
        if kind == "sql" and ask is not None:
            ask = Template(self._names.filled(ask.text))
        if "page" in fields and kind != "get":
            self.report("I001", fields["page"], "only the answer to a `get` comes in pages")
        if kind == "tables":
            self.word(fields["tables"], "`tables`", ("all",))
        if "fields" in fields and kind not in ("get", "sql"):
            self.report(
                "I001", fields["fields"], "`fields` say what the answer to a `get` or `sql` holds", FIELDS_EXAMPLE
            )
        elif "fields" not in fields and kind in ("get", "sql"):
            self.report("I001", node, f"`fields` is missing in a `{kind}`", FIELDS_EXAMPLE)
        return ImportStep(
            kind=kind,
            ask=ask,
            fields=None if "fields" not in fields else self.answer(fields["fields"], fields.get("bare"), kind),
            page=self.page(fields.get("page")),
            optional=self.truth(fields.get("optional"), "`optional`"),
            ask_when=self.one_expression(fields.get("ask_when"), "`ask_when`"),
            each=self.expressions(fields.get("each"), "`each`"),
            when=self.one_expression(fields.get("when"), "`when`"),
            keep=self.keep(fields.get("keep")),
            rows=self.rows(fields.get("rows")),
            not_taken=self.not_taken(fields.get("not_taken")),
            steps=self.steps(fields.get("steps"), depth + 1),
        )

    def page(self, node: YamlNode | None) -> Page | None:
        """Read how to get the next page of an answer."""
        fields = None if node is None else self.fields(node, "`page`", PAGE, ("parameter",))
        if fields is None:
            return None
        parameter = self.text(fields["parameter"], "`parameter`")
        expressions = {
            key: self.one_expression(fields.get(key), f"`{key}`") for key in ("next", "items", "total", "id")
        }
        first, size = (self.number(fields.get(key), f"`{key}`") for key in ("first", "size"))
        by_number = [expressions[key] is not None for key in ("items", "total")]
        if parameter is None or by_number != [expressions["next"] is None] * 2:
            self.report("I001", node, "`page` needs `next`, or `items` with `total`") if node is not None else None
            return None
        return Page(parameter=parameter.value, first=1 if first is None else first, size=size, **expressions)

    def number(self, node: YamlNode | None, where: str) -> int | None:
        """A whole number."""
        text = self.text(node, where)
        if text is None:
            return None
        if text.value.isascii() and text.value.isdigit():
            return int(text.value)
        self.report("I001", text.span, f"{where} is `{text.value}`, not a whole number")
        return None

    def answer(self, node: YamlNode, bare: YamlNode | None, kind: QueryKind | None) -> Fields | None:
        """Read what an answer may hold. `bare`: whether it may be its one list alone, as the rows of a query are."""
        listed = isinstance(node, SequenceNode)
        read = self.field(node, "`fields`")
        found = read.item if isinstance(read, Many) else read
        if not isinstance(found, Fields):
            self.report("I001", node, "`fields` are a mapping, or a list of one", FIELDS_EXAMPLE) if read else None
            return None
        is_bare = self.truth(bare, "`bare`") or (kind == "sql" and not listed)
        if is_bare and (listed or sum(isinstance(field, Many) for field in found.named.values()) != 1):
            self.report(
                "I001", bare or node, "an answer with `bare` has one list in its `fields`, as the rows of a query are"
            )
        return replace(found, listed=listed, bare=is_bare)

    def field(self, node: YamlNode, where: str) -> Field | None:
        """Read the type of a field: a word, a type, the fields of an object, or a list of any of these."""
        if isinstance(node, SequenceNode):
            if len(node.items) != 1:
                self.report("I001", node, f"{where} is a list of {len(node.items)}, not of one", FIELDS_EXAMPLE)
                return None
            item = self.field(node.items[0], where)
            return None if item is None else Many(item)
        if isinstance(node, MappingNode):
            return self.object(node, where)
        scalar = self.text(node, where)
        if scalar is None:
            return None
        word, _, rest = scalar.value.partition(",")
        if word in LOSSES:
            return Loss(rest.strip() or "a state cannot express it", denies=word == DENIES)
        if word in {word.value for word in Word}:
            return Word(word)
        more = {part.strip() for part in rest.split(",")} - {""}
        values = tuple(int(v) if v.isdecimal() else v for v in word.removeprefix(ONE_OF).split())
        listed = word.startswith(f"{ONE_OF} ") and bool(values)
        if more <= {UNIQUE, FOLDED} and (listed or word in TYPES):
            classes = frozenset(map(type, values)) if listed else TYPES[word]
            of = values if listed else ()
            return Type(name=word, classes=classes, values=of, unique=UNIQUE in more, folded=FOLDED in more)
        self.report("I001", scalar.span, f"{where} is `{scalar.value}`", FIELDS_EXAMPLE)
        return None

    def object(self, node: MappingNode, where: str) -> Fields:
        """The fields of an object."""
        named: dict[str, Field] = {}
        marked: dict[str, set[str]] = {"optional": set(), "nullable": set()}
        for key, value in self.entries(node, where):
            read = self.field(value, f"`{key.text}`")
            for text in key.text.split(","):
                found = _NAME.fullmatch(text.strip())
                if found is None:
                    self.report("I001", key, f"a name is empty in `{key.text}`")
                    continue
                name = found["name"]
                if name in named:
                    self.report("I001", key, f"`{name}` occurs twice in {where}")
                if read is not None:
                    named[name] = read
                for mark, names in marked.items():
                    names.update({name} if found[mark] else ())
        return Fields(named=named, optional=frozenset(marked["optional"]), nullable=frozenset(marked["nullable"]))

    def rows(self, node: YamlNode | None) -> tuple[tuple[str, MappingOf[str, Template]], ...]:
        """The cells of a row, by table."""
        found = []
        for key, value in self.entries(node, "`rows`"):
            columns = TABLE_COLUMNS.get(key.text)
            if columns is None:
                self.unknown(key, value, "`rows`", tuple(TABLE_COLUMNS))
                continue
            cells = self.fields(value, f"a row of `{key.text}`", columns.all, columns.required)
            read = self.templates(cells or {})
            for name in columns.required:
                if name in read and read[name].optional:
                    self.report("I001", value, f"`{name}` must be in every row of `{key.text}`: write it without `?`")
            found.append((key.text, read))
        return tuple(found)

    def keep(self, node: YamlNode | None) -> MappingOf[str, tuple[Template, Template]]:
        """Look-ups by name."""
        found = {}
        for name, value in self.entries(node, "`keep`"):
            fields = self.fields(value, f"`{name.text}`", ("key", "value"), ("key", "value"))
            parts = self.templates(fields or {})
            if len(parts) == 2:
                found[name.text] = parts["key"], parts["value"]
        return found

    def not_taken(self, node: YamlNode | None) -> tuple[Excluded, ...]:
        """Read the things without rows."""
        if node is None or node.empty:
            return ()
        found = []
        for item in (node,) if isinstance(node, MappingNode) else self.items(node, "`not_taken`"):
            fields = self.fields(item, "`not_taken`", EXCLUDED, ("name", "each", "why"))
            if fields is None:
                continue
            each = self.one_expression(fields["each"], "`each`")
            name, why, count = (self.template(fields.get(key), f"`{key}`") for key in ("name", "why", "count"))
            denies = self.denies(self.text(fields.get(DENIES), f"`{DENIES}`"))
            if each is not None and name is not None and why is not None:
                found.append(Excluded(name=name, each=each, why=why, denies=denies, count=count))
        return tuple(found)

    def denies(self, text: Located[str] | None) -> Expression | bool:
        """`true`, as is what says nothing, `false`, or an expression."""
        if text is None or text.value in {"true", "false"}:
            return text is None or text.value == "true"
        return self.expression(text) or True
