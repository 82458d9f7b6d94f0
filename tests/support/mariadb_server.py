"""A MariaDB of its own from the package `mariadb-server-core`, with data that need not survive."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SERVER = Path("/usr/sbin/mariadbd")
TABLES = Path("/usr/share/mysql")
PARTS = ("mysql_system_tables.sql", "mysql_performance_tables.sql", "mysql_system_tables_data.sql")


@contextmanager
def mariadb() -> Iterator[str]:
    """The address of a running MariaDB, for its `root`; skips the test where it is not installed."""
    pytest.importorskip("pymysql")
    if not SERVER.exists():
        pytest.skip("MariaDB is not installed (apt-get install mariadb-server-core)")
    with tempfile.TemporaryDirectory(prefix="privtab-mariadb-") as folder:
        data, socket = Path(folder) / "data", Path(folder) / "socket"
        (data / "mysql").mkdir(parents=True)
        command = [str(SERVER), "--no-defaults", f"--datadir={data}", f"--socket={socket}", "--skip-networking"]
        command += [
            f"--pid-file={folder}/pid",
            "--innodb-flush-log-at-trx-commit=0",
            *(["--user=root"] if os.getuid() == 0 else []),
        ]
        tables = "use mysql;\nset @auth_root_socket = NULL, @skip_auth_anonymous = 1;\n" + "\n".join(
            (TABLES / part).read_text(encoding="utf-8") for part in PARTS
        )
        subprocess.run([*command, "--bootstrap"], input=tables.encode(), check=True, capture_output=True, timeout=120)
        with (Path(folder) / "log").open("wb") as log:
            server = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
        try:
            deadline = time.monotonic() + 60
            while not socket.exists():
                assert server.poll() is None, (Path(folder) / "log").read_text(errors="replace")
                assert time.monotonic() < deadline
                time.sleep(0.05)
            yield f"mysql+pymysql://root@/?unix_socket={socket}"
        finally:
            server.terminate()
            server.wait(timeout=60)
