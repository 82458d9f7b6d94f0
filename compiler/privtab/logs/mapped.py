"""Logs of other systems as rows, as a mapping document says. `docs/reference/logs.md` describes these documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from jmespath.exceptions import JMESPathError

from privtab import _resources, source
from privtab.diagnostics import Diagnostic, in_order
from privtab.errors import FormatError, PolicyInvalid
from privtab.importing.expression import Expression, holds
from privtab.importing.template import Template
from privtab.logs.opa import Row
from privtab.logs.schema import COLUMNS, MALFORMED, NO_ANSWER, WRONG_ANSWER, Reading
from privtab.syntax.node_reader import DocumentProblem, DocumentReader
from privtab.syntax.yaml_tree import Node, compose

MARK = "log"
TEMPLATES = ("time", "decision_id", "user", "action", "resource", "rule", "policy_revision", "state_revision")
"""The columns whose texts a document gives."""
NEEDED = ("user", "action", "resource")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDocument:
    """A mapping document."""

    name: str
    where: Expression
    """Which entries are decisions."""
    each: Expression
    """The decisions of an entry."""
    decision: Mapping[str, Template]
    allowed: Expression
    """Of a decision: its answer."""
    groups: Expression | None

    def rows(self, entry: Any, position: str, reading: Reading) -> Iterator[Row]:
        """The decisions of one entry, as `opa.rows`."""
        try:
            items = self.each.of(entry) if holds(self.where.of(entry)) else None
        except JMESPathError:
            items = None
        if not isinstance(items, list):
            reading.other[f"not an entry of {self.name}"] += 1
            return
        for item in items:
            yield self._row(item if isinstance(item, dict) else {}, position)

    def _row(self, item: dict[str, Any], position: str) -> Row:
        cells: dict[str, Any] = {"origin": self.name, "position": position}
        try:
            for name, template in self.decision.items():
                if name in NEEDED:
                    cells[name] = template.path(item) if name == "resource" else template.plain(item)
                else:
                    cells[name] = template.plain(item, "") or None
            cells["groups"] = _groups(None if self.groups is None else self.groups.of(item))
            answer = self.allowed.of(item)
        except (FormatError, JMESPathError):
            cells["problem"], answer = MALFORMED, None
        cells["allowed"] = answer if isinstance(answer, bool) else None
        if cells["allowed"] is None:
            cells.setdefault("problem", NO_ANSWER if answer is None else WRONG_ANSWER)
        return tuple(cells.get(name) for name, _, _ in COLUMNS)


def _groups(found: Any) -> list[str] | None:
    """The names of groups. Raises FormatError for anything else."""
    if found is not None and not (isinstance(found, list) and all(isinstance(name, str) for name in found)):
        raise FormatError("groups are a list of names")
    return found or None


def load(document: str) -> LogDocument:
    """Read a mapping document by path or by name. Raises UsageError, and PolicyInvalid with every finding."""
    path = _resources.document(document, MARK)
    file = source.load(path)
    found: list[Diagnostic] = []
    root = compose(file, found, "a mapping document of logs begins with `log: 1`")
    read = None if root is None else _Reader(file, found).document(root, Path(path).stem)
    if read is None or found:
        raise PolicyInvalid(in_order(found))
    return read


class _Reader(DocumentReader):
    """The reader of mapping documents."""

    NAMES: ClassVar = {"U001": "bad-log-document"}
    CODES: ClassVar = dict.fromkeys(DocumentProblem, "U001")

    def document(self, root: Node, name: str) -> LogDocument | None:
        """The whole document."""
        needed = (MARK, "title", "where", "each", "decision", "allowed")
        fields = self.fields(root, "a mapping document", (*needed, "groups"), needed)
        if fields is None:
            return None
        self.word(fields[MARK], f"`{MARK}`", ("1",))
        self.text(fields["title"], "`title`")
        columns = self.fields(fields["decision"], "`decision`", TEMPLATES, NEEDED) or {}
        texts = {column: self.text(node, f"`{column}`") for column, node in columns.items()}
        where, each, allowed = (self._expression(fields[key], f"`{key}`") for key in ("where", "each", "allowed"))
        groups = self._expression(fields["groups"], "`groups`") if "groups" in fields else None
        if where is None or each is None or allowed is None:
            return None
        return LogDocument(
            name=name,
            where=where,
            each=each,
            decision={column: Template(text.value) for column, text in texts.items() if text is not None},
            allowed=allowed,
            groups=groups,
        )

    def _expression(self, node: Node, what: str) -> Expression | None:
        text = self.text(node, what)
        try:
            return None if text is None else Expression.parse(text.value)
        except JMESPathError as error:
            self.report("U001", node, f"{what} is not an expression: {' '.join(str(error).split())}")
            return None
