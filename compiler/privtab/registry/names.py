"""What things in a registry may be called, and where they lie: checked names, so that no path leads elsewhere."""

from __future__ import annotations

import hashlib
import re

from privtab.errors import RegistryError, UsageError

KINDS = ("policy", "state", "shard", "wasm")
"""What a bundle may be: a whole policy, a whole state, a part of a state, a policy for engines that run Wasm."""
SETTINGS = "registry.json"
CHANNELS = "channels"
REVISIONS = "revisions"
BLOBS = "blobs"
HOLDS = "holds"

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,62}[A-Za-z0-9_-])?")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_UNFIT = re.compile(r"[^A-Za-z0-9_-]+")


def checked(what: str, name: str) -> str:
    """A name of a channel, a system or a revision as it was given; raises UsageError."""
    if not fits(name):
        raise UsageError(
            f"{what} `{name}`: letters, digits, `-`, `_` and `.` between them, 64 at most, no two points in a row"
        )
    return name


def fits(name: str) -> bool:
    """Whether something may be called so."""
    return bool(_NAME.fullmatch(name)) and ".." not in name


def checked_kind(kind: str) -> str:
    """A kind of bundle; raises UsageError."""
    if kind not in KINDS:
        raise UsageError(f"there is no kind `{kind}`: kinds are {', '.join(KINDS)}")
    return kind


def shard_file(shard: str) -> str:
    """The name of a shard in paths: what can be read of its key, and a hash, since a key may hold any character.

    >>> shard_file("metalake:m1")
    'metalake-m1-d9990e8f'
    """
    digest = hashlib.sha256(shard.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{_UNFIT.sub('-', shard).strip('-')[:40]}-{digest}".lstrip("-")


def blob(digest: str) -> str:
    """Where a bundle lies."""
    if not _DIGEST.fullmatch(digest):
        raise RegistryError(f"`{digest}` is no SHA-256")
    return f"{BLOBS}/sha256/{digest[:2]}/{digest}.tar.gz"


def revisions(system: str, kind: str, shard: str = "") -> str:
    """Where the records of the revisions of one stream lie."""
    inner = f"/{shard_file(shard)}" if shard else ""
    return f"{REVISIONS}/{checked('the system', system)}/{checked_kind(kind)}{inner}"


def revision(system: str, kind: str, identity: str, shard: str = "") -> str:
    """Where the record of a revision lies."""
    return f"{revisions(system, kind, shard)}/{checked('the revision', identity)}.json"


def channel(name: str, system: str) -> str:
    """The folder of a channel of a system."""
    return f"{CHANNELS}/{checked('the channel', name)}/{checked('the system', system)}"


def entry(name: str, system: str, sequence: int) -> str:
    """Where an entry of a channel's history lies: what ran from that release on."""
    return f"{channel(name, system)}/history/{sequence:08}.json"


def served(kind: str, shard: str = "") -> str:
    """The file of a stream below the folder of its channel."""
    return f"shards/{shard_file(shard)}.tar.gz" if kind == "shard" else f"{kind}.tar.gz"
