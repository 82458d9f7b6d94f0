"""The goal of a path: a right held on an entity, or an allowed operation."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from privtab.analysis.caller import Caller
from privtab.analysis.effects import HELD, FactKind, GainedFact
from privtab.errors import InvalidRequest
from privtab.ir.formula import on_entity, targets_of
from privtab.ir.nodes import RESOURCE, Atom, Rule
from privtab.names import quoted
from privtab.reference.evaluate import Reference
from privtab.reference.rights import GIVEN_BY, by_ownership
from privtab.request import Entity, Request
from privtab.state.names import StateNames

_FACTS: Mapping[str, FactKind] = {"grants": "grant", "owners": "owner", "members": "member"}
"""The facts that rows of tables are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What a path should reach: all of some atoms on an entity, or an allowed operation."""

    text: str
    resource: Entity
    atoms: tuple[Atom, ...] = ()
    rule: Rule | None = None
    with_: Mapping[str, Entity] = field(default_factory=dict)
    fact: GainedFact | None = None
    """A fact that is to be gained itself: a role, a group, or that a denial is gone."""

    def is_about(self, fact: GainedFact) -> bool:
        """Whether a fact is what the goal asks for, on its own entity."""
        return fact.entity == self.resource and fact.kind in HELD and fact.atom() in self.atoms

    @classmethod
    def of_fact(cls, fact: GainedFact) -> Goal:
        """The goal of holding a fact in effect, with denials and inheritance taken into account."""
        if fact.kind not in HELD:
            return cls(text=str(fact), resource=fact.entity, fact=fact)
        return cls(text=str(fact), resource=fact.entity, atoms=(fact.atom(),))


def goal(reference: Reference, name: str, entity: Entity) -> Goal:
    """The goal of holding `owner`, `member`, a privilege, or all of a set on an entity.

    Raises InvalidRequest if the policy knows no such entity, or if nothing of that name can be held on it.
    """
    reference.vocabulary.check_path(entity)
    text = f"{quoted(name)} ({entity})"
    if name in {"owner", "member"}:
        fact = GainedFact(kind="owner" if name == "owner" else "member", entity=entity)
        return Goal(text=text, resource=entity, atoms=(fact.atom(),))
    names = StateNames(reference.program)
    problem = names.grantable(name, entity.type)
    if problem is not None and (entity.type, name) in reference.program.rules:
        raise InvalidRequest(f"`{name}` is an operation: ask for it by `{entity} --operation {name}`")
    if problem is not None:
        raise InvalidRequest(f"{problem.message}; {problem.help}" if problem.help else problem.message)
    facts = (
        GainedFact(kind="grant", entity=entity, privilege=privilege)
        for privilege in names.privileges_of(name, entity.type, "deny")
    )
    return Goal(text=text, resource=entity, atoms=tuple(fact.atom() for fact in facts))


def operation_goal(
    reference: Reference,
    operation: str,
    entity: Entity,
    with_: Mapping[str, Entity] | None = None,
    flags: frozenset[str] = frozenset(),
) -> Goal:
    """The goal of being allowed an operation. `with` objects that are not given are chosen among the existing entities.

    Raises InvalidRequest if the policy knows no such operation, entity or object, or if a required flag is missing.
    """
    shape = reference.vocabulary.check_operation(entity.type, operation)
    reference.vocabulary.check_path(entity)
    with_objects = {name: entity for name, entity in (with_ or {}).items() if name in shape.withs}
    reference.vocabulary.check_context(
        Request(user="", action=operation, resource=entity, with_=with_objects, flags=flags),
        replace(shape, withs={name: types for name, types in shape.withs.items() if name in with_objects}),
    )
    rule = reference.program.rules[entity.type, operation]
    return Goal(text=f"{operation} {entity}", resource=entity, rule=rule, with_=with_objects)


class RelevantFacts:
    """The facts that may help a condition: those on the paths of its objects that its atoms require."""

    def __init__(self, caller: Caller, resource: Entity, with_: Mapping[str, Entity], atoms: Collection[Atom]) -> None:
        find = caller.holdings.locations.find
        self._paths = {
            slot: {ancestor.id for ancestor in map(Entity.parse, find(entity) or ())}
            for slot, entity in {RESOURCE: resource, **with_}.items()
        }
        self._required: set[tuple[str, str, str]] = set()
        self._below: set[tuple[str, str, str]] = set()
        """What helps on any entity: it may lie below an object of the condition."""
        for atom in atoms:
            held = on_entity(atom)
            found = self._required if held is atom else self._below
            for right in (held, *by_ownership(caller.program, held)):
                for target in targets_of(right) if GIVEN_BY.get(type(right)) in _FACTS else ():
                    found.add((target.slot, _FACTS[GIVEN_BY[type(right)]], getattr(right, "privilege", "")))
        self._slots = {RESOURCE, *with_, *(slot for slot, _, _ in (*self._required, *self._below))}

    def can_contribute(self, fact: GainedFact) -> bool:
        """Whether a fact may help. May be true for facts that do not."""
        if fact.kind not in ("exists", *HELD):
            return True
        for slot in self._slots:
            path = self._paths.get(slot)
            is_on_path = path is None or fact.entity.id in path
            if (slot, fact.kind, fact.privilege) in self._below:
                return True
            if is_on_path and (fact.kind == "exists" or (slot, fact.kind, fact.privilege) in self._required):
                return True
        return False
