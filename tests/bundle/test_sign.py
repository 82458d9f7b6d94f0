"""Signatures: made by us and taken by a real OPA, made by OPA and taken by us, and refused for every reason."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
import signing_keys

from privtab import pipeline
from privtab.base.errors import BrokenBundle, FileError, SignatureRefused, UsageError
from privtab.base.signatures import Trust, VerificationKey, canonical, verification_keys
from privtab.bundle import state_bundle
from privtab.bundle.archive import packed_archive
from privtab.bundle.sign import PASSWORD_VARIABLE, SigningKey, new_key, signed_bundle, verify_bundle
from privtab.pipeline import policy_artifacts
from privtab.state.nodes import State

KINDS = ("RS256", "ES256", "ES384")
NASTY = json.dumps(
    {
        "a": ['é\u2028 <&>\x7f\x01\b\f\\"/\U0001f600', 1.50, 1e5, -0.0, 12345678901234567890123, None, True, {}],
        "Z": {"b": [], "ä": 1, "\U0001f600": "\ud800 alone", "z\u2029": "x"},
    },
    indent=2,
).replace("1.5,", "1.50,")
"""JSON in which forms differ: letters, escapes, numbers, order."""


@pytest.fixture(scope="module")
def bundle() -> bytes:
    return policy_artifacts(pipeline.load_program("cdap/final")).bundle()


def trust(pair: signing_keys.KeyPair, scope: str = "") -> Trust:
    return Trust.of(pair.public, scope)


@pytest.mark.parametrize("kind", KINDS)
def test_signed_bundles_verify(bundle: bytes, kind: str) -> None:
    pair = signing_keys.pair(kind)
    done = pair.signing(scope="prod", sequence=7).sign(bundle)
    found = verify_bundle(done, trust(pair, "prod"))
    assert (found.algorithm, found.scope, found.sequence) == (kind, "prod", 7)
    assert found.key == pair.signing().id == signing_keys.header(done)["kid"]
    assert found.files.keys() == signing_keys.files(bundle).keys()
    unsigned = {name: text for name, text in signing_keys.files(done).items() if name != ".signatures.json"}
    assert unsigned == signing_keys.files(bundle), "the content stays as it is"


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_bundle_has_the_same_signature(bundle: bytes, kind: str) -> None:
    key = signing_keys.pair(kind).signing()
    once = key.sign(bundle)
    assert key.sign(bundle) == once == key.sign(once)
    assert signed_bundle(signing_keys.files(bundle), key) == once, "packed and signed at once, or signed later"


def test_a_state_is_signed_as_well() -> None:
    program = pipeline.load_program("gravitino/1.1.0")
    pair = signing_keys.pair()
    done = state_bundle(program, State(), signing=pair.signing())
    assert verify_bundle(done, trust(pair)).files.keys() == {".manifest", "privtab_state/gravitino/data.json"}


# --- refused ---


@pytest.mark.parametrize(
    "what", signing_keys.tampered(signing_keys.pair().signing().sign(packed_archive({"data.json": b"{}"})))
)
def test_tampered_bundles_are_refused(bundle: bytes, what: str) -> None:
    spoilt = signing_keys.tampered(signing_keys.pair().signing().sign(bundle))[what]
    with pytest.raises(SignatureRefused):
        verify_bundle(spoilt, trust(signing_keys.pair()))
    with pytest.raises(SignatureRefused):
        trust(signing_keys.pair()).check(signing_keys.files(spoilt))


def test_a_file_that_is_there_twice_is_refused(bundle: bytes) -> None:
    pair = signing_keys.pair()
    twice = signing_keys.doubled(pair.signing().sign(bundle), ".manifest", signing_keys.files(bundle)[".manifest"])
    with pytest.raises(BrokenBundle, match=r"it holds `\.manifest` twice"):
        verify_bundle(twice, trust(pair))
    with pytest.raises(BrokenBundle):
        pair.signing().sign(twice)


def test_every_changed_byte_is_found(bundle: bytes) -> None:
    """A byte anywhere in the archive: it does not unpack, or does not verify; or it says the same to who unpacks it."""
    pair = signing_keys.pair()
    done = pair.signing().sign(bundle)
    inside = signing_keys.files(done)
    for at in range(0, len(done), max(len(done) // 150, 1)):
        spoilt = done[:at] + bytes([done[at] ^ 0x10]) + done[at + 1 :]
        try:
            verify_bundle(spoilt, trust(pair))
        except (SignatureRefused, BrokenBundle):
            continue
        assert signing_keys.files(spoilt) == inside, f"byte {at}"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"scope": "else"}, "signed for the scope `else`, not for no scope"),
        ({"exp": time.time() - 60}, "its signature ended"),
        ({"nbf": time.time() + 86_400}, "holds only from"),
        ({"exp": "soon"}, "`exp` in its signature is not a time"),
        ({"sequence": -1}, "the sequence in its signature is not a number"),
        ({"files": None}, "lists no files"),
        ({"files": [{"name": "data.json"}]}, "without its name, hash or algorithm"),
        ({"files": [{"name": "data.json", "hash": "00", "algorithm": "MD5"}]}, "hashed with `MD5`"),
        ({"files": [{"name": "a", "hash": "00", "algorithm": "SHA-256"}] * 2}, "lists `a` twice"),
        ({"files": []}, "not among those that were signed"),
    ],
)
def test_wrong_claims_of_a_signature_are_refused(bundle: bytes, change: dict[str, Any], says: str) -> None:
    """Signed with the right key, so that it is the claim that is refused."""
    pair = signing_keys.pair()
    done = pair.signing().sign(bundle)
    token = jwt.encode(signing_keys.claims(done) | change, pair.private, algorithm="ES256")
    with pytest.raises(SignatureRefused, match=says):
        verify_bundle(signing_keys.with_token(done, token), trust(pair))


def test_a_claim_in_time_holds(bundle: bytes) -> None:
    pair = signing_keys.pair()
    done = pair.signing().sign(bundle)
    token = jwt.encode(signing_keys.claims(done) | {"exp": time.time() + 60, "iat": 1}, pair.private, algorithm="ES256")
    assert verify_bundle(signing_keys.with_token(done, token), trust(pair)).files
    with pytest.raises(SignatureRefused, match="ended"):
        verify_bundle(signing_keys.with_token(done, token), trust(pair), now=time.time() + 61)


def test_a_wrong_scope_and_a_wrong_key_have_different_errors(bundle: bytes) -> None:
    pair, other = signing_keys.pair(), signing_keys.pair("ES256", 1)
    done = pair.signing(scope="test").sign(bundle)
    with pytest.raises(SignatureRefused, match="signed for the scope `test`, not for the scope `prod`"):
        verify_bundle(done, trust(pair, "prod"))
    with pytest.raises(SignatureRefused, match=f"signed with another key \\(`{pair.signing().id}`\\)"):
        verify_bundle(done, trust(other, "test"))
    both = Trust.of([other.public, pair.public], "test")
    assert verify_bundle(done, both).key == pair.signing().id


def test_a_public_key_is_no_secret(bundle: bytes) -> None:
    for kind in ("RS256", "ES256"):
        pair = signing_keys.pair(kind)
        forged = signing_keys.forged(pair.signing().sign(bundle), "HS256", pair.public)
        with pytest.raises(SignatureRefused, match="`HS256`, which is not for the keys that are trusted"):
            verify_bundle(forged, trust(pair))
        with pytest.raises(SignatureRefused, match="`none`, which is not"):
            verify_bundle(signing_keys.forged(forged, "none"), trust(pair))


def test_a_key_that_names_another_is_tried_as_itself(bundle: bytes) -> None:
    """Who signs may call their key as the configuration of their OPA does; the id is a hint, not a reason to trust."""
    pair, other = signing_keys.pair(), signing_keys.pair("ES256", 1)
    done = pair.signing(id="prod-2026").sign(bundle)
    assert verify_bundle(done, Trust.of([other.public, pair.public])).key == trust(pair).keys[0].id
    with pytest.raises(SignatureRefused, match="`prod-2026`"):
        verify_bundle(done, trust(other))
    claimed = other.signing(id=pair.signing().id).sign(bundle)
    with pytest.raises(SignatureRefused, match="another key"):
        verify_bundle(claimed, trust(pair))


def test_older_bundles_are_refused(bundle: bytes) -> None:
    pair = signing_keys.pair()
    done = pair.signing(sequence=7).sign(bundle)
    assert verify_bundle(done, trust(pair), newer_than=6).sequence == 7
    for than in (7, 8):
        with pytest.raises(SignatureRefused, match=f"its sequence is 7, and {than} was there before"):
            verify_bundle(done, trust(pair), newer_than=than)
    with pytest.raises(SignatureRefused, match="has no sequence"):
        verify_bundle(pair.signing().sign(bundle), trust(pair), newer_than=0)


def test_files_that_are_no_bundles(bundle: bytes, tmp_path: Path) -> None:
    pair = signing_keys.pair()
    done = pair.signing().sign(bundle)
    for broken in (b"", b"nothing", done[: len(done) // 2], done[:-4], packed_archive({})):
        with pytest.raises(BrokenBundle):
            verify_bundle(broken, trust(pair))
        with pytest.raises(BrokenBundle):
            pair.signing().sign(broken)
    with pytest.raises(FileError, match="gone"):
        verify_bundle(tmp_path / "gone", trust(pair))


def test_a_delta_is_neither_signed_nor_taken() -> None:
    delta = packed_archive({".manifest": b"{}", "patch.json": b'{"data":[]}'})
    with pytest.raises(UsageError, match="a delta bundle cannot be signed"):
        signing_keys.pair().signing().sign(delta)
    with pytest.raises(SignatureRefused, match="delta"):
        verify_bundle(delta, trust(signing_keys.pair()))


# --- keys ---


def test_keys_that_are_of_no_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = signing_keys.pair()
    with pytest.raises(UsageError, match="not a private key in PEM"):
        SigningKey.of(pair.public)
    with pytest.raises(UsageError, match="cannot sign with `HS256`; it can with: ES256"):
        pair.signing(algorithm="HS256")
    with pytest.raises(UsageError, match="verifying takes the public one"):
        verification_keys(pair.private)
    monkeypatch.setenv(PASSWORD_VARIABLE, "open sesame")
    locked, public = new_key("ES256")
    assert "ENCRYPTED" in locked
    assert SigningKey.of(locked).public.id == public.id
    for password, says in (("wrong", "no private key that can be read"), ("", "give its password")):
        monkeypatch.setenv(PASSWORD_VARIABLE, password)
        with pytest.raises(UsageError, match=says):
            SigningKey.of(locked)


def test_short_and_strange_keys_are_refused() -> None:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    for key, says in (
        (rsa.generate_private_key(65537, 1024), "1024 bits is too short"),  # noqa: S505  (that is what is refused)
        (ec.generate_private_key(ec.SECP256K1()), "P-256"),
        (ed25519.Ed25519PrivateKey.generate(), "P-256"),
    ):
        with pytest.raises(UsageError, match=says):
            VerificationKey.of(key.public_key(), "k.pem")


# --- what OPA makes ---


@pytest.mark.parametrize("kind", KINDS[:2])
def test_bundles_signed_by_opa_verify(opa_binary: Path, tmp_path: Path, kind: str) -> None:
    pair = signing_keys.pair(kind)
    private, public = pair.write(tmp_path)
    source = tmp_path / "source"
    source.mkdir()
    (source / "data.json").write_text(NASTY, encoding="utf-8")
    (source / "p.rego").write_text("package p\n\nx := 1\n", encoding="utf-8")
    (source / ".manifest").write_text('{"revision": "1",  "roots": ["a", "Z", "p"]}', encoding="utf-8")

    def opa(*arguments: str | Path) -> None:
        subprocess.run([opa_binary, *arguments], cwd=source, check=True, capture_output=True, timeout=60)

    key = ("--signing-key", private, "--signing-alg", kind)
    opa("build", "-b", ".", *key, "-o", tmp_path / "built.tar.gz")
    assert verify_bundle(tmp_path / "built.tar.gz", Trust.of(public)).algorithm == kind
    (tmp_path / "claims.json").write_text(json.dumps({"scope": "prod", "keyid": "mine", "sequence": 3}))
    opa("sign", "-b", ".", *key, "--claims-file", tmp_path / "claims.json", "-o", ".")
    packed = packed_archive({path.name: path.read_bytes() for path in source.iterdir()})
    found = verify_bundle(packed, Trust.of(public, "prod"))
    assert (found.scope, found.sequence) == ("prod", 3)
    assert len(found.files) == 3
    spoilt = signing_keys.files(packed) | {"data.json": NASTY.replace("1.50", "1.5").encode()}
    with pytest.raises(SignatureRefused, match=r"`data\.json` is not as it was"):
        verify_bundle(packed_archive(spoilt), Trust.of(public, "prod"))


def test_the_form_that_is_hashed() -> None:
    assert (
        canonical(b'\xef\xbb\xbf{"b": [1.50, 1E5, -0],\n "a": "\\u00e9\\/"}') == '{"a":"é/","b":[1.50,1E5,-0]}'.encode()
    )
    assert canonical(b'{"a": 1, "a": {"y": 2, "x": []}}') == b'{"a":{"x":[],"y":2}}'
    assert canonical('"\u2028<"'.encode()) == b'"\\u2028<"'
    for wrong in (b"{", b"NaN", b"[1,]", b"\xff", b"[" * 100_000):
        with pytest.raises(ValueError):  # noqa: PT011  (any reason)
            canonical(wrong)
