"""A PostgreSQL of its own from packages, with data that need not survive."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

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
    user = USER if os.getuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="privtab-pg15-"))
    try:
        if user:
            shutil.chown(folder, user)
        settings = f"-c listen_addresses='' -c unix_socket_directories={folder}"
        if not durable:
            settings += " -c fsync=off -c full_page_writes=off"
        data = folder / "data"

        def call(program: str, *arguments: str) -> None:
            command = [str(BINARIES / program), *arguments]
            subprocess.run(command, check=True, user=user, cwd=folder, capture_output=True, timeout=120)

        call("initdb", "-D", str(data), "-A", "trust", "-U", USER, "-N", "--locale=C.UTF-8")
        subprocess.run(
            [str(BINARIES / "pg_ctl"), "-D", str(data), "-w", "-o", settings, "-l", str(folder / "log"), "start"],
            check=True, user=user, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120,
        )  # fmt: skip
        try:
            yield f"postgresql+psycopg://{USER}@/postgres?host={folder}"
        finally:
            call("pg_ctl", "-D", str(data), "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
