"""Decide many requests column by column, with numpy and pyarrow: for `check_many`, and for Spark on each core.

Users and entities become numbers, what is held becomes bits in arrays, and a condition becomes a few operations on whole
columns. `in_columns` tells which conditions fit; the others are evaluated row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privtab.arrow import Codes, Truth
from privtab.engines.arrays import HEAVY, Arrays, Column, UserPrincipals
from privtab.engines.columns import Paths, decoded
from privtab.engines.conditions import Atom, Condition, facts, fold
from privtab.engines.index import OWNER
from privtab.engines.lookups import Bits, all_true, any_true, pair
from privtab.engines.plan import Plan, Step, needed

Truths: TypeAlias = Callable[[Atom], Truth]

MOST_PRIVILEGES = 31
"""Limit on the privileges of one condition in columns: two bits of 64 for each, and one for ownership."""
MOST_SPREAD = 1 << 23
"""Limit on the elements of the arrays to which rows are expanded at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Requests of one form."""

    names: pa.Array
    """The names of the users."""
    users: Codes
    paths: Mapping[str, Paths]
    """By slot."""


def in_columns(plan: Plan) -> bool:
    """Whether a form of request can be decided in columns; otherwise its condition has too many privileges."""
    return len(_privileges(plan)) <= MOST_PRIVILEGES


def _privileges(plan: Plan) -> list[str]:
    return sorted({fact.privilege for fact in facts(plan.condition) if fact.kind == "has"})


class Kernel:
    """Evaluates one plan over arrays."""

    def __init__(self, plan: Plan, arrays: Arrays) -> None:
        self.plan = plan
        self._people: UserPrincipals = arrays.people
        self._arrays = arrays
        allowed = plan.index.numbers.allowed
        privileges = _privileges(plan)
        self._bit = {privilege: 2 << 2 * number for number, privilege in enumerate(privileges)}
        pairs = [(OWNER, OWNER)]
        for privilege, bit in self._bit.items():
            pairs += [(allowed(privilege), bit), (allowed(privilege) << 1, bit << 1)]
        self._columns: list[Column] = [arrays.entries[step.type].column(pairs) for step in plan.steps]
        self._held = np.uint64(sum(bit for name, bit in self._bit.items() if name in plan.meaning.owner_holds))
        self._defaults = [self._default(step) for step in plan.steps]
        self._needed: dict[tuple[str, str], int] = {}
        """By place, the privileges without which the request is denied."""
        for fact in needed(plan.condition):
            place = fact.slot, fact.type
            self._needed[place] = self._needed.get(place, 0) | self._bit[fact.privilege]

    def decide(self, batch: Batch) -> Truth:
        """Whether each request is allowed."""
        known: dict[tuple[str, str], tuple[Bits, Bits]] = {}
        found: list[Bits] = []
        scopes: list[list[tuple[int, Codes]]] = []
        meaning = self.plan.meaning
        users = batch.users
        for number, step in enumerate(self.plan.steps):
            places = batch.paths[step.slot].places(step.type)
            here = self._here(users, places, self._columns[number])
            own = here & np.uint64(OWNER)
            if meaning.roles:
                scopes.append(list(scopes[step.above]) if step.above >= 0 else [])
                scopes[-1].append((number, self._arrays.scopes[step.type].find(batch.users, places)))
                here = here | self._by_default(number, batch.users, scopes[-1])
            if meaning.down and step.above >= 0:
                here = here | found[step.above]
            found.append(here)
            if step.mask:
                place = step.slot, step.type
                known[place] = self._standing(here), own
                if place in self._needed:
                    # These rows are denied already: do not look up what else their users hold.
                    bits = np.uint64(self._needed[place])
                    users = np.where(known[place][0] & bits == bits, users, -1)
        return self._evaluate(self.plan.condition, batch, known)

    def _standing(self, here: Bits) -> Bits:
        """The privileges that are allowed and not denied."""
        stand = here & ~(here >> np.uint64(1)) if self.plan.meaning.denies else here
        if self._held:
            stand = np.where(here & np.uint64(OWNER) != 0, stand | self._held, stand)
        return stand

    def _here(self, users: Codes, places: Codes, column: Column) -> Bits:
        """What the users hold on the entities themselves."""
        bits = np.zeros(len(users), np.uint64)
        asked = np.flatnonzero((users >= 0) & column.used[places])
        if not len(asked):
            return bits
        # Most rows share their user and entity, such as a catalog, with other rows.
        distinct = pa.array(pair(users[asked], places[asked])).dictionary_encode()
        pairs = distinct.dictionary.to_numpy()
        bits[asked] = self._each(pairs >> 32, pairs & 0xFFFFFFFF, column)[distinct.indices.to_numpy()]
        return bits

    def _each(self, users: Codes, places: Codes, column: Column) -> Bits:
        """What users hold on places, pair by pair."""
        each = np.zeros(len(users), np.uint64)
        counts = self._people.counts(users)
        heavy = counts > HEAVY
        if heavy.any():
            # For users with thousands of roles, the principals that hold something on a place are usually fewer.
            heavy[heavy] = column.holders(places[heavy]) < counts[heavy]
            rows = np.flatnonzero(heavy)
            for part in parts(rows, column.holders(places[rows])):
                at, principals, held = column.all_held(places[part])
                theirs = self._people.have(users[part][at], principals)
                np.bitwise_or.at(each, part[at[theirs]], held[theirs])
        light = np.flatnonzero(~heavy)
        for part in parts(light, counts[light]):
            some, begins, principals = self._people.spread(users[part])
            if len(some):
                wanted = np.repeat(places[part[some]], np.diff(np.append(begins, len(principals))))
                each[part[some]] = np.bitwise_or.reduceat(column.held(principals, wanted), begins)
        return each

    def _default(self, step: Step) -> dict[str, int]:
        """The default grants of each declared role on a step's entities, in the bits of the columns."""
        given = {
            role: sum(bit for name, bit in self._bit.items() if name in grants.get(step.type, ()))
            for role, grants in self.plan.meaning.roles.items()
        }
        return {role: bits for role, bits in given.items() if bits}

    def _by_default(self, number: int, users: Codes, scopes: Iterable[tuple[int, Codes]]) -> Bits:
        """What declared roles give: those held everywhere, and those whose scope contains the entity."""
        given = self._defaults[number]
        bits = np.zeros(len(self._people.principals), np.uint64)
        for role, own in given.items():
            code = self._people.principals[role]
            if code >= 0:
                bits[code] = own
        found = self._people.unite(users, bits) if bits.any() else np.zeros(len(users), np.uint64)
        for at, rows in scopes:
            roles = self._arrays.scopes[self.plan.steps[at].type].roles
            by_row = [_united(given.get(role, 0) for role in listed) for listed in roles]
            found |= np.array([*by_row, 0], np.uint64)[rows]
        return found

    def _evaluate(
        self, condition: Condition, batch: Batch, known: Mapping[tuple[str, str], tuple[Bits, Bits]]
    ) -> Truth:
        def fact(part: Atom) -> Truth:
            if part.kind == "has":
                stand, _ = known[part.slot, part.type]
                truth: Truth = stand & np.uint64(self._bit[part.privilege]) != 0
            elif part.kind == "owner":
                _, own = known[part.slot, part.type]
                truth = own != 0
            else:
                truth = self._test(part, batch)
            return truth

        rows = len(batch.users)
        return fold(condition, fact, partial(all_true, count=rows), partial(any_true, count=rows))

    def _test(self, fact: Atom, batch: Batch) -> Truth:
        """Evaluate a fact that is not a privilege or an ownership."""
        if fact.kind == "service_admin":
            admins = np.zeros(len(self._people.users) + 1, np.bool_)
            admins[[self._people.users[user] for user in self.plan.index.service_admins]] = True
            by_user: Truth = admins[batch.users]
            return by_user
        paths = batch.paths[fact.slot]
        depth = self.plan.reader.depth(fact.type)
        match fact.kind:
            case "self":
                same: Truth = pc.equal(decoded(paths.name(depth)), batch.names).to_numpy(zero_copy_only=False)
                return same
            case "holds":
                return self._named("role", paths, depth, batch.users)
            case _:
                members = self._arrays.members[fact.type]
                belongs: Truth = members.find(pair(batch.users, paths.places(fact.type))) >= 0
                if self.plan.reader.principal[fact.type] == "group":
                    belongs = belongs | self._named("group", paths, depth, batch.users)
                return belongs

    def _named(self, kind: str, paths: Paths, depth: int, users: Codes) -> Truth:
        """Whether an entity is a principal of the row's user, by its last name or by its whole path."""
        names, label = self._people.label(kind)
        last, whole = names.find(decoded(paths.name(depth))), names.find(paths.path(depth))
        truth = np.zeros(len(users), np.bool_)
        asked = np.flatnonzero((users >= 0) & ((last >= 0) | (whole >= 0)))
        for part in parts(asked, self._people.counts(users[asked])):
            some, begins, principals = self._people.spread(users[part])
            if len(some):
                rows = np.repeat(part[some], np.diff(np.append(begins, len(principals))))
                own = label[principals]
                hit = (own >= 0) & ((own == last[rows]) | (own == whole[rows]))
                truth[rows[hit]] = True
        return truth


def parts(rows: Codes, counts: Codes) -> Iterator[Codes]:
    """Split `rows` into parts with a bounded sum of counts, since the arrays to which they expand must fit in memory."""
    ends = np.cumsum(counts)
    if not len(rows) or ends[-1] <= MOST_SPREAD:
        yield rows
        return
    cuts = np.flatnonzero(np.diff(ends // MOST_SPREAD)) + 1
    yield from np.split(rows, cuts)


def _united(bits: Iterable[int]) -> int:
    all_bits = 0
    for own in bits:
        all_bits |= own
    return all_bits
