"""The registry: immutable revisions of bundles, and channels that record which of them run.

Releases are atomic on every storage: entry N + 1 of a channel's history is created only if it does not exist, and the
entry with the highest number is active. Everything else (copies for static servers) follows and may lag.
"""

from __future__ import annotations

import contextlib
import getpass
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from privtab.base import PolicyError, UsageError
from privtab_server.errors import BundleRefused, RegistryConflict, RegistryError
from privtab_server.registry import names, records
from privtab_server.registry.nodes import (
    VERSION,
    BrokenRecord,
    Canary,
    Channel,
    Revision,
    decoded,
    encoded,
    pin,
    timestamp,
)
from privtab_server.registry.records import History, Holds, UnreadableRelease
from privtab_server.registry.stores import Exists, Missing, Store, check_empty, check_exclusive_create, opened

if TYPE_CHECKING:
    from privtab.base import Trust


def next_release(
    registry: Registry,
    before: Channel,
    policy: str | None,
    state: str | None,
    shards: Mapping[str, str] | None,
    canary: Canary | None,
) -> Channel:
    """The release that follows `before`, with the digests of its bundles; arguments and errors as `Registry.release`."""
    if state is not None and shards is not None:
        raise UsageError("a state is whole or in shards, not both")
    if not (policy or state or shards or canary or before.canary or (before.held and before.sequence)):
        raise UsageError("nothing to release: name a policy, a state or a canary")
    if canary is not None:
        _check_canary(canary)
    after = replace(
        before,
        sequence=before.last + 1,
        policy=policy or before.policy,
        state=state or (None if shards is not None else before.state),
        shards=dict(shards if shards is not None else {} if state else before.shards),
        canary=canary,
        broken={},
        lost=False,
    )
    digests: dict[str, str] = {}
    for (kind, shard), identity in [*after.runs().items(), *after.runs(canary=True).items()]:
        key = pin(kind, identity, shard)
        if key not in digests:
            digests[key] = _digest(registry, before, key, kind, identity, shard)
    if not after.policy and canary is not None and canary.policy:
        raise UsageError("a canary needs a channel with a policy: release one first")
    _check_layouts(registry, after)
    return replace(after, digests=digests)


def _digest(registry: Registry, before: Channel, key: str, kind: str, identity: str, shard: str) -> str:
    """The digest of a revision."""
    try:
        return registry.revision(before.system, kind, identity, shard).digest
    except RegistryError:
        # An active revision stays, even if its record is lost.
        if key in before.digests:
            return before.digests[key]
        raise


def _check_canary(canary: Canary) -> None:
    """Raise UsageError for a canary without revisions or with an invalid share."""
    if not 0 < canary.share <= 1:
        raise UsageError(f"a canary's share must be above 0 and at most 1, not {canary.share:g}")
    if not (canary.policy or canary.state or canary.shards):
        raise UsageError("a canary needs its own policy or state: name it")


def _check_layouts(registry: Registry, after: Channel) -> None:
    """Raise UsageError if a policy that reads a sharded state would find a whole one, or vice versa.

    It could then not decide anything. A policy whose record is lost may read either.
    """
    for canary in (False, True):
        runs, policy = after.runs(canary=canary), None
        kinds = {kind for kind, _ in runs}
        if "policy" in kinds and len(kinds) > 1:
            with contextlib.suppress(BrokenRecord):
                policy = records.revision_at(registry.store, names.revision(after.system, "policy", runs["policy", ""]))
        if policy is not None and (policy.metadata.get("state") == "sharded") != ("shard" in kinds):
            expected, released = ("whole", "in shards") if "shard" in kinds else ("in shards", "whole")
            raise UsageError(
                f"policy {policy.id} reads a state that is {expected}, and {after.channel}/{after.system} would run one that "
                f"is {released}: release both together"
            )


_ATTEMPTS = 50
"""Number of times a release without `expect` may lose to concurrent releases before it fails."""


class Registry:
    """A registry of bundles. Any number of processes may read and write it concurrently.

    Every method raises RegistryError if the storage fails, UsageError for invalid names.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.holds = Holds(store)

    @classmethod
    def open(cls, url: str, **storage_options: Any) -> Registry:
        """Open a folder, `file://`, `s3://`, `memory://`, or `http(s)://` (read only). It is created by the first `put`."""
        return cls(opened(url, **storage_options))

    @property
    def url(self) -> str:
        """The address of the registry."""
        return self.store.url

    def init(self, *, verification_keys: Iterable[str] = (), scope: str = "", replace: bool = False) -> None:
        """Create a registry; with keys (as PEM text) it only accepts bundles signed with one of them, for `scope`.

        Raises RegistryConflict if it exists, unless `replace` is set, which replaces its settings.
        """
        keys = list(verification_keys)
        if keys:
            from privtab.base import Trust

            Trust.of(keys, scope)
        settings = {"privtab_registry": VERSION, "verification_keys": keys, "scope": scope}
        if replace:
            self.store.replace(names.SETTINGS, encoded(settings))
            return
        check_empty(self.store)
        try:
            self.store.create(names.SETTINGS, encoded(settings))
        except Exists:
            raise RegistryConflict(f"{self.url} is a registry already") from None
        check_exclusive_create(self.store, encoded(settings))

    def settings(self) -> Mapping[str, Any]:
        """The settings, such as verification keys; empty if there is no registry yet."""
        try:
            found = decoded(names.SETTINGS, self.store.read(names.SETTINGS))
        except Missing:
            return {}
        if (version := found.get("privtab_registry")) != VERSION:
            raise RegistryError(f"{self.url} is of version {version}, which this version of privtab does not support")
        return found

    # --- revisions ---

    def put(self, bundle: bytes, *, resign: bool = False, hold: contextlib.ExitStack | None = None) -> Revision:
        """Store a bundle; if its content is already stored, returns the stored revision.

        `resign`: replace a bundle of the same content with another signature or provenance, from the next release on.
        `hold`: protects the bundle from removal until it is closed. Raises BundleRefused, and RegistryConflict if the
        revision is stored with different content.
        """
        self.check_signature(bundle)  # Before anything is unpacked.
        revision = records.revision_in(bundle)
        if not self.settings():
            # Another process may create it at the same time, with verification keys.
            with contextlib.suppress(RegistryConflict):
                self.init()
            self.check_signature(bundle)
        path = revision.path
        with contextlib.ExitStack() as own_holds:
            holds = own_holds if hold is None else hold
            new_hold = holds.enter_context(self.holds.keep([revision.digest]))
            for _ in range(_ATTEMPTS):
                stored = self._stored_or_rewritten(path, revision)
                if stored is None:
                    self.store.replace(names.blob(revision.digest), bundle)
                    new_hold.check()
                    try:
                        self.store.create(path, encoded(revision.to_json()))
                    except Exists:
                        continue
                    return revision
                if stored.content != revision.content:
                    raise RegistryConflict(
                        f"revision {revision.id} of {revision.system} ({revision.kind}) is stored with different content"
                    )
                if stored.digest == revision.digest:
                    # The stored bytes may have been lost; restore them.
                    self._restore(stored, bundle)
                    return stored
                if resign:
                    self.store.replace(names.blob(revision.digest), bundle)
                    self.store.replace(path, encoded(revision.to_json()))
                    return revision
                holds.enter_context(self.holds.keep([stored.digest]))
                if self._stored(path) == stored:
                    return stored
        raise RegistryConflict(f"{path} keeps changing: revisions are being removed concurrently")

    def revisions(self, system: str, kind: str = "policy") -> list[Revision]:
        """Return all readable revisions of a system, newest last; for shards, the revisions of every shard."""
        found = [record for record in records.all_of(self.store, system, kind) if isinstance(record, Revision)]
        return sorted(found, key=lambda revision: (revision.created, revision.shard, revision.id))

    def revision(self, system: str, kind: str, id: str, shard: str = "") -> Revision:  # noqa: A002
        """One revision; raises RegistryError if it is not stored."""
        stored = self._stored(names.revision(system, kind, id, shard))
        if stored is None:
            part = f" of the shard `{shard}`" if shard else ""
            raise RegistryError(f"{self.url} keeps no {kind} revision `{id}` of {system}{part}")
        return stored

    def read(self, revision: Revision) -> bytes:
        """The bundle of a revision; raises RegistryError if it is missing or altered."""
        return self.blob(revision.digest)

    def blob(self, digest: str) -> bytes:
        """The bundle with this SHA-256; raises RegistryError."""
        try:
            content = self.store.read(names.blob(digest))
        except Missing:
            raise RegistryError(f"{self.url} has lost the bundle {digest[:16]}: put it again") from None
        if hashlib.sha256(content).hexdigest() != digest:
            raise RegistryError(f"the bundle {digest[:16]} in {self.url} has been altered: put it again")
        return content

    # --- channels ---

    def channels(self) -> list[Channel]:
        """All channels of all systems."""
        found = []
        for name in self.store.names(names.CHANNELS):
            for system in self.store.names(f"{names.CHANNELS}/{name}") if names.is_valid(name) else ():
                if not names.is_valid(system):
                    continue  # `check` reports it.
                current = self.channel(name, system)
                if current.last:
                    found.append(current)
        return found

    def channel(self, channel: str, system: str) -> Channel:
        """The active release; its sequence is 0 if there was none.

        If a release is unreadable, the last intact one stays active, and `broken` lists the others.
        """
        return self._history(channel, system).newest()

    def renew(self) -> None:
        """As Store.renew."""
        self.store.renew()

    def newer(self, known: Channel) -> Channel:
        """The active release, searched from a known one; takes a single read if nothing changed."""
        return self._history(known.channel, known.system).newer(known)

    def confirm(self, known: Channel) -> Channel:
        """Check that a known release still exists and update its `broken`; raises RegistryError if it is gone.

        Emptied storage has nothing newer, so `newer` would not notice.
        """
        entry = self._history(known.channel, known.system).entry(known.sequence)
        if entry is None:
            raise RegistryError(f"{self.url} has lost release {known.sequence} of {known.channel}/{known.system}")
        other_broken = {sequence: why for sequence, why in known.broken.items() if sequence != known.sequence}
        own_broken = {entry.sequence: entry.why} if isinstance(entry, UnreadableRelease) else {}
        return replace(known, broken={**other_broken, **own_broken})

    def release(
        self,
        channel: str,
        system: str,
        *,
        policy: str | None = None,
        state: str | None = None,
        shards: Mapping[str, str] | None = None,
        why: str = "",
        by: str | None = None,
        expect: int | None = None,
        canary: Canary | None = None,
    ) -> Channel:
        """Release revisions to a channel, atomically; revisions not given stay, except a canary, which ends.

        `state` for a whole state, or `shards` (shard → revision) for all of a sharded one; each replaces the other.
        `expect`: the number that the last release must still have (`Channel.last`). Raises RegistryConflict if it has another,
        RegistryError if a revision is not stored, BundleRefused if one is signed with a key that is no longer trusted.
        """
        if not self.store.writable:
            raise UsageError(f"{self.url} is read-only: write to the registry itself")
        for _ in range(_ATTEMPTS):
            before = self.channel(channel, system)
            if expect is not None and before.last != expect:
                raise RegistryConflict(_conflict_message(before, expect))
            after = next_release(self, before, policy, state, shards, canary)
            self._check_trusted(before, after)
            after = replace(after, why=why, by=_user() if by is None else by, when=timestamp())
            try:
                with self.holds.keep(after.digests.values()) as hold:
                    self._check_present(before, after)
                    hold.check()
                    self.store.create(names.entry(channel, system, after.sequence), encoded(after.to_json()))
            except Exists:
                if expect is not None:
                    raise RegistryConflict(_conflict_message(self.channel(channel, system), expect)) from None
                continue
            try:
                StaticMirror(self).refresh(after)
            except RegistryError as error:
                raise RegistryError(
                    f"{channel}/{system} is at release {after.sequence} now, but its copies for static servers are not: "
                    f"{error}; `privtab registry check --repair` writes them"
                ) from error
            return after
        raise RegistryConflict(f"{channel}/{system}: too many concurrent releases")

    def history(self, channel: str, system: str, last: int | None = None, until: int | None = None) -> list[Channel]:
        """All readable releases, or the `last` ones of them, oldest first; `until`: none after this one."""
        return self._history(channel, system).all(last, until)

    def unreadable_releases(self, channel: str, system: str) -> list[UnreadableRelease]:
        """All unreadable releases."""
        return self._history(channel, system).unreadable_releases()

    # --- private ---

    def _history(self, channel: str, system: str) -> History:
        return History(self.store, channel, system)

    def _stored(self, path: str) -> Revision | None:
        return records.revision_at(self.store, path)

    def _stored_or_rewritten(self, path: str, revision: Revision) -> Revision | None:
        """The revision of a record. An unreadable one is restored from a bundle in a channel, or removed to be written again."""
        try:
            return self._stored(path)
        except BrokenRecord:
            for current in self.channels():
                digest = current.digests.get(revision.pin) if current.system == revision.system else None
                if digest is not None and digest != revision.digest:
                    with contextlib.suppress(RegistryError, BundleRefused):
                        return records.rewrite(self.store, path, self.blob(digest))
            self.store.remove(path)
            return None

    def _restore(self, stored: Revision, bundle: bytes) -> None:
        """Store the bytes of a revision again if they are missing or incomplete."""
        path = names.blob(stored.digest)
        try:
            intact = self.store.size(path) == stored.size
        except Missing:
            intact = False
        if not intact:
            self.store.replace(path, bundle)

    def check_signature(self, bundle: bytes) -> None:
        """Raise BundleRefused for a bundle that the registry would not accept."""
        trust = self.trust()
        if trust is None:
            return
        from privtab.bundle import verify_bundle

        try:
            verify_bundle(bundle, trust)
        except PolicyError as error:
            raise BundleRefused(f"{self.url} accepts only signed bundles, and this one is refused: {error}") from None

    def _check_trusted(self, before: Channel, after: Channel) -> None:
        """Check the signatures of bundles that did not run before: keys may have been removed since they were put."""
        for key, digest in after.started_since(before) if self.requires_signatures() else ():
            try:
                self.check_signature(self.blob(digest))
            except BundleRefused as error:
                raise BundleRefused(
                    f"{key}: {error}; sign it again, as `privtab registry rollback --signing-key` does"
                ) from None

    def _check_present(self, before: Channel, after: Channel) -> None:
        """Raise RegistryError if a bundle that did not run before is missing."""
        for key, digest in after.started_since(before):
            try:
                self.store.size(names.blob(digest))
            except Missing:
                raise RegistryError(f"{self.url} has lost the bundle of {key}: put it again") from None

    def requires_signatures(self) -> bool:
        """Return whether only signed bundles are accepted."""
        return bool(self.settings().get("verification_keys"))

    def trust(self) -> Trust | None:
        """The trusted keys and scope; None if the registry does not require signatures."""
        settings = self.settings()
        if not settings.get("verification_keys"):
            return None
        from privtab.base import Trust

        return Trust.of(settings["verification_keys"], settings.get("scope", ""))


def _conflict_message(current: Channel, expect: int) -> str:
    by = f" by {current.by}" if current.by and not current.held else ""
    why = " (which cannot be read)" if current.held else f" ({current.why})" if current.why else ""
    return (
        f"{current.channel}/{current.system} was released to in the meantime: it is at release {current.last}{by}{why}, "
        f"no longer at {expect}; check it and try again"
    )


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""


class StaticMirror:
    """Writes the copies of a channel; `channel.json`, written last, records their release.

    They lag behind the history by a moment or, if their writer dies, until the next release or repair. Each file is always
    complete.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def refresh(self, current: Channel) -> Channel:
        """Update the copies to the channel, including releases made meanwhile; returns the last one written."""
        while True:
            self._write(current)
            # Each writer checks after writing, so the final copies are of the last release.
            newest = self._registry.newer(current)
            if newest.sequence == current.sequence:
                return current
            current = newest

    def stale(self, current: Channel) -> list[str]:
        """The files that differ from the channel, in the order in which they are to be written."""
        store, folder = self._registry.store, names.channel(current.channel, current.system)
        expected = self._bundles(folder, current)
        there = [f"{folder}/shards/{name}" for name in store.names(f"{folder}/shards")]
        there += [f"{folder}/state.tar.gz"] if "state.tar.gz" in store.names(folder) else []
        release = {f"{folder}/{names.LAST_RELEASE}": hashlib.sha256(encoded(current.to_json())).hexdigest()}
        extra = [path for path in there if path not in expected]
        return [*self._changed(expected), *extra, *self._changed(release)]

    def _write(self, current: Channel) -> None:
        store, folder = self._registry.store, names.channel(current.channel, current.system)
        bundles = self._bundles(folder, current)
        for path in self.stale(current):
            if path in bundles:
                store.replace(path, self._registry.blob(bundles[path]))
            elif path.endswith(names.LAST_RELEASE):
                store.replace(path, encoded(current.to_json()))
            else:
                store.remove(path)

    @staticmethod
    def _bundles(folder: str, current: Channel) -> dict[str, str]:
        """File → SHA-256. Canaries need the registry server: static servers send every sidecar the same bundles."""
        return {
            f"{folder}/{names.served_path(kind, shard)}": current.digests[pin(kind, identity, shard)]
            for (kind, shard), identity in current.runs().items()
        }

    def _changed(self, digests: Mapping[str, str]) -> Iterator[str]:
        """The paths of files that have another SHA-256, or are missing."""
        for path, digest in digests.items():
            try:
                found = hashlib.sha256(self._registry.store.read(path)).hexdigest()
            except Missing:
                found = ""
            if found != digest:
                yield path
