"""Who is who: tokens of one sidecar alone, reports without a name, and a channel whose last release cannot be read."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import signing_keys
from example_bundles import ExampleBundles
from in_process_registry import POLICY, STATE, until, waiting, within

from privtab.base import UsageError
from privtab_server.registry import Canary, Registry, names
from privtab_server.registry.deploy import DesiredRevisions, Fleet, Sidecar
from privtab_server.registry.deploy.fleet import fleet_of
from privtab_server.registry.deploy.rollout import watch
from privtab_server.registry.server.app import Role, ServerState
from privtab_server.serving.tokens import Tokens

WEB, PODS, ANY, OPS = ("w" * 20, "p" * 20, "a" * 20, "o" * 20)
LINES = f"""\
web   {WEB}   sidecar   instance=web-1  labels=app=web
pods  {PODS}  instance=etl-* sidecar
any   {ANY}   sidecar
ops   {OPS}   operator
"""


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    path = tmp_path / "tokens"
    path.write_text(LINES, encoding="utf-8")
    return Tokens(path, Role, bindings=True)


def shows(token: str, instance: str = "", labels: str = "") -> dict[str, str]:
    named = {"X-Privtab-Instance": instance, "X-Privtab-Labels": labels} if instance else {}
    return {"Authorization": f"Bearer {token}", **named}


def report(revision: str = "", id_: str = "made-up") -> str:
    return json.dumps({"labels": {"id": id_}, "bundles": {"policy": {"active_revision": revision}}})


@pytest.mark.parametrize(
    ("headers", "status", "says"),
    [
        (shows(WEB, "web-1", "zone=a,app=web"), 200, ""),
        (shows(WEB, "web-2", "app=web"), 403, "is for the sidecar `web-1`, and the request says `web-2`"),
        (shows(WEB), 403, "has no `X-Privtab-Instance`"),
        (shows(WEB, "web-1", "app=etl"), 403, "for sidecars with the labels `app=web`"),
        (shows(WEB, "web-1"), 403, "for sidecars with the labels `app=web`"),
        (shows(PODS, "etl-7f9c-x"), 200, ""),
        (shows(PODS, "etl"), 403, "is for the sidecar `etl-*`"),
        (shows(PODS, "web-1"), 403, "is for the sidecar `etl-*`"),
        (shows(ANY, "else"), 200, ""),
        (shows(ANY), 200, ""),
        (shows(ANY, "web-1", "app=web"), 403, "`web-1` is a sidecar with its own bearer token"),
        (shows(ANY, "etl-2"), 403, "its own bearer token"),
    ],
)
def test_a_token_that_is_bound_is_good_for_one_sidecar(
    registry: Registry, tokens: Tokens, headers: dict[str, str], status: int, says: str
) -> None:
    async def body(client: httpx.AsyncClient, served: ServerState) -> None:
        answers = [
            await client.get(POLICY, headers=headers),
            await client.post("/status", content=report(), headers=headers),
            await client.post("/logs", content="[]", headers=headers),
        ]
        assert [answer.status_code for answer in answers] == [status] * 3
        assert says in answers[0].text
        document = (await client.get("/fleet", headers=shows(OPS))).json()
        named = headers.get("X-Privtab-Instance", "")
        if status == 200:
            assert [sidecar["id"] for sidecar in document["sidecars"]] == [named or "made-up"]
            assert document["refused"] == []
        else:
            assert document["sidecars"] == []
            assert {(refusal["instance"], refusal["status"], refusal["why"]) for refusal in document["refused"]} == {
                (named, 403, answers[0].text)
            }
            [shown, *_] = fleet_of(document).refused
            assert "with the token of" in shown

    within(registry, body, tokens=tokens)


def test_two_tokens_are_none(registry: Registry, tokens: Tokens) -> None:
    async def body(client: httpx.AsyncClient, served: ServerState) -> None:
        for first, second in ((WEB, ANY), (ANY, WEB), (ANY, ANY), ("x" * 20, ANY)):
            headers = [("Authorization", f"Bearer {token}") for token in (first, second)]
            for path in (POLICY, "/fleet", "/metrics"):
                assert (await client.get(path, headers=headers)).status_code == 400, (first, second, path)

    within(registry, body, tokens=tokens)


def test_the_id_that_an_opa_reports_does_not_identify_it(registry: Registry, tokens: Tokens) -> None:
    """A report without a name changes nothing of the sidecar whose name it has made up."""
    current = registry.channel("dev", "shop")

    async def body(client: httpx.AsyncClient, served: ServerState) -> None:
        await client.get(POLICY, headers=shows(WEB, "web-1", "app=web"))
        false = report(str(current.policy), "web-1")
        assert (await client.post("/status", content=false, headers=shows(ANY))).status_code == 200
        sidecars = {
            sidecar["named"]: sidecar for sidecar in (await client.get("/fleet", headers=shows(OPS))).json()["sidecars"]
        }
        assert sidecars[True]["bundles"] == {}
        assert sidecars[True]["feeds"]["dev/shop/policy"]["holds"] is None

    within(registry, body, tokens=tokens)


@pytest.mark.parametrize(
    "line",
    [
        "x aaaaaaaaaaaaaaaaaaaa sidecar instance=",
        "x aaaaaaaaaaaaaaaaaaaa sidecar instance=a instance=b",
        "x aaaaaaaaaaaaaaaaaaaa sidecar name=a",
        "x aaaaaaaaaaaaaaaaaaaa sidecar instance=a labels=zone",
        "x aaaaaaaaaaaaaaaaaaaa sidecar labels=zone=a",
    ],
)
def test_a_binding_that_is_none_is_named_by_its_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"{LINES}{line}\n", encoding="utf-8")
    with pytest.raises(UsageError, match="tokens:5: ") as raised:
        Tokens(path, Role, bindings=True)
    assert "aaaa" not in str(raised.value)
    with pytest.raises(UsageError, match="tokens:1: unknown scope"):
        Tokens(path, Role)


def test_the_version_of_an_opa_that_only_polls_is_known_by_its_agent(
    registry: Registry, packed: ExampleBundles
) -> None:
    """And whether it must verify signatures, by the settings of the registry, from the next release on."""

    async def body(client: httpx.AsyncClient, served: ServerState) -> None:
        agent = {"User-Agent": "Open-Policy-Agent/1.20.2 (linux, amd64)", "X-Privtab-Instance": "web-1"}
        await client.get(POLICY, headers=agent)
        fleet = fleet_of((await client.get("/fleet")).json())
        assert fleet.sidecars[0].labels == {"version": "1.20.2"}
        assert not fleet.signed
        pair = signing_keys.pair()
        registry.init(verification_keys=[pair.public], replace=True)
        signed_policy = registry.put(pair.signing().sign(packed.policies[1])).id
        signed_state = registry.put(pair.signing().sign(packed.states[1])).id
        registry.release("dev", "shop", policy=signed_policy, state=signed_state)
        await until(lambda: served.feeds.signed)
        assert fleet_of((await client.get("/fleet")).json()).signed

    within(registry, body)


# --- without a name --------------------------------------------------------------------------------------------------


async def fleet(client: httpx.AsyncClient, **parameters: str) -> Fleet:
    return fleet_of((await client.get("/fleet", params=parameters)).json())


def test_a_report_without_a_name_counts_where_its_bundles_come_from(registry: Registry, packed: ExampleBundles) -> None:
    old, new = (registry.put(policy).id for policy in packed.policies)
    registry.release("prod", "shop", policy=new)
    registry.release("other", "shop", policy=new)

    async def body(client: httpx.AsyncClient, served: ServerState) -> None:
        # Of what it runs only: `new` runs in two channels, `old` in one.
        for revision, places, certain in ((old, ("dev/shop",), True), (new, ("other/shop", "prod/shop"), False)):
            await client.post("/status", content=report(revision))
            [sidecar] = (await fleet(client)).sidecars
            assert (sidecar.places, sidecar.certain) == (places, certain)
        [sidecar] = (await fleet(client)).sidecars
        assert "may read other/shop or prod/shop: give it `X-Privtab-Instance`" in sidecar.doubt
        assert not sidecar.reads("dev", "shop")
        assert sidecar.reads("prod", "shop")
        assert (await fleet(client, channel="dev")).sidecars == ()
        assert len((await fleet(client, channel="prod")).sidecars) == 1
        # What is asked for from its address without a name says the rest.
        await client.get(POLICY.replace("dev", "prod"), headers={"X-Privtab-Instance": "somebody-else"})
        assert not (await fleet(client)).sidecars[0].certain
        await client.get(POLICY.replace("dev", "prod"))
        [mine, _] = (await fleet(client)).sidecars
        assert (mine.places, mine.certain) == (("prod/shop",), True)
        # Two of that address: who runs `new` may be either of them.
        await client.get(POLICY.replace("dev", "other"))
        assert not (await fleet(client)).sidecars[0].certain
        # Who runs nothing of this registry reads none of its channels.
        await client.post("/status", content=report("0123456789abcdef", "another"))
        another = (await fleet(client)).sidecars[0]
        assert (another.id, another.certain) == ("another", False)

    within(registry, body)


def test_sidecars_that_asked_for_a_future_channel_count_for_it(registry: Registry) -> None:
    async def body(client: httpx.AsyncClient, served: ServerState) -> None:
        named = {"X-Privtab-Instance": "one"}
        assert (await client.get(POLICY.replace("dev", "new"), headers=named)).status_code == 404
        assert (await client.get("/channels/..%2f/x/policy.tar.gz", headers=named)).status_code == 404
        await client.post("/status", content=report(), headers=named)
        [sidecar] = (await fleet(client)).sidecars
        assert (sidecar.places, sidecar.certain) == (("new/shop",), True)
        assert sidecar.reads("new", None)
        assert not sidecar.reads("dev", None)

    within(registry, body)


def test_sidecars_that_cannot_be_distinguished_are_waited_for_and_do_not_count() -> None:
    from privtab_server.registry.deploy import LoadedBundle

    def look(revision: str) -> Any:
        loaded = (LoadedBundle(name="policy", revision=revision),)
        sidecar = Sidecar(id="x", bundles=loaded, places=("dev/shop", "prod/shop"), certain=False)
        looks = watch(
            lambda: Fleet(sidecars=(sidecar,)),
            DesiredRevisions(policy="new"),
            "shop",
            timeout=0.05,
            expect=expect,
            every=0.02,
        )
        return list(looks)[-1]

    expect = 0
    assert look("new").complete
    assert not look("old").complete
    assert "cannot be told apart from others" in look("old").late[0].why
    expect = 1
    assert not look("new").complete
    assert look("new").summary == "1 of 1 sidecar active; 1 cannot be told apart"


# --- canaries --------------------------------------------------------------------------------------------------------


def test_a_canary_counts_what_was_decided_after_its_begin_by_the_sidecars_of_its_channel(
    registry: Registry, packed: ExampleBundles
) -> None:
    old, new = (registry.put(policy).id for policy in packed.policies)
    registry.release("prod", "shop", policy=old)

    def event(revision: str, at: str) -> dict[str, Any]:
        bundles = {"policy": {"revision": revision}}
        return {"path": "privtab/shop/allow", "result": True, "bundles": bundles, "timestamp": at}

    async def body(client: httpx.AsyncClient, served: ServerState) -> None:
        for name, channel in (("one", "dev"), ("two", "prod")):
            await client.get(POLICY.replace("dev", channel), headers={"X-Privtab-Instance": name})
        assert (await client.get("/fleet")).json()["trials"] == {}
        await asyncio.to_thread(partial(registry.release, "dev", "shop", canary=Canary(policy=new)))
        await until(lambda: bool(served.feeds.canaries))
        since = served.feeds.canaries["dev/shop"].since
        log = [event(old, at) for at in ("2001-01-01T00:00:00.5Z", f"{since}.9Z", "2999-01-01T00:00:00Z", "soon")]
        log.append(event(new, "2999-01-01T00:00:00.123456789Z"))
        for name in ("one", "two"):
            await client.post("/logs", json=log, headers={"X-Privtab-Instance": name})
        found = (await client.get("/fleet")).json()
        rules = {"other": {"allow": 1}}
        assert found["trials"] == {"dev/shop": {"since": since, "decisions": {old: rules, new: rules}}}
        assert found["decisions"][old]["other"]["allow"] == 8
        assert fleet_of(found).canaries_in_progress["dev/shop"][0] == since
        await asyncio.to_thread(partial(registry.release, "dev", "shop", policy=new))
        await until(lambda: not served.feeds.canaries)
        assert (await client.get("/fleet")).json()["trials"] == {}

    within(registry, body)


# --- a release that cannot be read ------------------------------------------------------------------------------------


def spoil(registry: Registry, sequence: int) -> None:
    registry.store.replace(names.entry("dev", "shop", sequence), b"{")


async def channel_of(client: httpx.AsyncClient) -> dict[str, Any]:
    found: dict[str, Any] = (await client.get("/fleet")).json()["channels"][0]
    return found


def test_nothing_moves_while_the_last_release_cannot_be_read(
    registry: Registry, packed: ExampleBundles, caplog: pytest.LogCaptureFixture
) -> None:
    new = registry.put(packed.policies[1]).id
    # Half a file of another tool: nobody ever read it, and no copy is of it.
    spoil(registry, 2)

    async def body(client: httpx.AsyncClient, served: ServerState) -> None:
        assert (await channel_of(client))["sequence"] == 1
        assert "release 2 cannot be read" in (await channel_of(client))["trouble"]
        assert "release 2 cannot be read" in caplog.text
        assert 'unreadable_releases{channel="dev",system="shop"} 1.0' in (await client.get("/metrics")).text
        fresh = await client.get(POLICY)
        assert fresh.content == packed.policies[0], "who has nothing gets what was whole last"
        # What it runs may be what the release was to: it stays, and OPA goes on with its own mark.
        condition = {"If-None-Match": f'"{new}.0123456789abcdef"'}
        stays = await client.get(POLICY, headers=condition)
        assert (stays.status_code, stays.headers["etag"]) == (304, condition["If-None-Match"])
        poll = asyncio.create_task(client.get(POLICY, headers={**condition, "Prefer": "wait=20"}))
        await until(lambda: waiting(served) == 1)
        await asyncio.sleep(0.2)
        assert not poll.done()
        await asyncio.to_thread(partial(registry.release, "dev", "shop", policy=new, expect=2))
        assert (await poll).content == packed.policies[1]
        assert (await channel_of(client))["trouble"] is None

    within(registry, body)


def test_a_server_keeps_serving_a_release_whose_record_is_damaged(
    registry: Registry, packed: ExampleBundles, monkeypatch: pytest.MonkeyPatch
) -> None:
    from privtab_server.registry.server import feeds

    monkeypatch.setattr(feeds, "CONFIRM_SECONDS", 0.0)
    registry.release("dev", "shop", policy=registry.put(packed.policies[1]).id)

    async def body(client: httpx.AsyncClient, served: ServerState) -> None:
        first = await client.get(POLICY)
        spoil(registry, 2)
        registry.store.remove("channels/dev/shop/channel.json")
        await until(lambda: bool(served.feeds.channels["dev", "shop"].trouble))
        again = await client.get(POLICY)
        assert (again.content, again.headers["etag"]) == (packed.policies[1], first.headers["etag"])
        assert (await channel_of(client))["sequence"] == 2

    within(registry, body)


def test_a_restarted_server_that_cannot_read_the_last_release_serves_no_older_one(
    registry: Registry, packed: ExampleBundles
) -> None:
    old = registry.channel("dev", "shop")
    registry.release("dev", "shop", policy=registry.put(packed.policies[1]).id)
    spoil(registry, 2)

    async def by_the_copy(client: httpx.AsyncClient, served: ServerState) -> None:
        assert (await client.get(POLICY)).content == packed.policies[1]
        assert "its copy is intact" in (await channel_of(client))["trouble"]

    async def by_nothing(client: httpx.AsyncClient, served: ServerState) -> None:
        assert (await client.get(POLICY)).status_code == 503
        assert (await client.get(STATE)).status_code == 503
        condition = {"If-None-Match": '"any.thing"'}
        assert (await client.get(POLICY, headers=condition)).status_code == 304

    within(registry, by_the_copy)
    registry.store.remove("channels/dev/shop/channel.json")
    within(registry, by_nothing)
    spoil(registry, 1)

    async def by_nothing_at_all(client: httpx.AsyncClient, served: ServerState) -> None:
        assert (await client.get(POLICY)).status_code == 503
        assert (await channel_of(client))["last"] == 2

    within(registry, by_nothing_at_all)
    assert old.policy is not None
