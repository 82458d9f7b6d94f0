"""Explain an entitlement by the first minimal set of its rule that holds, atom by atom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privtab.arrow import Codes
from privtab.engines.conditions import Atom
from privtab.names import quoted
from privtab.spark.matrix.grants import level_of, rank_of
from privtab.spark.matrix.pairs import AtomByPair, Pairs

KINDS = ("grant", "role", "owner", "member", "holds", "self", "service admin", "needed", "attribute")
"""The source of an atom: a row of grants, a default grant of a declared role, and so on. `needed`: a membership that a group or role
cannot have, so that its holder must have it. `attribute`: a comparison."""
GRANT, ROLE, OWNER, MEMBER, HOLDS, SELF, ADMIN, NEEDED, ATTRIBUTE = range(len(KINDS))
ANYONE = "anyone"

LINK = pa.struct(
    [
        ("atom", pa.string()),
        ("kind", pa.string()),
        ("principal", pa.string()),
        ("entity", pa.string()),
        ("group", pa.string()),
    ]
)
"""One atom of a way: the atom, its kind of source, the principal and entity of the source, and the group through which a role is held."""
LINKS = pa.list_(LINK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One minimal set: its atoms, and the position of the main one, for columns with room for only one."""

    atoms: tuple[Atom, ...]
    main: int


def way_of(numbers: Sequence[int], atoms: Sequence[Mapping[str, Any]], depth: Mapping[str, int]) -> Way:
    """A minimal set from the program's JSON. Its main atom is the privilege or ownership nearest to the resource."""
    needed = tuple(
        Atom(atom["kind"], atom.get("slot", ""), atom.get("type", ""), atom.get("privilege", ""))
        for atom in (atoms[number] for number in numbers)
    )
    order = sorted(
        range(len(needed)),
        key=lambda position: (
            needed[position].slot != "",
            needed[position].kind not in ("has", "owner"),
            -depth.get(needed[position].type, 0),
            position,
        ),
    )
    return Way(atoms=needed, main=order[0] if order else -1)


def links(pairs: Pairs, way: Way, rows: Codes) -> tuple[pa.Array, pa.Array, pa.Array, pa.Array]:
    """For the given rows of `pairs`: all links, and the kind, principal and entity of the main one."""
    if not way.atoms:
        none = pa.nulls(len(rows), pa.string())
        empty = pa.ListArray.from_arrays(pa.array(np.zeros(len(rows) + 1, np.int32)), pa.array([], LINK))
        return empty, pa.array([ANYONE] * len(rows), pa.string()), none, none
    columns = [_link(pairs, atom, rows) for atom in way.atoms]
    width, count = len(columns), len(rows)
    flat = pa.concat_arrays(columns)
    order = (np.arange(width)[None, :] * count + np.arange(count)[:, None]).ravel()
    offsets = pa.array(np.arange(count + 1, dtype=np.int32) * width)
    main = columns[way.main]
    return (
        pa.ListArray.from_arrays(offsets, flat.take(pa.array(order))),
        main.field("kind"),
        main.field("principal"),
        main.field("entity"),
    )


def _link(pairs: Pairs, atom: Atom, rows: Codes) -> pa.StructArray:
    world, subjects = pairs.world, pairs.world.subjects
    known = pairs.known(atom)
    ways, entity, subject = known.ways[rows], pairs.entity[rows], pairs.subject[rows]
    ranks = rank_of(ways)
    kinds = _kinds(pairs, atom, known, rows)
    groups = _groups(pairs, atom, known, rows, kinds, subjects.group(subject, ranks))
    entity_keys = _keys(pairs, atom.slot, atom.type).take(pa.array(entity)) if atom.type else None
    match atom.kind:
        case "self" | "service_admin":
            atom_texts = pa.array([atom.kind.replace("_", " ")] * len(rows), pa.string())
            source_keys = pa.nulls(len(rows), pa.string())
        case "has":
            atom_texts = _join(quoted(atom.privilege), entity_keys)
            chain = world.chain(atom.type)
            level = {world.held[type_].level: number for number, type_ in enumerate(chain)}
            assert list(level) == list(range(len(chain)))
            keys = pa.concat_arrays([_keys(pairs, atom.slot, type_) for type_ in chain])
            source_keys = keys.take(pa.array(level_of(ways) * pairs.entities.count + entity))
        case _:
            atom_texts, source_keys = _join(atom.kind, entity_keys), entity_keys
    return pa.StructArray.from_arrays(
        [
            atom_texts,
            pa.array(KINDS, pa.string()).take(pa.array(kinds)),
            subjects.name_column.take(pa.array(ranks)),
            source_keys,
            subjects.group_column.take(pa.array(groups, mask=groups < 0)),
        ],
        fields=list(LINK),
    )


def _kinds(pairs: Pairs, atom: Atom, known: AtomByPair, rows: Codes) -> Codes:
    subjects = pairs.world.subjects
    match atom.kind:
        case "has":
            kinds = np.where(known.ways[rows] & 1 != 0, ROLE, GRANT)
            return kinds if known.owned is None else np.where(known.owned[rows], OWNER, kinds)
        case "member":
            subject = pairs.subject[rows]
            is_group = pairs.world.reader.principal[atom.type] == "group"
            needed: Codes = np.where(subjects.abstract[subject] & (not is_group), NEEDED, MEMBER)
            return needed
        case kind:
            code = {"owner": OWNER, "holds": HOLDS, "self": SELF, "service_admin": ADMIN}[kind]
            return np.full(len(rows), code, np.int64)


def _groups(pairs: Pairs, atom: Atom, known: AtomByPair, rows: Codes, kinds: Codes, codes: Codes) -> Codes:
    """By row, the group through which the principal is held; -1: directly. Of several holdings, the first that counts there."""
    undetermined = np.flatnonzero(codes < -1)
    if not len(undetermined):
        return codes
    subjects, world = pairs.world.subjects, pairs.world
    paths = [(type_, pairs.entities.at(atom.slot, type_)) for type_ in world.chain(atom.type)]
    levels, codes = level_of(known.ways[rows]), codes.copy()
    for row in undetermined:
        entity, kind = pairs.entity[rows[row]], kinds[row]
        # A default grant of a role counts for scopes at or above its entity; a grant, for any scope on the path of the atom's
        # entity; ownership, only for a role held everywhere; `holds`, for any scope.
        end = {GRANT: len(paths), ROLE: levels[row] + 1}.get(kind, 0)
        scopes = {"", *(f"{type_}:{paths_of_type[entity]}" for type_, paths_of_type in paths[:end])}
        holdings = subjects.mixed[-2 - codes[row]]
        codes[row] = next(
            subjects.number_of_group[group] for group, scope in holdings if kind == HOLDS or scope in scopes
        )
    return codes


def _keys(pairs: Pairs, slot: str, type_: str) -> pa.Array:
    """By entity, the key of the entity of a type on its path; null if it is not named."""
    paths = pairs.entities.at(slot, type_)
    return pa.array([None if path is None else f"{type_}:{path}" for path in paths], pa.string())


def _join(word: str, keys: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(pa.scalar(f"{word} ("), keys, pa.scalar(")"), pa.scalar(""))
