"""`Embedded` takes what somebody trusted signed, and nothing else, wherever bundles come from."""

from __future__ import annotations

import json
import logging
import os
import pickle
import sys
import tracemalloc
import zipfile
from pathlib import Path

import pytest
import signing_keys

from privtab import pipeline
from privtab.base.errors import DecisionUnavailable, FileError, PolicyError, SignatureRefused, UsageError
from privtab.bundle import state_bundle
from privtab.bundle.archive import packed_archive
from privtab.bundle.pack import shard_bundles
from privtab.client import connect
from privtab.client.embedded import Embedded
from privtab.engines.opa.server import FileService
from privtab.pipeline import policy_artifacts
from privtab.state.load import from_tables, validate

POLICY = """
privtab: 1
system: shop
version: '1'
entities: {shop: {box:}}
privileges: [LOOK]
semantics: {inheritance: down}
tables: {box: {look: LOOK (box)}}
"""
GRANT = {"grantee": "user:ann", "effect": "allow", "privilege": "LOOK", "entity": "shop:s"}
OURS, OTHER = signing_keys.pair("ES256"), signing_keys.pair("ES256", 1)


class SignedFiles:
    """A policy and a state, signed, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "shop.yaml").write_text(POLICY, encoding="utf-8")
        self.program = pipeline.load_program(folder / "shop.yaml")
        self.policy, self.state = folder / "policy.tar.gz", folder / "state.tar.gz"
        self.private, self.key = OURS.write(folder, "ours")
        self.put(self.policy, OURS.signing(sequence=5).sign(policy_artifacts(self.program).bundle()))
        self.put(self.state, self.with_grants())

    def with_grants(
        self, *users: str, sequence: int | None = 5, pair: signing_keys.KeyPair = OURS, scope: str = ""
    ) -> bytes:
        rows = [GRANT | {"grantee": f"user:{user}"} for user in users or ("ann",)]
        state, _ = validate(self.program, from_tables({"grants": rows}, "rows"))
        return pair.signing(sequence=sequence, scope=scope).sign(state_bundle(self.program, state))

    @staticmethod
    def put(path: Path, content: bytes) -> None:
        new = path.with_suffix(".new")
        new.write_bytes(content)
        new.replace(path)


@pytest.fixture
def signed_files(tmp_path: Path) -> SignedFiles:
    return SignedFiles(tmp_path)


def test_bundles_signed_with_the_key_are_used(signed_files: SignedFiles) -> None:
    with Embedded(signed_files.policy, signed_files.state, verification_key=signed_files.key) as client:
        assert client.check("ann", "look", "box:s/1")
    with Embedded(signed_files.policy, signed_files.state, verification_key=[OTHER.public, signed_files.key]) as client:
        assert client.check("ann", "look", "box:s/1")
    with connect(signed_files.folder, verification_key=signed_files.key) as asker:
        assert asker.check("ann", "look", "box:s/1")


def test_the_environment_names_the_key(signed_files: SignedFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    other = OTHER.write(signed_files.folder, "other")[1]
    monkeypatch.setenv("PRIVTAB_VERIFICATION_KEY", f"{other},{signed_files.key}")
    with connect(signed_files.folder) as client:
        assert client.check("ann", "look", "box:s/1")
    monkeypatch.setenv("PRIVTAB_VERIFICATION_KEY", str(other))
    with pytest.raises(SignatureRefused, match="signed with another key"):
        connect(signed_files.folder)
    monkeypatch.setenv("PRIVTAB_VERIFICATION_KEY", OURS.public)
    monkeypatch.setenv("PRIVTAB_VERIFICATION_SCOPE", "prod")
    with pytest.raises(SignatureRefused, match="signed for no scope, not for the scope `prod`"):
        connect(signed_files.folder)
    signed_files.put(
        signed_files.policy, OURS.signing(scope="prod").sign(policy_artifacts(signed_files.program).bundle())
    )
    signed_files.put(signed_files.state, signed_files.with_grants(scope="prod"))
    connect(signed_files.folder).close()


@pytest.mark.parametrize("what", signing_keys.tampered(OURS.signing().sign(packed_archive({"data.json": b"{}"}))))
def test_tampered_bundles_are_refused(signed_files: SignedFiles, what: str) -> None:
    for path in (signed_files.policy, signed_files.state):
        good = path.read_bytes()
        signed_files.put(path, signing_keys.tampered(good)[what])
        with pytest.raises(SignatureRefused, match=path.name) as refused:
            Embedded(signed_files.policy, signed_files.state, verification_key=signed_files.key)
        assert isinstance(refused.value, PolicyError)
        signed_files.put(path, good)


def test_a_public_key_is_no_secret(signed_files: SignedFiles) -> None:
    """The key that verifies is known to everybody; a token that takes it for a secret must not pass."""
    signed_files.put(signed_files.state, signing_keys.forged(signed_files.state.read_bytes(), "HS256", OURS.public))
    with pytest.raises(SignatureRefused, match="`HS256`, which is not for the keys"):
        Embedded(signed_files.policy, signed_files.state, verification_key=signed_files.key)


def test_without_a_key_no_signature_is_required(signed_files: SignedFiles) -> None:
    signed_files.put(signed_files.state, signing_keys.tampered(signed_files.with_grants())["a missing signature"])
    Embedded(signed_files.policy, signed_files.state).close()


def test_a_newer_bundle_that_is_refused_leaves_the_last_good_one(
    signed_files: SignedFiles, caplog: pytest.LogCaptureFixture
) -> None:
    with Embedded(signed_files.policy, signed_files.state, verification_key=signed_files.key, refresh=0) as client:
        signed_files.put(signed_files.state, signed_files.with_grants("bob", pair=OTHER))
        assert client.check("ann", "look", "box:s/1")
        assert not client.check("bob", "look", "box:s/1")
        assert client.problem
        assert "another key" in client.problem
        assert "the last good ones stay in force" in caplog.text
        with pytest.raises(SignatureRefused):
            client.refresh()
        signed_files.put(signed_files.state, signed_files.with_grants("bob"))
        signed_files.put(signed_files.state, signed_files.with_grants("bob", sequence=6))
        assert client.check("bob", "look", "box:s/1")
        assert client.problem is None


@pytest.mark.parametrize(("sequence", "says"), [(4, "the sequence 4"), (5, "the sequence 5"), (None, "no sequence")])
def test_an_older_bundle_does_not_come_back(signed_files: SignedFiles, sequence: int | None, says: str) -> None:
    with Embedded(signed_files.policy, signed_files.state, verification_key=signed_files.key, refresh=0) as client:
        signed_files.put(signed_files.state, signed_files.with_grants("ann", "mallory", sequence=sequence))
        with pytest.raises(SignatureRefused, match=f"{says}, and that of the state of `shop` was 5 before"):
            client.refresh()
        assert not client.check("mallory", "look", "box:s/1")
        again = signed_files.with_grants("ann", pair=OURS)
        signed_files.put(signed_files.state, again)
        assert client.refresh() in (True, False), "the same again is nothing older"
        signed_files.put(signed_files.state, signed_files.with_grants("ann", "mallory", sequence=6))
        assert client.check("mallory", "look", "box:s/1"), "going back is signed anew, with a higher sequence"


@pytest.mark.parametrize("name", ["VERIFICATION_KEY", "VERIFICATION_SCOPE", "MIN_SEQUENCE", "SEQUENCE_FILE"])
@pytest.mark.parametrize("empty", ["", " "])
def test_an_empty_variable_turns_no_check_off(
    signed_files: SignedFiles, name: str, empty: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed_files.put(signed_files.state, signing_keys.tampered(signed_files.with_grants())["a missing signature"])
    monkeypatch.setenv(f"PRIVTAB_{name}", empty)
    with pytest.raises(UsageError, match=f"PRIVTAB_{name} is empty, which would turn a check off"):
        Embedded(signed_files.policy, signed_files.state)
    monkeypatch.delenv(f"PRIVTAB_{name}")
    with pytest.raises(UsageError, match="verification_key"):
        Embedded(signed_files.policy, signed_files.state, verification_key=empty)


@pytest.mark.parametrize(("sequence", "says"), [(5, "the sequence 5"), (None, "no sequence")])
def test_a_least_sequence_holds_from_the_start(signed_files: SignedFiles, sequence: int | None, says: str) -> None:
    signed_files.put(
        signed_files.policy, OURS.signing(sequence=6).sign(policy_artifacts(signed_files.program).bundle())
    )
    signed_files.put(signed_files.state, signed_files.with_grants("mallory", sequence=sequence))
    key = signed_files.key
    with pytest.raises(SignatureRefused, match=f"its signature has {says}, and min_sequence is 6"):
        Embedded(signed_files.policy, signed_files.state, verification_key=key, min_sequence=6)
    signed_files.put(signed_files.state, signed_files.with_grants(sequence=6))
    Embedded(signed_files.policy, signed_files.state, verification_key=key, min_sequence=6).close()
    with pytest.raises(UsageError, match="give a verification_key"):
        Embedded(signed_files.policy, signed_files.state, min_sequence=6)


def test_a_restarted_process_accepts_no_older_bundle(
    signed_files: SignedFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept" / "sequences.json"
    monkeypatch.setenv("PRIVTAB_SEQUENCE_FILE", str(kept))
    monkeypatch.setenv("PRIVTAB_VERIFICATION_KEY", str(signed_files.key))

    def opened() -> Embedded:
        return Embedded(signed_files.policy, signed_files.state, refresh=0)

    with opened() as first, opened() as second:
        signed_files.put(signed_files.state, signed_files.with_grants("ann", sequence=7))
        assert first.refresh()
        signed_files.put(signed_files.state, signed_files.with_grants("ann", "mallory", sequence=6))
        with pytest.raises(SignatureRefused, match="was 7 before"):
            second.refresh()
        assert not second.check("mallory", "look", "box:s/1")
        assert isinstance(pickle.dumps(second), bytes)
    with pytest.raises(SignatureRefused, match="has the sequence 6, and that of the state of `shop` was 7 before"):
        opened()
    signed_files.put(signed_files.state, signed_files.with_grants("ann", sequence=7))
    opened().close()
    signed_files.put(signed_files.state, signed_files.with_grants("bob", sequence=8))
    opened().close()
    assert json.loads(kept.read_text())["state"]["shop"][0] == 8


@pytest.mark.parametrize("text", ["", "[]", '{"state": {"shop": 5}}', '{"state": {"shop": ["5", null]}}'])
def test_sequences_that_cannot_be_read_or_kept_are_an_error(
    signed_files: SignedFiles, text: str, tmp_path: Path
) -> None:
    (tmp_path / "sequences.json").write_text(text, encoding="utf-8")
    for file in (tmp_path / "sequences.json", tmp_path / "sequences.json" / "below"):
        with pytest.raises(FileError, match="sequence_file: "):
            Embedded(signed_files.policy, signed_files.state, verification_key=signed_files.key, sequence_file=file)


def test_over_sockets(signed_files: SignedFiles) -> None:
    with FileService({"policy": signed_files.policy, "state": signed_files.state}) as service:
        addresses = [service.url + FileService.resource(name) for name in ("policy", "state")]
        with Embedded(*addresses, verification_key=signed_files.key, refresh=0) as client:
            assert client.check("ann", "look", "box:s/1")
            signed_files.put(
                signed_files.state, signing_keys.tampered(signed_files.state.read_bytes())["a changed byte"]
            )
            assert client.check("ann", "look", "box:s/1")
            assert client.problem
            assert "is not as it was when it was signed" in client.problem
            assert client.revision().state
        with pytest.raises(SignatureRefused):
            Embedded(*addresses, verification_key=signed_files.key)


def test_folders_and_packages(signed_files: SignedFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "unpacked"
    for name, text in signing_keys.files(signed_files.policy.read_bytes()).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text)
    Embedded(folder, signed_files.state, verification_key=signed_files.key).close()
    (folder / "more.rego").write_text("package more\n")
    with pytest.raises(SignatureRefused, match=r"not among those that were signed: `more\.rego`"):
        Embedded(folder, signed_files.state, verification_key=signed_files.key)
    wheel = tmp_path / "acme.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr("acme_signed/__init__.py", "")
        packed.writestr("acme_signed/policy.tar.gz", signed_files.policy.read_bytes())
    monkeypatch.setattr(sys, "path", [str(wheel), *sys.path])
    Embedded("package:acme_signed", state=signed_files.state, verification_key=signed_files.key).close()
    with pytest.raises(SignatureRefused):
        Embedded("package:acme_signed", state=signed_files.state, verification_key=OTHER.public)


def test_keys_are_changed_without_a_restart(signed_files: SignedFiles, caplog: pytest.LogCaptureFixture) -> None:
    with Embedded(signed_files.policy, signed_files.state, verification_key=signed_files.key, refresh=0) as client:
        signed_files.key.write_text(OURS.public + OTHER.public)
        signed_files.put(signed_files.state, signed_files.with_grants("bob", pair=OTHER, sequence=6))
        assert client.check("bob", "look", "box:s/1")
        signed_files.key.write_text("nothing")
        signed_files.put(signed_files.state, signed_files.with_grants("cleo", pair=OTHER, sequence=7))
        assert client.check("cleo", "look", "box:s/1")
        assert "the last ones stay in force" in caplog.text


def test_keys_that_are_none(signed_files: SignedFiles) -> None:
    for key, says in (
        (signed_files.folder / "gone.pem", "cannot read the key"),
        (signed_files.private, "is a private key"),
        (signed_files.folder / "shop.yaml", "is not a key"),
        (signing_keys.pair("RS256").public[:200], "no public key that can be read"),
    ):
        with pytest.raises(UsageError, match=says):
            Embedded(signed_files.policy, signed_files.state, verification_key=key)


def test_the_error_names_the_missing_extra(signed_files: SignedFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jwt", None)
    with pytest.raises(UsageError, match=r"pip install '\.\[sign\]'"):
        Embedded(signed_files.policy, signed_files.state, verification_key=signed_files.key)
    Embedded(signed_files.policy, signed_files.state).close()


def test_a_pickled_copy_goes_on_verifying(signed_files: SignedFiles, caplog: pytest.LogCaptureFixture) -> None:
    with Embedded(signed_files.policy, signed_files.state, verification_key=signed_files.key, refresh=0) as client:
        packed = pickle.dumps(client)
    signed_files.key.unlink()
    with caplog.at_level(logging.WARNING), pickle.loads(packed) as copy:  # noqa: S301  (our own)
        signed_files.put(signed_files.state, signed_files.with_grants("bob", pair=OTHER, sequence=9))
        assert not copy.check("bob", "look", "box:s/1")
        signed_files.put(signed_files.state, signed_files.with_grants("bob", sequence=4))
        assert not copy.check("bob", "look", "box:s/1"), "its order came along"
        signed_files.put(signed_files.state, signed_files.with_grants("bob", sequence=6))
        assert copy.check("bob", "look", "box:s/1")


def test_parts_of_a_state_are_signed_each_for_itself(signed_files: SignedFiles) -> None:
    rows = [GRANT, GRANT | {"entity": "shop:t"}]
    state, _ = validate(signed_files.program, from_tables({"grants": rows}, "rows"))
    folder = signed_files.folder / "parts"
    folder.mkdir()
    policy = policy_artifacts(signed_files.program, sharded=True).bundle(OURS.signing(sequence=5))
    (folder / "policy.tar.gz").write_bytes(policy)
    bundles = shard_bundles(signed_files.program, state, signing=OURS.signing(sequence=5))
    files = {key: folder / f"{number}.tar.gz" for number, key in enumerate(bundles)}
    for key, bundle in bundles.items():
        files[key].write_bytes(bundle)
    with Embedded(folder, verification_key=signed_files.key, refresh=0) as client:
        assert client.check("ann", "look", "box:t/1")
        less = shard_bundles(signed_files.program, state, signing=OURS.signing(sequence=4))
        signed_files.put(files["shop:t"], less["shop:t"])
        with pytest.raises(SignatureRefused, match="older than what runs"):
            client.refresh()
        signed_files.put(files["shop:t"], signing_keys.tampered(bundles["shop:t"])["a changed byte"])
        with pytest.raises(SignatureRefused, match="not as it was"):
            client.refresh()
        assert client.check("ann", "look", "box:t/1")


def test_a_file_that_is_there_twice_is_refused(signed_files: SignedFiles) -> None:
    signed_files.put(
        signed_files.state, signing_keys.doubled(signed_files.state.read_bytes(), "privtab_state/shop/data.json", b"{}")
    )
    with pytest.raises(DecisionUnavailable, match=r"it holds `privtab_state/shop/data\.json` twice"):
        Embedded(signed_files.policy, signed_files.state, verification_key=signed_files.key)


def test_both_halves_are_needed(signed_files: SignedFiles) -> None:
    signed_files.put(signed_files.state, signed_files.state.read_bytes()[:-20])
    with pytest.raises(DecisionUnavailable, match="not a complete bundle"):
        Embedded(signed_files.policy, signed_files.state, verification_key=signed_files.key)


def hostile(signed_files: SignedFiles) -> dict[str, tuple[dict[str, bytes], str]]:
    """Bundles of a few hundred kilobytes that unpack to very much; with what is said of each."""
    inside = signing_keys.files(signed_files.state.read_bytes())
    data, zeros = "privtab_state/shop/data.json", bytes(200 << 20)
    return {
        "not signed": ({".manifest": inside[".manifest"], data: zeros}, "it is not signed"),
        "with another file": (inside | {"other.bin": zeros}, "are not among those that were signed"),
        "with another signature": ({".signatures.json": zeros[: 17 << 20], data: b"{}"}, "is larger than 16 MiB"),
        "with other data": (inside | {data: zeros}, "differs from the signed bytes, and has 209,715,200 bytes"),
        "with values": (inside | {data: b"[" + b"[]," * 6_000_000 + b"[]]"}, "more than 5,000,000 values"),
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "what", ["not signed", "with another file", "with another signature", "with other data", "with values"]
)
def test_an_unsigned_bundle_is_refused_before_it_is_unpacked(signed_files: SignedFiles, what: str) -> None:
    files, says = hostile(signed_files)[what]
    bundle = packed_archive(files)
    assert len(bundle) < 1 << 20
    signed_files.put(signed_files.state, bundle)
    largest = max(map(len, files.values()))
    del files
    tracemalloc.start()
    with pytest.raises((SignatureRefused, DecisionUnavailable), match=says):
        Embedded(signed_files.policy, signed_files.state, verification_key=signed_files.key)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < (32 << 20 if largest > 100 << 20 else 3 * largest + (32 << 20))


def test_neither_layout_brings_back_an_older_state_of_the_other(signed_files: SignedFiles) -> None:
    """Whole and in parts a state has other bundles, and one order."""
    folder = signed_files.folder / "layouts"
    folder.mkdir()
    artifacts = policy_artifacts(signed_files.program, sharded=True)
    (folder / "policy.tar.gz").write_bytes(artifacts.bundle(OURS.signing(sequence=5)))
    state, _ = validate(signed_files.program, from_tables({"grants": [GRANT]}, "rows"))

    def parts(sequence: int) -> None:
        (folder / "state.tar.gz").unlink(missing_ok=True)
        bundles = shard_bundles(signed_files.program, state, signing=OURS.signing(sequence=sequence))
        for number, bundle in enumerate(bundles.values()):
            (folder / f"{number}.tar.gz").write_bytes(bundle)

    def whole(sequence: int) -> None:
        for path in folder.glob("[0-9].tar.gz"):
            path.unlink()
        (folder / "state.tar.gz").write_bytes(signed_files.with_grants("mallory", sequence=sequence))

    parts(7)
    with Embedded(folder, verification_key=signed_files.key, refresh=0) as client:
        assert client.check("ann", "look", "box:s/1")
        whole(6)
        with pytest.raises(SignatureRefused, match="the sequence 6, and that of the state of `shop` was 7 before"):
            client.refresh()
        assert not client.check("mallory", "look", "box:s/1")
        whole(8)
        client.refresh()
        assert client.check("mallory", "look", "box:s/1")
        parts(7)
        with pytest.raises(SignatureRefused, match="was 8 before"):
            client.refresh()
        assert client.check("mallory", "look", "box:s/1")
        parts(9)
        client.refresh()
        assert client.check("ann", "look", "box:s/1")


def test_a_key_that_is_taken_away_brings_nothing_new(signed_files: SignedFiles) -> None:
    """Two keys hold for a while, then the new one alone; what the old one signs from then on stays outside, however new it says it is."""
    both = signed_files.folder / "both.pem"
    both.write_text(OURS.public, encoding="ascii")
    other = signed_files.folder / "next.pem"
    other.write_text(OTHER.public, encoding="ascii")
    with Embedded(signed_files.policy, signed_files.state, verification_key=[both, other], refresh=0) as client:
        signed_files.put(signed_files.state, signed_files.with_grants("bob", sequence=6, pair=OTHER))
        assert client.check("bob", "look", "box:s/1")
        # The same size and the same time, as `cp -p` of a key of the same kind has them.
        status = both.stat()
        renewed = signed_files.folder / "renewed.pem"
        renewed.write_text(OTHER.public, encoding="ascii")
        os.utime(renewed, ns=(status.st_atime_ns, status.st_mtime_ns))
        renewed.replace(both)
        signed_files.put(signed_files.state, signed_files.with_grants("mallory", sequence=99, pair=OURS))
        with pytest.raises(SignatureRefused):
            client.refresh()
        assert not client.check("mallory", "look", "box:s/1")
        signed_files.put(signed_files.state, signed_files.with_grants("ann", sequence=7, pair=OTHER))
        client.refresh()
        assert client.check("ann", "look", "box:s/1")
