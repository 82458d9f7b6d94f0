"""Decide many requests column by column, with numpy and pyarrow: for `check_many`, and for Spark on each core.

Users and entities become numbers, what is held becomes bits in arrays, and a condition becomes a few operations on whole
columns. `in_columns` tells which conditions fit; the others are evaluated row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privtab.arrow import Codes, Truth
from privtab.engines.arrays import HEAVY, Arrays, Column, UserPrincipals
from privtab.engines.columns import Level, Paths, decoded, taken
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
class View:
    """The distinct pairs of a user and the first names of a path, among the requests of a batch."""

    who: Codes
    """For each pair, the position of the user's name."""
    at: Codes | None
    """For each pair, the position of the path in its level; None: the same position."""
    of_rows: Codes | None
    """For each request, the position of its pair; None if each request is a pair of its own."""

    def spread(self, truth: Truth) -> Truth:
        """The values of pairs, for each request."""
        return truth if self.of_rows is None else truth[self.of_rows]


class Batch:
    """Requests of one form."""

    def __init__(self, names: pa.Array, who: Codes, codes: Codes, paths: Mapping[str, Paths]) -> None:
        """`names`: the distinct names of users; `who`: the position of each row's; `codes`: the user of each name; `paths`: by slot."""
        self.names = names
        self.who = who
        self.codes = codes
        self.paths = paths
        self._views: dict[tuple[str, int], View] = {}
        self._ups: dict[tuple[str, int], Codes] = {}

    def view(self, slot: str, depth: int) -> View:
        """The distinct pairs of a user and the first `depth` names of a path; for the whole path, the requests themselves."""
        if (slot, depth) not in self._views:
            paths = self.paths[slot]
            if depth == paths.width:
                view = View(who=self.who, at=None, of_rows=None)
            else:
                deeper, level = self.view(slot, depth + 1), paths.level(depth + 1)
                count = len(level.parents)
                pairs = pa.array(deeper.who * count + taken(level.above, deeper.at)).dictionary_encode()
                who, at = np.divmod(pairs.dictionary.to_numpy(), count)
                up = pairs.indices.to_numpy()
                of_rows = up if deeper.of_rows is None else up[deeper.of_rows]
                self._ups[slot, depth + 1] = up
                view = View(who=who, at=at, of_rows=of_rows)
            self._views[slot, depth] = view
        return self._views[slot, depth]

    def up(self, slot: str, depth: int) -> Codes:
        """For each pair of a view, the position of its pair in the view one name higher."""
        self.view(slot, depth - 1)
        return self._ups[slot, depth]


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
        steps: list[_Looked] = []
        meaning = self.plan.meaning
        for number, step in enumerate(self.plan.steps):
            view = batch.view(step.slot, step.depth)
            users = all_users = batch.codes[view.who]
            over = None
            if step.above >= 0:
                higher = self.plan.steps[step.above].depth < step.depth
                over = steps[step.above].below(batch.up(step.slot, step.depth) if higher else None)
                users = np.where(over.denied, -1, users)
            here = self._here(users, batch.paths[step.slot], step.type, view.at, self._columns[number])
            own = here & np.uint64(OWNER)
            scopes: tuple[tuple[int, Codes], ...] = ()
            if meaning.roles:
                places = batch.paths[step.slot].places(step.type, view.at)
                scopes = (
                    *(over.scopes if over else ()),
                    (number, self._arrays.scopes[step.type].find(all_users, places)),
                )
                here = here | self._by_default(number, all_users, scopes)
            if meaning.down and over is not None:
                here = here | over.held
            denied = over.denied if over is not None else np.zeros(len(here), np.bool_)
            if step.mask:
                place = step.slot, step.type
                known[place] = self._standing(here), own
                if place in self._needed:
                    # These rows are denied already: do not look up what else their users hold.
                    bits = np.uint64(self._needed[place])
                    denied = denied | (known[place][0] & bits != bits)
            steps.append(_Looked(held=here, denied=denied, scopes=scopes))
        return self._evaluate(self.plan.condition, batch, known)

    def _standing(self, here: Bits) -> Bits:
        """The privileges that are allowed and not denied."""
        stand = here & ~(here >> np.uint64(1)) if self.plan.meaning.denies else here
        if self._held:
            stand = np.where(here & np.uint64(OWNER) != 0, stand | self._held, stand)
        return stand

    def _here(self, users: Codes, paths: Paths, type_: str, at: Codes | None, column: Column) -> Bits:
        """What the users hold on the entities themselves."""
        bits = np.zeros(len(users), np.uint64)
        asked = np.flatnonzero(users >= 0)
        if len(asked):
            places = paths.places(type_, asked if at is None else at[asked])
            used = np.flatnonzero(column.used[places])
            asked = asked[used]
            bits[asked] = self._each(users[asked], places[used], column)
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
        @cache
        def fact(part: Atom) -> Truth:
            if part.kind == "service_admin":
                return self._administers(batch.codes)[batch.who]
            view = batch.view(part.slot, self.plan.reader.depth(part.type))
            if part.kind == "has":
                stand, _ = known[part.slot, part.type]
                return view.spread(stand & np.uint64(self._bit[part.privilege]) != 0)
            if part.kind == "owner":
                _, own = known[part.slot, part.type]
                return view.spread(own != 0)
            return view.spread(self._test(part, batch, view))

        rows = len(batch.who)
        return fold(condition, fact, partial(all_true, count=rows), partial(any_true, count=rows))

    def _administers(self, users: Codes) -> Truth:
        """Which users are service administrators."""
        admins = np.zeros(len(self._people.users) + 1, np.bool_)
        admins[[self._people.users[user] for user in self.plan.index.service_admins]] = True
        by_user: Truth = admins[users]
        return by_user

    def _test(self, fact: Atom, batch: Batch, view: View) -> Truth:
        """Evaluate a fact about a user's names and an entity that is not a privilege or an ownership."""
        paths = batch.paths[fact.slot]
        level = paths.level(self.plan.reader.depth(fact.type))
        if fact.kind == "self":
            same = pc.index_in(decoded(level.names), value_set=batch.names).fill_null(-1).to_numpy()
            itself: Truth = same[taken(level.own, view.at)] == view.who
            return itself
        users = batch.codes[view.who]
        if fact.kind == "holds":
            return self._named("role", level, view, users)
        belongs: Truth = self._arrays.members[fact.type].find(pair(users, paths.places(fact.type, view.at))) >= 0
        if self.plan.reader.principal[fact.type] == "group":
            belongs = belongs | self._named("group", level, view, users)
        return belongs

    def _named(self, kind: str, level: Level, view: View, users: Codes) -> Truth:
        """Whether an entity is a principal of the pair's user, by its last name or by its whole path."""
        names, label = self._people.label(kind)
        last = names.find(decoded(level.names))[taken(level.own, view.at)]
        whole = taken(names.find(level.texts), view.at)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Looked:
    """What a step found for each pair of its view."""

    held: Bits
    denied: Truth
    """Pairs whose requests are denied, whatever else their users hold."""
    scopes: tuple[tuple[int, Codes], ...]
    """By number of the step whose entities they are, the positions of the roles that users hold within them."""

    def below(self, up: Codes | None) -> _Looked:
        """The same for the pairs of a view below; None: for the same view."""
        if up is None:
            return self
        scopes = tuple((number, found[up]) for number, found in self.scopes)
        return _Looked(held=self.held[up], denied=self.denied[up], scopes=scopes)


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
