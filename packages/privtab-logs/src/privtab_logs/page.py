"""A page about a log: decisions over time, denials and what was missing, what roles hold and what was used, who would lose what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from privtab.base import Request, count, moment_text
from privtab.ir import Program
from privtab.reference import Reference
from privtab.state import ROLE_PREFIX, Assignment, State
from privtab_analysis.answer_view import AnswerView, answered
from privtab_analysis.entitlements.universe import users
from privtab_analysis.heat_map import HeatMap
from privtab_analysis.html import page as rendered
from privtab_analysis.permissions import what_can
from privtab_analysis.state_diff import StateDiff
from privtab_analysis.state_diff.summary import groups, totals
from privtab_logs.row_use import Unused

SIDE = 30
"""Most rows, and most columns, of a heat map."""
EXPLAINED = 500
"""Denied requests whose missing privileges are looked at, the most frequent ones."""
ANSWERED = 12
"""Groups of denials of which the page says what would allow the most frequent request."""
MOST_ENTITIES = 20_000
"""Entities of a state up to which the page shows what roles hold."""
LISTED = 200
"""Most lines of a list."""
BARS = 120
"""Most bars of the chart."""
_STEPS = (1, 5, 15, 60, 360, 1_440, 10_080)
_MINUTE = 60_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """The decisions of a time. `high`, `denied`: all of them and the denials, of 100 for the time with the most."""

    text: str
    high: float
    denied: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """Denials of one row of the table for want of the same. `why`: any one of some sets, or the denials, in words.

    `answer`: about the most frequent of the requests, if the denials are among the most frequent: its ways say what would allow it.
    """

    rule: str
    why: str
    count: int
    users: int
    requests: int
    answer: AnswerView | None


def page(program: Program, found: Unused, difference: StateDiff | None, summary: Iterable[str], state: str) -> str:
    """The page. `summary`: what was read and found; `state`: the name of the state."""
    log, usage = found.log, found.usage
    allowed = sum(number for (_, answer), number in log.timeline.items() if answer)
    denials = sum(log.timeline.values()) - allowed
    whole = usage.rows.whole
    held = None if len(set(whole.named_entities())) > MOST_ENTITIES else _held(program, found, whole)
    missing = list(_missing(program, found))
    lost = None if difference is None else totals(difference, gained=False)
    return rendered(
        "logs/report",
        title=f"{program.system}: what logged decisions used",
        program=program,
        state=state,
        summary=list(summary),
        figures=[
            (allowed, "allowed decisions", False),
            (denials, "denied decisions", False),
            (len(found.idle), "unused rows of the state", bool(found.idle)),
            (len(found.proposal.removed), "rows that could go", False),
            (len(found.idle_operations), "rows of the table that allowed nothing", False),
            (0 if lost is None else lost.permissions, "permissions that nobody used", False),
        ],
        bars=list(_bars(log.timeline)),
        missing=missing[:LISTED],
        missing_left=len(missing) - len(missing[:LISTED]),
        maps=[heat.shaded() for heat in _maps(found, held)],
        held=held is not None,
        groups=[] if difference is None else _losses(difference),
        undecided=() if difference is None else difference.undecided,
        compared=difference is not None,
        idle=[(row.table, row.text) for row in found.idle[:LISTED]],
        idle_left=len(found.idle) - len(found.idle[:LISTED]),
        users=found.users[:LISTED],
        users_left=len(found.users) - len(found.users[:LISTED]),
    )


def _bars(timeline: Counter[tuple[int, bool]]) -> Iterator[Bar]:
    """The decisions by times of equal length, so long that there are few."""
    if not timeline:
        return
    first, last = min(minute for minute, _ in timeline), max(minute for minute, _ in timeline)
    step = next((step for step in _STEPS if (last - first) // step < BARS), (last - first) // BARS + 1)
    counts: Counter[tuple[int, bool]] = Counter()
    for (minute, allowed), number in timeline.items():
        counts[minute // step, allowed] += number
    slots = range(first // step, last // step + 1)
    most = max(counts[slot, True] + counts[slot, False] for slot in slots)
    for slot in slots:
        allows, denials = counts[slot, True], counts[slot, False]
        begin = moment_text(slot * step * _MINUTE)
        yield Bar(
            text=f"{begin}: {allows:,} allowed, {denials:,} denied",
            high=round(100 * (allows + denials) / most, 2),
            denied=round(100 * denials / most, 2),
        )


def _missing(program: Program, found: Unused) -> Iterator[Missing]:
    """The denials by row and by what was missing, the most frequent first."""
    usage = found.usage
    reference = Reference(program, usage.rows.whole)
    frequent = sorted(usage.denials, key=lambda number: -usage.log[number].count)[:EXPLAINED]
    counts: Counter[tuple[str, str]] = Counter()
    requests: dict[tuple[str, str], list[Request]] = {}
    for number in frequent:
        logged = usage.log[number]
        decision = reference.decide(logged.request)
        sets = dict.fromkeys(tuple(map(_by_type, atoms)) for atoms in decision.missing)
        kinds = replace(decision, context={**decision.context, "missing": list(sets)})
        error = decision.context.get("error", {}).get("message")
        key = "/".join(logged.operation), error or kinds.why_denied(brief=True) or "nothing would allow it"
        counts[key] += logged.count
        requests.setdefault(key, []).append(logged.request)
    for place, (key, number) in enumerate(counts.most_common()):
        yield Missing(
            rule=key[0],
            why=key[1],
            count=number,
            users=len({request.user for request in requests[key]}),
            requests=len(requests[key]),
            answer=answered(reference, requests[key][0], usage.rows.whole) if place < ANSWERED else None,
        )


def _by_type(atom: str) -> str:
    """An atom without the path of its entity: `SELECT (table:l/s/t)` is `SELECT (table)`."""
    head, bracket, rest = atom.partition(" (")
    return f"{head} ({rest.partition(':')[0].removesuffix(')')})" if bracket else atom


def _held(program: Program, found: Unused, state: State) -> Counter[tuple[str, str]]:
    """Return, by role and operation, the number of the state's entities on which a holder of the role, who is a member everywhere, may do it."""
    name, known = "holder", users(program, state)
    while name in known:
        name += "_"
    everywhere = state
    for of in {entity for _, entity in state.members}:
        everywhere = everywhere.with_row("members", (name, of))
    counts: Counter[tuple[str, str]] = Counter()
    for role in _roles(found):
        bare = role.removeprefix(ROLE_PREFIX)
        rows = state.column("assignments", "role").where([bare])
        holding = everywhere
        for scope in {state.assignments[row].scope for row in rows} or {None}:
            holding = holding.with_row("assignments", Assignment(principal=f"user:{name}", role=bare, scope=scope))
        for operation in what_can(Reference(program, holding), holding, name).allowed:
            counts[role, f"{operation.resource.type}/{operation.operation}"] += 1
    return counts


def _roles(found: Unused) -> list[str]:
    """The roles of the maps: the most used roles, then the roles with the most rights."""
    used: Counter[str] = Counter()
    for (role, _), number in found.usage.through.items():
        used[role] += number
    rights = {role.role: len(role.granted) for role in found.roles}
    return sorted(rights.keys() | used.keys(), key=lambda role: (-used[role], -rights.get(role, 0), role))[:SIDE]


def _maps(found: Unused, held: Counter[tuple[str, str]] | None) -> list[HeatMap]:
    """Return maps of the operations used through roles and of the operations that roles hold, with the same rows and columns."""
    used = Counter({(role, "/".join(pair)): number for (role, pair), number in found.usage.through.items()})
    roles = _roles(found)
    if not roles:
        return []
    columns: Counter[str] = Counter()
    for (_, operation), number in (*used.items(), *(held or {}).items()):
        columns[operation] += number
    shown = [name for name, _ in sorted(columns.items(), key=lambda column: (-column[1], column[0]))[:SIDE]]
    every = {role.role for role in found.roles} | {role for role, _ in used}
    left = len(every) - len(roles), len(columns) - len(shown)
    maps = [("used: allowed decisions through a role", used)]
    maps += [] if held is None else [("held: entities on which a role allows an operation", held)]
    return [
        HeatMap(
            name=name,
            rows=tuple(roles),
            columns=tuple(shown),
            cells=tuple(tuple(cells[role, operation] for operation in shown) for role in roles),
            sums=tuple(sum(cells[role, operation] for operation in columns) for role in roles),
            left_out=left,
        )
        for name, cells in maps
    ]


def _losses(difference: StateDiff) -> Sequence[dict[str, Any]]:
    """Return who would lose what without the rows that would go."""
    return [
        {
            "rows": [row.text for row in group.rows[:LISTED]],
            "count": count(group.permissions, "permission"),
            "lines": group.lines[:LISTED],
        }
        for group in groups(difference)[:LISTED]
        if not group.gained
    ]
