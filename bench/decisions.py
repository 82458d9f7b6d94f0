"""Decisions a second: the compiled policy compared with Rego that an expert would write by hand for one operation."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import requests
from measure import Caller, Contestant, Report, Spread, Table, Target, race
from prepared import Prepared, entity, serve
from workload import ancestors

from privtab import Client, Entity, Request

BATCH = 1_000
SINGLES = 2_000
"""Number of requests that are sent one by one; fewer, because they take longer."""

OURS, HAND = "ours, select, items", "by hand, select, items"
LOAD, MIXED = "ours, load, items", "ours, select, mixed requests"
CHECK_MANY = "privtab.Client.check_many"
OURS_REQUESTS, HAND_REQUESTS = "ours, one per call, `requests`", "by hand, one per call, `requests`"
OURS_BARE, HAND_BARE = "ours, one per call, http.client", "by hand, one per call, http.client"
CHECK = "privtab.Client.check, one per call"


def report(sizes: Sequence[str], repetitions: int) -> Report:
    """Every contestant at every size, all in one race."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="privtab-bench-")))
        many: list[Contestant] = []
        single: list[Contestant] = []
        for size in sizes:
            prepared = Prepared(size=size, folder=folder)
            ours = stack.enter_context(serve(prepared.ours())).url
            hand = stack.enter_context(serve(prepared.by_hand())).url
            client = stack.enter_context(Client(ours))
            many += _batches(prepared, ours, hand, client)
            single += _singles(prepared, ours, hand, client)
        raced = race(many, repetitions) | race(single, repetitions)
    rates = {size: {name: raced[name, size] for name, of in raced if of == size} for size in sizes}
    shown = Table(
        title="Decisions a second: median of the repetitions (min..max)",
        columns=("contestant", *sizes),
        rows=tuple((name, *(rates[size][name].text() for size in sizes)) for name in rates[sizes[0]]),
    )
    return Report(part="decisions", tables=(shown,), targets=tuple(_targets(rates)))


def _targets(rates: dict[str, dict[str, Spread]]) -> list[Target]:
    targets = [
        Target(
            what=f"{size}: ours / by hand, the same question in batches of {BATCH:,}",
            spread=found[OURS].over(found[HAND]),
            wanted=0.9,
            sense="at least",
        )
        for size, found in rates.items()
    ]
    if {"S", "L"} <= set(rates):
        targets.append(
            Target(
                what="`load table` in batches: L / S",
                spread=rates["L"][LOAD].over(rates["S"][LOAD]),
                wanted=0.85,
                sense="at least",
            )
        )
    targets += [
        Target(
            what=f"{size}: batches / one per call with `requests`",
            spread=found[OURS].over(found[OURS_REQUESTS]),
            wanted=15,
            sense="at least",
            digits=1,
            unit="x",
        )
        for size, found in rates.items()
    ]
    return targets


def _batches(prepared: Prepared, ours: str, hand: str, client: Client) -> list[Contestant]:
    world, size = prepared.world, prepared.size
    pairs = [(user, [entity(path) for path in ancestors(table)]) for user, table in world.requests]
    by_hand_pairs = [(user, ancestors(table)) for user, table in world.requests]
    whole = [_request(user, "select", table) for user, table in world.requests]
    documents = [request.to_json() for request in whole]
    our_opa, hand_opa = Caller(ours), Caller(hand)

    def items(action: str) -> Callable[[], list[bool]]:
        shared = {"action": {"name": action}, "resource": {"type": "table"}}
        return lambda: [
            answer
            for start in range(0, len(pairs), BATCH)
            for answer in our_opa.ask("privtab/gravitino/decisions", shared | {"items": pairs[start : start + BATCH]})
        ]

    def by_hand() -> list[bool]:
        return [
            answer
            for start in range(0, len(by_hand_pairs), BATCH)
            for answer in hand_opa.ask("by_hand/decisions", {"items": by_hand_pairs[start : start + BATCH]})
        ]

    def mixed() -> list[bool]:
        return [
            answer
            for start in range(0, len(documents), BATCH)
            for answer in our_opa.ask("privtab/gravitino/decisions", {"requests": documents[start : start + BATCH]})
        ]

    return [
        Contestant(size=size, name=HAND, run=by_hand, truth=world.may_select),
        Contestant(size=size, name=OURS, run=items("select"), truth=world.may_select),
        Contestant(size=size, name=LOAD, run=items("load"), truth=world.may_load),
        Contestant(size=size, name=MIXED, run=mixed, truth=world.may_select),
        Contestant(size=size, name=CHECK_MANY, run=lambda: client.check_many(whole), truth=world.may_select),
    ]


def _singles(prepared: Prepared, ours: str, hand: str, client: Client) -> list[Contestant]:
    world, size = prepared.world, prepared.size
    asked = world.requests[:SINGLES]
    truth = world.may_select[:SINGLES]
    documents = [_request(user, "select", table).to_json() for user, table in asked]
    by_hand = [{"user": user, "path": ancestors(table)} for user, table in asked]
    our_opa, hand_opa = Caller(ours), Caller(hand)
    session = requests.Session()

    def posted(url: str, inputs: Sequence[object]) -> Callable[[], list[bool]]:
        return lambda: [session.post(url, json={"input": one}).json()["result"] for one in inputs]

    our_url, hand_url = f"{ours}/v1/data/privtab/gravitino/allow", f"{hand}/v1/data/by_hand/allow"
    return [
        Contestant(size=size, name=HAND_REQUESTS, run=posted(hand_url, by_hand), truth=truth),
        Contestant(size=size, name=OURS_REQUESTS, run=posted(our_url, documents), truth=truth),
        Contestant(
            size=size, name=HAND_BARE, run=lambda: [hand_opa.ask("by_hand/allow", one) for one in by_hand], truth=truth
        ),
        Contestant(
            size=size,
            name=OURS_BARE,
            run=lambda: [our_opa.ask("privtab/gravitino/allow", one) for one in documents],
            truth=truth,
        ),
        Contestant(
            size=size,
            name=CHECK,
            run=lambda: [client.check(user, "select", ("table", table)) for user, table in asked],
            truth=truth,
        ),
    ]


def _request(user: str, action: str, table: str) -> Request:
    return Request(user=user, action=action, resource=Entity("table", table))
