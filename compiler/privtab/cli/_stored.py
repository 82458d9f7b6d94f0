"""Load policies and states from bundles, where commands also take files: a bundle, or a release of a channel.

`state.tar.gz`; `registry:/srv/registry#prod` for the active release, `#prod@12` for release 12, `#prod/lake@12` if the
channel runs several systems, and `#prod@9c1f0b6a2d3e4f50` for a revision that is stored, whether or not it was released. A
state may also be imported from another system: `import:ranger:policies.json`, `import:gravitino?metalake=prod:https://…`. It may be
that of a store, now or at a moment of its journal: `store:grants.db`, `store:grants.db@2026-03-03T12:00Z`, `store:grants.db@12`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import parse_qsl

from privtab import moments
from privtab.cli._output import print_error
from privtab.cli._parameters import needing
from privtab.cli._registry_options import no_channel, open_registry, read_file, token_of
from privtab.errors import BrokenBundle, FileError, RegistryError, UsageError
from privtab.moments import EXAMPLE
from privtab.printable import count

if TYPE_CHECKING:
    from privtab.ir.nodes import Program
    from privtab.registry import Channel, Registry
    from privtab.state.nodes import State
    from privtab.state.raw import RawState
    from privtab.store.journal import Journal

SCHEME = "registry:"
IMPORT = "import:"
STORE = "store:"
_ARCHIVES = (".tar.gz", ".tgz")
_SQLITE = b"SQLite format 3\0"
_PLACE = re.compile(
    r"(?P<url>.+)#(?P<channel>[^#/@]+)(?:/(?P<system>[^#/@]+))?"
    r"(?:@(?:(?P<revision>[0-9a-f]{16})|(?P<release>[0-9]{1,8})))?"
)

_IMPORT = re.compile(r"import:(?P<document>[^:?]+)(?:\?(?P<values>[^:]*))?:(?P<source>.+)")
_MOMENT = re.compile(r"(?P<url>.+?)(?:@(?P<at>[0-9]+|[0-9]{4}-[0-9]{2}-[0-9]{2}[^@/]*))?", re.DOTALL)
_NOT_A_MOMENT = re.compile(r"(?P<url>[^:]+://[^/]*/[^@]*)@(?P<at>.*)", re.DOTALL)
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


def is_stored(location: str | os.PathLike[str]) -> bool:
    """Whether an argument is a bundle or a reference to a channel, not a file with tables."""
    text = os.fspath(location)
    return text.startswith(SCHEME) or text.endswith(_ARCHIVES)


def place_of(location: str | os.PathLike[str]) -> ChannelReference:
    """Read `registry:URL#CHANNEL[/SYSTEM][@RELEASE]`; raises UsageError."""
    text = _with_slashes(os.fspath(location).removeprefix(SCHEME))
    found = _PLACE.fullmatch(text)
    if found is None and (wrong := _AT_CHANNEL.fullmatch(text)) is not None:
        at = wrong["at"]
        raise UsageError(
            f"`{os.fspath(location)}`: `{at}` is neither the number of a release nor the 16 digits of a revision: write "
            f"{SCHEME}{wrong['channel']}@12, or @9c1f0b6a2d3e4f50, as `privtab registry history` and `list` show them"
        )
    if found is None:
        raise UsageError(
            f"`{os.fspath(location)}`: write registry:URL#CHANNEL, as in registry:/srv/registry#prod, with @N for release N or @ID for a revision"
        )
    parts: dict[str, Any] = found.groupdict()
    return ChannelReference(**parts | {"release": parts["release"] and int(parts["release"])})


def load_policy(
    policy: str | Path, *, variant: str | None = None, readings: Mapping[str, str] | None = None
) -> Program:
    """The program of a policy, from its tables or from a bundle; raises like `pipeline.load_program`."""
    if not is_stored(policy):
        from privtab.pipeline import load_program

        return load_program(policy, variant=variant, readings=readings)
    from privtab.registry.deploy.program import program_in

    if variant or readings:
        raise UsageError(f"{policy} is compiled already: `--variant` and `--reading` are for tables")
    return program_in(_policy(policy), str(policy))


def load_rows(program: Program | None, state: Path) -> RawState:
    """The rows of a state, from its tables, from bundles or imported; raises UsageError for bundles of another system.

    Without a program, of the only system.
    """
    from privtab.state.load import load

    if str(state).startswith(IMPORT):
        return _imported(program, str(state))
    if str(state).startswith(STORE):
        return _of_store(program, str(state))
    if not is_stored(state):
        _check_no_database(state)
        return load(state)
    system = None if program is None else program.system
    return rows_of_bundles(program, state_bundles(system, state), str(state))


def running_store(state: Path) -> str | None:
    """The location of a store, for a client that follows its changes; None for other states, and for a store at a moment."""
    if not str(state).startswith(STORE):
        return None
    url, at = _store_and_moment(str(state))
    return None if at is not None else f"{STORE}{url}"


def rows_of_bundles(program: Program | None, bundles: Iterable[bytes], shown: str) -> RawState:
    """The rows of a state in bundles: of a policy's system, or of the only one."""
    from privtab.state.load import as_raw
    from privtab.state.written import as_written

    system = None if program is None else program.system
    found = [_documents(bundle, shown) for bundle in bundles]
    systems = {name for documents in found for name in documents}
    if system is None and len(systems) == 1:
        (system,) = systems
    if system is None:
        raise UsageError(f"{shown} holds states of {len(systems)} systems: give `--policy`")
    if system not in systems:
        raise UsageError(f"{shown} holds no state of {system}")
    documents = [by_system[system] for by_system in found if system in by_system]
    state = _rows_of_index(documents, shown)
    return as_raw(state if program is None else as_written(program, state), shown)


def state_bundles(system: str | None, location: Path) -> list[bytes]:
    """The bundles that an argument names: one, or those of a sharded state."""
    if not str(location).startswith(SCHEME):
        return [_read(location)]
    place = place_of(location)
    if place.revision is not None:
        return [_revision(place, system, "state")]
    return running_states(*channel_at(place, system))


def running_states(registry: Registry, release: Channel) -> list[bytes]:
    """The bundles of a release's state; raises RegistryError if it has none."""
    from privtab.registry.nodes import pin

    keys = [pin(kind, identity, shard) for (kind, shard), identity in release.runs().items() if kind != "policy"]
    found = [key for key in keys if key in release.digests]
    if not found:
        raise RegistryError(f"{release.channel}/{release.system} ran no state at release {release.sequence}")
    return [bundle_of(registry, release, key) for key in found]


def as_stored(program: Program, state: State) -> State:
    """The rows of a state as they are read back from its bundle."""
    from privtab.spark.state.bundles import from_index
    from privtab.state.index import index
    from privtab.state.written import as_written

    return as_written(program, from_index(index(program, state)))


# --- private ---------------------------------------------------------------------------------------------------------


def _imported(program: Program | None, location: str) -> RawState:
    """The rows that an import document gives of another system, now."""
    from privtab.spark.state.opening import import_state
    from privtab.state.load import as_raw

    found = _IMPORT.fullmatch(location)
    if found is None:
        raise UsageError(
            f"`{location}`: write import:DOCUMENT:SOURCE, as in import:ranger:policies.json, or "
            "import:gravitino?metalake=prod:https://gravitino.acme.example"
        )
    if program is None:
        raise UsageError(f"{location} is imported for a policy: give `--policy`")
    given = parse_qsl(found["values"] or "", keep_blank_values=True)
    values = {name: value for name, value in given if name != "accept"}
    accept = [value for name, value in given if name == "accept"]
    source = _with_slashes(found["source"])
    imported = import_state(program, found["document"], source, values=values, accept=accept)
    if imported.not_taken:
        print_error(
            f"{count(len(imported.not_taken), 'thing')} of {location} cannot be expressed; `privtab state import` lists them"
        )
    return as_raw(imported.state, location)


def _of_store(program: Program | None, location: str) -> RawState:
    """The rows of a store, now or at a moment."""
    from privtab.state.load import from_tables

    system, tables = rows_of_store(*_store_and_moment(location))
    if program is not None and system != program.system:
        raise UsageError(f"{location} is a store of {system}, and the policy is of {program.system}")
    return from_tables(tables, location)


def _store_and_moment(location: str) -> tuple[str, str | None]:
    """The address of a store, and the moment in `store:URL[@MOMENT]`. Raises UsageError."""
    found = _MOMENT.fullmatch(location.removeprefix(STORE))
    if found is None:
        raise UsageError(
            f"`{location}`: write store:PATH, as in store:grants.db, with @TIME or @N for an earlier moment"
        )
    if found["url"].startswith("sqlite:"):
        raise UsageError(f"`{location}`: write the path alone, as in store:grants.db or store:/srv/grants.db")
    url = _with_slashes(found["url"])
    if found["at"] is None:
        _check_no_moment(url)
    return url, found["at"]


def _check_no_moment(url: str) -> None:
    """Raise UsageError for the address of a store with `@` and a text that is no moment; names of files may contain `@`."""
    _check_store_extra()
    from privtab.store.database import file_before_at

    if "://" in url:
        found = _NOT_A_MOMENT.fullmatch(url)
        store = None if found is None else found["url"]
    else:
        store = file_before_at(url)
    if store is not None:
        raise UsageError(
            f"`{url[len(store) + 1 :]}` is not a moment: write {STORE}{store}@{EXAMPLE} for a time, or {STORE}{store}@12 "
            "for the number of a change, as `privtab store log` shows them"
        )


def rows_of_store(url: str, at: str | None) -> tuple[str, dict[str, list[dict[str, str]]]]:
    """The system of a store, and its rows: now, after a change given by number, or at a time."""
    store = opened_store(url)
    if at is None or at.isdecimal():
        return store.system, store.rows(number=None if at is None else int(at))
    try:
        return store.system, store.rows(moment=moments.moment(at))
    except moments.WrongTime as error:
        raise UsageError(f"`{at}` {error}; {error.help}") from None


def opened_store(url: str) -> Journal:
    """A store to read."""
    _check_store_extra()
    from privtab.store.journal import Journal

    return Journal.open(url)


def _check_store_extra() -> None:
    """Raise UsageError if what stores need is not installed."""
    with needing("a store", "store"):
        import privtab.store  # noqa: F401


def _check_no_database(state: Path) -> None:
    """Raise UsageError for a state that is a database without `store:`."""
    text = _with_slashes(str(state))
    is_file = False
    if state.is_file():
        with state.open("rb") as file:
            is_file = file.read(len(_SQLITE)) == _SQLITE
    if is_file or text.startswith(("postgresql:", "postgresql+")):
        raise UsageError(f"{text} is a database: a state in a store is written {STORE}{text}")


def _with_slashes(text: str) -> str:
    """An address with the slash of `://` that a Path which is no Location has lost."""
    return re.sub(r"^([a-z0-9+]{2,}):/(?=[^/])", r"\1://", text)


def _policy(location: str | Path) -> bytes:
    if not str(location).startswith(SCHEME):
        return _read(Path(location))
    place = place_of(location)
    if place.revision is not None:
        return _revision(place, None, "policy")
    registry, release = channel_at(place, None)
    if release.policy is None:
        raise RegistryError(f"{release.channel}/{release.system} ran no policy at release {release.sequence}")
    return bundle_of(registry, release, f"policy/{release.policy}")


def _revision(place: ChannelReference, system: str | None, kind: Literal["policy", "state"]) -> bytes:
    """A revision that a registry stores."""
    registry = open_registry(place.url, token=token_of(None))
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
    registry = open_registry(place.url, token=token_of(None))
    name = _system(registry, place, system)
    if place.release is None:
        release = registry.channel(place.channel, name)
        if release.sequence == 0:
            raise RegistryError(release.trouble or no_channel(registry, f"{place.channel}/{name}"))
        return registry, release
    return registry, release_at(registry, place.channel, name, place.release)


def release_at(registry: Registry, channel: str, system: str, sequence: int) -> Channel:
    """A release by number; raises RegistryError if it is missing or unreadable."""
    from privtab.registry.records import History, UnreadableRelease

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


def _read(path: Path) -> bytes:
    if not path.exists():
        raise FileError(f"no such bundle: {path}")
    return read_file(path)


def _documents(bundle: bytes, shown: str) -> Mapping[str, Any]:
    """The documents of states in a bundle, by system."""
    from privtab.client._bundles import content, unpacked

    try:
        return content(unpacked(bundle), lambda document: document).states
    except BrokenBundle as error:
        raise FileError(f"{shown} cannot be read: {error}") from None


def _rows_of_index(documents: Iterable[Mapping[str, Any]], shown: str) -> State:
    """The rows of a state from its index, or from the indexes of all its shards."""
    from privtab.engines.index import combined_document
    from privtab.spark.state.bundles import from_index

    try:
        document, missing = combined_document(documents)
        if missing:
            raise UsageError(f"{shown} is a part of a state: {len(missing)} of its shards are missing")
        return from_index(document)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise FileError(f"the state of {shown} cannot be read: {error!r}") from error
