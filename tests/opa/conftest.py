"""The pinned OPA, and bundles of one tiny package."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from privtab.engines.opa import binary

Bundle = Callable[..., Path]


@pytest.fixture(scope="session")
def opa_binary() -> Path:
    return binary.find()


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    """Write a bundle whose document `data.<root>.value` is `value`; in one step, as deploying does."""

    def write(root: str, value: object, *, file: str | None = None, rego: str | None = None) -> Path:
        files = {
            ".manifest": json.dumps({"roots": [root], "revision": str(value), "rego_version": 1}),
            "data.json": json.dumps({root: {"value": value}}),
            f"{root}.rego": rego or f"package {root}.rules\n\nvalue := data.{root}.value\n",
        }
        path = tmp_path / (file or f"{root}.tar.gz")
        staged = path.with_suffix(".new")
        with tarfile.open(staged, "w:gz") as tar:
            for name, text in files.items():
                info = tarfile.TarInfo(name)
                info.size = len(text.encode())
                tar.addfile(info, io.BytesIO(text.encode()))
        return staged.replace(path)

    return write
