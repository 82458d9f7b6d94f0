"""Driver documents: how to make a world in a system, and how to ask it, in SQL or over HTTP, without code."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping as MappingOf
from pathlib import Path
from typing import ClassVar, Literal, TypeAlias

import jmespath

from privtab.base import Diagnostic, PolicyInvalid, SourceFile, dataclass
from privtab.ir import Program
from privtab.language import (
    DocumentProblem,
    DocumentReader,
    MappingNode,
    ScalarNode,
    SequenceNode,
    YamlNode,
    compose_yaml,
)
from privtab.state import TABLE_COLUMNS, State, from_tables, validate
from privtab_connect.importing.template import Template

MARK = "conform"
RESERVED = (
    "user",
    "group",
    "role",
    "caller",
    "password",
    "grantee",
    "owner",
    "principal",
    "privilege",
    "kind",
    "after",
    "effect",
    "EFFECT",
    "token",
    "basic",
)
"""The placeholders that a name of something kept would hide."""
CallKind: TypeAlias = Literal["sql", "http"]
METHODS = ("get", "head", "post", "put", "patch", "delete")
BY_TYPE = ("members", "grants", "owners")
"""The tables whose rows name an entity, so that they are made in another way for each type."""
PRINCIPALS = ("users", "groups", "roles")
IN_CALLS = (*PRINCIPALS, "rows", "privileges")
"""The keys that make a state by calls, which a system that reads its state from a file does not need."""
_ANSWERS = ("allowed", "refused", "hidden")
_COMMON = (*IN_CALLS, "levels", "exact_names", "entities", "state", "operations", *_ANSWERS, "separator")
_SQL = (*_COMMON, "quote", "as", "database")
_HTTP = (*_COMMON, "headers", "as")
_REQUEST = (*METHODS, "body", "headers", "allowed", "keep")
_OPERATION = ("sql", "login", "changes", "restore", "refused", "hidden", "shows", *_REQUEST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One SQL statement, or one HTTP request: its method, path, headers and body."""

    text: Template
    method: str = ""
    headers: tuple[tuple[str, Template], ...] = ()
    body: Template | None = None
    allowed: tuple[str, ...] = ()
    """Statuses beside 2xx with which something counts as made."""
    keep: tuple[tuple[str, str], ...] = ()
    """What is kept of the answer: a name for later placeholders, and a JMESPath expression."""

    @property
    def templates(self) -> tuple[Template, ...]:
        """All texts with placeholders."""
        body = () if self.body is None else (self.body,)
        return (self.text, *body, *(text for _, text in self.headers))


Calls: TypeAlias = tuple[Call, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPatterns:
    """Marks in an answer that tell the system's reaction: codes of errors, statuses, or parts of messages."""

    allowed: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifecycle:
    """The calls that create and remove an object; without `drop`, the object is removed with its container."""

    make: Calls
    drop: Calls
    find: Calls = ()
    """The calls that keep of an existing object what `make` keeps of a new one."""
    outside: bool = False
    """True if the calls run outside the database of this name, since the object is that database."""

    @property
    def kept(self) -> tuple[str, ...]:
        """The names of what is kept of such an object."""
        return tuple(dict.fromkeys(name for call in (*self.make, *self.find) for name, _ in call.keep))


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """The calls that ask an operation. `shows`: a JMESPath expression for the names that a listing shows."""

    calls: Calls
    signs: AnswerPatterns
    login: bool = False
    changes: bool = False
    shows: str | None = None
    restore: Calls = ()
    """The calls of the administrator that undo what an allowed question changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverDocument:
    """A driver document. Rows are by table, and by type for tables that name an entity."""

    path: str
    title: str
    kind: CallKind
    principals: MappingOf[str, Lifecycle]
    entities: MappingOf[str, Lifecycle]
    rows: MappingOf[tuple[str, str], Calls]
    state: State | None
    """Rows beside the rows of a test, for a system whose state is in a file; None: principals and rows are made by calls."""
    privileges: MappingOf[str, MappingOf[str, str]]
    levels: bool
    """True if privileges are levels: a grantee has one on an entity, which implies the others that they are to have."""
    exact_names: bool
    """True if names may differ in case alone, and if types and kinds of principals may share names."""
    operations: MappingOf[tuple[str, str], Operation]
    quote: str
    separator: str
    """The separator between the names of the levels of a type that nests."""
    become: Calls
    """The calls by which a connection becomes a user; for HTTP the headers of a user are in `headers`."""
    database: str | None
    headers: tuple[tuple[str, Template], ...]
    admin_headers: tuple[tuple[str, Template], ...]


def load(path: str | Path, program: Program) -> DriverDocument:
    """Read a driver document for a policy. Raises FileError, and PolicyInvalid with every finding."""
    file = SourceFile.load(path)
    found: list[Diagnostic] = []
    root = compose_yaml(file, found, "a driver document begins with `conform: 1`")
    read = None if root is None else _DriverReader(file, found, program).document(root)
    if read is None or found:
        raise PolicyInvalid(found)
    return read


class _DriverReader(DocumentReader):
    """The reader of driver documents."""

    NAMES: ClassVar = {"C001": "bad-driver-document"}
    CODES: ClassVar = dict.fromkeys(DocumentProblem, "C001")

    def __init__(self, file: SourceFile, found: list[Diagnostic], program: Program) -> None:
        super().__init__(file, found)
        self.program = program
        self.kind: CallKind = "sql"

    def document(self, root: YamlNode) -> DriverDocument | None:
        """The whole document."""
        fields = self.fields(root, "a driver document", (MARK, "title", "sql", "http"), (MARK, "title"))
        if fields is None:
            return None
        self.word(fields[MARK], f"`{MARK}`", ("1",))
        title = self.text(fields["title"], "`title`")
        if ("sql" in fields) == ("http" in fields):
            self.report("C001", root, "a driver document has either `sql` or `http`")
            return None
        self.kind = "sql" if "sql" in fields else "http"
        inner = self.fields(fields[self.kind], f"`{self.kind}`", _SQL if self.kind == "sql" else _HTTP, ("operations",))
        if inner is None or title is None:
            return None
        texts = {key: self.text(inner.get(key), f"`{key}`") for key in ("quote", "database", "separator")}
        database = texts["database"]
        if database is not None and database.value not in self.program.entities:
            advice = self.near(database.value, self.program.entities, "types")
            self.report("C001", database.span, f"unknown type `{database.value}`", advice)
        signs = self.signs(inner, AnswerPatterns())
        http = self.kind == "http"
        return DriverDocument(
            path=self.source.path,
            title=title.value,
            kind=self.kind,
            principals={kind: self.made(inner[kind], f"`{kind}`") for kind in PRINCIPALS if kind in inner},
            entities={
                key.text: self.made(value, f"`{key.text}`")
                for key, value in self.known(inner.get("entities"), "`entities`", self.program.entities)
            },
            rows=self.rows(inner.get("rows")),
            state=self.state(inner.get("state"), inner),
            privileges={
                key.text: {name.value: text.value for name, text in self.pairs(value, f"`{key.text}`")}
                for key, value in self.known(inner.get("privileges"), "`privileges`", self.program.privileges)
            },
            levels=self.flag(inner, "levels"),
            exact_names=self.flag(inner, "exact_names"),
            operations=dict(self.operations(inner["operations"], signs)),
            quote=texts["quote"].value if texts["quote"] else '"',
            separator=texts["separator"].value if texts["separator"] else "/" if http else ".",
            become=() if http else self.calls(inner.get("as"), "`as`"),
            database=database.value if database else None,
            headers=self.headers(inner.get("as")) if http else (),
            admin_headers=self.headers(inner.get("headers")),
        )

    def known(self, node: YamlNode | None, what: str, names: Iterable[str]) -> list[tuple[ScalarNode, YamlNode]]:
        """The entries of a mapping whose keys are names of the policy."""
        names = tuple(names)
        found: list[tuple[ScalarNode, YamlNode]] = []
        for key, value in self.entries(node, what):
            if key.text in names:
                found.append((key, value))
            else:
                self.unknown(key, value, what, names)
        return found

    def made(self, node: YamlNode, what: str) -> Lifecycle:
        """Read the calls that create and remove an object."""
        keys = ("make", "find", "drop") if self.kind == "http" else ("make", "drop", "outside")
        fields = self.fields(node, what, keys, ("make",)) or {}
        make, find, drop = (self.calls(fields.get(key), f"`{key}`") for key in ("make", "find", "drop"))
        return Lifecycle(make=make, find=find, drop=drop, outside=self.flag(fields, "outside"))

    def rows(self, node: YamlNode | None) -> MappingOf[tuple[str, str], Calls]:
        """Read the calls that create rows of a state."""
        found: dict[tuple[str, str], Calls] = {}
        for key, value in self.known(node, "`rows`", tuple(TABLE_COLUMNS)):
            if key.text in BY_TYPE:
                for type_, calls in self.known(value, f"`{key.text}`", self.program.entities):
                    found[key.text, type_.text] = self.calls(calls, f"`{type_.text}`")
            else:
                found[key.text, ""] = self.calls(value, f"`{key.text}`")
        return found

    def state(self, node: YamlNode | None, beside: MappingOf[str, YamlNode]) -> State | None:
        """Rows of a state, instead of what makes one by calls."""
        if node is None:
            return None
        for key in IN_CALLS:
            if key in beside:
                self.report("C001", beside[key], f"`{key}` makes a state by calls, which `state` says is in a file")
        tables = self.plain(node)
        state, findings = validate(self.program, from_tables(tables, self.source.path), notes=False)
        for finding in findings:
            self.report("C001", node, finding.message, finding.help)
        return state

    def operations(self, node: YamlNode, signs: AnswerPatterns) -> Iterable[tuple[tuple[str, str], Operation]]:
        """Read the calls that ask operations, by type and name; several names may share one entry: `alter, drop`."""
        for type_, value in self.known(node, "`operations`", self.program.entities):
            names = tuple(operation for entity, operation in self.program.rules if entity == type_.text)
            for key, entry in self.entries(value, f"`{type_.text}`"):
                for name in (part.strip() for part in key.text.split(",")):
                    if name in names:
                        yield (type_.text, name), self.operation(entry, signs)
                        continue
                    message = f"unknown operation `{name}` on `{type_.text}`"
                    self.report("C001", key, message, self.near(name, names, "operations"))

    def operation(self, node: YamlNode, signs: AnswerPatterns) -> Operation:
        """One operation: its calls, or a mapping that says more."""
        if not isinstance(node, MappingNode):
            return Operation(calls=self.calls(node, "an operation"), signs=signs)
        fields = self.fields(node, "an operation", _OPERATION) or {}
        calls = self.calls(fields["sql"], "`sql`") if "sql" in fields else self.http(node, fields)
        shows = self.text(fields.get("shows"), "`shows`")
        restore = self.calls(fields.get("restore"), "`restore`")
        changing = any(call.method not in ("", "get", "head") for call in calls) and not restore
        if restore and "changes" in fields:
            self.report(
                "C001", fields["changes"], "`changes` is for what `restore` does not undo: leave one of them out"
            )
        return Operation(
            calls=calls,
            signs=self.signs(fields, signs),
            login=self.flag(fields, "login"),
            changes=self.flag(fields, "changes") if "changes" in fields else changing,
            shows=None if shows is None else shows.value,
            restore=restore,
        )

    def flag(self, fields: MappingOf[str, YamlNode], key: str) -> bool:
        """Return whether a key says `true`."""
        return self.word(fields.get(key), f"`{key}`", ("true", "false")) == "true"

    def calls(self, node: YamlNode | None, what: str) -> Calls:
        """Statements or requests, one or a list."""
        if node is None:
            return ()
        found: list[Call] = []
        for item in node.items if isinstance(node, SequenceNode) else (node,):
            if self.kind == "sql":
                text = self.text(item, what)
                found += [] if text is None else [Call(text=Template(text.value))]
            else:
                found += self.http(item, self.fields(item, what, _REQUEST) or {})
        return tuple(found)

    def http(self, node: YamlNode, fields: MappingOf[str, YamlNode]) -> Calls:
        """One HTTP request."""
        methods = [method for method in METHODS if method in fields]
        if len(methods) != 1:
            if fields:
                listed = ", ".join(f"`{method}`" for method in METHODS)
                self.report("C001", node, f"a request has one of {listed}, with its path")
            return ()
        path = self.text(fields[methods[0]], f"`{methods[0]}`")
        body = self.text(fields.get("body"), "`body`")
        if path is None:
            return ()
        return (
            Call(
                text=Template(path.value),
                method=methods[0],
                headers=self.headers(fields.get("headers")),
                body=None if body is None else Template(body.value),
                allowed=self.signs(fields, AnswerPatterns()).allowed,
                keep=tuple(self.keep(fields.get("keep"))),
            ),
        )

    def keep(self, node: YamlNode | None) -> Iterable[tuple[str, str]]:
        """Names of what is kept of an answer, each with the expression that finds it there."""
        for name, path in self.pairs(node, "`keep`"):
            if not name.value.isidentifier() or name.value in self.program.entities or name.value in RESERVED:
                self.report(
                    "C001",
                    name.span,
                    f"`{name.value}` cannot be the name of what is kept: it has a meaning, or is no name",
                )
            try:
                jmespath.compile(path.value)
            except jmespath.exceptions.JMESPathError as error:
                self.report(
                    "C001", path.span, f"`{path.value}` is no JMESPath expression: {str(error).splitlines()[0]}"
                )
            else:
                yield name.value, path.value

    def headers(self, node: YamlNode | None) -> tuple[tuple[str, Template], ...]:
        """Headers by name."""
        return tuple((name.value, Template(text.value)) for name, text in self.pairs(node, "`headers`"))

    def signs(self, fields: MappingOf[str, YamlNode], usual: AnswerPatterns) -> AnswerPatterns:
        """The marks of answers, where they differ from the usual ones."""

        def words(name: str, otherwise: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(text.value for text in self.texts(fields[name], f"`{name}`")) if name in fields else otherwise

        return AnswerPatterns(
            allowed=words("allowed", usual.allowed),
            refused=words("refused", usual.refused),
            hidden=words("hidden", usual.hidden),
        )
