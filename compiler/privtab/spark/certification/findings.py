"""Findings for reviewers in a matrix and its state."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from privtab.moments import now
from privtab.names import quoted
from privtab.state.findings import row_sentence
from privtab.state.load import cells_of

if TYPE_CHECKING:
    from privtab.ir.nodes import Program
    from privtab.spark.certification.figures import DestructivePrincipal, WrittenRows
    from privtab.state.nodes import State

Level = Literal["high", "medium", "low"]
LEVELS: tuple[Level, ...] = ("high", "medium", "low")
EACH = 200
"""Most findings of a kind that are listed; one more finding counts the rest."""
EXAMPLES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A finding: its kind and level, the principal or entity that it is about, and a text."""

    kind: str
    level: Level
    about: str
    text: str
    count: int = 1
    """The number of findings it stands for; more than one only if it counts those that are not listed."""


DEPARTED = "departed user"
ENDING = "ending soon"
SOON_DAYS = 30
"""Days within which the end of a row is reported."""
DESTRUCTIVE = "destructive operations"
WHAT = {
    DESTRUCTIVE: "who may destroy something, and through which principal",
    DEPARTED: "rows about users who are not in the list of people",
    "orphaned owner": "owners that appear in no other row of the state",
    "dormant role": "roles with grants and without assignments",
    "empty role": "assigned roles without grants",
    ENDING: f"rows that end within {SOON_DAYS} days, and what they give with them",
    "direct grant": "privileges granted to a user instead of a role or a group",
    "open to anyone": "operations without a condition",
    "without entitlement": "users of the state without any entitlement",
}
"""Description of each kind."""
OF_ROWS = ("orphaned owner", "dormant role", "empty role", ENDING, "direct grant")
"""The kinds that are found in the rows of a state, which a bundle does not have."""


def of_matrix(rows: WrittenRows) -> Iterator[Finding]:
    """Findings in the rows of the matrix."""
    destroyers, count = rows.destroyers(EACH)
    for destroyer in destroyers:
        text = f"{abbreviated(destroyer.operations)} on {destroyer.entities:,} {'entity' if destroyer.entities == 1 else 'entities'}, {_held(destroyer)}"
        yield Finding(kind=DESTRUCTIVE, level="high", about=destroyer.principal, text=text)
    yield from _more(DESTRUCTIVE, "high", count)
    for operation, paths in rows.open_operations()[:EACH]:
        text = f"requires nothing: every user may, on {paths:,} of the entities"
        yield Finding(kind="open to anyone", level="medium", about=operation, text=text)


def _held(destroyer: DestructivePrincipal) -> str:
    """The principals through which access is held, without repeating the principal itself."""
    others = [name for name in destroyer.through if name != destroyer.principal]
    direct = ["directly"] if len(others) < len(destroyer.through) else []
    return " and ".join([*direct, *([f"through {abbreviated(others)}"] if others else [])])


def of_state(program: Program, state: State, people: Collection[str] | None) -> Iterator[Finding]:
    """Findings in the rows of a state. `people`: the users that exist; None: unknown."""
    yield from _limited(_departed_users(state, people), DEPARTED, "high")
    yield from _limited(_orphans(state), "orphaned owner", "medium")
    yield from _limited(_roles(program, state), "dormant role", "medium")
    yield from _limited(_empty(program, state), "empty role", "low")
    yield from _limited(_direct(state), "direct grant", "low")


def of_times(state: State) -> Iterator[Finding]:
    """Findings in the times in which rows of a state hold: those that hold now and end soon, the first end first."""
    since = now()
    before = since + SOON_DAYS * 86_400 * 10**9
    ending = [
        (window.end, row_sentence(table, cells), cells)
        for table, windows in state.windows.items()
        for window, cells in zip(windows, cells_of(state, table), strict=True)
        if window.holds(since) and window.end <= before
    ]
    found = (
        Finding(kind=ENDING, level="medium", about=_about(cells), text=sentence)
        for _, sentence, cells in sorted(ending, key=lambda entry: entry[:2])
    )
    yield from _limited(found, ENDING, "medium")


def _about(cells: Mapping[str, str]) -> str:
    """The principal that has what a row says, or the entity."""
    if "user" in cells and not cells["user"].startswith("group:"):
        return f"user:{cells['user']}"
    return next(cells[name] for name in ("grantee", "principal", "owner", "user", "entity") if name in cells)


def without_entitlement(users: Collection[str], having: Collection[str]) -> Iterator[Finding]:
    """Findings for users without any entitlement."""
    idle = (
        Finding(
            kind="without entitlement",
            level="low",
            about=f"user:{user}",
            text="has no entitlement on any of the entities",
        )
        for user in sorted(set(users) - set(having))
    )
    yield from _limited(idle, "without entitlement", "low")


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sort findings by level, highest first, then by kind in the order of `WHAT`; stable within a kind."""
    kinds = list(WHAT)
    return tuple(sorted(findings, key=lambda found: (LEVELS.index(found.level), kinds.index(found.kind))))


def _limited(findings: Iterable[Finding], kind: str, level: Level) -> Iterator[Finding]:
    listed = list(findings)
    yield from listed[:EACH]
    yield from _more(kind, level, len(listed))


def _more(kind: str, level: Level, count: int) -> Iterator[Finding]:
    if count > EACH:
        text = f"and {count - EACH:,} more, which are not listed here"
        yield Finding(kind=kind, level=level, about="…", text=text, count=count - EACH)


def _departed_users(state: State, people: Collection[str] | None) -> Iterator[Finding]:
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
        text = f"is not in the list of people, and still has {', '.join(parts)}"
        yield Finding(kind=DEPARTED, level="high", about=f"user:{user}", text=text)


def _assigned(state: State) -> set[str]:
    """The roles that some row assigns, as `role:…`."""
    return {f"role:{role}" for role in state.distinct(("assignments", "role"))}


def _orphans(state: State) -> Iterator[Finding]:
    known = {f"user:{user}" for user in state.distinct(("members", "user"), ("memberships", "user"))}
    known |= state.distinct(("assignments", "principal"), ("grants", "grantee"))
    known |= {f"group:{group}" for group in state.distinct(("memberships", "group"))} | _assigned(state)
    owned: dict[str, list[str]] = defaultdict(list)
    for entity, owner in state.texts("owners", "entity", "owner"):
        if owner not in known:
            owned[owner].append(entity)
    for owner, entities in sorted(owned.items()):
        text = f"owns {abbreviated(sorted(entities))} and appears in no other row"
        yield Finding(kind="orphaned owner", level="medium", about=owner, text=text)


def _roles(program: Program, state: State) -> Iterator[Finding]:
    assigned = _assigned(state)
    grant_counts: Counter[str] = Counter(
        grantee for (grantee,) in state.texts("grants", "grantee") if grantee.startswith("role:")
    )
    for role, count in sorted(grant_counts.items()):
        if role not in assigned:
            text = f"has {count:,} grant{'' if count == 1 else 's'} and no assignments"
            yield Finding(kind="dormant role", level="medium", about=role, text=text)
    for role in sorted(program.roles):
        if f"role:{role}" not in assigned and f"role:{role}" not in grant_counts:
            text = "is declared by the policy and assigned to no one"
            yield Finding(kind="dormant role", level="medium", about=f"role:{role}", text=text)


def _empty(program: Program, state: State) -> Iterator[Finding]:
    giving = state.distinct(("grants", "grantee"), ("owners", "owner"))
    giving |= {f"role:{role.name}" for role in program.roles.values() if role.grants}
    giving |= {holder for holder in state.distinct(("assignments", "principal")) if holder.startswith("role:")}
    holders: Counter[str] = Counter(f"role:{role}" for (role,) in state.texts("assignments", "role"))
    for role, count in sorted(holders.items()):
        if role not in giving:
            text = f"is held {count:,} time{'' if count == 1 else 's'}, and gives nothing"
            yield Finding(kind="empty role", level="low", about=role, text=text)


def _direct(state: State) -> Iterator[Finding]:
    grants_by_user: dict[str, list[str]] = defaultdict(list)
    for grantee, effect, privilege, entity in state.texts("grants", "grantee", "effect", "privilege", "entity"):
        if effect == "allow" and grantee.startswith("user:"):
            grants_by_user[grantee].append(f"{quoted(privilege)} ({entity})")
    for user, grants in sorted(grants_by_user.items(), key=lambda pair: (-len(pair[1]), pair[0])):
        yield Finding(
            kind="direct grant", level="low", about=user, text=f"granted directly: {abbreviated(sorted(set(grants)))}"
        )


def abbreviated(names: Sequence[str], most: int = EXAMPLES) -> str:
    """The first names, and the number of the others."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"
