"""OPA and Wasm, asked directly, allow no item of a batch and no listed item that the reference refuses or calls no request."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import requests as http
import worlds
from engine_agreement import World, put_state, serving
from malformed_requests import ODD, broken
from row_cases import Rows, cases
from wasm_engine import WasmEngine

from privtab.base.errors import InvalidRequest
from privtab.base.request import Request
from privtab.reference.evaluate import Reference
from privtab.state.nodes import State

Ask: TypeAlias = Callable[[str, Mapping[str, Any]], Any]
"""A rule and an input give its value; None: undefined."""
FLAT = """
privtab: 1
system: flat
version: "1"
entities: {store: , file: }
privileges: [READ]
semantics: {inheritance: none, deny: none}
tables: {store: {open: READ (store)}, file: {open: READ (file)}}
"""
"""A policy without a path of two names."""
CONTEXTS: tuple[Any, ...] = (None, [], ["force"], "force", 5, True, False, "", 0)


def answer(reference: Reference, body: Mapping[str, Any], user: Any, keys: Any) -> bool:
    """What one item must be answered: no, where the keys are not those of an entity of the type."""
    try:
        resource = {"type": body["resource"]["type"], "id": keys[-1].partition(":")[2] if keys else ""}
        request = Request.from_json(
            {
                "subject": {"properties": {}, **body.get("subject", {}), "type": "user", "id": user},
                "action": body["action"],
                "resource": resource,
                "context": body.get("context", {}),
            }
        )
        return reference.decide(request).allowed and reference.vocabulary.keys(request.resource) == keys
    except (InvalidRequest, TypeError, AttributeError, KeyError, IndexError):
        return False


def spoilt(item: list[Any], others: Sequence[list[Any]], rnd: random.Random) -> Any:
    """An item with one thing wrong with it: often a chain of keys that do not belong together."""
    copied = copy.deepcopy(item)
    user, keys = copied
    other = rnd.choice(others)[1]
    at = rnd.randrange(len(keys)) if keys else 0
    match rnd.randrange(14):
        case 0 | 1 | 2 | 3 if keys and len(other) == len(keys):
            keys[at] = other[at]
        case 4 if keys:
            del keys[at]
        case 5:
            keys.insert(at, rnd.choice([*keys, "", "x:y", 5, None]))
        case 6 if keys:
            keys[at] = rnd.choice(ODD)
        case 7 if keys:
            keys[at] += rnd.choice(["/extra", "/", " ", "%", "%41", "%%2F25", "//", ":", "\n", "\x85", "\u2028"])
        case 8:
            rnd.shuffle(keys)
        case 9 if keys:
            keys[at] = rnd.choice(["", "x"]) + keys[at].partition(":")[2]
        case 10:
            return rnd.choice([*ODD, [user], [user, keys, user], [keys, user], {"0": user, "1": keys}])
        case 11:
            return [rnd.choice(ODD), keys]
        case 12:
            return [user, rnd.choice([*ODD, {str(n): key for n, key in enumerate(keys)}, "//".join(keys), keys[-1:]])]
        case _ if keys:
            type_, _, path = keys[at].partition(":")
            keys[at] = f"{type_}:{path.rpartition('/')[2] or path}"
    return copied


def bodies(reference: Reference, rnd: random.Random, requests: Sequence[Request]) -> Iterator[dict[str, Any]]:
    """Batches of items, good and spoilt ones side by side, by operation and type."""
    plain = [request for request in requests if not (request.with_ or request.groups)]
    good = [[r.user, reference.vocabulary.keys(r.resource)] for r in plain]
    for request, item in zip(plain, good, strict=True):
        others = [o for r, o in zip(plain, good, strict=True) if r.resource.type == request.resource.type]
        items = [item, *(spoilt(item, others, rnd) for _ in range(25)), item]
        document = request.to_json()
        yield {"action": document["action"], "resource": {"type": request.resource.type}, "items": items} | {
            key: document[key] for key in ("context",) if key in document
        }


def listing(body: Mapping[str, Any], user: str) -> dict[str, Any]:
    """The same question as a listing: the items are the keys alone."""
    items = [item[1] if isinstance(item, list) and len(item) == 2 else item for item in body["items"]]
    return {**body, "subject": {"type": "user", "id": user}, "items": items}


def check(reference: Reference, ask: Ask, requests: Sequence[Request], rnd: random.Random) -> tuple[int, int]:
    """Ask for everything; gives how many spoilt items were asked for, and how many items were allowed."""
    number = allowed = 0
    for body in bodies(reference, rnd, requests):
        expected = [
            isinstance(item, list) and len(item) == 2 and answer(reference, body, *item) for item in body["items"]
        ]
        assert ask("decisions", body) == expected, body
        user = body["items"][0][0]
        listed = listing(body, user)
        shown = [at for at, keys in enumerate(listed["items"]) if answer(reference, body, user, keys)]
        assert ask("visible", listed) == shown, listed
        number += len(expected)
        allowed += sum(expected)
        for kind in CONTEXTS:
            refused(ask("decisions", {**body, "context": kind}))
            refused(ask("visible", {**listed, "context": kind}))
        for groups in ({"0": "hr"}, {"hr": True}, "hr", [""], ["hr", ""], [5], [None], True, 5, None):
            refused(ask("visible", {**listed, "subject": {**listed["subject"], "properties": {"groups": groups}}}))
            refused(ask("decisions", {**body, "subject": {"properties": {"groups": groups}}}))
        for items in (dict(enumerate(body["items"])), {"a": body["items"][0]}, body["items"][0], "items", True, 5):
            refused(ask("decisions", {**body, "items": items}))
            refused(ask("visible", {**listed, "items": dict(enumerate(listed["items"])) if items else items}))
    return number, allowed


def refused(found: Any) -> None:
    """Undefined, or nothing but no."""
    assert found is None or True not in found


def made_up(world: World, rnd: random.Random, most: int) -> tuple[State, Reference, list[Request]]:
    """Requests that are allowed, and some that are not, in a state that holds just enough for them."""
    rows = Rows()
    every = list(cases(world.program, rows))
    yes = [case.request for case in every if case.allowed]
    no = [case.request for case in every if not case.allowed]
    state = rows.state()
    chosen = rnd.sample(yes, k=min(len(yes), most)) + rnd.sample(no, k=min(len(no), most // 4))
    return state, Reference(world.program, state), chosen


@pytest.mark.slow
@pytest.mark.parametrize("sharded", [False, True], ids=["whole", "sharded"])
def test_opa_allows_no_item_that_is_none(opa_binary: Path, sharded: bool) -> None:
    rnd = random.Random(18)
    number = allowed = 0
    texts = [worlds.policy(seed, f"batch{seed}") for seed in range(2)] + [FLAT]
    with serving(texts, opa_binary, sharded=sharded) as (url, loaded), http.Session() as session:
        for world in loaded:
            state, reference, chosen = made_up(world, rnd, 12)
            put_state(session, url, world.program, state, sharded=sharded)

            def ask(
                rule: str, body: Mapping[str, Any], at: str = f"{url}/v1/data/privtab/{world.program.system}"
            ) -> Any:
                found = session.post(f"{at}/{rule}", json={"input": body}, timeout=30)
                found.raise_for_status()
                return found.json().get("result")

            more, yes = check(reference, ask, chosen, rnd)
            number, allowed = number + more, allowed + yes
            whole = [request.to_json() for request in chosen]
            for requests in ({str(n): r for n, r in enumerate(whole)}, {"b": whole[0]}, whole[0], "requests", True):
                assert ask("decisions", {"requests": requests}) is None
                assert ask("explained", {"requests": requests}) is None
    assert number > 300
    assert allowed > 15


@pytest.mark.slow
def test_wasm_allows_no_item_that_is_none(opa_binary: Path) -> None:
    rnd = random.Random(19)
    number = allowed = 0
    with serving([worlds.policy(seed, f"wasm{seed}") for seed in range(2)], opa_binary) as (_, loaded):
        for world in loaded:
            state, reference, chosen = made_up(world, rnd, 12)
            ask = WasmEngine(world.program, state, opa_binary).ask
            more, yes = check(reference, ask, chosen, rnd)
            number, allowed = number + more, allowed + yes
            requests = [broken(request.to_json(), rnd) for request in chosen for _ in range(10)]
            plain = ask("decisions", {"requests": requests})
            assert plain == [_whole(reference, request) for request in requests]
            assert [decision["decision"] for decision in ask("explained", {"requests": requests})] == plain
            assert [ask("allow", request) for request in requests] == plain
            for value in ({str(n): r for n, r in enumerate(requests)}, {"b": requests[0]}, requests[0], "x", True):
                assert ask("decisions", {"requests": value}) is None
                assert ask("explained", {"requests": value}) is None
    assert number > 300
    assert allowed > 15


def _whole(reference: Reference, request: Mapping[str, Any]) -> bool:
    try:
        return reference.decide(Request.from_json(request)).allowed
    except InvalidRequest:
        return False
