"""`privtab serve store`: serve a store over HTTP, with AuthZEN decisions on it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from privtab.cli._options import PolicyChoice
from privtab.cli._parameters import needing, option, with_options
from privtab.cli._serving import MAX_CONNECTIONS, ServerSettings, raise_file_limit
from privtab.cli._signing import SigningOptions
from privtab.cli._store_session import UrlArgument
from privtab.errors import UsageError

if TYPE_CHECKING:
    from starlette.routing import Route
    from starlette.types import ASGIApp

    from privtab.bundle.pack import PolicyArtifacts
    from privtab.bundle.sign import SigningKey
    from privtab.store.view import View

POLL_SECONDS = 0.2
"""Seconds between two looks for changes that other processes made."""


class ServedBundles(NamedTuple):
    """What serves bundles."""

    at_once: int
    routes: Sequence[Route] = ()
    beside: Sequence[Callable[[], AbstractAsyncContextManager[None]]] = ()
    end: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleOptions(SigningOptions):
    """The options about bundles."""

    channel: Annotated[str | None, option("--channel NAME", "Serve bundles to OPA sidecars too, as this channel.")] = (
        None
    )
    sidecar_token_file: Annotated[
        Path | None, option("--sidecar-token-file FILE", "Tokens of sidecars and operators, as of a registry's server.")
    ] = None
    sequence: Annotated[
        int | None,
        option(
            "--sequence N", "Sequence number of the policy; that of a state is N plus the number of its change.", min=0
        ),
    ] = None

    def checked(self, *, others: bool) -> SigningKey | None:
        """The key to sign with. `others`: whether something other than tokens keeps callers out, or nobody wants that.

        Raises UsageError for options that need another one, FileError.
        """
        if self.channel is None:
            for option, value in (
                ("--sidecar-token-file", self.sidecar_token_file),
                ("--signing-key", self.key if self.key != os.environ.get("PRIVTAB_SIGNING_KEY") else None),
                ("--key-id", self.key_id),
                ("--scope", self.scope or None),
                ("--sequence", self.sequence),
            ):
                if value is not None:
                    raise UsageError(f"`{option}` is for the bundles of `--channel NAME`")
            return None
        if self.sidecar_token_file is None and not others:
            raise UsageError("bundles hold all rows: give `--sidecar-token-file`, or `--tls-client-ca`")
        return self.signing_key()

    def served(self, view: View, artifacts: PolicyArtifacts, signing: SigningKey | None) -> ServedBundles:
        """The registry's server code over a store, whose changes are releases of one channel; nothing without a channel.

        Raises UsageError.
        """
        from privtab.serving.server import MOST_AT_ONCE
        from privtab.serving.tokens import Tokens

        if self.channel is None:
            return ServedBundles(MOST_AT_ONCE)
        with needing("`privtab serve store --channel`", "registry"):
            from privtab.registry.server.app import Role, ServerState, sidecar_routes, watching
            from privtab.registry.server.feeds import Feeds
            from privtab.registry.server.fleet import FleetTracker
            from privtab.store.server.releases import StoreReleases
        raise_file_limit()
        feeds = Feeds(
            StoreReleases(view, artifacts, self.channel, signing),
            poll=POLL_SECONDS,
        )
        token_file = self.sidecar_token_file
        state = ServerState(
            feeds=feeds,
            fleet=FleetTracker(),
            tokens=Tokens(token_file, Role, bindings=True) if token_file is not None else None,
        )
        return ServedBundles(MAX_CONNECTIONS, sidecar_routes(state), [partial(watching, state)], feeds.end)


@with_options
def run(
    url: UrlArgument,
    policy: PolicyChoice,
    authorise: Annotated[
        list[str] | None,
        option("--authorise TABLE[.add|.remove]=OPERATION", "Operation that authorises rows of a table; repeatable."),
    ] = None,
    auditor: Annotated[
        list[str] | None, option("--auditor USER", "User who may read all rows and the journal; repeatable.")
    ] = None,
    api: Annotated[
        list[str] | None, option("--api NAME", "Serve this system's paths and payloads too; repeatable.")
    ] = None,
    anonymous: Annotated[str | None, option("--anonymous USER", "User of requests without a token.")] = None,
    *,
    bundles: BundleOptions,
    settings: ServerSettings,
) -> None:
    """Serve a store over HTTP until Ctrl-C: rows, changes, and AuthZEN decisions.

    The name of a token is the user who makes its requests. The OpenAPI document is at /store/v1/openapi.json.

    Example:
      privtab serve store grants.db --policy lake.yaml --token-file tokens
      privtab serve store grants.db -p lake.yaml --anonymous root --authorise owners=grant
      privtab serve store grants.db -p gravitino/1.1.0 --token-file tokens --api gravitino
      privtab serve store grants.db -p lake.yaml --token-file tokens \\
              --channel live --sidecar-token-file sidecars --signing-key prod.pem
    """
    with needing("`privtab serve store`", "store", "serve"):
        from privtab.authzen.app import AppSettings, application
        from privtab.authzen.service import Service
        from privtab.serving.tokens import Tokens
        from privtab.store.server import app
        from privtab.store.server.app import StoreScope, StoreServer, routes
        from privtab.store.server.metrics import Metrics
        from privtab.store.server.point import StoreDecisionPoint, wait_for_change
        from privtab.store.store import Store
    from privtab.pipeline import policy_artifacts
    from privtab.store.authority import Authority
    from privtab.store.guarded import GuardedStore
    from privtab.store.view import View

    if settings.token_file is None and anonymous is None:
        raise UsageError("changes need a user: give `--token-file` with a token for each user, or `--anonymous USER`")
    tls = settings.checked_tls(tokens=anonymous is None)
    others = anonymous is not None or settings.tls_client_ca is not None or settings.insecure
    signing = bundles.checked(others=others)
    program = policy.program()
    authority = Authority(program, authorise or ())
    store = Store.open(url, program)
    artifacts = policy_artifacts(program)
    view = View(store, program, artifacts.program)
    view.now()  # Wrong rows are told now, not to the first caller.
    metrics = Metrics(view)
    tokens = Tokens(settings.token_file, StoreScope) if settings.token_file is not None else None
    signed = "" if signing is None else f", its bundles signed with {signing.id}"
    shown = f"{store.database.shown}, a store of {store.system}{signed},"
    document = {"system": store.system, "store": store.database.shown}
    sidecars = bundles.served(view, artifacts, signing)
    service = Service(StoreDecisionPoint(view), system=program.system)

    def make(base: str) -> ASGIApp:
        server = StoreServer(
            guarded=GuardedStore(store, view, authority, auditor or (), metrics.record),
            metrics=metrics,
            base=base,
            tokens=tokens,
            anonymous=anonymous,
            max_body=settings.max_body,
        )
        found = routes(server)
        for name in api or ():
            found += app.plugin_routes(name, server)
        served = AppSettings(
            services={"": service, f"/{program.system}": service},
            base=base,
            tokens=tokens,
            of_users=True,
            max_body=settings.max_body,
            routes=[*found, *sidecars.routes],
            beside=sidecars.beside,
            admit=wait_for_change(store),
        )
        return application(served)

    settings.serve(tls, make, lambda: (shown, document), ending=sidecars.end, at_once=sidecars.at_once)
