"""Rows of columns that are decided one by one: where a type nests, and those that bring groups or name active roles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privtab.arrow import Codes, Truth
from privtab.engines.columns import DEPTH, MALFORMED, NULL, OK, well_formed
from privtab.engines.conditions import RESOURCE
from privtab.engines.rows import RowEngine
from privtab.errors import InvalidRequest
from privtab.paths import PathShape, count_names
from privtab.request import Entity, Request
from privtab.vocabulary import Vocabulary

if TYPE_CHECKING:
    from privtab.engines.batches import Answers


class Group(Protocol):
    """What rows share."""

    @property
    def type(self) -> str:
        """The type of the resources."""

    @property
    def action(self) -> str:
        """The operation."""

    @property
    def flags(self) -> frozenset[str]:
        """As in Request."""


def decide_rows(
    engine: RowEngine,
    group: Group,
    names: pa.Array,
    columns: Mapping[str, tuple[str, pa.Array]],
    groups: pa.Array | None,
    active: pa.Array | None,
    answers: Answers,
) -> Answers:
    """Fill in the answers of rows that have no reason yet. `columns`: the type and the paths of the object in each slot."""
    rule = engine.program["rules"][group.type][group.action]
    columns = {slot: (kind, column.fill_null("")) for slot, (kind, column) in columns.items()}
    names_of_policy = Vocabulary.from_program(engine.program)
    paths = {slot: (kind, column.to_pylist()) for slot, (kind, column) in columns.items()}
    spelt = {slot: _well_spelt(column) for slot, (_, column) in columns.items()}
    request_groups = None if groups is None else groups.to_pylist()
    narrowed = None if active is None else active.to_pylist()
    for row, user in enumerate(names.to_pylist()):
        bring = () if request_groups is None else tuple(request_groups[row] or ())
        roles = None if narrowed is None else tuple(narrowed[row] or ())
        if not user or not {"", None}.isdisjoint((*bring, *(roles or ()))):
            answers.reasons[row] = answers.reasons[row] or NULL
        for slot, (kind, ids) in paths.items():
            unnamed = slot == RESOURCE and rule["unnamed"] and not engine.single(kind)
            if engine.reader.shapes[kind].flat is not None:
                wrong = OK if _is_id(names_of_policy, Entity(kind, ids[row]), unnamed=unnamed) else MALFORMED
            else:
                wrong = _wrong(engine.reader.shapes[kind], ids[row], unnamed=unnamed, spelt=bool(spelt[slot][row]))
            answers.reasons[row] = answers.reasons[row] or wrong
        if not answers.reasons[row]:
            entities = {slot: Entity(kind, ids[row]) for slot, (kind, ids) in paths.items()}
            resource = entities.pop(RESOURCE)
            request = Request(
                user=user,
                action=group.action,
                resource=resource,
                groups=bring,
                with_=entities,
                flags=group.flags,
                active_roles=roles,
            )
            answers.allowed[row] = engine.allow(request)
    return answers


def allow_rows(
    engine: RowEngine,
    group: Group,
    rows: Codes,
    names: pa.Array,
    columns: Mapping[str, tuple[str, pa.Array]],
    groups: pa.Array | None = None,
    active: pa.Array | None = None,
) -> Truth:
    """Decide some rows, all valid requests, one by one: those that bring groups or name active roles."""
    indices = pa.array(rows)
    none = [None] * len(rows)
    paths = {slot: (kind, column.take(indices).to_pylist()) for slot, (kind, column) in columns.items()}
    request_groups = none if groups is None else groups.take(indices).to_pylist()
    narrowed = none if active is None else active.take(indices).to_pylist()
    allowed = np.zeros(len(rows), np.bool_)
    for row, user in enumerate(names.take(indices).to_pylist()):
        entities = {slot: Entity(kind, ids[row]) for slot, (kind, ids) in paths.items()}
        resource, roles = entities.pop(RESOURCE), narrowed[row]
        request = Request(
            user=user,
            action=group.action,
            resource=resource,
            groups=tuple(request_groups[row] or ()),
            with_=entities,
            flags=group.flags,
            active_roles=None if roles is None else tuple(roles),
        )
        allowed[row] = engine.allow(request)
    return allowed


def _well_spelt(column: pa.Array) -> Truth:
    """As `well_formed`, whether or not the last name is left out."""
    return well_formed(pc.replace_substring_regex(column, "/$", ""))


def _is_id(names: Vocabulary, entity: Entity, *, unnamed: bool) -> bool:
    """Whether an id that is flat, or begins with one, is well formed."""
    try:
        names.check_path(entity, unnamed=unnamed)
    except InvalidRequest:
        return False
    return True


def _wrong(shape: PathShape, id_: str, *, unnamed: bool, spelt: bool) -> int:
    """Why a path is not one of its type; OK if it is."""
    count = count_names(id_)
    ends = id_.endswith("/")
    if not spelt or (ends and (shape.nested is None or not unnamed)):
        return MALFORMED
    if shape.nested is None and unnamed and count == shape.depth - 1:
        return OK
    return OK if shape.depth <= count <= shape.most else DEPTH


def with_nameless(groups: pa.Array) -> Codes:
    """The rows that have a group, or an active role, without a name."""
    nameless = pc.equal(pc.coalesce(groups.flatten(), ""), "").to_numpy(zero_copy_only=False)
    rows: Codes = pc.list_parent_indices(groups).to_numpy(zero_copy_only=False)[nameless]
    return rows
