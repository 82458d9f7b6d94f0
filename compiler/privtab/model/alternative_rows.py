"""Rows that a policy could have had: core rows that others override, readings not taken, variants not applied."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from privtab.ir.nodes import Origin
from privtab.model import nodes as m
from privtab.model.names import resolve_names
from privtab.model.rows import Rows
from privtab.model.select import ChosenRow, find_variant, read_as, select
from privtab.syntax.nodes import Reading, RowDecl


class AlternativeRows:
    """Resolves alternative rows of a valid policy."""

    def __init__(self, policy: m.Policy) -> None:
        self.policy = policy
        self._rows = Rows(
            tables=policy.tables,
            names=resolve_names(policy.tables, []),
            semantics=policy.semantics,
            pairs={pair: ChosenRow(row.decl, row.origin) for pair, row in policy.rows.items()},
            sources=policy.sources,
        )
        overlay = find_variant(policy.tables, policy.variant)
        replacements = {row.operation.value: row for row in (overlay.core if overlay is not None else ())}
        self._core = {row.operation.value: row for row in policy.tables.core} | replacements

    def row(self, entity: str, decl: RowDecl, origin: Origin) -> m.Row | None:
        """Resolve a row as if it applied to the type; None if it is invalid there."""
        return self._rows.resolve(entity, ChosenRow(decl, origin), [])

    def core(self, row: m.Row) -> m.Row | None:
        """The core row that a row of a table or of `any` overrides, if there is one."""
        decl = self._core.get(row.operation)
        return None if decl is None or row.origin == "core" else self.row(row.entity, decl, "core")

    def readings(self, row: m.Row) -> Iterator[tuple[Reading, m.Row]]:
        """The row under each of the readings not taken."""
        for reading in row.decl.ambiguous.readings if row.decl.ambiguous is not None else ():
            decl = replace(row.decl, body=read_as(row.decl.body, reading.body))
            resolved = self.row(row.entity, decl, row.origin)
            if resolved is not None:
                yield reading, resolved

    def variants(self) -> Iterator[tuple[str, m.Row]]:
        """The rows with which variants replace rows of the file, each with the variant's name."""
        if self.policy.variant is not None:
            return
        for variant in self.policy.tables.variants:
            own_rows = {id(d) for t in variant.tables for d in t.rows} | {id(d) for d in (*variant.core, *variant.any)}
            pairs = select(self.policy.tables, variant, self._rows.names, []).pairs
            variant_rows = replace(self._rows, pairs=pairs)
            for (entity, operation), chosen in pairs.items():
                if id(chosen.decl) in own_rows and (entity, operation) in self.policy.rows:
                    row = variant_rows.resolve(entity, chosen, [])
                    if row is not None:
                        yield variant.name.value, row
