"""A certificate authority for tests, and a certificate for the loopback address."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class CertificateFiles:
    """Paths of PEM files."""

    authority: Path
    certificate: Path
    key: Path


def make(folder: Path) -> CertificateFiles:
    """Create an authority, and a key with a certificate signed by it."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    def name(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    now = datetime.datetime.now(datetime.UTC)
    own_key, issuer_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())

    def certificate(subject: str, key: ec.EllipticCurvePublicKey, *, authority: bool) -> x509.Certificate:
        loopback = x509.SubjectAlternativeName(
            [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        )
        builder = (
            x509.CertificateBuilder()
            .subject_name(name(subject))
            .issuer_name(name("authority"))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )
        if not authority:
            builder = builder.add_extension(loopback, critical=False)
        return builder.sign(own_key, hashes.SHA256())

    pem = serialization.Encoding.PEM
    files = CertificateFiles(folder / "authority.pem", folder / "server.pem", folder / "server.key")
    files.authority.write_bytes(certificate("authority", own_key.public_key(), authority=True).public_bytes(pem))
    files.certificate.write_bytes(certificate("registry", issuer_key.public_key(), authority=False).public_bytes(pem))
    plain = serialization.NoEncryption()
    files.key.write_bytes(issuer_key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    return files
