"""A client of an OPA makes the filters that `Embedded` makes with the same bundles, in generated worlds."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from random import Random
from time import time_ns
from typing import Any

import engine_agreement
import pytest
import requests as http
import worlds

from privtab import AsyncClient, Client, DecisionUnavailable, Embedded, Request
from privtab.base.errors import InvalidRequest, PolicyError, UnsupportedError
from privtab.base.moments import Window
from privtab.bundle.pack import shard_bundles, state_bundle
from privtab.filters.concern import of_opa
from privtab.filters.filter import Filter
from privtab.ir.nodes import Program
from privtab.state.nodes import State

REQUESTS = 12
FEATURES = (
    (),
    ("hierarchy", "implies", "any", "nobody"),
    ("attributes",),
    ("active", "below"),
    ("flat",),
    ("nested",),
    ("inside",),
)


def asked(request: Request) -> tuple[tuple[str, str, str], dict[str, Any]]:
    """The arguments of `filter`."""
    attributes = replace(request.attributes, entity={})
    details = {"flags": request.flags, "with_": request.with_, "groups": request.groups, "attributes": attributes}
    if request.active_roles is not None:
        details["active_roles"] = request.active_roles
    return (request.user, request.action, request.resource.type), details


def found(client: Any, request: Request) -> Filter | str:
    """The filter, or why there is none."""
    arguments, details = asked(request)
    try:
        answer = client.filter(*arguments, **details)
    except (UnsupportedError, InvalidRequest) as error:
        return str(error)
    assert isinstance(answer, Filter)
    # An index knows since when it is as it is, an OPA knows until when alone.
    return replace(answer, window=Window(end=answer.window.end))


def bundles(folder: Path, program: Program, state: State, *, sharded: bool) -> list[Path]:
    """The files of a state's bundles."""
    contents = list(shard_bundles(program, state).values()) if sharded else [state_bundle(program, state)]
    files = [folder / f"state-{number}.tar.gz" for number in range(len(contents))]
    for file, content in zip(files, contents, strict=True):
        file.write_bytes(content)
    return files


def compared(
    folder: Path, opa: Path, seed: int, features: tuple[str, ...], *, sharded: bool, timed: bool
) -> tuple[int, int]:
    """Compare the filters of some requests in a world; how many there were, and how many said something."""
    text = worlds.policy(seed, f"world{seed}", features)
    with engine_agreement.serving([text], opa, sharded=sharded) as (url, (world,)), http.Session() as session:
        state = worlds.state(world.program, seed)
        if timed:
            state = worlds.timed(state, seed, now=time_ns())
        engine_agreement.put_state(session, url, world.program, state, sharded=sharded)
        (folder / "policy.tar.gz").write_bytes(world.artifacts.bundle())
        embedded = Embedded(folder / "policy.tar.gz", *bundles(folder, world.program, state, sharded=sharded))
        every = worlds.requests(world.program, seed, per_rule=2)
        answers = []
        with Client(url, system=world.program.system) as client:
            for request in Random(seed).sample(every, min(REQUESTS, len(every))):
                answers.append(found(client, request))
                assert answers[-1] == found(embedded, request), request
        filters = [answer for answer in answers if isinstance(answer, Filter)]
        return len(filters), sum(not answer.nothing for answer in filters)


@pytest.mark.parametrize("chosen", [range(700, 701), pytest.param(range(701, 706), marks=pytest.mark.long)], ids=str)
@pytest.mark.parametrize(
    ("features", "sharded"),
    [*((features, False) for features in FEATURES), ((), True), (("hierarchy", "implies", "any", "active"), True)],
    ids=str,
)
def test_filters_of_an_opa_are_those_of_embedded(
    features: tuple[str, ...], sharded: bool, chosen: range, opa_binary: Path, tmp_path: Path
) -> None:
    found_some = 0
    for seed in chosen:
        for timed in (False, True):
            folder = tmp_path / f"{seed}-{timed}"
            folder.mkdir()
            filters, some = compared(folder, opa_binary, seed, features, sharded=sharded, timed=timed)
            assert filters
            found_some += some
    assert found_some


def test_a_filter_needs_all_shards_and_the_right_answer(opa_binary: Path) -> None:
    text = worlds.policy(700, "world700")
    with engine_agreement.serving([text], opa_binary, sharded=True) as (url, (world,)), http.Session() as session:
        state = worlds.state(world.program, 700)
        request = next(one for one in worlds.requests(world.program, 700, per_rule=2) if not one.with_)
        document = engine_agreement.sharded_document(world.program, state)

        async def filtered() -> Filter | str:
            async with AsyncClient(url, system=world.program.system) as client:
                arguments, details = asked(request)
                answer = await client.filter(*arguments, **details)
                assert isinstance(answer, Filter)
                return answer

        where = f"{url}/v1/data/privtab_state/{world.program.system}"
        session.put(where, json=document, timeout=60).raise_for_status()
        with Client(url, system=world.program.system) as client:
            assert asyncio.run(filtered()) == found(client, request)
            missing = min(document["at"])
            del document["at"][missing]
            session.put(where, json=document, timeout=60).raise_for_status()
            with pytest.raises(DecisionUnavailable, match="a filter needs the whole state"):
                found(client, request)


def test_what_an_opa_cannot_mean_is_no_concern() -> None:
    said = {"revision": "r", "missing": [], "principals": ["user:a"], "keys": ["t:a"], "end": []}
    assert of_opa(said, "shop").words == {"a"}
    wrong = (
        {"keys": None},
        {"keys": [1]},
        {"principals": [None]},
        {"revision": None},
        {"end": ["soon"]},
        {"of_user": 1},
    )
    for part in wrong:
        with pytest.raises(PolicyError):
            of_opa({**said, **part}, "shop")
    for name in said:
        with pytest.raises(PolicyError):
            of_opa({other: value for other, value in said.items() if other != name}, "shop")
