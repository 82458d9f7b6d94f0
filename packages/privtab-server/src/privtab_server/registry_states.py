"""Policies and states in registries: `registry:/srv/registry#prod`.

The active release of a channel; `#prod@12` is release 12, `#prod/lake@12` names the system if the channel runs several, and
`#prod@9c1f0b6a2d3e4f50` a revision that is stored, whether or not it was released.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from privtab.base import UsageError
from privtab.command import load_rows
from privtab_server.addresses import with_slashes
from privtab_server.commands._registry_options import no_channel, open_registry
from privtab_server.errors import RegistryError

if TYPE_CHECKING:
    from privtab.ir import Program
    from privtab.state import RawState
    from privtab_server.registry import Channel, Registry

SCHEME = "registry:"
_PLACE = re.compile(
    r"(?P<url>.+)#(?P<channel>[^#/@]+)(?:/(?P<system>[^#/@]+))?"
    r"(?:@(?:(?P<revision>[0-9a-f]{16})|(?P<release>[0-9]{1,8})))?"
)
_AT_CHANNEL = re.compile(r"(?P<channel>.+#[^#@]+)@(?P<at>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelReference:
    """A release of a channel: by default of its only system, and the active one."""

    url: str
    channel: str
    system: str | None = None
    release: int | None = None
    revision: str | None = None
    """A revision of a policy or a state, instead of a release."""


def rows(program: Program | None, location: str) -> RawState:
    """The rows of the state of a release or a revision. Raises RegistryError, UsageError."""
    return load_rows(program, location, bundles(None if program is None else program.system, location))


def bundles(system: str | None, location: str) -> list[bytes]:
    """Return the bundles of a state: one, or one per shard."""
    place = place_of(location)
    if place.revision is not None:
        return [_revision(place, system, "state")]
    return running_states(*channel_at(place, system))


def policy(location: str) -> bytes:
    """The bundle of a policy."""
    place = place_of(location)
    if place.revision is not None:
        return _revision(place, None, "policy")
    registry, release = channel_at(place, None)
    if release.policy is None:
        raise RegistryError(f"{release.channel}/{release.system} ran no policy at release {release.sequence}")
    return bundle_of(registry, release, f"policy/{release.policy}")


def place_of(location: str | os.PathLike[str]) -> ChannelReference:
    """Read `registry:URL#CHANNEL[/SYSTEM][@RELEASE]`; raises UsageError."""
    text = with_slashes(os.fspath(location).removeprefix(SCHEME))
    found = _PLACE.fullmatch(text)
    if found is None and (wrong := _AT_CHANNEL.fullmatch(text)) is not None:
        at = wrong["at"]
        raise UsageError(
            f"`{os.fspath(location)}`: `{at}` is neither the number of a release nor the 16 digits of a revision: write "
            f"{SCHEME}{wrong['channel']}@12, or @9c1f0b6a2d3e4f50, as `privtab registry status --history` shows them"
        )
    if found is None:
        raise UsageError(
            f"`{os.fspath(location)}`: write registry:URL#CHANNEL, as in registry:/srv/registry#prod, with @N for release N or @ID for a revision"
        )
    parts: dict[str, Any] = found.groupdict()
    return ChannelReference(**parts | {"release": parts["release"] and int(parts["release"])})


def running_states(registry: Registry, release: Channel) -> list[bytes]:
    """The bundles of a release's state; raises RegistryError if it has none."""
    from privtab_server.registry.nodes import pin

    keys = [pin(kind, identity, shard) for (kind, shard), identity in release.runs().items() if kind != "policy"]
    found = [key for key in keys if key in release.digests]
    if not found:
        raise RegistryError(f"{release.channel}/{release.system} ran no state at release {release.sequence}")
    return [bundle_of(registry, release, key) for key in found]


def _revision(place: ChannelReference, system: str | None, kind: Literal["policy", "state"]) -> bytes:
    """A revision that a registry stores."""
    registry = open_registry(place.url)
    assert place.revision is not None
    bundle = registry.read(registry.revision(_system(registry, place, system), kind, place.revision))
    registry.check_signature(bundle)
    return bundle


def bundle_of(registry: Registry, release: Channel, key: str) -> bytes:
    """A bundle of a release; raises RegistryError if it is missing, BundleRefused without a trusted signature."""
    bundle = registry.blob(release.digests[key])
    registry.check_signature(bundle)
    return bundle


def channel_at(place: ChannelReference, system: str | None) -> tuple[Registry, Channel]:
    """The release that a reference selects; `system`: the system if it names none. Raises RegistryError, UsageError."""
    registry = open_registry(place.url)
    name = _system(registry, place, system)
    if place.release is None:
        release = registry.channel(place.channel, name)
        if release.sequence == 0:
            raise RegistryError(release.trouble or no_channel(registry, f"{place.channel}/{name}"))
        return registry, release
    return registry, release_at(registry, place.channel, name, place.release)


def release_at(registry: Registry, channel: str, system: str, sequence: int) -> Channel:
    """A release by number; raises RegistryError if it is missing or unreadable."""
    from privtab_server.registry.records import History, UnreadableRelease

    found = History(registry.store, channel, system).entry(sequence)
    if isinstance(found, UnreadableRelease):
        raise RegistryError(f"release {sequence} of {channel}/{system} cannot be read: {found.why}")
    if found is None:
        raise RegistryError(f"{channel}/{system} had no release {sequence}")
    return found


def _system(registry: Registry, place: ChannelReference, system: str | None) -> str:
    name = place.system or system or _only(registry, place.channel)
    if system is not None and name != system:
        raise UsageError(f"the policy is of {system}, and the state would be of {name}")
    return name


def _only(registry: Registry, channel: str) -> str:
    systems = sorted({channel_.system for channel_ in registry.channels() if channel_.channel == channel})
    if len(systems) == 1:
        return systems[0]
    if not systems:
        raise RegistryError(no_channel(registry, channel))
    raise UsageError(f"{channel} runs several systems, {', '.join(systems)}: name one, as in #{channel}/{systems[0]}")
