"""`privtab registry get`: write bundles of a registry to files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from privtab._staged import write
from privtab.cli._output import out
from privtab.cli._registry_options import (
    ChannelArgument,
    RegistryArgument,
    RegistryTokenOption,
    StorageOption,
    SystemArgument,
    open_registry,
)
from privtab.cli._registry_show import read_file
from privtab.cli._stored import bundle_of, release_at
from privtab.errors import RegistryError, UsageError


def get(
    url: RegistryArgument,
    channel: ChannelArgument,
    system: SystemArgument,
    at: Annotated[
        int | None,
        typer.Option("--at", min=1, metavar="RELEASE", help="Bundles of this release. (default: the current one)"),
    ] = None,
    only: Annotated[
        Literal["policy", "state"] | None, typer.Option("--only", help="Only the policy or only the state.")
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Folder to write the bundles to.")
    ] = Path(),
    replace: Annotated[bool, typer.Option("--replace", help="Overwrite existing bundles.")] = False,
    storage: StorageOption = None,
    token_file: RegistryTokenOption = None,
) -> None:
    """Write the bundles that a channel runs, or ran, into a folder.

    Each bundle is verified: its digest, and its signature where the registry requires one.

    Example:

    \b
      privtab registry get /srv/registry prod lake -o running/
      privtab registry get /srv/registry prod lake --at 12 --only state
      privtab explain ann read table:h/s/t -p running/policy.tar.gz -s running/state.tar.gz
    """
    from privtab.registry import names
    from privtab.registry.nodes import pin

    registry = open_registry(url, storage, token_file)
    release = registry.channel(channel, system) if at is None else release_at(registry, channel, system, at)
    if release.sequence == 0:
        raise RegistryError(release.trouble or f"{registry.url} has no channel {channel}/{system}")
    keys = {
        output / names.served_path(kind, shard): pin(kind, identity, shard)
        for (kind, shard), identity in release.runs().items()
        if only is None or (kind == "policy") is (only == "policy")
    }
    if not keys:
        raise RegistryError(f"{channel}/{system} runs no {only or 'bundle'} at release {release.sequence}")
    bundles = {path: bundle_of(registry, release, key) for path, key in keys.items()}
    for path, bundle in bundles.items():
        if not replace and path.exists() and read_file(path) != bundle:
            raise UsageError(f"{path} is another bundle: `--replace` overwrites it")
    for path, bundle in bundles.items():
        write(path, bundle)
        out().print(f"{path}  {keys[path]}", soft_wrap=True)
