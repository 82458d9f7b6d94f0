"""Bearer tokens from a file: who may ask, and what.

A line has a name for the log, the token or its hash as `sha256:…`, and scopes; without scopes it may do everything:

    # name   token                    scopes
    gateway  Zk3vX0Qm9sTq1rJ8uYw2
    console  sha256:9f86d081884c7d65…  evaluate search
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from privtab.errors import FileError, UsageError

LOG = logging.getLogger("privtab.serve")

SHORTEST = 16
"""Characters; a shorter token is one that somebody made up."""
_HASH = re.compile(r"sha256:[0-9a-f]{64}")


class Scope(StrEnum):
    """What a token may be good for where decisions are served."""

    EVALUATE = "evaluate"
    SEARCH = "search"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bearer:
    """Who shows a token, and what it is good for. The token itself is not kept."""

    name: str
    digest: bytes
    scopes: frozenset[StrEnum]


class Tokens:
    """The tokens of a file; read again when it changes. A file that has become wrong leaves the last good ones in force."""

    def __init__(self, path: Path, scopes: type[StrEnum] = Scope) -> None:
        """Raises FileError, UsageError. `scopes`: all that there are."""
        self._path = path
        self._scopes = scopes
        self._mark = self._marked()
        self._bearers = read(path, scopes)

    def find(self, token: str) -> Bearer | None:
        """Whose token it is; takes as long for a wrong one as for a right one."""
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        found = None
        for bearer in self._bearers:
            if hmac.compare_digest(bearer.digest, digest):
                found = bearer
        return found

    def refresh(self) -> None:
        """Read the file again if it has changed."""
        try:
            mark = self._marked()
            if mark == self._mark:
                return
            self._mark = mark
            self._bearers = read(self._path, self._scopes)
        except (FileError, UsageError) as error:
            LOG.warning("tokens were not read again, the last good ones stay in force: %s", error)
        else:
            LOG.info("tokens were read again: %d", len(self._bearers))

    def _marked(self) -> tuple[int, int, int] | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino


def read(path: Path, scopes: type[StrEnum] = Scope) -> tuple[Bearer, ...]:
    """The bearers of a file; raises FileError, and UsageError that names the line and never the token."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path}: {getattr(error, 'strerror', None) or 'not UTF-8'}") from None
    found = [_bearer(f"{path}:{at}", line.split(), scopes) for at, line in enumerate(lines, start=1) if _says(line)]
    if not found:
        raise UsageError(f"{path} has no tokens: write lines of a name, a token and, if need be, scopes")
    if len({bearer.digest for bearer in found}) < len(found):
        raise UsageError(f"{path}: a token stands there twice")
    return tuple(found)


def _says(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _bearer(where: str, words: list[str], scopes: type[StrEnum]) -> Bearer:
    if len(words) < 2:
        raise UsageError(f"{where}: write a name and a token, and scopes if need be: {', '.join(scopes)}")
    name, token, *given = words
    if len(token) < SHORTEST:
        raise UsageError(f"{where}: the token, the second word, is shorter than {SHORTEST} characters")
    if token.startswith("sha256:") and not _HASH.fullmatch(token):
        raise UsageError(f"{where}: a hash is `sha256:` and 64 hexadecimal digits in lower case")
    digest = bytes.fromhex(token[7:]) if token.startswith("sha256:") else hashlib.sha256(token.encode()).digest()
    try:
        return Bearer(name=name, digest=digest, scopes=frozenset(map(scopes, given)) or frozenset(scopes))
    except ValueError:
        # What stands there is not shown: it may be a token.
        raise UsageError(f"{where}: unknown scope; scopes are {', '.join(scopes)}") from None
