"""Decide many requests column by column, with numpy and pyarrow: for `check_many`, and for Spark on each core.

Users and entities become numbers, what is held becomes bits in arrays, and a condition becomes a few operations on whole
columns. `in_columns` tells which conditions fit; the others are evaluated row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial, reduce
from typing import Any, TypeAlias, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from privtab.base.arrow import Codes, Truth
from privtab.base.records import dataclass
from privtab.engines.arrays import HEAVY, Arrays, Column, TypeArrays, UserPrincipals
from privtab.engines.columns import Level, Paths, decoded, select
from privtab.engines.conditions import RESOURCE, Atom, Comparison, Condition, Operand
from privtab.engines.index import OWNER_BIT
from privtab.engines.lookups import Bits, Remembered, few_repeat, pair
from privtab.engines.plan import FormPlan, LookupStep, needed

Truths: TypeAlias = Callable[[Atom], Truth]

MOST_PRIVILEGES = 31
"""Limit on the privileges of one condition in columns: two bits of 64 for each, and one for ownership."""
MASK = (1 << 64) - 1
"""The bits of a column."""
MOST_SPREAD = 1 << 23
"""Limit on the elements of the arrays to which rows are expanded at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The distinct pairs of a user and the first names of a path, among the requests of a batch."""

    user_positions: Codes
    """For each pair, the position of the user's name."""
    path_positions: Codes | None
    """For each pair, the position of the path in its level; None: the same position."""
    distinct: bool = True
    """False if so few pairs repeat that each stands for a pair of the view below."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The findings for each pair of a view."""

    slot: str
    depth: int
    values: npt.NDArray[Any]


class Batch:
    """Requests of one form."""

    def __init__(self, names: pa.Array, user_positions: Codes, codes: Codes, paths: Mapping[str, Paths]) -> None:
        """`names`: the distinct names of users; `user_positions`: the position of each row's; `codes`: the user of each name; `paths`: by slot."""
        self.names = names
        self.user_positions = user_positions
        self.codes = codes
        self.paths = paths
        self._views: dict[tuple[str, int], View] = {}
        self._parents: dict[tuple[str, int], Codes] = {}

    def view(self, slot: str, depth: int) -> View:
        """The distinct pairs of a user and the first `depth` names of a path; for the whole path, the requests themselves."""
        if (slot, depth) not in self._views:
            paths = self.paths[slot]
            if depth == paths.width:
                view = View(user_positions=self.user_positions, path_positions=None)
            else:
                deeper, level = self.view(slot, depth + 1), paths.level(depth + 1)
                count, codes = len(level.parents), select(level.parent_codes, deeper.path_positions)
                numbers = pa.array(deeper.user_positions * count + codes)
                user_positions, distinct = deeper.user_positions, not few_repeat(numbers)
                if distinct:
                    pairs = numbers.dictionary_encode()
                    user_positions, codes = np.divmod(pairs.dictionary.to_numpy(), count)
                    self._parents[slot, depth + 1] = pairs.indices.to_numpy()
                view = View(user_positions=user_positions, path_positions=codes, distinct=distinct)
            self._views[slot, depth] = view
        return self._views[slot, depth]

    def of_requests(self, truth: Truth) -> Found:
        """The facts known for each request."""
        return Found(slot=RESOURCE, depth=self.paths[RESOURCE].width, values=truth)

    def lowered(self, found: Found, depth: int | None = None) -> npt.NDArray[Any]:
        """The same for each pair of a view with more names of the path; None: for each request."""
        values = found.values
        for below in range(found.depth, self.paths[found.slot].width if depth is None else depth):
            values = select(values, self.parent_pairs(found.slot, below + 1))
        return values

    def combined(self, parts: Iterable[Found], combine: np.ufunc) -> Found:
        """`combine` all parts, each as long as possible for the few pairs of its view."""
        by_slot: dict[str, Found] = {}
        for part in sorted(parts, key=lambda part: part.depth):
            if (above := by_slot.get(part.slot)) is not None:
                part = replace(part, values=combine(self.lowered(above, part.depth), part.values))  # noqa: PLW2901
            by_slot[part.slot] = part
        if len(by_slot) == 1:
            return next(iter(by_slot.values()))
        neutral = np.full(len(self.user_positions), combine.identity, np.bool_)
        return self.of_requests(reduce(combine, map(self.lowered, by_slot.values()), neutral))

    def parent_pairs(self, slot: str, depth: int) -> Codes | None:
        """For each pair of a view, the position of its pair in the view one name higher; None: the same position."""
        self.view(slot, depth - 1)
        return self._parents.get((slot, depth))


def in_columns(plan: FormPlan) -> bool:
    """Return whether a form of request can be decided in columns; otherwise its condition has too many privileges, or `or below`."""
    below = any(atom.kind in ("has_below", "owns_below") for atom in plan.condition.atoms())
    return not below and len(_privileges(plan)) <= MOST_PRIVILEGES


def _privileges(plan: FormPlan) -> list[str]:
    return sorted({atom.privilege for atom in plan.condition.atoms() if atom.kind == "has"})


class Kernel:
    """Evaluates one plan over arrays."""

    def __init__(self, plan: FormPlan, arrays: Arrays) -> None:
        self.plan = plan
        self._people: UserPrincipals = arrays.people
        self._arrays = arrays
        allowed = plan.index.numbers.allowed
        privileges = _privileges(plan)
        self._bit = {privilege: 2 << 2 * number for number, privilege in enumerate(privileges)}
        pairs = [(OWNER_BIT, OWNER_BIT)]
        for privilege, bit in self._bit.items():
            pairs += [(allowed(privilege), bit), (allowed(privilege) << 1, bit << 1)]
        self._columns: list[Column] = [arrays.entries[step.type].column(pairs) for step in plan.steps]
        self._held = np.uint64(sum(bit for name, bit in self._bit.items() if name in plan.semantics.owner_holds))
        inherited = plan.semantics.inherited(lambda name: self._bit.get(name, 0) * 3)
        self._inherited = np.uint64(inherited & MASK)
        """What counts below an entity too."""
        self._defaults = [self._default_grants(step) for step in plan.steps]
        self._kinds: dict[int, TypeArrays] = {}
        """By number of a step whose entities requests are about, those on which anybody holds something; made on first use."""
        self._remembered = [Remembered() for _ in plan.steps]
        self._lowest = [number for number in range(len(plan.steps)) if all(number != step.above for step in plan.steps)]
        """The steps whose results have those of all others."""
        self._needed: dict[tuple[str, str], int] = {}
        """By place, the privileges without which the request is denied."""
        atoms, self._rest = needed(plan.condition)
        for atom in atoms:
            place = atom.slot, atom.type
            self._needed[place] = self._needed.get(place, 0) | self._bit[atom.privilege]

    def decide(self, batch: Batch) -> Truth:
        """Return whether each request is allowed."""
        known: dict[tuple[str, str], tuple[Bits, Bits]] = {}
        steps: list[_StepResult] = []
        semantics = self.plan.semantics
        for number, step in enumerate(self.plan.steps):
            view = batch.view(step.slot, step.depth)
            users = all_users = batch.codes[view.user_positions]
            parent = None
            if step.above >= 0:
                higher = self.plan.steps[step.above].depth < step.depth
                parent = steps[step.above].expand(batch.parent_pairs(step.slot, step.depth) if higher else None)
                users = np.where(parent.denied, -1, users)
            bits = self._direct_bits(number, users, batch.paths[step.slot], view)
            owned = bits & np.uint64(OWNER_BIT)
            scopes: tuple[tuple[int, Codes], ...] = ()
            if semantics.roles:
                places = batch.paths[step.slot].places(step.type, view.path_positions)
                scopes = (
                    *(parent.scopes if parent else ()),
                    (number, self._arrays.scopes[step.type].find(all_users, places)),
                )
                bits = bits | self._default_bits(number, all_users, scopes)
            if self._inherited and parent is not None:
                bits = bits | (parent.held & self._inherited)
            denied = parent.denied if parent is not None else np.zeros(len(bits), np.bool_)
            if step.mask:
                place = step.slot, step.type
                known[place] = self._effective(bits, owned), owned
                if place in self._needed:
                    # These rows are denied already: do not look up what else their users hold.
                    required = np.uint64(self._needed[place])
                    denied = denied | (known[place][0] & required != required)
            steps.append(_StepResult(held=bits, denied=denied, scopes=scopes))
        lowest = ((self.plan.steps[number], steps[number]) for number in self._lowest)
        found = [Found(slot=step.slot, depth=step.depth, values=~result.denied) for step, result in lowest]
        return batch.lowered(batch.combined([*found, self._evaluate(self._rest, batch, known)], np.logical_and))

    def _effective(self, bits: Bits, owned: Bits) -> Bits:
        """The privileges that are allowed and not denied."""
        effective = bits & ~(bits >> np.uint64(1)) if self.plan.semantics.denies else bits
        if self._held:
            effective = np.where(owned != 0, effective | self._held, effective)
            inherited = self._held & self._inherited
            effective = np.where(bits & np.uint64(OWNER_BIT) != 0, effective | inherited, effective)
        return effective

    def _direct_bits(self, number: int, users: Codes, paths: Paths, view: View) -> Bits:
        """The rights of the users on the entities of a step themselves."""
        column, type_ = self._columns[number], self.plan.steps[number].type
        bits = np.zeros(len(users), np.uint64)
        known = np.flatnonzero(users >= 0)
        if len(known):
            if view.path_positions is None:
                if number not in self._kinds:
                    self._kinds[number] = self._arrays.kinds[type_].only(column.used[:-1].nonzero()[0])
                places = paths.places(type_, known, among=self._kinds[number])
            else:
                places = paths.places(type_, view.path_positions[known])
            used = np.flatnonzero(column.used[places])
            known = known[used]
            users, places = users[known], places[used]
            if view.path_positions is None or not view.distinct:
                bits[known] = self._held_bits(users, places, column)
            else:
                bits[known] = self._remembered[number].get(
                    users << 32 | places, lambda rows: self._held_bits(users[rows], places[rows], column)
                )
        return bits

    def _held_bits(self, users: Codes, places: Codes, column: Column) -> Bits:
        """The rights of users on places, pair by pair."""
        bits = np.zeros(len(users), np.uint64)
        counts = self._people.counts(users)
        heavy = counts > HEAVY
        if heavy.any():
            # For users with thousands of roles, the principals that hold something on a place are usually fewer.
            heavy[heavy] = column.holders(places[heavy]) < counts[heavy]
            rows = np.flatnonzero(heavy)
            for part in parts(rows, column.holders(places[rows])):
                positions, principals, entry_bits = column.all_held(places[part])
                matching = self._people.have(users[part][positions], principals)
                np.bitwise_or.at(bits, part[positions[matching]], entry_bits[matching])
        light = np.flatnonzero(~heavy)
        for part in parts(light, counts[light]):
            positions, principals = self._people.spread(users[part])
            held, entry_bits = column.held(principals, places[part[positions]])
            np.bitwise_or.at(bits, part[positions[held]], entry_bits)
        return bits

    def _default_grants(self, step: LookupStep) -> dict[str, int]:
        """The default grants of each declared role on a step's entities, in the bits of the columns."""
        bits_by_role = {
            role: sum(bit for name, bit in self._bit.items() if name in grants.get(step.type, ()))
            for role, grants in self.plan.semantics.roles.items()
        }
        return {role: bits for role, bits in bits_by_role.items() if bits}

    def _default_bits(self, number: int, users: Codes, scopes: Iterable[tuple[int, Codes]]) -> Bits:
        """The rights that declared roles give: roles held everywhere, and roles whose scope contains the entity."""
        bits_by_role = self._defaults[number]
        bits = np.zeros(len(self._people.principals), np.uint64)
        for role, role_bits in bits_by_role.items():
            code = self._people.principals[role]
            if code >= 0:
                bits[code] = role_bits
        found = self._people.unite(users, bits) if bits.any() else np.zeros(len(users), np.uint64)
        for step, rows in scopes:
            roles = self._arrays.scopes[self.plan.steps[step].type].roles
            by_row = [_union(bits_by_role.get(role, 0) for role in listed) for listed in roles]
            found |= np.array([*by_row, 0], np.uint64)[rows]
        return found

    def _evaluate(
        self, condition: Condition, batch: Batch, known: Mapping[tuple[str, str], tuple[Bits, Bits]]
    ) -> Found:
        def atom(part: Atom) -> Found:
            if part.kind == "service_admin":
                admins = np.zeros(len(self._people.users) + 1, np.bool_)
                admins[[self._people.users[user] for user in self.plan.index.service_admins]] = True
                return batch.of_requests(admins[batch.codes][batch.user_positions])
            if part.comparison is not None:
                return batch.of_requests(self._comparing(part.comparison, batch))
            depth = self.plan.reader.depth(part.type)
            if part.kind == "has":
                effective, _ = known[part.slot, part.type]
                truth = effective & np.uint64(self._bit[part.privilege]) != 0
            elif part.kind == "owner":
                _, owned = known[part.slot, part.type]
                truth = owned != 0
            else:
                truth = self._other_atom(part, batch, batch.view(part.slot, depth))
            return Found(slot=part.slot, depth=depth, values=truth)

        both, either = (partial(batch.combined, combine=how) for how in (np.logical_and, np.logical_or))
        found: Found = condition.fold(atom, both, either)
        return found

    def _comparing(self, comparison: Comparison, batch: Batch) -> Truth:
        """Return whether attributes that the state holds compare so: decided once for each combination of values that occurs."""
        pairs = np.zeros(len(batch.user_positions), np.int64)
        listed: list[list[Any]] = []
        for operand in comparison.operands:
            values, numbers = self._values(operand, batch)
            keys = [(type(value), tuple(value) if isinstance(value, list) else value) for value in values]
            distinct = dict(zip(keys, values, strict=True))
            position = {key: number for number, key in enumerate(distinct)}
            codes = np.array([position[key] for key in keys], np.int64)
            pairs = pairs * len(distinct) + codes[numbers]
            listed.append(list(distinct.values()))
        found, rows = np.unique(pairs, return_inverse=True)
        answers = []
        positions = np.unravel_index(found, [len(values) for values in listed])
        for combination in zip(*(of_operand.tolist() for of_operand in positions), strict=True):
            of_operands = zip(comparison.operands, listed, combination, strict=True)
            chosen = {operand: values[at] for operand, values, at in of_operands}
            answers.append(comparison.holds(chosen.__getitem__))
        truth: Truth = np.array(answers, np.bool_)[rows]
        return truth

    def _values(self, operand: Operand, batch: Batch) -> tuple[list[Any], Codes]:
        """The values of an attribute for distinct names, and the number of the name for each request."""
        index, name = self.plan.index, operand.attribute
        if operand.of == "request":  # of requests that give no attributes
            return [operand.default], np.zeros(len(batch.user_positions), np.int64)
        if operand.of == "user":
            users = batch.names.to_pylist()
            return [index.user_attributes.get(user, {}).get(name) for user in users], batch.user_positions
        depth = self.plan.reader.depth(operand.type)
        view = batch.view(operand.slot, depth)
        paths = batch.paths[operand.slot].level(depth).texts.dictionary_encode()
        numbers = select(paths.indices.to_numpy().astype(np.int64), view.path_positions)
        keys = (f"{operand.type}:{path}" for path in paths.dictionary.to_pylist())
        values = [index.entity_attributes.get(key, {}).get(name) for key in keys]
        return values, batch.lowered(Found(slot=operand.slot, depth=depth, values=numbers))

    def _other_atom(self, atom: Atom, batch: Batch, view: View) -> Truth:
        """Evaluate an atom about a user's names and an entity that is not a privilege or an ownership."""
        paths = batch.paths[atom.slot]
        level = paths.level(self.plan.reader.depth(atom.type))
        users = batch.codes[view.user_positions]
        match atom.kind:
            case "self":
                caller_positions = pc.index_in(decoded(level.names), value_set=batch.names).fill_null(-1).to_numpy()
                is_caller: Truth = (
                    caller_positions[select(level.name_codes, view.path_positions)] == view.user_positions
                )
                return is_caller
            case "holds":
                return self._is_principal("role", level, view, users)
            case "member":
                places = paths.places(atom.type, view.path_positions)
                is_member: Truth = self._arrays.members[atom.type].find(pair(users, places)) >= 0
                if self.plan.reader.principal[atom.type] == "group":
                    is_member = is_member | self._is_principal("group", level, view, users)
                return is_member
            case "has" | "owner" | "service_admin" | "has_below" | "owns_below" | "compare":
                raise AssertionError(atom.kind)  # decided before
            case _:
                assert_never(atom.kind)

    def _is_principal(self, kind: str, level: Level, view: View, users: Codes) -> Truth:
        """Return whether an entity is a principal of the pair's user, by its last name or by its whole path."""
        names, label = self._people.label(kind)
        by_last_name = names.find(decoded(level.names))[select(level.name_codes, view.path_positions)]
        by_path = select(names.find(level.texts), view.path_positions)
        truth = np.zeros(len(users), np.bool_)
        candidates = np.flatnonzero((users >= 0) & ((by_last_name >= 0) | (by_path >= 0)))
        for part in parts(candidates, self._people.counts(users[candidates])):
            positions, principals = self._people.spread(users[part])
            rows, name_codes = part[positions], label[principals]
            matching = (name_codes >= 0) & ((name_codes == by_last_name[rows]) | (name_codes == by_path[rows]))
            truth[rows[matching]] = True
        return truth


@dataclass(frozen=True, slots=True, kw_only=True)
class _StepResult:
    """The findings of a step for each pair of its view."""

    held: Bits
    denied: Truth
    """Pairs whose requests are denied, whatever else their users hold."""
    scopes: tuple[tuple[int, Codes], ...]
    """By number of the step whose entities they are, the positions of the roles that users hold within them."""

    def expand(self, pairs: Codes | None) -> _StepResult:
        """The same for the pairs of a view below; None: for the same view."""
        if pairs is None:
            return self
        scopes = tuple((number, found[pairs]) for number, found in self.scopes)
        return _StepResult(held=self.held[pairs], denied=self.denied[pairs], scopes=scopes)


def parts(rows: Codes, counts: Codes) -> Iterator[Codes]:
    """Split `rows` into parts with a bounded sum of counts, since the arrays to which they expand must fit in memory."""
    ends = np.cumsum(counts)
    if not len(rows) or ends[-1] <= MOST_SPREAD:
        yield rows
        return
    cuts = np.flatnonzero(np.diff(ends // MOST_SPREAD)) + 1
    yield from np.split(rows, cuts)


def _union(bits: Iterable[int]) -> int:
    all_bits = 0
    for role_bits in bits:
        all_bits |= role_bits
    return all_bits
