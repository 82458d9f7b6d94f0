"""Import documents: which answers of a system become which rows. `docs/reference/importing.md` describes them."""

from __future__ import annotations

from collections.abc import Mapping as MappingOf
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

import jmespath
from jmespath import functions

from privtab import _resources, source
from privtab.diagnostics import Diagnostic, Located, in_order
from privtab.errors import PolicyInvalid, UsageError
from privtab.hints import did_you_mean
from privtab.importing.template import Template
from privtab.names import WILDCARDS
from privtab.state.raw import COLUMNS
from privtab.syntax.node_reader import DocumentProblem, DocumentReader, is_empty
from privtab.syntax.yaml_tree import Mapping, Node, compose

MARK = "import"
Kind: TypeAlias = Literal["get", "sql"]
STEP = ("get", "sql", "page", "optional", "each", "when", "keep", "rows", "not_taken", "steps")
PAGE = ("parameter", "next", "items", "total")
DEEPEST = 12
"""Steps within steps."""


class _Functions(functions.Functions):
    """JMESPath's functions and three more: it has none that look inside a text."""

    @functions.signature({"types": ["string"]})
    def _func_lower(self, text: str) -> str:
        return text.lower()

    @functions.signature({"types": ["string"]})
    def _func_upper(self, text: str) -> str:
        return text.upper()

    @functions.signature({"types": ["string"]}, {"types": ["string"]})
    def _func_split(self, text: str, separator: str) -> list[str]:
        return text.split(separator)


_OPTIONS = jmespath.Options(custom_functions=_Functions())


@dataclass(frozen=True, slots=True)
class Expression:
    """A JMESPath expression."""

    text: str
    parsed: Any = field(compare=False, repr=False)

    def of(self, data: object) -> Any:
        """Its value; raises jmespath's JMESPathError where data do not fit, as with `lower` of a number."""
        return self.parsed.search(data, options=_OPTIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """How to get the next page of an answer: by a token in the answer, or by the number of items so far."""

    parameter: str
    next: Expression | None = None
    items: Expression | None = None
    total: Expression | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Excluded:
    """What has no rows, and why."""

    each: Expression
    why: Template


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One question to the system, what each item of the answer means, and the questions that follow for it."""

    kind: Kind | None
    """None: the step looks at what is known already."""
    ask: Template | None
    page: Page | None
    optional: bool
    """Whether there may be nothing at the address (404)."""
    each: tuple[Expression, ...]
    when: Expression | None
    keep: MappingOf[str, tuple[Template, Template]]
    """Look-ups that items are entered in: by name, the key and the value."""
    rows: tuple[tuple[str, MappingOf[str, Template]], ...]
    not_taken: tuple[Excluded, ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """An import document."""

    path: str
    title: str
    needs: tuple[str, ...]
    """Names whose values the caller must give."""
    wildcards: str
    """Signs by which one name of the system stands for several: of `*`, `?` and `%`."""
    steps: tuple[Step, ...]


def find(document: str) -> Path:
    """The file of an import document: a path, else the name of a shipped one. Raises UsageError."""
    path = Path(document)
    if path.is_file():
        return path
    shipped = _resources.imports() / f"{document}.yaml"
    if path.suffix not in {".yaml", ".yml"} and shipped.is_file():
        return shipped
    names = _resources.import_documents()
    raise UsageError(
        f"no import document `{document}`: " + (did_you_mean(document, names) or f"there are {', '.join(names)}")
    )


def load(document: str) -> Document:
    """Read an import document by path or by name. Raises UsageError, and PolicyInvalid with every finding."""
    file = source.load(find(document))
    found: list[Diagnostic] = []
    root = compose(file, found, "an import document begins with `import: 1`")
    read = None if root is None else _MappingReader(file, found).document(root)
    if read is None or found:
        raise PolicyInvalid(in_order(found))
    return read


class _MappingReader(DocumentReader):
    """The reader of import documents."""

    NAMES: ClassVar = {"I001": "bad-import-document"}
    CODES: ClassVar = dict.fromkeys(DocumentProblem, "I001")

    def document(self, root: Node) -> Document | None:
        """The whole document."""
        fields = self.fields(
            root, "an import document", (MARK, "title", "needs", "wildcards", "steps"), (MARK, "title", "steps")
        )
        if fields is None:
            return None
        self.word(fields[MARK], f"`{MARK}`", ("1",))
        title = self.text(fields["title"], "`title`")
        needs = [text.value for text in self.texts(fields.get("needs"), "`needs`")]
        wildcards = self.text(fields.get("wildcards"), "`wildcards`")
        if wildcards is not None and set(wildcards.value) - set(WILDCARDS):
            self.report("I001", wildcards.span, f"`wildcards` are of the signs {' '.join(WILDCARDS)}")
        steps = self.steps(fields["steps"], 1)
        if title is None:
            return None
        return Document(
            path=self.source.path,
            title=title.value,
            needs=tuple(needs),
            wildcards=wildcards.value if wildcards else "",
            steps=steps,
        )

    def steps(self, node: Node | None, depth: int) -> tuple[Step, ...]:
        """A list of steps."""
        if node is None:
            return ()
        if depth > DEEPEST:
            self.report("I001", node, f"steps lie more than {DEEPEST} deep")
            return ()
        read = (self.step(item, depth) for item in self.items(node, "`steps`"))
        return tuple(step for step in read if step is not None)

    def step(self, node: Node, depth: int) -> Step | None:
        """One step."""
        fields = self.fields(node, "a step", STEP)
        if fields is None:
            return None
        kinds = [kind for kind in ("get", "sql") if kind in fields]
        if len(kinds) == 2:
            self.report("I001", fields["sql"], "a step has either `get` or `sql`")
            return None
        kind: Kind | None = "get" if kinds == ["get"] else "sql" if kinds else None
        text = self.text(fields[kind], f"`{kind}`") if kind else None
        if "page" in fields and kind != "get":
            self.report("I001", fields["page"], "only the answer to a `get` comes in pages")
        return Step(
            kind=kind,
            ask=None if text is None else Template(text.value),
            page=self.page(fields.get("page")),
            optional="optional" in fields and self.word(fields["optional"], "`optional`", ("true", "false")) == "true",
            each=self.expressions(fields.get("each"), "`each`"),
            when=next(iter(self.expressions(fields.get("when"), "`when`")), None),
            keep=self.keep(fields.get("keep")),
            rows=self.rows(fields.get("rows")),
            not_taken=self.not_taken(fields.get("not_taken")),
            steps=self.steps(fields.get("steps"), depth + 1),
        )

    def page(self, node: Node | None) -> Page | None:
        """Read how to get the next page of an answer."""
        fields = None if node is None else self.fields(node, "`page`", PAGE, ("parameter",))
        if fields is None:
            return None
        parameter = self.text(fields["parameter"], "`parameter`")
        expressions = {key: next(iter(self.expressions(fields.get(key), f"`{key}`")), None) for key in PAGE[1:]}
        if parameter is None or (expressions["next"] is None) == (expressions["items"] is None):
            self.report("I001", node, "`page` needs `next`, or `items` with `total`") if node is not None else None
            return None
        return Page(parameter=parameter.value, **expressions)

    def expressions(self, node: Node | None, where: str) -> tuple[Expression, ...]:
        """A JMESPath expression or a list of them."""
        read = (self.expression(text) for text in self.texts(node, where))
        return tuple(expression for expression in read if expression is not None)

    def expression(self, text: Located[str]) -> Expression | None:
        """One JMESPath expression."""
        try:
            return Expression(text.value, jmespath.compile(text.value))
        except jmespath.exceptions.JMESPathError as error:
            reason = str(error).splitlines()[0].rstrip(":")
            self.report("I001", text.span, f"`{text.value}` is not a JMESPath expression: {reason}")
            return None

    def rows(self, node: Node | None) -> tuple[tuple[str, MappingOf[str, Template]], ...]:
        """For each table the cells of its row."""
        found = []
        for key, value in self.entries(node, "`rows`"):
            columns = COLUMNS.get(key.text)
            if columns is None:
                self.unknown(key, value, "`rows`", tuple(COLUMNS))
                continue
            cells = self.fields(value, f"a row of `{key.text}`", columns.all, columns.required)
            read = {name: self.text(cell, f"`{name}`") for name, cell in (cells or {}).items()}
            found.append((key.text, {name: Template(cell.value) for name, cell in read.items() if cell is not None}))
        return tuple(found)

    def keep(self, node: Node | None) -> MappingOf[str, tuple[Template, Template]]:
        """Look-ups by name."""
        found = {}
        for name, value in self.entries(node, "`keep`"):
            fields = self.fields(value, f"`{name.text}`", ("key", "value"), ("key", "value"))
            key, value_text = (self.text((fields or {}).get(part), f"`{part}`") for part in ("key", "value"))
            if key is not None and value_text is not None:
                found[name.text] = (Template(key.value), Template(value_text.value))
        return found

    def not_taken(self, node: Node | None) -> tuple[Excluded, ...]:
        """What has no rows."""
        if node is None or is_empty(node):
            return ()
        found = []
        for item in (node,) if isinstance(node, Mapping) else self.items(node, "`not_taken`"):
            fields = self.fields(item, "`not_taken`", ("each", "why"), ("each", "why"))
            if fields is None:
                continue
            each, why = self.expressions(fields["each"], "`each`"), self.text(fields["why"], "`why`")
            if len(each) == 1 and why is not None:
                found.append(Excluded(each=each[0], why=Template(why.value)))
        return tuple(found)
