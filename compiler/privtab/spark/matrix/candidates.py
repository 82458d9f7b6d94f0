"""Find the candidate pairs of entities and subjects, so that conditions need not be evaluated for all pairs.

A conjunction has at most the candidates of its rarest part; the candidates of alternatives add up. Candidates are then decided
exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from privtab.arrow import Codes
from privtab.engines.conditions import AllOf, AnyOf, Atom, Condition
from privtab.spark.matrix.pairs import EntityBatch
from privtab.spark.matrix.principals import NONE

MOST = 400_000
"""Number of pairs that are evaluated at once."""


def chunks(entities: EntityBatch, conditions: Sequence[Condition]) -> Iterator[tuple[Codes, Codes]]:
    """(entity, subject) pairs outside which no condition holds, without duplicates, in chunks that fit into memory."""
    subject_count = entities.world.people.count
    if not subject_count or not entities.count:
        return
    expected = np.zeros(entities.count, np.int64)
    for condition in conditions:
        expected += _expected(entities, condition)
    every_subject = expected >= subject_count
    ends = np.cumsum(np.minimum(np.maximum(expected, 1), subject_count))
    begin = 0
    while begin < entities.count:
        pairs_before = ends[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, pairs_before + MOST, side="right")))
        part = np.arange(begin, min(end, entities.count))
        begin = end
        yield _pairs(entities, conditions, part, every_subject[part])


def _pairs(
    entities: EntityBatch, conditions: Sequence[Condition], part: Codes, every_subject: np.ndarray
) -> tuple[Codes, Codes]:
    subject_count = entities.world.people.count
    unselective = part[every_subject]
    selective = part[~every_subject]
    keys = [np.repeat(unselective, subject_count) << 32 | np.tile(np.arange(subject_count), len(unselective))]
    if len(selective):
        keys += [found for condition in conditions for found in _candidates(entities, condition, selective)]
    pair_keys = np.unique(np.concatenate(keys)) if len(keys) > 1 else keys[0]
    return pair_keys >> 32, pair_keys & 0xFFFFFFFF


def _expected(entities: EntityBatch, condition: Condition) -> Codes:
    """An upper bound of the number of candidates of each entity."""
    match condition:
        case AllOf(parts=()):
            return np.full(entities.count, entities.world.people.count, np.int64)
        case AllOf():
            found: Codes = min((_expected(entities, part) for part in condition.parts), key=lambda counts: counts.sum())
            return found
        case AnyOf():
            total = np.zeros(entities.count, np.int64)
            for part in condition.parts:
                total += _expected(entities, part)
            return total
        case Atom():
            return _expected_of(entities, condition)


def _candidates(entities: EntityBatch, condition: Condition, part: Codes) -> Iterator[Codes]:
    """Candidate pairs as keys; may repeat. `part`: the entities to consider."""
    match condition:
        case AllOf(parts=()):
            subject_count = entities.world.people.count
            yield np.repeat(part, subject_count) << 32 | np.tile(np.arange(subject_count), len(part))
        case AllOf():
            rarest = min(condition.parts, key=lambda inner: _expected(entities, inner)[part].sum())
            yield from _candidates(entities, rarest, part)
        case AnyOf():
            for inner in condition.parts:
                yield from _candidates(entities, inner, part)
        case Atom():
            yield from _candidates_of(entities, condition, part)


def _expected_of(entities: EntityBatch, fact: Atom) -> Codes:
    world = entities.world
    total = np.zeros(entities.count, np.int64)
    match fact.kind:
        case "service_admin":
            total += int(world.people.admin.sum())
        case "self":
            total += 1
        case "holds":
            for codes in world.principals_named("role", entities.at(fact.slot, fact.type)):
                total += world.people.holders.counts(codes)
        case "member":
            total += world.held[fact.type].members.counts(entities.places(fact.slot, fact.type))
            total += int(world.people.abstract.sum())
            if world.reader.principal[fact.type] == "group":
                for codes in world.principals_named("group", entities.at(fact.slot, fact.type)):
                    total += world.people.holders.counts(codes)
        case "owner":
            total += world.held[fact.type].weights("owner", "")[entities.places(fact.slot, fact.type)]
        case "has":
            owners = fact.privilege in world.meaning.owner_holds
            for type_ in world.relevant_types(fact):
                places, held = entities.places(fact.slot, type_), world.held[type_]
                total += held.weights("allow", fact.privilege)[places]
                total += held.weights("owner", "")[places] if owners else 0
                everywhere = world.everywhere(fact.privilege, type_)
                total += 0 if everywhere is None else int((everywhere != NONE).sum())
            for scope in _scopes(entities, fact):
                total += world.held[scope].scopes.counts(entities.places(fact.slot, scope))
    return total


def _candidates_of(entities: EntityBatch, fact: Atom, part: Codes) -> Iterator[Codes]:
    world = entities.world
    people = world.people
    match fact.kind:
        case "service_admin":
            yield _all_pairs(part, np.flatnonzero(people.admin))
        case "self":
            users = world.named_users(entities.at(fact.slot, fact.type))[part]
            yield (part << 32 | users)[users >= 0]
        case "holds":
            yield from _principals(entities, "role", fact, part)
        case "member":
            members = world.held[fact.type].members
            rows, positions = members.spread(entities.places(fact.slot, fact.type)[part])
            yield part[rows] << 32 | members.values[positions]
            yield _all_pairs(part, np.flatnonzero(people.abstract))
            if world.reader.principal[fact.type] == "group":
                yield from _principals(entities, "group", fact, part)
        case "owner":
            yield _holders(entities, fact, fact.type, "owner", part)
        case "has":
            for type_ in world.relevant_types(fact):
                yield _holders(entities, fact, type_, "allow", part)
                if fact.privilege in world.meaning.owner_holds:
                    yield _holders(entities, fact, type_, "owner", part)
                everywhere = world.everywhere(fact.privilege, type_)
                if everywhere is not None:
                    yield _all_pairs(part, np.flatnonzero(everywhere != NONE))
            for scope in _scopes(entities, fact):
                scopes = world.held[scope].scopes
                rows, positions = scopes.spread(entities.places(fact.slot, scope)[part])
                yield part[rows] << 32 | scopes.values[positions]


def _scopes(entities: EntityBatch, fact: Atom) -> list[str]:
    """The types of the scopes in which a declared role counts for a fact."""
    return entities.world.chain(fact.type) if entities.world.meaning.roles else []


def _all_pairs(part: Codes, subjects: Codes) -> Codes:
    pairs: Codes = np.repeat(part, len(subjects)) << 32 | np.tile(subjects, len(part))
    return pairs


def _holders(entities: EntityBatch, fact: Atom, type_: str, kind: str, part: Codes) -> Codes:
    """Pairs for the subjects that hold something through an entry at the entities of a type."""
    people, held = entities.world.people, entities.world.held[type_]
    column = held.owner() if kind == "owner" else held.allowed(fact.privilege)
    rows, positions = held.by_place.spread(entities.places(fact.slot, type_)[part])
    entries = held.by_place.values[positions]
    with_way = column[entries] != NONE
    rows, entries = rows[with_way], entries[with_way]
    entry_numbers, positions = people.holders.spread(held.principal[entries])
    pairs: Codes = part[rows[entry_numbers]] << 32 | people.holders.values[positions]
    return pairs


def _principals(entities: EntityBatch, kind: str, fact: Atom, part: Codes) -> Iterator[Codes]:
    holders = entities.world.people.holders
    for codes in entities.world.principals_named(kind, entities.at(fact.slot, fact.type)):
        rows, positions = holders.spread(codes[part])
        yield part[rows] << 32 | holders.values[positions]
