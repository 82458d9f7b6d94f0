"""Superfluous parts of rows whose only superfluous parts are atoms that another atom beside them absorbs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privtab.checks._parts import Path, nodes
from privtab.ir.absorption import superfluous_atoms
from privtab.ir.formula import ATOMS, unrelated
from privtab.ir.nodes import ALWAYS, And, Formula, Or, When

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from privtab.checks._parts import Node
    from privtab.checks._superfluous import Why
    from privtab.checks._view import View
    from privtab.ir.nodes import Atom
    from privtab.model import nodes as m


def absorbed(seen: View, row: m.Row, roots: Sequence[Node]) -> dict[Path, Why] | None:
    """All superfluous parts of a row and why; None if other parts are related too, so that the solver has to decide.

    Takes linear time, where the solver takes a question for each part.
    """
    if row.each is not None and row.requires is not None:
        return None  # a request without the last name has another condition
    gone: dict[Path, Why] = {}
    for root in roots:
        for node in nodes(root):
            if node.shape in ("all", "any"):
                gone |= _absorbed(seen, node, every=node.shape == "all")
    rule = seen.rule(row)
    left = [_without(seen, root, gone) for root in roots]
    types = {slot.name: slot.types for slot in rule.withs}
    asked = left if rule.gate == ALWAYS else [rule.gate, *left]
    return gone if unrelated(seen.program, asked, types) else None


def _absorbed(seen: View, node: Node, *, every: bool) -> dict[Path, Why]:
    """The atoms of an `and` or an `or` that another one beside them absorbs; of two equal atoms, the later one."""
    first: dict[Atom, Path] = {}
    gone: dict[Path, Why] = {}
    for part in node.parts:
        formula = seen.lowering.formula(part.condition) if part.shape == "leaf" else None
        if isinstance(formula, ATOMS) and first.setdefault(formula, part.path) != part.path:
            gone[part.path] = "others" if every else "twice"
    for atom in superfluous_atoms(seen.canonical, first, every=every):
        gone[first[atom]] = "others" if every else "less"
    return gone


def _without(seen: View, node: Node, gone: Collection[Path]) -> Formula:
    if node.shape == "when":
        return When(flag=node.flag, body=_without(seen, node.parts[0], gone))
    if node.shape in ("all", "any"):
        left = tuple(_without(seen, part, gone) for part in node.parts if part.path not in gone)
        return And(parts=left) if node.shape == "all" else Or(parts=left)
    return seen.lowering.formula(node.condition)
