"""From a table on a page to a policy: what its cells say where they follow a pattern, and every cell that does not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import unescape
from itertools import zip_longest
from typing import Any

import yaml

from privtab.base.diagnostics import Diagnostic, FindingKind, Severity
from privtab.base.errors import UsageError
from privtab.base.hints import did_you_mean, listed
from privtab.base.names import small_letters
from privtab.base.source import SourceFile
from privtab.language.fmt import format_source
from privtab.language.syntax.expression import (
    CellError,
    Effects,
    EffectTerm,
    Expression,
    Name,
    PrivilegeTerm,
    Related,
    parse_condition,
    parse_effects,
    walk,
)
from privtab_pages.tables import Cell, Row, Table

UNREADABLE = FindingKind("T101", "unreadable-cell", Severity.ERROR)
TWICE = FindingKind("T102", "row-twice", Severity.ERROR)
EDITED = FindingKind("T103", "edited-page", Severity.ERROR)
COMPARED = 4
"""How many columns of a page's rows say what the policy does: the operation, its condition, the smallest sets, effects."""
_OWN_MARKDOWN = re.compile(r"^(?P<fence>`{3,})yaml privtab\n(?P<policy>.*?)^(?P=fence)$", re.MULTILINE | re.DOTALL)
_OWN_HTML = re.compile(r'<pre id="policy">(?P<policy>.*?)</pre>', re.DOTALL)
_EDIT = "pages are made from policies: change the policy that the page carries, or the one it was made from"

HEADINGS: dict[str, tuple[str, ...]] = {
    "entity": ("entity", "object", "resource", "type", "securable", "securable object", "entity type"),
    "operation": ("operation", "action", "api", "command", "operation name"),
    "requires": (
        "requires",
        "required privileges",
        "required privilege",
        "privileges",
        "privilege",
        "permissions",
        "required permissions",
        "required condition",
        "required condition(s)",
    ),
    "effects": ("on success", "resultant privileges", "effects", "grants"),
    "note": ("notes", "note", "description", "comment", "comments", "remarks"),
}
"""What a column is called that holds a part of a row."""
PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\bAND\b"), "and"),
    (re.compile(r"\bOR\b"), "or"),
    (re.compile(r"\bon (?:the |an? )?(\w+)(?=$| and\b| or\b|\))"), r"(\1)"),
    (re.compile(r"\bowner of (?:the |an? )?(\w+)"), r"owner (\1)"),
    (
        re.compile(
            r"^(?:none|no privileges?|no privileges? (?:is |are )?(?:required|needed)|anybody|everyone)$", re.IGNORECASE
        ),
        "anyone",
    ),
)
"""Ways of writing a condition beside the language's own, each with what it stands for."""
_WORDS = re.compile(r"[^\W_]+")


@dataclass(kw_only=True)
class TableReader:
    """Reads privilege tables into one policy."""

    system: str
    version: str
    document: str
    columns: Mapping[str, str] = field(default_factory=dict)
    """The name of a column for each part of a row whose column has another name than HEADINGS say."""
    names: Mapping[str, str] = field(default_factory=dict)
    """How a name of the page is written in the policy: `Programs` as `program`."""
    inside: Mapping[str, str] = field(default_factory=dict)
    """The type that contains each; the others are roots."""
    sets: Mapping[str, str] = field(default_factory=dict)
    """Names that stand for several privileges: `READ,WRITE`."""
    found: list[Diagnostic] = field(default_factory=list)
    left_out: list[Cell] = field(default_factory=list)
    """The headings of columns that are not read, and the first of each table that is not."""
    shifted: int = 0
    """Rows that lack their first cell, as rows below a cell that spans them do in some Markdown: of the entity above."""

    def read(self, tables: Sequence[Table]) -> str | None:
        """The policy as YAML, without the rows that could not be read; None if no table is one of privileges."""
        columns_of = [(table, self._columns(table)) for table in tables]
        chosen = [(table, columns) for table, columns in columns_of if columns]
        self.left_out = [cell for table, columns in columns_of for cell in _left_out(table, columns)]
        for cell in self.left_out:
            part = next((part for part, known in HEADINGS.items() if _heading(cell) in known), "note")
            if part not in ("note", *self.columns):
                message = f"`{_joined(cell.text)}` may hold the part `{part}`, too, and is not read"
                self.found.append(UNREADABLE.at(cell.span, message, f"say which column does: `--column {part}=NAME`"))
        if not chosen:
            return None
        self._titles: dict[str, str] = {}
        self._privileges: dict[str, None] = {}
        self._unknown: dict[str, Cell] = {}
        self._owners = False
        rows = [row for table, columns in chosen for row in self._rows(table, columns)]
        for entity, _, _ in rows:
            self._titles.setdefault(self._name(entity), entity.text)
        for name in (*self.inside, *self.inside.values()):
            self._titles.setdefault(name, "")
        written: dict[str, dict[str, Any]] = {}
        for entity, operation, row in rows:
            for name, title in self._operations(operation):
                self._row(written, self._name(entity), name, title, row)
        for name, cell in self._unknown.items():
            if name not in self._privileges:
                message = f"`{name}` is no privilege that a row of the page requires"
                advice = f"if it stands for several: `--set {name}=READ,WRITE`"
                self.found.append(UNREADABLE.at(cell.span, message, advice))
        return self._yaml(written)

    def _columns(self, table: Table) -> dict[str, int] | None:
        """The position of each part in the rows of a table; None if it is not about operations and what they require."""
        texts = list(map(_heading, table.header.cells))
        wanted = HEADINGS | {part: (name.lower(),) for part, name in self.columns.items()}
        named = {part: next(filter(texts.__contains__, wanted[part]), None) for part in HEADINGS}
        found = {part: texts.index(name) for part, name in named.items() if name is not None}
        return found if {"operation", "requires"} <= found.keys() else None

    def _rows(self, table: Table, columns: Mapping[str, int]) -> Iterator[tuple[Cell, Cell, dict[str, Cell]]]:
        """The rows of a table with the cell that names the entity, that of the operation, and the others."""
        entity = Cell(table.heading, table.header.cells[0].span)
        for row in table.rows:
            cells = [*row.cells, *[Cell("", row.cells[0].span)] * len(table.header.cells)]
            parts = {part: cells[at] for part, at in columns.items()}
            if self._lacks_first(row, columns, parts):
                self.shifted += 1
                parts = {part: cells[at - 1] for part, at in columns.items() if part != "entity"}
            elif "entity" in parts and parts["entity"].text:
                entity = parts["entity"]
            if any(self._operations(parts["operation"])):
                yield entity, parts["operation"], parts
            elif any(parts[part].text for part in ("operation", "requires", "effects") if part in parts):
                cell = next(cell for cell in row.cells if cell.text)
                message = f"`{_joined(' | '.join(cell.text for cell in row.cells))}` names no operation"
                self.found.append(UNREADABLE.at(cell.span, message, "write the operation in its cell"))

    def _lacks_first(self, row: Row, columns: Mapping[str, int], parts: Mapping[str, Cell]) -> bool:
        at = columns["requires"]
        if columns.get("entity") != 0 or columns["operation"] != 1 or len(row.cells) < at:
            return False
        if row.cells[-1].text and len(row.cells) > at:
            return False
        _, given = _condition(parts["requires"].text)
        _, before = _condition(row.cells[at - 1].text)
        return isinstance(given, CellError) and not isinstance(before, CellError)

    def _operations(self, cell: Cell) -> Iterator[tuple[str, str]]:
        """The operations that a cell names, several with `/` between them, each with its title."""
        for text in re.split(r"\s*/\s*|\n", cell.text):
            if name := _identifier(text):
                yield name, text

    def _row(
        self, written: dict[str, dict[str, Any]], entity: str, operation: str, title: str, parts: Mapping[str, Cell]
    ) -> None:
        cell = parts["requires"]
        condition = self._text(cell, *_condition(cell.text))
        grants = None
        if (effects := parts.get("effects")) and effects.text:
            grants = self._text(effects, _joined(effects.text), parse_effects(_joined(effects.text)))
            if grants is None:
                return
        if condition is None:
            return
        rows = written.setdefault(entity, {})
        if operation in rows:
            self.found.append(TWICE.at(cell.span, f"`{entity}` has a row `{operation}` already"))
            return
        note = parts["note"].text if "note" in parts else ""
        rows[operation] = {
            **({} if operation.replace("_", " ") == title else {"title": title}),
            "requires": condition,
            **({"grants": grants} if grants else {}),
            **({"note": _joined(note)} if note else {}),
            "source": cell.span.line,
        }

    def _text(self, cell: Cell, text: str, tree: Expression | Effects | CellError) -> str | None:
        """A condition or effects with the policy's names; None, and a finding, if some name is unknown or it follows no pattern."""
        if isinstance(tree, CellError):
            self.found.append(UNREADABLE.at(cell.span, f"cannot read `{_joined(cell.text)}`: {tree.message}", _HELP))
            return None
        targets = list(_targets(tree))
        self._owners |= _names_owners(tree)
        for name in _privileges(tree):
            if name.text not in self.sets and not isinstance(tree, tuple):
                self._privileges.setdefault(name.text)
            elif name.text not in (*self.sets, *self._privileges):
                self._unknown[name.text] = cell
        known = {**dict.fromkeys(self._titles), "entity": None, "parent": None}
        for target in reversed(targets):
            type_ = self.names.get(target.text, target.text)
            type_ = type_ if type_ in known else _identifier(type_)
            if type_ not in known:
                hint = did_you_mean(type_, known) or f"the types are {listed(list(self._titles))}"
                message = f"cannot read `{_joined(cell.text)}`: `{target.text}` is no type"
                advice = f"{hint}; or name it by `--name {target.text}=TYPE`"
                self.found.append(UNREADABLE.at(cell.span, message, advice))
                return None
            text = text[: target.start] + type_ + text[target.end :]
        return text

    def _name(self, cell: Cell) -> str:
        return self.names.get(cell.text) or _identifier(cell.text) or "entity"

    def _yaml(self, written: Mapping[str, Mapping[str, Any]]) -> str:
        document = {
            "privtab": 1,
            "system": self.system,
            "version": self.version,
            "sources": {"page": {"document": self.document}},
            "entities": self._tree(None),
            "types": {name: {"title": title} for name, title in self._titles.items() if title and title != name},
            "privileges": list(self._privileges),
            "sets": {name: [part.strip() for part in members.split(",")] for name, members in self.sets.items()},
            # What a page does not say is read as narrowly as can be.
            "semantics": {
                "inheritance": "none",
                "deny": "none",
                **({"owner": {"creator": False}} if self._owners else {}),
            },
            "tables": written,
        }
        text = yaml.safe_dump(
            {key: value for key, value in document.items() if value},
            sort_keys=False,
            allow_unicode=True,
            width=120,
            default_flow_style=None,
        )
        formatted, _ = format_source(SourceFile.of("policy.yaml", text))
        return formatted or text

    def _tree(self, parent: str | None) -> dict[str, Any]:
        return {name: self._tree(name) for name in self._titles if self.inside.get(name) == parent}


_HELP = "write it as the language does: `READ (table)`, `READ/WRITE (table)`, `owner (schema) and USE (catalog)`"


def _left_out(table: Table, columns: Mapping[str, int] | None) -> Sequence[Cell]:
    """The headings of columns that are not read; that of the first column for a table that is not."""
    cells = table.header.cells
    if columns is None:
        return cells[:1]
    return [cell for at, cell in enumerate(cells) if at not in columns.values() and cell.text]


def _condition(text: str) -> tuple[str, Expression | CellError]:
    """A condition as the language writes it, and its tree or the error: as it stands, else by the patterns."""
    text = _joined(text)
    parsed = parse_condition(text)
    if not isinstance(parsed, CellError):
        return text, parsed
    for pattern, instead in PATTERNS:
        text = pattern.sub(instead, text)
    again = parse_condition(text)
    return text, parsed if isinstance(again, CellError) else again


def _privileges(tree: Expression | Effects) -> Iterator[Name]:
    for node in tree if isinstance(tree, tuple) else walk(tree):
        match node:
            case PrivilegeTerm(privileges):
                yield from privileges
            case EffectTerm(names):
                yield from (name for name in names if name.text != "owner")
            case _:
                pass


def _targets(tree: Expression | Effects) -> Iterator[Name]:
    """The names of types in a condition or in effects, in the order of the text."""
    for node in tree if isinstance(tree, tuple) else walk(tree):
        yield from getattr(node, "targets", ())


def _names_owners(tree: Expression | Effects) -> bool:
    if isinstance(tree, tuple):
        return any(name.text == "owner" for term in tree for name in term.names)
    return any(isinstance(node, Related) and node.kind == "owner" for node in walk(tree))


def _heading(cell: Cell) -> str:
    return _joined(cell.text.lower())


def _joined(text: str) -> str:
    return " ".join(text.split())


def _identifier(text: str) -> str:
    return "_".join(_WORDS.findall(small_letters(text))).lower()


def own_policy(source: SourceFile) -> str | None:
    """The policy that a page of `privtab docs` carries; None for other pages and for those made from bundles."""
    pattern = _OWN_HTML if source.path.endswith((".html", ".htm")) else _OWN_MARKDOWN
    found = pattern.search(source.text)
    return None if found is None else unescape(found["policy"]) if pattern is _OWN_HTML else found["policy"]


def edited(given: Sequence[Table], made: Sequence[Table]) -> Iterator[Diagnostic]:
    """The cells of a page that are not as its policy makes them; `made`: the tables of the page made again."""
    rows = {row.anchor: row for table in made for row in table.rows if row.anchor}
    seen = set()
    for row in (row for table in given if any(row.anchor for row in table.rows) for row in table.rows):
        expected = rows.get(row.anchor)
        if expected is None or row.anchor in seen:
            name = row.anchor or _joined(row.cells[0].text)
            message = f"the policy of this page has no {'other ' * (row.anchor in seen)}row `{name}`"
            yield EDITED.at(row.cells[0].span, message, _EDIT)
            continue
        seen.add(row.anchor)
        empty = Cell("", row.cells[0].span)
        for cell, other in zip_longest(row.cells[:COMPARED], expected.cells[:COMPARED], fillvalue=empty):
            if cell.text != other.text:
                message = f"the page says `{_joined(cell.text)}`, its policy `{_joined(other.text)}`"
                yield EDITED.at(cell.span, message, _EDIT)
    for anchor in (anchor for anchor in rows if anchor not in seen):
        top = (given or made)[0].header.cells[0].span
        yield EDITED.at(top, f"the row `{anchor}` of the policy is not on the page", _EDIT)


def no_table(path: str, tables: Sequence[Table]) -> UsageError:
    """Why no table of a page can be read."""
    headers = [", ".join(f"`{cell.text}`" for cell in table.header.cells if cell.text) for table in tables]
    if not headers:
        return UsageError(f"{path} has no table")
    return UsageError(
        f"no table of {path} has a column for operations and one for what these require (columns: {'; '.join(headers)}): "
        "name them by `--column operation=NAME` and `--column requires=NAME`"
    )
