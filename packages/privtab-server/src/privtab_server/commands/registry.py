"""`privtab registry`: store bundles, and release them to channels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from privtab.base import BrokenBundle, UsageError, count, read_text, write_file
from privtab.command import (
    Commands,
    FormatOption,
    argument,
    fail_if,
    option,
    out,
    print_error,
    print_if_data,
)
from privtab_server.commands import _registry_options as registry_options
from privtab_server.commands import _rollback, _status
from privtab_server.commands._registry_options import channels
from privtab_server.commands._rollout import channel_json
from privtab_server.errors import BundleRefused, RegistryError
from privtab_server.registry_states import bundle_of, release_at

if TYPE_CHECKING:
    from privtab_server.registry import Revision


PANEL = "Ship"

app = Commands(help="Store bundles, and choose which of them each channel runs.", no_args_is_help=True)


@app.command("init")
def init(
    url: registry_options.RegistryArgument,
    verification_key: Annotated[
        list[Path] | None, option("--verification-key FILE", "Accept only bundles signed by this key; repeatable.")
    ] = None,
    scope: Annotated[str, option("--scope TEXT", "Scope that signatures must have.")] = "",
    replace: Annotated[bool, option("--replace", "Overwrite an existing registry's settings.")] = False,
    storage: registry_options.StorageOption = None,
) -> None:
    """Create a registry, or change its settings.

    Without it, the first `put` creates a registry that accepts unsigned bundles.

    Example:
      privtab registry init registry/
      privtab registry init s3://policies/registry --verification-key release.pub.pem
    """
    registry = registry_options.open_registry(url, storage)
    registry.init(verification_keys=[read_text(key) for key in verification_key or ()], scope=scope, replace=replace)
    accepts = (
        f"takes what {count(len(verification_key), 'key')} signed" if verification_key else "takes unsigned bundles"
    )
    out().print(f"{registry.url}  {accepts}")


@app.command("put")
def put(
    url: registry_options.RegistryArgument,
    bundle: Annotated[list[Path], argument("BUNDLE…", "Bundles, or folders with bundles.")],
    channel: Annotated[
        str | None, option("--channel NAME", "Release them to this channel too.", autocompletion=channels)
    ] = None,
    why: registry_options.WhyOption = "",
    expect: registry_options.ExpectOption = None,
    resign: Annotated[bool, option("--resign", "Replace the signature of a bundle that is stored already.")] = False,
    storage: registry_options.StorageOption = None,
    format_: FormatOption = "text",
) -> None:
    """Store bundles. Bundles that are stored already stay as they are.

    `privtab deploy` does this after its gates, and then watches the sidecars.

    Example:
      privtab registry put registry/ build/lake/1
      privtab registry put registry/ state.tar.gz --channel dev --why "new grants of May"
    """
    registry = registry_options.open_registry(url, storage)
    stored: list[Revision] = []
    for path in registry_options.bundle_paths(bundle):
        try:
            stored.append(registry.put(registry_options.read_bundle(path), resign=resign))
        except (BundleRefused, BrokenBundle) as error:
            raise BundleRefused(f"{path} is refused: {error}") from None
    current = registry_options.release_stored(registry, stored, channel, why, expect) if channel else None
    if not print_if_data(format_, {"revisions": stored, "channel": current and channel_json(current)}):
        registry_options.show_revisions(stored, "bytes", "signed")
        if current:
            out().print(f"{current.channel}/{current.system} is at release {current.sequence}")


@app.command("list")
def list_(
    url: registry_options.RegistryArgument,
    system: Annotated[str | None, option("--system NAME", "Only this system.")] = None,
    kind: Annotated[str | None, option("--kind KIND", "policy, state, shard or wasm.")] = None,
    storage: registry_options.StorageOption = None,
    token: registry_options.RegistryTokenOption = None,
    format_: FormatOption = "text",
) -> None:
    """List stored revisions, newest last, and the channels that run them.

    Example:
      privtab registry list registry/
      privtab registry list s3://policies/registry --system lake --kind policy --format json
    """
    from privtab_server.registry import names
    from privtab_server.registry.maintenance import all_records
    from privtab_server.registry.nodes import pin

    registry = registry_options.open_registry(url, storage, token)
    if kind is not None:
        names.checked_kind(kind)
    running: dict[tuple[str, str], list[str]] = {}
    for current in registry.channels():
        for key in current.digests:
            running.setdefault((current.system, key), []).append(current.channel)
    revisions, broken = all_records(registry)
    for error in broken:
        print_error(str(error))
    listed = [
        (revision, running.get((revision.system, pin(revision.kind, revision.id, revision.shard)), []))
        for revision in revisions
        if system in (None, revision.system) and kind in (None, revision.kind)
    ]
    if print_if_data(format_, [revision.to_json() | {"channels": channels} for revision, channels in listed]):
        return
    registry_options.show_revisions(
        [revision for revision, _ in listed],
        "version",
        "created",
        "bytes",
        "signed",
        runs_in=[", ".join(running_channels) for _, running_channels in listed],
    )
    out().print(count(len(listed), "revision"), style="dim")


@app.command("show")
def show(
    url: registry_options.RegistryArgument,
    channel: Annotated[str | None, argument("[CHANNEL]", "Only this channel.", autocompletion=channels)] = None,
    system: Annotated[str | None, argument("[SYSTEM]", "Only this system.")] = None,
    storage: registry_options.StorageOption = None,
    token: registry_options.RegistryTokenOption = None,
    format_: FormatOption = "text",
) -> None:
    """Show what each channel runs.

    Example:
      privtab registry show registry/
      privtab registry show registry/ prod lake --format json
    """
    registry = registry_options.open_registry(url, storage, token)
    current = registry_options.running_channels(registry, channel, system)
    if not current and channel:
        raise RegistryError(registry_options.no_channel(registry, f"{channel}/{system}" if system else channel))
    if not print_if_data(format_, list(map(channel_json, current))):
        registry_options.show_channels(current)


@app.command("history")
def history(
    url: registry_options.RegistryArgument,
    channel: registry_options.ChannelArgument,
    system: registry_options.SystemArgument,
    last: Annotated[int | None, option("--last N", "Number of entries to show.", min=1)] = None,
    storage: registry_options.StorageOption = None,
    token: registry_options.RegistryTokenOption = None,
    format_: FormatOption = "text",
) -> None:
    """List the releases of a channel, oldest first.

    Example:
      privtab registry history registry/ prod lake --last 5
    """
    registry = registry_options.open_registry(url, storage, token)
    releases = registry.history(channel, system, last)
    if not releases:
        raise RegistryError(registry_options.no_channel(registry, f"{channel}/{system}"))
    if not print_if_data(format_, list(map(channel_json, releases))):
        registry_options.show_channels(releases)


@app.command("release")
def release(
    url: registry_options.RegistryArgument,
    channel: registry_options.ChannelArgument,
    system: registry_options.SystemArgument,
    policy: Annotated[str | None, option("--policy REVISION", "A revision, or a prefix of one.")] = None,
    state: Annotated[str | None, option("--state REVISION", "A revision, or a prefix of one.")] = None,
    to: Annotated[int | None, option("--to RELEASE", "All bundles of this earlier release.", min=1)] = None,
    why: registry_options.WhyOption = "",
    expect: registry_options.ExpectOption = None,
    storage: registry_options.StorageOption = None,
    format_: FormatOption = "text",
) -> None:
    """Release other revisions to a channel, in one step. Other bundles stay; a canary ends.

    `privtab registry rollback` does this and watches the sidecars.

    Example:
      privtab registry release registry/ prod lake --policy 35f8e515 --why "as in dev"
      privtab registry release registry/ prod lake --to 1
    """
    registry = registry_options.open_registry(url, storage)
    if to is None:
        chosen: dict[str, Any] = {}
        for kind, prefix in (("policy", policy), ("state", state)):
            found = None if prefix is None else registry_options.stored_revision(registry, system, (kind,), prefix)
            if prefix is not None and found is None:
                raise RegistryError(f"{registry.url} keeps no {kind} revision `{prefix}` of {system}")
            chosen[kind] = found and found[1]
    elif policy or state:
        raise UsageError("`--to` says all: give no `--policy` and no `--state` with it")
    else:
        earlier = release_at(registry, channel, system, to)
        chosen = {"policy": earlier.policy, "state": earlier.state, "shards": earlier.shards or None}
        why = why or f"as at release {to}"
    current = registry.release(channel, system, **chosen, why=why, expect=expect)
    if not print_if_data(format_, channel_json(current)):
        registry_options.show_channels([current])


@app.command("get")
def get(
    url: registry_options.RegistryArgument,
    channel: registry_options.ChannelArgument,
    system: registry_options.SystemArgument,
    at: Annotated[
        int | None, option("--at RELEASE", "Bundles of this release. (default: the current one)", min=1)
    ] = None,
    only: Annotated[Literal["policy", "state"] | None, option("--only", "Only the policy or only the state.")] = None,
    output: Annotated[Path, option("--output -o FOLDER", "Folder to write the bundles to.")] = Path(),
    replace: Annotated[bool, option("--replace", "Overwrite existing bundles.")] = False,
    storage: registry_options.StorageOption = None,
    token: registry_options.RegistryTokenOption = None,
) -> None:
    """Write the bundles that a channel runs, or ran, into a folder.

    Each bundle is verified: its digest, and its signature where the registry requires one.

    Example:
      privtab registry get registry/ prod lake -o running/
      privtab registry get registry/ prod lake --at 1 --only state -o earlier/
      privtab explain ann read table:l/web/t -p running/policy.tar.gz -s running/state.tar.gz
    """
    from privtab_server.registry import names
    from privtab_server.registry.nodes import pin

    registry = registry_options.open_registry(url, storage, token)
    release = registry.channel(channel, system) if at is None else release_at(registry, channel, system, at)
    if release.sequence == 0:
        raise RegistryError(release.trouble or registry_options.no_channel(registry, f"{channel}/{system}"))
    keys = {
        output / names.served_path(kind, shard): pin(kind, identity, shard)
        for (kind, shard), identity in release.runs().items()
        if only is None or (kind == "policy") is (only == "policy")
    }
    if not keys:
        raise RegistryError(f"{channel}/{system} runs no {only or 'bundle'} at release {release.sequence}")
    bundles = {path: bundle_of(registry, release, key) for path, key in keys.items()}
    for path, bundle in bundles.items():
        if not replace and path.exists() and registry_options.read_bundle(path) != bundle:
            raise UsageError(f"{path} is another bundle: `--replace` overwrites it")
    for path, bundle in bundles.items():
        write_file(path, bundle, in_place=True)  # the same bundle, or one to replace
        out().print(f"{path}  {keys[path]}")


@app.command("gc")
def gc(
    url: registry_options.RegistryArgument,
    keep: Annotated[int, option("--keep N", "Keep the bundles of the last N releases.", min=1)] = 10,
    older_than: Annotated[float, option("--older-than DAYS", "Keep bundles younger than this.", min=0)] = 1.0,
    remove: Annotated[bool, option("--remove", "Remove; without it, only list what would be removed.")] = False,
    storage: registry_options.StorageOption = None,
    format_: FormatOption = "text",
) -> None:
    """List revisions that no channel ran in its last releases; with `--remove`, remove them.

    Histories stay, so it remains known what ran when; rolling back to a removed revision is no longer possible.

    Example:
      privtab registry gc registry/
      privtab registry gc registry/ --keep 20 --older-than 30 --remove
    """
    from privtab_server.registry.maintenance import DAY, sweep

    swept = sweep(registry_options.open_registry(url, storage), keep=keep, older_than=older_than * DAY, remove=remove)
    document = {name: getattr(swept, name) for name in ("removed", "revisions", "orphans", "kept", "bytes")}
    document |= {"litter": swept.abandoned_files, "unread": swept.unreadable_releases}
    if print_if_data(format_, document):
        return
    if swept.revisions:
        registry_options.show_revisions(swept.revisions, "created", "bytes")
    summary = f"{count(len(swept.revisions), 'revision')} with {swept.bytes:,} bytes"
    if swept.orphans:
        summary += f", {count(len(swept.orphans), 'bundle')} without a record"
    if swept.abandoned_files:
        summary += f", {count(len(swept.abandoned_files), 'file')} of writers that died"
    if swept.unreadable_releases:
        print_error(
            f"{count(len(swept.unreadable_releases), 'record')} cannot be read, so bundles without a record stay: "
            "`privtab registry check` tells more"
        )
    fate = "removed" if swept.removed else "would go (`--remove` removes them)"
    out().print(f"{summary} {fate}; {count(swept.kept, 'revision')} stay")


@app.command("check")
def check(
    url: registry_options.RegistryArgument,
    repair: Annotated[bool, option("--repair", "Rewrite the copies for static servers.")] = False,
    storage: registry_options.StorageOption = None,
    token: registry_options.RegistryTokenOption = None,
    format_: FormatOption = "text",
) -> None:
    """Verify a registry: every bundle matches its digest, every channel can be served, and the static copies are current.

    Exits with 1 if a problem is found and not repaired.

    Example:
      privtab registry check registry/
      privtab registry check s3://policies/registry --repair
    """
    from privtab_server.registry.maintenance import check as checked

    result = checked(registry_options.open_registry(url, storage, token), repair=repair)
    if not print_if_data(format_, result):
        for problem in result.problems:
            print_error(f"{problem.path}: {problem.message}{' (repaired)' if problem.repaired else ''}")
        out().print(
            f"{count(result.revisions, 'revision')} with {result.bytes:,} bytes, {count(result.channels, 'channel')} with "
            f"{count(result.entries, 'release')}: {count(len(result.problems), 'problem')}"
        )
    fail_if(any(not problem.repaired for problem in result.problems))


app.command("rollback")(_rollback.run)
app.command("status")(_status.run)
