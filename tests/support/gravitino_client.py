"""The client `apache-gravitino`, installed in the user's cache: its requirements would replace packages of the project's own environment."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from store_server import token

from privtab.base import user_cache

REQUIREMENTS = Path(__file__).with_name("gravitino_client.txt")
MODULES = (
    "exceptions.base",
    "client.gravitino_client",
    "client.gravitino_admin_client",
    "api.authorization.owner",
    "api.authorization.privileges",
    "api.authorization.securable_objects",
    "api.catalog",
    "api.catalog_change",
    "api.job.job_template_change",
    "api.job.shell_job_template",
    "api.metadata_object",
    "api.metadata_objects",
    "api.rel.types.types",
    "api.tag.tag_change",
    "client.metadata_object_role_operations",
    "dto.rel.column_dto",
    "name_identifier",
)
"""Where the names are that tests use."""


def install() -> Path:
    """The folder that has it; skips the test if no package index can be reached."""
    content = f"{sys.version_info[:2]} {REQUIREMENTS.read_text(encoding='utf-8')}"
    folder = user_cache.folder() / f"test-gravitino-client-{hashlib.sha256(content.encode()).hexdigest()[:16]}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=folder.parent))
        line = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(made)]
        run = subprocess.run([*line, "-r", str(REQUIREMENTS)], capture_output=True, text=True, check=False, timeout=300)
        if run.returncode != 0:
            shutil.rmtree(made)
            pytest.skip(f"the client of Gravitino cannot be installed: {run.stderr.strip().splitlines()[-1]}")
        try:
            made.rename(folder)
        except OSError:  # Another process was faster.
            shutil.rmtree(made)
    return folder


class Bearer:
    """How the client gets the token of a user."""

    def __init__(self, user: str) -> None:
        self.user = user

    def has_token_data(self) -> bool:
        return True

    def get_token_data(self) -> bytes:
        return f"Bearer {token(self.user)}".encode()

    def close(self) -> None:
        pass


class Library:
    """The client's modules, as attributes that are found when they are asked for: it has no types."""

    def __init__(self, folder: Path) -> None:
        if str(folder) not in sys.path:
            sys.path.append(str(folder))  # Last, so that the project's own packages win.
        self.root = import_module("gravitino")

    def __getattr__(self, name: str) -> Any:
        for module in MODULES:
            if hasattr(found := import_module(f"gravitino.{module}"), name):
                return getattr(found, name)
        raise AttributeError(name)
