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
from privtab.ir.formula import walk, with_targets
from privtab.ir.nodes import (
    Alias,
    And,
    ByType,
    Can,
    Compare,
    Formula,
    Has,
    HasBelow,
    Holds,
    Member,
    Or,
    Owner,
    OwnsBelow,
    Program,
    Rule,
    Self,
    ServiceAdmin,
    When,
)

MIN_SHARE = 0.5
"""The least share of matching rows, or of matching uses, for a rename."""
MIN_SIMILARITY = 0.6
"""The least similarity of two names that no row uses."""
MAX_COMPARED = 200
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
class _NameSimilarity:
    """How well two names fit; the greatest wins."""

    share: float
    same_title: bool
    similarity: float
    first: int
    """Minus the position in the file."""
    name: str = field(compare=False)
    reason: str = field(compare=False, default="")


def _similarity(first: str, second: str, candidates: int) -> float:
    return SequenceMatcher(a=first, b=second, autojunk=False).ratio() if candidates <= MAX_COMPARED else 0.0


# --- entity types -----------------------------------------------------------------------------------------------------


def _types(before: Program, after: Program, found: Renames) -> Renames:
    removed = [type_ for type_ in before.entities if type_ not in after.entities]
    added = [type_ for type_ in after.entities if type_ not in before.entities]
    row_keys = _RowKeys(
        types=frozenset(removed) | frozenset(added),
        privileges=before.privileges.keys() ^ after.privileges.keys(),
    )
    rows = (_rows_by_type(before, removed), _rows_by_type(after, added))
    mapped: dict[str, str] = {}
    reasons: dict[str, str] = {}
    for name in removed:
        declaration = before.entities[name]
        unmatched = [type_ for type_ in added if type_ not in mapped.values()]
        fits: list[_NameSimilarity] = []
        for position, candidate_name in enumerate(unmatched):
            candidate = after.entities[candidate_name]
            parent = declaration.parent and mapped.get(declaration.parent, declaration.parent)
            if (parent, declaration.single, declaration.principal) != (
                candidate.parent,
                candidate.single,
                candidate.principal,
            ):
                continue
            old_keys = {rule.operation: row_keys.row(rule) for rule in rows[0][name]}
            new_keys = {rule.operation: row_keys.row(rule) for rule in rows[1][candidate_name]}
            similarity = _similarity(name, candidate_name, len(unmatched))
            same_title = declaration.title is not None and declaration.title == candidate.title
            same = sum(new_keys.get(operation) == key for operation, key in old_keys.items())
            larger = max(len(old_keys), len(new_keys))
            if not larger and (same_title or similarity >= MIN_SIMILARITY):
                fits.append(
                    _NameSimilarity(
                        MIN_SHARE,
                        same_title,
                        similarity,
                        -position,
                        candidate_name,
                        "the same place and a name that is near",
                    )
                )
            elif larger and same / larger >= MIN_SHARE:
                reason = f"{same} of {larger} row{'s' * (larger != 1)} the same"
                fits.append(_NameSimilarity(same / larger, same_title, similarity, -position, candidate_name, reason))
        if fits:
            best = max(fits)
            mapped[name], reasons[name] = best.name, best.reason
    return replace(found, names=replace(found.names, types=mapped), types_by=reasons)


def _rows_by_type(program: Program, types: Iterable[str]) -> dict[str, list[Rule]]:
    rows: dict[str, list[Rule]] = {type_: [] for type_ in types}
    for (type_, _), rule in program.rules.items():
        if type_ in rows:
            rows[type_].append(rule)
    return rows


# --- privileges -------------------------------------------------------------------------------------------------------


def _privileges(before: Program, after: Program, found: Renames) -> Renames:
    removed = [privilege for privilege in before.privileges if privilege not in after.privileges]
    added = [privilege for privilege in after.privileges if privilege not in before.privileges]
    common_pairs = {found.names.pair(*pair) for pair in before.rules} & after.rules.keys()
    old_sites, new_sites = (
        _sites(before, removed, found.names, common_pairs),
        _sites(after, added, Renaming(), common_pairs),
    )
    names_by_site: dict[object, list[str]] = defaultdict(list)
    for name in added:
        for site in new_sites[name]:
            names_by_site[site].append(name)
    order = {name: position for position, name in enumerate(added)}
    mapped: dict[str, str] = {}
    aliases: dict[str, Alias] = {}
    reasons: dict[str, str] = {}
    for name in removed:
        matched = set(mapped.values())
        alias_name = _by_alias(before, after, name)
        if alias_name is not None and alias_name not in matched and alias_name in order:
            mapped[name] = alias_name
            reasons[name] = "one is an alias of the other"
            aliases[name] = Alias(name=name, of=alias_name)
            continue
        shared = Counter(
            candidate for site in old_sites[name] for candidate in names_by_site[site] if candidate not in matched
        )
        fits: list[_NameSimilarity] = []
        for candidate, same in shared.items():
            total = len(old_sites[name] | new_sites[candidate])
            if same / total >= MIN_SHARE:
                old_privilege, new_privilege = before.privileges[name], after.privileges[candidate]
                same_title = old_privilege.title is not None and old_privilege.title == new_privilege.title
                reason = f"{same} of {total} place{'s' * (total != 1)} that name it the same"
                similarity = _similarity(name, candidate, len(shared))
                fits.append(_NameSimilarity(same / total, same_title, similarity, -order[candidate], candidate, reason))
        if fits:
            best = max(fits)
            mapped[name], reasons[name] = best.name, best.reason
    return replace(found, names=replace(found.names, privileges=mapped), privileges_by=reasons, aliases=aliases)


def _by_alias(before: Program, after: Program, name: str) -> str | None:
    """The new name, if one side has the other's name as an alias."""
    if name in after.aliases:
        return after.aliases[name].of
    return next(
        (alias.name for alias in before.aliases.values() if alias.of == name and alias.name in after.privileges), None
    )


def _sites(
    program: Program, privileges: Iterable[str], names: Renaming, common_pairs: AbstractSet[Pair]
) -> dict[str, set[object]]:
    """Where each privilege is required, granted by an effect, or part of a set or a role.

    `common_pairs`: the operations that both sides have. Any other may have been renamed, so only its entity counts.
    """
    sites: dict[str, set[object]] = {name: set() for name in privileges}
    for (type_, operation), rule in program.rules.items():
        renamed = names.pair(type_, operation)
        pair = renamed if renamed in common_pairs else renamed[0]
        for part, formula in (("gate", rule.gate), ("requires", rule.requires), ("each", rule.each)):
            for node in () if formula is None else walk(formula):
                if isinstance(node, Has) and node.privilege in sites:
                    sites[node.privilege].add((pair, part, names.target(node.target)))
        for effect in rule.effects:
            for privilege in effect.privileges:
                if privilege in sites:
                    sites[privilege].add((pair, effect.kind, names.target(effect.target)))
    implications = {name: privilege.implies for name, privilege in program.privileges.items()}
    for kind, named in (("set", program.sets), ("implied by", implications)):
        for name, members in named.items():
            for member in members:
                if member in sites:
                    sites[member].add((kind, name))
    for role in program.roles.values():
        for type_, privileges_ in role.grants:
            for privilege in privileges_:
                if privilege in sites:
                    sites[privilege].add(("role", role.name, names.type(type_)))
    return sites


# --- operations -------------------------------------------------------------------------------------------------------


def _operations(before: Program, after: Program, found: Renames) -> Renames:
    """Match rows until nothing new is found: a row can refer to a renamed one."""
    mapped: dict[Pair, str] = {}
    reasons: dict[Pair, str] = {}
    renamed_pairs = {pair: found.names.pair(*pair) for pair in before.rules}
    known = set(renamed_pairs.values())
    new_operations: dict[str, list[str]] = defaultdict(list)
    for type_, operation in after.rules:
        if (type_, operation) not in known:
            new_operations[type_].append(operation)
    removed = [
        pair
        for pair, renamed_pair in renamed_pairs.items()
        if renamed_pair not in after.rules and renamed_pair[0] in new_operations
    ]
    row_keys = _RowKeys()
    keys_after = {
        (type_of, operation_name): row_keys.row(after.rules[type_of, operation_name])
        for type_of, operations in new_operations.items()
        for operation_name in operations
    }
    progress = bool(removed)
    while progress:
        progress = False
        names = replace(found.names, operations=mapped)
        for pair in removed:
            if pair in mapped:
                continue
            rule = names.rule(before.rules[pair])
            unmatched = [
                operation_name
                for operation_name in new_operations[rule.entity]
                if (rule.entity, operation_name)
                not in {(names.type(type_of), new_name) for (type_of, _), new_name in mapped.items()}
            ]
            key = row_keys.row(rule)
            fits = [
                _NameSimilarity(
                    1.0,
                    rule.title == after.rules[rule.entity, operation_name].title,
                    _similarity(pair[1], operation_name, len(unmatched)),
                    -position,
                    operation_name,
                )
                for position, operation_name in enumerate(unmatched)
                if keys_after[rule.entity, operation_name] == key
            ]
            if fits:
                mapped[pair] = max(fits).name
                reasons[pair] = "the same condition and effects"
                progress = True
    return replace(found, names=replace(found.names, operations=mapped), operations_by=reasons)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RowKeys:
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
            case Has() | HasBelow():
                return (
                    type(formula).__name__,
                    self.privilege(formula.privilege),
                    formula.target.slot,
                    self.type(formula.target.type, own),
                )
            case Owner() | Member() | Self() | Holds() | OwnsBelow():
                return type(formula).__name__, formula.target.slot, self.type(formula.target.type, own)
            case ServiceAdmin():
                return "service admin"
            case Compare():
                return "compare", with_targets(
                    formula, lambda target: replace(target, type=self.type(target.type, own))
                )
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
