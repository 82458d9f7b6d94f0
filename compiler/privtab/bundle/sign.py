"""Sign bundles the way OPA verifies them: a JWT in `.signatures.json` that lists every file with its hash.

And verify them: who signed them, that they are unchanged, and that they are newer than another.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from privtab.base.errors import FileError, SignatureRefused, UsageError
from privtab.base.records import dataclass
from privtab.base.signatures import (
    LARGEST_SIGNATURES,
    PATCH,
    SIGNATURES,
    KeySource,
    Signed,
    Trust,
    VerificationKey,
    algorithms,
    canonical,
    changed,
    check_names,
    escape_separators,
    is_signature,
    is_structured,
    key_id,
    key_text,
    matches,
    need_cryptography,
    verification_keys,
)
from privtab.bundle.archive import (
    LARGEST_REWRITTEN,
    MOST_REWRITTEN,
    Entries,
    FileContent,
    archive_entries,
    check_read,
    check_values,
    json_bytes,
    new_entry,
    packed,
    packed_archive,
)

PASSWORD_VARIABLE = "PRIVTAB_SIGNING_KEY_PASSWORD"  # noqa: S105  (the name of a variable)
HASH = "SHA-256"
RSA_BITS = 3072


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey:
    """A private key and the claims of its signatures: `signed = signing_key.sign(bundle)`."""

    id: str
    """The name of the public key in OPA's configuration."""
    algorithm: str
    scope: str = ""
    sequence: int | None = None
    """The number of the bundle in its sequence, which only increases."""
    key: Any = field(repr=False)

    @property
    def fingerprint(self) -> str:
        """The hash of the public key; other keys may have the same id."""
        return key_id(self.key.public_key())

    @classmethod
    def of(
        cls,
        source: KeySource,
        *,
        algorithm: str | None = None,
        id: str | None = None,  # noqa: A002  (what it is)
        scope: str = "",
        sequence: int | None = None,
    ) -> SigningKey:
        """Read a PEM file or its text; PRIVTAB_SIGNING_KEY_PASSWORD decrypts an encrypted key. Raises FileError, UsageError."""
        need_cryptography()
        text, where = key_text(source)
        key = _private(text, where)
        usable = algorithms(key.public_key(), where)
        if algorithm is not None and algorithm not in usable:
            raise UsageError(f"{where} cannot sign with `{algorithm}`; it can with: {', '.join(usable)}")
        if sequence is not None and sequence < 0:
            raise UsageError(f"the sequence is {sequence}: give a number, 0 or more")
        name = id or key_id(key.public_key())
        return cls(id=name, algorithm=algorithm or usable[0], scope=scope, sequence=sequence, key=key)

    @property
    def public(self) -> VerificationKey:
        """The public key."""
        return VerificationKey.of(self.key.public_key(), id=self.id)

    def sign(self, bundle: bytes) -> bytes:
        """The bundle with a signature by the key, which replaces an existing one. Raises BrokenBundle, UsageError."""
        return b"".join(signed_pieces(io.BytesIO(bundle), self))

    def signatures(self, hashes: Mapping[str, str]) -> bytes:
        """The content of `.signatures.json` for files with these hashes (`file_digests`)."""
        files = [{"name": name, "hash": hashes[name], "algorithm": HASH} for name in sorted(hashes)]
        claims: dict[str, Any] = {"files": files, "keyid": self.id}
        if self.scope:
            claims["scope"] = self.scope
        if self.sequence is not None:
            claims["sequence"] = self.sequence
        header = json_bytes({"alg": self.algorithm, "kid": self.id, "typ": "JWT"})
        head = _base64(header) + b"." + _base64(json_bytes(claims))
        return json_bytes({"signatures": [(head + b"." + _base64(_signature(head, self))).decode()]})


def signed_bundle(files: Mapping[str, bytes], signing: SigningKey | None) -> bytes:
    """The bundle of the files, signed if there is a key. `json_bytes` must have written its JSON. The same input gives the same bytes."""
    if signing is None:
        return packed_archive(files)
    hashed = ((name, escape_separators(text) if is_structured(name) else text) for name, text in files.items())
    hashes = {name: hashlib.sha256(text).hexdigest() for name, text in hashed}
    return packed_archive({**files, SIGNATURES: signing.signatures(hashes)})


def signed_pieces(bundle: BinaryIO, signing: SigningKey) -> Iterator[bytes]:
    """As `SigningKey.sign`, but of an open file and piece by piece: at most one file of the bundle is in memory at once."""
    hashes = file_digests(bundle)
    bundle.seek(0)
    yield from with_signatures(bundle, signing.signatures(hashes), list(hashes))


def file_digests(bundle: BinaryIO, *, ours: bool = False) -> dict[str, str]:
    """The hash of every file of an open bundle except signatures, in order. Raises BrokenBundle, UsageError.

    `ours`: `json_bytes` wrote its JSON, so it need not be parsed.

        hashes = file_digests(bundle)
    """
    hashes: dict[str, str] = {}
    for name, _, content in archive_entries(bundle):
        if not is_signature(name):
            hashes[name] = _digest(name, content, ours=ours)
    if PATCH in hashes:
        raise UsageError("a delta bundle cannot be signed: OPA accepts signatures only for whole bundles")
    return hashes


def with_signatures(bundle: BinaryIO, text: bytes | None, names: Sequence[str] | None = None) -> Iterator[bytes]:
    """The pieces of an open bundle with this `.signatures.json` in place of an existing one; None: without any.

    `names`: its other files, in order, if they are known.

        b"".join(with_signatures(bundle, text))
    """
    if text is None:
        yield from packed(item for item in archive_entries(bundle) if not is_signature(item[0]))
        return
    if names is None:
        names = [name for name, _, _ in archive_entries(bundle) if not is_signature(name)]
        bundle.seek(0)
    # If the other files are sorted, keep them so; otherwise the signatures come first.
    successor = next((name for name in names if name > SIGNATURES), None) if names == sorted(names) else names[0]
    yield from packed(_insert_entry(archive_entries(bundle), new_entry(SIGNATURES, text), successor))


def _signature(message: bytes, signing: SigningKey) -> bytes:
    import jwt
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec
    from jwt.utils import der_to_raw_signature

    algorithm = jwt.get_algorithm_by_name(signing.algorithm)
    if isinstance(signing.key, ec.EllipticCurvePrivateKey):
        # RFC 6979: the same bundle has the same signature, unlike with the usual random number.
        try:
            ecdsa = ec.ECDSA(algorithm.hash_alg(), deterministic_signing=True)  # type: ignore[attr-defined]
            return der_to_raw_signature(signing.key.sign(message, ecdsa), signing.key.curve)
        except (UnsupportedAlgorithm, TypeError):  # OpenSSL before 3.2, or an older library
            pass
    return algorithm.sign(message, signing.key)


def _insert_entry(items: Entries, inserted: tuple[str, tarfile.TarInfo, FileContent], successor: str | None) -> Entries:
    pending = [inserted]
    for name, entry, content in items:
        if name == successor and pending:
            yield pending.pop()
        if not is_signature(name):
            yield name, entry, content
    yield from pending


def _digest(name: str, content: FileContent, *, ours: bool) -> str:
    if not is_structured(name):
        return content.digest()
    if ours:
        return hashlib.sha256(escape_separators(content.read())).hexdigest()
    try:
        return hashlib.sha256(canonical(content.read())).hexdigest()
    except ValueError as error:
        raise UsageError(f"`{name}` of the bundle is not JSON, so it cannot be signed: {error}") from None


def _private(text: str, where: str) -> Any:
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    if "PRIVATE KEY" not in text:
        raise UsageError(
            f"{where} is not a private key in PEM: bundles are signed with one (`privtab bundle keys --new`)"
        )
    password = os.environ.get(PASSWORD_VARIABLE)
    encrypted = "ENCRYPTED" in text
    if encrypted and not password:
        raise UsageError(f"{where} is encrypted: give its password in {PASSWORD_VARIABLE}")
    try:
        return load_pem_private_key(text.encode(), password.encode() if encrypted and password else None)
    except Exception as error:  # noqa: BLE001  (the library raises ValueError, TypeError, UnsupportedAlgorithm and others)
        raise UsageError(f"{where} holds no private key that can be read: {error}") from None


def _base64(content: bytes) -> bytes:
    return base64.urlsafe_b64encode(content).rstrip(b"=")


# --- keys ------------------------------------------------------------------------------------------------------------


def new_key(algorithm: str) -> tuple[str, VerificationKey]:
    """A new private key as PEM, encrypted if PRIVTAB_SIGNING_KEY_PASSWORD is set, and its public key. Raises UsageError."""
    need_cryptography()
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    key: Any = (
        rsa.generate_private_key(65537, RSA_BITS) if algorithm == "RS256" else ec.generate_private_key(ec.SECP256R1())
    )
    password = os.environ.get(PASSWORD_VARIABLE)
    if password == "":
        raise UsageError(f"${PASSWORD_VARIABLE} is empty, as if the key were not to be encrypted: unset it for that")
    secret: Any = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
    packed = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret)
    return packed.decode(), VerificationKey.of(key.public_key())


def public_keys(sources: Iterable[KeySource]) -> list[VerificationKey]:
    """The public keys of the given keys, which may be private ones. Raises FileError, UsageError."""
    keys: list[VerificationKey] = []
    for source in sources:
        text, where = key_text(source)
        if "PRIVATE KEY" in text:
            keys.append(VerificationKey.of(SigningKey.of(source).key.public_key(), where))
        else:
            keys += verification_keys(source)
    return keys


def opa_configuration(keys: Iterable[VerificationKey], scope: str, bundles: Iterable[str]) -> dict[str, Any]:
    """OPA configuration for the keys and for the bundles that must be signed with one of them.

    A single key is named as `keyid`: without it, OPA before 1.21.3 accepts unsigned bundles (GHSA-g2pf-6v5v-qcc8).
    """
    trusted = {key.id: {"algorithm": key.algorithms[0], "key": key.pem} for key in keys}
    signing = {"keyid": next(iter(trusted))} if len(trusted) == 1 else {}
    signing |= {"scope": scope} if scope else {}
    return {"keys": trusted, "bundles": {name: {"signing": signing} for name in bundles}}


BundleSource: TypeAlias = bytes | str | os.PathLike[str]
"""A bundle, or the path of one."""


def verify_bundle(
    bundle: BundleSource, trust: Trust, *, newer_than: int | None = None, now: float | None = None
) -> Signed:
    """The claims of a bundle's signature, after verifying it and every file.

    `newer_than`: the sequence must be greater. Raises SignatureRefused, BrokenBundle, FileError.

        verify_bundle("state.tar.gz", trust).sequence
    """
    with opened(bundle) as file:
        signature_files, digests = _read(file)
        if len(signature_files) > 1:
            raise SignatureRefused(
                f"it has {len(signature_files)} files with signatures: {', '.join(sorted(signature_files))}"
            )
        if PATCH in digests and not signature_files:
            raise SignatureRefused("it is a delta bundle, which has no signature: OPA verifies only whole bundles")
        signed = trust.signed(next(iter(signature_files.values()), None), now=now)
        check_names(signed, digests)
        mismatched = {name for name, expected in signed.files.items() if digests[name] != expected}
        _check_rewritten_files(file, mismatched, signed)
    if newer_than is not None:
        found = signed.sequence
        if found is None:
            raise SignatureRefused(
                f"its signature has no sequence, so it is unknown whether it is newer than {newer_than}"
            )
        if found <= newer_than:
            raise SignatureRefused(f"it is not newer: its sequence is {found}, and {newer_than} was there before")
    return signed


@contextmanager
def opened(bundle: BundleSource) -> Iterator[BinaryIO]:
    """Open a bundle as a file that can be read again from its start. Raises FileError."""
    if isinstance(bundle, bytes):
        yield io.BytesIO(bundle)
        return
    path = Path(bundle)
    if path.exists() and not path.is_file() and not path.is_dir():
        raise FileError(f"{os.fspath(bundle)}: a bundle is a file that can be read twice, not a pipe or a device")
    try:
        file = path.open("rb")
    except OSError as error:
        raise FileError(f"{os.fspath(bundle)}: {error.strerror or error}") from error
    with file:
        yield file


def _read(file: BinaryIO) -> tuple[Mapping[str, bytes], dict[str, tuple[str, str]]]:
    """The signature files by path, and the hash of every other file."""
    signature_files: dict[str, bytes] = {}
    digests: dict[str, tuple[str, str]] = {}
    for name, entry, content in archive_entries(file):
        if is_signature(name):
            signature_files[name] = content.read(min(entry.size, LARGEST_SIGNATURES + 1))
        else:
            digests[name] = HASH, content.digest()
    return signature_files, digests


def _check_rewritten_files(file: BinaryIO, mismatched: set[str], signed: Signed) -> None:
    """Check files whose hash is not the signed one: they may be JSON with the same content, or use another hash algorithm."""
    for name in sorted(mismatched):
        if not is_structured(name) and signed.files[name][0] == HASH:
            raise changed(name)
    if not mismatched:
        return
    file.seek(0)
    for name, entry, content in archive_entries(file):
        if name not in mismatched:
            continue
        # Anyone may have written it.
        check_read(name, entry.size, LARGEST_REWRITTEN, "differs from the signed bytes, and ")
        text = content.read()
        check_values(name, text, MOST_REWRITTEN)
        if not matches(name, text, signed.files[name]):
            raise changed(name)
