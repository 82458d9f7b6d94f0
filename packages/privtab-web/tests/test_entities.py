"""Entities as callers write them: text, pairs, and lists of plain names, in every client and before every function."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from privtab import AccessDenied, AsyncClient, Client, Entity, InvalidRequest, Request
from privtab.client import Embedded
from privtab.engines import OpaServer
from privtab_web import Guard, acting_as

CLICKS: list[Any] = [
    "dataset:web/clicks",
    ("dataset", "web/clicks"),
    ("dataset", ["web", "clicks"]),
    ("dataset", ("web", "clicks")),
    ["dataset", ["web", "clicks"]],
    Entity("dataset", "web/clicks"),
]


@pytest.mark.parametrize("resource", CLICKS, ids=str)
def test_every_spelling_is_the_same_entity(client: Embedded, opa: OpaServer, resource: Any) -> None:
    with Client(opa.url, system="studio") as remote:
        for decider in (client, remote):
            assert decider.check("ann", "read", resource)
            assert decider.decide("ann", "read", resource).reasons[0]["atom"] == "READ (dataset:web/clicks)"
            assert decider.require("ann", "copy", resource, with_={"to": ("project", ["web"])})
            assert decider.filter("ann", "read", [1], key=lambda _: resource) == [1]

    async def ask() -> bool:
        async with AsyncClient(opa.url, system="studio") as asking:
            return await asking.check("ann", "read", resource)

    assert asyncio.run(ask())


@pytest.mark.parametrize("names", [["web"], ("web",)], ids=str)
def test_one_name_is_a_path_too(client: Embedded, opa: OpaServer, names: Any) -> None:
    with Client(opa.url, system="studio") as remote:
        for decider in (client, remote):
            assert decider.check("ann", "create", ("dataset", names)), "without the last name"
            assert not decider.check("ben", "create", ("dataset", names))


def test_a_request_holds_entities(client: Embedded) -> None:
    for resource in CLICKS[:-1]:
        request = Request(user="ann", action="read", resource=resource)
        for ask in (client.check, lambda r: client.check_many([r])):
            with pytest.raises(InvalidRequest, match=r"resource of a Request is .* it must be an Entity"):
                ask(request)


def test_listings_take_lists_of_names(client: Embedded) -> None:
    items = [["web", "clicks"], ["web", "salaries"]]
    assert client.visible("ben", "list", "dataset", items) == [["web", "clicks"]]
    assert client.visible("ben", "list", [("dataset", names) for names in items]) == [("dataset", items[0])]


def test_names_in_a_list_are_plain_and_are_encoded(client: Embedded) -> None:
    with pytest.raises(AccessDenied) as denied:
        client.require("ben", "create", ("dataset", ["web", "a/b 100%"]))
    assert denied.value.request.resource == Entity("dataset", "web/a%2Fb 100%25")
    for names in (["web", ""], ["web", 3], ["web", None]):
        with pytest.raises(InvalidRequest, match="a name of resource is"):
            client.check("ann", "read", ("dataset", names))  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match=r"wrong depth: `dataset:web/clicks/x` has 3"):
        client.check("ann", "read", ("dataset", ["web", "clicks", "x"]))


def test_guarded_functions_are_called_with_lists(client: Embedded) -> None:
    guard = Guard(client)

    @guard.requires("read", "dataset", arg="at")
    def whole(at: Any) -> Any:
        return at

    @guard.requires("read", lambda at: ("dataset", at.split(".")))
    def function(at: str) -> Any:
        return at

    with acting_as("ben"):
        assert whole(["web", "clicks"]) == ["web", "clicks"]
        assert function("web.clicks") == "web.clicks"
        with guard.allowed("read", ("dataset", ["web", "clicks"])):
            pass
        with pytest.raises(AccessDenied):
            whole(["web", "salaries"])
        with pytest.raises(AccessDenied):
            function("web.salaries")
        with pytest.raises(InvalidRequest, match="a name of `at`"):
            whole(["web", 1])
