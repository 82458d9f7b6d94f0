"""What the candidates of a row hold, for all of them at once: read from what each is given, without a state.

`privtab test` asks the reference engine (`Observed`); a plan has ten thousand candidates for each thousand questions. The
questions that are chosen have their expected answers from the reference engine, and a test compares both for every candidate.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, reduce
from operator import and_
from typing import assert_never

from privtab.conform.candidates import Candidate, Setting
from privtab.ir.names import PrivilegeNames, privilege_names
from privtab.ir.nodes import (
    RESOURCE,
    Atom,
    Compare,
    Has,
    HasBelow,
    Holds,
    Member,
    Owner,
    OwnsBelow,
    Program,
    Rule,
    Self,
    ServiceAdmin,
    Target,
    Term,
)
from privtab.reference.evaluate import EvaluationContext, Reference, fulfilled
from privtab.request import Entity
from privtab.scenarios.compared import Values, about_entity
from privtab.scenarios.masks import Mask, RowMasks
from privtab.scenarios.ways import AtomKind, HeldAtom
from privtab.state.nodes import State


class ObservedCandidates(RowMasks):
    """The candidates of one row."""

    def __init__(self, program: Program, rule: Rule, candidates: Collection[Candidate]) -> None:
        super().__init__(program, rule, len(candidates))
        empty_reference, names = Reference(program, State()), privilege_names(program)
        by_setting: dict[int, _SettingCandidates] = {}
        for position, candidate in enumerate(candidates):
            number = id(candidate.setting)
            if number not in by_setting:
                by_setting[number] = _SettingCandidates(empty_reference, names, candidate.setting)
            by_setting[number].add(candidate, 1 << position)
        self._settings = tuple(by_setting.values())

    @cached_property
    def named(self) -> Mask:
        """As RowMasks.named."""
        return _union(known.mask for known in self._settings if RESOURCE in known.context.complete)

    def _with_atom(self, atom: Atom) -> Mask:
        return _union(known.with_atom(atom) for known in self._settings)

    def _with_flag(self, flag: str) -> Mask:
        return _union(known.mask for known in self._settings if flag in known.context.flags)

    def _with_type(self, slot: str, type_: str) -> Mask:
        return _union(known.mask for known in self._settings if known.context.types[slot] == type_)


class _SettingCandidates:
    """The candidates for one kind of request, and for each thing that some are given: who they are."""

    def __init__(self, empty_reference: Reference, names: PrivilegeNames, setting: Setting) -> None:
        """`empty_reference`: an engine with an empty state, for the paths of the request."""
        self._names = names
        self.context = EvaluationContext(empty_reference, setting.request)
        self.mask: Mask = 0
        self._held: dict[HeldAtom, Mask] = {}
        self._denied: dict[HeldAtom, Mask] = {}
        self._values: list[tuple[Values, Mask]] = []
        """The values of attributes, with the candidates that have them."""
        owner = self.context.program.semantics.owner
        self._owners_hold = frozenset(owner.holds if owner else ())

    def add(self, candidate: Candidate, bit: Mask) -> None:
        """A candidate, who has this bit of the masks."""
        self.mask |= bit
        if candidate.caller.values:
            self._values.append((candidate.caller.values, bit))
        for atoms, masks in ((candidate.caller.held, self._held), (candidate.caller.denied, self._denied)):
            for atom in atoms:
                masks[atom] = masks.get(atom, 0) | bit

    def with_atom(self, atom: Atom) -> Mask:
        """Who holds an atom."""
        match atom:
            case Has() | Owner() | Member() if atom.target.level in ("any", "every"):
                masks = [self.with_atom(replace(atom, target=at)) for at in self.context.located(atom.target)]
                return _union(masks) if atom.target.level == "any" else reduce(and_, masks)
            case Has():
                return self._has(atom.privilege, self.context.path(atom.target))
            case Owner():
                return self._exactly("owner", atom.target)
            case Member():
                return self._exactly("member", atom.target)
            case Holds():
                return self._exactly("holds", atom.target)
            case Self():
                return self._held.get(HeldAtom("self"), 0) if atom.target.slot == RESOURCE else 0
            case ServiceAdmin():
                return self._held.get(HeldAtom("admin"), 0)
            case HasBelow(privilege=privilege, target=target):
                return _union(self._has(privilege, path) for path in self._paths_from(target))
            case OwnsBelow(target=target):
                return _union(self._held.get(HeldAtom("owner", "", path[-1]), 0) for path in self._paths_from(target))
            case Compare():
                return _union(bit for values, bit in self._values if self._compares(atom, values))
            case _:
                assert_never(atom)

    def _compares(self, compare: Compare, values: Values) -> bool:
        """As EvaluationContext.compares, with the values of a candidate."""
        return fulfilled(compare, lambda term: self._value(term, values))

    def _value(self, term: Term, values: Values) -> object:
        if term.target is None:
            return values.get(term)
        path = self.context.path(term.target)
        return values.get(about_entity(term, path[-1])) if path else None

    def _exactly(self, kind: AtomKind, target: Target) -> Mask:
        path = self.context.path(target)
        return self._held.get(HeldAtom(kind, "", path[-1]), 0) if path else 0

    def _paths_from(self, target: Target) -> Iterator[tuple[str, ...]]:
        """As EvaluationContext.paths_from, for all that some candidate is given."""
        path = self.context.path(target)
        if not path:
            return
        yield path
        for key in {atom.on for masks in (self._held, self._denied) for atom in masks if atom.on}:
            keys = tuple(self.context.vocabulary.keys(Entity.parse(key)))
            if path[-1] in keys[:-1]:
                yield keys

    def _has(self, privilege: str, path: tuple[str, ...]) -> Mask:
        keys = self.context.relevant_keys(path)
        owned = keys if privilege in self._owners_hold else ()
        owners = _union(self._held.get(HeldAtom("owner", "", key), 0) for key in owned)
        granted = self._given(self._held, privilege, keys, "allow")
        denies = self.context.program.semantics.deny == "overrides"
        return owners | (granted & ~self._given(self._denied, privilege, keys, "deny") if denies else granted)

    def _given(self, masks: Mapping[HeldAtom, Mask], privilege: str, keys: Iterable[str], effect: str) -> Mask:
        return _union(
            masks.get(HeldAtom("has", name, key), 0)
            for key in keys
            for name in self._names.giving(privilege, key.partition(":")[0], effect)
        )


def _union(masks: Iterable[Mask]) -> Mask:
    found = 0
    for mask in masks:
        found |= mask
    return found
