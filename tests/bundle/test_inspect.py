from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import signing_keys

from privtab import pipeline
from privtab.base.errors import BrokenBundle, FileError
from privtab.base.moments import ALWAYS, Window, parse_moment
from privtab.base.request import Entity
from privtab.base.signatures import Trust
from privtab.bundle import state_bundle
from privtab.bundle.archive import packed_archive
from privtab.bundle.inspect import inspect
from privtab.bundle.pack import shard_bundles
from privtab.bundle.sign import signed_pieces, verify_bundle
from privtab.ir.nodes import Program
from privtab.pipeline import policy_artifacts
from privtab.state.nodes import Assignment, Grant, State


@pytest.fixture(scope="module")
def program() -> Program:
    return pipeline.load_program("gravitino/1.1.0")


def state(lakes: int = 2, tables: int = 3) -> State:
    grants = [
        Grant(
            grantee=f"role:r{n}", effect="allow", privilege="SELECT_TABLE", entity=Entity("table", f"m{lake}/c/s/t{n}")
        )
        for lake in range(lakes)
        for n in range(tables)
    ]
    denial = Grant(grantee="user:ben", effect="deny", privilege="SELECT_TABLE", entity=Entity("metalake", "m0"))
    return State(
        grants=(*grants, denial),
        assignments=tuple(Assignment(principal=f"user:u{n}", role="r0") for n in range(4)),
        owners=((Entity("metalake", "m0"), "user:ann"),),
        members=(("ann", Entity("metalake", "m0")), ("ben", Entity("metalake", "m1"))),
        service_admins=("root",),
    )


def test_a_policy(program: Program) -> None:
    artifacts = policy_artifacts(program)
    found = inspect(artifacts.bundle())
    assert (found.kind, found.system, found.version) == ("policy", "gravitino", "1.1.0")
    assert found.revision == artifacts.revision
    assert found.counts["rules"] == len(program.rules)
    assert found.counts["modules"] == len(artifacts.modules)
    assert found.counts["entities"] == len(program.entities)
    assert found.bytes == len(artifacts.bundle())
    assert [file.name for file in found.files] == sorted(artifacts.files())
    assert found.roots == ("privtab/gravitino", "privtab_program/gravitino")
    assert found.signature is None


def test_a_state(program: Program) -> None:
    found = inspect(state_bundle(program, state()))
    assert found.kind == "state"
    assert found.counts == {
        "grants": 6,
        "denials": 1,
        "owners": 1,
        "members": 2,
        # ben and ann hold something themselves
        "users with roles or groups": 6,
        "service admins": 1,
    }


def test_a_role_within_a_scope_is_no_grant_of_its_own() -> None:
    streams = pipeline.load_program("streams/teracloud")
    scope = Entity("instance", "d/i")
    grant = Grant(grantee="role:r", effect="allow", privilege="read", entity=Entity("instance_hosts", "d/i"))
    assignment = Assignment(principal="user:ann", role="r", scope=scope)
    found = inspect(state_bundle(streams, State(grants=(grant,), assignments=(assignment,))))
    assert found.counts["grants"] == 1
    assert found.counts["roles within a scope"] == 1


def test_rows_with_windows_are_counted_too(program: Program) -> None:
    march = Window(parse_moment("2026-03-01T00:00:00Z"), parse_moment("2026-04-01T00:00:00Z"))
    rows = state()
    windows = {"grants": [march] * 2 + [ALWAYS] * 5, "owners": [march], "assignments": [march] + [ALWAYS] * 3}
    found = inspect(state_bundle(program, replace(rows, windows=windows)))
    assert found.counts == {
        **inspect(state_bundle(program, rows)).counts,
        "grants for a time": 2,
        "owners for a time": 1,
        "users with roles or groups for a time": 1,
    }


def test_shards(program: Program) -> None:
    found = {key: inspect(bundle) for key, bundle in shard_bundles(program, state()).items()}
    assert found["people"].kind == "people"
    assert found["people"].counts["shards"] == 2
    assert found["metalake:m0"].kind == "shard"
    assert found["metalake:m0"].counts == {"grants": 3, "denials": 1, "owners": 1, "members": 1}
    assert found["metalake:m1"].counts == {"grants": 3, "members": 1}


def test_webassembly(program: Program) -> None:
    found = inspect(policy_artifacts(program).wasm_bundle(b"\0asm 123"))
    assert found.kind == "wasm"
    assert found.counts["bytes of WebAssembly"] == 8
    assert found.counts["rules"] == len(program.rules)


def test_a_delta_of_others() -> None:
    found = inspect(packed_archive({".manifest": b'{"revision": "r"}', "patch.json": b'{"data": []}'}))
    assert (found.kind, found.revision, found.counts) == ("delta", "r", {})


@pytest.mark.parametrize(
    "files",
    [
        {"p.rego": b"package p\n\nx := 1\n", "data.json": b'{"a": 1}'},
        {".manifest": b'{"roots": [1], "metadata": []}', "privtab_state/data.json": b"[]"},
        {".manifest": b"[]", "data.json": b"nothing", "privtab_state/x/data.json": b'{"allow": [], "at": {"a": 1}}'},
        {".manifest": b'{"metadata": {"kind": "state", "system": 1}, "revision": 7}', ".signatures.json": b"{}"},
        {".signatures.json": b'{"signatures": ["a.b"]}', "patch.json": b'{"data": 1}'},
        {"privtab_program/x/data.json": b'{"rules": 1, "entities": 2}', "\xfc.txt": b""},
    ],
)
def test_those_of_others_are_looked_at_politely(files: dict[str, bytes]) -> None:
    found = inspect(packed_archive(files))
    assert found.kind in ("other", "delta")
    assert [file.name for file in found.files] == sorted(files)
    json.dumps(found.to_json())


def test_files_that_are_no_bundles(tmp_path: Path) -> None:
    for content in (b"", b"text", packed_archive({})):
        with pytest.raises(BrokenBundle):
            inspect(content)
    with pytest.raises(FileError):
        inspect(tmp_path / "gone")


def test_signatures_are_shown_and_verified(program: Program) -> None:
    pair, other = signing_keys.pair(), signing_keys.pair("ES256", 1)
    key = pair.signing(scope="prod", sequence=4)
    bundle = key.sign(state_bundle(program, state()))
    signature = inspect(bundle).signature
    assert signature is not None
    assert (signature.key, signature.algorithm, signature.scope, signature.sequence, signature.verified) == (
        key.id,
        "ES256",
        "prod",
        4,
        None,
    )
    verified = inspect(bundle, Trust.of(pair.public, "prod")).signature
    assert verified is not None
    assert verified.verified is True
    refused = inspect(bundle, Trust.of(other.public, "prod")).signature
    assert refused is not None
    assert refused.verified is False
    assert refused.key == key.id
    assert "another key" in str(refused.why)
    bare = inspect(state_bundle(program, state()), Trust.of(other.public)).signature
    assert bare is not None
    assert (bare.verified, bare.key) == (False, None)


@pytest.mark.slow
def test_large_bundles_are_not_held_several_times(program: Program, tmp_path: Path) -> None:
    """Signing and verifying go through the archive; what is written by us is hashed as it stands."""
    content = json.dumps({"a": ["x" * 1000] * 20_000}, separators=(",", ":")).encode()
    path = tmp_path / "large.tar.gz"
    path.write_bytes(packed_archive({".manifest": b"{}", "data.json": content, "big.wasm": content}))
    pair = signing_keys.pair()

    def peak(work: Callable[[], object]) -> float:
        tracemalloc.start()
        try:
            work()
            return tracemalloc.get_traced_memory()[1] / len(content)
        finally:
            tracemalloc.stop()

    def sign() -> None:
        with path.open("rb") as file, (tmp_path / "signed.tar.gz").open("wb") as out:
            for piece in signed_pieces(file, pair.signing()):
                out.write(piece)

    assert peak(sign) < 6, "of one of its files; JSON is read to be hashed as OPA does"
    assert peak(lambda: verify_bundle(tmp_path / "signed.tar.gz", Trust.of(pair.public))) < 0.5, (
        "what we wrote is hashed as it stands"
    )
