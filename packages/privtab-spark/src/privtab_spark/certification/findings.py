"""Findings for reviewers in a matrix and its state."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import time_ns
from typing import TYPE_CHECKING, Literal, TypeAlias

from privtab.base import quoted_privilege
from privtab_analysis.row_sentences import row_sentence

if TYPE_CHECKING:
    from privtab.ir import Program
    from privtab.state import State
    from privtab_spark.certification.figures import DestructivePrincipal, WrittenRows

Level = Literal["high", "medium", "low"]
LEVELS: tuple[Level, ...] = ("high", "medium", "low")
EACH = 200
"""Most findings of a kind that are listed; one more finding counts the rest."""
EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding: its kind and level, the principal or entity that it is about, and a text."""

    kind: str
    level: Level
    about: str
    text: str
    count: int = 1
    """The number of findings that the entry stands for; more than one only if it counts findings that are not listed."""


Found: TypeAlias = Iterator[tuple[str, str]]
"""Findings of one kind: the subject of each, and its text."""
DEPARTED, ORPHANED, DORMANT, EMPTY = "departed user", "orphaned owner", "dormant role", "empty role"
ENDING, DIRECT, OPEN, IDLE = "ending soon", "direct grant", "open to anyone", "without entitlement"
DESTRUCTIVE = "destructive operations"
SOON_DAYS = 30
"""Days within which the end of a row is reported."""
KINDS: Mapping[str, tuple[Level, str]] = {
    DESTRUCTIVE: ("high", "who may destroy something, and through which principal"),
    DEPARTED: ("high", "rows about users who are not in the list of people"),
    ORPHANED: ("medium", "owners that appear in no other row of the state"),
    DORMANT: ("medium", "roles with grants and without assignments"),
    EMPTY: ("low", "assigned roles without grants"),
    ENDING: ("medium", f"rows that end within {SOON_DAYS} days, and what they give with them"),
    DIRECT: ("low", "privileges granted to a user instead of a role or a group"),
    OPEN: ("medium", "operations without a condition"),
    IDLE: ("low", "users of the state without any entitlement"),
}
"""The level of each kind, and its description."""
OF_ROWS = (ORPHANED, DORMANT, EMPTY, ENDING, DIRECT)
"""The kinds that are found in the rows of a state, which a bundle does not have."""


def of_matrix(rows: WrittenRows) -> Iterator[Finding]:
    """Findings in the rows of the matrix."""
    destroyers, count = rows.destroyers(EACH)
    yield from _limited(DESTRUCTIVE, map(_destroyer, destroyers), count)
    requires_nothing = "requires nothing: every user may, on {:,} of the entities"
    opened = ((operation, requires_nothing.format(paths)) for operation, paths in rows.open_operations())
    yield from _limited(OPEN, opened)


def _destroyer(destroyer: DestructivePrincipal) -> tuple[str, str]:
    """The principals through which access is held are named without repeating the principal itself."""
    others = [name for name in destroyer.through if name != destroyer.principal]
    direct = ["directly"] if len(others) < len(destroyer.through) else []
    held = " and ".join([*direct, *([f"through {abbreviated(others)}"] if others else [])])
    entities = f"{destroyer.entities:,} {'entity' if destroyer.entities == 1 else 'entities'}"
    return destroyer.principal, f"{abbreviated(destroyer.operations)} on {entities}, {held}"


def of_state(program: Program, state: State, people: Collection[str] | None) -> Iterator[Finding]:
    """Findings in the rows of a state. `people`: the users that exist; None: unknown."""
    yield from _limited(DEPARTED, _departed_users(state, people))
    yield from _limited(ORPHANED, _orphans(state))
    yield from _limited(DORMANT, _dormant(program, state))
    yield from _limited(EMPTY, _empty(program, state))
    yield from _limited(DIRECT, _direct(state))


def of_times(state: State) -> Iterator[Finding]:
    """Findings in the times in which rows of a state hold: rows that hold now and end soon, the first end first."""
    since = time_ns()
    before = since + SOON_DAYS * 86_400 * 10**9
    ending = [
        (window.end, row_sentence(table, cells), cells)
        for table, windows in state.windows.items()
        for window, cells in zip(windows, state.cells(table), strict=True)
        if window.holds(since) and window.end <= before
    ]
    ending.sort(key=lambda entry: entry[:2])
    yield from _limited(ENDING, ((_about(cells), sentence) for _, sentence, cells in ending))


def _about(cells: Mapping[str, str]) -> str:
    """The principal to which a row gives something, or the entity."""
    if "user" in cells and not cells["user"].startswith("group:"):
        return f"user:{cells['user']}"
    return next(cells[name] for name in ("grantee", "principal", "owner", "user", "entity") if name in cells)


def without_entitlement(users: Collection[str], having: Collection[str]) -> Iterator[Finding]:
    """Findings for users without any entitlement."""
    idle = sorted(set(users) - set(having))
    yield from _limited(IDLE, ((f"user:{user}", "has no entitlement on any of the entities") for user in idle))


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sort findings by level, highest first, then by kind in the order of `KINDS`; stable within a kind."""
    kinds = list(KINDS)
    return tuple(sorted(findings, key=lambda found: (LEVELS.index(found.level), kinds.index(found.kind))))


def _limited(kind: str, found: Iterable[tuple[str, str]], count: int | None = None) -> Iterator[Finding]:
    """The first findings of a kind, and one for the others. `count`: how many there are, if not all of them are in `found`."""
    listed, (level, _) = list(found), KINDS[kind]
    yield from (Finding(kind, level, *pair) for pair in listed[:EACH])
    rest = (len(listed) if count is None else count) - EACH
    if rest > 0:
        yield Finding(kind, level, "…", f"and {rest:,} more, which are not listed here", rest)


def _departed_users(state: State, people: Collection[str] | None) -> Found:
    if people is None:
        return
    known = set(people)
    rows: Counter[tuple[str, str]] = Counter()
    rows.update((user, "group") for (user,) in state.texts("memberships", "user") if not user.startswith("group:"))
    rows.update((user, "membership") for (user,) in state.texts("members", "user"))
    rows.update((user, "service admin") for (user,) in state.texts("service_admins", "user"))
    named = (("assignments", "principal", "role"), ("grants", "grantee", "grant"), ("owners", "owner", "ownership"))
    for table, column, noun in named:
        counts = Counter(principal for (principal,) in state.texts(table, column))
        rows.update({(user_key[5:], noun): count for user_key, count in counts.items() if user_key.startswith("user:")})
    by_user: dict[str, list[str]] = defaultdict(list)
    for (user, noun), count in sorted(rows.items()):
        if user not in known:
            by_user[user].append(f"{count:,} {noun}{'' if count == 1 else 's'}")
    for user, parts in by_user.items():
        yield f"user:{user}", f"is not in the list of people, and still has {', '.join(parts)}"


def _assigned(state: State) -> set[str]:
    """The roles that some row assigns, as `role:…`."""
    return {f"role:{role}" for role in state.distinct(("assignments", "role"))}


def _orphans(state: State) -> Found:
    known = {f"user:{user}" for user in state.distinct(("members", "user"), ("memberships", "user"))}
    known |= state.distinct(("assignments", "principal"), ("grants", "grantee"))
    known |= {f"group:{group}" for group in state.distinct(("memberships", "group"))} | _assigned(state)
    owned: dict[str, list[str]] = defaultdict(list)
    for entity, owner in state.texts("owners", "entity", "owner"):
        if owner not in known:
            owned[owner].append(entity)
    for owner, entities in sorted(owned.items()):
        yield owner, f"owns {abbreviated(sorted(entities))} and appears in no other row"


def _dormant(program: Program, state: State) -> Found:
    assigned = _assigned(state)
    grant_counts: Counter[str] = Counter(
        grantee for (grantee,) in state.texts("grants", "grantee") if grantee.startswith("role:")
    )
    for role, count in sorted(grant_counts.items()):
        if role not in assigned:
            yield role, f"has {count:,} grant{'' if count == 1 else 's'} and no assignments"
    for role in sorted(program.roles):
        if f"role:{role}" not in assigned and f"role:{role}" not in grant_counts:
            yield f"role:{role}", "is declared by the policy and assigned to no one"


def _empty(program: Program, state: State) -> Found:
    giving = state.distinct(("grants", "grantee"), ("owners", "owner"))
    giving |= {f"role:{role.name}" for role in program.roles.values() if role.grants}
    giving |= {holder for holder in state.distinct(("assignments", "principal")) if holder.startswith("role:")}
    holders: Counter[str] = Counter(f"role:{role}" for (role,) in state.texts("assignments", "role"))
    for role, count in sorted(holders.items()):
        if role not in giving:
            yield role, f"is held {count:,} time{'' if count == 1 else 's'}, and gives nothing"


def _direct(state: State) -> Found:
    grants_by_user: dict[str, list[str]] = defaultdict(list)
    for grantee, effect, privilege, entity in state.texts("grants", "grantee", "effect", "privilege", "entity"):
        if effect == "allow" and grantee.startswith("user:"):
            grants_by_user[grantee].append(f"{quoted_privilege(privilege)} ({entity})")
    for user, grants in sorted(grants_by_user.items(), key=lambda pair: (-len(pair[1]), pair[0])):
        yield user, f"granted directly: {abbreviated(sorted(set(grants)))}"


def abbreviated(names: Sequence[str], most: int = EXAMPLES) -> str:
    """The first names, and the number of the others."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"
