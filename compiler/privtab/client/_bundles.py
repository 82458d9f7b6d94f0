"""Read bundles, in OPA's format, from files, folders, packages and HTTP."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from privtab.base import files, plugins, strict_json
from privtab.base.caching import no_collection
from privtab.base.errors import BrokenBundle, DecisionUnavailable, FileError, PolicyError, SignatureRefused, UsageError
from privtab.base.records import dataclass
from privtab.base.resources import needing
from privtab.base.signatures import PEM, Signed, Trust
from privtab.bundle.archive import (
    LARGEST_READ,
    MOST_ENTRIES,
    archive_entries,
    check_values,
    checked_manifest,
    read_json_object,
)
from privtab.bundle.sign import verify_bundle
from privtab.client import _config
from privtab.client._address import Cert, Token, file_stamp
from privtab.client._config import Settings
from privtab.client._observe import LOG
from privtab.engines.held_texts import read_held

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

JsonObject: TypeAlias = Mapping[str, Any]
Keep: TypeAlias = Callable[[JsonObject], Any]
"""Converts the document of a state, which is large, to what is kept of it."""

MANIFEST = ".manifest"
PROGRAMS = "privtab_program"
STATES = "privtab_state"
SHARDS = "shards.json"
ARCHIVES = (".tar.gz", ".tgz")
LONGEST = 60.0
"""Seconds within which a bundle must have been downloaded."""
STORE = "store:"
BundlePlace: TypeAlias = str | os.PathLike[str]
"""Location of bundles: a file, a folder, `package:name/file`, `http://…` or `https://…`; or a state in a store, `store:…`."""
LARGEST = 512 << 20
"""Largest size of a packed bundle in bytes; `bundle/archive.py` bounds its unpacked size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """The policy or state in a bundle: programs by the name of their package, states by the name of their system."""

    programs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    states: Mapping[str, Any] = field(default_factory=dict)
    """As converted by `Keep`."""
    wasm: bool = False
    """True if its policy is Wasm, beside the program."""
    signed: Signed | None = None
    """The content of its signature, if verification was requested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBundle:
    """A bundle that was read: its location, its mark and its content.

    >>> ReadBundle.of("store:grants.db", 12, states={"lake": {}}).content.states
    {'lake': {}}
    """

    where: str
    mark: object
    """Equal while the bundle is the same."""
    content: Content

    @classmethod
    def of(
        cls,
        where: str,
        mark: object,
        *,
        programs: Mapping[str, Mapping[str, Any]] | None = None,
        states: Mapping[str, Any] | None = None,
    ) -> ReadBundle:
        """A bundle of programs by the name of their package, or of kept states by the name of their system."""
        return cls(where=where, mark=mark, content=Content(programs=programs or {}, states=states or {}))

    @classmethod
    def unpacked(cls, where: str, packed: bytes) -> ReadBundle:
        """A packed bundle, with the whole documents of states; raises BrokenBundle."""
        return cls(where=where, mark=None, content=bundle_content(packed))


def bundle_content(packed: bytes, keep: Keep = dict) -> Content:
    """The content of a packed bundle; raises BrokenBundle. `keep`: converts the document of a state to what is kept of it."""
    found = archive_entries(io.BytesIO(packed))
    return content({name: file.read() for name, _, file in found if _is_relevant(name)}, keep)


def content(files: Mapping[str, bytes], keep: Keep, trust: Trust | None = None) -> Content:
    """The content of a bundle, from its files by path; raises BrokenBundle for data outside its roots.

    With `trust`, `files` must hold all files; raises SignatureRefused unless a trusted signature matches them.
    """
    if trust is not None:
        signed = trust.check(files)
        return replace(content({name: text for name, text in files.items() if _is_relevant(name)}, keep), signed=signed)
    if MANIFEST not in files:
        raise BrokenBundle("it has no manifest")
    manifest = checked_manifest(read_json_object(MANIFEST, files[MANIFEST]))
    roots = manifest.get("roots", [""])
    documents: dict[str, dict[str, Any]] = {PROGRAMS: {}, STATES: {}}
    for name, text in files.items():
        if name.rpartition("/")[2] != "data.json":
            continue
        for path, value in _documents(name.split("/")[:-1], _read(name, text, keep)):
            if path[0] in documents:
                if not _within(roots, "/".join(path), value):
                    raise BrokenBundle(f"`{'/'.join(path)}` lies outside the roots of its manifest")
                documents[path[0]][path[1]] = value if path[0] == PROGRAMS else keep(value)
    return Content(programs=documents[PROGRAMS], states=documents[STATES], wasm=bool(manifest.get("wasm")))


def _read(name: str, text: bytes, keep: Keep) -> Mapping[str, Any]:
    """The object in a file of data. Holders are left as texts where the document of a state is converted."""
    check_values(name, text)
    held = None if keep is dict else read_held(text)
    return strict_json.loads_object(text, f"`{name}`", BrokenBundle) if held is None else held


def _documents(path: list[str], value: Any) -> Iterator[tuple[tuple[str, str], Any]]:
    """The documents at the second level, which holds programs and states."""
    if len(path) > 2:
        raise BrokenBundle(f"`{'/'.join(path)}/data.json` lies deeper than programs and states do")
    if len(path) == 2:
        if not isinstance(value, dict):
            raise BrokenBundle(f"`{'/'.join(path)}` is not an object")
        yield (path[0], path[1]), value
    elif isinstance(value, dict):
        for key, child in value.items():
            if path or key in (PROGRAMS, STATES):
                yield from _documents([*path, key], child)


def _within(roots: list[str], path: str, value: Any) -> bool:
    """Return whether a document lies within the roots, as a whole or each of its parts."""
    if any(_covers(root, path) for root in roots):
        return True
    deeper = isinstance(value, Mapping) and any(_covers(path, root.strip("/")) for root in roots)
    return deeper and all(_within(roots, f"{path}/{key}", child) for key, child in value.items())


def _covers(root: str, path: str) -> bool:
    root = root.strip("/")
    return not root or path == root or path.startswith(f"{root}/")


def _is_relevant(name: str) -> bool:
    """Return whether a file can hold a program or a state, or is the manifest; other data is ignored."""
    folder, _, file = name.rpartition("/")
    return name == MANIFEST or (file == "data.json" and folder.partition("/")[0] in ("", PROGRAMS, STATES))


# --- locations -------------------------------------------------------------------------------------------------------


class Trusted:
    """Public keys, in files or as text, and a scope. Changed files are read again; if that fails, the last keys remain."""

    def __init__(self, sources: Sequence[str], scope: str) -> None:
        self._sources = tuple(sources)
        self._scope = scope
        self._stamps = [*map(_stamp, self._sources)]
        try:
            self._trust = Trust.of(self._sources, scope)
        except (FileError, UsageError) as error:
            raise UsageError(f"verification_key: {error}") from error

    def now(self) -> Trust:
        stamps = [*map(_stamp, self._sources)]
        if stamps != self._stamps:
            try:
                self._trust = Trust.of(self._sources, self._scope)
            except (FileError, UsageError) as error:
                LOG.warning("the verification keys were not read again, the last ones stay in force: %s", error)
            self._stamps = stamps
        return self._trust


def _stamp(source: str) -> tuple[int, int, int] | None:
    """Return a value that changes with a file of keys; None for keys as text, and for a missing file."""
    with suppress(OSError):
        return None if source.lstrip().startswith(PEM) else file_stamp(source)
    return None


class BundleLocation:
    """A place that holds one or several bundles.

    Subclass the class for another place, and let `read` return what `ReadBundle.of` makes:

        class Memory(BundleLocation):
            def read(self, before, keep):
                return [ReadBundle.of(self.where, None, states={"lake": keep(document)})]
    """

    trusted: Trusted | None = None
    """The trusted keys; None: signatures are not verified."""
    numbered = False
    """True if the states of this location are numbered by changes, for which a caller may wait."""

    def __init__(self, where: str) -> None:
        self.where = where

    @staticmethod
    def of(source: BundlePlace, settings: Settings | None = None) -> BundleLocation:
        """The location of bundles, by the form of the source; raises UsageError. `settings`: by default, the environment's."""
        settings = settings or _config.resolve({})
        location = os.fspath(source)
        if location.startswith("package:"):
            return PackageLocation(location)
        if location.startswith(STORE):
            with needing("a store", "store"):
                stored: BundleLocation = plugins.load_plugin("privtab.states", "store").opened(location)
            return stored
        if not location.startswith(("http://", "https://")):
            return LocalLocation(source)
        verify = settings["verify"]
        if not isinstance(verify, bool | str):
            raise UsageError(
                "bundles are fetched with `verify` as true, false, or a file or folder, not with a context"
            )
        token = Token(settings["token"], settings["token_file"])
        return HttpLocation(location, timeout=settings["timeout"], token=token, verify=verify, cert=settings["cert"])

    def read(self, before: Mapping[str, ReadBundle], keep: Keep) -> list[ReadBundle]:
        """All bundles of this location, reusing unchanged ones from `before`; raises FileError, DecisionUnavailable."""
        raise NotImplementedError

    def read_beside(
        self,
        others: Mapping[str, ReadBundle],  # noqa: ARG002  (for locations whose states are made for a policy)
        before: Mapping[str, ReadBundle],
        keep: Keep,
    ) -> list[ReadBundle]:
        """As `read`; `others`: the bundles of the locations before this one."""
        return self.read(before, keep)

    def is_at(self, number: int, bundles: Mapping[str, ReadBundle]) -> bool:
        """Return whether the bundles that were read of a numbered location know a change."""
        raise NotImplementedError

    def wait_for(self, number: int) -> None:
        """Wait, for a bounded time, until a numbered location has a change; raises DecisionUnavailable if it does not come."""
        raise NotImplementedError

    def content(self, packed: bytes, keep: Keep) -> Content:
        _check_packed(len(packed))
        # Verify the whole bundle, in pieces, before keeping any of it.
        signed = verify_bundle(packed, self.trusted.now()) if self.trusted is not None else None
        return replace(bundle_content(packed, keep), signed=signed)


class LocalLocation(BundleLocation):
    """A file, a folder with archives, or a bundle that is a folder."""

    def __init__(self, where: str | os.PathLike[str]) -> None:
        super().__init__(os.fspath(where))
        self.path = Path(where)

    def read(self, before: Mapping[str, ReadBundle], keep: Keep) -> list[ReadBundle]:
        """As BundleLocation.read. A folder yields the archives directly in it or, if it has none, the archives in its subfolders."""
        try:
            if (self.path / MANIFEST).is_file():
                return [self._folder(before, keep)]
            return [self._file(path, before, keep) for path in self._archives()]
        except OSError as error:
            raise FileError(f"{error.filename or self.where}: {error.strerror or error}") from error

    def _archives(self) -> list[Path]:
        if not self.path.is_dir():
            return [self.path]
        archives = [path for path in sorted(self.path.iterdir()) if path.name.endswith(ARCHIVES)]
        archives += [path for path in self._listed_archives() if path not in archives]
        found = archives or [path for path in sorted(self.path.rglob("*")) if path.name.endswith(ARCHIVES)]
        if not found:
            raise _no_bundles(self.where)
        return found

    def _listed_archives(self) -> list[Path]:
        """The bundles of a sharded state listed in the folder; they may lie in subfolders, beside older ones."""
        try:
            listing = strict_json.strict_loads(files.read_content(self.path / SHARDS))
            names = [listing["people"]["file"], *(row["file"] for row in listing["shards"].values())]
            return sorted(self.path / str(name) for name in names)
        except FileNotFoundError:
            return []
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise FileError(f"{self.path / SHARDS} is not a list of bundles: {error!r}") from None

    def _file(self, path: Path, before: Mapping[str, ReadBundle], keep: Keep) -> ReadBundle:
        mark = file_stamp(path)

        def load() -> Content:
            _check_packed(mark[1])
            return self.content(files.read_content(path, LARGEST_READ), keep)

        return _read_if_changed(str(path), mark, before, load)

    def _folder(self, before: Mapping[str, ReadBundle], keep: Keep) -> ReadBundle:
        paths = {path.relative_to(self.path).as_posix(): path for path in sorted(self.path.rglob("*"))}
        trust = self.trusted.now() if self.trusted is not None else None
        files = {name: path for name, path in paths.items() if (trust or _is_relevant(name)) and path.is_file()}
        mark = tuple((name, path.stat().st_mtime_ns, path.stat().st_size) for name, path in files.items())

        def load() -> Content:
            if len(files) > MOST_ENTRIES or sum(path.stat().st_size for path in files.values()) > LARGEST_READ:
                raise BrokenBundle(f"it holds more than {MOST_ENTRIES:,} files or {LARGEST_READ >> 20} MiB")
            return content({name: path.read_bytes() for name, path in files.items()}, keep, trust)

        return _read_if_changed(str(self.path), mark, before, load)


class PackageLocation(BundleLocation):
    """`package:name`, or `package:name/folder/file`: resources of an installed package, even inside a zip file."""

    def read(self, before: Mapping[str, ReadBundle], keep: Keep) -> list[ReadBundle]:
        """As BundleLocation.read; installed resources are taken as unchanging."""
        from importlib import resources

        name, _, path = self.where.removeprefix("package:").partition("/")
        try:
            resource = resources.files(name).joinpath(path) if path else resources.files(name)
            files = (
                [file for file in resource.iterdir() if file.name.endswith(ARCHIVES)]
                if resource.is_dir()
                else [resource]
            )
            if not files:
                raise _no_bundles(self.where)
            files.sort(key=lambda file: file.name)
            return [
                _read_if_changed(f"{self.where}:{file.name}", None, before, partial(self._load, file, keep))
                for file in files
            ]
        except (ModuleNotFoundError, TypeError, ValueError, OSError) as error:
            raise FileError(f"{self.where}: {error}") from error

    def _load(self, file: Traversable, keep: Keep) -> Content:
        return self.content(file.read_bytes(), keep)


class HttpLocation(BundleLocation):
    """`http://` or `https://`: downloaded again only if the server reports a change."""

    def __init__(
        self, where: str, *, timeout: tuple[float, float], token: Token, verify: bool | str, cert: Cert
    ) -> None:
        super().__init__(where)
        self._settings: dict[str, Any] = {"timeout": timeout, "token": token.value, "verify": verify, "cert": cert}

    def read(self, before: Mapping[str, ReadBundle], keep: Keep) -> list[ReadBundle]:
        """As BundleLocation.read. A caller waits for the download, so its total time is bounded."""
        from privtab.client._sender import Sender, SendError

        cached = before.get(self.where)
        headers = {"If-None-Match": str(cached.mark)} if cached is not None and cached.mark else {}
        try:
            with Sender(seconds=LONGEST, largest=LARGEST, **self._settings) as sender:
                answer = sender.get(self.where, headers)
        except SendError as error:
            raise DecisionUnavailable(str(error)) from error
        if answer.status == 304 and cached is not None:
            if (stale := answer.headers.get("X-Privtab-Stale")) is not None:
                raise DecisionUnavailable(
                    f"{self.where} has not known for {stale} seconds whether there are newer ones"
                )
            return [cached]
        if answer.status != 200:
            raise DecisionUnavailable(f"{self.where} answered {answer.status}")
        mark = answer.headers.get("ETag")
        return [_read_if_changed(self.where, mark, {}, lambda: self.content(answer.body, keep))]


def _check_packed(size: int) -> None:
    if size > LARGEST:
        raise BrokenBundle(f"it has {size:,} bytes; {LARGEST >> 20} MiB is the most")


def _no_bundles(where: str) -> FileError:
    return FileError(f"{where} has no bundles: no {' or '.join(ARCHIVES)} in it")


def _read_if_changed(
    where: str, mark: object, before: Mapping[str, ReadBundle], load: Callable[[], Content]
) -> ReadBundle:
    cached = before.get(where)
    if cached is not None and cached.mark == mark:
        return cached
    try:
        with no_collection():
            return ReadBundle(where=where, mark=mark, content=load())
    except BrokenBundle as error:
        raise DecisionUnavailable(f"the bundle {where} cannot be used: {error}") from None
    except SignatureRefused as error:
        raise SignatureRefused(f"the bundle {where} is refused: {error}") from None
    except PolicyError as error:
        raise DecisionUnavailable(f"the bundle {where} cannot be used: {error}") from error
