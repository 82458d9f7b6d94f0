"""Logs of other systems as rows, as a mapping document says. `docs/reference/logs.md` describes these documents."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from jmespath.exceptions import JMESPathError

from privtab.base import SourceFile
from privtab.language import DocumentProblem, DocumentReader, YamlNode
from privtab_connect.documents import document as find
from privtab_connect.errors import TemplateError
from privtab_connect.importing.document import ExpressionReader
from privtab_connect.importing.expression import Expression, holds
from privtab_connect.importing.template import Template
from privtab_connect.names import Names, names_beside
from privtab_logs.schema import COLUMNS, MALFORMED, NO_ANSWER, UNREAD, WRONG_ANSWER, Reading, Row

MARK = "log"
TEMPLATES = ("time", "decision_id", "user", "action", "resource", "rule", "policy_revision", "state_revision")
"""The columns whose texts a document gives."""
NEEDED = ("user", "action", "resource")
EXPRESSIONS = ("where", "each", "allowed")
OPTIONAL = ("groups", "unread", "other")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDocument:
    """A mapping document."""

    name: str
    where: Expression
    """Condition of entries that are decisions."""
    each: Expression
    """The decisions of an entry."""
    decision: Mapping[str, Template]
    allowed: Expression
    """The answer of a decision."""
    groups: Expression | None
    other: tuple[tuple[Expression, str], ...]
    """Conditions of entries that are no decisions, and the names of their kinds."""
    unread: Expression | None
    """Condition of entries that have more than `each` gives."""
    names: Names
    types: Collection[str]
    """The types of the policy; empty if it is not known."""
    kinds: Sequence[Mapping[str, Any]]
    """The kinds of objects, as expressions have them."""

    def rows(self, entry: Any, position: str, reading: Reading) -> list[Row] | None:
        """The decisions of one entry, as `opa.rows`."""
        if isinstance(entry, dict):
            entry = {**entry, "kinds": self.kinds}
        if not _true(self.where, entry):
            why = next((why for when, why in self.other if _true(when, entry)), None)
            if why is not None:
                reading.other[why] += 1
            return None if why is None else []
        try:
            items = self.each.of(entry)
        except JMESPathError:
            items = [None]
        unread = [self._row(None, position, UNREAD)] if self.unread and _true(self.unread, entry) else []
        found = [self._row(item, position) for item in items] if isinstance(items, list) else []
        return [*found, *unread] or None

    def _row(self, item: Any, position: str, problem: str = MALFORMED) -> Row:
        """One decision. A value of a wrong type counts as missing."""
        cells: dict[str, Any] = {"origin": self.name, "position": position}
        item = item if isinstance(item, dict) else {}
        texts = {name: value for name, value in item.items() if isinstance(value, str)}
        lists = {
            name: value for name, value in item.items() if isinstance(value, list) and {*map(type, value)} == {str}
        }
        paths = texts | {name: value for name, value in lists.items() if "" not in value}
        try:
            for name, template in self.decision.items():
                if name == "resource":
                    object_ = template.path(paths)
                    cells[name] = self.names.entity(object_, self.types)
                    if self.names.shows_another(object_):
                        cells["problem"] = UNREAD
                elif name in NEEDED:
                    cells[name] = template.plain(texts)
                else:
                    cells[name] = template.plain(item, "") or None
            cells["groups"] = _groups(None if self.groups is None else self.groups.of(item))
            answer = self.allowed.of(item)
        except (TemplateError, JMESPathError):
            cells["problem"], answer = problem, None
        cells["allowed"] = answer if isinstance(answer, bool) else None
        if cells["allowed"] is None:
            cells.setdefault("problem", NO_ANSWER if answer is None else WRONG_ANSWER)
        return tuple(cells.get(name) for name, _, _ in COLUMNS)


def _true(expression: Expression, entry: Any) -> bool:
    """Return whether a condition holds of an entry; a condition that does not fit the entry does not hold."""
    try:
        return holds(expression.of(entry))
    except JMESPathError:
        return False


def _groups(found: Any) -> list[str] | None:
    """The names of groups; a condition that does not hold gives none. Raises TemplateError for anything else."""
    if found is False:
        return None
    if found is not None and not (isinstance(found, list) and all(isinstance(name, str) for name in found)):
        raise TemplateError("groups are a list of names")
    return found or None


def load(document: str, types: Collection[str] = ()) -> LogDocument:
    """Read a mapping document by path or by name. `types`: those of the policy. Raises UsageError, and PolicyInvalid with every finding."""
    name, path = find(document, MARK)
    file, names = SourceFile.load(path), names_beside(path)
    begins = "a mapping document of logs begins with `log: 1`"
    read = DocumentReader.whole(file, begins, lambda found, root: _Reader(file, found).document(root, name))
    return replace(read, names=names, types=frozenset(types), kinds=names.listed(types))


class _Reader(ExpressionReader):
    """The reader of mapping documents."""

    NAMES: ClassVar = {"U001": "bad-log-document"}
    CODES: ClassVar = dict.fromkeys(DocumentProblem, "U001")

    def document(self, root: YamlNode, name: str) -> LogDocument | None:
        """The whole document."""
        needed = (MARK, "title", *EXPRESSIONS, "decision")
        fields = self.fields(root, "a mapping document", (*needed, *OPTIONAL), needed)
        if fields is None:
            return None
        self.word(fields[MARK], f"`{MARK}`", ("1",))
        self.text(fields["title"], "`title`")
        columns = self.fields(fields["decision"], "`decision`", TEMPLATES, NEEDED) or {}
        decision = self.templates(columns)
        expressions = (self.one_expression(fields.get(key), f"`{key}`") for key in (*EXPRESSIONS, *OPTIONAL[:2]))
        where, each, allowed, groups, unread = expressions
        reasons = self.entries(fields.get("other"), "`other`")
        other = tuple((when, why.text) for why, node in reasons if (when := self.one_expression(node, f"`{why.text}`")))
        if where is None or each is None or allowed is None:
            return None
        return LogDocument(
            name=name,
            where=where,
            each=each,
            decision=decision,
            allowed=allowed,
            groups=groups,
            other=other,
            unread=unread,
            names=Names(),
            types=(),
            kinds=(),
        )
