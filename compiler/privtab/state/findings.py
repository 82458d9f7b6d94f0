"""The codes of findings in a state, and findings as text and as JSON.

`S0…` is about a file or a whole table, `S1…` about one row, `S2…` is for `privtab state lint`, `S3…` for `privtab state
push`. An error removes the row from the state (or all rows of
the table that could not be read); a warning or a note does not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from privtab.base.moments import WINDOW_COLUMNS
from privtab.base.printable import printable_text
from privtab.ir.nodes import Program
from privtab.state.nodes import ENTITIES, TABLES, StateFinding
from privtab.state.raw import COLUMNS

CODES = {
    "S001": "unreadable-file",
    "S002": "broken-syntax",
    "S003": "unknown-table",
    "S004": "wrong-shape",
    "S005": "two-files-for-one-table",
    "S006": "unknown-file",
    "S007": "too-much",
    "S008": "empty-file",
    "S101": "unknown-column",
    "S102": "missing-column",
    "S103": "null-cell",
    "S104": "cell-is-not-text",
    "S105": "empty-cell",
    "S106": "repeated-column",
    "S107": "wrong-number-of-cells",
    "S108": "blank-around-name",
    "S110": "malformed-entity",
    "S111": "unknown-type",
    "S112": "wrong-depth",
    "S113": "malformed-name",
    "S114": "unknown-entity",
    "S115": "wildcard",
    "S116": "unusable-character",
    "S117": "oversized-name",
    "S118": "mixed-scripts",
    "S120": "malformed-principal",
    "S121": "unknown-principal-kind",
    "S122": "wrong-principal-kind",
    "S130": "unknown-privilege",
    "S131": "privilege-not-on-type",
    "S132": "unknown-effect",
    "S133": "no-deny",
    "S140": "no-owners",
    "S141": "owner-kind",
    "S150": "missing-scope",
    "S151": "wrong-scope",
    "S152": "unknown-role",
    "S160": "duplicate-row",
    "S161": "deprecated-name",
    "S162": "unread-row",
    "S163": "conflicting-rows",
    "S164": "empty-group",
    "S165": "unheld-role",
    "S170": "wrong-time",
    "S180": "no-place",
    "S181": "wrong-parent",
    "S182": "two-places",
    "S183": "cycle-of-entities",
    "S184": "too-deep",
    "S185": "idle-entities",
    "S186": "cycle-of-principals",
    "S187": "unknown-attribute",
    "S188": "wrong-value",
    "S189": "two-values",
    "S190": "user-or-entity",
    "S201": "expired-row",
    "S203": "row-ends-soon",
    "S204": "empty-role",
    "S205": "unused-role",
    "S206": "direct-grant",
    "S207": "superfluous-row",
    "S301": "not-expressible",
    "S302": "holds-for-a-time",
    "S303": "not-a-native-name",
    "S304": "shared-native-name",
    "S305": "second-owner",
}

_UNREAD = frozenset({"S001", "S002", "S007", "S101", "S106", "S107"})
"""Something was not read, of the rest of a file, a column, or one of two cells, even if the finding is at a row."""

DENIES = "they may include a denial, and ignoring it would widen access"
"""The consequence of wrong rows where a state can deny."""


def errors(findings: Iterable[StateFinding]) -> tuple[StateFinding, ...]:
    """The findings that removed a row, or a whole table, from the state."""
    return tuple(f for f in findings if f.severity == "error")


def stops(program: Program, finding: StateFinding) -> bool:
    """Whether a state is of no use without what an error left out: part of a file, or a row without which callers may be allowed more.

    Such a row denies, or it gives a role or a group that may be denied. Where a policy filters or masks, each row may choose how: without it,
    another filter applies, which may show more.
    """
    place = finding.place
    if place.table == ENTITIES and place.row and finding.code not in _UNREAD:
        return False  # an entity without a place is denied to everybody
    if place.row == 0 or finding.code in _UNREAD or place.table not in TABLES or program.filters:
        return True
    if program.semantics.deny == "none":
        return False
    if place.table == "grants":
        return str(finding.row.get("effect", "")).lower() != "allow"
    return place.table in {"assignments", "memberships"}


def stopping(program: Program, findings: Iterable[StateFinding]) -> tuple[StateFinding, ...]:
    """The errors that make a state of no use."""
    return tuple(error for error in errors(findings) if stops(program, error))


def in_order(findings: Iterable[StateFinding]) -> tuple[StateFinding, ...]:
    """Findings sorted by position, then code; the same input gives the same order."""
    return tuple(sorted(findings, key=_order))


def render_text(findings: Iterable[StateFinding]) -> str:
    """Findings as text, each with its row and its advice below; empty if there are none."""
    lines: list[str] = []
    for finding in findings:
        name = CODES[finding.code]
        lines.append(f"{finding.place}: {finding.severity}[{finding.code} {name}]: {finding.message}")
        if finding.row:
            cells = ", ".join(f"{column}: {_shown(value)}" for column, value in finding.row.items())
            lines.append(f"  row: {cells}")
        if finding.help is not None:
            lines.append(f"  help: {finding.help}")
    return "".join(f"{printable_text(line, one_line=True)}\n" for line in lines)


def to_json(findings: Iterable[StateFinding]) -> list[dict[str, Any]]:
    """Findings as JSON objects: code, name, severity, message, help, path, table, row_number, line, row."""
    return [
        {
            "code": finding.code,
            "name": CODES[finding.code],
            "severity": finding.severity,
            "message": finding.message,
            "help": finding.help,
            "path": finding.place.path,
            "table": finding.place.table or None,
            "row_number": finding.place.row or None,
            "line": finding.place.line,
            "row": dict(finding.row),
        }
        for finding in findings
    ]


def _shown(value: object) -> str:
    return f"`{value}`" if isinstance(value, str) else str(value)


def _order(finding: StateFinding) -> tuple[str, int, str, int, str, str]:
    place = finding.place
    return place.path, place.line or 0, place.table, place.row, finding.code, finding.message


_PLAIN = re.compile(r"[A-Za-z][\w/.:%+-]*[\w]", re.ASCII)

_SENTENCES: Mapping[str, Callable[[Mapping[str, str]], str]] = {
    "members": lambda row: f"{row['user']} is a member of {row['of']}",
    "memberships": lambda row: f"{row['user']} is in group:{row['group']}",
    "assignments": lambda row: (
        f"{row['principal'].removeprefix('user:')} holds role:{row['role']}"
        + (f" within {row['scope']}" if "scope" in row else "")
    ),
    "grants": lambda row: (
        f"{row['privilege']} {'denied' if row['effect'] == 'deny' else 'granted'} to {row['grantee']} at {row['entity']}"
    ),
    "owners": lambda row: f"{row['entity']} is owned by {row['owner']}",
    "service_admins": lambda row: f"{row['user']} is a service admin",
    "attributes": lambda row: f"{row['attribute']} of {row.get('entity') or row['user']} is {row['value']}",
    "entities": lambda row: (
        f"{row['entity']} lies in {row['parent']}" + (f" as {row['name']}" if "name" in row else "")
    ),
}


def row_sentence(table: str, row: Mapping[str, str]) -> str:
    """A row as a sentence, `SELECT granted to role:analyst at schema:hive/sales`; an optional column without a text has no key."""
    window = " ".join(f"{name} {row[name]}" for name in WINDOW_COLUMNS if name in row)
    return _SENTENCES[table](row) + (f", {window}" if window else "")


def row_text(table: str, cells: Mapping[str, str | None]) -> str:
    """A row with its columns in order, as YAML reads it.

    >>> row_text("owners", {"owner": "user:a b", "entity": "lake:l"})
    'owners:{entity: lake:l, owner: "user:a b"}'
    """
    order = {name: number for number, name in enumerate(COLUMNS[table].all)}
    named = sorted(cells.items(), key=lambda cell: order.get(cell[0], len(order)))
    written = ", ".join(f"{name}: {_cell(text or '')}" for name, text in named)
    return f"{table}:{{{written}}}"


def _cell(text: str) -> str:
    """A cell as YAML reads it: in quotes where it is not plain."""
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
