"""Rows of columns that are decided one by one: where columns do not fit, and those that bring groups, active roles or attributes."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from privtab.base.arrow import Codes, Truth
from privtab.base.errors import InvalidRequest
from privtab.base.names import LEFT_OUT
from privtab.base.paths import PathShape, count_names
from privtab.base.records import dataclass
from privtab.base.request import NOT_SET, Entity, Request
from privtab.base.vocabulary import Vocabulary
from privtab.engines.columns import (
    ATTRIBUTE,
    DEPTH,
    FLAG,
    MALFORMED,
    NONE_GIVEN,
    NULL,
    OK,
    UNKNOWN,
    WITH,
    GivenColumns,
    Reasons,
    TextPool,
    Unevaluated,
    texts,
    unusable,
    well_formed,
)
from privtab.engines.conditions import RESOURCE
from privtab.engines.rows import RowEngine

Value: TypeAlias = str | TextPool
"""A constant, or a column."""
Truths: TypeAlias = pa.Array | npt.NDArray[np.bool_] | Sequence[bool | None]
"""A column of booleans."""

YES, NO = "yes", "no"


def separate(flags: Iterable[str] | Mapping[str, bool | Truths]) -> tuple[dict[str, pa.Array], frozenset[str]]:
    """The flags that vary by row, as columns of text, and what is stated about the others for all rows."""
    if not isinstance(flags, Mapping):
        return {}, frozenset(flags)
    columns = {name: pa.array(value) for name, value in flags.items() if not isinstance(value, bool)}
    varying = {name: pc.if_else(column.fill_null(fill_value=True), YES, NO) for name, column in columns.items()}
    constant = {name: value for name, value in flags.items() if isinstance(value, bool)}
    return varying, frozenset(name if value else f"{name}{NOT_SET}" for name, value in constant.items())


def combinations(values: Sequence[Value], count: int) -> Iterator[tuple[tuple[str | None, ...], Codes | None]]:
    """The combinations of values that occur, each with its rows; None: all rows."""
    columns = [value if isinstance(value, str) else texts(value) for value in values]
    if all(isinstance(column, str) for column in columns):
        yield tuple(columns), None
        return
    code: Codes = np.zeros(count, np.int64)
    distinct_values: list[list[str | None]] = []
    for column in columns:
        if isinstance(column, str):
            distinct_values.append([column])
            continue
        if len(column) != count:
            raise ValueError("the columns are not equally long")
        encoded = column.dictionary_encode(null_encoding="encode")
        distinct_values.append(encoded.dictionary.to_pylist())
        code = code * len(distinct_values[-1]) + encoded.indices.to_numpy(zero_copy_only=False)
    for number in np.unique(code):
        positions = np.unravel_index(number, [len(own) for own in distinct_values])
        combination = tuple(own[at] for own, at in zip(distinct_values, positions, strict=True))
        yield combination, np.flatnonzero(code == number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The common part of rows that differ only in names."""

    type: str
    action: str
    flags: frozenset[str]
    withs: Mapping[str, str | None]
    """The type of each given `with` object; None where rows have none."""

    def wrong(self, rule: Mapping[str, Any] | None) -> int:
        """Why rows are no valid requests, whatever their names are; OK if they may be. `rule`: the operation in the program."""
        if rule is None:
            return UNKNOWN
        if not {flag.removesuffix(NOT_SET) for flag in self.flags}.issuperset(rule.get("required_flags", ())):
            return FLAG
        slots: Mapping[str, Sequence[str]] = rule["with"]
        given = self.types
        if any(slot in given and given[slot] == LEFT_OUT not in types for slot, types in slots.items()):
            return NULL
        return WITH if any(given.get(slot, LEFT_OUT) not in types for slot, types in slots.items()) else OK

    @property
    def types(self) -> Mapping[str, str]:
        """The types of the `with` objects; `LEFT_OUT` for one that these rows have not."""
        return {slot: type_ or LEFT_OUT for slot, type_ in self.withs.items()}

    def given(self, slots: Container[str]) -> dict[str, str]:
        """The types of the objects in some slots that these rows have."""
        return {slot: type_ for slot, type_ in self.withs.items() if slot in slots and type_}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """One answer for each row."""

    allowed: Truth
    reasons: Reasons
    """Why a row is denied without evaluation: by the numbers of Unevaluated."""

    def reason(self, row: int) -> str | None:
        """The reason as text; None if the row was evaluated."""
        return Unevaluated(int(self.reasons[row])).text


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows of one form. All columns are equally long."""

    form: Form
    names: pa.Array
    """Of the users."""
    columns: Mapping[str, tuple[str, pa.Array]]
    """The type and the paths of the object in each slot."""
    groups: pa.Array | None = None
    active: pa.Array | None = None
    given: GivenColumns = NONE_GIVEN

    def special(self) -> Truth:
        """Find the rows that columns cannot decide: rows with groups or attributes, and all if they name active roles."""
        if self.active is not None:
            return np.ones(len(self.names), np.bool_)
        found = self.given.any(len(self.names))
        if self.groups is not None:
            found |= lengths(self.groups) > 0
        return found

    def take(self, rows: Codes) -> Rows:
        """Some of the rows."""
        indices = pa.array(rows)
        return replace(
            self,
            names=self.names.take(indices),
            columns={slot: (kind, column.take(indices)) for slot, (kind, column) in self.columns.items()},
            groups=None if self.groups is None else self.groups.take(indices),
            active=None if self.active is None else self.active.take(indices),
            given=self.given.take(rows),
        )

    def requests(self) -> Iterator[Request]:
        """Each row, which must have a user and paths, as a request."""
        count = len(self.names)
        none = [None] * count
        paths = {slot: (kind, column.to_pylist()) for slot, (kind, column) in self.columns.items()}
        groups = none if self.groups is None else self.groups.to_pylist()
        narrowed = none if self.active is None else self.active.to_pylist()
        for row, (user, attributes) in enumerate(zip(self.names.to_pylist(), self.given.rows(count), strict=True)):
            entities = {slot: Entity(kind, ids[row]) for slot, (kind, ids) in paths.items()}
            resource, roles = entities.pop(RESOURCE), narrowed[row]
            yield Request(
                user=user,
                action=self.form.action,
                resource=resource,
                groups=tuple(groups[row] or ()),
                with_=entities,
                flags=self.form.flags,
                active_roles=None if roles is None else tuple(roles),
                attributes=attributes,
            )


def decide_rows(engine: RowEngine, vocabulary: Vocabulary, rows: Rows, answers: Answers) -> Answers:
    """Fill in the answers of rows that have no reason yet, where paths have no fixed length."""
    rule = engine.program["rules"][rows.form.type][rows.form.action]
    for row, user in enumerate(rows.names.to_pylist()):
        if not user:
            answers.reasons[row] = answers.reasons[row] or NULL
    for slot, (kind, column) in rows.columns.items():
        unnamed = slot == RESOURCE and rule["unnamed"] and not engine.single(kind)
        shape = engine.reader.shapes[kind]
        texts = column.fill_null("")
        spelt = _well_spelt(texts)
        for row, id_ in enumerate(texts.to_pylist()):
            if answers.reasons[row]:
                continue
            if shape.flat is not None:
                wrong = OK if _is_id(vocabulary, Entity(kind, id_), unnamed=unnamed) else MALFORMED
            else:
                wrong = _wrong(shape, id_, unnamed=unnamed, spelt=bool(spelt[row]))
            answers.reasons[row] = wrong
    allow_rows(engine, vocabulary, rows, np.flatnonzero(answers.reasons == OK), answers)
    return answers


def allow_rows(engine: RowEngine, vocabulary: Vocabulary, rows: Rows, positions: Codes, answers: Answers) -> None:
    """Decide the rows at some positions, all of which are valid requests except for their attributes."""
    for position, request in zip(positions.tolist(), rows.take(positions).requests(), strict=True):
        if request.attributes:
            try:
                vocabulary.check_attributes(request)
            except InvalidRequest:
                answers.reasons[position] = ATTRIBUTE
                continue
        answers.allowed[position] = engine.allow(request)


def _well_spelt(column: pa.Array) -> Truth:
    """As `well_formed`, whether or not the last name is left out."""
    return well_formed(pc.replace_substring_regex(column, r"([^/])/\z", r"\1"))


def _is_id(names: Vocabulary, entity: Entity, *, unnamed: bool) -> bool:
    """Return whether an id that is flat, or begins with one, is well formed."""
    try:
        names.check_path(entity, unnamed=unnamed)
    except InvalidRequest:
        return False
    return True


def _wrong(shape: PathShape, id_: str, *, unnamed: bool, spelt: bool) -> int:
    """Why a path is not one of its type; OK if it is."""
    count = count_names(id_)
    ends = id_.endswith("/")
    if shape.nested is None and ends and count == shape.depth > 1:
        count, ends = count - 1, False
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


def with_unusable(groups: pa.Array) -> Truth | None:
    """Find the rows with a group, or an active role, whose name has a character that no name may contain; None if none has."""
    wrong = unusable(groups.flatten())
    if wrong is None:
        return None
    found = np.zeros(len(groups), np.bool_)
    found[pc.list_parent_indices(groups).to_numpy(zero_copy_only=False)[wrong]] = True
    return found


def lengths(column: pa.Array) -> Codes:
    """The number of names in each row of a column of lists; none for a null."""
    found: Codes = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    return found
