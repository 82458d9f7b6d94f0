"""A real MLflow with its basic authentication, from PyPI, in a virtual environment of its own."""

from __future__ import annotations

import os
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

VERSION = "3.17.2"
FOLDER_VARIABLE = "PRIVTAB_MLFLOW"
ADMIN = ("admin", "of-this-test-alone")
START_SECONDS = 300


@dataclass(frozen=True)
class Mlflow:
    """A running server, and the file with the name and password of its administrator."""

    url: str
    secret: Path


def installed() -> Path:
    """The folder of a virtual environment that has MLflow; skips the test where the packages cannot be had."""
    if given := os.environ.get(FOLDER_VARIABLE):
        return Path(given)
    folder = user_cache.folder() / f"mlflow-{VERSION}"
    if not (folder / "complete").is_file():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True, timeout=300)
        command = [str(folder / "bin" / "pip"), "install", "--quiet", f"mlflow[auth]=={VERSION}"]
        ran = subprocess.run(command, check=False, timeout=3600, capture_output=True, text=True)
        if ran.returncode != 0:
            pytest.skip(f"mlflow {VERSION} cannot be had from PyPI: {ran.stderr[-300:]}")
        (folder / "complete").touch()
    return folder


@contextmanager
def mlflow() -> Iterator[Mlflow]:
    """A server without users beside its administrator, where nobody has a permission that was not granted."""
    program = installed() / "bin" / "mlflow"
    with tempfile.TemporaryDirectory(prefix="privtab-mlflow-") as name:
        folder, port = Path(name), free_port()
        settings = {
            "default_permission": "NO_PERMISSIONS",
            "database_uri": f"sqlite:///{folder}/users.db",
            "admin_username": ADMIN[0],
            "admin_password": ADMIN[1],
            "authorization_function": "mlflow.server.auth:authenticate_request_basic_auth",
            "auth_cache_ttl_seconds": "600",
        }
        lines = "".join(f"{key} = {value}\n" for key, value in settings.items())
        (folder / "auth.ini").write_text(f"[mlflow]\n{lines}", encoding="utf-8")
        (folder / "secret").write_text(":".join(ADMIN), encoding="utf-8")
        (folder / "secret").chmod(0o600)
        environment = {
            **os.environ,
            "MLFLOW_AUTH_CONFIG_PATH": str(folder / "auth.ini"),
            "MLFLOW_FLASK_SERVER_SECRET_KEY": "of-this-test-alone",
        }
        stores = [
            "--backend-store-uri",
            f"sqlite:///{folder}/runs.db",
            "--artifacts-destination",
            str(folder / "artifacts"),
        ]
        command = [str(program), "server", "--app-name", "basic-auth", *stores, "--host", "127.0.0.1"]
        log = folder / "server.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*command, "--port", str(port), "--workers", "1"],
                cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip
        running = Mlflow(f"http://127.0.0.1:{port}", folder / "secret")
        try:
            deadline = time.monotonic() + START_SECONDS
            while not _answers(running.url):
                text = log.read_text(encoding="utf-8", errors="replace")
                assert process.poll() is None, f"MLflow ended:\n{text[-4000:]}"
                assert time.monotonic() < deadline, f"MLflow did not start:\n{text[-4000:]}"
                time.sleep(0.5)
            yield running
        finally:
            # Its workers are processes of the same group.
            os.killpg(process.pid, 15)
            process.wait(60)


def _answers(url: str) -> bool:
    try:
        return requests.get(f"{url}/api/2.0/mlflow/users/list", auth=ADMIN, timeout=5).status_code == 200
    except requests.RequestException:
        return False
