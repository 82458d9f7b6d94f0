"""Recognises renamed entity types, then privileges, then operations, by the rows that use them.

The result is deterministic: candidates are tried in the order of the file. The best fit wins, then an equal title, then
the most similar name, then the first candidate.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from typing import TypeAlias, assert_never

from privtab.analysis.diff.mapping import Renaming
from privtab.analysis.diff.nodes import Pair
from privtab.ir.formula import walk
from privtab.ir.nodes import (
    Alias,
    And,
    ByType,
    Can,
    Formula,
    Has,
    Holds,
    Member,
    Or,
    Owner,
    Program,
    Rule,
    Self,
    ServiceAdmin,
    When,
)

ENOUGH = 0.5
"""The least share of matching rows, or of matching uses, for a rename."""
NEAR = 0.6
"""The least similarity of two names that no row uses."""
MANY = 200
"""If there are more candidates, similarity of names is not considered."""

Key: TypeAlias = object
"""The content of a row; rows with the same content have equal keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Renames:
    """Old name → new name, and how each was recognised."""

    names: Renaming = field(default_factory=Renaming)
    aliases: Mapping[str, Alias] = field(default_factory=dict)
    """Old names of privileges that both sides still accept, as aliases."""
    types_by: Mapping[str, str] = field(default_factory=dict)
    privileges_by: Mapping[str, str] = field(default_factory=dict)
    operations_by: Mapping[Pair, str] = field(default_factory=dict)


def recognise(before: Program, after: Program) -> Renames:
    """Find names that changed while the meaning stayed; empty if both programs have the same names."""
    found = Renames()
    if before.entities.keys() != after.entities.keys():
        found = _types(before, after, found)
    if before.privileges.keys() != after.privileges.keys():
        found = _privileges(before, after, found)
    return _operations(before, after, found)


@dataclass(frozen=True, slots=True, order=True)
class _Fit:
    """How well two names fit; the greatest wins."""

    share: float
    titled: bool
    near: float
    first: int
    """Minus the position in the file."""
    name: str = field(compare=False)
    says: str = field(compare=False, default="")


def _near(one: str, other: str, candidates: int) -> float:
    return SequenceMatcher(a=one, b=other, autojunk=False).ratio() if candidates <= MANY else 0.0


# --- entity types -----------------------------------------------------------------------------------------------------


def _types(before: Program, after: Program, found: Renames) -> Renames:
    gone = [t for t in before.entities if t not in after.entities]
    new = [t for t in after.entities if t not in before.entities]
    missing = _Blanks(
        types=frozenset(gone) | frozenset(new),
        privileges=before.privileges.keys() ^ after.privileges.keys(),
    )
    rows = (_rows_by_type(before, gone), _rows_by_type(after, new))
    mapped: dict[str, str] = {}
    by: dict[str, str] = {}
    for name in gone:
        kind = before.entities[name]
        free = [t for t in new if t not in mapped.values()]
        fits: list[_Fit] = []
        for place, other_name in enumerate(free):
            other = after.entities[other_name]
            parent = kind.parent and mapped.get(kind.parent, kind.parent)
            if (parent, kind.single, kind.principal) != (other.parent, other.single, other.principal):
                continue
            mine = {r.operation: missing.row(r) for r in rows[0][name]}
            theirs = {r.operation: missing.row(r) for r in rows[1][other_name]}
            near = _near(name, other_name, len(free))
            titled = kind.title is not None and kind.title == other.title
            same = sum(theirs.get(operation) == key for operation, key in mine.items())
            most = max(len(mine), len(theirs))
            if not most and (titled or near >= NEAR):
                fits.append(_Fit(ENOUGH, titled, near, -place, other_name, "the same place and a name that is near"))
            elif most and same / most >= ENOUGH:
                says = f"{same} of {most} row{'s' * (most != 1)} the same"
                fits.append(_Fit(same / most, titled, near, -place, other_name, says))
        if fits:
            best = max(fits)
            mapped[name], by[name] = best.name, best.says
    return replace(found, names=replace(found.names, types=mapped), types_by=by)


def _rows_by_type(program: Program, types: Iterable[str]) -> dict[str, list[Rule]]:
    rows: dict[str, list[Rule]] = {type_: [] for type_ in types}
    for (type_, _), rule in program.rules.items():
        if type_ in rows:
            rows[type_].append(rule)
    return rows


# --- privileges -------------------------------------------------------------------------------------------------------


def _privileges(before: Program, after: Program, found: Renames) -> Renames:
    gone = [p for p in before.privileges if p not in after.privileges]
    new = [p for p in after.privileges if p not in before.privileges]
    both = {found.names.pair(*pair) for pair in before.rules} & after.rules.keys()
    mine, theirs = _sites(before, gone, found.names, both), _sites(after, new, Renaming(), both)
    where: dict[object, list[str]] = defaultdict(list)
    for name in new:
        for site in theirs[name]:
            where[site].append(name)
    order = {name: place for place, name in enumerate(new)}
    mapped: dict[str, str] = {}
    aliases: dict[str, Alias] = {}
    by: dict[str, str] = {}
    for name in gone:
        taken = set(mapped.values())
        said = _by_alias(before, after, name)
        if said is not None and said not in taken and said in order:
            mapped[name] = said
            by[name] = "one is an alias of the other"
            aliases[name] = Alias(name=name, of=said)
            continue
        shared = Counter(other for site in mine[name] for other in where[site] if other not in taken)
        fits: list[_Fit] = []
        for other, same in shared.items():
            most = len(mine[name] | theirs[other])
            if same / most >= ENOUGH:
                one, two = before.privileges[name], after.privileges[other]
                titled = one.title is not None and one.title == two.title
                says = f"{same} of {most} place{'s' * (most != 1)} that name it the same"
                near = _near(name, other, len(shared))
                fits.append(_Fit(same / most, titled, near, -order[other], other, says))
        if fits:
            best = max(fits)
            mapped[name], by[name] = best.name, best.says
    return replace(found, names=replace(found.names, privileges=mapped), privileges_by=by, aliases=aliases)


def _by_alias(before: Program, after: Program, name: str) -> str | None:
    """The new name, if one side has the other's name as an alias."""
    if name in after.aliases:
        return after.aliases[name].of
    return next(
        (alias.name for alias in before.aliases.values() if alias.of == name and alias.name in after.privileges), None
    )


def _sites(
    program: Program, privileges: Iterable[str], names: Renaming, both: AbstractSet[Pair]
) -> dict[str, set[object]]:
    """Where each privilege is required, granted by an effect, or part of a set or a role.

    `both`: the operations that both sides have. Any other may have been renamed, so only its entity counts.
    """
    sites: dict[str, set[object]] = {name: set() for name in privileges}
    for (type_, operation), rule in program.rules.items():
        named = names.pair(type_, operation)
        pair = named if named in both else named[0]
        for part, formula in (("gate", rule.gate), ("requires", rule.requires), ("each", rule.each)):
            for node in () if formula is None else walk(formula):
                if isinstance(node, Has) and node.privilege in sites:
                    sites[node.privilege].add((pair, part, names.target(node.target)))
        for effect in rule.effects:
            for privilege in effect.privileges:
                if privilege in sites:
                    sites[privilege].add((pair, effect.kind, names.target(effect.target)))
    for name, members in program.sets.items():
        for member in members:
            if member in sites:
                sites[member].add(("set", name))
    for role in program.roles.values():
        for type_, given in role.grants:
            for privilege in given:
                if privilege in sites:
                    sites[privilege].add(("role", role.name, names.type(type_)))
    return sites


# --- operations -------------------------------------------------------------------------------------------------------


def _operations(before: Program, after: Program, found: Renames) -> Renames:
    """Match rows until nothing new is found: a row can refer to a renamed one."""
    mapped: dict[Pair, str] = {}
    by: dict[Pair, str] = {}
    old = {pair: found.names.pair(*pair) for pair in before.rules}
    known = set(old.values())
    new: dict[str, list[str]] = defaultdict(list)
    for type_, operation in after.rules:
        if (type_, operation) not in known:
            new[type_].append(operation)
    gone = [pair for pair, mine in old.items() if mine not in after.rules and mine[0] in new]
    exactly = _Blanks()
    theirs = {(t, o): exactly.row(after.rules[t, o]) for t, operations in new.items() for o in operations}
    looking = bool(gone)
    while looking:
        looking = False
        names = replace(found.names, operations=mapped)
        for pair in gone:
            if pair in mapped:
                continue
            rule = names.rule(before.rules[pair])
            free = [
                o
                for o in new[rule.entity]
                if (rule.entity, o) not in {(names.type(t), n) for (t, _), n in mapped.items()}
            ]
            key = exactly.row(rule)
            fits = [
                _Fit(1.0, rule.title == after.rules[rule.entity, o].title, _near(pair[1], o, len(free)), -place, o)
                for place, o in enumerate(free)
                if theirs[rule.entity, o] == key
            ]
            if fits:
                mapped[pair] = max(fits).name
                by[pair] = "the same condition and effects"
                looking = True
    return replace(found, names=replace(found.names, operations=mapped), operations_by=by)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Blanks:
    """Turns rows into keys, with blanks for names that only one side has."""

    types: frozenset[str] = frozenset()
    privileges: Iterable[str] = ()

    def row(self, rule: Rule) -> Key:
        """The content of a row: who is allowed, and the effects."""
        return (
            self.formula(rule.gate, rule.entity),
            self.formula(rule.requires, rule.entity),
            None if rule.each is None else self.formula(rule.each, rule.entity),
            rule.unnamed,
            rule.report,
            tuple((slot.name, tuple(self.type(t, rule.entity) for t in slot.types)) for slot in rule.withs),
            frozenset(self._effects(rule)),
        )

    def _effects(self, rule: Rule) -> Iterator[object]:
        for effect in rule.effects:
            place = (effect.target.slot, self.type(effect.target.type, rule.entity))
            for what in effect.privileges or (effect.what,):
                yield effect.kind, self.privilege(what), place

    def type(self, name: str, own: str) -> str:
        """The name of a type, or a placeholder if one side lacks it."""
        return name if name not in self.types else "itself" if name == own else "?"

    def privilege(self, name: str) -> str:
        """The name of a privilege, or a placeholder if one side lacks it."""
        return "?" if name in self.privileges else name

    def formula(self, formula: Formula, own: str) -> Key:
        """The content of a condition, regardless of the order of its parts."""
        match formula:
            case Has():
                return (
                    "has",
                    self.privilege(formula.privilege),
                    formula.target.slot,
                    self.type(formula.target.type, own),
                )
            case Owner() | Member() | Self() | Holds():
                return type(formula).__name__, formula.target.slot, self.type(formula.target.type, own)
            case ServiceAdmin():
                return "service admin"
            case Can(operation=operation, target=target):
                return "can", operation, target.slot, self.type(target.type, own)
            case And() | Or():
                return type(formula).__name__, frozenset(self.formula(part, own) for part in formula.parts)
            case When():
                return "when", formula.flag, self.formula(formula.body, own)
            case ByType():
                cases = frozenset((self.type(t, own), self.formula(f, own)) for t, f in formula.cases)
                return "by type", formula.slot, cases
            case _:
                assert_never(formula)
