"""Public keys for verifying bundles: PEM files or texts, and the id of each key."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from privtab._install import how_to_install
from privtab.errors import FileError, UsageError

KeySource: TypeAlias = str | os.PathLike[str]
"""A file, or the content of one."""

ID_DIGITS = 16
LEAST_RSA_BITS = 2048
RSA_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
EC_ALGORITHMS = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
PEM = "-----BEGIN"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationKey:
    """A public key, its id, and the algorithms that it may be used with: the key determines these, never the signature."""

    id: str
    algorithms: tuple[str, ...]
    """The first is the default."""
    pem: str = field(repr=False)
    where: str = ""

    @classmethod
    def of(cls, public: Any, where: str = "", id: str | None = None) -> VerificationKey:  # noqa: A002  (what it is)
        """Convert a key of the `cryptography` library. Raises UsageError for keys that cannot be used."""
        from cryptography.hazmat.primitives import serialization

        usable = algorithms(public, where)
        text = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        return cls(id=id or key_id(public), algorithms=usable, pem=text.decode(), where=where)

    @property
    def key(self) -> Any:
        """The key as an object of the library; made on each access, since such objects cannot be sent to other processes."""
        from cryptography.hazmat.primitives.serialization import load_pem_public_key

        return load_pem_public_key(self.pem.encode())


def verification_keys(sources: KeySource | Iterable[KeySource]) -> tuple[VerificationKey, ...]:
    """The public keys in these files or texts, each of which may hold several. Raises FileError, UsageError."""
    source_list = [sources] if isinstance(sources, str | os.PathLike) else list(sources)
    found = [key for source in source_list for key in _read(source)]
    if not found:
        raise UsageError("give a key to verify with: a PEM file with a public key")
    return tuple(found)


def key_text(source: KeySource) -> tuple[str, str]:
    """The text of a key, and its name in messages. Raises FileError."""
    text = os.fspath(source)
    if text.lstrip().startswith(PEM):
        return text, "the given key"
    try:
        return Path(text).read_text(encoding="ascii", errors="replace"), text
    except OSError as error:
        raise FileError(f"cannot read the key {text}: {error.strerror or error}") from error


def key_id(public: Any) -> str:
    """The default id of a public key: a hash of it, the same everywhere."""
    from cryptography.hazmat.primitives import serialization

    packed = public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(packed).hexdigest()[:ID_DIGITS]


def algorithms(public: Any, where: str) -> tuple[str, ...]:
    """The algorithms for a public key, the default first. Raises UsageError for keys that are too weak or of another kind."""
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    if isinstance(public, rsa.RSAPublicKey):
        if public.key_size < LEAST_RSA_BITS:
            raise UsageError(f"{where}: an RSA key of {public.key_size} bits is too short: {LEAST_RSA_BITS} or more")
        return RSA_ALGORITHMS
    if isinstance(public, ec.EllipticCurvePublicKey) and public.curve.name in EC_ALGORITHMS:
        return (EC_ALGORITHMS[public.curve.name],)
    raise UsageError(f"{where}: bundles are signed with RSA keys, or with EC keys on P-256, P-384 or P-521")


def need_cryptography() -> None:
    """Raise UsageError if the extra `sign` is not installed."""
    try:
        import cryptography
        import jwt
    except ImportError as error:
        raise UsageError(f"signatures need the extra `sign`: {how_to_install('sign')}") from error
    del cryptography, jwt


def _read(source: KeySource) -> list[VerificationKey]:
    need_cryptography()
    text, where = key_text(source)
    blocks = [f"{PEM}{part}" for part in text.split(PEM)[1:]]
    if not blocks:
        raise UsageError(f"{where} is not a key: it contains no {PEM}…")
    return [VerificationKey.of(_public(block, where), where) for block in blocks]


def _public(block: str, where: str) -> Any:
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from cryptography.x509 import load_pem_x509_certificate

    kind = block.removeprefix(PEM).partition("-----")[0].strip()
    if "PRIVATE KEY" in kind:
        raise UsageError(f"{where} is a private key: verifying takes the public one (`privtab bundle keys public`)")
    try:
        if kind == "CERTIFICATE":
            return load_pem_x509_certificate(block.encode()).public_key()
        return load_pem_public_key(block.encode())
    except Exception as error:  # the library raises ValueError, TypeError, UnsupportedAlgorithm and others
        raise UsageError(f"{where} holds no public key that can be read: {error}") from error
