"""Superfluous parts of rows whose only superfluous parts are atoms that another atom beside them absorbs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privtab.checks._parts import Path, nodes
from privtab.checks._unrelated import unrelated
from privtab.ir.formula import ATOMS
from privtab.ir.nodes import ALWAYS, And, Formula, Or, When
from privtab.ir.some_minimal_sets import superfluous_atoms

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from privtab.checks._parts import Node
    from privtab.checks._superfluous import Why
    from privtab.checks._view import View
    from privtab.ir.nodes import Atom
    from privtab.model import nodes as m


def absorbed(view: View, row: m.Row, roots: Sequence[Node]) -> dict[Path, Why] | None:
    """All superfluous parts of a row and why; None if other parts are related too, so that the solver has to decide.

    Takes linear time, where the solver takes a question for each part.
    """
    if row.each is not None and row.requires is not None:
        return None  # a request without the last name has another condition
    removed: dict[Path, Why] = {}
    for root in roots:
        for node in nodes(root):
            if node.shape in ("all", "any"):
                removed |= _absorbed(view, node, every=node.shape == "all")
    rule = view.rule(row)
    remaining = [_without(view, root, removed) for root in roots]
    types = {slot.name: slot.types for slot in rule.withs}
    conditions = remaining if rule.gate == ALWAYS else [rule.gate, *remaining]
    return removed if unrelated(view.program, conditions, types) else None


def _absorbed(view: View, node: Node, *, every: bool) -> dict[Path, Why]:
    """The atoms of an `and` or an `or` that another one beside them absorbs; of two equal atoms, the later one."""
    first: dict[Atom, Path] = {}
    removed: dict[Path, Why] = {}
    for part in node.parts:
        formula = view.lowering.formula(part.condition) if part.shape == "leaf" else None
        if isinstance(formula, ATOMS) and first.setdefault(formula, part.path) != part.path:
            removed[part.path] = "others" if every else "twice"
    for atom in superfluous_atoms(view.canonical, first, every=every):
        removed[first[atom]] = "others" if every else "less"
    return removed


def _without(view: View, node: Node, removed: Collection[Path]) -> Formula:
    if node.shape == "when":
        return When(flag=node.flag, body=_without(view, node.parts[0], removed))
    if node.shape in ("all", "any"):
        remaining = tuple(_without(view, part, removed) for part in node.parts if part.path not in removed)
        return And(parts=remaining) if node.shape == "all" else Or(parts=remaining)
    return view.lowering.formula(node.condition)
