"""Storage of a registry: whole files by path. Releases rely on `create`, which only one of several writers wins.

Incomplete files are never visible. Paths are relative, with slashes, and were checked by `names.py`.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from privtab.base import UsageError, needing, staged_file
from privtab_server.errors import RegistryError
from privtab_server.registry import names


class Missing(Exception):
    """The file does not exist."""


class Exists(Exception):
    """The file exists already: another writer created it."""


class Store(ABC):
    """Storage of files, read only unless a kind of storage writes. Every method raises RegistryError if the storage fails."""

    url: str
    writable = False

    @abstractmethod
    def read(self, path: str) -> bytes:
        """Read a file; raises Missing."""

    @abstractmethod
    def listed(self, path: str) -> Iterable[str]:
        """The names in a folder; raises Missing."""

    def names(self, path: str) -> list[str]:
        """The sorted names in a folder; empty if it does not exist."""
        try:
            return sorted(self.listed(path))
        except Missing:
            return []

    def size(self, path: str) -> int:
        """The size of a file in bytes; raises Missing."""
        return len(self.read(path))

    def create(self, path: str, content: bytes) -> None:  # noqa: ARG002
        """Create a file; raises Exists if it exists already. Of several writers, one wins."""
        raise self._read_only(path)

    def replace(self, path: str, content: bytes) -> None:  # noqa: ARG002
        """Create or replace a file atomically."""
        raise self._read_only(path)

    def remove(self, path: str) -> None:
        """Remove a file, if it exists."""
        raise self._read_only(path)

    def abandoned_files(self, seconds: float) -> list[str]:  # noqa: ARG002
        """Paths of temporary files older than `seconds`, left by writers that died; object stores have none."""
        return []

    def renew(self) -> None:  # noqa: B027  (most have no limits)
        """Reset the limits on what is read from untrusted storage, if there are any; for long-running programs."""

    def _read_only(self, path: str) -> UsageError:
        return UsageError(f"{self.url} is read-only, and so is its {path}: write to the registry itself")


def opened(url: str, **options: Any) -> Store:
    """The storage at an address: a folder, `file://`, `http(s)://` (read only), or one of fsspec (`s3://`, `memory://`)."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return LocalStore(Path(url))
    if scheme == "file":
        return LocalStore(Path(unquote(urlsplit(url).path)))
    if scheme in ("http", "https"):
        return HttpStore(url, **options)
    if not rest.strip("/"):
        raise UsageError(f"{url} names no place: write {scheme}://bucket/folder")
    return FsspecStore(url, **options)


_STAGED = ".new-"


class LocalStore(Store):
    """A folder. `create` makes a hard link, which succeeds for only one writer."""

    writable = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder.expanduser().absolute()
        self.url = str(self.folder)

    def read(self, path: str) -> bytes:
        """As Store.read."""
        with self._storage_errors(path):
            return (self.folder / path).read_bytes()

    def size(self, path: str) -> int:
        """As Store.size."""
        with self._storage_errors(path):
            return (self.folder / path).stat().st_size

    def create(self, path: str, content: bytes) -> None:
        """As Store.create."""
        with self._storage_errors(path, writing=True), staged_file(self.folder / path, [content], _STAGED) as temporary:
            try:
                os.link(temporary, self.folder / path)
            except FileExistsError:
                raise Exists(path) from None
            except OSError:
                self._create_locked(path, temporary)

    def replace(self, path: str, content: bytes) -> None:
        """As Store.replace."""
        with self._storage_errors(path, writing=True), staged_file(self.folder / path, [content], _STAGED) as temporary:
            temporary.replace(self.folder / path)

    def remove(self, path: str) -> None:
        """As Store.remove."""
        with self._storage_errors(path):
            (self.folder / path).unlink(missing_ok=True)

    def listed(self, path: str) -> Iterable[str]:
        """As Store.listed, without temporary files, whose names begin with a dot."""
        with self._storage_errors(path):
            return [name for name in os.listdir(self.folder / path) if not name.startswith(".")]  # noqa: PTH208

    def abandoned_files(self, seconds: float) -> list[str]:
        """As Store.abandoned_files."""
        oldest = time.time() - seconds
        found = []
        with self._storage_errors(""):
            for path in self.folder.rglob(f"{_STAGED}*"):
                with contextlib.suppress(FileNotFoundError):  # Its writer has just finished with it.
                    if path.stat().st_mtime < oldest:
                        found.append(path.relative_to(self.folder).as_posix())
        return sorted(found)

    def _create_locked(self, path: str, temporary: Path) -> None:
        """Check and rename under a lock, which ends with its process; for file systems without hard links."""
        import fcntl

        with (self.folder / ".create.lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if (self.folder / path).exists():
                raise Exists(path)
            temporary.replace(self.folder / path)

    @contextlib.contextmanager
    def _storage_errors(self, path: str, *, writing: bool = False) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if isinstance(error, FileNotFoundError | IsADirectoryError | NotADirectoryError) and not writing:
                raise Missing(path) from None
            raise RegistryError(f"{self.folder / path}: {error.strerror or error}") from error


_CREATES = frozenset({"memory", "s3", "s3a", "gs", "gcs", "az", "abfs", "abfss"})
"""Schemes for which the store itself enforces fsspec's exclusive creation; `Registry.init` tests it."""
_MEMORY = threading.Lock()


class FsspecStore(Store):
    """Storage through fsspec. `create` is a conditional write (`If-None-Match: *` on S3)."""

    def __init__(self, url: str, **options: Any) -> None:
        with needing(url, "registry"):
            import fsspec
        self.url = url.rstrip("/")
        scheme = url.partition("://")[0]
        self.writable = scheme in _CREATES
        self._lock = _MEMORY if scheme == "memory" else contextlib.nullcontext()
        if scheme in ("s3", "s3a") and _is_local(options):
            # Do not use proxies of the environment on this machine. botocore takes {} as no proxies, None as the environment's.
            options["config_kwargs"] = {"proxies": {}, **options.get("config_kwargs", {})}
        try:
            # Do not cache listings: other processes write, too.
            self._fs, root = fsspec.core.url_to_fs(self.url, use_listings_cache=False, **options)
        except (ImportError, ValueError, TypeError) as error:
            library = getattr(error.__cause__, "name", None)
            raise UsageError(
                f"{url} needs {library}: pip install {library}" if library else f"{url}: {error}"
            ) from None
        self._root = str(root).rstrip("/")

    def read(self, path: str) -> bytes:
        """As Store.read."""
        with self._storage_errors(path):
            content: bytes = self._fs.cat_file(self._full_path(path))
            return content

    def size(self, path: str) -> int:
        """As Store.size."""
        with self._storage_errors(path):
            return int(self._fs.size(self._full_path(path)))

    def create(self, path: str, content: bytes) -> None:
        """As Store.create."""
        with self._storage_errors(path), self._lock:
            try:
                self._fs.pipe_file(self._full_path(path), content, mode="create")
            except FileExistsError:
                raise Exists(path) from None
            except OSError as error:
                if _is_conflict(error):
                    raise Exists(path) from None
                raise

    def replace(self, path: str, content: bytes) -> None:
        """As Store.replace; object stores replace atomically."""
        with self._storage_errors(path), self._lock:
            self._fs.pipe_file(self._full_path(path), content)

    def remove(self, path: str) -> None:
        """As Store.remove."""
        with contextlib.suppress(Missing), self._storage_errors(path), self._lock:
            self._fs.rm_file(self._full_path(path))

    def listed(self, path: str) -> Iterable[str]:
        """As Store.listed."""
        with self._storage_errors(path):
            found = self._fs.ls(self._full_path(path), detail=False, refresh=True)
        return {name for entry in found if (name := str(entry).rstrip("/").rpartition("/")[2])}

    def _full_path(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    @contextlib.contextmanager
    def _storage_errors(self, path: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise Missing(path) from None
        except Exists:
            raise
        except Exception as error:
            raise RegistryError(f"{self.url}/{path}: {str(error) or type(error).__name__}") from error


def _is_local(options: Mapping[str, Any]) -> bool:
    """Return whether the endpoint is on this machine."""
    from privtab.client import is_loopback

    endpoints = [options.get("endpoint_url"), options.get("client_kwargs", {}).get("endpoint_url")]
    endpoints += [os.environ.get("AWS_ENDPOINT_URL_S3"), os.environ.get("AWS_ENDPOINT_URL")]
    endpoint = next((str(url) for url in endpoints if url), "")
    return is_loopback(urlsplit(endpoint).hostname or "")


def _is_conflict(error: OSError) -> bool:
    """Return whether a conditional write failed: 412, or 409 during a concurrent write."""
    response = getattr(error.__cause__, "response", None)
    status = (response or {}).get("ResponseMetadata", {}).get("HTTPStatusCode")
    return status in (409, 412)


def check_exclusive_create(store: Store, settings: bytes) -> None:
    """Raise UsageError if the storage lets a file be created twice: releases would overwrite each other.

    `settings`: the content of the registry's settings file, which has just been created.
    """
    try:
        store.create(names.SETTINGS, settings)
    except Exists:
        return
    store.remove(names.SETTINGS)
    raise UsageError(f"{store.url} cannot be written: its storage overwrites existing files without an error")


def check_empty(store: Store) -> None:
    """Raise UsageError for a location with other content."""
    others = [name for name in store.names("") if name != names.SETTINGS]
    if others and not set(others) & {names.BLOBS, names.REVISIONS, names.CHANNELS, names.HOLDS}:
        raise UsageError(f"{store.url} is not a registry and not empty: it contains {', '.join(others[:3])}")


# --- over HTTP -------------------------------------------------------------------------------------------------------


TIMEOUT = (5.0, 60.0)
"""Seconds to connect, and between two pieces of an answer."""
LONGEST = 600.0
"""Seconds for a whole answer."""
LARGEST = 2 << 30
"""Maximum bytes of a bundle."""
LARGEST_RECORD = 16 << 20
"""Maximum bytes of other files: records, releases, listings."""
MOST_NAMES = 20_000
"""Maximum names in a folder."""
MOST_ASKED = 50_000
"""Maximum requests between two calls of `renew`."""
MOST_RECORDS = 512 << 20
"""Maximum bytes of records between two calls of `renew`."""

_LINK = re.compile(rb"""href\s*=\s*["']([^"'?#]{1,1000})["']""", re.IGNORECASE)


class HttpStore(Store):
    """A registry behind a static server or `privtab serve registry:URL`, read only. It is not trusted: all that it sends is bounded.

    `token`: a bearer token; `verify`: False or a file of CA certificates. Folders need a server that lists them.
    """

    def __init__(self, url: str, *, token: str | None = None, verify: bool | str = True) -> None:
        from privtab.client import Sender

        self.url = url.rstrip("/")
        self._bundles = Sender(timeout=TIMEOUT, seconds=LONGEST, largest=LARGEST, token=token, verify=verify)
        self._records = Sender(timeout=TIMEOUT, seconds=LONGEST, largest=LARGEST_RECORD, token=token, verify=verify)
        self.renew()

    def renew(self) -> None:
        """As Store.renew."""
        self._requests = self._record_bytes = 0

    def read(self, path: str) -> bytes:
        """As Store.read."""
        from privtab.client import SendError

        url = f"{self.url}/{path}"
        bundle = path.endswith(".tar.gz")
        self._requests += 1
        if self._requests > MOST_ASKED:
            raise RegistryError(f"{self.url} refers to more than {MOST_ASKED:,} files, the most that is read")
        try:
            answer = (self._bundles if bundle else self._records).get(url)
        except SendError as error:
            raise RegistryError(str(error)) from error
        if answer.status in (404, 410):
            raise Missing(path)
        if answer.status != 200:
            raise RegistryError(f"{url} answered {answer.status} {answer.reason}")
        if bundle:
            return answer.body  # Some servers declare `.gz` files as gzip-encoded.
        if answer.encoded:
            raise RegistryError(f"{url} is sent as {answer.encoded[:20]}, which was not requested")
        self._record_bytes += len(answer.body)
        if self._record_bytes > MOST_RECORDS:
            raise RegistryError(f"{self.url} sent more than {MOST_RECORDS >> 20} MiB of records, the most that is read")
        return answer.body

    def listed(self, path: str) -> Iterable[str]:
        """As Store.listed, from the links in the server's listing."""
        links = _LINK.findall(self.read(f"{path}/" if path else ""))
        found = {unquote(link.decode("utf-8", "replace")).rstrip("/") for link in links}
        names = [name for name in found if name and "/" not in name and not name.startswith(".")]
        if len(names) > MOST_NAMES:
            raise RegistryError(f"{self.url}/{path} lists more than {MOST_NAMES:,} names")
        return names
