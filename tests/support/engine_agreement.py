"""Compare the decisions of the reference and of a real OPA on random worlds."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import requests as http
import worlds

from privtab import pipeline
from privtab.base.errors import InvalidRequest
from privtab.base.names import decode_name
from privtab.base.request import Decision, Request
from privtab.base.shard_names import shard_name
from privtab.base.sql_text import FILTER_KINDS, AppliedFilter, FilterWord, denial, identifier, literal
from privtab.base.vocabulary import Vocabulary
from privtab.bundle import PolicyArtifacts
from privtab.engines.index import Index
from privtab.engines.opa.server import OpaServer
from privtab.engines.python import PythonEngine
from privtab.ir.nodes import Program
from privtab.ir.serialise import vocabulary
from privtab.pipeline import policy_artifacts
from privtab.reference.evaluate import EvaluationContext, Reference
from privtab.state import shards
from privtab.state.index import index_document
from privtab.state.nodes import State


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A policy that is loaded by OPA."""

    text: str
    program: Program
    artifacts: PolicyArtifacts


@contextmanager
def serving(texts: Sequence[str], binary: Path, *, sharded: bool = False) -> Iterator[tuple[str, list[World]]]:
    """Compile policies with distinct system names and serve them from one OPA; yields its URL and the worlds."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        loaded = []
        bundles = []
        for number, text in enumerate(texts):
            path = folder / f"{number}.yaml"
            path.write_text(text, encoding="utf-8")
            program = pipeline.load_program(path)
            artifacts = policy_artifacts(program, sharded=sharded)
            bundle = folder / f"bundle-{number}.tar.gz"
            bundle.write_bytes(artifacts.bundle())
            bundles.append(bundle)
            loaded.append(World(text=text, program=program, artifacts=artifacts))
        # Many generated bundles at once take OPA long to compile on a busy machine.
        server = stack.enter_context(OpaServer(bundles, binary=binary, timeout=300))
        yield server.url, loaded


def put_state(session: http.Session, url: str, program: Program, state: State, *, sharded: bool = False) -> None:
    """Load a state into OPA."""
    document = sharded_document(program, state) if sharded else index_document(program, state)
    session.put(f"{url}/v1/data/privtab_state/{program.system}", json=document, timeout=60).raise_for_status()


def sharded_document(program: Program, state: State) -> dict[str, Any]:
    """The data of an OPA that has loaded all bundles of a sharded state."""
    documents = shards.shards(program, state)
    people = documents.pop(shards.PartText.PEOPLE)
    return people | {"at": {shard_name(key): document for key, document in documents.items()}}


def ask(session: http.Session, url: str, system: str, rule: str, body: dict[str, Any], at: int | None = None) -> Any:
    """The value of a rule of the system's package, now or at another moment."""
    if at is not None:
        query = f"answer := data.privtab.{system}.{rule} with time.now_ns as {at}"
        answer = session.post(f"{url}/v1/query", json={"query": query, "input": body}, timeout=30)
        answer.raise_for_status()
        return answer.json()["result"][0]["answer"]
    answer = session.post(f"{url}/v1/data/privtab/{system}/{rule}", json={"input": body}, timeout=180)
    answer.raise_for_status()
    return answer.json()["result"]


def differences(session: http.Session, url: str, world: World, state: State, requests: Sequence[Request]) -> list[str]:
    """Each request on which OPA and the reference differ in any part of the decision, as text for reproducing it."""
    put_state(session, url, world.program, state, sharded=world.artifacts.program.get("state") == "sharded")
    return differences_at(session, url, world, state, requests, None)


def differences_at(
    session: http.Session, url: str, world: World, state: State, requests: Sequence[Request], at: int | None
) -> list[str]:
    """As `differences`, at a moment, with the state that OPA has."""
    system = world.program.system
    state = state if at is None else state.at(at)
    reference = Reference(world.program, state, world.artifacts.revision)
    sent = [request.to_json() for request in requests]
    explained = ask(session, url, system, "explained", {"requests": sent}, at)
    plain = ask(session, url, system, "decisions", {"requests": sent}, at)
    by_items = _by_items(session, url, reference.vocabulary, requests, at)
    found = []
    for number, request in enumerate(requests):
        expected = reference.decide(request).to_json()
        answers = {
            "explained": Decision.from_engine(explained[number], request).to_json(),
            "decisions": plain[number],
            "items": by_items[number],
        }
        expected_answers = {"explained": expected, "decisions": expected["decision"], "items": expected["decision"]}
        if answers["items"] is None:
            del answers["items"], expected_answers["items"]
        if answers != expected_answers:
            found.append(
                f"{json.dumps(request.to_json())}\nopa: {json.dumps(answers)}\nreference: {json.dumps(expected_answers)}\n"
                f"{world.text}\n{state}"
            )
    return found + differing_filters(session, url, world, state, requests, at)


def differing_filters(
    session: http.Session, url: str, world: World, state: State, requests: Sequence[Request], at: int | None = None
) -> list[str]:
    """Each question for a row filter or a column mask on which OPA, the engine in process and the reference differ."""
    lists = world.program.filter_lists
    asked = []
    for request in requests:
        kind, dot, _ = request.action.partition(".")
        asked += [replace(request, action=kind)] if dot and (request.resource.type, kind) in lists else []
    if not asked:
        return []
    sent = {"requests": [request.to_json() for request in asked]}
    by_opa = ask(session, url, world.program.system, "filters/applied_many".replace("/", "." if at else "/"), sent, at)
    reference = Reference(world.program, state)
    engine = PythonEngine(world.artifacts.program, Index(index_document(world.program, state)))
    found = []
    for request, answer in zip(asked, by_opa, strict=True):
        expected = applied(reference, request)
        as_opa = {"denied": True, "sql": expected.sql} if expected.denied else asdict(expected)
        as_opa = {key: value for key, value in as_opa.items() if key != "denied" or value}
        if answer != as_opa or engine.applied(request) != expected:
            found.append(
                f"{json.dumps(request.to_json())}\nopa: {answer}\nreference: {expected}\n{world.text}\n{state}"
            )
    return found


def applied(reference: Reference, request: Request) -> AppliedFilter:
    """The row filter or column mask that applies, by the reference."""
    program = reference.program
    kind = next(kind for kind in FILTER_KINDS if kind == request.action)
    listed = {one.name: one for one in program.filter_lists[request.resource.type, kind]}
    asked = ((name, replace(request, action=one.operation)) for name, one in listed.items())
    name = next((name for name, question in asked if reference.decide(question).allowed), None)
    if name is None:
        return denial(kind)
    context = EvaluationContext(reference, replace(request, action=listed[name].operation))
    pieces: list[str | None] = []
    for part in listed[name].parts:
        if isinstance(part, str):
            pieces.append(part)
        elif part == FilterWord("column"):
            pieces.append(identifier(decode_name(request.resource.names[-1]), program.dialect))
        else:
            of_caller: object = request.user if part == FilterWord("user") else sorted(context.groups)
            value = of_caller if isinstance(part, FilterWord) else context.value(part)
            pieces.append(literal(sorted(value) if isinstance(value, frozenset) else value, program.dialect))
    return denial(kind) if None in pieces else AppliedFilter(name, "".join(map(str, pieces)))


def _by_items(
    session: http.Session, url: str, names: Vocabulary, requests: Sequence[Request], at: int | None
) -> list[bool | None]:
    """Answers through the faster form with items, by position; None for requests that it cannot express."""
    groups: dict[tuple[str, str], list[int]] = {}
    for number, request in enumerate(requests):
        if request.plain:
            groups.setdefault((request.action, request.resource.type), []).append(number)
    answers: list[bool | None] = [None] * len(requests)
    for (action, type_), numbers in groups.items():
        if names.lies_in_state(type_):
            continue
        items = [[requests[n].user, names.item_keys(requests[n].resource)] for n in numbers]
        body = {"action": {"name": action}, "resource": {"type": type_}, "items": items}
        item_answers = ask(session, url, names.system, "decisions", body, at)
        for n, answer in zip(numbers, item_answers, strict=True):
            answers[n] = answer
    return answers


def allowed_with_unusable_names(
    session: http.Session, url: str, world: World, requests: Sequence[Request], seed: int
) -> list[str]:
    """Each request with an unusable name that OPA allows in the state that it has, or that a client would send."""
    spoilt = worlds.with_unusable_names(world.program, requests, seed)
    names = vocabulary(world.program)
    sent = [request.to_json() for request in spoilt]
    explained = ask(session, url, world.program.system, "explained", {"requests": sent})
    answers = [
        ask(session, url, world.program.system, "decisions", {"requests": sent}),
        [answer["decision"] for answer in explained],
        _by_items(session, url, names, spoilt, None),
    ]
    return [
        json.dumps(request)
        for number, request in enumerate(sent)
        if any(answer[number] for answer in answers)
        or explained[number]["context"]["missing"]
        or valid(spoilt[number], names)
    ]


def valid(request: Request, names: Vocabulary) -> bool:
    """Whether a client would ask for a decision on a request."""
    try:
        names.check(request)
    except InvalidRequest:
        return False
    return True


def compare(
    seed: int, binary: Path, *, policies: int, states: int, per_rule: int, sharded: bool = False, nested: bool = False
) -> tuple[int, int, list[str]]:
    """Compare on random policies, states and requests; returns the numbers of requests and of allows, and the differences."""
    features = worlds.SHARDED if sharded else worlds.FEATURES
    of_seed = [features if n % 2 else () for n in range(policies)]
    if nested:
        of_seed = [("nested", *(features if n % 2 else ())) for n in range(policies)]
    texts = [worlds.policy(seed * 1000 + n, f"world{n}", of_seed[n]) for n in range(policies)]
    total = allowed = 0
    found: list[str] = []
    with serving(texts, binary, sharded=sharded) as (url, loaded), http.Session() as session:
        for number, world in enumerate(loaded):
            for turn in range(states):
                of_state = (seed * 1000 + number) * 100 + turn
                state = worlds.state(world.program, of_state)
                requests = worlds.requests(world.program, of_state, per_rule)
                found += differences(session, url, world, state, requests)
                found += allowed_with_unusable_names(session, url, world, requests, of_state)
                reference = Reference(world.program, state)
                total += len(requests)
                allowed += sum(reference.decide(request).allowed for request in requests)
    return total, allowed, found
