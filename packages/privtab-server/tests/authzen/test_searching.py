"""Searches against asking about everybody and everything one by one, on random worlds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import filtered_policy
import pytest
import worlds
from hypothesis import given, settings
from hypothesis import strategies as st

from privtab import InvalidRequest
from privtab.base import Entity, Request
from privtab.bundle import state_bundle
from privtab.client import Embedded
from privtab.pipeline import load_program, policy_artifacts
from privtab.reference import Reference
from privtab.state import from_tables, validate
from privtab_analysis.entitlements.universe import universe
from privtab_analysis.principals import who_can
from privtab_server.authzen.messages import SearchKind
from privtab_server.authzen.points import LocalDecisionPoint
from privtab_server.authzen.service import AT_ONCE, TRIED, PagePosition, SearchPlan, Service, read_page

WORLDS = st.tuples(st.integers(0, 400), st.integers(0, 10_000))


@pytest.mark.slow
@settings(max_examples=14, deadline=None)
@given(WORLDS)
def test_searches_agree_with_one_decision_for_each_result(world: tuple[int, int]) -> None:
    check(*world, per_rule=1)


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(WORLDS)
def test_many_searches_find_what_is_allowed(world: tuple[int, int]) -> None:
    check(*world, per_rule=3)


def check(number: int, turn: int, *, per_rule: int) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "world.yaml"
        path.write_text(worlds.policy(number), encoding="utf-8")
        program = load_program(path)
        state = worlds.state(program, turn)
        (Path(folder) / "policy.tar.gz").write_bytes(policy_artifacts(program).bundle())
        (Path(folder) / "state.tar.gz").write_bytes(state_bundle(program, state))
        service = Service(LocalDecisionPoint(Embedded(folder, mode="enforce")), page_size=1000)
        reference = Reference(program, state)
        named = universe(program, state)
        for request in worlds.requests(program, turn, per_rule=per_rule):
            expected = who_can(reference, state, request)
            answer = search(service, SearchKind.SUBJECT, request)
            found = {result["id"] for result in answer["results"]}
            if expected.anyone and not request.groups:
                assert answer["context"] == {"anyone": True}
            elif not request.groups:
                assert found == set(expected.users)
                assert "context" not in answer
            assert all(reference.decide(replace(request, user=user)).allowed for user in found)

            paths = [result["id"] for result in search(service, SearchKind.RESOURCE, request)["results"]]
            pool = named.by_type[request.resource.type]
            assert paths == sorted(
                p for p in pool if reference.decide(replace(request, resource=Entity(request.resource.type, p))).allowed
            )

            operations = [result["name"] for result in search(service, SearchKind.ACTION, request)["results"]]
            type_ = request.resource.type
            known = [o for of, o in program.rules if of == type_ and program.filter_of(of, o) is None]
            assert operations == sorted(o for o in known if allowed(reference, replace(request, action=o)))


def allowed(reference: Reference, request: Request) -> bool:
    try:
        reference.vocabulary.check(request)
    except InvalidRequest:
        return False
    return reference.decide(request).allowed


def search(service: Service, kind: SearchKind, request: Request) -> dict[str, Any]:
    return asyncio.run(service.search(kind, request.to_json()))


# --- pages ---------------------------------------------------------------------------------------------------------------

NAMES = [f"n{at:05}" for at in range(3 * AT_ONCE)]


def walk() -> SearchPlan:
    return SearchPlan(
        names=NAMES, request_for=lambda name: Request(user=name, action="read", resource=Entity("t", "x"))
    )


async def every_third(requests: Sequence[Request]) -> list[bool]:
    return [NAMES.index(request.user) % 3 == 0 for request in requests]


@pytest.mark.slow
@pytest.mark.parametrize("limit", [1, 7, 100, AT_ONCE, 1000])
def test_pages_follow_each_other_without_a_gap_and_end(limit: int) -> None:
    async def all_pages() -> list[str]:
        found: list[str] = []
        at = PagePosition(after=None, limit=limit, search_hash="x")
        while True:
            result = await read_page(walk(), at, every_third)
            assert len(result.names) <= limit
            found += result.names
            if not result.next_token:
                return found
            assert len(result.names) == limit
            at = replace(at, after=result.names[-1])

    assert asyncio.run(all_pages()) == NAMES[::3]


def test_a_page_that_takes_too_long_ends_early_and_goes_on() -> None:
    ticks = iter(range(0, 1000, 10))
    at = PagePosition(after=None, limit=1000, search_hash="x")
    result = asyncio.run(read_page(walk(), at, every_third, clock=lambda: next(ticks)))
    assert list(result.names) == NAMES[:AT_ONCE:3]
    assert result.next_token == at.token(NAMES[AT_ONCE - 1])


def test_names_added_and_removed_between_two_pages() -> None:
    at = PagePosition(after="n00004x", limit=2, search_hash="x")
    assert asyncio.run(read_page(walk(), at, every_third)).names == ("n00006", "n00009")


class Counted(LocalDecisionPoint):
    """Counts the decisions."""

    decided = 0

    async def check_many(self, requests: Sequence[Request]) -> list[bool]:
        self.decided += len(requests)
        return await super().check_many(requests)


POLICY = """
privtab: 1
system: library
version: "1"
entities: {shelf: {book: }}
privileges: [READ]
semantics: {inheritance: down, deny: overrides}
tables:
  book:
    read: READ (book)
"""


def test_a_filter_finds_few_among_many(tmp_path: Path) -> None:
    rows = [
        {"grantee": "user:ben", "effect": "allow", "privilege": "READ", "entity": f"book:s{at % 100}/b{at}"}
        for at in range(4 * TRIED)
    ]
    rows += [
        {"grantee": "user:ann", "effect": "allow", "privilege": "READ", "entity": "shelf:s98"},
        {"grantee": "user:ann", "effect": "deny", "privilege": "READ", "entity": "book:s98/b198"},
        {"grantee": "user:ann", "effect": "allow", "privilege": "READ", "entity": "book:zz/50%25 off"},
    ]
    (tmp_path / "library.yaml").write_text(POLICY, encoding="utf-8")
    program = load_program(tmp_path / "library.yaml")
    state, found = validate(program, from_tables({"grants": rows}, "rows"))
    assert not found
    (tmp_path / "policy.tar.gz").write_bytes(policy_artifacts(program).bundle())
    (tmp_path / "state.tar.gz").write_bytes(state_bundle(program, state))
    point = Counted(Embedded(tmp_path / "policy.tar.gz", tmp_path / "state.tar.gz"))
    request = Request(user="ann", action="read", resource=Entity("book", ""))
    (tmp_path / "library.yaml").unlink()
    answer = search(Service(point, page_size=1000), SearchKind.RESOURCE, request)
    books = sorted(f"s98/b{at}" for at in range(98, 4 * TRIED, 100) if at != 198)
    assert [result["id"] for result in answer["results"]] == [*books, "zz/50%25 off"]
    assert answer["page"]["next_token"] == ""
    assert point.decided == TRIED + len(books) + 1


def test_filters_are_no_actions(tmp_path: Path) -> None:
    """They say what is shown, and are nothing that anybody does; each may be asked about by itself."""
    bundles = filtered_policy.made(tmp_path)[2]
    service = Service(LocalDecisionPoint(Embedded(*bundles)), page_size=1000)
    request = Request(user="eve", action="row_filter.own_rows", resource=Entity("table", "m/s/t"))
    assert asyncio.run(service.evaluation(request.to_json()))["decision"]
    assert search(service, SearchKind.ACTION, request)["results"] == [{"name": "load"}]
    assert search(service, SearchKind.ACTION, replace(request, resource=Entity("column", "m/s/t/x")))["results"] == []
