"""Small files next to Spark's files, in shared folders and any file system of fsspec; written atomically."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from privtab.base import FileError, PrivtabError, UsageError, needing, read_content, strict_loads, write_file


def at_once(jobs: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run several Spark jobs concurrently, so that no core is idle, and return their results; raises the first failure."""
    if len(jobs) == 1:
        return [jobs[0]()]
    with ThreadPoolExecutor(max_workers=4) as pool:
        return [job.result() for job in [pool.submit(job) for job in jobs]]


@dataclass(frozen=True, slots=True)
class Root:
    """A folder that the driver and the executors reach by the same name: a path, or a URL known to both Spark and fsspec."""

    url: str

    @property
    def local(self) -> bool:
        """True if the location is a path (of this machine or a file system that all machines mount)."""
        return "://" not in self.url

    def path(self, name: str) -> Path:
        """The path of a file on this machine."""
        return Path(self.url) / name

    def spark(self, name: str) -> str:
        """The URL of a file for Spark; Hadoop uses `s3a` for `s3`."""
        if self.local:
            return self.path(name).resolve().as_uri()
        url = f"{self.url.rstrip('/')}/{name}"
        return f"s3a://{url[5:]}" if url.startswith("s3://") else url

    def write(self, name: str, content: bytes) -> None:
        """Write a file atomically; raises FileError."""
        if self.local:
            self.write_pieces(name, [content])
            return
        with self._system(name, FileError) as (system, where):
            # Object stores make an object visible only when it is complete.
            system.pipe_file(where, content)

    def write_pieces(self, name: str, pieces: Iterable[bytes]) -> None:
        """Like `write`, from an iterable of pieces; nothing is written if it raises."""
        if not self.local:
            with tempfile.NamedTemporaryFile(prefix="privtab-") as file:
                file.writelines(pieces)
                file.flush()
                with self._system(name, FileError) as (system, where):
                    system.put_file(file.name, where)
            return
        write_file(self.path(name), pieces, in_place=True)

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if there is none. Raises FileError."""
        try:
            if not self.local:
                with self._system(name, FileError) as (system, where):
                    content: bytes = system.cat_file(where)
                    return content
            return read_content(self.path(name), 1 << 30)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise FileError(f"cannot read {self.path(name)}: {error.strerror or error}") from error

    @contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        """Open a seekable file for reading; raises FileNotFoundError, FileError."""
        if self.local:
            with self.path(name).open("rb") as file:
                yield file
            return
        with self._system(name, FileError) as (system, where), system.open(where, "rb") as file:
            yield file

    def read_json(self, name: str) -> dict[str, Any] | None:
        """The JSON object in a file; None if the file is missing or contains no object."""
        content = self.read(name)
        try:
            value = None if content is None else strict_loads(content)
        except ValueError:
            return None
        return value if isinstance(value, dict) else None

    def names(self, folder: str) -> list[str]:
        """The names of the entries of a folder, sorted; empty if there is no such folder."""
        if not self.local:
            try:
                with self._system(folder, FileError) as (system, where):
                    found = [str(entry).rstrip("/") for entry in system.ls(where, detail=False)]
            except FileNotFoundError:
                return []
            # Some stores list the marker object of a folder among its entries.
            return sorted({entry.rsplit("/", 1)[-1] for entry in found if entry != where.rstrip("/")})
        path = self.path(folder)
        return sorted(entry.name for entry in path.iterdir()) if path.is_dir() else []

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with its content, if it exists."""
        if not self.local:
            with self._system(name, FileError) as (system, where):
                if system.exists(where):
                    system.rm(where, recursive=True)
            return
        path = self.path(name)
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    @contextmanager
    def _system(self, name: str, failure: type[PrivtabError]) -> Iterator[tuple[Any, str]]:
        """Yield the fsspec file system and the path in it; exceptions become `failure`, except FileNotFoundError when reading."""
        url = f"{self.url.rstrip('/')}/{name}".rstrip("/")
        with needing(url, "registry"):
            import fsspec
        try:
            # Executors and Spark itself write too, so cached listings would be stale.
            system, path = fsspec.core.url_to_fs(url, use_listings_cache=False)
        except (ImportError, ValueError) as error:
            raise UsageError(f"{url}: {error}") from None
        try:
            yield system, path
        except PrivtabError:
            raise
        except Exception as error:
            if isinstance(error, FileNotFoundError) and failure is FileError:
                raise
            raise failure(f"{url}: {str(error) or type(error).__name__}") from error


def place(folder: str | Path) -> Root:
    """A folder by its path or URL; `file:` URLs become paths."""
    text = str(folder)
    if text.startswith("file:"):
        text = "/" + text.removeprefix("file:").lstrip("/")
    return Root(text if "://" in text else str(Path(text).resolve()))
