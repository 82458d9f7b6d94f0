"""The common request, with only a user and a named resource, as one function that looks up nothing but the state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from privtab.engines.conditions import ALWAYS, RESOURCE, Atom
from privtab.engines.index import OWNER, Table
from privtab.engines.plan import FormPlan, Special, needed
from privtab.names import is_wildcard

Shortcut: TypeAlias = Callable[[str, str], bool | None]
"""Decides (user, path of the resource). None: the path or the user may be malformed, which the engine reports."""

_NOBODY: tuple[str, ...] = ()
_NOTHING: Table = {}


class Level(NamedTuple):
    """One entity of the path and all that is checked on it."""

    table: Table
    needed: int
    """The privileges without which the request is denied."""
    checked: int
    """The same, and their denials."""
    mask: int
    shift: int
    """As in Step."""
    tests: tuple[tuple[int, Special], ...]


def shortcut(plan: FormPlan) -> Shortcut | None:
    """Compile a plan to such a function; None if its form needs more."""
    chain = plan.reader.chains[plan.form.types[RESOURCE]]
    # Each entity down the path adds one name.
    straight = [depth for _, depth in chain] == list(range(1, len(chain) + 1))
    on_path = all(any(step.type == type_ for type_, _ in chain) for step in plan.steps)
    plain = len(plan.form.types) == 1 and plan.form.named and not (plan.semantics.roles or plan.comparisons)
    if not (straight and on_path and plain):
        return None
    required, rest = needed(plan.condition)
    levels = [_level(plan, type_, depth, required) for type_, depth in chain]
    inherited = all(plan.semantics.inherits(atom.privilege) for atom in required)
    simple = rest == ALWAYS and inherited and plan.semantics.denies and not plan.owner_bits
    return _conjunction(levels, plan) if simple else _by_facts(plan, levels)


def _level(plan: FormPlan, type_: str, depth: int, required: Sequence[Atom]) -> Level:
    step = next((step for step in plan.steps if step.type == type_), None)
    allowed = plan.index.numbers.allowed
    bits = sum({allowed(atom.privilege) for atom in required if atom.type == type_})
    # Facts about the caller alone are checked at the root.
    tests = [test for test in plan.tests if max(test.depth, 1) == depth]
    return Level(
        table=step.table if step else _NOTHING,
        needed=bits,
        checked=bits | bits << 1,
        mask=step.mask if step else 0,
        shift=step.shift if step else 0,
        tests=tuple((test.bit, test.through) for test in tests),
    )


def _conjunction(levels: Sequence[Level], plan: FormPlan) -> Shortcut:
    """For conditions that need some inherited privileges and nothing else, with denials."""
    users, stranger = plan.index.callers, plan.index.stranger or _NOBODY
    upper = tuple((level.table, level.needed, level.checked) for level in levels[:-1])
    last, last_needed, last_looked = levels[-1][:3]

    def answer(user: str, path: str) -> bool | None:
        principals = users.get(user, stranger)
        if (
            (principals is stranger and not _is_name(user))
            or "%" in path
            or "*" in path
            or "?" in path
            or not path.isprintable()
        ):
            return None
        known = 0
        denied = False
        end = -1
        for table, required, checked in upper:
            start = end + 1
            end = path.find("/", start)
            if end <= start:
                return None
            if not denied:
                holders = table.get(path[:end])
                if holders is not None:
                    for principal in principals:
                        if principal in holders:
                            known |= holders[principal]
                # The rest of the path must still be checked: it may be malformed.
                denied = known & checked != required
        if path.find("/", end + 1) >= 0 or end + 1 == len(path):
            return None
        if denied:
            return False
        holders = last.get(path)
        if holders is not None:
            for principal in principals:
                if principal in holders:
                    known |= holders[principal]
        return known & last_looked == last_needed

    return answer


def _by_facts(plan: FormPlan, levels: Sequence[Level]) -> Shortcut:
    """For all other conditions: gather the atoms along the path into one number, and evaluate the condition on it."""
    users, stranger = plan.index.callers, plan.index.stranger or _NOBODY
    decide, owner_bits = plan.decide, plan.owner_bits
    inherited, denies = plan.inherited, plan.semantics.denies
    slashes = len(levels) - 1

    def answer(user: str, path: str) -> bool | None:
        principals = users.get(user, stranger)
        if (
            (principals is stranger and not _is_name(user))
            or "%" in path
            or "*" in path
            or "?" in path
            or not path.isprintable()
        ):
            return None
        if path.count("/") != slashes or not path or path[0] == "/" or path[-1] == "/" or "//" in path:
            return None
        gathered = known = 0
        end = -1
        for table, required, _, mask, shift, tests in levels:
            end = path.find("/", end + 1)
            prefix = path[:end] if end >= 0 else path
            for bit, through in tests:
                if through(user, principals, principals, prefix):
                    gathered |= bit
            bits = 0
            holders = table.get(prefix)
            if holders is not None:
                for principal in principals:
                    if principal in holders:
                        bits |= holders[principal]
            known = known & inherited | bits
            if mask:
                effective = known & ~(known >> 1) if denies else known
                if owner_bits and known & OWNER:
                    effective |= owner_bits if bits & OWNER else owner_bits & inherited
                if effective & required != required:
                    return False
                gathered |= (((effective & ~OWNER) | (bits & OWNER)) & mask) << shift
        return decide(gathered)

    return answer


def _is_name(user: object) -> bool:
    return type(user) is str and user.isprintable() and ":" not in user and not is_wildcard(user) and user != ""
