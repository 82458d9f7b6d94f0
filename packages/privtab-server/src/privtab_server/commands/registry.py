"""`privtab registry`: store bundles, and release them to channels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

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
    from privtab_server.registry.maintenance import GcReport


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
) -> None:
    """Create a registry, or change its settings.

    Without it, the first `put` creates a registry that accepts unsigned bundles.

    Example:
      privtab registry init registry/
      privtab registry init s3://policies/registry --verification-key release.pub.pem
    """
    registry = registry_options.open_registry(url)
    registry.init(verification_keys=[read_text(key) for key in verification_key or ()], scope=scope, replace=replace)
    accepts = (
        f"takes what {count(len(verification_key), 'key')} signed" if verification_key else "takes unsigned bundles"
    )
    out().print(f"{registry.url}  {accepts}")


@app.command("put")
def put(
    url: registry_options.RegistryArgument,
    bundle: Annotated[
        list[Path], argument("BUNDLE…", "Bundles, folders with bundles, or SYSTEM@REVISION for stored ones.")
    ],
    channel: Annotated[
        str | None, option("--channel NAME", "Release them to this channel too.", autocompletion=channels)
    ] = None,
    why: registry_options.WhyOption = "",
    expect: registry_options.ExpectOption = None,
    resign: Annotated[bool, option("--resign", "Replace the signature of a bundle that is stored already.")] = False,
    format_: FormatOption = "text",
) -> None:
    """Store bundles, and release them. Bundles that are stored already stay as they are, as do others of a channel; a canary ends.

    `privtab deploy` does this after its gates, and then watches the sidecars; `privtab registry rollback` releases earlier ones.

    Example:
      privtab registry put registry/ build/lake/1
      privtab registry put registry/ lake@35f8e515 --channel prod --why "as in dev"
      privtab registry put registry/ state.tar.gz --channel dev --why "new grants of May"
    """
    from privtab_server.registry.names import checked

    if channel is None and (why or expect is not None):
        raise UsageError("`--why` and `--expect` are about a release: give `--channel NAME`")
    if channel is not None:
        checked("the channel", channel)  # before anything is stored
    registry = registry_options.open_registry(url)
    stored: list[Revision] = []
    named = [(path, registry_options.stored_revision_at(registry, path)) for path in bundle]
    stored += [revision for _, revision in named if revision is not None]
    for path in registry_options.bundle_paths([path for path, revision in named if revision is None]):
        try:
            stored.append(registry.put(registry_options.read_bundle(path), resign=resign))
        except (BundleRefused, BrokenBundle) as error:
            raise BundleRefused(f"{path} is refused: {error}") from None
    current = registry_options.release_stored(registry, stored, channel, why, expect) if channel is not None else None
    if not print_if_data(format_, {"revisions": stored, "channel": current and channel_json(current)}):
        registry_options.show_revisions(stored, "bytes", "signed")
        if current:
            out().print(f"{current.channel}/{current.system} is at release {current.sequence}")


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

    registry = registry_options.open_registry(url)
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


@app.command("check")
def check(
    url: registry_options.RegistryArgument,
    repair: Annotated[bool, option("--repair", "Rewrite the copies for static servers.")] = False,
    keep: Annotated[
        int | None, option("--keep N", "Instead, list what no channel ran in its last N releases.", min=1)
    ] = None,
    older_than: Annotated[float, option("--older-than DAYS", "With `--keep`: stored before this.", min=0)] = 1.0,
    remove: Annotated[bool, option("--remove", "With `--keep`: remove that.")] = False,
    format_: FormatOption = "text",
) -> None:
    """Verify a registry: every bundle matches its digest, every channel can be served, and the static copies are current.

    Exits with 1 if a problem is found and not repaired. With `--keep`, lists or removes old bundles instead; histories stay, so
    it remains known what ran when, and rolling back to a removed revision is no longer possible.

    Example:
      privtab registry check registry/
      privtab registry check s3://policies/registry --repair
      privtab registry check registry/ --keep 20 --older-than 30 --remove
    """
    from privtab_server.registry.maintenance import DAY, sweep
    from privtab_server.registry.maintenance import check as checked

    registry = registry_options.open_registry(url)
    if keep is not None:
        if repair:
            raise UsageError("`--repair` and `--keep` are two things to do: give one of them")
        _show_swept(sweep(registry, keep=keep, older_than=older_than * DAY, remove=remove), format_)
        return
    if remove or older_than != 1.0:
        raise UsageError(
            "`--older-than` and `--remove` are about old bundles: say with `--keep N` how many releases stay"
        )
    result = checked(registry, repair=repair)
    if not print_if_data(format_, result):
        for problem in result.problems:
            print_error(f"{problem.path}: {problem.message}{' (repaired)' if problem.repaired else ''}")
        out().print(
            f"{count(result.revisions, 'revision')} with {result.bytes:,} bytes, {count(result.channels, 'channel')} with "
            f"{count(result.entries, 'release')}: {count(len(result.problems), 'problem')}"
        )
    fail_if(any(not problem.repaired for problem in result.problems))


def _show_swept(swept: GcReport, format_: FormatOption) -> None:
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


app.command("rollback")(_rollback.run)
app.command("status")(_status.run)
