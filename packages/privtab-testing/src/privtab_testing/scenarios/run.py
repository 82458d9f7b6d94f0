"""Runs the cases: by the reference, by a real OPA whose state is replaced for each world, or by both, which must then agree."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from privtab.base import Decision, PrivtabError, Request, dataclass
from privtab.ir import Effect, Program
from privtab.reference import EvaluationContext, Reference
from privtab.state import State
from privtab_testing.scenarios import Because, Case, CasePlan

if TYPE_CHECKING:
    from privtab.client import Asker, Sender


TIMEOUT = (1.0, 60.0)
"""Connect and read timeouts in seconds; a batch of explained decisions, or a large state, takes a while."""

_LARGEST = 1 << 20
"""Bytes of OPA's answer to a state."""


class Engine(Protocol):
    """Decides requests in one state after another."""

    name: str
    knows_effects: bool
    """True if decisions without explanation include effects."""

    def decide(self, state: State, requests: Sequence[Request], *, explain: Sequence[bool]) -> list[Decision]:
        """Decide requests in one state; requests without `explain` get a brief decision."""


class ReferenceEngine:
    """The reference engine."""

    name = "reference"
    knows_effects = True

    def __init__(self, program: Program, *, keeps: bool = False) -> None:
        """`keeps`: whether the contexts of decided requests are kept, since they are asked for later."""
        self.program = program
        self._keeps = keeps
        self.allowed: dict[int, bool] = {}
        """Decisions that are known already, by the identity of their context."""
        self._references: dict[int, tuple[State, Reference]] = {}
        self._contexts: dict[tuple[int, int], tuple[Request, EvaluationContext]] = {}

    def decide(self, state: State, requests: Sequence[Request], *, explain: Sequence[bool]) -> list[Decision]:
        """Decide requests in one state."""
        reference = self.reference(state)
        return [
            reference.decide(request) if in_full else self._decide_briefly(state, request)
            for request, in_full in zip(requests, explain, strict=True)
        ]

    def reference(self, state: State) -> Reference:
        """The reference for a state, built once."""
        if id(state) not in self._references:
            self._references[id(state)] = state, Reference(self.program, state)
        return self._references[id(state)][1]

    def context(self, state: State, request: Request) -> EvaluationContext:
        """The context of a request in a state."""
        key = id(state), id(request)
        if key in self._contexts:
            return self._contexts[key][1]
        found = EvaluationContext(self.reference(state), request)
        if self._keeps:
            self._contexts[key] = request, found
        return found

    def _decide_briefly(self, state: State, request: Request) -> Decision:
        context = self.context(state, request)
        rule = self.program.rules[request.resource.type, request.action]
        allowed = self.allowed.get(id(context))
        if allowed is None:
            allowed = not context.unheld and context.holds(context.condition(rule))
        effects = [effect_text(context, effect) for effect in rule.effects] if allowed else []
        return Decision(allowed=allowed, context={"effects": effects})


def effect_text(context: EvaluationContext, effect: Effect) -> str:
    """The text of an effect, as in decisions: `grant ALL (namespace:i/n)`."""
    path = context.path(effect.target)
    return f"{effect.text} ({path[-1] if path else effect.target.type})"


class OpaEngine:
    """A running OPA with the policy's bundle, whose state is replaced for each world."""

    name = "opa"
    knows_effects = False

    def __init__(self, program: Program, url: str, client: Asker, sender: Sender) -> None:
        self.program = program
        self._sender = sender
        self._url = f"{url}/v1/data/privtab_state/{program.system}"
        self._client = client
        self._current_state: State | None = None

    def decide(self, state: State, requests: Sequence[Request], *, explain: Sequence[bool]) -> list[Decision]:
        """Decide requests in one state."""
        if self._current_state is not state:
            self._put_state(state)
            self._current_state = state
        asked = [*zip(requests, explain, strict=True)]
        explained = iter(self._client.decide_many([request for request, in_full in asked if in_full]))
        brief = iter(self._client.check_many([request for request, in_full in asked if not in_full]))
        return [next(explained) if in_full else Decision(allowed=next(brief)) for in_full in explain]

    def _put_state(self, state: State) -> None:
        from privtab.client import SendError
        from privtab.state import index_document

        try:
            answer = self._sender.send("PUT", self._url, index_document(self.program, state))
        except SendError as error:
            raise PrivtabError(f"OPA took no state: {error.why}") from error
        if answer.status >= 300:
            raise PrivtabError(f"OPA refused a state: {answer.status} {answer.body[:200].decode(errors='replace')}")


@contextmanager
def opa(program: Program) -> Iterator[OpaEngine]:
    """Start an OPA for the duration of the block."""
    from privtab.client import Sender, connect
    from privtab.engines import OpaServer
    from privtab.pipeline import policy_artifacts

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="privtab-")))
        bundle = folder / "policy.tar.gz"
        bundle.write_bytes(policy_artifacts(program).bundle())
        server = stack.enter_context(OpaServer([bundle]))
        client = stack.enter_context(connect(server.url, system=program.system, timeout=TIMEOUT))
        sender = stack.enter_context(Sender(timeout=TIMEOUT, seconds=sum(TIMEOUT), largest=_LARGEST))
        yield OpaEngine(program, server.url, client, sender)


Fault: TypeAlias = Literal["decision", "effects", "missing", "reason", "rule", "report", "engines"]
OnProgress: TypeAlias = Callable[[int], None]
"""Called with the number of cases just decided."""
BATCH = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A case that was not answered as expected: the difference, and the answer."""

    case: Case
    fault: Fault
    expected: str
    got: str
    decision: Decision
    engine: str


def failures(
    plan: CasePlan, cases: Iterable[Case], engines: Sequence[Engine], on_progress: OnProgress = lambda _: None
) -> Iterator[Failure]:
    """The cases that any engine answers wrongly, in order; with two engines, also the cases on which they differ."""
    seen: set[tuple[str, str, bool]] = set()
    for world, batch in batches(cases):
        requests = [case.request for case in batch]
        # With several engines, compare two explanations for each rule; the other cases compare decisions only.
        first_of_rule = [len(engines) > 1 and _is_first(case, seen) for case in batch]
        answers = [
            engine.decide(
                plan.worlds[world],
                requests,
                explain=[
                    is_first or _explained(case, engine) for is_first, case in zip(first_of_rule, batch, strict=True)
                ],
            )
            for engine in engines
        ]
        on_progress(len(batch))
        for number, case in enumerate(batch):
            decisions = [answer[number] for answer in answers]
            report = plan.program.rules[case.request.resource.type, case.request.action].report
            if next(_faults(case, engines[0].name, decisions[0], report), None) is not None:
                if "rule" not in decisions[0].context:
                    [decisions[0]] = engines[0].decide(plan.worlds[world], [case.request], explain=[True])
                yield from islice(_faults(case, engines[0].name, decisions[0], report), 1)
            for engine, decision in zip(engines[1:], decisions[1:], strict=True):
                if not _agree(decisions[0], decision):
                    yield _disagreement(plan, case, (engines[0], engine))


def _explained(case: Case, engine: Engine) -> bool:
    """Return whether a case needs more than a brief decision."""
    return case.expected.explained or (case.expected.effects is not None and not engine.knows_effects)


def _is_first(case: Case, seen: set[tuple[str, str, bool]]) -> bool:
    """Return whether a case is the first of its rule with its answer."""
    key = case.request.resource.type, case.request.action, case.expected.allowed
    is_new = key not in seen
    seen.add(key)
    return is_new


def _agree(first: Decision, second: Decision) -> bool:
    """Return whether two decisions agree, as far as both were explained."""
    if "rule" in first.context and "rule" in second.context:
        return _answer(first) == _answer(second)
    return first.allowed is second.allowed


def _disagreement(plan: CasePlan, case: Case, engines: Sequence[Engine]) -> Failure:
    """The failure of two engines that disagree."""
    first, second = (engine.decide(plan.worlds[case.world], [case.request], explain=[True])[0] for engine in engines)
    return Failure(
        case=case,
        fault="engines",
        expected=f"{engines[0].name}: {_summary(first)}",
        got=f"{engines[1].name}: {_summary(second)}",
        decision=second,
        engine=engines[1].name,
    )


def batches(cases: Iterable[Case]) -> Iterator[tuple[int, list[Case]]]:
    """Runs of cases in the same state, of limited size."""
    batch: list[Case] = []
    for case in cases:
        if batch and (case.world != batch[0].world or len(batch) == BATCH):
            yield batch[0].world, batch
            batch = []
        batch.append(case)
    if batch:
        yield batch[0].world, batch


def _answer(decision: Decision) -> tuple[object, ...]:
    """The parts of a decision on which two engines must agree."""
    missing = sorted(sorted(atoms) for atoms in decision.missing)
    reasons = [sorted(reason.items()) for reason in decision.context.get("reasons", ())]
    return decision.allowed, sorted(decision.effects), missing, reasons, decision.rule


def _faults(case: Case, engine: str, decision: Decision, report: str | None) -> Iterator[Failure]:
    """The differences from the expected answer, worst first; `report`: the report of the row."""
    expected = case.expected

    def fault(kind: Fault, expected_text: str, actual: str) -> Failure:
        return Failure(case=case, fault=kind, expected=expected_text, got=actual, decision=decision, engine=engine)

    if decision.allowed is not expected.allowed:
        yield fault("decision", _word(expected.allowed), _word(decision.allowed))
        return
    if expected.effects is not None and sorted(expected.effects) != sorted(decision.effects):
        yield fault("effects", _list(expected.effects), _list(decision.effects))
    if expected.missing is not None:
        missing = frozenset(frozenset(atoms) for atoms in decision.missing)
        if missing != expected.missing:
            yield fault("missing", _sets(expected.missing), _sets(missing))
    if expected.reason is not None and not _reason_holds(expected.reason, decision):
        yield fault("reason", _list(map(str, expected.reason)), _list(map(str, reasons(decision))))
    if (
        expected.rule is not None
        and decision.rule is not None
        and expected.rule not in {decision.rule, decision.rule.partition("/")[2]}
    ):
        yield fault("rule", expected.rule, decision.rule)
    if expected.report is not None and expected.report != report:
        yield fault("report", expected.report, report or "nothing")


def reasons(decision: Decision) -> list[Because]:
    """The reasons of an allow."""
    return [
        Because(atom=reason["atom"], through=reason["through"], on=reason.get("on"))
        for reason in decision.context.get("reasons", ())
    ]


def _reason_holds(expected: Sequence[Because], decision: Decision) -> bool:
    actual = {reason.atom: reason for reason in reasons(decision)}
    return actual.keys() == {because.atom for because in expected} and all(
        because.through in {None, actual[because.atom].through} and because.on in {None, actual[because.atom].on}
        for because in expected
    )


def _word(allowed: bool) -> str:  # noqa: FBT001  the value itself is what is formatted
    return "allow" if allowed else "deny"


def _list(texts: Iterable[str]) -> str:
    return "; ".join(sorted(texts)) or "none"


def _sets(sets: Iterable[Iterable[str]]) -> str:
    return " or ".join(sorted(" and ".join(sorted(atoms)) for atoms in sets)) or "nothing"


def _summary(decision: Decision) -> str:
    if decision.allowed:
        return f"allow, {_list(decision.effects)}, by {_list(map(str, reasons(decision)))}"
    return f"deny, missing {_sets(decision.missing)}"


def matching(cases: Iterable[Case], pattern: str) -> Iterator[Case]:
    """The cases that match a filter: a part of one of a case's words, or a pattern for a whole word."""
    text = pattern.casefold()
    glob = text if any(character in text for character in "*?[") else f"*{text}*"
    for case in cases:
        if any(fnmatchcase(word.casefold(), glob) for word in case.words):
            yield case
