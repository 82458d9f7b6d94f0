"""Signatures of bundles, in the format of OPA: a JWT in `.signatures.json` that lists every file with its hash; and the public keys that verify them."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any, TypeAlias

from privtab.base import files, strict_json
from privtab.base.errors import FileError, SignatureRefused, UsageError
from privtab.base.lazy import pattern
from privtab.base.records import dataclass
from privtab.base.resources import needing

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
        found = files.read_content(text).decode("ascii", "replace")
        files.check_secret(text, public="PRIVATE KEY" not in found)
    except OSError as error:
        raise FileError(f"cannot read the key {text}: {error.strerror or error}") from error
    return found, text


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
    with needing("a signature", "sign"):
        import cryptography
        import jwt
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
        raise UsageError(
            f"{where} is a private key: verifying takes the public one (`privtab bundle keys --format pem`)"
        )
    try:
        if kind == "CERTIFICATE":
            return load_pem_x509_certificate(block.encode()).public_key()
        return load_pem_public_key(block.encode())
    except Exception as error:  # the library raises ValueError, TypeError, UnsupportedAlgorithm and others
        raise UsageError(f"{where} holds no public key that can be read: {error}") from error


SIGNATURES = ".signatures.json"
PATCH = "patch.json"
"""The file of OPA's delta bundles, which have no signatures; only whole bundles are made here."""
HASHES = {"SHA-224": "sha224", "SHA-256": "sha256", "SHA-384": "sha384", "SHA-512": "sha512"}
"""Without MD5 and SHA-1, which OPA also accepts: collisions of these can be made."""
LARGEST_SIGNATURES = 16 << 20
"""Limit on the bytes of a `.signatures.json`, which are read before the signature is verified."""
_STRUCTURED = frozenset({"data.json", "data.yaml", "data.yml", ".manifest"})
_SEPARATORS = {"\u2028": "\\u2028", "\u2029": "\\u2029"}
_LONE_SURROGATE = pattern("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """The claims of a verified signature: the key, and the hash of every file."""

    key: str
    algorithm: str
    scope: str
    files: Mapping[str, tuple[str, str]]
    """The algorithm and the hexadecimal hash, by path."""
    sequence: int | None = None
    """The number of the bundle in its sequence, which its signer increases."""


@dataclass(frozen=True, slots=True)
class Trust:
    """The trusted keys, and their scope.

    Trust.of(["keys/release.pem"], "production") trusts one key for bundles of that scope.
    """

    keys: tuple[VerificationKey, ...]
    scope: str = ""

    @classmethod
    def of(cls, sources: KeySource | Iterable[KeySource], scope: str = "") -> Trust:
        """Read PEM files or texts. Raises FileError, UsageError."""
        return cls(verification_keys(sources), scope)

    def signed(self, signatures: bytes | None, *, now: float | None = None) -> Signed:
        """Verify the content of `.signatures.json`, and return its claims. Raises SignatureRefused unless a trusted key signed it."""
        if signatures is None:
            raise SignatureRefused("it is not signed: it has no .signatures.json")
        claims, key, algorithm = self._claims(_token(signatures))
        scope = claims.get("scope", "")
        if scope != self.scope:
            raise SignatureRefused(f"it is signed for {_scope(scope)}, not for {_scope(self.scope)}")
        _in_time(claims, time.time() if now is None else now)
        return Signed(key=key.id, algorithm=algorithm, scope=scope, files=_files(claims), sequence=_sequence(claims))

    def check(self, files: Mapping[str, bytes], *, now: float | None = None) -> Signed:
        """Verify all files of a bundle, by path and including the signature. Raises SignatureRefused."""
        found = [name for name in files if is_signature(name)]
        if len(found) > 1:
            raise SignatureRefused(f"it has {len(found)} files with signatures: {', '.join(sorted(found))}")
        signed = self.signed(files[found[0]] if found else None, now=now)
        check_names(signed, (name for name in files if name not in found))
        for name, expected in signed.files.items():
            if not matches(name, files[name], expected):
                raise changed(name)
        return signed

    def _claims(self, token: str) -> tuple[dict[str, Any], VerificationKey, str]:
        """The payload of a token that one of the keys verifies, with that key and the algorithm."""
        need_cryptography()
        import jwt

        jws = jwt.PyJWS()
        try:
            header = jws.get_unverified_header(token)
        except jwt.InvalidTokenError as error:
            raise SignatureRefused(f"its signature is not a token: {error}") from None
        algorithm, named_key = str(header.get("alg")), header.get("kid")
        usable = [key for key in self.keys if algorithm in key.algorithms]
        if not usable:
            raise SignatureRefused(
                f"its signature says that it is made with `{algorithm}`, which is not for the keys that are trusted: "
                + ", ".join(sorted({name for key in self.keys for name in key.algorithms}))
            )
        # If the named key is known, use only that one; otherwise try all that are trusted.
        for key in [key for key in usable if key.id == named_key] or usable:
            try:
                payload = jws.decode(token, key.key, algorithms=[algorithm])
            except jwt.InvalidSignatureError:
                continue
            except jwt.InvalidTokenError as error:
                raise SignatureRefused(f"its signature cannot be verified: {error}") from None
            return strict_json.loads_object(payload, "its signature", SignatureRefused), key, algorithm
        known = ", ".join(f"`{key.id}`" for key in self.keys)
        raise SignatureRefused(
            f"it is signed with another key{f' (`{named_key}`)' if named_key else ''}, or was changed; trusted: {known}"
        )


def is_signature(name: str) -> bool:
    """Return whether OPA takes a path for the file with the signature."""
    return name.rpartition("/")[2] == SIGNATURES


def is_structured(name: str) -> bool:
    """Return whether the hash of a file is taken over the JSON in it instead of its bytes."""
    return name.rpartition("/")[2] in _STRUCTURED


def check_names(signed: Signed, names: Iterable[str]) -> None:
    """Raise SignatureRefused for files that the signature does not list, and for listed ones that are missing."""
    found = set(names)
    for problem, paths in (
        ("are not among those that were signed", found - signed.files.keys()),
        ("were signed and are missing", signed.files.keys() - found),
    ):
        if paths:
            shown = ", ".join(f"`{name}`" for name in sorted(paths)[:5]) + (", …" if len(paths) > 5 else "")
            raise SignatureRefused(f"files {problem}: {shown}")


def changed(name: str) -> SignatureRefused:
    """The exception for a file that differs from the signed one."""
    return SignatureRefused(f"`{name}` is not as it was when it was signed")


def matches(name: str, content: bytes, expected: tuple[str, str]) -> bool:
    """Return whether a file is the signed one: the same bytes, or for JSON the same content."""
    algorithm, digest = expected
    # Bytes with the right hash need no parsing; files that privtab wrote have the form that is hashed.
    if hashlib.new(HASHES[algorithm], content).hexdigest() == digest:
        return True
    if not is_structured(name):
        return False
    try:
        return hashlib.new(HASHES[algorithm], canonical(content)).hexdigest() == digest
    except ValueError:
        return False


class _Written(str):
    """JSON text that is already serialised."""

    __slots__ = ()


def canonical(content: bytes) -> bytes:
    """JSON in the form that OPA hashes: sorted keys, no spaces, numbers as written, U+2028 and U+2029 escaped.

    Objects are serialised as soon as they are read, so that the whole is never held as much larger Python objects. Raises
    ValueError if it is not JSON.
    """

    def scalar(value: Any) -> str:
        if isinstance(value, _Written):
            return value
        if isinstance(value, str):
            return _string(value)
        if isinstance(value, list):
            return f"[{','.join(map(scalar, value))}]"
        return {None: "null", True: "true", False: "false"}[value]

    def serialised(pairs: list[tuple[str, Any]]) -> _Written:
        # Before sorting, since OPA's reader replaces lone surrogates by U+FFFD.
        found = {_LONE_SURROGATE.sub("\ufffd", key): value for key, value in pairs}
        return _Written(f"{{{','.join(f'{_string(key)}:{scalar(found[key])}' for key in sorted(found))}}}")

    def reject(name: str) -> Any:
        raise ValueError(f"{name} is not JSON")

    text = content.removeprefix(b"\xef\xbb\xbf").decode()
    try:
        value = json.loads(
            text, object_pairs_hook=serialised, parse_int=_Written, parse_float=_Written, parse_constant=reject
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return scalar(value).encode()


def escape_separators(content: bytes) -> bytes:
    """The form that OPA hashes, for JSON that already has sorted keys and no spaces."""
    for separator, escaped in _SEPARATORS.items():
        content = content.replace(separator.encode(), escaped.encode())
    return content


def _string(text: str) -> str:
    # Surrogate pairs are single characters here; a lone surrogate is replaced.
    shown = json.dumps(_LONE_SURROGATE.sub("\ufffd", text), ensure_ascii=False)
    for separator, escaped in _SEPARATORS.items():
        shown = shown.replace(separator, escaped)
    return shown


# --- the claims of a signature ---


def _token(signatures: bytes) -> str:
    if len(signatures) > LARGEST_SIGNATURES:
        raise SignatureRefused(f"its .signatures.json is larger than {LARGEST_SIGNATURES >> 20} MiB")
    document = strict_json.loads_object(signatures, "its .signatures.json", SignatureRefused)
    plugin = document.get("plugin", "")
    if plugin not in ("", "_default"):
        raise SignatureRefused(f"its signature is for the plugin `{plugin}`, which is not supported")
    tokens = document.get("signatures")
    if not isinstance(tokens, list) or len(tokens) != 1 or not isinstance(tokens[0], str):
        raise SignatureRefused("its .signatures.json does not hold exactly one signature")
    return tokens[0]


def _files(claims: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    files = claims.get("files")
    if not isinstance(files, list):
        raise SignatureRefused("its signature lists no files")
    found: dict[str, tuple[str, str]] = {}
    for file in files:
        match file:
            case {"name": str(name), "hash": str(digest), "algorithm": str(algorithm)}:
                if algorithm not in HASHES:
                    raise SignatureRefused(f"`{name}` is hashed with `{algorithm}`; accepted are: {', '.join(HASHES)}")
                if name in found:
                    raise SignatureRefused(f"its signature lists `{name}` twice")
                found[name] = algorithm, digest.lower()
            case _:
                raise SignatureRefused("its signature lists a file without its name, hash or algorithm")
    return found


def _sequence(claims: Mapping[str, Any]) -> int | None:
    sequence = claims.get("sequence")
    if sequence is not None and (not isinstance(sequence, int) or isinstance(sequence, bool) or sequence < 0):
        raise SignatureRefused("the sequence in its signature is not a number")
    return sequence


def _in_time(claims: Mapping[str, Any], now: float) -> None:
    for name, is_expiry in (("exp", True), ("nbf", False)):
        claimed = claims.get(name)
        if claimed is None:
            continue
        if isinstance(claimed, bool) or not isinstance(claimed, int | float):
            raise SignatureRefused(f"`{name}` in its signature is not a time")
        if (now >= claimed) is is_expiry:
            when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(claimed))
            raise SignatureRefused(
                f"its signature {'ended' if is_expiry else 'holds only from'} {when}{' on' if not is_expiry else ''}"
            )


def _scope(scope: object) -> str:
    return f"the scope `{scope}`" if scope else "no scope"
