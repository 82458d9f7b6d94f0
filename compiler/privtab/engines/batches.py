"""Decide columns of requests with the kernel: one answer for each row.

`decide_columns` takes Arrow or numpy columns, as a Spark task has them; `allow_requests` takes Request objects. Rows that are
not valid requests are denied, each with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privtab.base import names
from privtab.base.arrow import Codes
from privtab.base.caching import no_collection
from privtab.base.errors import InvalidRequest
from privtab.base.names import LEFT_OUT
from privtab.base.request import NOT_SET, Entity, Request
from privtab.base.vocabulary import Vocabulary, check_role_names
from privtab.engines.arrays import Arrays
from privtab.engines.build_arrays import arrays_of_index, arrays_of_tables
from privtab.engines.columns import (
    DEPTH,
    MALFORMED,
    NAME,
    NO_ROLE,
    NONE_GIVEN,
    NULL,
    OK,
    GivenColumns,
    Paths,
    Reasons,
    TextPool,
    texts,
    unusable,
    well_formed,
    widths,
    without_end,
)
from privtab.engines.conditions import RESOURCE, ConditionReader
from privtab.engines.index import Index
from privtab.engines.kernel import Batch, Kernel, in_columns
from privtab.engines.plan import GrantSemantics
from privtab.engines.rows import RowEngine
from privtab.engines.varying import (
    NO,
    Answers,
    Form,
    Rows,
    Truths,
    Value,
    allow_rows,
    combinations,
    decide_rows,
    lengths,
    separate,
    with_nameless,
    with_unusable,
)


class Batches:
    """Answers batches for an engine; keeps the arrays made from the engine's index. Threads may share it.

    Example: `Batches(engine).decide_columns(["ann"], ["m/s/t"], action="read", type="table").allowed`.
    """

    def __init__(self, engine: RowEngine) -> None:
        self.engine = engine
        """If the batches were made from arrays, its index serves only to make plans."""
        self._arrays: Arrays | None = None
        self._kernels: dict[tuple[Any, ...], Kernel | None] = {}
        self._hollow = False

    @classmethod
    def of(cls, program: Mapping[str, Any], state: Arrays | Index) -> Batches:
        """Make batches from arrays alone, without an index, or from an index."""
        if isinstance(state, Index):
            return cls(RowEngine(program, state))
        batches = cls(RowEngine(program, state.plan_only()))
        batches._arrays = state
        batches._hollow = True
        return batches

    @classmethod
    def of_tables(
        cls,
        program: Mapping[str, Any],
        tables: Mapping[str, tuple[Sequence[Codes], Sequence[pa.Array]]],
        within: Mapping[str, tuple[str, str]],
    ) -> Batches:
        """Make batches from the tables of a state, as `arrays_of_tables` takes these."""
        chains, everyone = ConditionReader(program).chains, GrantSemantics.read(program).everyone
        return cls.of(program, arrays_of_tables(tables, within, chains, everyone=everyone))

    def __getstate__(self) -> tuple[Mapping[str, Any], Arrays | Index]:
        return self.engine.program, self.state

    def __setstate__(self, state: tuple[Mapping[str, Any], Arrays | Index]) -> None:
        self.__dict__.update(Batches.of(*state).__dict__)

    @property
    def state(self) -> Arrays | Index:
        """The content for another process: the arrays, or the index if it holds what arrays do not."""
        index, reader = self.engine.index, self.engine.reader
        if self._hollow or not (reader.nested or reader.flat or index.beyond_arrays):
            return self.arrays
        return index

    @cached_property
    def one_by_one(self) -> RowEngine:
        """The engine for evaluation row by row; made from the arrays on first use if there is no index."""
        return RowEngine(self.engine.program, self.arrays.index()) if self._hollow else self.engine

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        return Vocabulary.from_program(self.engine.program)

    @property
    def arrays(self) -> Arrays:
        """The index as arrays, made on first use."""
        if self._arrays is None:
            with no_collection():
                self._arrays = arrays_of_index(self.engine.index, self.engine.reader.chains)
        return self._arrays

    def decide_columns(
        self,
        users: TextPool,
        resources: TextPool,
        *,
        action: Value,
        type: Value,  # noqa: A002  (as in Entity)
        with_: Mapping[str, tuple[Value, TextPool]] | None = None,
        flags: Iterable[str] | Mapping[str, bool | Truths] = (),
        groups: pa.Array | None = None,
        active_roles: pa.Array | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> Answers:
        """Decide for each row whether the user may perform the action on the resource.

        `users`: names. `resources`: paths. `action` and `type`: one text for all rows, or a column. `with_`: the type and the paths of
        each object, by its name. `flags`: set for all rows, or a column of booleans for each name. `groups`: a column of lists
        of names, for policies that take groups from requests. `active_roles`: the same for policies whose requests name active roles.
        `attributes`: as in `Client.check`, with an Arrow column, or one value for all rows, in the place of each value; a null is no
        value, and what the type of an object does not have is ignored. Columns are Arrow or numpy arrays or lists of equal length. A row
        with a null, a malformed path or an unknown operation is denied, with the reason; a null in a flag's column means that
        the flag is set. Raises InvalidRequest for attributes that requests do not give.
        """
        names, ids = texts(users), texts(resources)
        withs = {slot: texts(paths) for slot, (_, paths) in (with_ or {}).items()}
        varying_flags, for_all = separate(flags)
        given = GivenColumns.read(attributes, self.engine.reader.attributes)
        lengths = {len(column) for column in (ids, *withs.values(), *varying_flags.values())}
        if lengths - {len(names)}:
            raise ValueError("the columns are not equally long")
        answers = _none(len(names))
        objects = (_given(kind, withs[slot]) for slot, (kind, _) in (with_ or {}).items())
        kinds = [action, type, *objects, *varying_flags.values()]
        for (one_action, one_type, *others), rows in combinations(kinds, len(names)):
            if one_action is None or one_type is None:
                answers.reasons[slice(None) if rows is None else rows] = NULL
                continue
            flag_values = zip(varying_flags, others[len(withs) :], strict=True)
            set_flags = {f"{name}{NOT_SET}" if value == NO else name for name, value in flag_values}
            form = Form(
                type=one_type,
                action=one_action,
                flags=for_all | set_flags,
                withs=dict(zip(withs, others, strict=False)),
            )
            with_paths = {slot: _take(column, rows) for slot, column in withs.items()}
            request_groups = None if groups is None or not self.engine.semantics.request_groups else _take(groups, rows)
            narrowed = (
                None if active_roles is None or not self.engine.semantics.active_roles else _take(active_roles, rows)
            )
            part = self._of_form(
                form, _take(names, rows), _take(ids, rows), with_paths, request_groups, narrowed, given.take(rows)
            )
            answers.allowed[slice(None) if rows is None else rows] = part.allowed
            answers.reasons[slice(None) if rows is None else rows] = part.reasons
        return answers

    def allow_requests(self, requests: Sequence[Request]) -> list[bool] | None:
        """Return whether each request is allowed, by position; None if one is not valid: evaluating them one by one reports the error."""
        if not set(map(type, requests)) <= {Request}:
            return None
        try:
            return self._allow_requests(requests)
        except (pa.ArrowException, AttributeError, InvalidRequest, TypeError, ValueError):
            return None

    def _allow_requests(self, requests: Sequence[Request]) -> list[bool] | None:
        resources = [request.resource for request in requests]
        users = _names([request.user for request in requests])
        if _any_invalid_user(users):
            return None
        ids = _names([resource.id for resource in resources])
        kinds = {request.action for request in requests}, {resource.type for resource in resources}
        with_extras = [request for request in requests if not request.plain]
        if not all(map(_well_formed, with_extras)) or any(request.attributes for request in with_extras):
            return None
        if not with_extras and all(len(kind) == 1 for kind in kinds):
            ((action,), (type_,)) = kinds
            answer = self._of_form(Form(type=type_, action=action, flags=frozenset(), withs={}), users, ids, {})
            return None if answer.reasons.any() else answer.allowed.tolist()
        answers = _none(len(requests))
        for group, numbers in self._groups(requests).items():
            rows = np.array(numbers)
            withs = {s: _names([requests[n].with_[s].id for n in numbers]) for s, _ in group[3]}
            form = Form(type=group[0], action=group[1], flags=group[2], withs=dict(group[3]))
            part = self._of_form(form, users.take(rows), ids.take(rows), withs)
            answers.allowed[rows] = part.allowed
            answers.reasons[rows] = part.reasons
        if answers.reasons.any():
            return None
        found: list[bool] = answers.allowed.tolist()
        semantics = self.engine.semantics
        for number, request in enumerate(requests) if semantics.request_groups or semantics.active_roles else ():
            narrowed = semantics.active_roles and request.active_roles is not None
            if narrowed:
                check_role_names(request.active_roles or ())
            if narrowed or (semantics.request_groups and request.groups):
                found[number] = self.one_by_one.allow(request)
        return found

    def _groups(self, requests: Sequence[Request]) -> dict[tuple[Any, ...], list[int]]:
        groups: dict[tuple[Any, ...], list[int]] = {}
        shapes = self.engine.shapes
        for number, request in enumerate(requests):
            shape = shapes.get((request.resource.type, request.action))
            flags, slots = shape if shape is not None else (frozenset(), ())
            types = tuple((slot, request.with_[slot].type) for slot in slots if slot in request.with_)
            set_flags = frozenset(flag for flag in request.flags if flag.removesuffix(NOT_SET) in flags)
            key = (request.resource.type, request.action, set_flags, types)
            groups.setdefault(key, []).append(number)
        return groups

    def _of_form(
        self,
        form: Form,
        names: pa.Array,
        ids: pa.Array,
        withs: Mapping[str, pa.Array],
        groups: pa.Array | None = None,
        active: pa.Array | None = None,
        given: GivenColumns = NONE_GIVEN,
    ) -> Answers:
        """Decide rows that share operation, types and flags."""
        answers = _none(len(names))
        rule = self.engine.program["rules"].get(form.type, {}).get(form.action)
        if wrong := form.wrong(rule):
            answers.reasons[:] = wrong
            return answers
        kinds = {RESOURCE: form.type, **form.given(rule["with"])}
        reader = self.engine.reader
        columns = {slot: (kind, ids if slot == RESOURCE else withs[slot]) for slot, kind in kinds.items()}
        lists = [column for column in (groups, active) if column is not None]
        for column in (names, *(column for _, column in columns.values()), *lists):
            if column.null_count:
                answers.reasons[column.is_null().to_numpy(zero_copy_only=False)] = NULL
        for column in lists:
            answers.reasons[with_nameless(column)] = NULL
        for unusable_rows in (unusable(names), *map(with_unusable, lists)):
            if unusable_rows is not None:
                answers.reasons[unusable_rows & (answers.reasons == OK)] = NAME
        if rule.get("needs_active_role"):
            answers.reasons[(answers.reasons == OK) & (active is None or lengths(active) == 0)] = NO_ROLE
        all_rows = Rows(
            form=form,
            names=names,
            columns=columns,
            groups=groups,
            active=active,
            given=given.of_types(reader.attributes, kinds),
        )
        if (depth := reader.depth(form.type)) > 1 and not (reader.nested or reader.flat):
            columns[RESOURCE] = form.type, without_end(ids, depth)
            all_rows = replace(all_rows, columns=columns)
        if reader.nested or reader.flat:  # arrays need paths of a fixed length
            return decide_rows(self.one_by_one, self._vocabulary, all_rows, answers)
        if answers.reasons.any():
            columns = {slot: (kind, column.fill_null("")) for slot, (kind, column) in columns.items()}
            names = names.fill_null("")
        users = names.dictionary_encode()
        user_positions = users.indices.to_numpy().astype(np.int64)
        if (empty_name := pc.index(users.dictionary, "").as_py()) >= 0:
            answers.reasons[(user_positions == empty_name) & (answers.reasons == OK)] = NULL
        codes = self.arrays.people.find(users.dictionary)
        unnamed = rule["unnamed"] and not self.engine.single(form.type)
        counts: dict[str, Codes] = {}
        paths_by_slot: dict[str, Paths] = {}
        for slot, (kind, column) in columns.items():
            possible_depths = (reader.depth(kind), *((depth - 1,) if slot == RESOURCE and unnamed else ()))
            counts[slot], paths_by_slot[slot] = self._read(column, possible_depths, answers.reasons)
        valid = answers.reasons == OK
        special = valid & all_rows.special()
        if special.any():
            allow_rows(self.one_by_one, self._vocabulary, all_rows, np.flatnonzero(special), answers)
            valid &= ~special
        for named in (True, False) if rule["unnamed"] else (True,):
            rows = valid & (counts[RESOURCE] == depth - (not named))
            if not rows.any():
                continue
            if (kernel := self._kernel(form, named=named)) is None:
                allow_rows(self.one_by_one, self._vocabulary, all_rows, np.flatnonzero(rows), answers)
                continue
            kept_rows = None if rows.all() else np.flatnonzero(rows)
            widths_of = {
                slot: reader.depth(kind) - (slot == RESOURCE and not named) for slot, (kind, _) in columns.items()
            }
            paths = {
                slot: own
                if kept_rows is None and (own := paths_by_slot[slot]).width == width
                else self._paths(_take(columns[slot][1], kept_rows), width)
                for slot, width in widths_of.items()
            }
            batch = Batch(
                users.dictionary, user_positions if kept_rows is None else user_positions[kept_rows], codes, paths
            )
            answers.allowed[... if kept_rows is None else kept_rows] = kernel.decide(batch)
        return answers

    def _read(self, column: pa.Array, depths: Sequence[int], reasons: Reasons) -> tuple[Codes, Paths]:
        """The number of names of each path, and the paths that have as many as the first of `depths`; wrong paths are given a reason."""
        counts, slashes = widths(column, depths[0])
        first_depth = counts == depths[0]
        right_depth = first_depth if len(depths) == 1 else first_depth | (counts == depths[1])
        if not right_depth.all():
            wrong_rows = np.flatnonzero(~right_depth)
            why = np.where(well_formed(_take(column, wrong_rows)), DEPTH, MALFORMED)
            reasons[wrong_rows] = np.where(reasons[wrong_rows] == OK, why, reasons[wrong_rows])
        found = []
        for width in depths:
            rows = None if first_depth.all() else np.flatnonzero(counts == width)
            found.append(self._paths(_take(column, rows), width, slashes if rows is None else None))
            malformed = ~found[-1].good()
            if malformed.any():
                positions = np.flatnonzero(malformed) if rows is None else rows[malformed]
                reasons[positions] = np.where(reasons[positions] == OK, MALFORMED, reasons[positions])
            if rows is None:
                break
        return counts, found[0]

    def _paths(self, column: pa.Array, width: int, slashes: Codes | None = None) -> Paths:
        return Paths(column, width, self.arrays, self.engine.reader.chains, slashes)

    def _kernel(self, form: Form, *, named: bool) -> Kernel | None:
        """The kernel for a form, or None if it cannot be evaluated in columns."""
        flags, slots = self.engine.shapes[form.type, form.action]
        withs = {slot: form.types.get(slot, LEFT_OUT) for slot in slots}
        key = (form.type, form.action, form.flags & flags, named, *withs.items())
        if key not in self._kernels:
            plan = self.engine.plan_of(form.type, form.action, form.flags, withs, named=named)
            self._kernels[key] = Kernel(plan, self.arrays) if in_columns(plan) else None
        return self._kernels[key]


def _given(kind: Value, paths: pa.Array) -> Value:
    """The types of objects, null where a row has no object."""
    if not paths.null_count:
        return kind
    kinds = pa.repeat(pa.scalar(kind, pa.string()), len(paths)) if isinstance(kind, str) else texts(kind)
    return pc.if_else(paths.is_null(), pa.scalar(None, kinds.type), kinds)


def _none(rows: int) -> Answers:
    return Answers(allowed=np.zeros(rows, np.bool_), reasons=np.zeros(rows, np.uint8))


def _names(values: list[str]) -> pa.Array:
    """The values as an array of strings. Raises TypeError for bytes, which Arrow would otherwise convert to text."""
    array = pa.array(values)
    if array.type not in (pa.string(), pa.null()):
        raise TypeError(f"{array.type} is not text")
    return array.cast(pa.string())


def _any_invalid_user(users: pa.Array) -> bool:
    """Return whether some name cannot be a user's, according to `check_principal`."""
    if unusable(users) is not None:
        return True
    content = bytes(users.buffers()[2] or b"") if len(users) else b""
    if not any(sign in content for sign in (b":", b"*", b"?", b"%")):
        return False
    return bool(pc.any(pc.match_substring_regex(users, r"\A(?:(?i:(?:user|group|role)s?):|[*?%]+\z)")).as_py())


def _well_formed(request: Request) -> bool:
    """Return whether flags, groups and `with` objects have the right types; other requests are refused one by one."""
    flags: object = request.flags
    groups: object = request.groups
    withs: object = request.with_
    roles: object = request.active_roles
    return (
        isinstance(flags, frozenset | set)
        and isinstance(groups, tuple | list)
        and isinstance(withs, Mapping)
        and all(
            isinstance(name, str) and name and names.unusable_character(name) is None
            for name in (*flags, *groups, *withs)
        )
        and (roles is None or (isinstance(roles, tuple | list) and all(isinstance(name, str) for name in roles)))
        and all(isinstance(entity, Entity) for entity in withs.values())
        and not (groups and _any_invalid_user(_names([*groups])))
    )


def _take(column: Any, rows: Codes | None) -> Any:
    return column if rows is None else column.take(pa.array(rows))
