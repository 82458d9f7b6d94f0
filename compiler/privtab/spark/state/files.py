"""Small files beside what Spark writes, on shared folders and in whatever fsspec opens: written whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privtab.errors import BundleWriteError


def at_once(jobs: Sequence[Callable[[], Any]]) -> None:
    """Several jobs of Spark side by side: one task alone leaves a core without work. Raises what the first of them raises."""
    if len(jobs) == 1:
        jobs[0]()
        return
    with ThreadPoolExecutor(max_workers=4) as pool:
        for job in [pool.submit(job) for job in jobs]:
            job.result()


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
        if not self.local:
            with self._open(name, "wb") as file:
                file.write(content)
            return
        path = self.path(name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:40]}.")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(content)
                Path(temporary).chmod(0o644)
                Path(temporary).replace(path)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise
        except OSError as error:
            raise BundleWriteError(f"cannot write {path}: {error.strerror or error}") from error

    def read(self, name: str) -> bytes | None:
        """The content of a file; None where there is none."""
        if not self.local:
            try:
                with self._open(name, "rb") as file:
                    return bytes(file.read())
            except FileNotFoundError:
                return None
        try:
            return self.path(name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def read_json(self, name: str) -> dict[str, Any] | None:
        """A JSON object from a file; None where there is no such file or no object in it."""
        content = self.read(name)
        try:
            value = None if content is None else json.loads(content)
        except ValueError:
            return None
        return value if isinstance(value, dict) else None

    def names(self, folder: str) -> list[str]:
        """The names of what lies in a folder, sorted; none where there is no such folder."""
        if not self.local:
            system, where = self._system(folder)
            try:
                return sorted(str(entry).rstrip("/").rsplit("/", 1)[-1] for entry in system.ls(where, detail=False))
            except FileNotFoundError:
                return []
        path = self.path(folder)
        return sorted(entry.name for entry in path.iterdir()) if path.is_dir() else []

    def remove(self, name: str) -> None:
        """Remove a file or a folder with all that is in it, where it is there."""
        if not self.local:
            system, where = self._system(name)
            if system.exists(where):
                system.rm(where, recursive=True)
            return
        path = self.path(name)
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    def _open(self, name: str, mode: str) -> Any:
        import fsspec

        return fsspec.open(f"{self.url.rstrip('/')}/{name}", mode).open()

    def _system(self, name: str) -> tuple[Any, str]:
        import fsspec

        system, path = fsspec.core.url_to_fs(f"{self.url.rstrip('/')}/{name}")
        return system, path


def place(folder: str | Path) -> Root:
    """A folder by its path or URL; `file://` is a path."""
    text = str(folder)
    if text.startswith("file:"):
        text = "/" + text.removeprefix("file:").lstrip("/")
    return Root(text if "://" in text else str(Path(text).resolve()))
