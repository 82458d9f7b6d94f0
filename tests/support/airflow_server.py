"""A real Airflow with the FAB auth manager, from PyPI, in a virtual environment of its own."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests
from failing_servers import free_port

from privtab.base import user_cache

PACKAGES = {"apache-airflow": "3.3.2", "apache-airflow-providers-fab": "3.10.2"}
FOLDER_VARIABLE = "PRIVTAB_AIRFLOW"
MANAGER = "airflow.providers.fab.auth_manager.fab_auth_manager.FabAuthManager"
ADMIN = "admin"
SECONDS = 600
"""For each step until the server runs."""


@dataclass(frozen=True)
class Airflow:
    """A running server, and the file with the name and password of its administrator."""

    url: str
    secret: Path


def installed() -> Path:
    """The folder of a virtual environment that has Airflow; skips the test where the packages cannot be had."""
    if given := os.environ.get(FOLDER_VARIABLE):
        return Path(given)
    folder = user_cache.folder() / f"airflow-{PACKAGES['apache-airflow']}"
    if not (folder / "complete").is_file():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True, timeout=SECONDS)
        wanted = [f"{name}=={version}" for name, version in PACKAGES.items()]
        command = [str(folder / "bin" / "pip"), "install", "--quiet", *wanted]
        ran = subprocess.run(command, check=False, timeout=3600, capture_output=True, text=True)
        if ran.returncode != 0:
            pytest.skip(f"{' and '.join(wanted)} cannot be had from PyPI: {ran.stderr[-300:]}")
        (folder / "complete").touch()
    return folder


@contextmanager
def airflow() -> Iterator[Airflow]:
    """A server without Dags, and without users beside its administrator."""
    program = installed() / "bin" / "airflow"
    password = secrets.token_hex(8)
    with tempfile.TemporaryDirectory(prefix="privtab-airflow-") as name:
        folder, port = Path(name), free_port()
        (folder / "secret").write_text(f"{ADMIN}:{password}", encoding="utf-8")
        settings = {
            "CORE__AUTH_MANAGER": MANAGER,
            "CORE__LOAD_EXAMPLES": "False",
            "CORE__DAGS_FOLDER": name,
            "DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder}/airflow.db",
            "API__EXPOSE_CONFIG": "True",
            "API__SECRET_KEY": secrets.token_hex(32),
            "API_AUTH__JWT_SECRET": secrets.token_hex(32),
        }
        environment = {**os.environ, "AIRFLOW_HOME": name} | {
            f"AIRFLOW__{key}": value for key, value in settings.items()
        }
        # fmt: off
        account = ["--username", ADMIN, "--password", password, "--role", "Admin", "--email", "a@localhost", "--firstname", "A",
                   "--lastname", "B"]
        # fmt: on
        for words in (["db", "migrate"], ["users", "create", *account]):
            subprocess.run([str(program), *words], env=environment, check=True, timeout=SECONDS, capture_output=True)
        log = folder / "server.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [str(program), "api-server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"],
                cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip
        running = Airflow(f"http://127.0.0.1:{port}", folder / "secret")
        try:
            deadline = time.monotonic() + SECONDS
            while not _answers(running.url):
                text = log.read_text(encoding="utf-8", errors="replace")
                assert process.poll() is None, f"Airflow ended:\n{text[-4000:]}"
                assert time.monotonic() < deadline, f"Airflow did not start:\n{text[-4000:]}"
                time.sleep(0.5)
            yield running
        finally:
            # Its workers are processes of the same group.
            os.killpg(process.pid, 15)
            process.wait(60)


def _answers(url: str) -> bool:
    try:
        return requests.get(f"{url}/api/v2/version", timeout=5).status_code == 200
    except requests.RequestException:
        return False
