"""A PostgreSQL of its own from packages, with data that need not survive."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import make_url

BINARIES = Path("/usr/lib/postgresql/15/bin")
USER = "postgres"
"""The server refuses to run as root."""


@contextmanager
def postgresql(*, durable: bool = False) -> Iterator[str]:
    """The address of a running PostgreSQL 15, for its superuser; skips the test where it is not installed.

    `durable`: commits are synchronised to the disk, as they are where data must survive.
    """
    if not (BINARIES / "initdb").exists():
        pytest.skip("PostgreSQL 15 is not installed")
    folder = Path(tempfile.mkdtemp(prefix="privtab-pg15-"))
    try:
        if user := _user():
            shutil.chown(folder, user)
        _call(folder, "initdb", "-A", "trust", "-U", USER, "-N", "--locale=C.UTF-8")
        settings = {"listen_addresses": "''", "unix_socket_directories": f"'{folder}'"}
        if not durable:
            settings |= {"fsync": "off", "full_page_writes": "off"}
        with (folder / "data" / "postgresql.conf").open("a", encoding="utf-8") as file:
            file.writelines(f"{name} = {value}\n" for name, value in settings.items())
        _start(folder)
        try:
            yield f"postgresql+psycopg://{USER}@/postgres?host={folder}"
        finally:
            _call(folder, "pg_ctl", "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def stopped(url: str) -> Iterator[None]:
    """Stop the server of a database at once, as a crash does, and start it again at the end."""
    folder = Path(str(make_url(url).query["host"]))
    _call(folder, "pg_ctl", "-m", "immediate", "-w", "stop")
    try:
        yield
    finally:
        _start(folder)


def limit_files(processes: Iterable[int], size: int | None) -> None:
    """Limit the size in bytes of the files that processes of the server write, those that still run; None: no limit."""
    for process in processes:
        limit = f"--fsize={'unlimited' if size is None else size}:"
        subprocess.run(["prlimit", f"--pid={process}", limit], check=False, user=_user(), stderr=subprocess.DEVNULL)  # noqa: S607


def _user() -> str | None:
    """Whom the server runs as, if not as the user of this process."""
    return USER if os.getuid() == 0 else None


def _start(folder: Path) -> None:
    _call(folder, "pg_ctl", "-w", "-l", str(folder / "log"), "start")


def _call(folder: Path, program: str, *arguments: str) -> None:
    """Run a program on the data; the server that it may start keeps no pipe of this process open."""
    subprocess.run(
        [str(BINARIES / program), "-D", str(folder / "data"), *arguments],
        check=True, user=_user(), cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        timeout=120,
    )  # fmt: skip
