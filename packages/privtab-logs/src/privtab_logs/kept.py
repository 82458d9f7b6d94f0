"""Rows of a state that stay although no log shows their use, each with a reason: a file beside the state, for break-glass access."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from privtab.base import Diagnostic, SourceFile, UsageError
from privtab.language import DocumentProblem, DocumentReader, YamlNode, compose_yaml
from privtab.state import GROUP_PREFIX, ROLE_PREFIX, Places, State
from privtab_analysis.state_diff.chosen import find_rows
from privtab_logs.excerpts import OF_PRINCIPALS, principal_named

_HEAD_HINT = "a file of rows to keep begins with `keep:`, and a list below"
_ADVICE = {
    "row": "write the row as `privtab unused` prints it, or as FILE:LINE",
    "principal": "write `user:NAME`, `group:NAME` or `role:NAME`",
    "why": "say why the row stays although nobody uses it",
}
NAMED_BY = (
    *((table, column, prefix) for table, (column, prefix) in OF_PRINCIPALS.items()),
    ("assignments", "role", ROLE_PREFIX),
    ("memberships", "group", GROUP_PREFIX),
)
"""The columns that name principals, and what their names lack."""


@dataclass(slots=True, kw_only=True)
class Kept:
    """The content of a file of rows to keep."""

    rows: dict[tuple[str, int], str] = field(default_factory=dict)
    """(table, number) of each row, and why it stays."""
    found: tuple[Diagnostic, ...] = ()
    """Errors: a file with any keeps nothing, and nothing may be proposed."""


def read_kept(source: SourceFile, state: State, places: Places, shown: str) -> Kept:
    """Read which rows of a state stay; an entry that names no row of it is an error at its line."""
    found: list[Diagnostic] = []
    kept = Kept()
    root = compose_yaml(source, found, _HEAD_HINT)
    reader = _KeepReader(source, found)
    for node in () if root is None else reader.listed(root):
        if (entry := reader.entry(node)) is not None:
            what, text, why = entry
            kept.rows |= dict.fromkeys(reader.rows(what, text, state, places, shown, node), why)
    kept.found = tuple(sorted(set(found)))
    return kept


class _KeepReader(DocumentReader):
    """The reader of a file of rows to keep."""

    NAMES: ClassVar = {"D202": "bad-keep"}
    CODES: ClassVar = dict.fromkeys(DocumentProblem, "D202")

    def example(self, key: str) -> str | None:
        """See `DocumentReader.example`."""
        return _ADVICE.get(key)

    def listed(self, root: YamlNode) -> Iterable[YamlNode]:
        """The nodes of the list `keep`."""
        fields = self.fields(root, "a file of rows to keep", ("keep",), required=("keep",))
        return () if fields is None else self.items(fields["keep"], "`keep`")

    def entry(self, node: YamlNode) -> tuple[str, str, str] | None:
        """Read an entry: `row` or `principal`, the text of its name, and the reason."""
        before = self.mistakes
        nodes = self.fields(node, "a row to keep", ("row", "principal", "why"), required=("why",))
        if nodes is None:
            return None
        texts = {key: found.value.strip() for key, value in nodes.items() if (found := self.text(value, f"`{key}`"))}
        for key, text in texts.items():
            if not text:
                self.report("D202", nodes[key], f"`{key}` is empty", _ADVICE[key])
        named = [key for key in ("row", "principal") if key in nodes]
        if len(named) != 1:
            self.report("D202", node, "name one row, or one principal, of which every row stays", _ADVICE["row"])
        return None if self.mistakes > before else (named[0], texts[named[0]], texts["why"])

    def rows(
        self, what: str, text: str, state: State, places: Places, shown: str, node: YamlNode
    ) -> list[tuple[str, int]]:
        """(table, number) of the rows that an entry names."""
        if what == "row":
            try:
                return find_rows([text], state, places, shown)
            except UsageError as error:
                self.report("D202", node, str(error), _ADVICE["row"])
                return []
        found = [
            (table, number)
            for table, column, prefix in NAMED_BY
            for cell in dict.fromkeys((text, text.removeprefix(prefix)))
            if principal_named(cell, prefix) == text
            for number in state.column(table, column).where([cell])
        ]
        if not found:
            self.report("D202", node, f"no row of {shown} names `{text}`", _ADVICE["principal"])
        return found
