"""Bearer tokens from a file.

A line has a name for the log, the token or its hash as `sha256:…`, and scopes; without scopes it has all of them:

    # name   token                    scopes
    gateway  Zk3vX0Qm9sTq1rJ8uYw2
    console  sha256:9f86d081884c7d65…  evaluate search

With `bindings`, a token may be bound to the name of a sidecar, or to a pattern of names, and to labels:

    web      sha256:60303ae22b998861…  sidecar  instance=web-*  labels=app=web,zone=north
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from privtab.base import FileError, UsageError, check_secret, read_text

LOG = logging.getLogger("privtab.serve")

LARGEST = 64 << 10
"""Bytes of a file of tokens."""
SHORTEST = 16
"""Minimum length of a token in characters; a shorter one was not generated randomly."""
_HASH = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bearer:
    """The name and scopes of a token. The token itself is not kept."""

    name: str
    digest: bytes
    scopes: frozenset[StrEnum]
    stated: bool = True
    """True if its line names scopes; else it has all."""
    instance: str = ""
    """The sidecar it is bound to, `*` for any characters; empty: not bound."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that a sidecar with this token must have."""

    def is_for(self, instance: str) -> bool:
        """Return whether the token is bound to this name, exactly or by a pattern."""
        pattern = ".*".join(map(re.escape, self.instance.split("*")))
        return bool(self.instance) and re.fullmatch(pattern, instance) is not None


class Tokens:
    """The tokens of a file, read again when it changes. If the file becomes invalid, the last good ones remain."""

    def __init__(self, path: Path, scopes: type[StrEnum], *, bindings: bool = False) -> None:
        """`scopes`: all scopes; `bindings`: whether tokens may be bound to sidecars. Raises FileError, UsageError."""
        self._path = path
        self._scopes = scopes
        self._bindings = bindings
        self._stamp = self._file_stamp()
        self._bearers = read(path, scopes, bindings=bindings)

    def find(self, token: str) -> Bearer | None:
        """The bearer of a token, found in constant time."""
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        matching = None
        for bearer in self._bearers:
            if hmac.compare_digest(bearer.digest, digest):
                matching = bearer
        return matching

    def bound(self, instance: str) -> bool:
        """Return whether a token is bound to this name."""
        return any(bearer.is_for(instance) for bearer in self._bearers)

    def refresh(self) -> None:
        """Read the file again if it has changed."""
        try:
            stamp = self._file_stamp()
            if stamp == self._stamp:
                return
            self._stamp = stamp
            self._bearers = read(self._path, self._scopes, bindings=self._bindings)
        except (FileError, UsageError) as error:
            LOG.warning("tokens were not read again, the last good ones stay in force: %s", error)
        else:
            LOG.info("tokens were read again: %d", len(self._bearers))

    def _file_stamp(self) -> tuple[int, int, int] | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino


def read(path: Path, scopes: type[StrEnum], *, bindings: bool = False) -> tuple[Bearer, ...]:
    """The bearers in a file; raises FileError, and UsageError, which names the line but not the token."""
    lines = read_text(path, LARGEST).splitlines()
    check_secret(path)
    bearers = [
        _bearer(f"{path}:{number}", line.split(), scopes, bindings=bindings)
        for number, line in enumerate(lines, start=1)
        if _has_content(line)
    ]
    if not bearers:
        raise UsageError(f"{path} has no tokens: write lines of a name, a token and, if need be, scopes")
    if len({bearer.digest for bearer in bearers}) < len(bearers):
        raise UsageError(f"{path}: a token occurs twice")
    return tuple(bearers)


def _has_content(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _bearer(where: str, words: list[str], scopes: type[StrEnum], *, bindings: bool) -> Bearer:
    if len(words) < 2:
        raise UsageError(f"{where}: write a name and a token, and scopes if need be: {', '.join(scopes)}")
    name, token, *rest = words
    if len(token) < SHORTEST:
        raise UsageError(f"{where}: the token, the second word, is shorter than {SHORTEST} characters")
    if token.startswith("sha256:") and not _HASH.fullmatch(token):
        raise UsageError(f"{where}: a hash is `sha256:` and 64 hexadecimal digits in lower case")
    digest = bytes.fromhex(token[7:]) if token.startswith("sha256:") else hashlib.sha256(token.encode()).digest()
    instance, labels = _binding(where, [word for word in rest if bindings and "=" in word])
    scope_words = [word for word in rest if not (bindings and "=" in word)]
    try:
        token_scopes = frozenset(map(scopes, scope_words)) or frozenset(scopes)
    except ValueError:
        # Do not show the word: it may be a token.
        raise UsageError(f"{where}: unknown scope; scopes are {', '.join(scopes)}") from None
    stated = bool(scope_words)
    return Bearer(name=name, digest=digest, scopes=token_scopes, stated=stated, instance=instance, labels=labels)


def _binding(where: str, words: list[str]) -> tuple[str, dict[str, str]]:
    instance, labels = "", dict[str, str]()
    for word in words:
        name, _, value = word.partition("=")
        pairs = [pair.partition("=") for pair in value.split(",")]
        if name == "instance" and value and not instance:
            instance = value
        elif name == "labels" and not labels and all(key and equals for key, equals, _ in pairs):
            labels = {key: text for key, _, text in pairs}
        else:
            raise UsageError(f"{where}: a token is bound by `instance=NAME` and `labels=KEY=VALUE,…`, once each")
    if labels and not instance:
        raise UsageError(f"{where}: labels bind only named sidecars: write `instance=NAME` too, or `instance=*`")
    return instance, labels
