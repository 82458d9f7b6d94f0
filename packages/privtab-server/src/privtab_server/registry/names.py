"""Names and paths in a registry. Names are checked, so that no path leads outside the registry."""

from __future__ import annotations

import hashlib
import re

from privtab.base import UsageError
from privtab_server.errors import RegistryError

KINDS = ("policy", "state", "shard", "wasm")
"""Kinds of bundles: a policy, a whole state, a shard of a state, a policy as Wasm."""
SETTINGS = "registry.json"
CHANNELS = "channels"
LAST_RELEASE = "channel.json"
"""The file among the copies for static servers that records their release."""
REVISIONS = "revisions"
BLOBS = "blobs"
HOLDS = "holds"

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,62}[A-Za-z0-9_-])?")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_UNFIT = re.compile(r"[^A-Za-z0-9_-]+")


def checked(label: str, name: str) -> str:
    """Return the name of a channel, system or revision unchanged; raises UsageError if it is invalid."""
    if not is_valid(name):
        raise UsageError(
            f"{label} `{name}`: letters, digits, `-`, `_` and `.` between them, 64 at most, no two dots in a row"
        )
    return name


def is_valid(name: str) -> bool:
    """Return whether a name is valid."""
    return bool(_NAME.fullmatch(name)) and ".." not in name


def checked_kind(kind: str) -> str:
    """Return a kind of bundle unchanged; raises UsageError if it is invalid."""
    if kind not in KINDS:
        raise UsageError(f"there is no kind `{kind}`: kinds are {', '.join(KINDS)}")
    return kind


def shard_file(shard: str) -> str:
    """The name of a shard in paths: the safe characters of its key, and a hash, since a key may have any character.

    >>> shard_file("metalake:m1")
    'metalake-m1-d9990e8f'
    """
    digest = hashlib.sha256(shard.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{_UNFIT.sub('-', shard).strip('-')[:40]}-{digest}".lstrip("-")


def blob(digest: str) -> str:
    """The path of a bundle."""
    if not _DIGEST.fullmatch(digest):
        raise RegistryError(f"`{digest}` is not a SHA-256 digest")
    return f"{BLOBS}/sha256/{digest[:2]}/{digest}.tar.gz"


def revisions(system: str, kind: str, shard: str = "") -> str:
    """The folder of the records of a kind of bundle or of a shard."""
    inner = f"/{shard_file(shard)}" if shard else ""
    return f"{REVISIONS}/{checked('the system', system)}/{checked_kind(kind)}{inner}"


def revision(system: str, kind: str, identity: str, shard: str = "") -> str:
    """The path of the record of a revision."""
    return f"{revisions(system, kind, shard)}/{checked('the revision', identity)}.json"


def channel(name: str, system: str) -> str:
    """The folder of a channel of a system."""
    return f"{CHANNELS}/{checked('the channel', name)}/{checked('the system', system)}"


def entry(name: str, system: str, sequence: int) -> str:
    """The path of an entry in a channel's history: a release."""
    return f"{channel(name, system)}/history/{sequence:08}.json"


def served_path(kind: str, shard: str = "") -> str:
    """The path of a served bundle within the folder of its channel."""
    return f"shards/{shard_file(shard)}.tar.gz" if kind == "shard" else f"{kind}.tar.gz"
