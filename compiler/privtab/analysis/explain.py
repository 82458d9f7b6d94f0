"""Why one request is answered as it is: each minimal set, atom by atom, with who gives what holds and what misses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from privtab.ir.canonical import Leaf, canonical
from privtab.ir.evaluate import Asked, Reason, Reference
from privtab.ir.explain import Explanation
from privtab.ir.formula import call_condition, item_condition
from privtab.ir.nodes import RESOURCE, ByType, Has, Holds, Member, Owner, Rule, Self, ServiceAdmin
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
    decision = reference.decide(request)
    program = reference.program
    rule = program.rules[request.resource.type, request.action]
    asked = Asked(reference, request)
    condition = item_condition(rule) if RESOURCE in asked.complete else call_condition(rule)
    types = {slot.name: request.with_[slot.name].type for slot in rule.withs}
    sets = canonical(program).minimal_sets(condition, request.flags, types)
    texts = Explanation(asked, rule, sets)
    return Why(
        request=request,
        decision=decision,
        rule=rule,
        sets=tuple(tuple(_part(asked, atom, texts.text(atom)) for atom in atoms) for atoms in sets),
    )


def _part(asked: Asked, atom: Leaf, text: str) -> Part:
    if isinstance(atom, Self | ServiceAdmin):
        holds = asked.holds(atom)
        return Part(atom=text, holds=holds, through=f"user:{asked.user}" if holds else None)
    why = _why(asked, atom)
    denials = asked.denials(atom.privilege, atom.target) if isinstance(atom, Has) and why is None else ()
    denied = tuple(f"{principal} at {key}" for key, principal in denials)
    if why is None:
        return Part(atom=text, holds=False, denied=denied)
    return Part(atom=text, holds=True, on=why.on, through=why.through)


def _why(asked: Asked, atom: Has | Owner | Member | Holds | ByType) -> Reason | None:
    match atom:
        case Has():
            return asked.why_has(atom.privilege, atom.target)
        case Owner():
            return asked.why_owner(atom.target)
        case Member():
            return asked.why_member(atom.target)
        case Holds():
            return asked.why_holds(atom.target)
        case ByType():
            raise AssertionError("a request gives every object its type")
        case _:
            assert_never(atom)
