"""The client that decides in process, from bundles in files, folders, packages or behind HTTP, without a server."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from privtab.base.errors import InvalidRequest, UsageError
from privtab.base.request import Request
from privtab.base.resources import needing
from privtab.client import _config
from privtab.client import _protocol as protocol
from privtab.client._arguments import Details, EntityLike
from privtab.client._asking import Mode
from privtab.client._base import Asker
from privtab.client._bundled import BundledEngine, RollbackGuard
from privtab.client._bundles import STORE, BundleLocation, BundlePlace, Trusted
from privtab.client._config import BundleArguments
from privtab.client._observe import LOG, HookLike
from privtab.engines.python import NAME

if TYPE_CHECKING:
    from privtab.engines.batches import Batches
    from privtab.engines.index import Index
    from privtab.engines.python import Shortcuts, TimedBatches

SEVERAL = 2_000
"""Requests from which on columns are faster than a function for each plain request."""


class Embedded(Asker):
    """Client that decides in process. Safe to share between threads, to fork, and to pickle into a Spark job (with the state).

    `Embedded("build/demo")`, `Embedded("policy.tar.gz", state="https://bundles/state.tar.gz", refresh=10)`: one or several
    bundles in OPA's format. With `refresh`, the first call after that many seconds checks for changed bundles and loads
    them; without it, call `refresh()`. If a bundle cannot be read, the last good one stays active with a warning, and
    `problem` says why; after `max_staleness` seconds, calls raise DecisionUnavailable instead.

    `Embedded("policy.tar.gz", state="store:grants.db", refresh=1, max_staleness=5)` reads the state from a store.

    With `verification_key` (PEM files with public keys) all bundles must be signed, and none may be older than its predecessor
    in this process and, with `sequence_file`, in earlier processes. `min_sequence` is the lowest sequence of all.

    FileError, DecisionUnavailable: there is no policy or no state to start with. SignatureRefused: a bundle has no trusted
    signature.

    Ask in process:

        Embedded("build/demo").check("alice", "load", "table:m/c/s/t")
    """

    def __init__(
        self,
        *sources: BundlePlace,
        state: BundlePlace | None = None,
        engine: str = NAME,
        refresh: float | None = None,
        hooks: Sequence[HookLike] = (),
        **arguments: Unpack[BundleArguments],
    ) -> None:
        if state is not None:
            sources = (*sources, state)
        if not sources:
            raise UsageError("give bundles: a file, a folder, `package:name` or an address")
        if engine != NAME:
            raise UsageError(
                f"there is no engine `{engine}` in process: leave `engine` out, bundles are decided by `{NAME}`"
            )
        if refresh is not None and not refresh >= 0:
            raise UsageError(f"refresh is {refresh!r}: give seconds, 0 or more")
        settings = _config.resolve(arguments, BundleArguments)
        self._hooks = tuple(hooks)
        # A state in a store is made for the policy in the bundles.
        sources = tuple(sorted(sources, key=lambda source: os.fspath(source).startswith(STORE)))
        locations = [BundleLocation.of(source, settings) for source in sources]
        if settings["verification_key"] is not None:
            if unsigned := next((location for location in locations if location.numbered), None):
                raise UsageError(
                    f"{unsigned.where} is not signed: with a verification key, take the state from a bundle"
                )
            trusted = Trusted(settings["verification_key"], settings["verification_scope"])
            for location in locations:
                location.trusted = trusted
        elif settings["min_sequence"] is not None or settings["sequence_file"] is not None:
            raise UsageError("min_sequence and sequence_file are about signatures: give a verification_key")
        system = settings["system"]
        self._bundled = BundledEngine(
            locations,
            system=protocol.check_system(system) if system is not None else None,
            refresh=refresh,
            max_staleness=settings["max_staleness"],
            order=RollbackGuard(settings["min_sequence"], settings["sequence_file"]),
        )
        self._bundled.load()
        super().__init__(self._bundled, mode=settings["mode"], hooks=hooks)
        self._plain = self.mode is Mode.ENFORCE and not self._hooks

    def __getstate__(self) -> dict[str, Any]:
        return {"engine": self._bundled, "mode": self.mode, "hooks": self._hooks}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._bundled = state["engine"]
        self._hooks = state["hooks"]
        super().__init__(self._bundled, mode=state["mode"], hooks=self._hooks)
        self._plain = self.mode is Mode.ENFORCE and not self._hooks

    def __repr__(self) -> str:
        locations = ", ".join(repr(location.where) for location in self._bundled.locations)
        return f"Embedded({locations}, engine={self._bundled.name!r}, mode='{self.mode}')"

    @property
    def problem(self) -> str | None:
        """Reason why the last refresh failed; None if it succeeded."""
        return self._bundled.problem

    @property
    def still(self) -> bool:
        """Return whether the bundles stay active until `refresh()` is called, regardless of their age."""
        return self._bundled.still

    def contents(self) -> tuple[Mapping[str, Any], Index]:
        """The active program and the index of the active state, for searches over the names in a state."""
        engine = self._bundled.now().engine
        return engine.program, engine.index

    def refresh(self, *, at_least: int | None = None) -> bool:
        """Load newer bundles now and return whether there were any. Raises on failure, and the active bundles stay.

        `at_least`: the number of a change of a store, after which later questions are decided; nothing is read if it is known
        already. DecisionUnavailable: the store does not have it within two seconds.
        """
        return self._bundled.refresh() if at_least is None else self._bundled.refresh_to(at_least)

    def batches(self) -> Batches | TimedBatches:
        """The current policy and state as a decider of whole columns, usable in other processes; without modes and hooks.

        If rows of the state hold for a time, each call decides for the moment at which it is made. Raises UsageError without the extra `fast`.
        """
        engine = self._bundled.now().engine
        with needing("a batch of columns", "fast"):
            batches = engine.batches()
        return engine.timed or batches

    def check(
        self,
        user: str | Request,
        action: str | None = None,
        resource: EntityLike | None = None,
        **details: Unpack[Details],
    ) -> bool:
        """Return whether `user` may do `action` on `resource`."""
        plain = not details or (
            details.keys() <= Details.__annotations__.keys()
            and details.get("active_roles") is None
            and not any(details.values())
        )
        if plain and self._plain and not LOG.isEnabledFor(logging.DEBUG):
            # Fast path for the usual request. Anything unusual takes the general path, which reports errors.
            try:
                name: object = user
                path: str | Sequence[str]
                if type(user) is Request and action is None and resource is None and user.plain:
                    name, operation, type_, path = user.user, user.action, user.resource.type, user.resource.id
                else:
                    # A member of an enumeration is a text.
                    operation = action if type(action) is str else str.__str__(action)
                    if type(resource) is str:
                        type_, _, path = resource.partition(":")
                    else:
                        type_, path = resource if type(resource) is tuple else (resource.type, resource.id)  # type: ignore[union-attr]
                if type(name) is type(type_) is type(path) is str:
                    answer = self._shortcuts()[type_, operation](name, path)
                    if answer is not None:
                        return answer
            except (TypeError, ValueError, AttributeError):
                pass
        return super().check(user, action, resource, **details)

    def check_many(self, requests: Iterable[Request]) -> list[bool]:
        """Return whether each of any number of requests is allowed, by position; with the extra `fast`, column by column.

        An error in one request fails the whole call.
        """
        if self._plain and not LOG.isEnabledFor(logging.DEBUG):
            requests = list(requests)
            ways = (self._quickly, self._bundled.columns)
            for way in ways if len(requests) < SEVERAL else reversed(ways):
                answers = way(requests)
                if answers is not None:
                    return answers
        return super().check_many(requests)

    def _shortcuts(self) -> Shortcuts:
        bundled = self._bundled
        return bundled.shortcuts if bundled.still and bundled.timeless else bundled.now().opened.shortcuts

    def _quickly(self, requests: Sequence[Request]) -> list[bool] | None:
        """The answers to requests, of which only those with details are checked first; None to check all."""
        answers: list[bool] = []
        left: list[int] = []
        try:
            shortcuts = self._shortcuts()
            for position, asked in enumerate(requests):
                resource = asked.resource
                plain = type(asked) is Request and asked.plain
                found = shortcuts[resource.type, asked.action](asked.user, resource.id) if plain else None
                if found is None:
                    left.append(position)
                answers.append(bool(found))
            if 2 * len(left) > len(answers):
                return None
            for position, answer in zip(left, super().check_many([requests[at] for at in left]), strict=True):
                answers[position] = answer
        except (TypeError, ValueError, AttributeError, InvalidRequest):
            return None  # the error says which of all requests it is
        # One version of the state answers a call.
        return answers if self._shortcuts() is shortcuts else None
