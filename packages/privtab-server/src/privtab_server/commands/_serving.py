"""Shared by the commands that serve HTTP: TLS files, exposure to other machines, the log; what `privtab serve` serves of a registry and a store."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

from privtab.base import UsageError, needing, parse_key_values, printable_json, printable_text
from privtab.command import SigningOptions, deliver, load_policy, option, out, print_error
from privtab_analysis.commands._ask import AuthoriseOption
from privtab_server.commands._registry_options import open_registry, written_options

if TYPE_CHECKING:
    from starlette.routing import Route
    from starlette.types import ASGIApp

    from privtab.bundle import PolicyArtifacts, SigningKey
    from privtab_server.registry.server.feeds import Feeds
    from privtab_server.serving.server import Tls
    from privtab_server.store.view import View


class Limits(NamedTuple):
    """What a server takes at most: the bytes of a request, the seconds until its head is there, the connections of an address.

    Of a registry's server: the seconds between two looks for releases, after which a silent sidecar is forgotten, and GB of logs.
    """

    body: int = 1024 * 1024
    head: float = 10.0
    connections: int | None = None
    """Of one address; 0: any number; None: half of all."""
    poll: float = 0.3
    forget: float = 900.0
    logs: float = 20.0


LEAST = {"body": 1024, "head": 0.1, "connections": 0, "poll": 0.05, "forget": 1, "logs": 0.001}
"""The lowest value of each limit."""
WHOLE = ("body", "connections")
"""The limits that are whole numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """The options that these commands have."""

    LIMITS: ClassVar[tuple[str, ...]] = Limits._fields

    listen: Annotated[
        str, option("--listen [ADDRESS:]PORT", "Where to listen, as 8080 or 0.0.0.0:8080; 0 picks a free port.")
    ] = "127.0.0.1:8080"
    public_url: Annotated[str | None, option("--public-url URL", "Public URL, for the documents of the server.")] = None
    token_file: Annotated[
        Path | None, option("--token-file FILE", "File of bearer tokens: name, token and scopes per line.")
    ] = None
    insecure: Annotated[bool, option("--insecure", "Allow listening beyond this machine without tokens.")] = False
    tls: Annotated[
        list[str] | None,
        option("--tls NAME=FILE", "cert, key, and client-ca, whose clients alone are accepted; PEM; repeatable."),
    ] = None
    limit: Annotated[
        list[str] | None,
        option(
            "--limit NAME=N",
            "body=BYTES, head=SECONDS to wait for one, connections=N of an address; of a registry: poll=SECONDS between looks "
            "for releases, forget=SECONDS until a silent sidecar is, logs=GB beyond which logs are refused; repeatable.",
        ),
    ] = None
    format_: Annotated[
        Literal["text", "json"], option("--format", "Format of the first line: for people or for programs.")
    ] = "text"

    def address(self) -> tuple[str, int]:
        """The address and the port. Raises UsageError."""
        found = re.fullmatch(
            r"(?:(?P<host>[^\[\]:]+|\[[0-9A-Fa-f.]*:[0-9A-Fa-f:.]+\]):)?(?P<port>[0-9]{1,5})", self.listen
        )
        if found is None or int(found["port"]) > 65535:
            raise UsageError(f"`--listen {self.listen}`: write 8080, 0.0.0.0:8080 or [::1]:8080")
        return (found["host"] or "127.0.0.1").strip("[]"), int(found["port"])

    def checked_tls(self, *, tokens: bool, quiet: bool = False) -> Tls | None:
        """The TLS files, if any. Raises UsageError, FileError.

        Also raises UsageError for an address that other machines reach where nothing keeps callers out; `tokens`: tokens
        do. Warns if such connections are not encrypted. Starts the log of requests, or of problems alone if `quiet`.
        """
        from privtab_server.serving.server import is_loopback

        host, _ = self.address()
        self._public_url()
        self.limits()
        log_requests(quiet=quiet)
        tls = self._tls()
        if is_loopback(host):
            return tls
        if not (tokens or self.client_ca or self.insecure):
            raise UsageError(
                f"{host} can be reached from other machines: give `--token-file` or `--tls client-ca=FILE`, "
                "or `--insecure` where something else keeps callers out"
            )
        if tls is None:
            print_error("no TLS: tokens and answers cross the network as they are, unless something in front encrypts")
        return tls

    def _tls(self) -> Tls | None:
        from privtab_server.serving.server import Tls

        files = self._tls_files()
        if not files:
            return None
        if not {"cert", "key"} <= files.keys():
            raise UsageError("`--tls cert=FILE` and `--tls key=FILE` go together")
        tls = Tls(cert=files["cert"], key=files["key"], client_ca=files.get("client-ca"))
        tls.check()
        return tls

    def _tls_files(self) -> dict[str, Path]:
        given = parse_key_values(
            self.tls, "--tls", "NAME=FILE", example="cert=c.pem", names=("cert", "key", "client-ca")
        )
        return {name: Path(file) for name, file in given.items()}

    @property
    def client_ca(self) -> Path | None:
        """The authorities of the clients that are accepted. Raises UsageError."""
        return self._tls_files().get("client-ca")

    def limits(self, names: Sequence[str] = ()) -> Limits:
        """The limits. Raises UsageError for one that is no number, or too low, or is not of `names`, if these are given."""
        given = parse_key_values(self.limit, "--limit", "NAME=N", example="head=5", names=names or self.LIMITS)
        for name, text in given.items():
            if not re.fullmatch(r"\d+" if name in WHOLE else r"\d+(\.\d+)?", text) or float(text) < LEAST[name]:
                raise UsageError(f"`--limit {name}={text}`: write a number from {LEAST[name]}")
        numbers: dict[str, Any] = {name: (int if name in WHOLE else float)(text) for name, text in given.items()}
        return Limits(**numbers)

    def _public_url(self) -> str | None:
        """The public URL without a slash at its end. Raises UsageError."""
        url = self.public_url
        if url is not None and (not url.startswith(("https://", "http://")) or set("?#") & set(url)):
            raise UsageError(f"`--public-url {url}`: write https://host, without a query or a fragment")
        return None if url is None else url.rstrip("/")

    def serve(
        self,
        tls: Tls | None,
        make: Callable[[str], ASGIApp],
        served: Callable[[], tuple[str, Mapping[str, object]]],
        **limits: Any,
    ) -> None:
        """Serve the application that `make` makes for the address that callers use, until Ctrl-C.

        When it does, prints what is served where, for people or as JSON. `limits`: as `serving.server.serve` takes them.
        """
        from privtab_server.serving.server import address, listen, serve

        host, port = self.address()
        with listen(host, port) as listening:
            base = self._public_url() or address(listening, host, tls)

            def ready() -> None:
                shown, document = served()
                if self.format_ == "json":
                    numbered = {"format": 1, "url": base, **document}
                    deliver(printable_json(numbered, sort_keys=True, separators=(",", ":")) + "\n")
                else:
                    out().print(f"{shown} at {base}; Ctrl-C ends it")
                out().file.flush()

            serve(
                make(base),
                listening,
                tls=tls,
                ready=ready,
                head_seconds=self.limits().head,
                each=self.limits().connections,
                **limits,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSettings(ServerSettings):
    """The options of a server that takes no bodies of callers."""

    LIMITS: ClassVar[tuple[str, ...]] = ("head", "connections")

    limit: Annotated[
        list[str] | None,
        option("--limit NAME=N", "head=SECONDS to wait for one, connections=N of an address; repeatable."),
    ] = None


class _OneLine(logging.Formatter):
    """Formats each message on one line, since callers choose paths and names."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  (the base class's name)
        return printable_text(super().formatMessage(record), one_line=True)


def log_requests(*, quiet: bool) -> None:
    """Log problems and, unless quiet, each request to standard error."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_OneLine("%(asctime)s %(levelname)s %(message)s"))
    access = logging.getLogger("privtab.serve.access")
    access.setLevel(logging.WARNING if quiet else logging.INFO)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine("%(message)s"))
    access.handlers = [handler]
    access.propagate = False
    logging.getLogger("privtab.serve").setLevel(logging.INFO)


MAX_CONNECTIONS = 50_000
"""Maximum connections: each sidecar keeps one open for each of its bundles."""


def serve_registry(
    url: str, channels: Sequence[str], logs: Path | None, settings: ServerSettings, *, quiet: bool
) -> None:
    """Serve a registry's bundles to sidecars, and receive their reports, until Ctrl-C. No channels: all. `logs`: where to keep logs."""
    limits = settings.limits()
    tls = settings.checked_tls(tokens=settings.token_file is not None, quiet=quiet)
    from privtab_server.registry import names
    from privtab_server.registry.server.feeds import Feeds
    from privtab_server.registry.server.fleet import FleetTracker
    from privtab_server.serving.tokens import Tokens

    with needing("`privtab serve registry:URL`", "compiler", "registry"):
        from privtab_server.registry.server.app import Role, ServerState, application
        from privtab_server.registry.server.kept_logs import KeptLogs
    for name in channels:
        names.checked("the channel", name)
    tokens = Tokens(settings.token_file, Role, bindings=True) if settings.token_file is not None else None
    raise_file_limit()
    registry = open_registry(url)
    if not registry.settings():
        print_error(f"there is no registry at {registry.url} yet: the first bundle stored there creates it")
    feeds = Feeds(registry, only=channels, poll=limits.poll)
    kept = None if logs is None else KeptLogs(logs, int(limits.logs * 1e9))
    state = ServerState(feeds=feeds, fleet=FleetTracker(forget=limits.forget), tokens=tokens, kept_logs=kept)
    settings.serve(tls, lambda _: application(state), lambda: _served(feeds), ending=feeds.end, at_once=MAX_CONNECTIONS)


def raise_file_limit() -> None:
    """Raise the limit of open files, and so of connections, to what the system allows."""
    try:
        import resource
    except ModuleNotFoundError:
        return  # not on Unix
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = MAX_CONNECTIONS + 1000 if hard == resource.RLIM_INFINITY else min(MAX_CONNECTIONS + 1000, hard)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def _served(feeds: Feeds) -> tuple[str, dict[str, object]]:
    """Describe the registry and the channels that are served, as text and as JSON."""
    channels = [f"{channel}/{system}" for channel, system in sorted(feeds.channels)]
    shown = f"{feeds.registry.url} ({', '.join(channels) or 'no channels yet'})"
    return shown, {"registry": feeds.registry.url, "channels": channels}


# --- `privtab serve store:STORE` ---


POLL_SECONDS = 0.2
"""Seconds between two looks for changes that other processes made."""


class ServedBundles(NamedTuple):
    """Routes and tasks that serve bundles."""

    at_once: int
    routes: Sequence[Route] = ()
    beside: Sequence[Callable[[], AbstractAsyncContextManager[None]]] = ()
    end: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions(SigningOptions):
    """The options about a store, and about the bundles of it."""

    authorise: AuthoriseOption = None
    auditor: Annotated[
        list[str] | None, option("--auditor USER", "User who may read all rows and the journal; repeatable.")
    ] = None
    api: Annotated[
        list[str] | None, option("--api NAME", "Also serve this system's paths and payloads; repeatable.")
    ] = None
    anonymous: Annotated[str | None, option("--anonymous USER", "User of requests without a token.")] = None
    sidecar_token_file: Annotated[
        Path | None,
        option("--sidecar-token-file FILE", "Tokens of sidecars and operators, as for a registry's server."),
    ] = None
    signature: Annotated[
        list[str] | None,
        option(
            "--signature NAME=VALUE",
            "scope=TEXT, sequence=N of the policy (of a state: N plus the number of its change), key-id=ID, algorithm=RS256.",
        ),
    ] = None

    def checked(self, channel: str | None, *, others: bool) -> SigningKey | None:
        """The key to sign the bundles of a channel with. `others`: whether something other than tokens keeps callers out, or nobody wants that.

        Raises UsageError for options that need another one, FileError.
        """
        if channel is None:
            written = written_options(self)
            for name in ("--sidecar-token-file", "--signing-key", "--signature"):
                if name in written:
                    raise UsageError(f"`{name}` is for the bundles of `--channel NAME`")
            return None
        if self.sidecar_token_file is None and not others:
            raise UsageError("bundles hold all rows: give `--sidecar-token-file`, or `--tls client-ca=FILE`")
        return self.signing_key()

    def served(
        self, channel: str | None, view: View, artifacts: PolicyArtifacts, signing: SigningKey | None
    ) -> ServedBundles:
        """The registry's server code over a store, whose changes are releases of the channel; nothing without one.

        Raises UsageError.
        """
        from privtab_server.serving.server import MOST_AT_ONCE
        from privtab_server.serving.tokens import Tokens

        if channel is None:
            return ServedBundles(MOST_AT_ONCE)
        with needing("`privtab serve store:STORE --channel`", "registry"):
            from privtab_server.registry.server.app import Role, ServerState, sidecar_routes, watching
            from privtab_server.registry.server.feeds import Feeds
            from privtab_server.registry.server.fleet import FleetTracker
            from privtab_server.store.server.releases import StoreReleases
        raise_file_limit()
        feeds = Feeds(StoreReleases(view, artifacts, channel, signing), poll=POLL_SECONDS)
        token_file = self.sidecar_token_file
        state = ServerState(
            feeds=feeds,
            fleet=FleetTracker(),
            tokens=Tokens(token_file, Role, bindings=True) if token_file is not None else None,
        )
        return ServedBundles(MAX_CONNECTIONS, sidecar_routes(state), [partial(watching, state)], feeds.end)


def serve_store(
    url: str, policy: str, channel: str | None, options: StoreOptions, settings: ServerSettings, *, quiet: bool
) -> None:
    """Serve a store over HTTP until Ctrl-C: rows, changes, and AuthZEN decisions; to sidecars, bundles of a channel."""
    with needing("`privtab serve store:STORE`", "store", "serve"):
        from privtab_server.authzen.app import AppSettings, application
        from privtab_server.authzen.service import Service
        from privtab_server.serving.tokens import Tokens
        from privtab_server.store.server import app
        from privtab_server.store.server.app import StoreScope, StoreServer, routes
        from privtab_server.store.server.calls import Metrics
        from privtab_server.store.server.releases import StoreDecisionPoint, wait_for_change
        from privtab_server.store.store import Store
    from privtab.pipeline import policy_artifacts
    from privtab_server.store.authority import Authority
    from privtab_server.store.guarded import GuardedStore
    from privtab_server.store.view import View

    anonymous = options.anonymous
    if settings.token_file is None and anonymous is None:
        raise UsageError("changes need a user: give `--token-file` with a token for each user, or `--anonymous USER`")
    tls = settings.checked_tls(tokens=anonymous is None, quiet=quiet)
    others = anonymous is not None or settings.client_ca is not None or settings.insecure
    signing = options.checked(channel, others=others)
    program = load_policy(policy)
    authority = Authority(program, options.authorise or ())
    store = Store.open(url, program)
    artifacts = policy_artifacts(program)
    view = View(store, program, artifacts.program)
    view.now()  # Wrong rows are told now, not to the first caller.
    metrics = Metrics(view)
    tokens = Tokens(settings.token_file, StoreScope) if settings.token_file is not None else None
    signed = "" if signing is None else f", its bundles signed with {signing.id}"
    shown = f"{store.database.shown}, a store of {store.system}{signed},"
    document = {"system": store.system, "store": store.database.shown}
    sidecars = options.served(channel, view, artifacts, signing)
    service = Service(StoreDecisionPoint(view), system=program.system)

    def make(base: str) -> ASGIApp:
        server = StoreServer(
            guarded=GuardedStore(store, view, authority, options.auditor or (), metrics.record),
            metrics=metrics,
            base=base,
            tokens=tokens,
            anonymous=anonymous,
            max_body=settings.limits().body,
        )
        found = routes(server)
        for name in options.api or ():
            found += app.plugin_routes(name, server)
        served = AppSettings(
            services={"": service, f"/{program.system}": service},
            base=base,
            tokens=tokens,
            of_users=True,
            max_body=settings.limits().body,
            routes=[*found, *sidecars.routes],
            beside=sidecars.beside,
            admit=wait_for_change(store),
        )
        return application(served)

    settings.serve(tls, make, lambda: (shown, document), ending=sidecars.end, at_once=sidecars.at_once)
