"""The values of a registry: revisions and channels."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, TypeVar

from privtab.base import strict_loads
from privtab_server.errors import RegistryError
from privtab_server.registry import names

VERSION = 1
DEEPEST = 50
_DIGEST = re.compile(r"[0-9a-f]{64}")


class NewerFormat(RegistryError):
    """A record written by a newer privtab."""


class BrokenRecord(RegistryError):
    """The record of a revision exists but cannot be read."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{why}; put its bundle again, or let `privtab registry check --repair` rewrite it")
        self.path = path
        self.why = why


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """A stored bundle. Its content never changes, but a new signature may replace the old one."""

    system: str
    kind: str
    """`policy`, `state`, `shard` or `wasm`."""
    id: str
    """The revision in its manifest."""
    digest: str
    """SHA-256 of its bytes."""
    content: str
    """SHA-256 of its content, without signatures and provenance."""
    size: int
    """Bytes."""
    created: str
    """The time when the bundle was stored, UTC."""
    shard: str = ""
    """The key of the shard."""
    signed: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Metadata of the bundle's manifest."""

    @property
    def path(self) -> str:
        """The path of its record."""
        return names.revision(self.system, self.kind, self.id, self.shard)

    @property
    def pin(self) -> str:
        """The key of the revision in `Channel.digests`."""
        return pin(self.kind, self.id, self.shard)

    def to_json(self) -> dict[str, Any]:
        """As in its record."""
        return _json_of(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """The revisions that a part of the sidecars runs instead of the channel's.

    Of the sidecars with all of `labels`, the `share` is always the same for given revisions, and a larger share includes a
    smaller one. Revisions that are None stay as in the channel.
    """

    policy: str | None = None
    state: str | None = None
    shards: Mapping[str, str] = field(default_factory=dict)
    share: float = 1.0
    """The share of the sidecars, from 0 to 1."""
    labels: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As in a channel's entry."""
        return _json_of(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """The revisions that a channel runs of a system since its last release. `sequence` numbers the releases; 0: none."""

    channel: str
    system: str
    sequence: int = 0
    policy: str | None = None
    state: str | None = None
    shards: Mapping[str, str] = field(default_factory=dict)
    """Shard → revision, for a sharded state."""
    canary: Canary | None = None
    digests: Mapping[str, str] = field(default_factory=dict)
    """The exact bundles served: `policy/<id>`, `state/<id>`, `shard/<name>/<id>` → SHA-256."""
    when: str = ""
    """UTC."""
    by: str = ""
    why: str = ""
    broken: Mapping[int, str] = field(default_factory=dict)
    """Unreadable releases since this one, and why each cannot be read."""
    lost: bool = False
    """True if one of them may have been active: the copy that would tell is also missing."""

    def started_since(self, before: Channel) -> list[tuple[str, str]]:
        """The revisions, with their digests, that this entry runs and `before` did not."""
        return [(key, digest) for key, digest in self.digests.items() if before.digests.get(key) != digest]

    @property
    def last(self) -> int:
        """The highest number of a release, readable or not."""
        return max([self.sequence, *self.broken])

    @property
    def held(self) -> bool:
        """Return whether a newer release is unreadable; the running revisions then stay until the next release."""
        return self.last > self.sequence

    @property
    def trouble(self) -> str:
        """Describe the faults of the channel's history; empty if there are none."""
        if not self.broken:
            return ""
        reasons = "; ".join(why for _, why in sorted(self.broken.items(), reverse=True)[:3])
        numbers = ", ".join(map(str, sorted(self.broken)))
        consequence = (
            "its copy is intact, and it stays active: `privtab registry check --repair` restores it"
            if not self.held
            else f"what runs stays until the next release, which will be {self.last + 1}"
        )
        return f"{self.channel}/{self.system}: release {numbers} cannot be read ({reasons}); {consequence}"

    def to_json(self) -> dict[str, Any]:
        """As in its file."""
        canary = self.canary.to_json() if self.canary else None
        return {"privtab_channel": VERSION, **_json_of(self, *_OF_READERS), "canary": canary}

    def runs(self, *, canary: bool = False) -> dict[tuple[str, str], str]:
        """Return the revisions served, (kind, shard) → revision: to the canary's sidecars if `canary`, else to the others."""
        overrides = self.canary if canary else None
        policy = (overrides.policy if overrides else None) or self.policy
        state = (overrides.state if overrides else None) or self.state
        shards = {**self.shards, **(overrides.shards if overrides else {})}
        found = {("policy", ""): policy, ("state", ""): state}
        return {key: identity for key, identity in found.items() if identity} | {
            ("shard", shard): identity for shard, identity in shards.items()
        }


def pin(kind: str, identity: str, shard: str = "") -> str:
    """The key of `Channel.digests`."""
    return f"{kind}/{shard}/{identity}" if shard else f"{kind}/{identity}"


def timestamp(seconds: float | None = None) -> str:
    """A time in seconds since 1970, or now, as RFC 3339 in UTC: the format of records, releases and answers."""
    moment = datetime.now(UTC) if seconds is None else datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def encoded(value: Mapping[str, Any]) -> bytes:
    """A record as it is stored: indented JSON."""
    return (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode("utf-8", "replace")


def decoded(where: str, content: bytes) -> dict[str, Any]:
    """Parse a record; raises RegistryError."""
    try:
        value = strict_loads(content)
    except ValueError as error:
        raise RegistryError(f"{where} is broken: {error}") from None
    if not isinstance(value, dict):
        raise RegistryError(f"{where} is broken: no object")
    if too_deep(value):
        raise RegistryError(f"{where} is broken: it is nested more than {DEEPEST} times")
    return value


def too_deep(value: Any) -> bool:
    """Return whether a document is nested more deeply than any record; it could be read but not written again."""
    level = [value]
    for _ in range(DEEPEST):
        children = [
            node.values() if isinstance(node, dict) else node for node in level if isinstance(node, dict | list)
        ]
        level = [value for values in children for value in values]
        if not level:
            return False
    return True


_KINDS: Mapping[str, tuple[type, ...]] = {
    "str": (str,),
    "str | None": (str, type(None)),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "Mapping[str, str]": (dict,),
    "Mapping[str, Any]": (dict,),
}
"""Types in JSON for the fields of nodes, by their annotations."""
_OF_READERS = ("broken", "lost")
"""The fields of a channel that say how its history was read."""
_Node = TypeVar("_Node", Revision, Channel, Canary)


def _json_of(node: _Node, *without: str) -> dict[str, Any]:
    """The fields of a node as JSON."""
    values = {name: getattr(node, name) for name in node.__slots__ if name not in without}
    return {name: dict(value) if isinstance(value, Mapping) else value for name, value in values.items()}


def _node(where: str, node: type[_Node], value: Any, **given: Any) -> _Node:
    """A node with the fields that JSON has, except the given fields; raises RegistryError if one is missing, or of another type."""
    annotations = {field.name: str(field.type) for field in fields(node) if field.name not in given}
    if missing := [name for name in annotations if not isinstance(value, dict) or name not in value]:
        raise RegistryError(f"{where} is broken: `{missing[0]}` is missing")
    for name, annotation in annotations.items():
        found = value[name]
        texts = found.values() if annotation == "Mapping[str, str]" and isinstance(found, dict) else ()
        if not isinstance(found, _KINDS[annotation]) or not all(isinstance(text, str) for text in texts):
            raise RegistryError(f"{where} is broken: `{name}` has the wrong type")
    return node(**{name: value[name] for name in annotations}, **given)


def revision_of(where: str, content: bytes) -> Revision:
    """The revision of a record; raises RegistryError."""
    return _node(where, Revision, decoded(where, content))


def channel_of(where: str, content: bytes) -> Channel:
    """The channel of an entry; raises RegistryError."""
    value = decoded(where, content)
    version = value.pop("privtab_channel", None)
    if isinstance(version, int) and version > VERSION:
        raise NewerFormat(f"{where} is of version {version}, which this version of privtab does not support")
    if version != VERSION:
        raise RegistryError(f"{where} is broken: it is not a release of a channel")
    if "canary" not in value:
        raise RegistryError(f"{where} is broken: `canary` is missing")
    canary = None if value["canary"] is None else _node(where, Canary, value["canary"])
    return _pinned(where, _node(where, Channel, value, canary=canary, broken={}, lost=False))


def _pinned(where: str, channel: Channel) -> Channel:
    """Check that a channel has a digest for every revision that it runs; raises RegistryError."""
    for canary in (False, True):
        for (kind, shard), identity in channel.runs(canary=canary).items():
            if not _DIGEST.fullmatch(channel.digests.get(pin(kind, identity, shard), "")):
                raise RegistryError(f"{where} is broken: it does not say which bundle {kind} {identity} is")
    return channel
