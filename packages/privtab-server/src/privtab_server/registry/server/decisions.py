"""Count decision logs by revision, rule and answer. Subjects and resources are neither read nor stored.

Memory is bounded whatever sidecars send: names beyond the limits are counted together.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from privtab.base import RecentlyUsed
from privtab_server.registry.server.sidecar import valid_labels

MOST_REVISIONS = 100
"""Maximum revisions; the least recently used are dropped."""
MOST_RULES = 5000
"""Maximum number of rules of one revision."""
MOST_PAIRS = 50_000
"""Maximum rules over all revisions."""
MOST_OF_A_LOG = 10_000
"""Maximum distinct combinations of revisions, rule and answer in one log."""
MOST_SENDERS = 1000
"""Maximum distinct sidecars in one log; usually each sends its own."""
OTHER = "other"
RULES = frozenset({"allow", "check", "decision", "decisions", "explained", "visible"})
"""The rules that decide; others return something else."""
_RULE = re.compile(r"[\w./+:-]{1,200}")
_REVISION = re.compile(r"[\w.-]{1,64}")


class Counts:
    """The number of answers by revision, rule and answer."""

    def __init__(self, *, most: int = MOST_REVISIONS) -> None:
        self._counts: RecentlyUsed[str, dict[str, dict[str, int]]] = RecentlyUsed(most, weight=len, heaviest=MOST_PAIRS)

    def add(self, revision: str, rule: str, answer: str, number: int = 1) -> None:
        """Add to the count of an answer."""
        rules = self._counts.get(revision) or {}
        if rule not in rules and len(rules) >= MOST_RULES:
            rule = OTHER
        answers = rules.setdefault(rule, {})
        answers[answer] = answers.get(answer, 0) + number
        self._counts.put(revision, rules)

    def to_json(self) -> dict[str, dict[str, dict[str, int]]]:
        """Revision → rule → answer → count."""
        return {
            revision: {rule: {**answers} for rule, answers in rules.items()} for revision, rules in self._counts.items()
        }

    def total(self) -> dict[str, dict[str, int]]:
        """Revision → answer → count."""
        found: dict[str, Counter[str]] = {revision: Counter() for revision in self._counts}
        for revision, rules in self._counts.items():
            for answers in rules.values():
                found[revision].update(answers)
        return {revision: dict(totals) for revision, totals in found.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningCanary:
    """A canary in progress."""

    place: str
    """`channel/system`."""
    since: str
    """UTC, to the second."""
    revisions: frozenset[str]
    """The revisions that the sidecar runs, and the channel's."""


@dataclass(slots=True)
class CountedEvents:
    """The counts from the events of one sidecar."""

    labels: dict[str, str]
    counts: Counter[tuple[tuple[str, ...], str, str]] = field(default_factory=Counter)
    """(revisions, rule, answer) → count."""
    canary_counts: Counter[tuple[str, tuple[str, ...], str, str]] = field(default_factory=Counter)
    """(place, revisions, rule, answer) → count, since a canary began there."""


def count_decisions(events: Any, canaries: Collection[RunningCanary] = ()) -> dict[str, CountedEvents] | None:
    """The counts in a log by the OPAs' generated ids; None if it is not a list of objects. Has no side effects, so any thread may run it.

    `canaries`: canaries, for each of which decisions made after its begin are counted. Logs arrive seconds or minutes after
    their decisions.
    """
    if not (isinstance(events, list) and all(isinstance(event, dict) for event in events)):
        return None
    found: dict[str, CountedEvents] = {}
    pairs = 0
    for event in events:
        answered = list(answers(event))
        if not answered:
            continue
        labels = valid_labels(event.get("labels"))
        name = labels.get("id", "")
        if name not in found and len(found) >= MOST_SENDERS:
            name = ""
        counted = found.get(name)
        if counted is None:
            counted = found[name] = CountedEvents(labels if name else {})
        revision_ids = tuple(revisions(event)) or ("unknown",)
        for (rule, answer), number in Counter(answered).items():
            key = revision_ids, rule, answer
            if key not in counted.counts:
                key = key if pairs < MOST_OF_A_LOG else (("unknown",), OTHER, answer)
                pairs += 1
            counted.counts[key] += number
            for canary in canaries:
                if not canary.revisions.isdisjoint(revision_ids) and _after(event, canary.since):
                    counted.canary_counts[canary.place, *key] += number
    return found


def _after(event: Mapping[str, Any], since: str) -> bool:
    """Return whether an event happened in a later second than `since`, by the clock of its OPA."""
    timestamp = event.get("timestamp")
    return isinstance(timestamp, str) and timestamp.endswith("Z") and timestamp[: len(since)] > since


def revisions(event: Mapping[str, Any]) -> list[str]:
    """The revisions of the bundles behind an event's decision, policies and states alike."""
    bundles = event.get("bundles")
    if not isinstance(bundles, dict):
        return []
    found = (bundle.get("revision") for bundle in list(bundles.values())[:50] if isinstance(bundle, dict))
    return sorted({revision for revision in found if isinstance(revision, str) and _REVISION.fullmatch(revision)})


def answers(event: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The rule and the answer of each decision in an event: several for a batch, none for other events."""
    path = str(event.get("path", "")).strip("/")
    package, _, name = path.rpartition("/")
    if not package.startswith("privtab/") or name not in RULES:
        return
    system = package.removeprefix("privtab/")
    rule = _requested_rule(system, event.get("input"))
    if event.get("error") is not None:
        yield rule, "error"
        return
    if "result" not in event:
        yield rule, "undefined"
        return
    result = event["result"]
    if name == "visible":
        yield rule, "listing"
    elif isinstance(result, list):
        rules = _requested_rules(system, event.get("input"))
        for index, item in enumerate(result):
            yield _rule_in_result(item) or (rules[index] if index < len(rules) else rule), _answer(item)
    else:
        yield _rule_in_result(result) or rule, _answer(result)


def _answer(result: Any) -> str:
    if isinstance(result, dict):
        result = result.get("decision", result.get("allow"))
    if not isinstance(result, bool):
        return "error"
    return "allow" if result else "deny"


def _rule_in_result(result: Any) -> str:
    """The rule named by an explained decision."""
    context = result.get("context") if isinstance(result, dict) else None
    return _valid_rule(context.get("rule")) if isinstance(context, dict) else ""


def _requested_rule(system: str, request: Any) -> str:
    """`system/type/operation` of a request; the mask of the logs keeps both parts."""
    try:
        return _valid_rule(f"{system}/{request['resource']['type']}/{request['action']['name']}") or OTHER
    except (TypeError, KeyError):
        return OTHER


def _requested_rules(system: str, input_: Any) -> list[str]:
    requests = input_.get("requests") if isinstance(input_, dict) else None
    return [_requested_rule(system, request) for request in requests] if isinstance(requests, list) else []


def _valid_rule(rule: Any) -> str:
    return rule if isinstance(rule, str) and _RULE.fullmatch(rule) else ""
