"""Archives whose bytes depend on their content alone."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Mapping
from typing import Any

LEVEL = 4
"""The compression level: level 6 takes two and a half times as long and saves five per cent (on an index of grants)."""


def archive(files: Mapping[str, bytes]) -> bytes:
    """A gzipped tar of the files, by path; the same files give the same bytes at any time, on any machine."""
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=LEVEL, mtime=0, filename="") as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for path, content in sorted(files.items()):
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            entry.mode = 0o644
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def json_bytes(value: Any) -> bytes:
    """JSON with sorted keys and no spaces, in UTF-8."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()


def json_object(values: Mapping[str, bytes]) -> bytes:
    """As `json_bytes`, for an object whose values are JSON already."""
    return b"{" + b",".join(json_bytes(key) + b":" + value for key, value in sorted(values.items())) + b"}"
