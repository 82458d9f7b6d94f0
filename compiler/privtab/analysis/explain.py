"""Why one request is answered as it is: each minimal set, atom by atom, with who gives what holds and what misses."""

from __future__ import annotations

from dataclasses import dataclass

from privtab.ir.canonical import Leaf
from privtab.ir.evaluate import Reference
from privtab.ir.explain import Explanation
from privtab.ir.nodes import ByType, Has, Rule
from privtab.request import Decision, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One atom of a minimal set: whether it holds, on which entity and through whom, and which denials stand in its way."""

    atom: str
    holds: bool
    on: str | None = None
    through: str | None = None
    denied: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """The answer to a request, the rule that gave it, and every minimal set of that rule."""

    request: Request
    decision: Decision
    rule: Rule
    sets: tuple[tuple[Part, ...], ...]


def explain(reference: Reference, request: Request) -> Why:
    """Explain one request; raises InvalidRequest where it names what the policy does not know."""
    found = reference.explanation(request)
    return Why(
        request=request,
        decision=Decision(allowed=found.allowed, context=found.context()),
        rule=found.rule,
        sets=tuple(tuple(_part(found, atom) for atom in atoms) for atoms in found.sets),
    )


def _part(found: Explanation, atom: Leaf) -> Part:
    assert not isinstance(atom, ByType), "a request gives every object its type"
    text, why = found.text(atom), found.asked.why(atom)
    if why is not None:
        return Part(atom=text, holds=True, on=why.on, through=why.through)
    denials = found.asked.denials(atom.privilege, atom.target) if isinstance(atom, Has) else ()
    return Part(atom=text, holds=False, denied=tuple(f"{principal} at {key}" for key, principal in denials))
