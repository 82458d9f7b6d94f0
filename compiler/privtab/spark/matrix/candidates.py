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
    subject_count = entities.world.subjects.count
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
    subject_count = entities.world.subjects.count
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
            return np.full(entities.count, entities.world.subjects.count, np.int64)
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
            subject_count = entities.world.subjects.count
            yield np.repeat(part, subject_count) << 32 | np.tile(np.arange(subject_count), len(part))
        case AllOf():
            rarest = min(condition.parts, key=lambda inner: _expected(entities, inner)[part].sum())
            yield from _candidates(entities, rarest, part)
        case AnyOf():
            for inner in condition.parts:
                yield from _candidates(entities, inner, part)
        case Atom():
            yield from _candidates_of(entities, condition, part)


def _expected_of(entities: EntityBatch, atom: Atom) -> Codes:
    world = entities.world
    total = np.zeros(entities.count, np.int64)
    match atom.kind:
        case "service_admin":
            total += int(world.subjects.admin.sum())
        case "self":
            total += 1
        case "holds":
            for codes in world.principals_named("role", entities.at(atom.slot, atom.type)):
                total += world.subjects.holders.counts(codes)
        case "member":
            total += world.held[atom.type].members.counts(entities.places(atom.slot, atom.type))
            total += int(world.subjects.abstract.sum())
            if world.reader.principal[atom.type] == "group":
                for codes in world.principals_named("group", entities.at(atom.slot, atom.type)):
                    total += world.subjects.holders.counts(codes)
        case "owner":
            total += world.held[atom.type].weights("owner", "")[entities.places(atom.slot, atom.type)]
        case "has":
            owners = atom.privilege in world.semantics.owner_holds
            for type_ in world.relevant_types(atom):
                places, type_entries = entities.places(atom.slot, type_), world.held[type_]
                total += type_entries.weights("allow", atom.privilege)[places]
                total += type_entries.weights("owner", "")[places] if owners else 0
                everywhere = world.everywhere(atom.privilege, type_)
                total += 0 if everywhere is None else int((everywhere != NONE).sum())
            for scope in _scopes(entities, atom):
                total += world.held[scope].scopes.counts(entities.places(atom.slot, scope))
    return total


def _candidates_of(entities: EntityBatch, atom: Atom, part: Codes) -> Iterator[Codes]:
    world = entities.world
    subjects = world.subjects
    match atom.kind:
        case "service_admin":
            yield _all_pairs(part, np.flatnonzero(subjects.admin))
        case "self":
            users = world.named_users(entities.at(atom.slot, atom.type))[part]
            yield (part << 32 | users)[users >= 0]
        case "holds":
            yield from _principals(entities, "role", atom, part)
        case "member":
            members = world.held[atom.type].members
            rows, positions = members.spread(entities.places(atom.slot, atom.type)[part])
            yield part[rows] << 32 | members.values[positions]
            yield _all_pairs(part, np.flatnonzero(subjects.abstract))
            if world.reader.principal[atom.type] == "group":
                yield from _principals(entities, "group", atom, part)
        case "owner":
            yield _holders(entities, atom, atom.type, "owner", part)
        case "has":
            for type_ in world.relevant_types(atom):
                yield _holders(entities, atom, type_, "allow", part)
                if atom.privilege in world.semantics.owner_holds:
                    yield _holders(entities, atom, type_, "owner", part)
                everywhere = world.everywhere(atom.privilege, type_)
                if everywhere is not None:
                    yield _all_pairs(part, np.flatnonzero(everywhere != NONE))
            for scope in _scopes(entities, atom):
                scopes = world.held[scope].scopes
                rows, positions = scopes.spread(entities.places(atom.slot, scope)[part])
                yield part[rows] << 32 | scopes.values[positions]


def _scopes(entities: EntityBatch, atom: Atom) -> list[str]:
    """The types of the scopes in which a declared role counts for an atom."""
    return entities.world.chain(atom.type) if entities.world.semantics.roles else []


def _all_pairs(part: Codes, subjects: Codes) -> Codes:
    pairs: Codes = np.repeat(part, len(subjects)) << 32 | np.tile(subjects, len(part))
    return pairs


def _holders(entities: EntityBatch, atom: Atom, type_: str, kind: str, part: Codes) -> Codes:
    """Pairs for the subjects that hold something through an entry at the entities of a type."""
    subjects, type_entries = entities.world.subjects, entities.world.held[type_]
    column = type_entries.owner() if kind == "owner" else type_entries.allowed(atom.privilege)
    rows, positions = type_entries.by_place.spread(entities.places(atom.slot, type_)[part])
    entries = type_entries.by_place.values[positions]
    with_way = column[entries] != NONE
    rows, entries = rows[with_way], entries[with_way]
    entry_numbers, positions = subjects.holders.spread(type_entries.principal[entries])
    pairs: Codes = part[rows[entry_numbers]] << 32 | subjects.holders.values[positions]
    return pairs


def _principals(entities: EntityBatch, kind: str, atom: Atom, part: Codes) -> Iterator[Codes]:
    holders = entities.world.subjects.holders
    for codes in entities.world.principals_named(kind, entities.at(atom.slot, atom.type)):
        rows, positions = holders.spread(codes[part])
        yield part[rows] << 32 | holders.values[positions]
