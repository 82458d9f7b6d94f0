"""`privtab serve registry`: serve bundles to sidecars and receive their reports."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated

import typer

from privtab._install import how_to_install
from privtab.cli._options import with_options
from privtab.cli._output import Format, flush, out, print_error, print_line
from privtab.cli._registry_options import RegistryArgument, StorageOption, open_registry
from privtab.cli._serving import ConnectionsOption, ServerSettings, log_requests
from privtab.errors import UsageError

MAX_CONNECTIONS = 50_000
"""Maximum connections: each sidecar keeps one open for each of its bundles."""


@with_options
def run(
    url: RegistryArgument,
    channel: Annotated[
        list[str] | None,
        typer.Option("--channel", metavar="NAME", help="Channels to serve; repeatable. Default: all."),
    ] = None,
    storage: StorageOption = None,
    poll: Annotated[
        float, typer.Option("--poll", min=0.05, metavar="SECONDS", help="Interval between checks for new releases.")
    ] = 0.3,
    forget: Annotated[
        float,
        typer.Option("--forget", min=1, metavar="SECONDS", help="Forget sidecars unseen for this long."),
    ] = 900.0,
    each: ConnectionsOption = None,
    *,
    settings: ServerSettings,
) -> None:
    """Serve a registry's bundles to sidecars, and receive their reports, until Ctrl-C.

    Requests are logged to standard error as JSON lines.

    Example:

    \b
      privtab serve registry s3://policies/registry --channel prod
      privtab serve registry /srv/registry --host 0.0.0.0 --token-file tokens --tls-cert c.pem --tls-key k.pem
    """
    tls = settings.checked_tls(tokens=settings.token_file is not None)
    log_requests(quiet=settings.quiet)
    from privtab.registry import names
    from privtab.registry.server.feeds import Feeds
    from privtab.registry.server.fleet import FleetTracker
    from privtab.serving.server import address, listen, serve
    from privtab.serving.tokens import Tokens

    try:
        from privtab.registry.server.app import Role, ServerState, application
    except ModuleNotFoundError as error:
        needed = f"`privtab serve registry` needs the extra `registry`: {how_to_install('compiler', 'registry')}"
        raise UsageError(f"{needed} (there is no `{error.name}`)") from None
    for name in channel or ():
        names.checked("the channel", name)
    tokens = Tokens(settings.token_file, Role, bindings=True) if settings.token_file is not None else None
    raise_file_limit()
    registry = open_registry(url, storage)
    if not registry.settings():
        print_error(f"there is no registry at {registry.url} yet: the first bundle stored there creates it")
    feeds = Feeds(registry, only=channel or (), poll=poll)
    served = ServerState(feeds=feeds, fleet=FleetTracker(forget=forget), tokens=tokens)
    with ExitStack() as stack:
        listening = stack.enter_context(listen(settings.host, settings.port))
        base = address(listening, settings.host, tls)
        serve(
            application(served),
            listening,
            tls=tls,
            ready=lambda: _print_address(base, feeds, settings.format_),
            ending=feeds.end,
            at_once=MAX_CONNECTIONS,
            each=each,
            head_seconds=settings.header_timeout,
        )


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


def _print_address(base: str, feeds: object, format_: Format) -> None:
    from privtab.registry.server.feeds import Feeds

    assert isinstance(feeds, Feeds)
    channels = [f"{channel}/{system}" for channel, system in sorted(feeds.channels)]
    if format_ is Format.JSON:
        print_line({"url": base, "registry": feeds.registry.url, "channels": channels})
    else:
        shown = ", ".join(channels) or "no channels yet"
        out().print(f"{feeds.registry.url} ({shown}) at {base}; Ctrl-C ends it", soft_wrap=True)
    flush()
