"""The synchronous client of an OPA."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Unpack

from privtab.client import _config
from privtab.client import _protocol as protocol
from privtab.client._address import shown
from privtab.client._base import Asker, Status
from privtab.client._cache import Cache
from privtab.client._config import OpaArguments, Settings
from privtab.client._engine import Flow, run
from privtab.client._fork import renew_after_fork
from privtab.client._observe import HookLike, Observer
from privtab.client._opa import OpaFlows, OpaSettings
from privtab.client._protocol import ActiveSystem, Revision
from privtab.client._resilience import Breaker, Resilience, Retries
from privtab.client._transport import RequestsTransport, Transport
from privtab.errors import UsageError
from privtab.request import Decision, Entity, Request
from privtab.vocabulary import OperationShape

if TYPE_CHECKING:
    import requests

REFRESH_SECONDS = 60.0
"""Seconds for which the vocabulary is used without checking the policy's revision."""
RECHECK_SECONDS = 5.0
"""Seconds after a check in which a request with an unknown name is refused without another check."""


class Client(Asker):
    """Client of an OPA. Safe to share between threads, to fork, and to pickle into a Spark job (the token too).

    A call that cannot be decided raises a DecisionError; it is never an allow. InvalidRequest: the request has a name that
    the policy does not declare, and was not sent. PolicyError: the answer is not a decision. DecisionUnavailable: OPA did
    not answer, or no bundle is active.

    Arguments default to the environment (`PRIVTAB_TIMEOUT`) or a file, see `docs/reference/asking.md`. `system` may be
    omitted if OPA has only one. `timeout` is (connect, read) in seconds, or one number for both; `total` bounds a call
    including its retries. `session` is a `requests.Session`, `transport` any other Transport.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        session: requests.Session | None = None,
        hooks: Sequence[HookLike] = (),
        transport: Transport | None = None,
        **arguments: Unpack[OpaArguments],
    ) -> None:
        settings = _config.resolve(arguments, OpaArguments, url=url)
        self._settings = settings
        self._hooks = tuple(hooks)
        observer = Observer(hooks)
        self._transport = transport or _transport(settings, session, observer)
        self._build()

    def _build(self) -> None:
        settings = self._settings
        self._resilience = resilience(settings)
        self._flows = OpaFlows(
            BlockingDriver(self._transport), opa_settings(settings), self._resilience, cache(settings)
        )
        super().__init__(OpaEngine(self._flows, self._transport), mode=settings["mode"], hooks=self._hooks)

    def __getstate__(self) -> dict[str, Any]:
        """The settings from which another process builds its copy."""
        return {"_settings": self._settings, "_hooks": self._hooks, "_transport": self._transport}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._build()

    def __repr__(self) -> str:
        return client_repr(self, self._settings, self._transport, self._resilience.breaker)

    @property
    def system(self) -> str:
        """The name of the system; read from OPA if it was not given."""
        configured: str | None = self._settings["system"]
        return configured or super().system

    def status(self) -> Status:
        """Health, mode and circuit; never raises."""
        return Status(healthy=self.health(), mode=self._mode, engine="opa", circuit=self._resilience.breaker.state)


class OpaEngine:
    """The engine `opa` over a synchronous transport."""

    name = "opa"

    def __init__(self, flows: OpaFlows, transport: Transport) -> None:
        self._flows = flows
        self._transport = transport

    def active_system(self) -> ActiveSystem:
        """As ClientEngine.active_system."""
        active = self._flows.current()
        return active if active is not None else run(self._flows.active_system())

    def newer(self, active: ActiveSystem) -> ActiveSystem:
        """As ClientEngine.newer."""
        return run(self._flows.newer(active))

    def allow(self, request: Request) -> bool:
        """As ClientEngine.allow."""
        return run(self._flows.allow(request))

    def allow_many(self, requests: Sequence[Request], shapes: Sequence[OperationShape]) -> list[bool]:
        """As ClientEngine.allow_many."""
        return run(self._flows.allow_many(requests, shapes))

    def decide(self, request: Request) -> Decision:
        """As ClientEngine.decide."""
        return run(self._flows.decide(request))

    def decide_many(self, requests: Sequence[Request]) -> list[Decision]:
        """As ClientEngine.decide_many."""
        return run(self._flows.decide_many(requests))

    def visible(self, request: Request, items: Sequence[Entity]) -> list[int]:
        """As ClientEngine.visible."""
        return run(self._flows.visible(request, items))

    def revision(self) -> Revision:
        """As ClientEngine.revision."""
        return run(self._flows.revision())

    def healthy(self) -> bool:
        """As ClientEngine.healthy."""
        return run(self._flows.healthy())

    def close(self) -> None:
        """As ClientEngine.close."""
        self._transport.close()


class BlockingDriver:
    """Blocking IO, with a thread for each concurrent flow."""

    def __init__(self, transport: Transport) -> None:
        self.post = transport.post
        self.get = transport.get
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Replace the lock, which another thread may have held."""
        self._lock = threading.Lock()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def acquire(self, seconds: float) -> bool:
        """Take the lock."""
        return self._lock.acquire(timeout=seconds)

    def release(self) -> None:
        """Release the lock."""
        self._lock.release()

    def run_all(self, flows: Iterator[Flow[None]], limit: int) -> None:
        """Run flows in threads, at most `limit` at once; the first error stops them all."""
        running: set[Future[None]] = set()
        executor = ThreadPoolExecutor(limit, thread_name_prefix="privtab")
        try:
            for flow in flows:
                if len(running) >= limit:
                    finished, running = wait(running, return_when=FIRST_COMPLETED)
                    for future in finished:
                        future.result()
                running.add(executor.submit(copy_context().run, run, flow))
            for future in running:
                future.result()
        finally:
            executor.shutdown(wait=True, cancel_futures=True)


# --- parts built from settings, shared with the asynchronous client ---


def resilience(settings: Settings) -> Resilience:
    """Deadlines, retries and the circuit breaker."""
    timeout = settings["timeout"]
    return Resilience(
        timeout=timeout,
        total=settings["total"] or sum(timeout),
        retries=Retries(most=settings["retries"]),
        breaker=Breaker(settings["breaker_failures"], settings["breaker_seconds"]),
    )


def cache(settings: Settings) -> Cache | None:
    """The cache, or None if the settings disable it."""
    return Cache(settings["cache_size"], settings["cache_ttl"]) if settings["cache_size"] else None


def opa_settings(settings: Settings) -> OpaSettings:
    """The settings of the `opa` engine."""
    system = settings["system"]
    interval = settings["cache_refresh"] if settings["cache_size"] else None
    return OpaSettings(
        system=protocol.check_system(system) if system is not None else None,
        chunk_size=settings["chunk_size"],
        concurrency=settings["concurrency"],
        max_staleness=settings["max_staleness"],
        refresh=lambda: REFRESH_SECONDS if interval is None else min(interval, REFRESH_SECONDS),
        recheck=lambda: RECHECK_SECONDS,
    )


def client_repr(client: object, settings: Settings, transport: object, breaker: Breaker) -> str:
    """The repr of a client, without secrets."""
    url = shown(getattr(transport, "url", settings["url"]))
    system = f", system={settings['system']!r}" if settings["system"] else ""
    return f"{type(client).__name__}({url!r}{system}, mode='{settings['mode']}', circuit='{breaker.state}')"


def _transport(settings: Settings, session: requests.Session | None, observer: Observer) -> Transport:
    headers = observer.headers if observer.hooks else None
    shared = {"pool_size": settings["pool_size"], "max_body": settings["max_body"]}
    if session is not None:
        if settings["token_file"] is not None:
            raise UsageError("token_file cannot be had with a session: let the session send the token")
        return RequestsTransport(settings["url"], token=settings["token"], session=session, **shared)
    from privtab.client._http import HttpTransport

    return HttpTransport(
        settings["url"],
        token=settings["token"],
        token_file=settings["token_file"],
        verify=settings["verify"],
        cert=settings["cert"],
        headers=headers,
        **shared,
    )
