"""`Embedded`: bundles from everywhere, kept current, the same answers and the same refusals as any client."""

from __future__ import annotations

import contextlib
import gzip
import logging
import os
import pickle
import shutil
import socket
import ssl
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from failing_servers import Authority

from privtab import pipeline
from privtab.base.errors import DecisionUnavailable, FileError, InvalidRequest, UsageError
from privtab.base.request import AccessDenied, Entity, Request
from privtab.base.resources import how_to_install
from privtab.bundle import state_bundle
from privtab.bundle.archive import json_bytes, packed_archive
from privtab.client import _bundles
from privtab.client._base import Asker
from privtab.client._bundled import BundledEngine
from privtab.client._observe import Outcome, Question
from privtab.client.embedded import SEVERAL, Embedded
from privtab.engines.opa.server import FileService
from privtab.engines.python import MANY
from privtab.ir.nodes import Program
from privtab.pipeline import policy_artifacts
from privtab.state.load import from_tables, validate

POLICY = """
privtab: 1
system: shop
version: '1'
entities:
  shop:
    shelf: {box:}
privileges: [LOOK, TAKE]
semantics: {inheritance: down, deny: overrides, owner: {kinds: [user]}}
tables:
  box:
    look: LOOK (box)
    list: {each: LOOK (box)}
    move: {with: {target: shelf}, requires: TAKE (box) and LOOK (target)}
    take: {requires: "TAKE (box) and (owner (shelf) when careful)", grants: LOOK (box)}
"""
GRANTS = [
    {"grantee": "user:ann", "effect": "allow", "privilege": "LOOK", "entity": "shop:s"},
    {"grantee": "user:ann", "effect": "deny", "privilege": "LOOK", "entity": "box:s/a/2"},
    {"grantee": "user:bob", "effect": "allow", "privilege": "TAKE", "entity": "shelf:s/a"},
]


class BundleFiles:
    """Writes the bundles, as deploying does: in one step, under names that stay."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.policy = folder / "policy.tar.gz"
        self.state = folder / "state.tar.gz"

    def program(self, text: str = POLICY) -> Program:
        file = self.folder / "shop.yaml"
        file.write_text(text, encoding="utf-8")
        return pipeline.load_program(file)

    def put_policy(self, text: str = POLICY) -> None:
        self.replace(self.policy, policy_artifacts(self.program(text)).bundle())

    def put_state(self, grants: list[dict[str, str]]) -> None:
        program = self.program()
        state, findings = validate(program, from_tables({"grants": grants}, "rows"))
        assert not findings
        self.replace(self.state, state_bundle(program, state))

    def replace(self, path: Path, content: bytes) -> None:
        new = path.with_suffix(".new")
        new.write_bytes(content)
        new.replace(path)


@pytest.fixture
def bundle_files(tmp_path: Path) -> BundleFiles:
    """A policy and a state."""
    files = BundleFiles(tmp_path)
    files.put_policy()
    files.put_state(GRANTS)
    return files


@pytest.fixture
def client(bundle_files: BundleFiles) -> Iterator[Embedded]:
    """Over both, without refreshing."""
    with Embedded(bundle_files.policy, bundle_files.state) as embedded:
        yield embedded


# --- asking ---


def test_every_way_to_ask(client: Embedded) -> None:
    assert client.check("ann", "look", "box:s/a/1") is True
    assert client.check("ann", "look", ("box", "s/a/2")) is False
    assert client.check("ann", "look", Entity("box", "s/a/1")) is True
    assert client.check(Request(user="ann", action="look", resource=Entity("box", "s/a/1"))) is True
    assert client.check("nobody", "look", "box:s/a/1") is False
    assert client.check("bob", "take", "box:s/a/1") is True
    assert client.check("bob", "take", "box:s/a/1", flags=["careful"]) is False
    assert client.check("bob", "move", "box:s/a/1", with_={"target": "shelf:s/b"}) is False
    assert client.visible("ann", "list", "box", ["s/a/1", "s/a/2", "s/b/2"]) == ["s/a/1", "s/b/2"]
    assert client.filter("ann", "look", ["box:s/a/2", "box:s/a/3"]) == ["box:s/a/3"]
    assert client.effects("bob", "take", "box:s/a/1") == ("grant LOOK (box:s/a/1)",)
    with pytest.raises(AccessDenied, match=r"a denial of LOOK \(box:s/a/2\) to user:ann"):
        client.require("ann", "look", "box:s/a/2")


def test_plain_requests_are_decided_one_by_one_until_columns_are_faster(
    client: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    columns = BundledEngine.columns

    def noted(engine: BundledEngine, requests: Sequence[Request]) -> list[bool] | None:
        asked.append(len(requests))
        return columns(engine, requests)

    monkeypatch.setattr(BundledEngine, "columns", noted)
    plain = Request(user="ann", action="look", resource=Entity("box", "s/a/1"))
    grouped = Request(user="ann", action="look", resource=Entity("box", "s/a/1"), groups=("g",))
    for requests in ([plain] * 10, [plain] * (SEVERAL - 1), [plain] * SEVERAL, [plain] * MANY + [grouped]):
        assert client.check_many(requests) == [True] * len(requests)
    assert asked == [SEVERAL]


def test_requests_with_details_do_not_slow_the_others(client: Embedded, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[list[Request]] = []
    general = Asker.check_many

    def noted(asker: Asker, requests: Iterable[Request]) -> list[bool]:
        checked.append(list(requests))
        return general(asker, checked[-1])

    monkeypatch.setattr(Asker, "check_many", noted)
    plain = [Request(user="ann", action="look", resource=Entity("box", f"s/a/{n}")) for n in (1, 2, 3)]
    grouped = replace(plain[0], user="bob", groups=("g",))
    assert client.check_many([*plain, grouped, *plain]) == [*[True, False, True], False, *[True, False, True]]
    assert checked == [[grouped]]
    assert client.check_many([grouped, grouped, plain[0]]) == [False, False, True]
    assert len(checked[1]) == 3  # it is no use to look at them twice
    wrong = replace(grouped, resource=Entity("box", "s/a"))
    with pytest.raises(InvalidRequest, match="request 2: wrong depth"):
        client.check_many([*plain[:2], wrong, plain[2]])


def test_one_version_of_the_state_answers_a_call(client: Embedded, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Request(user="ann", action="look", resource=Entity("box", "s/a/1"))
    opened = client._shortcuts()
    versions = iter([opened, dict(opened)])
    monkeypatch.setattr(Embedded, "_shortcuts", lambda _: next(versions))
    assert client._quickly([plain]) is None


def test_a_decision_says_all_that_opa_says(client: Embedded) -> None:
    decision = client.decide("ann", "look", "box:s/a/1")
    assert decision.allowed
    assert decision.context["reasons"] == [{"atom": "LOOK (box:s/a/1)", "on": "shop:s", "through": "user:ann"}]
    assert decision.rule == "shop/box/look"
    assert decision.revision == client.revision().policy
    assert decision.id


def test_many_at_once(client: Embedded) -> None:
    requests = [Request(user="ann", action="look", resource=Entity("box", f"s/a/{n % 7}")) for n in range(MANY * 2)]
    expected = [n % 7 != 2 for n in range(MANY * 2)]
    assert client.check_many(requests) == expected
    assert client.check_many(iter(requests)) == expected
    assert client.check_many(requests[:3]) == expected[:3]
    assert [decision.allowed for decision in client.decide_many(requests[:9])] == expected[:9]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ann", "lok", "box:s/a/1"), "did you mean `look`"),
        (("ann", "look", "bx:s/a/1"), "unknown entity type"),
        (("ann", "look", "box:s/a"), "wrong depth"),
        (("ann", "look", "box:s//1"), "malformed path"),
        (("ann", "look", "box:s/a/50%"), "malformed path"),
        (("ann", "look", "s/a/1"), "not an entity"),
        (("ann", "look", ("box",)), "write `type:path`"),
        (("ann", "look", ("box", None)), "write `type:path`"),
        (("ann", "look", None), "write `type:path`"),
        (("", "look", "box:s/a/1"), "non-empty"),
        ((None, "look", "box:s/a/1"), "non-empty"),
        ((["ann"], "look", "box:s/a/1"), "non-empty"),
        (("ann", ["look"], "box:s/a/1"), "non-empty"),
        (("\ud800", "look", "box:s/a/1"), r"character U\+D800"),
        (("ann", "look", "box:s/a/\ud800"), r"character U\+D800"),
        (("bob", "move", "box:s/a/1"), "needs context.with.target"),
    ],
)
def test_invalid_requests_are_refused(client: Embedded, arguments: tuple[Any, ...], message: str) -> None:
    for ask in (client.check, client.decide, client.require):
        with pytest.raises(InvalidRequest, match=message):
            ask(*arguments)


def test_one_wrong_request_among_many_is_named(client: Embedded) -> None:
    requests = [Request(user="ann", action="look", resource=Entity("box", "s/a/1"))] * (MANY + 1)
    requests[700] = Request(user="ann", action="look", resource=Entity("box", "s/a"))
    with pytest.raises(InvalidRequest, match="request 700: wrong depth"):
        client.check_many(requests)


def test_hooks_are_called_for_quick_checks_too(bundle_files: BundleFiles) -> None:
    reports: list[tuple[Question, Outcome]] = []
    with Embedded(bundle_files.policy, bundle_files.state, hooks=[lambda *both: reports.append(both)]) as client:
        client.check("ann", "look", "box:s/a/1")
        client.check_many([Request(user="ann", action="look", resource=Entity("box", "s/a/2"))] * MANY)
    assert [(question.kind, question.engine, outcome.allowed) for question, outcome in reports] == [
        ("check", "python", 1),
        ("check_many", "python", 0),
    ]


def test_observing_lets_pass_and_says_so(bundle_files: BundleFiles, caplog: pytest.LogCaptureFixture) -> None:
    with Embedded(bundle_files.policy, bundle_files.state, mode="observe") as client:
        assert client.check("bob", "look", "box:s/a/1") is True
        assert client.check_many([Request(user="bob", action="look", resource=Entity("box", "s/a/2"))] * MANY) == (
            [True] * MANY
        )
    assert "would be denied" in caplog.text


def test_columns_are_answered_with_what_is_in_force(bundle_files: BundleFiles, client: Embedded) -> None:
    batches = client.batches()
    assert batches.decide_columns(["ann", "bob"], ["s/a/1", "s/a/1"], action="look", type="box").allowed.tolist() == [
        True,
        False,
    ]
    bundle_files.put_state(GRANTS[1:])
    client.refresh()
    for kernel, allowed in ((batches, True), (client.batches(), False)):
        assert kernel.decide_columns(["ann"], ["s/a/1"], action="look", type="box").allowed.tolist() == [allowed]


# --- where bundles come from ---


def test_a_folder_a_package_an_address_and_a_bundle_that_is_a_folder(
    bundle_files: BundleFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(tmp_path / "wheel.zip", "w") as wheel:
        wheel.writestr("shop_policies/__init__.py", "")
        wheel.write(bundle_files.policy, "shop_policies/policy.tar.gz")
        wheel.write(bundle_files.state, "shop_policies/inner/state.tar.gz")
        wheel.writestr("shop_policies/inner/__init__.py", "")
    monkeypatch.syspath_prepend(str(tmp_path / "wheel.zip"))
    loose = tmp_path / "loose"
    for name, content in policy_artifacts(bundle_files.program()).files().items():
        (loose / name).parent.mkdir(parents=True, exist_ok=True)
        (loose / name).write_bytes(content)
    nested = tmp_path / "build" / "shop" / "1"
    nested.mkdir(parents=True)
    for path in (bundle_files.policy, bundle_files.state):
        (nested / path.name).write_bytes(path.read_bytes())
    with FileService({"policy": bundle_files.policy, "state": bundle_files.state}) as service:
        address = service.url + FileService.resource("policy")
        for sources in (
            (bundle_files.folder,),
            (tmp_path / "build",),
            ("package:shop_policies", "package:shop_policies/inner/state.tar.gz"),
            (address, service.url + FileService.resource("state")),
            (loose, bundle_files.state),
        ):
            with Embedded(*sources) as client:
                assert client.check("ann", "look", "box:s/a/1"), sources
                assert client.system == "shop"
    sys.modules.pop("shop_policies", None)


def test_missing_places_are_reported(bundle_files: BundleFiles, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    for source in ("missing.tar.gz", tmp_path / "none", empty, "package:no_such_package", "package:json/none.tar.gz"):
        with pytest.raises(FileError):
            Embedded(source, bundle_files.state)
    with FileService({"policy": bundle_files.policy}) as service:
        with pytest.raises(DecisionUnavailable, match="404"):
            Embedded(service.url + "/bundles/other.tar.gz", bundle_files.state)
        gone = service.url + FileService.resource("policy")
    with pytest.raises(DecisionUnavailable, match="did not answer"):
        Embedded(gone, bundle_files.state, timeout=0.5)
    with pytest.raises(DecisionUnavailable, match="no state bundle"):
        Embedded(bundle_files.policy)
    with pytest.raises(DecisionUnavailable, match="no bundle is active"):
        Embedded(bundle_files.state)
    with pytest.raises(DecisionUnavailable, match="`other`"):
        Embedded(bundle_files.policy, bundle_files.state, system="other")
    (tmp_path / "again.tar.gz").write_bytes(bundle_files.policy.read_bytes())
    with pytest.raises(UsageError, match="both hold `shop`"):
        Embedded(bundle_files.policy, tmp_path / "again.tar.gz", bundle_files.state)
    with pytest.raises(UsageError, match="give bundles"):
        Embedded()
    with pytest.raises(UsageError, match="there is no engine `cobol`"):
        Embedded(bundle_files.policy, engine="cobol")


def broken(bundle_files: BundleFiles) -> dict[str, bytes]:
    """Bundles that are none."""
    whole = bundle_files.policy.read_bytes()
    flipped = bytearray(whole)
    flipped[len(flipped) // 2] ^= 0xFF
    program = json_bytes({"system": "shop", "rules": "none"})
    root = "privtab_program/shop"
    return {
        "truncated": whole[: len(whole) // 2],
        "without its end": whole[:-4],
        "flipped": bytes(flipped),
        "empty": b"",
        "text": b"<html>sign in</html>",
        "without a manifest": packed_archive({f"{root}/data.json": program}),
        "not JSON": packed_archive({".manifest": json_bytes({"roots": [root]}), f"{root}/data.json": b"{"}),
        "outside its roots": packed_archive({".manifest": json_bytes({"roots": ["a"]}), f"{root}/data.json": program}),
        "no program": packed_archive({".manifest": json_bytes({"roots": [root]}), f"{root}/data.json": program}),
        "a list": packed_archive({".manifest": json_bytes({"roots": [root]}), f"{root}/data.json": b"[]"}),
    }


def test_a_broken_bundle_is_no_bundle(bundle_files: BundleFiles) -> None:
    good = bundle_files.policy.read_bytes()
    for name, content in broken(bundle_files).items():
        bundle_files.replace(bundle_files.policy, content)
        with pytest.raises((DecisionUnavailable, FileError)) as error:
            Embedded(bundle_files.policy, bundle_files.state)
        assert str(error.value), name
    bundle_files.replace(bundle_files.policy, good)
    state = packed_archive(
        {
            ".manifest": json_bytes({"roots": ["privtab_state/shop"]}),
            "privtab_state/shop/data.json": json_bytes({"revision": "x", "allow": []}),
        }
    )
    bundle_files.replace(bundle_files.state, state)
    with pytest.raises(DecisionUnavailable, match="not an index"):
        Embedded(bundle_files.policy, bundle_files.state)


def test_a_bundle_unpacks_to_so_much_and_no_more(bundle_files: BundleFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    large = packed_archive({"privtab_program/shop/data.json": bytes(20_000)})
    bundle_files.replace(bundle_files.policy, large)
    with monkeypatch.context() as patch:
        patch.setattr("privtab.bundle.archive.LARGEST", 10_000)
        with pytest.raises(DecisionUnavailable, match="unpacks to more than"):
            Embedded(bundle_files.policy, bundle_files.state)
    with monkeypatch.context() as patch:
        patch.setattr(_bundles, "LARGEST", 50)
        with pytest.raises(DecisionUnavailable, match="MiB is the most"):
            Embedded(bundle_files.policy, bundle_files.state)
    sparse = tarfile.TarInfo("data.json")
    sparse.type = tarfile.GNUTYPE_SPARSE
    header = bytearray(sparse.tobuf(tarfile.GNU_FORMAT))
    header[483:495] = b"%011o\0" % (8 << 30)  # the size that it says it has
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    bundle_files.replace(bundle_files.policy, gzip.compress(bytes(header) + bytes(1024)))
    with pytest.raises(DecisionUnavailable, match="is sparse"):
        Embedded(bundle_files.policy, bundle_files.state)


# --- newer bundles ---


def test_a_revoked_grant_is_seen(bundle_files: BundleFiles) -> None:
    with Embedded(bundle_files.policy, bundle_files.state, refresh=0) as client:
        before = client.revision()
        assert client.check("ann", "look", "box:s/a/1")
        bundle_files.put_state(GRANTS[1:])
        assert not client.check("ann", "look", "box:s/a/1")
        assert not client.decide("ann", "look", "box:s/a/1").allowed
        assert client.check_many([Request(user="ann", action="look", resource=Entity("box", "s/a/1"))] * MANY) == (
            [False] * MANY
        )
        assert client.revision().state != before.state
        assert client.revision().policy == before.policy


def test_a_new_operation_is_known_at_once(bundle_files: BundleFiles) -> None:
    with Embedded(bundle_files.policy, bundle_files.state, refresh=0) as client:
        with pytest.raises(InvalidRequest):
            client.check("ann", "peek", "box:s/a/1")
        bundle_files.put_policy(POLICY + "    peek: LOOK (box)\n")
        assert client.check("ann", "peek", "box:s/a/1")


def test_without_refresh_nothing_changes_until_it_is_requested(bundle_files: BundleFiles, client: Embedded) -> None:
    bundle_files.put_state(GRANTS[1:])
    assert client.check("ann", "look", "box:s/a/1")
    assert client.refresh() is True
    assert not client.check("ann", "look", "box:s/a/1")
    assert client.refresh() is False


def test_no_look_before_it_is_due(bundle_files: BundleFiles) -> None:
    with Embedded(bundle_files.policy, bundle_files.state, refresh=0.5) as client:
        bundle_files.put_state(GRANTS[1:])
        assert client.check("ann", "look", "box:s/a/1")
        time.sleep(0.6)
        assert not client.check("ann", "look", "box:s/a/1")


def test_a_bundle_that_breaks_leaves_the_last_good_one(
    bundle_files: BundleFiles, caplog: pytest.LogCaptureFixture
) -> None:
    good = bundle_files.policy.read_bytes()
    with Embedded(bundle_files.policy, bundle_files.state, refresh=0) as client:
        for name, content in broken(bundle_files).items():
            bundle_files.replace(bundle_files.policy, content)
            caplog.clear()
            assert client.check("ann", "look", "box:s/a/1"), name
            assert client.problem, name
            assert "the last good ones stay in force" in caplog.text, name
            assert client.check("bob", "look", "box:s/a/1") is False
            assert len(caplog.records) == 1, f"{name}: the same is said once"
            with pytest.raises((DecisionUnavailable, FileError)):
                client.refresh()
            bundle_files.replace(bundle_files.policy, good)
            assert client.refresh() in (True, False)
            assert client.problem is None
        bundle_files.policy.unlink()
        assert client.check("ann", "look", "box:s/a/1")
        bundle_files.replace(bundle_files.policy, good)
        assert client.check("ann", "look", "box:s/a/1")
        assert client.problem is None


def test_a_state_that_is_too_old_is_not_used(bundle_files: BundleFiles) -> None:
    with Embedded(bundle_files.policy, bundle_files.state, refresh=0.05, max_staleness=0.4) as client:
        time.sleep(0.5)
        assert client.check("ann", "look", "box:s/a/1"), "it was looked at just now"
        bundle_files.state.unlink()
        assert client.check("ann", "look", "box:s/a/1"), "the last good one stays for a while"
        time.sleep(0.5)
        with pytest.raises(DecisionUnavailable, match="too old"):
            client.check("ann", "look", "box:s/a/1")
        assert client.health() is False
        with pytest.raises(DecisionUnavailable):
            client.check_many([Request(user="ann", action="look", resource=Entity("box", "s/a/1"))] * MANY)
        bundle_files.put_state(GRANTS)
        time.sleep(0.06)
        assert client.check("ann", "look", "box:s/a/1")
        assert client.health() is True


@pytest.mark.parametrize("shift", [-3600.0, 3600.0])
def test_staleness_does_not_depend_on_the_wall_clock(
    bundle_files: BundleFiles, monkeypatch: pytest.MonkeyPatch, shift: float
) -> None:
    real = time.time
    with Embedded(bundle_files.policy, bundle_files.state, refresh=0.05, max_staleness=0.4) as client:
        monkeypatch.setattr(time, "time", lambda: real() + shift)
        assert client.check("ann", "look", "box:s/a/1"), "the clock was set, and nothing is older for that"
        bundle_files.state.unlink()
        time.sleep(0.5)
        with pytest.raises(DecisionUnavailable, match="too old"):
            client.check("ann", "look", "box:s/a/1")


def test_a_copy_is_as_old_as_what_it_was_made_of(bundle_files: BundleFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.time
    with Embedded(bundle_files.policy, bundle_files.state, max_staleness=60) as client:
        packed = pickle.dumps(client)
    with pickle.loads(packed) as copy:  # noqa: S301  (our own)
        assert copy.check("ann", "look", "box:s/a/1")
    monkeypatch.setattr(time, "time", lambda: real() + 61)
    with pickle.loads(packed) as late, pytest.raises(DecisionUnavailable, match="too old"):  # noqa: S301
        late.check("ann", "look", "box:s/a/1")


def test_an_address_is_fetched_anew_only_when_it_changed(bundle_files: BundleFiles) -> None:
    with FileService({"policy": bundle_files.policy, "state": bundle_files.state}) as service:
        addresses = [service.url + FileService.resource(name) for name in ("policy", "state")]
        with Embedded(*addresses, refresh=0) as client:
            loaded = client._bundled.now()
            assert client._bundled.now() is loaded, "nothing was read again"
            bundle_files.put_state(GRANTS[1:])
            assert not client.check("ann", "look", "box:s/a/1")
            policy = addresses[0]
            assert client._bundled.now().bundles[policy] is loaded.bundles[policy]
    with Embedded(bundle_files.policy, bundle_files.state) as client:
        assert client.check("ann", "look", "box:s/a/1") is False


class Addresses(BaseHTTPRequestHandler):
    """Gives the bundles of a folder, or sends on to where they are."""

    tokens: ClassVar[list[str | None]] = []
    folder: ClassVar[Path]
    elsewhere: ClassVar[str | None]

    def do_GET(self) -> None:
        self.tokens.append(self.headers.get("Authorization"))
        content = b"" if self.elsewhere else (self.folder / self.path[1:]).read_bytes()
        self.send_response(302 if self.elsewhere else 200)
        if self.elsewhere:
            self.send_header("Location", self.elsewhere + self.path)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def addresses(
    bundle_files: BundleFiles, *, elsewhere: str | None = None, authority: Authority | None = None
) -> Iterator[str]:
    handler = type(
        "Handler", (Addresses,), {"folder": bundle_files.folder, "elsewhere": elsewhere, "tokens": Addresses.tokens}
    )
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    if authority is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*authority.sign(f"bundles-{server.server_port}"))
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http{'s' if authority else ''}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def test_the_token_for_bundles_is_the_one_that_was_given(
    bundle_files: BundleFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = bundle_files.folder / "netrc"
    netrc.write_text("machine 127.0.0.1 login somebody password else")
    monkeypatch.setenv("NETRC", str(netrc))
    Addresses.tokens.clear()
    with addresses(bundle_files) as at:
        Embedded(f"{at}/policy.tar.gz", state=f"{at}/state.tar.gz", token="bundle-reader").close()  # noqa: S106  (a test's own)
    assert Addresses.tokens == ["Bearer bundle-reader"] * 2


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")
def test_bundles_of_https_addresses_are_fetched_by_https(bundle_files: BundleFiles, tmp_path: Path) -> None:
    """Whoever sits between could otherwise put a policy of their own in their place."""
    authority = Authority(tmp_path / "ca")
    verify = str(authority.certificate)
    with (
        addresses(bundle_files) as plain,
        addresses(bundle_files, elsewhere=plain, authority=authority) as at,
        pytest.raises(DecisionUnavailable, match="not https"),
    ):
        Embedded(f"{at}/policy.tar.gz", bundle_files.state, verify=verify)
    with (
        addresses(bundle_files, authority=authority) as secret,
        addresses(bundle_files, elsewhere=secret, authority=authority) as at,
        Embedded(f"{at}/policy.tar.gz", bundle_files.state, verify=verify) as client,
    ):
        assert client.check("ann", "look", "box:s/a/1")


def test_a_bundle_that_drips_in_has_an_end(
    bundle_files: BundleFiles, raw_server: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("privtab.client._bundles.LONGEST", 0.3)

    def drip(connection: socket.socket, path: str) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        with contextlib.suppress(OSError):
            for _ in range(200):
                connection.sendall(b"x")
                time.sleep(0.05)

    began = time.monotonic()
    with pytest.raises(DecisionUnavailable, match="in time"):
        Embedded(raw_server(drip).url + "/policy.tar.gz", bundle_files.state)
    assert time.monotonic() - began < 5


def test_threads_see_one_state_or_the_other(bundle_files: BundleFiles) -> None:
    """Two grants that are never there together: nobody ever sees both or neither."""
    first = {"grantee": "user:ann", "effect": "allow", "privilege": "LOOK", "entity": "box:s/a/1"}
    second = first | {"entity": "box:s/a/2"}
    bundle_files.put_state([first])
    requests = [Request(user="ann", action="look", resource=Entity("box", f"s/a/{n}")) for n in (1, 2)]
    wrong: list[object] = []
    ended = threading.Event()
    with Embedded(bundle_files.policy, bundle_files.state, refresh=0) as client:

        def ask() -> None:
            while not ended.is_set():
                try:
                    answers = client.check_many(requests * (MANY // 2))
                except Exception as error:  # noqa: BLE001  (told below)
                    wrong.append(error)
                    return
                if answers not in ([True, False] * (MANY // 2), [False, True] * (MANY // 2)):
                    wrong.append(answers[:2])

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        for turn in range(10):
            bundle_files.put_state([second if turn % 2 == 0 else first])
            time.sleep(0.03)
        ended.set()
        for thread in threads:
            thread.join()
    assert not wrong


# --- other processes ---


def test_a_pickled_client_brings_policy_and_state_along(
    bundle_files: BundleFiles, caplog: pytest.LogCaptureFixture
) -> None:
    with Embedded(bundle_files.policy, bundle_files.state, refresh=0) as client:
        packed = pickle.dumps(client)
    bundle_files.policy.unlink()
    bundle_files.state.unlink()
    with pickle.loads(packed) as copy:  # noqa: S301  (our own)
        assert copy.check("ann", "look", "box:s/a/1")
        assert not copy.check("bob", "look", "box:s/a/1")
        assert "stay in force" in caplog.text


def test_a_pickled_client_is_as_old_as_its_bundles(bundle_files: BundleFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job may wait for an hour before it runs; that hour counts."""
    with Embedded(bundle_files.policy, bundle_files.state, refresh=60) as client:
        packed = pickle.dumps(client)
    bundle_files.put_state(GRANTS[1:])
    with pickle.loads(packed) as copy:  # noqa: S301  (our own)
        assert copy.check("ann", "look", "box:s/a/1")
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 61)
    with pickle.loads(packed) as copy:  # noqa: S301
        assert not copy.check("ann", "look", "box:s/a/1")


def test_a_forked_process_goes_on(bundle_files: BundleFiles) -> None:
    with Embedded(bundle_files.policy, bundle_files.state, refresh=0) as client:
        # A thread that is loading while the process forks leaves its lock behind.
        client._bundled._lock.acquire()
        try:
            child = os.fork()
            if child == 0:
                bundle_files.put_state(GRANTS[1:])
                os._exit(int(client.check("ann", "look", "box:s/a/1")))
        finally:
            client._bundled._lock.release()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_no_thread_is_left(bundle_files: BundleFiles) -> None:
    before = threading.active_count()
    with Embedded(bundle_files.policy, bundle_files.state, refresh=0) as client:
        client.check("ann", "look", "box:s/a/1")
        assert threading.active_count() == before


# --- the engine ---


def test_the_policy_of_a_bundle_with_wasm_is_decided_by_its_program(bundle_files: BundleFiles) -> None:
    artifacts = policy_artifacts(bundle_files.program())
    (bundle_files.folder / "policy.wasm.tar.gz").write_bytes(artifacts.wasm_bundle(b"a module"))
    alone = [bundle_files.folder / "policy.wasm.tar.gz", bundle_files.state]
    for sources in (alone, [bundle_files.folder], [alone[0], bundle_files.folder]):
        with Embedded(*sources) as client:
            assert client.status().engine == "python"
            assert client.check("ann", "look", "box:s/a/1")
            assert not client.check("bob", "look", "box:s/a/1")


def test_there_is_one_engine(bundle_files: BundleFiles) -> None:
    with Embedded(bundle_files.policy, bundle_files.state, engine="python") as client:
        assert client.check("ann", "look", "box:s/a/1")
    with pytest.raises(UsageError, match=r"there is no engine `wasm` in process: leave `engine` out"):
        Embedded(bundle_files.policy, bundle_files.state, engine="wasm")


ALONE = """
import sys

class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"numpy", "pyarrow", "yaml", "lark", "jinja2", "typer", "httpcore"}:
            raise ImportError(name, name=name)

sys.meta_path.insert(0, Refused())
from privtab import Embedded, Entity, Request, UsageError

client = Embedded(sys.argv[1], sys.argv[2])
asked = [Request(user="ann", action="look", resource=Entity("box", f"s/a/{n % 2 + 1}")) for n in range(3000)]
assert client.check_many(asked) == [True, False] * 1500
assert client.check("ann", "look", "box:s/a/1")
assert client.decide("ann", "look", "box:s/a/1").allowed
try:
    client.batches()
except UsageError as error:
    print(error)
"""


def test_the_base_install_is_enough(bundle_files: BundleFiles) -> None:
    command = [sys.executable, "-c", ALONE, str(bundle_files.policy), str(bundle_files.state)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"a batch of columns needs numpy: {how_to_install('fast')}"]


def test_a_client_shows_itself(client: Embedded) -> None:
    assert "policy.tar.gz" in repr(client)
    assert "mode='enforce'" in repr(client)


def test_debug_logs_go_through_the_one_place(client: Embedded, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "privtab.client"):
        client.check("ann", "look", "box:s/a/1")
    assert "user:ann look box:s/a/1: allow" in caplog.text
