"""The bundles that `privtab serve store` serves to OPA sidecars: options, and the registry's server code over a store."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from privtab._install import how_to_install
from privtab.cli._signing import KeyIdOption, ScopeOption, SigningKeyOption, signing_key
from privtab.errors import UsageError

if TYPE_CHECKING:
    from starlette.routing import Route

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
class BundleOptions:
    """The options about bundles."""

    channel: Annotated[
        str | None,
        typer.Option("--channel", metavar="NAME", help="Serve bundles to OPA sidecars too, as this channel."),
    ] = None
    sidecar_token_file: Annotated[
        Path | None,
        typer.Option(
            "--sidecar-token-file", metavar="FILE", help="Tokens of sidecars and operators, as of a registry's server."
        ),
    ] = None
    key: SigningKeyOption = None
    key_id: KeyIdOption = None
    scope: ScopeOption = ""
    sequence: Annotated[
        int | None,
        typer.Option(
            "--sequence",
            metavar="N",
            min=0,
            help="Sequence number of the policy; that of a state is N plus the number of its change.",
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
        return signing_key(self.key, self.key_id, self.scope, self.sequence)

    def served(self, view: View, artifacts: PolicyArtifacts, signing: SigningKey | None) -> ServedBundles:
        """The registry's server code over a store, whose changes are releases of one channel; nothing without a channel.

        Raises UsageError.
        """
        from privtab.cli._registry_server import MAX_CONNECTIONS, raise_file_limit
        from privtab.serving.server import MOST_AT_ONCE
        from privtab.serving.tokens import Tokens

        if self.channel is None:
            return ServedBundles(MOST_AT_ONCE)
        try:
            from privtab.registry.server.app import Role, ServerState, sidecar_routes, watching
            from privtab.registry.server.feeds import Feeds
            from privtab.registry.server.fleet import FleetTracker
            from privtab.store.server.releases import StoreReleases
        except ModuleNotFoundError as error:
            needed = f"`privtab serve store --channel` needs the extra `registry`: {how_to_install('registry')}"
            raise UsageError(f"{needed} (there is no `{error.name}`)") from None
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
