"""The common request, with only a user and a named resource, as one function that looks up nothing but the state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from privtab.engines.conditions import RESOURCE, AllOf, Atom
from privtab.engines.index import OWNER, Table
from privtab.engines.plan import Plan, Special, needed
from privtab.names import is_wildcard

Quick: TypeAlias = Callable[[str, str], bool | None]
"""Decides (user, path of the resource). None: the path or the user may be malformed, which the long way reports."""
Users: TypeAlias = Mapping[str, tuple[str, ...]]

_NOBODY: tuple[str, ...] = ()
_NOTHING: Table = {}


class Level(NamedTuple):
    """One entity of the path and all that is checked on it."""

    table: Table
    needed: int
    """The privileges without which the request is denied."""
    looked: int
    """The same, and their denials."""
    mask: int
    shift: int
    """As in Step."""
    tests: tuple[tuple[int, Special], ...]


def quick(plan: Plan) -> Quick | None:
    """Compile a plan to such a function; None if its form needs more."""
    chain = plan.reader.chains[plan.form.types[RESOURCE]]
    # Each entity down the path adds one name.
    straight = [depth for _, depth in chain] == list(range(1, len(chain) + 1))
    on_path = all(any(step.type == type_ for type_, _ in chain) for step in plan.steps)
    alone = len(plan.form.types) == 1 and plan.form.named and not plan.meaning.roles
    if not (straight and on_path and alone):
        return None
    first = needed(plan.condition)
    levels = [_level(plan, type_, depth, first) for type_, depth in chain]
    simple = (
        AllOf(first) in (plan.condition, AllOf((plan.condition,)))
        and plan.meaning.down
        and plan.meaning.denies
        and not plan.owner_bits
    )
    return _conjunction(levels, plan.index.users) if simple else _gathering(plan, levels)


def _level(plan: Plan, type_: str, depth: int, first: Sequence[Atom]) -> Level:
    step = next((step for step in plan.steps if step.type == type_), None)
    allowed = plan.index.numbers.allowed
    bits = sum({allowed(fact.privilege) for fact in first if fact.type == type_})
    # Facts about the caller alone are checked at the root.
    tests = [test for test in plan.tests if max(test.depth, 1) == depth]
    return Level(
        table=step.table if step else _NOTHING,
        needed=bits,
        looked=bits | bits << 1,
        mask=step.mask if step else 0,
        shift=step.shift if step else 0,
        tests=tuple((test.bit, test.holds) for test in tests),
    )


def _conjunction(levels: Sequence[Level], users: Users) -> Quick:
    """For conditions that need some privileges and nothing else, with inheritance and denials."""
    upper = tuple((level.table, level.needed, level.looked) for level in levels[:-1])
    last, last_needed, last_looked = levels[-1][:3]

    def answer(user: str, path: str) -> bool | None:
        who = users.get(user, _NOBODY)
        if (who is _NOBODY and not _is_name(user)) or "%" in path or "*" in path or "?" in path or not path.isascii():
            return None
        known = 0
        denied = False
        end = -1
        for table, wanted, looked in upper:
            start = end + 1
            end = path.find("/", start)
            if end <= start:
                return None
            if not denied:
                holders = table.get(path[:end])
                if holders is not None:
                    for principal in who:
                        if principal in holders:
                            known |= holders[principal]
                # The rest of the path must still be checked: it may be malformed.
                denied = known & looked != wanted
        if path.find("/", end + 1) >= 0 or end + 1 == len(path):
            return None
        if denied:
            return False
        holders = last.get(path)
        if holders is not None:
            for principal in who:
                if principal in holders:
                    known |= holders[principal]
        return known & last_looked == last_needed

    return answer


def _gathering(plan: Plan, levels: Sequence[Level]) -> Quick:
    """For all other conditions: gather the facts along the path into one number, and evaluate the condition on it."""
    users, decide, held = plan.index.users, plan.decide, plan.owner_bits
    down, denies = plan.meaning.down, plan.meaning.denies
    whole = len(levels) - 1

    def answer(user: str, path: str) -> bool | None:
        who = users.get(user, _NOBODY)
        if (who is _NOBODY and not _is_name(user)) or "%" in path or "*" in path or "?" in path or not path.isascii():
            return None
        if path.count("/") != whole or not path or path[0] == "/" or path[-1] == "/" or "//" in path:
            return None
        facts = known = 0
        end = -1
        for table, wanted, _, mask, shift, tests in levels:
            end = path.find("/", end + 1)
            place = path[:end] if end >= 0 else path
            for bit, holds in tests:
                if holds(user, who, place):
                    facts |= bit
            here = 0
            holders = table.get(place)
            if holders is not None:
                for principal in who:
                    if principal in holders:
                        here |= holders[principal]
            known = known | here if down else here
            if mask:
                stand = known & ~(known >> 1) if denies else known
                if held and known & OWNER:
                    stand |= held
                if stand & wanted != wanted:
                    return False
                facts |= (((stand & ~OWNER) | (here & OWNER)) & mask) << shift
        return decide(facts)

    return answer


def _is_name(user: object) -> bool:
    return type(user) is str and user.isascii() and ":" not in user and not is_wildcard(user) and user != ""
