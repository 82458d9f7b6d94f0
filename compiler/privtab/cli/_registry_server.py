"""`privtab serve --registry`: serve bundles to sidecars and receive their reports."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from privtab._install import how_to_install
from privtab.cli._output import Format, flush, out, print_error, print_line
from privtab.cli._registry_options import open_registry
from privtab.cli._serving import ServerSettings
from privtab.errors import UsageError

if TYPE_CHECKING:
    from privtab.serving.server import Tls

MAX_CONNECTIONS = 50_000
"""Maximum connections: each sidecar keeps one open for each of its bundles."""


def serve_registry(
    url: str,
    settings: ServerSettings,
    *,
    channels: Sequence[str],
    storage: list[str] | None,
    tls: Tls | None,
    poll: float,
    forget: float,
    each: int | None,
) -> None:
    """Serve a registry until Ctrl-C."""
    from privtab.registry import names
    from privtab.registry.server.feeds import Feeds
    from privtab.registry.server.fleet import FleetTracker
    from privtab.serving.server import address, listen
    from privtab.serving.server import serve as run
    from privtab.serving.tokens import Tokens

    try:
        from privtab.registry.server.app import Role, ServerState, application
    except ModuleNotFoundError as error:
        needed = f"`privtab serve --registry` needs the extra `registry`: {how_to_install('compiler', 'registry')}"
        raise UsageError(f"{needed} (there is no `{error.name}`)") from None
    for channel in channels:
        names.checked("the channel", channel)
    tokens = Tokens(settings.token_file, Role, bindings=True) if settings.token_file is not None else None
    raise_file_limit()
    registry = open_registry(url, storage)
    if not registry.settings():
        print_error(f"there is no registry at {registry.url} yet: the first bundle stored there creates it")
    feeds = Feeds(registry, only=channels, poll=poll)
    served = ServerState(feeds=feeds, fleet=FleetTracker(forget=forget), tokens=tokens)
    with ExitStack() as stack:
        listening = stack.enter_context(listen(settings.host, settings.port))
        base = address(listening, settings.host, tls)
        run(
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
