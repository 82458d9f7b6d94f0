"""Turns a table on a page into a policy: it reads cells that follow a pattern, and reports every cell that does not."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import unescape
from itertools import zip_longest
from shlex import quote
from typing import Any, Literal, NamedTuple
from unicodedata import normalize

import yaml

from privtab.base import Diagnostic, FindingKind, Severity, SourceFile, UsageError, did_you_mean, listed_names
from privtab.language import cell_names, format_source
from privtab_pages.tables import STRUCK, Cell, Table

UNREADABLE = FindingKind("T101", "unreadable-cell", Severity.ERROR)
TWICE = FindingKind("T102", "row-twice", Severity.ERROR)
EDITED = FindingKind("T103", "edited-page", Severity.ERROR)
LEFT_OUT = FindingKind("T104", "left-out", Severity.ERROR)
COMPARED = 4
"""The number of columns of a page's rows that say what the policy does: the operation, its condition, the smallest sets, effects."""
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
"""The headings of columns that hold a part of a row."""
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
"""Ways of writing a condition beside the language's own, each with its meaning."""
_WORDS = re.compile(r"[A-Za-z0-9]+")
_NEXT_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORD = re.compile(r"\w")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[ _-]+[A-Za-z0-9]+)*")
_IGNORED = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Characters that Unicode has as printable, and fonts show as nothing."""


class _Row(NamedTuple):
    """The operations of a row of the page."""

    entity: str
    operations: Sequence[tuple[str, str]]
    parts: Mapping[str, Cell]
    whole: bool
    """True if everything was read or accepted as left out."""


@dataclass(kw_only=True)
class TableReader:
    """Reads privilege tables into one policy."""

    system: str
    version: str
    document: str
    columns: Mapping[str, str] = field(default_factory=dict)
    """The name of a column for each part of a row whose column has another name than HEADINGS say."""
    names: Mapping[str, str] = field(default_factory=dict)
    """The names of the policy for names of the page: `program` for `Programs`."""
    inside: Mapping[str, str] = field(default_factory=dict)
    """The type that contains each; the others are roots."""
    sets: Mapping[str, str] = field(default_factory=dict)
    """Names that stand for several privileges: `READ,WRITE`."""
    accepted: Collection[str] = ()
    """The parts that may be left out, by the names that findings give them."""
    found: list[Diagnostic] = field(default_factory=list)

    def read(self, tables: Sequence[Table]) -> str | None:
        """The policy as YAML, without the rows that could not be read whole; None if no table is one of privileges."""
        columns_of = [(table, None if table.lost else self._columns(table)) for table in tables]
        chosen = [(table, columns) for table, columns in columns_of if columns]
        if not chosen:
            return None
        self._titles: dict[str, str] = {}
        self._privileges: dict[str, None] = {}
        self._unknown: dict[str, Cell] = {}
        self._owners = False
        self._spans = {0: chosen[0][0].header.cells[0].span}
        rows: list[_Row] = []
        for table, columns in columns_of:
            if columns:
                rows += self._rows(table, columns)
            else:
                first = table.header.cells[0]
                name = _joined(table.heading.strip("~ ") or first.text or "".join(text for _, text in first.lost))
                name = f"sheet {table.sheet}" if table.sheet else f"table {name or 'without a name'}"
                why = f"is {table.lost}" if table.lost else "has no columns for operations and what these require"
                self._leave_out(first, name, f"{name} is not read: it {why}")
        for name in (*self.inside, *self.inside.values()):
            self._titles.setdefault(name, "")
        written: dict[str, dict[str, Any]] = {}
        times = Counter((row.entity, operation) for row in rows for operation, _ in row.operations)
        for row in rows:
            for operation, title in row.operations:
                self._row(written, row, operation, title, times)
        for name, cell in self._unknown.items():
            if name not in self._privileges:
                message = f"`{name}` is no privilege that a row of the page requires"
                advice = f"if it stands for several: `--set {name}=READ,WRITE`"
                self._refuse(cell, message, advice)
        if not written and not self.found:
            self._refuse(chosen[0][0].header.cells[0], "the table has no row")
        return self._yaml(written)

    def on_page(self, finding: Diagnostic, policy: SourceFile) -> Diagnostic:
        """A finding of the policy that was read, at the condition of the page that it comes from."""
        begin = policy.starts[finding.span.line - 1] + finding.span.column - 1
        row = re.compile(r"\bsource: (\d+)").search(policy.text, begin)
        span = self._spans.get(int(row[1]) if row else 0, self._spans[0])
        return replace(finding, span=span, fix=None, related=())

    def _leave_out(self, cell: Cell, name: str, message: str, advice: str = "") -> bool:
        """Return whether a part may be left out; reports a finding if nobody accepted that."""
        if name not in self.accepted:
            self.found.append(LEFT_OUT.at(cell.span, message, f"to do without: `--accept {quote(name)}`{advice}"))
        return name in self.accepted

    def _refuse(self, cell: Cell, message: str, advice: str | None = None) -> None:
        self.found.append(UNREADABLE.at(cell.span, message, advice))

    def _columns(self, table: Table) -> dict[str, int] | None:
        """The position of each part in the rows of a table; None if the table has no operations with requirements."""
        texts = list(map(_heading, table.header.cells))
        wanted = HEADINGS | {part: (name.lower(),) for part, name in self.columns.items()}
        named = {part: next(filter(texts.__contains__, wanted[part]), None) for part in HEADINGS}
        found = {part: texts.index(name) for part, name in named.items() if name is not None}
        return found if {"operation", "requires"} <= found.keys() else None

    def _rows(self, table: Table, columns: Mapping[str, int]) -> Iterator[_Row]:
        """The rows of a table that name operations."""
        entity = Cell("" if "entity" in columns else table.heading, table.header.cells[0].span)
        self._seen(table.header.cells)
        missed = list(self._missed(table, columns))
        for row in table.rows:
            blank = Cell("", row.cells[0].span)
            cells = [*row.cells, *[blank] * len(table.header.cells)]
            whole = self._seen(row.cells) and not any(cells[at].text for at in missed if at < len(cells))
            parts = {part: cells[at] for part, at in columns.items()}
            if self._lacks_first(cells, columns):
                message = f"`{_joined(cells[0].text)}` lacks its entity: is it an operation of the one above?"
                whole &= not cells[0].text or self._leave_out(cells[0], "shifted", message)
                parts = {part: cells[at - 1] for part, at in columns.items() if part != "entity"}
            elif (first := parts.get("entity")) and (first.text or first.lost):
                entity = first
            stated = [cell for part, cell in parts.items() if cell.text and part != "entity"]
            if not stated:
                continue
            if len({*map(id, (*stated, entity))}) <= len(stated):
                self._refuse(stated[0], "one cell stands under several headings")
            elif not _WORD.search(parts["operation"].text):
                text = _joined(" | ".join(cell.text for cell in row.cells))
                self._refuse(stated[0], f"`{text}` names no operation", "write the operation in its cell")
            elif not entity.text:
                message = f"nothing says what `{_joined(parts['operation'].text)}` is done to"
                self._refuse(parts["operation"], message, "write the type as a heading or in a column `Entity`")
            elif (type_ := self._type(entity)) and (operations := self._named(parts["operation"], "operation")):
                hidden = [part for part in ("requires", "effects") if part in parts and not self._plain(parts[part])]
                yield _Row(type_, operations, parts, whole and not hidden)

    def _seen(self, cells: Sequence[Cell]) -> bool:
        """Return whether all text of a row is there, but for parts that may be left out."""
        whole = True
        for cell in dict.fromkeys(cells):
            for state in dict.fromkeys(state for state, _ in cell.lost):
                text = _joined("".join(text for other, text in cell.lost if other == state))
                message = f"`{text}` is not read: it is {'struck out' if state == STRUCK else 'hidden'}"
                whole &= self._leave_out(cell, state, message)
        return whole

    def _missed(self, table: Table, columns: Mapping[str, int]) -> Iterator[int]:
        """The columns with text that hold no part of a row, and that nobody said to leave out."""
        for at, cells in enumerate(zip_longest(*(row.cells for row in (table.header, *table.rows)))):
            first = next((cell for cell in cells if cell and cell.text), None)
            if first is None or at in columns.values():
                continue
            heading = _joined(cells[0].text if cells[0] else "")
            part = next((part for part, known in HEADINGS.items() if heading.lower() in known), "note")
            also = "" if part in ("note", *self.columns) else f", and may hold the part `{part}`, too"
            advice = f"; or say what it holds: `--column {part}={quote(heading)}`" if heading else ""
            name = heading or f"column {at + 1}"
            if not self._leave_out(first, name, f"the column `{name}` is not read: it may ask for more{also}", advice):
                yield at

    def _lacks_first(self, cells: Sequence[Cell], columns: Mapping[str, int]) -> bool:
        """Return whether a row lacks its first cell, as rows below a cell that spans them do in some Markdown.

        Only if nothing stands where its condition would be: a condition that cannot be read moves no other.
        """
        at = columns["requires"]
        if (
            columns.get("entity") != 0
            or columns["operation"] != 1
            or any(cell.text or cell.lost for cell in cells[at:])
        ):
            return False
        return bool(cells[at - 1].text) and not isinstance(cell_names(_condition(cells[at - 1].text), "condition"), str)

    def _plain(self, cell: Cell) -> bool:
        """Return whether all characters of a cell are seen as what they are; reports a finding if not."""
        for character in cell.text.replace("\n", ""):
            if not character.isprintable() or _IGNORED.match(character) or normalize("NFKC", character) != character:
                message = f"`{_joined(cell.text)}` has the character U+{ord(character):04X}, which is not seen as it is"
                self._refuse(cell, message, "write it without")
                return False
        return True

    def _type(self, cell: Cell) -> str | None:
        """The type that a cell or a heading names; types that another text also names are not merged."""
        for name, text in self._named(cell, "type"):
            other = self._titles.setdefault(name, text)
            if _joined(other).lower() == text.lower() or text in self.names:
                return name
            message = f"`{text}` and `{_joined(other)}` would both be the type `{name}`"
            self._refuse(cell, message, f"name it: `--name {quote(text)}=TYPE`")
        return None

    def _named(self, cell: Cell, what: str) -> list[tuple[str, str]]:
        """The names that a text stands for, each with its title: its own words, unless `--name` says others."""
        text = _joined(cell.text)
        given = [name.strip() for name in self.names.get(text, "").split(",")]
        if len(given) > 1 and what == "operation":
            return [(name, name) for name in given]
        if given != [""]:
            return [(given[0], text)]
        if not self._plain(cell):
            return []
        if cell.notes:
            advice = f"name it: `--name {quote(text)}=NAME`"
            self._refuse(cell, f"`{text}` has the footnote `{cell.notes[0]}`, which may ask for more", advice)
            return []
        if _NAME.fullmatch(cell.text):
            return [(_identifier(text), text)]
        self._refuse(cell, f"`{text}` cannot be the name of one {what}", f"name it: `--name {quote(text)}=NAME`")
        return []

    def _row(
        self, written: dict[str, dict[str, Any]], row: _Row, operation: str, title: str, times: Counter[tuple[str, str]]
    ) -> None:
        cell = row.parts["requires"]
        condition = self._text(cell, _condition(cell.text), "condition")
        grants = None
        if (effects := row.parts.get("effects")) and effects.text:
            grants = self._text(effects, _joined(effects.text), "effects")
            if grants is None:
                return
        if times[row.entity, operation] > 1:
            self.found.append(TWICE.at(cell.span, f"`{row.entity}` has several rows `{operation}`"))
        elif condition is not None and row.whole:
            self._spans[cell.span.line] = cell.span
            note = row.parts["note"].text if "note" in row.parts else ""
            written.setdefault(row.entity, {})[operation] = {
                **({} if operation.replace("_", " ") == title else {"title": title}),
                "requires": condition,
                **({"grants": grants} if grants else {}),
                **({"note": _joined(note)} if note else {}),
                "source": cell.span.line,
            }

    def _text(self, cell: Cell, text: str, kind: Literal["condition", "effects"]) -> str | None:
        """A condition or effects with the policy's names; None, and a finding, if some name is unknown or it follows no pattern."""
        names = cell_names(text, kind)
        if isinstance(names, str):
            self._refuse(cell, f"cannot read `{_joined(cell.text)}`: {names}", _HELP)
            return None
        targets = [use.name for use in names if use.kind == "target"]
        self._owners |= any(use.kind == "owner" for use in names)
        for name in (use.name for use in names if use.kind == "privilege"):
            if name.text not in self.sets and kind == "condition":
                self._privileges.setdefault(name.text)
            elif name.text not in (*self.sets, *self._privileges):
                self._unknown[name.text] = cell
        known = {**dict.fromkeys(self._titles), "entity": None, "parent": None}
        for target in reversed(targets):
            type_ = self.names.get(target.text, target.text)
            type_ = type_ if type_ in known else _identifier(type_)
            if type_ not in known:
                hint = did_you_mean(type_, known) or f"the types are {listed_names(list(self._titles))}"
                message = f"cannot read `{_joined(cell.text)}`: `{target.text}` is no type"
                advice = f"{hint}; or name it by `--name {target.text}=TYPE`"
                self._refuse(cell, message, advice)
                return None
            text = text[: target.start] + type_ + text[target.end :]
        return text

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


def _condition(text: str) -> str:
    """A condition as the language writes it: as it stands, else using the patterns."""
    written = text = _joined(text)
    if isinstance(cell_names(text, "condition"), str):
        for pattern, instead in PATTERNS:
            text = pattern.sub(instead, text)
    return written if isinstance(cell_names(text, "condition"), str) else text


def _heading(cell: Cell) -> str:
    return _joined(cell.text.lower())


def _joined(text: str) -> str:
    return " ".join(text.split())


def _identifier(text: str) -> str:
    return "_".join(_WORDS.findall(_NEXT_WORD.sub("_", text))).lower()


def own_policy(source: SourceFile) -> str | None:
    """The policy that a page of `privtab docs` carries; None for other pages and for pages made from bundles."""
    pattern = _OWN_HTML if source.path.endswith((".html", ".htm")) else _OWN_MARKDOWN
    found = pattern.search(source.text)
    return None if found is None else unescape(found["policy"]) if pattern is _OWN_HTML else found["policy"]


def edited(given: Sequence[Table], made: Sequence[Table]) -> Iterator[Diagnostic]:
    """The cells of a page that are not as its policy makes them; `made`: the tables of the page made again."""
    rows = {row.anchor: row for table in made for row in table.rows if row.anchor}
    seen = set()
    shown = [table for table in given if not table.lost and any(row.anchor for row in table.rows)]
    for row in (row for table in shown for row in table.rows):
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
    for table in given:
        if table not in shown and {"operation", "requires"} <= {*map(_heading, table.header.cells)}:
            yield EDITED.at(table.header.cells[0].span, "the policy of this page has no such table", _EDIT)
    for anchor in (anchor for anchor in rows if anchor not in seen):
        top = (given or made)[0].header.cells[0].span
        yield EDITED.at(top, f"the row `{anchor}` of the policy is not on the page", _EDIT)


def no_table(path: str, tables: Sequence[Table]) -> UsageError:
    """The reason why no table of a page can be read, as an error."""
    headers = [
        ", ".join(f"`{cell.text}`" for cell in table.header.cells if cell.text) for table in tables if not table.lost
    ]
    if not headers:
        return UsageError(f"{path} has no table{' that can be seen' if tables else ''}")
    return UsageError(
        f"no table of {path} has a column for operations and one for what these require (columns: {'; '.join(headers)}): "
        "name them by `--column operation=NAME` and `--column requires=NAME`"
    )
