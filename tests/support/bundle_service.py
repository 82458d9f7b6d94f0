"""A bundle service with long polling, like a registry."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from privtab.base.names import encode_name
from privtab.base.request import Entity
from privtab.state.nodes import TABLES, Assignment, Grant, State

LONG_POLLING = "application/vnd.openpolicyagent.bundles"
NASTY = (
    *("plain", "a/b", "100%", "~", "~0", "~1", "!", "!1", "a b", ".", "..", "-", "0", "é", "日本", "😀"),
    *('"', "'", "\\", "x:y", "{}", "?a=b&c#d", "%2F", "%7E", "+", "no\u00a0break", "[1]", "$ref", "<b>", "\u202f"),
)
"""Names with a special meaning in paths, URLs or JSON."""


class BundleService:
    """Serves bundles as `bundles/<name>`."""

    def __init__(self) -> None:
        self._now: dict[str, tuple[str, bytes]] = {}
        self._news = threading.Condition()

    def put(self, name: str, etag: str, bundle: bytes) -> None:
        """Publish a bundle."""
        with self._news:
            self._now[name] = etag, bundle
            self._news.notify_all()

    def take(self, name: str) -> None:
        """Remove a bundle."""
        with self._news:
            self._now.pop(name, None)
            self._news.notify_all()

    def answer(self, name: str, known_etag: str | None, wait: float) -> tuple[int, str, bytes]:
        """Status, ETag and body for a caller that has a bundle with the ETag `known_etag`."""
        ends = time.monotonic() + wait
        with self._news:
            while name in self._now and self._now[name][0] == known_etag and (remaining := ends - time.monotonic()) > 0:
                self._news.wait(remaining)
            if name not in self._now:
                return 404, "", b""
            etag, bundle = self._now[name]
            if etag == known_etag:
                return 304, etag, b""
            return 200, etag, bundle

    def __enter__(self) -> Self:
        bundles = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                prefer = self.headers.get("Prefer", "")
                preferences = dict(p.partition("=")[::2] for p in prefer.replace(" ", "").split(";"))
                name = self.path.rpartition("/")[2]
                wait = min(float(preferences.get("wait", 0)), 5.0)
                status, etag, body = bundles.answer(name, self.headers.get("If-None-Match"), wait)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Content-Type", LONG_POLLING)
                if etag:
                    self.send_header("ETag", etag)
                self.end_headers()
                if status != 304:
                    self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                """Log nothing."""

        class Server(ThreadingHTTPServer):
            def handle_error(self, request: object, client_address: object) -> None:
                """Ignore errors of an OPA that is stopped in the middle of an answer."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def config(self, names: Mapping[str, str] | list[str], **bundle: Any) -> str:
        """OPA's configuration in JSON for bundles of these names; `bundle`: additional settings of each."""
        expected = names if isinstance(names, Mapping) else {name: name for name in names}
        polling = {"min_delay_seconds": 1, "max_delay_seconds": 1, "long_polling_timeout_seconds": 5}
        return json.dumps(
            {
                "services": {"bundles": {"url": self.url}},
                "bundles": {
                    name: {"service": "bundles", "resource": f"bundles/{resource}", "polling": polling, **bundle}
                    for name, resource in expected.items()
                },
                "status": {"prometheus": True},
            }
        )


def unusual_state(seed: int, roots: int = 4) -> State:
    """A random state about a `lake`, its `zone`s and `table`s, with unusual names."""
    rnd = random.Random(seed)
    names = [encode_name(name) for name in NASTY]
    tops = names[:roots] if roots < len(names) else names

    def entity() -> Entity:
        depth = rnd.randint(1, 3)
        return Entity(
            ("lake", "zone", "table")[depth - 1], "/".join([rnd.choice(tops), *rnd.choices(names, k=depth - 1)])
        )

    def principal() -> str:
        return f"{rnd.choice(('user', 'group', 'role'))}:{rnd.choice(NASTY)}"

    return State(
        members=tuple((rnd.choice(NASTY), entity()) for _ in range(rnd.randint(2, 12))),
        memberships=tuple((rnd.choice(NASTY), rnd.choice(NASTY)) for _ in range(rnd.randint(2, 12))),
        assignments=tuple(
            Assignment(
                principal=f"{rnd.choice(('user', 'group'))}:{rnd.choice(NASTY)}",
                role=rnd.choice(NASTY),
                scope=entity() if rnd.random() < 0.4 else None,
            )
            for _ in range(rnd.randint(2, 20))
        ),
        grants=tuple(
            Grant(
                grantee=principal(),
                effect="deny" if rnd.random() < 0.2 else "allow",
                privilege=rnd.choice(("READ", "WRITE")),
                entity=entity(),
            )
            for _ in range(rnd.randint(10, 60))
        ),
        owners=tuple((entity(), f"user:{rnd.choice(NASTY)}") for _ in range(rnd.randint(2, 12))),
        service_admins=tuple(rnd.sample(NASTY, rnd.randint(0, 3))),
    )


def changed(state: State, seed: int, rows: int = 3) -> State:
    """The state with up to `rows` of the first rows of each table removed, and up to as many others added."""
    rnd, other = random.Random(seed), unusual_state(seed, len(NASTY))
    take = {table: (rnd.randint(0, rows), rnd.randint(0, rows)) for table in TABLES}
    tables: Any = {
        table: (*getattr(state, table)[gone:], *getattr(other, table)[:come]) for table, (gone, come) in take.items()
    }
    return State(**tables)


LAKE = """
privtab: 1
system: lake
version: "1"
entities: {lake: {zone: {table:}}}
privileges: [READ, WRITE]
semantics: {inheritance: down, deny: overrides, owner: {kinds: [user], creator: true}}
tables:
  lake:
    look: READ (lake) or member (lake)
  zone:
    look: READ (zone) or owner (lake, zone)
  table:
    read: READ (table) or owner (lake, zone, table)
    write: WRITE (table) and can look (zone)
    copy: {with: {to: table}, requires: READ (table) and WRITE (to)}
    list: {requires: can look (zone), each: can read (table)}
"""
"""The policy for states of `unusual_state`."""
