"""`privtab serve store`: serve a store over HTTP, with AuthZEN decisions on it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from privtab._install import how_to_install
from privtab.cli._options import PolicyOption, VariantOption, with_options
from privtab.cli._output import Format, flush, out, print_line
from privtab.cli._serving import ServerSettings, log_requests
from privtab.cli._store_bundles import BundleOptions
from privtab.errors import UsageError

if TYPE_CHECKING:
    from privtab.bundle.sign import SigningKey
    from privtab.store.store import Store


@with_options  # BundleOptions
@with_options  # ServerSettings
def run(
    url: Annotated[
        str, typer.Argument(metavar="STORE", help="Path of an SQLite file, or postgresql+psycopg://USER@HOST/DATABASE.")
    ],
    policy: PolicyOption,
    variant: VariantOption = None,
    authorise: Annotated[
        list[str] | None,
        typer.Option(
            "--authorise",
            metavar="TABLE[.add|.remove]=OPERATION",
            help="Operation that authorises rows of a table; repeatable.",
        ),
    ] = None,
    auditor: Annotated[
        list[str] | None,
        typer.Option("--auditor", metavar="USER", help="User who may read all rows and the journal; repeatable."),
    ] = None,
    api: Annotated[
        list[str] | None,
        typer.Option("--api", metavar="NAME", help="Serve this system's paths and payloads too; repeatable."),
    ] = None,
    anonymous: Annotated[
        str | None, typer.Option("--anonymous", metavar="USER", help="User of requests without a token.")
    ] = None,
    *,
    bundles: BundleOptions,
    settings: ServerSettings,
) -> None:
    """Serve a store over HTTP until Ctrl-C: rows, changes, and AuthZEN decisions.

    The name of a token is the user who makes its requests. The OpenAPI document is at /store/v1/openapi.json.

    Example:

    \b
      privtab serve store grants.db --policy lake.yaml --token-file tokens
      privtab serve store grants.db -p lake.yaml --anonymous root --authorise owners=grant
      privtab serve store grants.db -p gravitino/1.1.0 --token-file tokens --api gravitino
      privtab serve store grants.db -p lake.yaml --token-file tokens \\
              --channel live --sidecar-token-file sidecars --signing-key prod.pem
    """
    try:
        from privtab.authzen.app import AppSettings, application
        from privtab.authzen.service import Service
        from privtab.serving.server import address, listen, serve
        from privtab.serving.tokens import Tokens
        from privtab.store.server import app
        from privtab.store.server.app import StoreScope, StoreServer, routes
        from privtab.store.server.metrics import Metrics
        from privtab.store.server.point import StoreDecisionPoint, wait_for_change
        from privtab.store.store import Store
    except ImportError as error:
        needed = f"`privtab serve store` needs the extras `store` and `serve`: {how_to_install('store', 'serve')}"
        raise UsageError(f"{needed} (there is no `{error.name}`)") from None
    from privtab.cli._stored import load_policy
    from privtab.pipeline import policy_artifacts
    from privtab.store.authority import Authority
    from privtab.store.guarded import GuardedStore
    from privtab.store.view import View

    if settings.token_file is None and anonymous is None:
        raise UsageError("changes need a user: give `--token-file` with a token for each user, or `--anonymous USER`")
    tls = settings.checked_tls(tokens=anonymous is None)
    others = anonymous is not None or settings.tls_client_ca is not None or settings.insecure
    signing = bundles.checked(others=others)
    public_url = settings.checked_public_url()
    program = load_policy(policy, variant=variant)
    authority = Authority(program, authorise or ())
    store = Store.open(url, program)
    artifacts = policy_artifacts(program)
    view = View(store, program, artifacts.program)
    view.now()  # Wrong rows are told now, not to the first caller.
    metrics = Metrics(view)
    tokens = Tokens(settings.token_file, StoreScope) if settings.token_file is not None else None
    log_requests(quiet=settings.quiet)
    with ExitStack() as stack:
        listening = stack.enter_context(listen(settings.host, settings.port))
        base = public_url or address(listening, settings.host, tls)
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
        sidecars = bundles.served(view, artifacts, signing)
        service = Service(StoreDecisionPoint(view), system=program.system)
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
        serve(
            application(served),
            listening,
            tls=tls,
            ready=lambda: _print_address(base, store, signing, settings.format_),
            ending=sidecars.end,
            at_once=sidecars.at_once,
            head_seconds=settings.header_timeout,
        )


def _print_address(base: str, store: Store, signing: SigningKey | None, format_: Format) -> None:
    if format_ is Format.JSON:
        print_line({"url": base, "system": store.system, "store": store.database.shown})
    else:
        signed = "" if signing is None else f", its bundles signed with {signing.id}"
        shown = f"{store.database.shown}, a store of {store.system}, at {base}{signed}; Ctrl-C ends it"
        out().print(shown, soft_wrap=True)
    flush()
