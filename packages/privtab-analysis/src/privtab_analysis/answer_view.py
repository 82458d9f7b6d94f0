"""One answer, made once: verdict, reasons, what is missing, what would allow it, and in which order; commands, pages and JSON lay it out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from privtab.base import WINDOW_COLUMNS, Request, count, dataclass
from privtab.ir import Program, Rule
from privtab.reference import Reference
from privtab.state import Places, RowLocation, State
from privtab_analysis.changes import Change, Give, RemoveDenial, change_kind, change_text
from privtab_analysis.entitlements.universe import asked_entities, notes
from privtab_analysis.explanation import Part, Proposal, RequestExplanation, explain
from privtab_analysis.provenance import Chain, ProvenanceStep

NOT_LISTED = "not all ways are listed: there are too many"
"""The sentence of an answer whose ways were not all computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of the reasons: a title, and atoms with the rows behind them, or lines of text such as sets of atoms that are missing.

    `way`: whether the section is one of several ways by which a request is allowed.
    """

    title: str
    parts: tuple[Part, ...] = ()
    lines: tuple[str, ...] = ()
    way: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeLine:
    """One change of a way: its sentence, the position of a row that it removes, and entities where it would do as well."""

    text: str
    place: str = ""
    also_at: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way from a denial to an allow. `gains`: how much it gives, in words; empty if that was not counted or nothing compares."""

    lines: tuple[ChangeLine, ...]
    gains: str
    proposal: Proposal

    @property
    def text(self) -> str:
        """The changes in one sentence."""
        return ", and ".join(line.text for line in self.lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerView:
    """The answer to one request. `remedy`: the title of the ways, with their order, or why there are none; empty for an allow.

    `reasons_cut` and `ways_cut`: a sentence if not all are listed, else empty. `otherwise`: the smallest sets that do not hold, of an allow.
    """

    explanation: RequestExplanation
    question: str
    reasons: tuple[Section, ...]
    otherwise: tuple[tuple[Part, ...], ...] = ()
    remedy: str = ""
    ways: tuple[Way, ...] = ()
    reasons_cut: str = ""
    ways_cut: str = ""
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """`ALLOW` or `DENY`."""
        return "ALLOW" if self.explanation.decision.allowed else "DENY"

    def to_json(self) -> dict[str, Any]:
        """As JSON, without the notes."""
        explanation, user = self.explanation, self.explanation.request.user
        document = {
            "request": explanation.request.to_json(),
            **explanation.decision.to_json(),
            "rule": rule_json(explanation.rule),
            "sets": [
                {"holds": all(part.holds for part in parts), "atoms": list(map(_part_json, parts))}
                for parts in explanation.sets
            ],
            "sets_complete": explanation.sets_complete,
            "turns": [[_change_json(change, user) for change in way] for way in explanation.turns],
            "remedy": self.remedy,
            "proposals": [
                {
                    "changes": [_change_json(change, user) for change in proposal.changes],
                    "gains": proposal.gains,
                    "exact": proposal.exact,
                    "direct_grant": proposal.direct,
                    "new_role": proposal.new_role,
                }
                for proposal in explanation.proposals
            ],
            "turns_complete": explanation.turns_complete,
            "demanding_flags": list(explanation.demanding),
        }
        if explanation.request.active_roles is not None:
            document |= {"inactive_roles": list(explanation.inactive), "activating": list(explanation.activating)}
        return document


def answered(
    reference: Reference, request: Request, state: State | None = None, places: Places = Places.NONE
) -> AnswerView:
    """Answer one request. Raises InvalidRequest if it uses names that the policy does not know. Arguments as of `explain`."""
    return answer_view(explain(reference, request, state, places), reference.program, state)


def answer_view(explanation: RequestExplanation, program: Program, state: State | None) -> AnswerView:
    """The answer that an explanation gives."""
    request, allowed = explanation.request, explanation.decision.allowed
    cut = "" if explanation.sets_complete else NOT_LISTED
    inactive = [Section(title="not active", lines=tuple(f"role:{role}" for role in explanation.inactive))]
    sections = [*(_allowed if allowed else _denied)(explanation), *(inactive if explanation.inactive else [])]
    remedy, ways = ("", ()) if allowed else _remedies(explanation)
    principals = [f"user:{request.user}", *(f"group:{name}" for name in request.groups)]
    return AnswerView(
        explanation=explanation,
        question=f"user:{request.user} {request.action} {request.resource}{besides(request)}",
        reasons=tuple(sections),
        otherwise=tuple(parts for parts in explanation.sets if not _hold(parts)) if allowed else (),
        remedy=remedy,
        ways=ways,
        reasons_cut=cut if allowed else "",
        ways_cut=NOT_LISTED if remedy and request.active_roles is None and not explanation.turns_complete else "",
        notes=() if state is None else notes(program, state, principals, asked_entities(program, request)),
    )


def besides(request: Request) -> str:
    """The parts of a request beside user, operation and entity, as text."""
    words = [f" {name}={object_}" for name, object_ in sorted(request.with_.items())]
    flags = [f" +{flag}" for flag in sorted(request.flags)]
    active = [] if request.active_roles is None else [f" as {', '.join(request.active_roles) or 'no role'}"]
    return "".join([*words, *flags, *active])


def _hold(parts: Iterable[Part]) -> bool:
    return all(part.holds for part in parts)


def _allowed(explanation: RequestExplanation) -> Iterator[Section]:
    for number, parts in enumerate(filter(_hold, explanation.sets)):
        title = f"{'also' if number else 'allowed'} by" if parts else "allowed: anyone may"
        yield Section(title=title, parts=parts, way=True)
    if explanation.decision.effects:
        yield Section(title="on success", lines=tuple(map(str, explanation.decision.effects)))


def _denied(explanation: RequestExplanation) -> Iterator[Section]:
    error = explanation.decision.context.get("error")
    if error is not None:
        yield Section(title=error["message"])
    missing = tuple(map(_missing, explanation.decision.missing))
    parts = tuple(dict.fromkeys(part for parts in explanation.sets for part in parts))
    sections = (
        Section(title="blocked by a denial", parts=tuple(part for part in parts if part.denied)),
        Section(title="missing" + (f": any one of these {len(missing)}" if missing[1:] else ""), lines=missing),
        Section(title="held already", parts=tuple(part for part in parts if part.holds)),
        Section(title="missing, whatever is granted", parts=tuple(part for part in parts if part.fixed)),
    )
    yield from (section for section in sections if section.parts or section.lines)
    if explanation.demanding:
        yield Section(title=f"allowed without {' and '.join(f'`{flag}`' for flag in explanation.demanding)}")


def _missing(atoms: Iterable[str]) -> str:
    """One of the sets that a denial says are missing, in words; `atoms` as in `Decision.missing`."""
    return " and ".join(
        f"no denial of {atom.removeprefix('deny ')}" if atom.startswith("deny ") else atom for atom in atoms
    )


def _remedies(explanation: RequestExplanation) -> tuple[str, tuple[Way, ...]]:
    """The title of the ways to an allow, and the ways."""
    found = explanation.proposals
    if explanation.decision.context.get("error") is not None:
        return "", ()
    if explanation.activating:
        roles = " and ".join(f"role:{role}" for role in explanation.activating)
        return f"what would allow it: with {roles} active", ()
    if found:
        several = f": any one of these {len(found)}, {_order(found)}" if found[1:] else ""
        return f"what would allow it{several}", tuple(_way(explanation, proposal) for proposal in found)
    if explanation.request.active_roles is not None:
        return "no role of the user that is not active would allow it", ()
    if explanation.turns_complete:
        return "no grant, ownership, membership or role on these objects would allow it", ()
    return "nothing was found that would allow it", ()


def _order(proposals: Sequence[Proposal]) -> str:
    """The order in which proposals are listed, in words."""
    exact = sum(proposal.exact for proposal in proposals)
    if exact == len(proposals):
        return "least privilege first"
    measured = sum(proposal.gains is not None for proposal in proposals)
    if not exact and measured:
        return "fewest rows first: the state is too large to count permissions"
    return f"least privilege first among {exact} that were counted" if exact else "not in order of privilege"


def _way(explanation: RequestExplanation, proposal: Proposal) -> Way:
    user, lines = explanation.request.user, []
    for change in proposal.changes:
        text, above = change_text(change, user), tuple[str, ...]()
        if isinstance(change, Give):
            above = tuple(map(str, change.also_at))
            if proposal.new_role and change.privilege is not None:
                text = text.removesuffix(f"user:{user}") + "a new role"
        lines.append(ChangeLine(text=text, place=_place(explanation, change), also_at=above))
    if proposal.new_role:
        lines.append(ChangeLine(text=f"assign that role to user:{user}"))
    counted = proposal.exact and len(explanation.proposals) > 1
    gains = f"which gives {count(proposal.gains or 0, 'permission')}" if counted else ""
    return Way(lines=tuple(lines), gains=gains, proposal=proposal)


def _place(explanation: RequestExplanation, change: Change) -> str:
    """The position of a denial that a change removes; empty for other changes."""
    if isinstance(change, RemoveDenial):
        row = change.row
        for chain in (chain for parts in explanation.sets for part in parts for chain in part.denied_by):
            if chain[0].text == f"{row.privilege} denied to {row.grantee} at {row.entity}":
                return RowLocation.text_of(chain[0].place)
    return ""


def chain_rows(chain: Chain) -> list[tuple[str, str]]:
    """The rows of a chain with their positions."""
    return [(step.text, RowLocation.text_of(step.place)) for step in chain]


def rule_json(rule: Rule) -> dict[str, Any]:
    """The id and position of a rule as JSON."""
    return {"id": rule.id, "path": rule.span.path, "line": rule.span.line}


def _step_json(step: ProvenanceStep) -> dict[str, Any]:
    """A link of a chain as JSON; `from` and `until` only if its row has them."""
    place = step.place
    where = None
    if place is not None:
        where = {"path": place.path, "table": place.table, "row": place.row, "line": place.line}
    edges = zip(WINDOW_COLUMNS, step.window.cells(), strict=True)
    window = {name: edge for name, edge in edges if edge is not None}
    return {"kind": step.kind, "text": step.text, "place": where, **window}


def _part_json(part: Part) -> dict[str, Any]:
    return {
        "atom": part.atom,
        "holds": part.holds,
        "on": part.on,
        "through": part.through,
        "because": [list(map(_step_json, chain)) for chain in part.because],
        "denied": list(part.denied),
        "denied_by": [list(map(_step_json, chain)) for chain in part.denied_by],
    }


def _change_json(change: Change, user: str) -> dict[str, Any]:
    plain: dict[str, Any]
    if isinstance(change, Give):
        plain = {"privilege": change.privilege, "entity": change.entity and str(change.entity)}
        plain = {key: value for key, value in plain.items() if value is not None}
        if change.table == "grants":
            plain |= {"also_at": list(map(str, change.also_at))} | ({} if change.to == "user" else {"to": change.to})
        elif change.table == "owners":
            plain["kind"] = change.to
    else:
        plain = asdict(change.row if isinstance(change, RemoveDenial) else change)
    for name, value in plain.items():
        if isinstance(value, dict):
            plain[name] = f"{value['type']}:{value['id']}"
    return {"change": change_kind(change), "text": change_text(change, user), **plain}
