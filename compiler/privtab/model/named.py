"""The named conditions of a file, each of which may use others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

from privtab.base.diagnostics import Diagnostic
from privtab.base.hints import listed_names
from privtab.language.findings import unreadable, unsound_rows
from privtab.language.syntax.expression import names_in
from privtab.language.syntax.nodes import ConditionCell, ConditionDecl, Word

_MOST = 1000
"""Limit on the named conditions in one, those inside these included, since rules have them expanded."""


def named_conditions(
    decls: Iterable[ConditionDecl], declared: Mapping[str, Word], found: list[Diagnostic]
) -> tuple[dict[str, ConditionCell], frozenset[str]]:
    """The conditions by name, and names that cannot be expanded: these lead back to themselves, or to too many others.

    Adds a finding for these, and for names of privileges and sets.
    """
    cells: dict[str, ConditionCell] = {}
    places: dict[str, Word] = {}
    for decl in decls:
        name = decl.name.value
        if name in declared:
            found.append(unsound_rows.duplicate_name(decl.name.span, "name", name, declared[name].span))
        else:
            cells[name], places[name] = decl.condition, decl.name
    used = {
        name: [
            use.name.text
            for use in names_in(cell.expression or ())
            if use.kind == "privilege" and use.name.text in cells
        ]
        for name, cell in cells.items()
    }
    sizes: dict[str, int] = {}
    try:
        for name in TopologicalSorter(used).static_order():
            sizes[name] = sum(1 + sizes[other] for other in used[name])
            if sizes[name] > _MOST:
                message = f"the condition `{name}` comes to more than {_MOST:,} named conditions"
                found.append(unreadable.wrong_value_other(places[name].span, message, "use fewer in it"))
                return cells, frozenset(cells)
    except CycleError as error:
        path = dict.fromkeys(error.args[1])
        message = f"the condition{'s' if len(path) > 1 else ''} {listed_names(path)} would never end"
        first = min(places[name].span for name in path)
        found.append(unreadable.wrong_value_other(first, message, "none may use itself, also through others"))
        return cells, frozenset(cells)
    return cells, frozenset()
