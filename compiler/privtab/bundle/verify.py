"""Verify bundles: who signed them, that they are unchanged, and that they are newer than another."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeAlias

from privtab.bundle.archive import digest, entries
from privtab.bundle.bounds import MOST_REWRITTEN, check_rewritten, check_values
from privtab.errors import FileError, SignatureRefused
from privtab.signatures import (
    LARGEST_SIGNATURES,
    PATCH,
    Signed,
    Trust,
    changed,
    check_names,
    is_signature,
    is_structured,
    matches,
)

BundleSource: TypeAlias = bytes | str | os.PathLike[str]
"""A bundle, or the path of one."""


def verify(bundle: BundleSource, trust: Trust, *, newer_than: int | None = None, now: float | None = None) -> Signed:
    """The claims of a bundle's signature, after verifying it and every file.

    `newer_than`: the sequence must be greater. Raises SignatureRefused, BrokenBundle, FileError.
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
    check_newer(signed, newer_than)
    return signed


def check_newer(signed: Signed, sequence: int | None) -> None:
    """Raise SignatureRefused unless the sequence of a bundle is greater than another."""
    if sequence is None:
        return
    if signed.sequence is None:
        raise SignatureRefused(f"its signature has no sequence, so it is unknown whether it is newer than {sequence}")
    if signed.sequence <= sequence:
        raise SignatureRefused(f"it is not newer: its sequence is {signed.sequence}, and {sequence} was there before")


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
    for name, entry, content in entries(file):
        if is_signature(name):
            signature_files[name] = content.read(min(entry.size, LARGEST_SIGNATURES + 1))
        else:
            digests[name] = "SHA-256", digest(content)
    return signature_files, digests


def _check_rewritten_files(file: BinaryIO, mismatched: set[str], signed: Signed) -> None:
    """Check files whose hash is not the signed one: they may be JSON with the same content, or use another hash algorithm."""
    for name in sorted(mismatched):
        if not is_structured(name) and signed.files[name][0] == "SHA-256":
            raise changed(name)
    if not mismatched:
        return
    file.seek(0)
    for name, entry, content in entries(file):
        if name not in mismatched:
            continue
        check_rewritten(name, entry.size)
        text = content.read()
        check_values(name, text, MOST_REWRITTEN)
        if not matches(name, text, signed.files[name]):
            raise changed(name)
