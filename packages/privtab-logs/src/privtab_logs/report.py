"""Report of a replay, for people and tools: by row of the table, with who, through what, samples, and changes that were possible but not seen."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from privtab.base import Decision, Diagnostic, Severity, Span, count
from privtab_analysis.diff.markdown import as_code, as_text
from privtab_analysis.diff.nodes import Diff
from privtab_analysis.diff.summary import answers_text, combine_pairs, holding_texts, request_text
from privtab_analysis.html import page
from privtab_logs.deciding import Decider
from privtab_logs.moments import Moments, Unknown
from privtab_logs.replaying import KINDS, REVISIONS, Kind, Replay, request_row

EMPTY = "no decision was replayed, which `--accept empty-logs` accepts"
SAMPLES = 5
"""Questions of a group that are shown."""
EXPLAINED = 500
"""Questions of a kind whose decisions are explained, the most frequent ones."""
CODES: Mapping[Kind, tuple[str, str, str]] = {
    "lost": ("U101", "lost-in-use", "Requests that were allowed would be denied."),
    "gained": ("U102", "gained-in-use", "Requests that were denied would be allowed."),
    "unexplained": ("U103", "unexplained-answer", "Answers were logged that the policy and the state of their moment do not give."),
}  # fmt: skip
"""The code, the name and the meaning of the finding of each kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The differences of one kind in one row of the table."""

    kind: Kind
    rows: tuple[str, ...]
    """`entity/operation`, for each operation of the row."""
    where: str | None
    """The place of the row, `file:line`, or the line of the document that it comes from."""
    span: Span | None
    requests: int
    users: int
    entities: int
    first: datetime | None
    last: datetime | None
    by_user: tuple[tuple[str, int], ...]
    by_entity: tuple[tuple[str, int], ...]
    through: tuple[tuple[str, int], ...]
    """The principals through which these requests are allowed on the side that allows them: roles, groups, the users themselves."""
    samples: tuple[Mapping[str, Any], ...]

    def to_json(self) -> dict[str, Any]:
        """As JSON."""
        found: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__ if name != "span"}
        return found | {name: _shown(found[name]) for name in ("first", "last")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Possible:
    """A change of a row that is possible, and that no logged request shows."""

    row: str
    verdict: str
    shows: str
    where: str | None
    witness: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A replay, by rows."""

    replay: Replay
    groups: tuple[Group, ...]
    possible: tuple[Possible, ...] | None
    """None: there is no earlier policy to compare with."""

    @property
    def incomplete(self) -> list[str]:
        """Reasons why the report does not cover all that was decided."""
        found = self.replay.reading.gaps(self.replay.not_replayed)
        if self.replay.left_out:
            found.append(f"{len(self.replay.left_out):,} wrong rows of states were left out")
        return found

    def failing(self, words: Collection[str], *, allow_incomplete: bool, allow_empty: bool) -> list[str]:
        """Return the words of `--fail-on` that hold. Without any replayed decision all hold, and `EMPTY` always, unless that is allowed.

        Whatever is asked for, incomplete logs fail unless they are allowed: an answer that was not decided again may have changed.
        """
        holds = {CODES[kind][1].replace("-answer", ""): bool(self.replay.count(kind)) for kind in KINDS}
        empty = not self.replay.replayed and not allow_empty
        found = [word for word in words if word in holds and (holds[word] or empty)]
        found += ["incomplete"] if words and not allow_incomplete and self.incomplete else []
        return [*found, EMPTY] if empty else found

    def to_json(self) -> dict[str, Any]:
        """As JSON."""
        replay = self.replay
        return {
            **replay.account(),
            "dropped": dict(replay.reading.dropped),
            "first": _shown(_time(replay.first)),
            "last": _shown(_time(replay.last)),
            **{kind: replay.count(kind) for kind in KINDS},
            "groups": [group.to_json() for group in self.groups],
            "possible": self.possible,
        }


def report(replay: Replay, moments: Moments, compared: Diff | None) -> Report:
    """Group what a replay found. `compared`: the earlier policy and the new one."""
    groups = [group for kind in KINDS for group in _groups(kind, replay.of(kind), moments)]
    possible = None if compared is None else tuple(_possible(compared, groups))
    return Report(replay=replay, groups=tuple(groups), possible=possible)


def _groups(kind: Kind, questions: pa.Table, moments: Moments) -> Iterator[Group]:
    types = pc.list_element(pc.split_pattern(questions["resource"], ":", max_splits=1), 0)
    names = pc.binary_join_element_wise(types, questions["action"], "/")
    frequent = questions.slice(0, EXPLAINED).to_pylist()
    explained = [_explained(question, moments, now=kind == "gained") for question in frequent]
    for span, where, listed in _places(names, questions, moments):
        chosen = pc.is_in(names, pa.array(listed))
        part = questions.filter(chosen)
        positions = [at for at in pc.indices_nonzero(chosen).to_pylist() if at < EXPLAINED]
        through: Counter[str] = Counter()
        for question, decision in (explained[at] for at in positions):
            reasons = () if decision is None else decision.reasons
            principals = {str(reason["through"]) for reason in reasons if "through" in reason}
            through.update(dict.fromkeys(principals, question["requests"]))
        yield Group(
            kind=kind,
            rows=tuple(listed),
            where=where,
            span=span,
            requests=pc.sum(part["requests"]).as_py(),
            users=pc.count_distinct(part["user"]).as_py(),
            entities=pc.count_distinct(part["resource"]).as_py(),
            first=pc.min(part["first"]).as_py(),
            last=pc.max(part["last"]).as_py(),
            by_user=_most(part, "user"),
            by_entity=_most(part, "resource"),
            through=tuple(through.most_common(SAMPLES)),
            samples=tuple(_sample(explained[at], kind, moments) for at in positions[:SAMPLES]),
        )


def _places(
    names: pa.ChunkedArray, questions: pa.Table, moments: Moments
) -> Iterator[tuple[Span | None, str | None, list[str]]]:
    """Each row of the table, with its place and its operations, of which it may have several."""
    found: dict[str, tuple[Span | None, str | None, list[str]]] = {}
    for name in sorted(names.unique().to_pylist()):
        type_, _, operation = name.partition("/")
        revision = questions["policy_revision"][pc.index(names, name).as_py()].as_py()
        span, where = _place((type_, operation), moments, revision)
        found.setdefault(where or name, (span, where, []))[2].append(name)
    yield from found.values()


def _explained(question: dict[str, Any], moments: Moments, *, now: bool) -> tuple[dict[str, Any], Decision | None]:
    """A question, and its decision now or at its moment; None if that is not known."""
    policy, state = (question[name] for name in REVISIONS)
    try:
        decider: Decider | None = moments.now(policy, state) if now else moments.then(policy, state)
        return question, None if decider is None else decider.explain(request_row(question))
    except Unknown:
        return question, None


def _sample(explained: tuple[dict[str, Any], Decision | None], kind: Kind, moments: Moments) -> dict[str, Any]:
    question, decision = explained
    found = {"request": _text(question)} | {name: question[name] for name in _OF_SAMPLE}
    found["last"] = _shown(question["last"])
    other = None if kind == "unexplained" else _explained(question, moments, now=kind == "lost")[1]
    for side in (decision, other):
        if side is not None and side.allowed:
            found["because"] = [
                f"{reason['atom']} through {reason['through']}" for reason in side.reasons if "through" in reason
            ]
        elif side is not None:
            found["missing"] = [" and ".join(way) for way in side.missing]
            found["denied"] = side.why_denied(brief=True)
    return found


_OF_SAMPLE = ("requests", "recorded", "then", "now", "last", "decision_id", "position", *REVISIONS)


def why(sample: Mapping[str, Any]) -> str:
    """Return why a sample is allowed on one side and denied on the other."""
    return "; ".join([*sample.get("because", ()), *filter(None, [sample.get("denied")])])


def _text(question: Mapping[str, Any]) -> str:
    more = json.loads(question["more"] or "{}")
    asked = [str(question[name]) for name in ("user", "action", "resource")]
    return " ".join([*asked, *(f"{slot}={entity}" for slot, entity in more.get("with", ())), *more.get("flags", ())])


def _most(questions: pa.Table, name: str) -> tuple[tuple[str, int], ...]:
    counted = questions.group_by(name).aggregate([("requests", "sum")])
    counted = counted.sort_by([("requests_sum", "descending"), (name, "ascending")]).slice(0, SAMPLES)
    return tuple(zip(counted[name].to_pylist(), counted["requests_sum"].to_pylist(), strict=True))


def _place(pair: tuple[str, ...], moments: Moments, revision: str | None) -> tuple[Span | None, str | None]:
    """The place of a row in the new policy, or in the moment's policy if the new policy no longer has it."""
    policies = [moments.new, *([] if moments.policy is None else [moments.policy_at(revision)])]
    for program, _ in policies:
        rule = program.rules.get((pair[0], pair[-1]))
        if rule is not None:
            if rule.span.line:
                return rule.span, f"{rule.span.path}:{rule.span.line}"
            return None, rule.source_text
    return None, None


def _possible(compared: Diff, groups: Sequence[Group]) -> Iterator[Possible]:
    """The witnesses of changes in a direction that no logged request shows."""
    seen = {(row, group.kind) for group in groups for row in group.rows}
    for row in compared.changes:
        for witness in row.witnesses:
            kind = {"wider": "gained", "narrower": "lost"}.get(witness.shows)
            if kind is not None and (row.name, kind) not in seen:
                held = "; ".join(holding_texts(witness.state, witness.request)) or "nothing is held"
                cell = row.after or row.before
                yield Possible(
                    row=row.name,
                    verdict=str(row.verdict),
                    shows=witness.shows,
                    where=None if cell is None or not cell.span.line else f"{cell.span.path}:{cell.span.line}",
                    witness=f"{request_text(witness.request)}: {answers_text(witness)}, where {held}",
                )


def findings(found: Report, failing: Collection[str], path: str) -> Iterator[Diagnostic]:
    """One finding for each group, at its row, or at the beginning of the policy at `path`: an error if it fails the run, else a note."""
    for group in found.groups:
        code, name, _ = CODES[group.kind]
        fails = name.replace("-answer", "") in failing
        yield Diagnostic(
            code=code,
            name=name,
            severity=Severity.ERROR if fails else Severity.NOTE,
            message=headline(group),
            span=group.span or Span(path=path, line=1, column=1, end_line=1, end_column=1),
        )


def headline(group: Group) -> str:
    """`table/load: 41 requests of 7 users to 3 entities would be denied`."""
    what = {
        "lost": "would be denied",
        "gained": "would be allowed",
        "unexplained": "were answered otherwise than their moment explains",
    }[group.kind]
    name = ", ".join(combine_pairs([(t, o) for t, _, o in (row.partition("/") for row in group.rows)]))
    return f"{name}: {count(group.requests, 'request')} of {count(group.users, 'user')} to {count(group.entities, 'entity', 'entities')} {what}"


def summary(found: Report) -> list[str]:
    """Return what was read and replayed, one sentence a line."""
    replay, reading = found.replay, found.replay.reading
    window = f", {_shown(_time(replay.first))} to {_shown(_time(replay.last))}" if replay.first is not None else ""
    lines = [
        f"{reading.decisions:,} decisions in {count(reading.files, 'file')}; {replay.replayed:,} replayed{window}",
        f"{replay.count('lost'):,} lost, {replay.count('gained'):,} gained, {replay.count('unexplained'):,} unexplained",
    ]
    lines += [] if replay.replayed else ["not covered: no decision was replayed"]
    lines += [f"not covered: {why}" for why in found.incomplete]
    return [*lines, *reading.notes(replay.not_replayed)]


def markdown(found: Report) -> str:
    """The report as a comment on a review."""
    lines = ["## Replay of logged decisions", "", *(f"- {as_text(line)}" for line in summary(found)), ""]
    for group in found.groups:
        place = f" ({as_code(group.where)})" if group.where else ""
        lines += [f"### {as_text(headline(group))}{place}", ""]
        lines += ["| request | times | recorded | then | now | why |", "|---|---|---|---|---|---|"]
        for sample in group.samples:
            answers = " | ".join("allow" if sample[name] else "deny" for name in ("recorded", "then", "now"))
            cells = as_code(sample["request"]), f"{sample['requests']:,}", answers, as_text(why(sample))
            lines.append(f"| {' | '.join(cells)} |")
        lines += [""]
    if found.possible:
        lines += ["### Possible, not seen", "", "| row | verdict | witness |", "|---|---|---|"]
        lines += [f"| {as_code(p.row)} | {p.verdict} | {as_code(p.witness)} |" for p in found.possible]
        lines += [""]
    return "\n".join(lines).rstrip("\n") + "\n"


def html(found: Report, policy: str) -> str:
    """The report as a page. `policy`: the name of the new policy."""
    kinds = [(found.replay.count(kind), kind, bool(found.replay.count(kind))) for kind in KINDS]
    return page(
        "logs/replay",
        title="Replay of logged decisions",
        policy=policy,
        summary=summary(found),
        figures=[(found.replay.replayed, "decisions replayed", False), *kinds],
        groups=[(headline(group), group) for group in found.groups],
        possible=found.possible,
        why=why,
    )


def prometheus(found: Report) -> str:
    """The report as metrics, for a collector that reads files."""
    from prometheus_client import CollectorRegistry, Gauge, generate_latest

    registry, replay = CollectorRegistry(), found.replay

    def gauge(name: str, meaning: str, *labels: str) -> Gauge:
        return Gauge(f"privtab_replay_{name}", meaning, labels, registry=registry)

    decisions = gauge("decisions", "Logged decisions by what a replay found.", "result")
    meaning = "Logged decisions that a replay answers otherwise, by row of the table."
    changes = gauge("changed_decisions", meaning, "result", "rule")
    for kind in KINDS:
        decisions.labels(kind).set(replay.count(kind))
    decisions.labels("same").set(replay.replayed - sum(map(replay.count, KINDS)))
    decisions.labels("skipped").set(sum(replay.not_replayed.values()))
    for group in found.groups:
        changes.labels(group.kind, ", ".join(group.rows)).set(group.requests)
    incomplete = gauge("incomplete", "1 if the logs are damaged, or not all of their decisions were replayed.")
    incomplete.set(bool(found.incomplete or not replay.replayed))
    gauge("last_decision_seconds", "When the last replayed decision was made.").set((replay.last or 0) / 1e6)
    return generate_latest(registry).decode()


def _time(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else datetime.fromtimestamp(microseconds / 1e6, UTC)


def _shown(moment: datetime | None) -> str | None:
    return None if moment is None else f"{moment:%Y-%m-%dT%H:%M:%SZ}"
