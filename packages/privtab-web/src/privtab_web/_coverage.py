"""Decisions of routes: the guards of each route, the answers to the probe, and the entries of documents and of the policy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from privtab.base import (
    LEFT_OUT,
    Diagnostic,
    FindingKind,
    InvalidRequest,
    Severity,
    Span,
    Vocabulary,
    did_you_mean,
    listed_names,
)
from privtab_web._declared import Declared, Entry, gateway_cover
from privtab_web._inspect import AppRoute, Cover
from privtab_web._needs import RequestTemplate
from privtab_web._probe import Answer

BAD_DOCUMENT = FindingKind("R001", "bad-route-document", Severity.ERROR)
UNUSED_ENTRY = FindingKind("R002", "unused-route-entry", Severity.ERROR)
UNGATED = FindingKind("R003", "ungated-route", Severity.ERROR)
UNREACHED = FindingKind("R004", "unreached-route", Severity.ERROR)
UNGUARDED = FindingKind("R005", "unguarded-route", Severity.ERROR)
UNKNOWN = FindingKind("R006", "unknown-operation", Severity.ERROR)


class Status(StrEnum):
    """The decision of a route, as far as it is known."""

    PROVED = "proved"
    """A guard was asked, and its denial ended the request."""
    GUARDED = "guarded"
    """A guard stands before it; it was not asked."""
    OPEN = "open"
    """Listed as open, with a reason."""
    UNGATED = "ungated"
    UNREACHED = "not reached"
    UNGUARDED = "not guarded"
    """Something should guard it, and does not."""


_FINDINGS = {
    Status.UNGATED: (UNGATED, "guard it, or list it in the file of routes: `{open: why}`"),
    Status.UNREACHED: (UNREACHED, "remove it, or move it before the other one"),
    Status.UNGUARDED: (UNGUARDED, "guard the handler itself, and check what stands before the guard"),
}
"""The finding about a route with a status, and its advice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A route with its status: the rows that it needs by what guards it, and why it has this status."""

    route: AppRoute
    status: Status
    covers: tuple[tuple[str, str], ...]
    """Guards of the route, each with its row, as in `table/load`."""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """All routes, the rows of the policy that none of them uses, and the findings."""

    routes: tuple[Judged, ...]
    unused: tuple[str, ...]
    findings: tuple[Diagnostic, ...]


def covered(
    routes: Sequence[AppRoute],
    documents: Sequence[Declared],
    found: list[Diagnostic],
    *,
    where: Span,
    answers: Mapping[int, tuple[Answer, ...]] | None = None,
    vocabulary: Vocabulary | None = None,
) -> Coverage:
    """Judge each route. `answers`: the probe's answers, by the position of the route; None for a description, which cannot be probed.

    `where`: the place of findings about routes whose handlers have none. `found`: findings about the documents.
    """
    entries, gateway = _merged(documents, found)
    judged = [
        _judged(route, entries.get(route.name), gateway, None if answers is None else answers.get(number, ()))
        for number, route in enumerate(routes)
    ]
    names = {route.name for route in routes}
    for entry in entries.values():
        if entry.route not in names:
            advice = did_you_mean(entry.route, names - entries.keys()) or "remove the entry"
            found.append(UNUSED_ENTRY.at(entry.span, f"there is no route `{entry.route}`", advice))
    for one in judged:
        span = one.route.span or where
        said = entries.get(one.route.name)
        if one.status in _FINDINGS:
            kind, advice = _FINDINGS[one.status]
            found.append(kind.at(span, f"`{one.route.name}`: {one.why}", advice))
        elif said is not None and said.open is not None and one.status is not Status.OPEN:
            found.append(
                UNUSED_ENTRY.at(said.span, f"`{said.route}` is guarded, and listed as open", "remove the entry")
            )
    used: set[str] = set()
    if vocabulary is not None:
        for route in routes:
            said = entries.get(route.name)
            for cover in _covers(route, said, gateway):
                at = said.span if said is not None and cover.needs is said.needs else route.span or where
                found.extend(_unknown(cover.needs, vocabulary, at, route.name))
        used = {row for one in judged if one.status in (Status.PROVED, Status.GUARDED) for _, row in one.covers}
    rows = _rows(vocabulary, used)
    return Coverage(routes=tuple(judged), unused=tuple(rows), findings=tuple(sorted(set(found))))


def _merged(documents: Sequence[Declared], found: list[Diagnostic]) -> tuple[dict[str, Entry], tuple[str, Span] | None]:
    entries: dict[str, Entry] = {}
    for document in documents:
        for name, entry in document.entries.items():
            if name in entries:
                other = entries[name].span
                message = f"`{name}` also has an entry at {other.path}:{other.line}"
                found.append(UNUSED_ENTRY.at(entry.span, message, "keep one of them"))
            entries.setdefault(name, entry)
    return entries, next((document.gateway for document in documents if document.gateway is not None), None)


def _covers(route: AppRoute, entry: Entry | None, gateway: tuple[str, Span] | None) -> tuple[Cover, ...]:
    """Everything that is said to guard a route."""
    if entry is not None and entry.needs is not None:
        return (*route.covers, Cover(by=entry.by, needs=entry.needs))
    if gateway is not None and entry is None:
        return (*route.covers, gateway_cover(gateway[0], route.method))
    return route.covers


def _judged(
    route: AppRoute,
    entry: Entry | None,
    gateway: tuple[str, Span] | None,
    answers: tuple[Answer, ...] | None,
) -> Judged:
    covers = _covers(route, entry, gateway)
    rows = tuple((cover.by, row_of(cover.needs)) for cover in covers)
    opened = entry.open if entry is not None else None
    seen = answers or ()
    asked = dict.fromkeys(f"{entity.type}/{action}" for answer in seen for action, entity in answer.denials.asked)
    status, why = _status(route, covers, seen, only_declared=answers is not None and not route.covers)
    if status is Status.PROVED and entry is not None and entry.needs is not None and row_of(entry.needs) not in asked:
        status, why = Status.UNGUARDED, f"asks {listed_names(asked)}, not `{row_of(entry.needs)}`"
    if opened is not None and status not in (Status.PROVED, Status.GUARDED):
        return Judged(route=route, status=Status.OPEN, covers=rows, why=opened)
    if status is Status.PROVED:
        rows += tuple(("code", row) for row in asked if row not in {row for _, row in rows})
    return Judged(route=route, status=status, covers=rows, why=why)


def _status(
    route: AppRoute, covers: Sequence[Cover], seen: Sequence[Answer], *, only_declared: bool
) -> tuple[Status, str]:
    if route.problem is not None:
        return Status.UNREACHED, route.problem
    # A middleware that refuses whatever it does not know asks nobody.
    refuses = any(cover.needs is None for cover in covers)
    wrong = [
        answer
        for answer in seen
        if not answer.proves and not (refuses and not answer.denials.asked and answer.status in (400, 403))
    ]
    if any(answer.proves for answer in seen):  # of the methods of one handler, it need not take all
        wrong = [answer for answer in wrong if answer.denials.asked or answer.status != 405]
    match seen, wrong, covers:
        case [_, *_], [answer, *_], _:
            return (Status.UNGUARDED if covers or answer.denials.asked else Status.UNGATED), str(answer)
        case [_, *_], _, _ if len(seen) < len(route.methods) and not route.covers:
            return Status.UNGATED, "other methods were not asked: `--probe all` asks by them"
        case [_, *_], _, _ if len(seen) < len(route.methods):
            return Status.GUARDED, ""
        case [_, *_], _, _:
            return Status.PROVED, "refused to everybody: no route of the middleware maps it" if refuses else ""
        case _, _, [_, *_] if only_declared:
            return Status.UNGUARDED, "its guard is declared and was not seen: `--probe` asks it"
        case _, _, [_, *_]:
            return Status.GUARDED, ""
        case _:
            return Status.UNGATED, "nothing guards it"


def row_of(needs: RequestTemplate | None) -> str:
    """The row of a request, `type/operation`."""
    return "" if needs is None else f"{needs.type_ or '*'}/{needs.action}"


def _unknown(needs: RequestTemplate | None, vocabulary: Vocabulary, span: Span, route: str) -> Iterator[Diagnostic]:
    """Report names in a request that the policy does not have, and names that the policy needs and the request lacks."""
    if needs is None or (needs.type_ is None and any(needs.action in rows for rows in vocabulary.operations.values())):
        return
    try:
        shape = vocabulary.check_operation(needs.type_ or "*", needs.action)
    except InvalidRequest as error:
        message, _, advice = str(error).partition("; ")
        yield UNKNOWN.at(span, f"`{route}`: {message}", advice or None)
        return
    missing = [name for name, types in shape.withs.items() if name not in needs.with_ and LEFT_OUT not in types]
    missing += sorted(shape.missing_flags((*needs.flags, *needs.flags_by)))
    if missing:
        yield UNKNOWN.at(
            span, f"`{route}`: `{row_of(needs)}` also needs {listed_names(missing)}", "no request can be decided"
        )


def _rows(vocabulary: Vocabulary | None, used: Iterable[str]) -> Iterator[str]:
    """The rows of the policy that are not used; rows whose type only a function knows are used on every type."""
    taken = set(used)
    for type_, operations in vocabulary.operations.items() if vocabulary is not None else ():
        yield from (f"{type_}/{name}" for name in operations if not {f"{type_}/{name}", f"*/{name}"} & taken)


def no_gateway(gateway: tuple[str, Span]) -> Diagnostic:
    """The finding about a gateway in front of an application, which cannot be seen."""
    message = f"nothing in an application shows that a gateway asks about `{gateway[0]}`"
    return BAD_DOCUMENT.at(gateway[1], message, "write `gateway` for a description in OpenAPI")
