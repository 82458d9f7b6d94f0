"""Storage of a registry: whole files by path. Releases rely on `create`, which only one of several writers wins.

Incomplete files are never visible. Paths are relative, with slashes, and were checked by `names.py`.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from privtab._install import how_to_install
from privtab._staged import staged, sync_folder
from privtab.errors import RegistryError, UsageError
from privtab.registry.storage import Exists, Missing, Store


def opened(url: str, **options: Any) -> Store:
    """The storage at an address: a folder, `file://`, `http(s)://` (read only), or one of fsspec (`s3://`, `memory://`)."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return LocalStore(Path(url))
    if scheme == "file":
        return LocalStore(Path(unquote(urlsplit(url).path)))
    if scheme in ("http", "https"):
        from privtab.registry.web import HttpStore

        return HttpStore(url, **options)
    if not rest.strip("/"):
        raise UsageError(f"{url} names no place: write {scheme}://bucket/folder")
    return FsspecStore(url, **options)


_STAGED = ".new-"


class LocalStore:
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
        with self._storage_errors(path, writing=True), staged(self.folder / path, [content], _STAGED) as temporary:
            try:
                os.link(temporary, self.folder / path)
            except FileExistsError:
                raise Exists(path) from None
            except OSError:
                self._create_locked(path, temporary)
            sync_folder(self.folder / path)

    def replace(self, path: str, content: bytes) -> None:
        """As Store.replace."""
        with self._storage_errors(path, writing=True), staged(self.folder / path, [content], _STAGED) as temporary:
            temporary.replace(self.folder / path)
            sync_folder(self.folder / path)

    def remove(self, path: str) -> None:
        """As Store.remove."""
        with self._storage_errors(path):
            (self.folder / path).unlink(missing_ok=True)

    def names(self, path: str) -> list[str]:
        """As Store.names, without temporary files, whose names begin with a dot."""
        try:
            return sorted(name for name in os.listdir(self.folder / path) if not name.startswith("."))  # noqa: PTH208
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise RegistryError(f"{self.folder / path}: {error.strerror or error}") from error

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

    def renew(self) -> None:
        """As Store.renew; there are no limits."""

    def _create_locked(self, path: str, temporary: Path) -> None:
        """For file systems without hard links: check and rename under a lock, which ends with its process."""
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


class FsspecStore:
    """Storage through fsspec. `create` is a conditional write (`If-None-Match: *` on S3)."""

    def __init__(self, url: str, **options: Any) -> None:
        try:
            import fsspec
        except ModuleNotFoundError:
            raise UsageError(f"{url} needs the extra `registry`: {how_to_install('registry')}") from None
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
            raise UsageError(f"{url}: {error}") from None
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

    def abandoned_files(self, seconds: float) -> list[str]:  # noqa: ARG002
        """As Store.abandoned_files."""
        return []

    def names(self, path: str) -> list[str]:
        """As Store.names."""
        try:
            with self._storage_errors(path):
                found = self._fs.ls(self._full_path(path), detail=False, refresh=True)
        except Missing:
            return []
        return sorted({name for entry in found if (name := str(entry).rstrip("/").rpartition("/")[2])})

    def renew(self) -> None:
        """As Store.renew; there are no limits."""

    def _full_path(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    @contextlib.contextmanager
    def _storage_errors(self, path: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise Missing(path) from None
        except (RegistryError, Missing, Exists):
            raise
        except Exception as error:
            raise RegistryError(f"{self.url}/{path}: {str(error) or type(error).__name__}") from error


def _is_local(options: Mapping[str, Any]) -> bool:
    """Whether the endpoint is on this machine."""
    from privtab.client._address import is_loopback

    endpoints = [options.get("endpoint_url"), options.get("client_kwargs", {}).get("endpoint_url")]
    endpoints += [os.environ.get("AWS_ENDPOINT_URL_S3"), os.environ.get("AWS_ENDPOINT_URL")]
    endpoint = next((str(url) for url in endpoints if url), "")
    return is_loopback(urlsplit(endpoint).hostname or "")


def _is_conflict(error: OSError) -> bool:
    """Whether a conditional write failed: 412, or 409 during a concurrent write."""
    response = getattr(error.__cause__, "response", None)
    status = (response or {}).get("ResponseMetadata", {}).get("HTTPStatusCode")
    return status in (409, 412)
