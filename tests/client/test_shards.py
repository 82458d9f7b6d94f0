"""A state in parts: with its people and some of its shards, what needs another shard has no answer, in no client."""

from __future__ import annotations

import asyncio
import json
import pickle
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import bundle_service
import pytest
from bundle_service import BundleService

from privtab import AsyncClient, Client, DecisionUnavailable, Embedded, Request, pipeline
from privtab.base.errors import FileError, PolicyError, UsageError
from privtab.base.request import Entity
from privtab.bundle import state_bundle
from privtab.bundle.pack import LISTING_FILE, shard_bundles, shard_file, shard_files
from privtab.engines.index import Index, combined_document
from privtab.engines.opa.server import OpaServer
from privtab.ir.nodes import Program
from privtab.pipeline import policy_artifacts
from privtab.reference.evaluate import Reference
from privtab.state.index import index_document
from privtab.state.nodes import Grant, State
from privtab.state.shards import PartText, content, shards

HERE, THERE, NOWHERE = "table:a%2Fb/z/t", "table:~!/z/t", "table:nowhere/z/t"
ROOT_HERE, ROOT_THERE = "lake:a%2Fb", "lake:~!"
GRANTS = tuple(
    Grant(grantee=grantee, effect="allow", privilege=privilege, entity=Entity.parse(entity))
    for entity in (HERE, THERE)
    for grantee, privilege in (("user:ann", "READ"), ("role:writer", "WRITE"))
)
STATE = State(grants=GRANTS, owners=((Entity.parse("zone:a%2Fb/z"), "user:ann"),))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Program:
    path = tmp_path_factory.mktemp("lake") / "lake.yaml"
    path.write_text(bundle_service.LAKE)
    return pipeline.load_program(path)


@pytest.fixture(scope="module")
def partly(lake: Program, opa_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpaServer]:
    """An OPA that has the people and one of two shards."""
    folder = tmp_path_factory.mktemp("partly")
    (folder / "policy.tar.gz").write_bytes(policy_artifacts(lake, sharded=True).bundle())
    bundles = shard_bundles(lake, STATE)
    assert set(bundles) == {PartText.PEOPLE, ROOT_HERE, ROOT_THERE}
    loaded = {"policy": folder / "policy.tar.gz"}
    for name, key in (("people", PartText.PEOPLE), ("here", ROOT_HERE)):
        loaded[name] = folder / shard_file(key)
        loaded[name].write_bytes(bundles[key])
    with OpaServer(loaded, binary=opa_binary) as server:
        yield server


def until(holds: Callable[[], bool], seconds: float = 15.0) -> None:
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends, "it never came about"
        time.sleep(0.02)


@pytest.fixture(scope="module", params=["opa", "python"])
def client(
    request: pytest.FixtureRequest, lake: Program, partly: OpaServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Client | Embedded]:
    """Each engine with the people and one of two shards."""
    if request.param == "opa":
        with Client(partly.url) as asker:
            yield asker
        return
    tmp_path = tmp_path_factory.mktemp("client")
    bundles = shard_bundles(lake, STATE)
    for key in (PartText.PEOPLE, ROOT_HERE):
        (tmp_path / shard_file(key)).write_bytes(bundles[key])
    (tmp_path / "policy.tar.gz").write_bytes(policy_artifacts(lake, sharded=True).bundle())
    with Embedded(tmp_path) as asker:
        yield asker


def test_requests_in_an_active_shard_are_answered(client: Client | Embedded) -> None:
    assert client.check("ann", "read", HERE)
    assert not client.check("bob", "read", HERE)
    assert client.decide("bob", "read", HERE).missing
    assert client.visible("ann", "list", "table", [HERE.partition(":")[2], "a%2Fb/z/u"])
    assert client.check_many([Request(user="ann", action="read", resource=Entity.parse(HERE))] * 3) == [True] * 3


def test_a_root_that_has_no_shard_is_an_ordinary_denial(client: Client | Embedded) -> None:
    assert not client.check("ann", "read", NOWHERE)
    assert client.decide("ann", "read", NOWHERE).missing


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.check("ann", "read", THERE),
        lambda client: client.decide("ann", "read", THERE),
        lambda client: client.require("ann", "read", THERE),
        lambda client: client.check("ann", "copy", HERE, with_={"to": THERE}),
        lambda client: client.check("ann", "copy", THERE, with_={"to": HERE}),
        lambda client: client.decide("ann", "copy", HERE, with_={"to": THERE}),
        lambda client: client.visible("ann", "list", [HERE, THERE]),
        lambda client: client.filter("ann", "read", [HERE, THERE]),
        lambda client: client.check_many(
            [Request(user="ann", action="read", resource=Entity.parse(e)) for e in [HERE] * 1500 + [THERE]]
        ),
        lambda client: client.decide_many(
            [Request(user="ann", action="read", resource=Entity.parse(e)) for e in (HERE, THERE)]
        ),
        lambda client: client.check_many(
            [
                Request(user="ann", action="copy", resource=Entity.parse(HERE), with_={"to": Entity.parse(e)})
                for e in (HERE, THERE)
            ]
        ),
    ],
)
def test_requests_that_need_a_missing_shard_have_no_answer(
    client: Client | Embedded, ask: Callable[[Client | Embedded], object]
) -> None:
    with pytest.raises(DecisionUnavailable, match="no state bundle is active for `lake:~!` of system `lake`"):
        ask(client)
    assert client.check("ann", "read", HERE)


def test_concurrent_checks_are_not_affected(partly: OpaServer) -> None:
    async def together_() -> list[bool | BaseException]:
        async with AsyncClient(partly.url) as client:
            checks = [client.check("ann", "read", entity) for entity in (HERE, THERE, NOWHERE)]
            return await asyncio.gather(*checks, return_exceptions=True)

    from_here, from_there, from_nowhere = asyncio.run(together_())
    assert from_here is True
    assert from_nowhere is False
    assert isinstance(from_there, DecisionUnavailable)


def test_columns_need_all_shards(lake: Program, tmp_path: Path) -> None:
    bundles = shard_bundles(lake, STATE)
    for key in (PartText.PEOPLE, ROOT_HERE):
        (tmp_path / shard_file(key)).write_bytes(bundles[key])
    (tmp_path / "policy.tar.gz").write_bytes(policy_artifacts(lake).bundle())
    client = Embedded(tmp_path)
    with pytest.raises(DecisionUnavailable, match="the shard of `lake:~!` is missing"):
        client.batches()
    copied = pickle.loads(pickle.dumps(client))  # noqa: S301  (our own)
    assert copied.check("ann", "read", HERE)
    with pytest.raises(DecisionUnavailable):
        copied.check("ann", "read", THERE)
    (tmp_path / shard_file(ROOT_THERE)).write_bytes(bundles[ROOT_THERE])
    before = client.revision()
    assert client.refresh()
    assert client.revision() != before
    assert client.check("ann", "read", THERE)
    answers = client.batches().decide_columns(
        ["ann", "bob"], [HERE.partition(":")[2], THERE.partition(":")[2]], action="read", type="table"
    )
    assert answers.allowed.tolist() == [True, False]


def test_parts_give_the_answers_of_the_whole_in_process(lake: Program, tmp_path: Path) -> None:
    state = bundle_service.unusual_state(11, roots=30)
    for key, bundle in shard_bundles(lake, state).items():
        (tmp_path / shard_file(key)).write_bytes(bundle)
    (tmp_path / "policy.tar.gz").write_bytes(policy_artifacts(lake).bundle())
    (tmp_path / "whole").mkdir()
    (tmp_path / "whole" / "state.tar.gz").write_bytes(state_bundle(lake, state))
    parts = Embedded(tmp_path)
    whole = Embedded(tmp_path / "policy.tar.gz", tmp_path / "whole" / "state.tar.gz")
    reference = Reference(lake, state)
    users = {grant.grantee.partition(":")[2] for grant in state.grants if grant.grantee.startswith("user:")}
    requests = [
        Request(user=user, action="read" if entity.type == "table" else "look", resource=entity)
        for user in sorted(users)
        for entity in sorted({grant.entity for grant in state.grants}, key=str)
    ]
    right = [reference.decide(request).allowed for request in requests]
    assert any(right)
    assert parts.check_many(requests) == whole.check_many(requests) == right
    assert [parts.decide(r).context for r in requests[:50]] == [whole.decide(r).context for r in requests[:50]]


def test_a_folder_with_a_list_gives_the_bundles_on_it(lake: Program, tmp_path: Path) -> None:
    (tmp_path / "policy.tar.gz").write_bytes(policy_artifacts(lake, sharded=True).bundle())
    bundles = shard_bundles(lake, STATE)
    rows = json.loads(shard_files(bundles)[LISTING_FILE])
    (tmp_path / "bundles").mkdir()
    for key, bundle in bundles.items():
        row = rows[PartText.PEOPLE] if key == PartText.PEOPLE else rows["shards"][key]
        row["file"] = f"bundles/{row['file']}"
        (tmp_path / row["file"]).write_bytes(bundle)
    (tmp_path / "bundles" / "older.tar.gz").write_bytes(bundles[ROOT_HERE])
    (tmp_path / "shards.json").write_text(json.dumps(rows))
    assert Embedded(tmp_path).check("ann", "read", THERE)
    (tmp_path / "shards.json").write_text("{}")
    with pytest.raises(FileError, match="not a list of bundles"):
        Embedded(tmp_path)


def test_a_state_without_its_people_or_with_two_of_a_part_is_refused(lake: Program, tmp_path: Path) -> None:
    bundles = shard_bundles(lake, STATE)
    policy = tmp_path / "policy.tar.gz"
    policy.write_bytes(policy_artifacts(lake, sharded=True).bundle())
    people, shard, copy, whole = (tmp_path / name for name in ("p.tar.gz", "h.tar.gz", "h2.tar.gz", "w.tar.gz"))
    people.write_bytes(bundles[PartText.PEOPLE])
    shard.write_bytes(bundles[ROOT_HERE])
    copy.write_bytes(bundles[ROOT_HERE])
    whole.write_bytes(state_bundle(lake, STATE))
    with pytest.raises(DecisionUnavailable, match="the principals are missing"):
        Embedded(policy, shard)
    with pytest.raises(UsageError, match="2 bundles hold the shard"):
        Embedded(policy, people, shard, copy)
    with pytest.raises(UsageError, match="both hold `lake`"):
        Embedded(policy, people, whole)


def test_one_document_with_all_parts_is_read_as_one_index(lake: Program) -> None:
    documents = shards(lake, STATE)
    whole = Index(index_document(lake, STATE))
    everything = dict(documents[PartText.PEOPLE])
    everything["at"] = {}
    for key in (ROOT_HERE, ROOT_THERE):
        everything["at"] |= content(key, documents[key])["at"]
    found = Index(everything)
    assert not found.missing
    assert {t: table for t, table in found.tables.items() if table} == {t: v for t, v in whole.tables.items() if v}
    assert (found.users, found.members, found.origins) == (whole.users, whole.members, whole.origins)
    document, missing = combined_document([everything])
    assert not missing
    assert document == index_document(lake, STATE) | {"revision": found.revision}
    with pytest.raises(PolicyError):
        Index(content(ROOT_HERE, documents[ROOT_HERE]))


def test_a_shard_that_the_people_do_not_name_counts_for_nothing(
    lake: Program, opa_binary: Path, tmp_path: Path
) -> None:
    both = shard_bundles(lake, STATE)
    only_here = State(grants=GRANTS[:2])
    policy = policy_artifacts(lake, sharded=True).bundle()
    with BundleService() as service:
        for name, bundle in {"policy": policy, "people": both[PartText.PEOPLE], "here": both[ROOT_HERE]}.items():
            service.put(name, '"1"', bundle)
        service.put("there", '"1"', both[ROOT_THERE])
        config = tmp_path / "opa.json"
        config.write_text(service.config(["policy", "people", "here", "there"]))
        with OpaServer(binary=opa_binary, config=config) as opa, Client(opa.url) as client:
            until(client.health)
            assert client.check("ann", "read", THERE)
            first = client.revision()
            # The root entity is gone from the state; its bundle stays with who has it.
            service.put("people", '"2"', shard_bundles(lake, only_here)[PartText.PEOPLE])
            service.take("there")
            until(lambda: client.revision() != first)
            assert not client.check("ann", "read", THERE)
            assert client.check("ann", "read", HERE)


def test_the_revision_tells_of_every_shard_so_nothing_kept_outlives_its_shard(
    lake: Program, opa_binary: Path, tmp_path: Path
) -> None:
    both = shard_bundles(lake, STATE)
    policy = policy_artifacts(lake, sharded=True).bundle()
    with BundleService() as service:
        service.put("policy", '"1"', policy)
        names = {PartText.PEOPLE: "people", ROOT_HERE: "here", ROOT_THERE: "there"}
        for key, name in names.items():
            service.put(name, '"1"', both[key])
        config = tmp_path / "opa.json"
        config.write_text(service.config(["policy", *names.values()]))
        with OpaServer(binary=opa_binary, config=config) as opa, Client(opa.url, cache_size=100) as client:
            until(client.health)
            expected = Index(together_document(lake, STATE))
            assert client.revision().state == expected.revision
            assert client.check("ann", "read", THERE)
            service.put("there", '"2"', shard_bundles(lake, State(grants=GRANTS[:2] + GRANTS[3:]))[ROOT_THERE])
            until(lambda: client.revision().state != expected.revision)
            until(lambda: not client.check("ann", "read", THERE))


def together_document(program: Program, state: State) -> dict[str, object]:
    documents = shards(program, state)
    found: dict[str, object] = dict(documents.pop(PartText.PEOPLE))
    at: dict[str, object] = {}
    for key, document in documents.items():
        at |= content(key, document)["at"]
    return found | {"at": at}


def test_the_policy_of_a_state_in_parts_has_no_answers_by_a_whole_one(
    lake: Program, opa_binary: Path, tmp_path: Path
) -> None:
    (tmp_path / "policy.tar.gz").write_bytes(policy_artifacts(lake, sharded=True).bundle())
    (tmp_path / "state.tar.gz").write_bytes(state_bundle(lake, STATE))
    bundles_ = [tmp_path / "policy.tar.gz", tmp_path / "state.tar.gz"]
    unanswered = pytest.raises(DecisionUnavailable, match="no state bundle is active")
    with OpaServer(bundles_, binary=opa_binary) as opa, Client(opa.url) as client, unanswered:
        client.check("ann", "read", HERE)


def test_the_rego_of_parts_is_strict_and_formatted(lake: Program, opa_binary: Path, tmp_path: Path) -> None:
    for name, text in policy_artifacts(lake, sharded=True).files().items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    for command in (("check", "--strict", "--bundle", tmp_path), ("fmt", "--list", tmp_path / "privtab")):
        done = subprocess.run([opa_binary, *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout == ""


@pytest.mark.parametrize("in_shards", [True, False], ids=["whole-policy", "sharded-policy"])
def test_a_policy_and_a_state_of_two_layouts_give_no_answers(
    in_shards: bool, lake: Program, opa_binary: Path, tmp_path: Path
) -> None:
    parts = list(shard_bundles(lake, STATE).values()) if in_shards else [state_bundle(lake, STATE)]
    loaded = {}
    for number, bundle in enumerate([policy_artifacts(lake, sharded=not in_shards).bundle(), *parts]):
        loaded[f"part{number}"] = tmp_path / f"{number}.tar.gz"
        loaded[f"part{number}"].write_bytes(bundle)
    with OpaServer(loaded, binary=opa_binary) as server, Client(server.url) as client:
        with pytest.raises((DecisionUnavailable, PolicyError)):
            client.check("ann", "read", HERE)
        with pytest.raises((DecisionUnavailable, PolicyError)):
            client.visible("ann", "read", "table", ["a%2Fb/z/t"])
