"""What concerns several rows of a root together: repeated rows, unlisted entities, privileges both allowed and denied."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pyarrow as pa

from privtab.arrow import Codes
from privtab.moments import ALWAYS, WINDOW, Window, moment
from privtab.request import Entity
from privtab.spark.state.encoding import Texts, unique
from privtab.state.nodes import Effect, Grant, State

EFFECTS = ("allow", "deny")


@dataclass(slots=True)
class Findings:
    """The findings about the rows of a shard."""

    rows: list[dict[str, Any]] = field(default_factory=list)

    def add(
        self, table: str, code: str, severity: str, message: str, help_: str | None, row: str, rows: int = 1
    ) -> None:
        """Add a finding; `row` is JSON text."""
        self.rows.append(
            {
                "table": table,
                "code": code,
                "severity": severity,
                "message": message,
                "help": help_,
                "row": row,
                "rows": rows,
            }
        )


@dataclass(slots=True, kw_only=True)
class CrossRowChecks:
    """Compares the rows of a root with each other and with the listed entities, and reports findings."""

    findings: Findings
    keys: Texts
    names: Texts
    raws: Texts
    listed: Any
    orphans: str | None

    def distinct(self, table: str, columns: list[Codes], sizes: Sequence[int]) -> list[Codes]:
        """The rows of a table without duplicates; duplicates and orphans are reported, quarantined orphans left out."""
        rows, counts = unique(columns, sizes)
        repeated_message = f"the row says the same as another of `{table}`"
        for row in np.flatnonzero(counts > 1).tolist():
            cells = self._cells(table, rows, row)
            self.findings.add(table, "S160", "warning", repeated_message, "leave it out", cells, int(counts[row]) - 1)
        if self.listed is None:
            return rows
        key = rows[2 if table == "grants" else 0]
        lost = ~self.listed[key]
        severity = "error" if self.orphans == "quarantine" else "warning"
        for row in np.flatnonzero(lost).tolist():
            message = f"`{self.keys[int(key[row])].as_py()}` is not among the entities"
            advice = "remove the row, or name the entity"
            cells = self._cells(table, rows, row)
            self.findings.add(table, "S114", severity, message, advice, cells, int(counts[row]))
        return [column[~lost] for column in rows] if self.orphans == "quarantine" else rows

    def timed(self, rows: Sequence[tuple[str, Mapping[str, Any]]]) -> State:
        """The rows that hold for a time, without duplicates; findings as in `distinct`."""
        tables: dict[str, dict[tuple[Any, Window], None]] = {"grants": {}, "owners": {}}
        keys = None if self.listed is None else set(self.keys.filter(pa.array(self.listed)).to_pylist())
        for table, row in rows:
            window = Window(
                *(edge if (t := row[name]) is None else moment(t) for name, edge in zip(WINDOW, ALWAYS, strict=True))
            )
            entity = f"{row['type']}:{row['path']}"
            cells = {n: row[n] for n in ("grantee", "effect", "privilege") if n in row} | {"entity": entity}
            cells |= {n: row[n] for n in ("owner", *WINDOW) if row.get(n) is not None}
            if keys is not None and entity not in keys:
                severity = "error" if self.orphans == "quarantine" else "warning"
                message = f"`{entity}` is not among the entities"
                self.findings.add(table, "S114", severity, message, "remove the row, or name the entity", _json(cells))
                if self.orphans == "quarantine":
                    continue
            found = Entity.parse(entity)
            value: Any = (
                Grant(
                    grantee=row["grantee"],
                    effect=cast("Effect", row["effect"]),
                    privilege=row["privilege"],
                    entity=found,
                )
                if table == "grants"
                else (found, row["owner"])
            )
            if (value, window) in tables[table]:
                message = f"the row says the same as another of `{table}`"
                self.findings.add(table, "S160", "warning", message, "leave it out", _json(cells))
            tables[table][value, window] = None
        values: Any = {table: tuple(value for value, _ in found) for table, found in tables.items()}
        return State(**values, windows={table: tuple(w for _, w in found) for table, found in tables.items() if found})

    def conflicts(self, found: Mapping[str, tuple[Codes, Codes, Codes]], privileges: Sequence[str]) -> None:
        """Report privileges that a grantee is both allowed and denied on the same entity."""
        if not all(len(columns[0]) for columns in found.values()):
            return
        sizes = (len(privileges), len(self.keys), len(self.names))
        combined = [np.concatenate([found["allow"][number], found["deny"][number]]) for number in range(3)]
        (privilege, key, name), counts = unique(combined, sizes)
        for conflict in np.flatnonzero(counts > 1).tolist():
            principal, privilege_name = self.names[int(name[conflict])].as_py(), privileges[int(privilege[conflict])]
            row = {
                "grantee": principal,
                "effect": "deny",
                "privilege": privilege_name,
                "entity": self.keys[int(key[conflict])].as_py(),
            }
            message = f"`{principal}` is allowed and denied `{privilege_name}` here"
            self.findings.add(
                "grants", "S163", "warning", message, "the denial counts: leave one of them out", _json(row)
            )

    def _cells(self, table: str, rows: Sequence[Codes], row_number: int) -> str:
        if table == "grants":
            effect, raw, key, name = (int(column[row_number]) for column in rows)
            return _json({
                "grantee": self.names[name].as_py(), "effect": EFFECTS[effect],
                "privilege": self.raws[raw].as_py(), "entity": self.keys[key].as_py(),
            })  # fmt: skip
        entity, principal = (self.keys[int(rows[0][row_number])].as_py(), self.names[int(rows[1][row_number])].as_py())
        return _json({"entity": entity, "owner": principal} if table == "owners" else {"user": principal, "of": entity})


def _json(row: Mapping[str, str]) -> str:
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"))
