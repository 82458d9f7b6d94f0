"""Conditions in which no atom repeats or affects another: they need no solver."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from privtab.ir.facts import Fact, FactSemantics
from privtab.ir.formula import resolve, targets_of
from privtab.ir.nodes import And, ByType, Can, Compare, Formula, Or, When


def unrelated(semantics: FactSemantics, formulas: Iterable[Formula], types: Mapping[str, Collection[str]]) -> bool:
    """Whether the conditions neither repeat an atom nor contain atoms that affect each other: no fact gives or denies two of them.

    If so, each part of them affects the decision. `types`: those of the object in each `with` slot.
    """
    known: set[Fact] = set()
    waiting = list(formulas)
    while waiting:
        node = waiting.pop()
        match node:
            case Can():
                waiting.append(resolve(semantics.program, node))
            case And() | Or():
                if not node.parts:
                    return False
                waiting += node.parts
            case When():
                waiting.append(node.body)
            case ByType():
                if len(types[node.slot]) > 1:
                    return False
                waiting += (case_ for type_, case_ in node.cases if type_ in types[node.slot])
            case Compare():
                return False  # values decide which comparisons hold together
            case _:
                if any(target.level != "nearest" for target in targets_of(node)):
                    return False  # other levels of the same type affect each other
                facts = semantics.plainest.about(node)
                if not known.isdisjoint(facts):
                    return False
                known |= facts
    return True
