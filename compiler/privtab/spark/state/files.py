"""Small files beside what Spark writes, on shared folders and in whatever fsspec opens: written whole or not at all."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from privtab import strict_json
from privtab._install import how_to_install
from privtab._staged import write_pieces
from privtab.errors import BundleWriteError, FileError, PrivtabError, UsageError


def at_once(jobs: Sequence[Callable[[], Any]]) -> list[Any]:
    """What several jobs of Spark give, side by side: one task alone leaves a core without work. Raises what the first raises."""
    if len(jobs) == 1:
        return [jobs[0]()]
    with ThreadPoolExecutor(max_workers=4) as pool:
        return [job.result() for job in [pool.submit(job) for job in jobs]]


@dataclass(frozen=True, slots=True)
class Root:
    """A folder that driver and executors reach by one name: a path, or a URL that both Spark and fsspec know."""

    url: str

    @property
    def local(self) -> bool:
        """Whether it is a path of the machine (or of a file system that all machines mount)."""
        return "://" not in self.url

    def path(self, name: str) -> Path:
        """Where a file lies on this machine."""
        return Path(self.url) / name

    def spark(self, name: str) -> str:
        """The same place as Spark names it; Hadoop calls `s3` by `s3a`."""
        if self.local:
            return self.path(name).resolve().as_uri()
        url = f"{self.url.rstrip('/')}/{name}"
        return f"s3a://{url[5:]}" if url.startswith("s3://") else url

    def write(self, name: str, content: bytes) -> None:
        """Write a file: readers see the old or the new one, never half of it. Raises BundleWriteError."""
        if self.local:
            self.write_pieces(name, [content])
            return
        with self._system(name, BundleWriteError) as (system, where):
            # Object stores show an object once all of it is there.
            system.pipe_file(where, content)

    def write_pieces(self, name: str, pieces: Iterable[bytes]) -> None:
        """As `write`, of what comes piece by piece; nothing is written where it breaks off."""
        if not self.local:
            with tempfile.NamedTemporaryFile(prefix="privtab-") as file:
                file.writelines(pieces)
                file.flush()
                with self._system(name, BundleWriteError) as (system, where):
                    system.put_file(file.name, where)
            return
        write_pieces(self.path(name), pieces)

    def read(self, name: str) -> bytes | None:
        """The content of a file; None where there is none. Raises FileError."""
        try:
            if not self.local:
                with self._system(name, FileError) as (system, where):
                    content: bytes = system.cat_file(where)
                    return content
            return self.path(name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise FileError(f"cannot read {self.path(name)}: {error.strerror or error}") from error

    @contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        """A file to be read piece by piece, and again from its start; raises FileNotFoundError, FileError."""
        if self.local:
            with self.path(name).open("rb") as file:
                yield file
            return
        with self._system(name, FileError) as (system, where), system.open(where, "rb") as file:
            yield file

    def read_json(self, name: str) -> dict[str, Any] | None:
        """A JSON object from a file; None where there is no such file or no object in it."""
        content = self.read(name)
        try:
            value = None if content is None else strict_json.loads(content)
        except ValueError:
            return None
        return value if isinstance(value, dict) else None

    def names(self, folder: str) -> list[str]:
        """The names of what lies in a folder, sorted; none where there is no such folder."""
        if not self.local:
            try:
                with self._system(folder, FileError) as (system, where):
                    found = [str(entry).rstrip("/") for entry in system.ls(where, detail=False)]
            except FileNotFoundError:
                return []
            # Some stores list the mark of an empty folder among what lies in it.
            return sorted({entry.rsplit("/", 1)[-1] for entry in found if entry != where.rstrip("/")})
        path = self.path(folder)
        return sorted(entry.name for entry in path.iterdir()) if path.is_dir() else []

    def remove(self, name: str) -> None:
        """Remove a file or a folder with all that is in it, where it is there."""
        if not self.local:
            with self._system(name, BundleWriteError) as (system, where):
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
        """What fsspec opens the place with, and its name there; what it raises becomes `failure`.

        But for FileNotFoundError, where something is read.
        """
        url = f"{self.url.rstrip('/')}/{name}".rstrip("/")
        try:
            import fsspec
        except ModuleNotFoundError:
            raise UsageError(f"{url} needs the extra `registry`: {how_to_install('registry')}") from None
        try:
            # Others write too (executors, and Spark itself): what was listed once says nothing now.
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
    """A folder by its path or URL; `file://` is a path."""
    text = str(folder)
    if text.startswith("file:"):
        text = "/" + text.removeprefix("file:").lstrip("/")
    return Root(text if "://" in text else str(Path(text).resolve()))
