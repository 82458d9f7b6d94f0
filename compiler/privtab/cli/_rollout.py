"""Shared by deploy, rollback and status: options, the registry and fleet they select, and the display of a watch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from privtab._install import how_to_install
from privtab.cli._complete import channels
from privtab.cli._output import complain, err, table
from privtab.errors import FileError, UsageError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from privtab.registry.deploy.nodes import SidecarProgress, SidecarStatus
    from privtab.registry.deploy.watch import FleetSnapshot, Reader
    from privtab.registry.nodes import Channel
    from privtab.registry.registry import Registry

MISSING = f"this needs the extra `registry`: {how_to_install('compiler', 'registry')}"
TOKEN = "PRIVTAB_TOKEN"  # noqa: S105  (the name of a variable)

RegistryOption = Annotated[
    str | None,
    typer.Option("--registry", "-r", metavar="URL", envvar="PRIVTAB_REGISTRY", help="A folder, s3://… or file://…"),
]
ChannelOption = Annotated[
    str,
    typer.Option(
        "--channel",
        "-c",
        metavar="NAME",
        envvar="PRIVTAB_CHANNEL",
        help="Channel that sidecars follow: dev, prod, …",
        autocompletion=channels,
    ),
]
ServerOption = Annotated[
    str | None,
    typer.Option("--server", metavar="URL", envvar="PRIVTAB_SERVER", help="Registry server that sidecars report to."),
]
OpaOption = Annotated[
    list[str] | None, typer.Option("--opa", metavar="URL", help="OPA to ask for its status; repeatable.")
]
TokenOption = Annotated[
    Path | None,
    typer.Option("--token-file", metavar="FILE", help=f"Token for the server or OPA. (default: ${TOKEN})"),
]
CaOption = Annotated[
    Path | None, typer.Option("--ca", metavar="FILE", help="CA certificates for the server or OPA, PEM.")
]
TimeoutOption = Annotated[float, typer.Option("--timeout", min=0.1, metavar="SECONDS", help="Activation timeout.")]
ExpectOption = Annotated[int, typer.Option("--expect", min=0, metavar="N", help="Minimum number of sidecars.")]
WhyOption = Annotated[str, typer.Option("--why", metavar="TEXT", help="Reason, recorded in the channel's history.")]


def registry_of(url: str | None) -> Registry:
    """Open the given registry; raises UsageError if none is given."""
    if url is None:
        raise UsageError("which registry? give `--registry URL`, or set $PRIVTAB_REGISTRY")
    try:
        from privtab.registry.registry import Registry

        return Registry.open(url)
    except ModuleNotFoundError as error:
        raise UsageError(f"{MISSING} (there is no `{error.name}`)") from None


def scope_of(registry: Registry) -> str:
    """The scope that a registry requires in signatures; empty if it requires none."""
    trust = registry.trust()
    return "" if trust is None else trust.scope


@contextmanager
def reader_of(
    server: str | None, opas: Sequence[str] | None, token_file: Path | None, ca: Path | None
) -> Iterator[Reader | None]:
    """The reader of the fleet: from the server or from the OPAs; None if neither is given."""
    from privtab.registry.deploy.fleet import OpaReader, ServerReader

    if opas:
        # Options take precedence over the environment variable, which applies to all commands.
        server = None
    if not server and not opas:
        yield None
        return
    if ca is not None and not ca.is_file():
        raise FileError(f"no such file: {ca}")
    trusted = None if ca is None else str(ca)
    token = token_of(token_file)
    reader = OpaReader(opas, token, trusted) if opas else ServerReader(str(server), token, trusted)
    try:
        yield reader
    finally:
        reader.close()


def token_of(path: Path | None) -> str | None:
    """The token from a file, else from the environment."""
    if path is None:
        return os.environ.get(TOKEN) or None
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    if not text or len(text.split()) != 1:
        raise UsageError(f"`--token-file {path}`: it holds one token and nothing else")
    return text


def watcher(console: Console | None) -> Callable[[Iterator[FleetSnapshot], str], FleetSnapshot]:
    """Display a watch: a live table on a terminal, else a line for each sidecar that changes; nothing without a console."""

    def follow(looks: Iterator[FleetSnapshot], title: str) -> FleetSnapshot:
        if console is None:
            return _last(looks)
        return _live(looks, title, console) if console.is_terminal else _lines(looks, title, console)

    return follow


def _last(looks: Iterable[FleetSnapshot]) -> FleetSnapshot:
    last = None
    for look in looks:
        last = look
    assert last is not None
    return last


def _live(looks: Iterator[FleetSnapshot], title: str, console: Console) -> FleetSnapshot:
    from rich.console import Group
    from rich.live import Live

    last = None
    with Live(console=console, transient=True, refresh_per_second=8) as live:
        for look in looks:
            last = look
            live.update(Group(Text(f"{title}: {look.summary} ({look.seconds:.0f} s)"), sidecars(look.statuses)))
    assert last is not None
    console.print(f"{title}: {last.summary} after {last.seconds:.1f} s", soft_wrap=True)
    if last.statuses:
        console.print(sidecars(last.statuses))
    return last


def _lines(looks: Iterator[FleetSnapshot], title: str, console: Console) -> FleetSnapshot:
    said: dict[str, tuple[str, str]] = {}
    last, problem = None, None
    for look in looks:
        last = look
        if look.problem != problem and not look.over:
            problem = look.problem
            console.print(f"  {problem or 'it answers again'}", soft_wrap=True, style="dim")
        for one in look.statuses:
            now = (str(one.standing), one.why)
            if said.get(one.sidecar.id) != now:
                said[one.sidecar.id] = now
                why = f": {one.why}" if one.why else ""
                console.print(
                    f"  {name_of(one)} {one.standing} after {look.seconds:.1f} s{why}", soft_wrap=True, style="dim"
                )
    assert last is not None
    console.print(f"{title}: {last.summary} after {last.seconds:.1f} s", soft_wrap=True)
    return last


def name_of(stood: SidecarStatus) -> str:
    """The display name of a sidecar."""
    return stood.sidecar.url or stood.sidecar.id


def sidecars(stood: Sequence[SidecarStatus]) -> RenderableType:
    """A table with a line for each bundle of each sidecar, and the problems below."""
    from rich.console import Group

    # The table already shows who is waiting.
    wrong = [one for one in stood if one.why and (str(one.standing) != "waiting" or not one.sidecar.certain)]
    lines = [Text(f"{name_of(one)}: {one.why}", "yellow" if one.standing == "active" else "red") for one in wrong]
    return Group(_table(stood), *lines)


def _table(stood: Sequence[SidecarStatus]) -> Table:
    shown = table("sidecar", "labels", "bundle", "revision", "active since", "seen", "standing")
    now = datetime.now(tz=UTC)
    for one in stood:
        sidecar = one.sidecar
        labels = ", ".join(
            f"{k}={v}"
            for k, v in sorted(sidecar.labels.items())
            if k not in {"id", "version"} and not k.startswith("privtab_")
        )
        labels = ", ".join(filter(None, [labels, "canary" if any(s.canary for s in sidecar.feeds) else ""]))
        first = True
        for bundle in sidecar.bundles or (None,):
            shown.add_row(
                name_of(one) if first else "",
                labels if first else "",
                bundle.name if bundle else "",
                (bundle.revision or "none") if bundle else "",
                ago(bundle.since, now) if bundle else "",
                ago(sidecar.seen, now) if first else "",
                Text(str(one.standing), style=style(one.standing)) if first else "",
            )
            first = False
    return shown


def style(standing: SidecarProgress) -> str:
    """The colour for the progress of a sidecar."""
    return {"active": "green", "waiting": "yellow", "silent": "dim"}.get(str(standing), "red")


def ago(moment: datetime | None, now: datetime) -> str:
    """`12 s ago`."""
    from privtab.registry.deploy.watch import age

    return "" if moment is None else f"{age(now - moment)} ago"


def complain_late(look: FleetSnapshot) -> None:
    """Print to standard error which sidecars do not run what they should, and why."""
    for one in look.late:
        seen = one.sidecar.seen
        last = f" (last seen {ago(seen, datetime.now(tz=UTC))})" if seen is not None else ""
        complain(f"{name_of(one)}: {one.standing}: {one.why}{last}")
    unsure = [one for one in look.active if not one.sidecar.certain] if len(look.sure) < look.expected else []
    for one in unsure:
        complain(f"{name_of(one)}: not counted: {one.sidecar.doubt}")
    if len(look.awaited) < look.expected:
        complain(f"{look.expected} sidecars are expected, {len(look.awaited)} reported")
    if look.problem:
        complain(look.problem)


def channel_json(channel: Channel) -> dict[str, Any]:
    """A channel as JSON."""
    return {
        "channel": channel.channel,
        "system": channel.system,
        "switch": channel.sequence,
        "policy": channel.policy,
        "state": channel.state,
        "shards": dict(channel.shards) or None,
        "canary": channel.canary.to_json() if channel.canary else None,
        "when": channel.when or None,
        "by": channel.by or None,
        "why": channel.why or None,
        "trouble": channel.trouble or None,
    }


def look_json(look: FleetSnapshot | None) -> dict[str, Any] | None:
    """The end of a watch as JSON; null without a watch."""
    if look is None:
        return None
    return {
        "complete": look.complete,
        "seconds": round(look.seconds, 3),
        "active": len(look.active),
        "expected": max(look.expected, len(look.awaited)),
        "problem": look.problem,
        "sidecars": [one.json() for one in look.statuses],
    }


def progress_console(*, quiet: bool) -> Console | None:
    """The console for a watch: standard error, so that standard output has only the outcome."""
    return None if quiet else err()
