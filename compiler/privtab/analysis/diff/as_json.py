"""A diff as JSON, with the keys that docs/reference/diff.md describes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from privtab.analysis.diff.nodes import OPERATION_VERDICTS, Cell, DeclarationChange, Diff, RowChange, Waiver, Witness
from privtab.diagnostics import Span


def diff_json(diff: Diff) -> dict[str, Any]:
    """Return one diff; operations without any difference are only counted."""
    return {
        "before": asdict(diff.before),
        "after": asdict(diff.after),
        "summary": {
            "operations": len(diff.rows),
            **{str(verdict): diff.count(verdict) for verdict in OPERATION_VERDICTS},
        },
        "operations": [row_json(row) for row in diff.rows if not row.is_unchanged],
        "declared": [_declared(change) for change in diff.declared],
    }


def row_json(row: RowChange) -> dict[str, Any]:
    """Return one operation."""
    return {
        "entity": row.entity,
        "operation": row.operation,
        "verdict": str(row.verdict),
        "condition": row.condition and str(row.condition),
        "effects": row.effects and str(row.effects),
        "parts": list(row.parts),
        "because": list(row.because),
        "was": row.was and {"entity": row.was[0], "operation": row.was[1]},
        "recognised_by": row.recognised,
        "before": row.before and _cell(row.before),
        "after": row.after and _cell(row.after),
        "witnesses": [_witness(witness) for witness in row.witnesses],
        "waived": row.waived and _waiver(row.waived),
    }


def _cell(cell: Cell) -> dict[str, Any]:
    return {
        "rule": cell.rule,
        "requires": cell.requires,
        "each": cell.each,
        "gate": cell.gate,
        "with": list(cell.withs),
        "flags": list(cell.flags),
        "effects": list(cell.effects),
        "report": cell.report,
        "unnamed": cell.unnamed,
        "note": cell.note,
        "source": cell.source,
        **_place(cell.span),
    }


def _witness(witness: Witness) -> dict[str, Any]:
    """Return a witness; `state` and `request` are inputs of `privtab decide`."""
    document: dict[str, Any] = {
        "shows": witness.shows,
        "request": witness.request.to_json(),
        # A state without rows must still name a table.
        "state": dict(witness.state) or {"grants": []},
        "before": {"answer": witness.before},
        "after": {"answer": witness.after},
    }
    for side, effects in (("before", witness.effects_before), ("after", witness.effects_after)):
        if document[side]["answer"] == "allow":
            document[side]["effects"] = list(effects)
    return document


def _declared(change: DeclarationChange) -> dict[str, Any]:
    return {
        "kind": change.kind,
        "name": change.name,
        "verdict": str(change.verdict),
        "meaning": change.meaning,
        "was": change.was,
        "recognised_by": change.recognised,
        "details": [
            {"what": detail.what or None, "before": detail.before, "after": detail.after} for detail in change.details
        ],
    }


def _waiver(waiver: Waiver) -> dict[str, Any]:
    until = waiver.until.isoformat()
    return {"who": waiver.who, "why": waiver.why, "until": until, **_place(waiver.span)}


def _place(span: Span) -> dict[str, Any]:
    return {"path": span.path, "line": span.line, "column": span.column}
