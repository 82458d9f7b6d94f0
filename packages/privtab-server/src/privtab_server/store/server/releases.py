"""A store as a channel of bundles: each change is a release, for the server code of the registry."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from threading import Lock
from time import time_ns

from starlette.requests import Request as HttpRequest

from privtab.base import Decision, DecisionUnavailable, RecentlyUsed, Request, Vocabulary, moment_text
from privtab.bundle import PolicyArtifacts, SigningKey, state_bundle
from privtab.engines import Index
from privtab.state import index_bytes
from privtab_server.authzen.points import DecisionPoint, Directory
from privtab_server.errors import RegistryError, StoreError
from privtab_server.registry import names
from privtab_server.registry.nodes import Channel, pin
from privtab_server.registry.server.feeds import Releases
from privtab_server.serving.endpoint import HttpError
from privtab_server.store.journal import Journal
from privtab_server.store.server.calls import NUMBER
from privtab_server.store.view import Snapshot, View

MOST_KEPT = 4
"""The last states, since a request that is in progress may be for one of before."""


class StoreReleases(Releases):
    """One channel with the policy and the state of a store: its last release is the last change.

    Nothing is written: a restarted server makes the same bundles of the same rows, so that sidecars keep theirs.
    With a key, bundles are signed. If it has a sequence, a state's sequence is higher by the number of its change: it grows with
    each change, and with each policy for which the key's was raised.
    """

    def __init__(self, view: View, policy: PolicyArtifacts, channel: str, signing: SigningKey | None = None) -> None:
        self._view = view
        self._channel, self._system = names.checked("the channel", channel), view.program.system
        self._signing = signing
        self._lock = Lock()
        self._bundles: RecentlyUsed[str, bytes] = RecentlyUsed(MOST_KEPT)
        """The last states, by digest."""
        self._policy, self._policy_bundle = policy.revision, policy.bundle(signing)
        self._policy_digest = hashlib.sha256(self._policy_bundle).hexdigest()
        self._last: tuple[Channel, str] | None = None
        """The last release, and the hash of its change."""

    @property
    def url(self) -> str:
        """As Releases.url."""
        return self._view.journal.database.shown

    def renew(self) -> None:
        """As Releases.renew."""

    def channels(self) -> list[Channel]:
        """As Releases.channels. Raises StoreError."""
        return [self._now()]

    def channel(self, channel: str, system: str, /) -> Channel:
        """As Releases.channel."""
        if (channel, system) != (self._channel, self._system):
            return Channel(channel=channel, system=system)
        return self._now()

    def blob(self, digest: str, /) -> bytes:
        """As Releases.blob."""
        with self._lock:
            if digest == self._policy_digest:
                return self._policy_bundle
            found = self._bundles.peek(digest)
            if found is not None:
                return found
        raise RegistryError(f"the bundle {digest} is not kept any more")

    def requires_signatures(self) -> bool:
        """As Releases.requires_signatures."""
        return self._signing is not None

    def _now(self) -> Channel:
        """The release of the last change. Raises StoreError if it cannot be read, or if it is older than the one before."""
        with self._lock:
            snapshot = self._view.now()
            head = snapshot.head
            if self._last is not None:
                last, hash_ = self._last
                if (head.number, head.hash) == (last.sequence, hash_):
                    return last
                if head.number <= last.sequence:
                    raise StoreError(
                        f"{self.url} was replaced: it is at change {head.number}, and sidecars have change {last.sequence}; "
                        "restart the server to serve the store as it is now"
                    )
            signing = self._signing
            if signing is not None and signing.sequence is not None:
                signing = replace(signing, sequence=signing.sequence + snapshot.number)
            state, document = index_bytes(snapshot.program, snapshot.state)
            bundle = state_bundle(snapshot.program, snapshot.state, signing=signing, index=(state, document))
            release = Channel(
                channel=self._channel,
                system=self._system,
                sequence=snapshot.number,
                policy=self._policy,
                state=state,
                digests={pin("policy", self._policy): self._policy_digest, pin("state", state): self._kept(bundle)},
                when=moment_text(time_ns()),
                by="store",
            )
            self._last = release, snapshot.head.hash
            return release

    def _kept(self, bundle: bytes) -> str:
        """Keep a bundle, and forget the oldest states; its SHA-256."""
        digest = hashlib.sha256(bundle).hexdigest()
        self._bundles.put(digest, bundle)
        return digest


AT_LEAST = "X-Privtab-At-Least"
"""The header with the number of a change that a decision must know."""
LONGEST_WAIT = 2.0
"""Seconds that a question waits for that change: where the database is a replica, it comes later."""


def wait_for_change(journal: Journal) -> Callable[[HttpRequest], Awaitable[None]]:
    """Let questions wait until the store has the change that they name. Raises Refused if it does not come."""

    async def admit(request: HttpRequest) -> None:
        text = request.headers.get(AT_LEAST)
        if text is None:
            return
        named = NUMBER.fullmatch(text.strip())
        if named is None:
            raise HttpError(400, f'{AT_LEAST} is the number of a change, as in "12"')
        deadline = time.monotonic() + LONGEST_WAIT
        while (last := (await asyncio.to_thread(_head, journal))) < int(named[1]):
            if time.monotonic() >= deadline:
                raise HttpError(
                    503, f"the store is at change {last}, and change {named[1]} is requested", Retry_After="1"
                )
            await asyncio.sleep(0.02)

    return admit


def _head(journal: Journal) -> int:
    try:
        return journal.head().number
    except StoreError as error:
        raise DecisionUnavailable(str(error)) from error


class StoreDecisionPoint(DecisionPoint):
    """A PDP over a store: each call looks at its last change first."""

    searches = True

    def __init__(self, view: View) -> None:
        self._view = view
        self._vocabulary = Vocabulary.from_program(view.document)
        self._directory: tuple[Index, Directory] | None = None

    async def vocabulary(self) -> Vocabulary:
        """As DecisionPoint.vocabulary."""
        return self._vocabulary

    async def check_many(self, requests: Sequence[Request]) -> list[bool]:
        """As DecisionPoint.check_many."""
        self._check(requests)
        return await asyncio.to_thread(lambda: self._now().opened().engine.allow_many(requests))

    async def decide_many(self, requests: Sequence[Request]) -> list[Decision]:
        """As DecisionPoint.decide_many."""
        self._check(requests)
        return await asyncio.to_thread(lambda: self._now().opened().engine.decide_many(requests))

    async def directory(self) -> Directory:
        """As DecisionPoint.directory; built once for each state."""
        return await asyncio.to_thread(self._directory_now)

    async def ready(self) -> bool:
        """As DecisionPoint.ready."""
        try:
            await asyncio.to_thread(self._now)
        except DecisionUnavailable:
            return False
        return True

    async def close(self) -> None:
        """As DecisionPoint.close."""
        self._view.journal.database.engine.dispose()

    def _check(self, requests: Sequence[Request]) -> None:
        for request in requests:
            self._vocabulary.check(request)

    def _directory_now(self) -> Directory:
        engine = self._now().opened().engine
        if self._directory is None or self._directory[0] is not engine.index:
            self._directory = engine.index, Directory(self._view.document, engine.index)
        return self._directory[1]

    def _now(self) -> Snapshot:
        try:
            return self._view.now()
        except StoreError as error:
            raise DecisionUnavailable(str(error)) from error
