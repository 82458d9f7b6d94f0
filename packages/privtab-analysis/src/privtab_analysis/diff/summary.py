"""A diff as JSON, with the keys that docs/reference/diff.md describes, and the texts that all other formats share.

Also as findings, for tools that show these next to lines.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, TypeAlias

from privtab.base import Diagnostic, FindingKind, Located, Request, Severity, Span, dataclass
from privtab.ir import value_text
from privtab_analysis.diff import nodes

MAX_NAMED = 12
"""Up to this many operations are listed by name where space is short."""
Pair: TypeAlias = tuple[str, str | None, str | None]
"""(key of a row, text before, text after)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Operations that changed in the same way; the first represents all of them."""

    verdict: nodes.Verdict
    rows: tuple[nodes.RowChange, ...]

    @property
    def first(self) -> nodes.RowChange:
        """The operation whose cells and witnesses are shown."""
        return self.rows[0]

    @property
    def names(self) -> str:
        """All operations, combined by entity or by operation."""
        return ", ".join(combine_pairs([(row.entity, row.operation) for row in self.rows]))

    @property
    def short(self) -> str:
        """The same, or only the number and the entities if there are many."""
        if len(self.rows) <= MAX_NAMED:
            return self.names
        return f"{len(self.rows)} operations of {', '.join(dict.fromkeys(row.entity for row in self.rows))}"

    @property
    def declared_only(self) -> bool:
        """True if the rows did not change, and only declarations of the file cause the difference."""
        return not self.first.row_changed and self.verdict in {
            nodes.Verdict.WIDER,
            nodes.Verdict.NARROWER,
            nodes.Verdict.INCOMPARABLE,
        }


def groups(diff: nodes.Diff) -> list[Group]:
    """Group the changed operations by verdict and cells, regardless of the names of entity and parent."""
    found: dict[object, list[nodes.RowChange]] = {}
    for row in diff.changes:
        found.setdefault(_likeness(row), []).append(row)
    all_groups = [Group(verdict=rows[0].verdict, rows=tuple(rows)) for rows in found.values()]
    return sorted(all_groups, key=lambda group: (nodes.OPERATION_VERDICTS.index(group.verdict), group.declared_only))


def _likeness(row: nodes.RowChange) -> object:
    verdicts = (row.verdict, row.condition, row.effects, row.waived and row.waived.span, row.recognised)
    shapes = tuple((witness.shows, witness.rows, witness.before, witness.after) for witness in row.witnesses)
    if row.verdict in {nodes.Verdict.WIDER, nodes.Verdict.NARROWER, nodes.Verdict.INCOMPARABLE} and not row.row_changed:
        return verdicts, shapes, row.because
    pair = None if row.was is None else row.was[row.was[0] == row.entity]
    parts = tuple(part for part in row.parts if part not in {"note", "deprecated"})
    return verdicts, shapes, row.because, parts, _cell_key(row, row.before), _cell_key(row, row.after), pair


def _cell_key(row: nodes.RowChange, cell: nodes.Cell | None) -> object:
    return None if cell is None else tuple((key, _anywhere(row, cell, text)) for key, text in cell_lines(cell))


def _anywhere(row: nodes.RowChange, cell: nodes.Cell, text: str) -> str:
    """The text with `entity` and `parent` in place of the names of the row's entity and its parent."""
    own_names = {row.entity} if row.was is None else {row.entity, row.was[0]}
    return re.sub(
        r"\w+",
        lambda match: "entity" if match[0] in own_names else "parent" if match[0] == cell.parent else match[0],
        text,
        flags=re.ASCII,
    )


def combine_pairs(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Pairs as `entity/operation`, combined by entity or by operation, whichever is shorter.

    >>> combine_pairs([("a", "list"), ("b", "list"), ("b", "get")])
    ['{a, b}/list', 'b/get']
    """
    by_operation: dict[str, list[str]] = {}
    by_entity: dict[str, list[str]] = {}
    for entity, operation in pairs:
        by_operation.setdefault(operation, []).append(entity)
        by_entity.setdefault(entity, []).append(operation)
    if len(by_operation) <= len(by_entity):
        return [f"{_braces(entities)}/{operation}" for operation, entities in by_operation.items()]
    return [f"{entity}/{_braces(operations)}" for entity, operations in by_entity.items()]


def _braces(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{{{', '.join(names)}}}"


def summary(diff: nodes.Diff) -> str:
    """`7 of 124 operations changed: 1 wider, 6 incomparable (2 waived)`."""
    changes = diff.changes
    if not changes:
        also = " in decisions" if diff.rewritten or diff.declared else ""
        return f"{_operations(len(diff.rows))}: nothing changed{also}"
    counts = [f"{number} {verdict}" for verdict in nodes.OPERATION_VERDICTS[:-1] if (number := diff.count(verdict))]
    waived = sum(row.waived is not None for row in changes)
    suffix = f" ({waived} waived)" if waived else ""
    return f"{len(changes):,} of {_operations(len(diff.rows))} changed: {', '.join(counts)}{suffix}"


def page_values(diff: nodes.Diff | None) -> dict[str, Any]:
    """The values for the template `pages/diff`."""
    return {
        "diff": diff,
        "summary": "" if diff is None else summary(diff),
        "groups": () if diff is None else groups(diff),
        **{
            function.__name__: function
            for function in (what_changed, pairs_of, request_text, answers_text, holding_texts)
        },
    }


def _operations(number: int) -> str:
    return f"{number:,} operation{'s' * (number != 1)}"


def what_changed(row: nodes.RowChange) -> str:
    """The parts of the row that changed, or the other causes of the change."""
    if row.verdict in {nodes.Verdict.ADDED, nodes.Verdict.REMOVED}:
        return ""
    if row.verdict is nodes.Verdict.RENAMED and row.was is not None:
        return f"was {row.was[0]}/{row.was[1]}"
    causes = [*row.parts] if row.row_changed else [*(part for part in row.parts if part == "effects"), *row.because]
    references_ = [reason for reason in row.because if reason.startswith("can ")]
    distinct = list(dict.fromkeys([*causes, *references_])) or [*row.parts]
    return ", ".join(distinct[:3]) + (f" and {len(distinct) - 3} more" if len(distinct) > 3 else "")


def also_by(row: nodes.RowChange) -> tuple[str, ...]:
    """Causes of the change besides the row itself: rows that it refers to, and declarations of the file.

    Declarations are included only if the condition changed although the row did not.
    """
    references_ = tuple(reason for reason in row.because if reason.startswith("can "))
    deciding_parts = {"with", "flags", "gate", "requires", "each", "creates"} & set(row.parts)
    if references_ or deciding_parts or row.condition in {None, nodes.Verdict.EQUAL}:
        return references_
    return row.because


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedChange:
    """A changed operation, with the operations that changed only because they require it by `can`."""

    row: nodes.RowChange
    through: tuple[nodes.RowChange, ...] = ()


def folded(rows: Sequence[nodes.RowChange]) -> list[FoldedChange]:
    """The operations whose rows changed, each with the operations that changed only through `can`, directly or indirectly."""
    by_name = {row.name: row for row in rows}
    through: dict[str, list[nodes.RowChange]] = {}
    roots: list[nodes.RowChange] = []
    for row in rows:
        root = _root(row, by_name, set())
        if root is None or root is row:
            roots.append(row)
        else:
            through.setdefault(root.name, []).append(row)
    return [FoldedChange(row=row, through=tuple(through.get(row.name, ()))) for row in roots]


def _root(row: nodes.RowChange, rows: Mapping[str, nodes.RowChange], visited: set[str]) -> nodes.RowChange | None:
    """The row that caused the change: the row itself, unless it changed only through `can`."""
    if row.parts or not row.because or not all(reason.startswith("can ") for reason in row.because):
        return row
    visited.add(row.name)
    for reason in row.because:
        operation, _, target = reason.removeprefix("can ").partition(" ")
        name = f"{target.strip('()')}/{operation}"
        # The reason has no type for a `with` object: take any changed row of that operation.
        candidates = (
            [rows[name]]
            if name in rows
            else [candidate for candidate in rows.values() if candidate.operation == operation and candidate.parts]
        )
        for cause in candidates:
            if cause.name not in visited and (root := _root(cause, rows, visited)) is not None:
                return root
    return None


def request_text(request: Request) -> str:
    """Format a request, as in `alice move item:s/a/x to=shelf:s/b +really`."""
    objects = [f"{name}={entity}" for name, entity in sorted(request.with_.items())]
    flags = [f"+{flag}" for flag in sorted(request.flags)]
    return " ".join([request.user, request.action, str(request.resource), *objects, *flags])


def _given_texts(request: Request) -> Iterator[str]:
    """The attributes that a request gives, as sentences."""
    given = request.attributes
    owners = [(f" of {request.user}", given.user), (f" of {request.resource}", given.entity), ("", given.request)]
    owners += [(f" of {entity}", given.of_slot(slot)) for slot, entity in request.with_.items()]
    for owner, values in owners:
        for name, value in values.items():
            yield f"the request says that the {name}{owner} is {value_text(value)}"


def holding_texts(state: nodes.Tables, request: Request) -> list[str]:
    """The rows of a state as sentences, and the groups of the request."""
    lines = [_sentence(table, row) for table, rows in state.items() for row in rows]
    return [*lines, *(f"the request brings group:{group}" for group in request.groups), *_given_texts(request)]


def _sentence(table: str, row: dict[str, str]) -> str:
    match table:
        case "members":
            return f"{row['user']} is a member of {row['of']}"
        case "memberships":
            return f"{row['user']} is in group:{row['group']}"
        case "assignments":
            within = f" within {row['scope']}" if "scope" in row else ""
            return f"{_bare(row['principal'])} has role:{row['role']}{within}"
        case "grants":
            verb = "holds" if row["effect"] == "allow" else "is denied"
            return f"{_bare(row['grantee'])} {verb} {row['privilege']} on {row['entity']}"
        case "owners":
            return f"{_bare(row['owner'])} owns {row['entity']}"
        case "service_admins":
            return f"{row['user']} is a service admin"
        case "entities":
            return f"{row['entity']} lies in {row['parent']}"
        case "attributes":
            return f"the {row['attribute']} of {row.get('user') or row.get('entity')} is {row['value']}"
        case _:
            raise AssertionError(table)


def _bare(principal: str) -> str:
    """A user without `user:`; groups and roles keep their prefix."""
    return principal.removeprefix("user:")


def answers_text(witness: nodes.Witness) -> str:
    """`deny → allow`; for effects, the effects of an allow on each side."""
    if witness.shows != "effects":
        return f"{witness.before} → {witness.after}"
    return f"{effects_text(witness.effects_before)} → {effects_text(witness.effects_after)}"


def effects_text(effects: Iterable[str]) -> str:
    """Effects on one line."""
    return "; ".join(effects) or "no effects"


def cell_lines(cell: nodes.Cell) -> Iterator[tuple[str, str]]:
    """The lines of a row as written: (key, text), the condition first."""
    return ((key, text) for key, text in _lines(cell).items() if text is not None)


def _lines(cell: nodes.Cell) -> dict[str, str | None]:
    """Every key that a row may have, in order, with its text."""
    has_condition = cell.requires is not None or cell.each is None
    return {
        "with": ", ".join(cell.withs) or None,
        "flags": ", ".join(cell.flags) or None,
        "requires": cell.requires or "anyone" if has_condition else None,
        "each": cell.each,
        "gate": cell.gate,
        "effects": effects_text(cell.effects) if cell.effects else None,
        "report": cell.report,
        "sql": cell.sql,
    }


def cell_pairs(row: nodes.RowChange, *, anywhere: bool = False) -> list[Pair]:
    """Each key of the two cells with both texts: the changed ones, or the conditions if nothing changed.

    `anywhere`: with placeholders for the names of the entity and its parent.
    """

    def texts(cell: nodes.Cell | None) -> dict[str, str | None]:
        found = {} if cell is None else _lines(cell)
        return {key: _anywhere(row, cell, text) if anywhere and cell and text else text for key, text in found.items()}

    before, after = texts(row.before), texts(row.after)
    pairs: list[Pair] = [(key, before.get(key), after.get(key)) for key in before or after]
    changed = [pair for pair in pairs if pair[1] != pair[2]]
    return changed or [pair for pair in pairs if pair[0] in {"requires", "each"} and pair[1:] != (None, None)]


def pairs_of(group: Group) -> list[Pair]:
    """The cells of a group: as written if all of its rows have the same, else with placeholders."""
    written = cell_pairs(group.first)
    same = all(cell_pairs(row) == written for row in group.rows)
    return written if same else cell_pairs(group.first, anywhere=True)


def diff_json(diff: nodes.Diff) -> dict[str, Any]:
    """Return one diff; operations without any difference are only counted."""
    return {
        "before": asdict(diff.before),
        "after": asdict(diff.after),
        "summary": {
            "operations": len(diff.rows),
            **{str(verdict): diff.count(verdict) for verdict in nodes.OPERATION_VERDICTS},
        },
        "operations": [row_json(row) for row in diff.rows if not row.is_unchanged],
        "declared": [_declared(change) for change in diff.declared],
    }


def row_json(row: nodes.RowChange) -> dict[str, Any]:
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


def _cell(cell: nodes.Cell) -> dict[str, Any]:
    left_out = {"parent", "span", *(["sql"] if cell.sql is None else [])}
    values = {field.name: getattr(cell, field.name) for field in fields(cell) if field.name not in left_out}
    found = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
    return {"with" if name == "withs" else name: value for name, value in found.items()} | _place(cell.span)


def _witness(witness: nodes.Witness) -> dict[str, Any]:
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


def _declared(change: nodes.DeclarationChange) -> dict[str, Any]:
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


def _waiver(waiver: nodes.Waiver) -> dict[str, Any]:
    until = waiver.until.isoformat()
    return {"who": waiver.who, "why": waiver.why, "until": until, **_place(waiver.span)}


def _place(span: Span) -> dict[str, Any]:
    return {"path": span.path, "line": span.line, "column": span.column}


CODES = {
    verdict: (f"D{number}", f"operation-{verdict}", meaning)
    for number, (verdict, meaning) in enumerate(
        (
            (nodes.Verdict.WIDER, "An operation is allowed to more callers, or gives them more."),
            (nodes.Verdict.NARROWER, "An operation is allowed to fewer callers, or gives them less."),
            (nodes.Verdict.INCOMPARABLE, "An operation gained callers or effects, and lost others."),
            (nodes.Verdict.ADDED, "An operation is new."),
            (nodes.Verdict.REMOVED, "An operation is gone."),
            (nodes.Verdict.RENAMED, "An operation or its entity has another name."),
            (nodes.Verdict.UNKNOWN, "Whether an operation is allowed to others was not decided."),
        ),
        start=101,
    )
}
"""For each verdict, the code, the name and the meaning of its finding."""


def findings(diff: nodes.Diff, failing: Collection[nodes.Verdict]) -> Iterator[tuple[Diagnostic, nodes.RowChange]]:
    """One finding for each changed operation, at its row: an error if it fails the run, else a note."""
    file = next((row.after.span.path for row in diff.rows if row.after is not None), None)
    for row in diff.changes:
        code, name, _ = CODES[row.verdict]
        fails = row.verdict in failing or (failing and row.verdict is nodes.Verdict.UNKNOWN)
        kind = FindingKind(code, name, Severity.ERROR if fails else Severity.NOTE)
        yield kind.at(_span(row, file), message(row), related=_related(row)), row


def message(row: nodes.RowChange) -> str:
    """The change of an operation on one line, with the witnesses."""
    text = f"`{row.name}` is {row.verdict}"
    if row.was is not None:
        text += f", it was `{row.was[0]}/{row.was[1]}`"
    elif row.before is not None and row.after is not None and row.before.text != row.after.text:
        text += f": `{row.before.text}` became `{row.after.text}`"
    for witness in row.witnesses:
        holdings = "; ".join(holding_texts(witness.state, witness.request)) or "nothing is held"
        text += f"; `{request_text(witness.request)}`: {answers_text(witness)}, where {holdings}"
    return text


def _span(row: nodes.RowChange, file: str | None) -> Span:
    """The span of the row; for a removed row, the top of the later file."""
    if row.after is not None:
        return row.after.span
    assert row.before is not None
    return row.before.span if file is None else Span(path=file, line=1, column=1, end_line=1, end_column=1)


def _related(row: nodes.RowChange) -> tuple[Located[str], ...]:
    """The earlier row, unless it is in a git revision, which no tool could open."""
    if row.before is None or row.after is None or ":" in row.before.span.path:
        return ()
    return (Located("the row before", row.before.span),)
