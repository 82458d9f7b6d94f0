"""The synchronous client of an OPA, and `connect`, which returns it or an engine in process."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Unpack

from privtab.base.errors import UsageError
from privtab.base.lazy import pattern
from privtab.client import _config
from privtab.client._address import without_password
from privtab.client._asking import ClientFlows
from privtab.client._base import Asker
from privtab.client._config import OpaArguments, Settings
from privtab.client._engine import Flow, renew_after_fork, run
from privtab.client._http import HttpTransport
from privtab.client._observe import HookLike, Observer
from privtab.client._opa import OpaFlows
from privtab.client._transport import RequestsTransport, Transport

if TYPE_CHECKING:
    import requests

_ADDRESSES = ("http://", "https://", "unix:", "http+unix:")
_BUNDLES = (".tar.gz", ".tgz")
_NEITHER = pattern(r"[\w.+-]+://.*|(localhost|[\w-]+(\.[\w-]+)+|\[[0-9a-f:]+\]):\d+/?", re.IGNORECASE)
"""Matches other kinds of addresses, or a host with a port, which are not names of files."""


class Client(Asker):
    """Client of an OPA. Safe to share between threads, to fork, and to pickle into a Spark job (the token too).

    A call that cannot be decided raises a DecisionError; it is never an allow. InvalidRequest: the request has a name that
    the policy does not declare, and was not sent. PolicyError: the answer is not a decision. DecisionUnavailable: OPA did
    not answer, or no bundle is active.

    Arguments default to the environment (`PRIVTAB_TIMEOUT`) or a file, see `docs/reference/asking.md`. `system` may be
    omitted if OPA has only one. `timeout` is (connect, read) in seconds, or one number for both; `total` bounds a call
    including its retries. `session` is a `requests.Session`, `transport` any other Transport.

    Ask an OPA:

        with Client("http://127.0.0.1:8181", system="lake") as client:
            client.require("alice", "load", "table:m/c/s/t")
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
        engine = OpaFlows(BlockingDriver(self._transport), self._settings)
        super().__init__(engine, mode=self._settings["mode"], hooks=self._hooks)

    def __getstate__(self) -> dict[str, Any]:
        return {"_settings": self._settings, "_hooks": self._hooks, "_transport": self._transport}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._build()

    def __repr__(self) -> str:
        return client_repr(self, self._settings, self._transport, self._client_flows)

    @property
    def system(self) -> str:
        """The name of the system; read from OPA if it was not given."""
        configured: str | None = self._settings["system"]
        return configured or super().system


class BlockingDriver:
    """Blocking IO, with a thread for each concurrent flow."""

    def __init__(self, transport: Transport) -> None:
        self.post = transport.post
        self.get = transport.get
        self.close = transport.close
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


def client_repr(client: object, settings: Settings, transport: object, flows: ClientFlows) -> str:
    """The repr of a client, without secrets."""
    url = without_password(getattr(transport, "url", settings["url"]))
    system = f", system={settings['system']!r}" if settings["system"] else ""
    return f"{type(client).__name__}({url!r}{system}, mode='{settings['mode']}', circuit='{flows.engine.circuit}')"


def _transport(settings: Settings, session: requests.Session | None, observer: Observer) -> Transport:
    if session is None:
        return http_transport(settings, observer)
    if settings["token_file"] is not None:
        raise UsageError("token_file cannot be had with a session: let the session send the token")
    return RequestsTransport(
        settings["url"],
        token=settings["token"],
        session=session,
        pool_size=settings["pool_size"],
        max_body=settings["max_body"],
    )


def http_transport(settings: Settings, observer: Observer) -> HttpTransport:
    """The transport over connections of our own, also for the asynchronous client."""
    names = ("token", "token_file", "verify", "cert", "pool_size", "max_body")
    headers = observer.headers if observer.hooks else None
    return HttpTransport(settings["url"], headers=headers, **{name: settings[name] for name in names})


# --- a client for an address ---


def connect(target: str | os.PathLike[str] | None = None, **settings: Any) -> Asker:
    """Return a Client for the address of an OPA, Embedded for bundles.

    `http://host:port`, `https://…` and `unix:/path` are addresses of an OPA, unless they end in `.tar.gz`: addresses of
    archives, files, folders and `package:name` are bundles. `target` defaults to PRIVTAB_URL, the settings file, or an OPA on
    this machine. `engine="opa"` requires an OPA; for bundles, the engine is that of `Embedded`.

    >>> connect("http://127.0.0.1:8181").mode.value
    'enforce'
    """
    location = os.fspath(target) if target is not None else _config.resolve({})["url"]
    _check(location)
    engine = settings.pop("engine", None)
    is_opa = location.lower().startswith(_ADDRESSES) and not location.partition("?")[0].endswith(_BUNDLES)
    if engine == "opa" or (engine is None and is_opa):
        if not is_opa:
            raise UsageError(f"`{location}` is not the address of an OPA: write http://host:port or unix:/path")
        if settings.keys() & {"verification_key", "verification_scope", "min_sequence", "sequence_file"}:
            raise UsageError(
                f"`{location}` is an OPA, which verifies bundles itself: see `signing` in its configuration"
            )
        return Client(location, **settings)
    if is_opa:
        raise UsageError(
            f"`{location}` is an OPA; the engine `{engine}` runs bundles: give a path or an address of them"
        )
    from privtab.client.embedded import Embedded

    if engine is not None:
        settings["engine"] = engine
    return Embedded(location, **settings)


def _check(location: str) -> None:
    """Raise UsageError for a target that is neither an address nor a path; an empty one would be the working directory."""
    if location and (location.lower().startswith(_ADDRESSES) or not _NEITHER.fullmatch(location)):
        return
    raise UsageError(
        f"`{without_password(location)}` is not an address: write http://host:port, unix:/path, or the location of bundles"
    )
