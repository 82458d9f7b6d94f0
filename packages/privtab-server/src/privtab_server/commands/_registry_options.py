"""Options that select a registry, and what is printed of it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints
from urllib.parse import unquote

import typer

from privtab.base import FileError, UsageError, count, needing, read_content
from privtab.command import argument, option, out, table
from privtab_server.addresses import is_http, token_or_variable
from privtab_server.errors import RegistryError

if TYPE_CHECKING:
    from rich.table import Table

    from privtab_server.registry import Channel, Registry, Revision


def channels(context: typer.Context, incomplete: str) -> list[str]:
    """The channels with this prefix in the registry of the command line or the environment, if it is a folder."""
    from privtab_server.registry.names import CHANNELS

    registry = next((context.params[name] for name in ("registry", "url") if context.params.get(name)), None)
    try:
        folders = (Path(str(registry)) / CHANNELS).iterdir() if registry and "://" not in str(registry) else ()
        return sorted(folder.name for folder in folders if folder.is_dir() and folder.name.startswith(incomplete))
    except OSError:
        return []


RegistryArgument = Annotated[
    str,
    argument(
        "URL",
        "A folder, s3://bucket/folder[?endpoint_url=…], or another URL that fsspec supports; or `--registry URL`.",
        envvar="PRIVTAB_REGISTRY",
        also="--registry -r",
    ),
]
ChannelArgument = Annotated[str, argument("CHANNEL", "Channel name, such as dev or prod.", autocompletion=channels)]
SystemArgument = Annotated[str, argument("SYSTEM", "The system of the policy.")]
WhyOption = Annotated[str, option("--why TEXT", "Reason, recorded in the history.")]
ExpectOption = Annotated[
    int | None, option("--expect RELEASE", "Only if the channel is still at this release; 0: if it has none.", min=0)
]


def written_options(options: Any) -> dict[str, object]:
    """The values of a group's options by the longest name, but for defaults and for values of environment variables."""
    declared = get_type_hints(type(options), include_extras=True)
    found = {}
    for one in fields(options):
        parameter, value = declared[one.name].__metadata__[0], getattr(options, one.name)
        if value != one.default and value != os.environ.get(parameter.settings.get("envvar", "")):
            found[max(parameter.names, key=len, default="")] = value
    return found


def open_registry(url: str | None) -> Registry:
    """Open a registry by its address, with the token of the environment if it is behind HTTP. Raises UsageError, also if none is given."""
    if url is None:
        raise UsageError("no registry: give `--registry URL`, or set $PRIVTAB_REGISTRY")
    url, options = storage_of(url)
    if is_http(url) and (token := token_or_variable()) is not None:
        options["token"] = token
    with needing("a registry", "compiler", "registry"):
        from privtab_server.registry import Registry

        try:
            return Registry.open(url, **options)
        except TypeError as error:
            raise UsageError(f"{url} has no such option: {error}") from None


def no_channel(registry: Registry, name: str) -> str:
    """Return the message for a channel that a registry does not have; it lists the registry's channels."""
    if not registry.settings():
        return f"there is no registry at {registry.url}"
    available = sorted({f"{channel.channel}/{channel.system}" for channel in registry.channels()})
    return f"{registry.url} has no channel {name}; there are: {', '.join(available) or 'none'}"


def running_channels(registry: Registry, channel: str | None, system: str | None) -> list[Channel]:
    """Return the channels that ever ran something, optionally only the channels of a name and of a system."""
    found = [registry.channel(channel, system)] if channel and system else registry.channels()
    return [c for c in found if c.last and channel in (None, c.channel) and system in (None, c.system)]


def storage_of(url: str) -> tuple[str, dict[str, Any]]:
    """The address without its query, and the options for fsspec in the query, whose values may be JSON. Raises UsageError.

    >>> storage_of("s3://bucket/registry?endpoint_url=https://minio:9000")
    ('s3://bucket/registry', {'endpoint_url': 'https://minio:9000'})
    """
    address, mark, query = url.partition("?")
    if not mark or address.partition("://")[0] in (address, "file", "http", "https"):
        return url, {}
    example = "s3://bucket/folder?endpoint_url=https://s3.acme.example"
    found: dict[str, Any] = {}
    for part in query.split("&"):
        key, equals, value = map(unquote, part.partition("="))
        if not (equals and key.isidentifier()):
            raise UsageError(
                f"`{address}?…`: write options of the storage as KEY=VALUE, joined by `&`, as in {example}"
            )
        if key in found:
            raise UsageError(f"`{address}?…`: `{key}` is given twice")
        try:
            found[key] = json.loads(value)
        except ValueError:
            found[key] = value
    return address, found


def stored_revision_at(registry: Registry, path: Path) -> Revision | None:
    """The stored revision that `SYSTEM@REVISION` names; None for a file. Raises UsageError, RegistryError."""
    system, at, prefix = str(path).partition("@")
    if not at or path.exists() or not prefix.isalnum():
        return None
    found = stored_revision(registry, system, ("policy", "state"), prefix)
    if found is None:
        raise RegistryError(f"{registry.url} keeps no revision `{prefix}` of {system}, and {path} is no file")
    return registry.revision(system, *found)


def stored_revision(registry: Registry, system: str, kinds: Iterable[str], prefix: str) -> tuple[str, str] | None:
    """The kind and the id of the revision that has an id, else of that whose id begins with it. Raises UsageError if several do."""
    stored = sorted({(kind, revision.id) for kind in kinds for revision in registry.revisions(system, kind)})
    exact = [revision for revision in stored if revision[1] == prefix]
    found = exact or [revision for revision in stored if prefix and revision[1].startswith(prefix)]
    if len(found) > 1:
        names = ", ".join(map(" ".join, found[:5]))
        raise UsageError(f"several revisions of {system} begin with `{prefix}`: {names}")
    return found[0] if found else None


def release_stored(registry: Registry, stored: list[Revision], channel: str, why: str, expect: int | None) -> Channel:
    """Release the stored bundles to a channel: a policy, and a state, whole or sharded."""
    systems = {revision.system for revision in stored}
    if len(systems) != 1:
        raise UsageError(f"`--channel` is for bundles of one system; these are of {', '.join(sorted(systems))}")
    (system,) = systems
    chosen: dict[str, Any] = {}
    for kind in ("policy", "state"):
        ids = {revision.id for revision in stored if revision.kind == kind}
        if len(ids) > 1:
            raise UsageError(f"`--channel` runs one {kind}; these are {', '.join(sorted(ids))}")
        chosen[kind] = next(iter(ids), None)
    shards = {revision.shard: revision.id for revision in stored if revision.kind == "shard"}
    if shards and "people" not in shards:
        # Only some of the active shards; the shard of principals is in every complete set.
        shards = {**registry.channel(channel, system).shards, **shards}
    if not any(chosen.values()) and not shards:
        raise UsageError("`--channel` runs policies and states; these bundles are neither")
    return registry.release(channel, system, **chosen, shards=shards or None, why=why, expect=expect)


def channels_table(channels: Sequence[Channel]) -> Table:
    """A line for each channel, or for each release of a channel."""
    canaries = ["canary"] if any(channel.canary for channel in channels) else []
    grid = table("channel", "system", "release", "policy", "state", *canaries, "when", "by", "why", right=("release",))
    no_wrapping(grid)
    for channel in channels:
        state = _short(channel.state) or (count(len(channel.shards), "shard") if channel.shards else "")
        canary_cell = [_canary(channel)] if canaries else []
        grid.add_row(
            channel.channel,
            channel.system,
            str(channel.sequence),
            _short(channel.policy),
            state,
            *canary_cell,
            time_text(channel.when),
            channel.by,
            channel.why,
        )
    return grid


REVISION_CELLS: Mapping[str, Callable[[Revision], str]] = {
    "system": lambda revision: revision.system,
    "kind": lambda revision: f"shard {revision.shard}" if revision.shard else revision.kind,
    "revision": lambda revision: revision.id,
    "version": lambda revision: str(revision.metadata.get("version", "")),
    "created": lambda revision: time_text(revision.created),
    "bytes": lambda revision: f"{revision.size:,}",
    "signed": lambda revision: "yes" if revision.signed else "no",
}
"""Columns of tables of revisions."""


def show_revisions(revisions: Iterable[Revision], *columns: str, runs_in: Sequence[str] | None = None) -> None:
    """Print a line for each revision, with these columns of `REVISION_CELLS`, and what runs each."""
    shown = ("system", "kind", "revision", *columns)
    grid = table(*shown, *([] if runs_in is None else ["runs in"]), right=("bytes",))
    no_wrapping(grid)
    for number, revision in enumerate(revisions):
        cells = [REVISION_CELLS[column](revision) for column in shown]
        grid.add_row(*cells, *([] if runs_in is None else [runs_in[number]]))
    out().print(grid)


def _short(revision: str | None) -> str:
    """The prefix of a revision, which commands accept instead of it."""
    return (revision or "")[:10]


def no_wrapping(grid: Table) -> None:
    """Do not wrap names and revisions, so that they can be copied; a time takes at most two lines."""
    for column in grid.columns:
        column.no_wrap = column.header in ("channel", "system", "policy", "state", "revision")
        column.min_width = 10 if column.header in ("when", "created") else None


def _canary(channel: Channel) -> str:
    canary = channel.canary
    if canary is None:
        return ""
    labels = ",".join(f"{name}={value}" for name, value in canary.labels.items())
    revision = _short(canary.policy or canary.state) or count(len(canary.shards), "shard")
    return f"{revision} for {canary.share:.0%}{f' of {labels}' if labels else ''}"


def bundle_paths(paths: list[Path]) -> list[Path]:
    """The bundles given directly or in folders; raises FileError for a folder without any."""
    found: list[Path] = []
    for path in paths:
        bundles = sorted(path.rglob("*.tar.gz")) if path.is_dir() else [path]
        if not bundles:
            raise FileError(f"{path} has no bundles: no .tar.gz in it")
        found += bundles
    return found


def read_bundle(path: Path) -> bytes:
    """Read the file of a bundle, which has at most 2 GiB. Raises FileError."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise FileError(f"{path}: a bundle is a file, not a pipe or a device")
    try:
        return read_content(path, 2 << 30)
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from None


def time_text(text: str) -> str:
    """A time to the second."""
    return text[:19].replace("T", " ")
