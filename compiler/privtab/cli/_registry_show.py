"""Print channels and revisions as text, and read bundles given on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from privtab.cli._output import out, print_error, table
from privtab.errors import FileError
from privtab.plural import count

if TYPE_CHECKING:
    from rich.table import Table

    from privtab.registry import Channel, Revision


def show_channels(channels: list[Channel]) -> None:
    """Print a line for each channel, or for each release of a channel; problems go to standard error."""
    for channel in channels:
        if channel.trouble:
            print_error(channel.trouble)
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


def read_file(path: Path) -> bytes:
    """Read a file; raises FileError."""
    from privtab.bundle.bounds import LARGEST

    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise FileError(f"{path}: a bundle is a file, not a pipe or a device")
        if path.is_file() and path.stat().st_size > LARGEST:
            raise FileError(f"{path}: a bundle has {LARGEST >> 30} GiB at most")
        return path.read_bytes()
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from None


def kind_of(revision: Revision) -> str:
    """The kind of a revision, with the name of the shard if it is one."""
    return f"shard {revision.shard}" if revision.shard else revision.kind


def time_text(text: str) -> str:
    """A time to the second."""
    return text[:19].replace("T", " ")


def yes_no(value: bool) -> str:  # noqa: FBT001  (one value, shown)
    """`yes` or `no`, for tables."""
    return "yes" if value else "no"
