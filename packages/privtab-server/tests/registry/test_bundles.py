"""What is no bundle of privtab is not kept."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from example_bundles import ExampleBundles

from privtab.bundle.archive import packed_archive
from privtab_server.errors import BundleRefused, RegistryConflict
from privtab_server.registry import Registry

Files = dict[str, bytes]


def files_of(bundle: bytes) -> Files:
    with tarfile.open(fileobj=io.BytesIO(bundle), mode="r:gz") as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]


def manifest(files: Files, **changed: Any) -> Files:
    document = json.loads(files[".manifest"])
    metadata = {**document["metadata"], **changed.pop("metadata", {})}
    return {**files, ".manifest": json.dumps({**document, "metadata": metadata, **changed}).encode()}


CHANGES: dict[str, tuple[Callable[[Files], Files], str]] = {
    "no manifest": (lambda files: {name: text for name, text in files.items() if name != ".manifest"}, "no manifest"),
    "not privtab's": (lambda files: {**files, ".manifest": b'{"revision": "x"}'}, "not a bundle of privtab"),
    "a manifest that is no JSON": (lambda files: {**files, ".manifest": b"{"}, "is not JSON"),
    "another kind": (lambda files: manifest(files, metadata={"kind": "report"}), "there is no kind `report`"),
    "a system with a path": (lambda files: manifest(files, metadata={"system": "../x"}), "the system `../x`"),
    "no revision": (lambda files: manifest(files, revision=""), "the revision ``"),
    "another revision": (lambda files: manifest(files, revision="0123456789abcdef"), "says `"),
    "a shard that is no text": (lambda files: manifest(files, metadata={"shard": 1}), "must be a string"),
    "a delta": (lambda files: {**files, "patch.json": b"{}"}, "it is a delta"),
    "no content": (lambda files: {".manifest": files[".manifest"]}, "neither a program nor a state"),
    "content that is no object": (
        lambda files: {name: b"[]" if name.endswith("data.json") else text for name, text in files.items()},
        "is not an object",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", ["policies", "states"])
def test_wrong_bundles_are_refused(registry: Registry, packed: ExampleBundles, kind: str, change: str) -> None:
    changed, says = CHANGES[change]
    bundle = packed_archive(changed(files_of(getattr(packed, kind)[0])))
    with pytest.raises(BundleRefused, match=says):
        registry.put(bundle)
    assert registry.revisions("shop", "policy" if kind == "policies" else "state") == []


@pytest.mark.parametrize("harm", [lambda _: b"", lambda _: b"hello", lambda b: b[:-10], lambda b: b[: len(b) // 2]])
def test_incomplete_bundles_are_refused(
    registry: Registry, packed: ExampleBundles, harm: Callable[[bytes], bytes]
) -> None:
    with pytest.raises(BundleRefused):
        registry.put(harm(packed.policies[0]))


def test_another_content_under_the_same_revision_is_a_conflict(registry: Registry, packed: ExampleBundles) -> None:
    registry.put(packed.policies[0])
    files = files_of(packed.policies[0])
    rego = next(name for name in files if name.endswith(".rego"))
    with pytest.raises(RegistryConflict, match="different content"):
        registry.put(packed_archive({**files, rego: files[rego] + b"\nallow := true\n"}))
    with pytest.raises(RegistryConflict, match="different content"):
        registry.put(packed_archive(manifest(files, roots=["privtab"])))


def test_provenance_does_not_change_the_digest(registry: Registry, packed: ExampleBundles) -> None:
    first = registry.put(packed.policies[0])
    elsewhere = packed_archive(manifest(files_of(packed.policies[0]), metadata={"commit": "abc"}))
    assert registry.put(elsewhere) == first
    assert registry.read(first) == packed.policies[0]
    again = registry.put(elsewhere, resign=True)
    assert (again.id, again.digest == first.digest) == (first.id, False)
    assert registry.read(again) == elsewhere
    assert registry.read(first) == packed.policies[0]


@pytest.fixture(scope="session")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A private key; its public one lies beside it."""
    return new_key(tmp_path_factory.mktemp("keys"))


def new_key(folder: Path) -> Path:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    private_key = ec.generate_private_key(ec.SECP256R1())
    private, public = folder / "key.pem", folder / "key.pub.pem"
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    private.write_bytes(private_key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    public.write_bytes(private_key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo))
    return private


def with_signature(bundle: bytes, key: Path) -> bytes:
    from privtab.bundle import SigningKey

    return SigningKey.of(key).sign(bundle)


def test_a_registry_may_require_signatures(registry: Registry, packed: ExampleBundles, key: Path) -> None:
    registry.init(verification_keys=[key.with_name("key.pub.pem").read_text()])
    with pytest.raises(BundleRefused, match="accepts only signed bundles"):
        registry.put(packed.policies[0])
    good = with_signature(packed.policies[0], key)
    revision = registry.put(good)
    assert revision.signed
    assert registry.read(revision) == good
    files = files_of(with_signature(packed.policies[1], key))
    rego = next(name for name in files if name.endswith(".rego"))
    with pytest.raises(BundleRefused, match="is not as it was when it was signed"):
        registry.put(packed_archive({**files, rego: files[rego] + b"\n"}))
    program = next(name for name in files if name.endswith("data.json"))
    with pytest.raises(BundleRefused, match="is not as it was when it was signed"):
        # Not even looked at: it may be anything, and of any size.
        registry.put(packed_archive({**files, program: b"no JSON"}))


def test_nothing_of_a_key_that_is_not_trusted_any_more_runs_again(
    registry: Registry, packed: ExampleBundles, key: Path, tmp_path: Path
) -> None:
    old = [registry.put(with_signature(bundle, key)).id for bundle in packed.policies]
    registry.release("dev", "shop", policy=old[0], state=registry.put(packed.states[0]).id)
    registry.release("dev", "shop", policy=old[1])
    newer = new_key(tmp_path)
    registry.init(verification_keys=[newer.with_name("key.pub.pem").read_text()], replace=True)
    with pytest.raises(BundleRefused, match=f"policy/{old[0]}: .* another key .*; sign it again"):
        registry.release("dev", "shop", policy=old[0])
    assert registry.channel("dev", "shop").sequence == 2
    registry.put(with_signature(packed.policies[0], newer), resign=True)
    assert registry.release("dev", "shop", policy=old[0]).sequence == 3


def test_a_new_signature_takes_the_place_of_the_old_one(registry: Registry, packed: ExampleBundles, key: Path) -> None:
    plain = registry.put(packed.policies[0])
    registry.release("dev", "shop", policy=plain.id)
    renewed = registry.put(with_signature(packed.policies[0], key), resign=True)
    assert renewed.signed
    assert registry.channel("dev", "shop").digests[f"policy/{plain.id}"] == plain.digest
    again = registry.release("dev", "shop", policy=plain.id)
    assert again.digests[f"policy/{plain.id}"] == renewed.digest
