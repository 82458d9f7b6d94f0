"""Keys for signing bundles, and bundles that were tampered with."""

from __future__ import annotations

import base64
import hashlib
import hmac
import io
import json
import tarfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from privtab.bundle.archive import packed_archive
from privtab.bundle.sign import SigningKey


@dataclass(frozen=True)
class KeyPair:
    """A private key and its public half, as PEM."""

    private: str
    public: str

    def signing(self, **more: Any) -> SigningKey:
        return SigningKey.of(self.private, **more)

    def write(self, folder: Path, name: str = "key") -> tuple[Path, Path]:
        """Write the files `name.pem` and `name.pub.pem`."""
        paths = folder / f"{name}.pem", folder / f"{name}.pub.pem"
        for path, text in zip(paths, (self.private, self.public), strict=True):
            path.write_text(text, encoding="ascii")
        return paths


@cache
def pair(kind: str = "ES256", number: int = 0) -> KeyPair:
    """A key pair, the same for the same kind and number within a process."""
    del number
    key: Any
    if kind.startswith("ES"):
        curves: dict[str, ec.EllipticCurve] = {
            "ES256": ec.SECP256R1(),
            "ES384": ec.SECP384R1(),
            "ES512": ec.SECP521R1(),
        }
        key = ec.generate_private_key(curves[kind])
    else:
        key = rsa.generate_private_key(65537, 2048)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return KeyPair(private.decode(), public.decode())


def files(bundle: bytes) -> dict[str, bytes]:
    """The files of a bundle, by path."""
    with tarfile.open(fileobj=io.BytesIO(bundle), mode="r:gz") as tar:
        return {m.name: content.read() for m in tar.getmembers() if (content := tar.extractfile(m))}


def claims(bundle: bytes) -> dict[str, Any]:
    """The claims in the signature of a bundle, without verification."""
    found: dict[str, Any] = json.loads(_unbase(_token(bundle).split(".")[1]))
    return found


def header(bundle: bytes) -> dict[str, Any]:
    """The header of the signature of a bundle."""
    found: dict[str, Any] = json.loads(_unbase(_token(bundle).split(".")[0]))
    return found


def forged(bundle: bytes, algorithm: str, secret: str = "") -> bytes:
    """The bundle with a forged token: algorithm `none`, or HS256 with a public key as the secret."""
    head = _base(json.dumps({"alg": algorithm, "typ": "JWT", "kid": header(bundle)["kid"]}).encode())
    message = f"{head}.{_token(bundle).split('.')[1]}"
    mac = hmac.new(secret.encode(), message.encode(), hashlib.sha256).digest() if secret else b""
    return with_token(bundle, f"{message}.{_base(mac)}")


def with_token(bundle: bytes, token: str) -> bytes:
    """The bundle with another signature."""
    return packed_archive(files(bundle) | {".signatures.json": json.dumps({"signatures": [token]}).encode()})


def tampered(bundle: bytes) -> dict[str, bytes]:
    """The bundle tampered with in all ways that leave a valid archive, by description."""
    inside = files(bundle)
    data = next(name for name in inside if name.endswith("data.json"))
    changed = inside[data].replace(b'"', b'"x', 1)
    head, payload, mac = _token(bundle).split(".")
    other = _base(json.dumps(claims(bundle) | {"scope": "else"}).encode())
    return {
        "a changed byte": packed_archive(inside | {data: changed}),
        "an added policy": packed_archive(inside | {"system.rego": b"package system.authz\n\nallow := true\n"}),
        "added data": packed_archive(inside | {"privtab/data.json": b"{}"}),
        "a removed file": packed_archive({name: text for name, text in inside.items() if name != data}),
        "a missing signature": packed_archive(
            {name: text for name, text in inside.items() if name != ".signatures.json"}
        ),
        "two signatures": packed_archive(inside | {"privtab/.signatures.json": inside[".signatures.json"]}),
        "an empty signature": packed_archive(inside | {".signatures.json": b'{"signatures":[]}'}),
        "a changed payload": with_token(bundle, f"{head}.{other}.{mac}"),
        "a cut signature": with_token(bundle, f"{head}.{payload}.{mac[:20]}"),
        "no algorithm": forged(bundle, "none"),
    }


def doubled(bundle: bytes, name: str, content: bytes) -> bytes:
    """The bundle with a second file of an existing name at the end."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for path, text in [*files(bundle).items(), (name, content)]:
            entry = tarfile.TarInfo(path)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text))
    return buffer.getvalue()


def _token(bundle: bytes) -> str:
    token: str = json.loads(files(bundle)[".signatures.json"])["signatures"][0]
    return token


def _base(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _unbase(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
