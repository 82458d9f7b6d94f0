"""The files of the registry over HTTP, read only: records, histories, bundles, and folders as lists of links."""

from __future__ import annotations

import html
import re

from privtab.errors import UsageError
from privtab.registry import names
from privtab.registry.registry import Registry
from privtab.registry.storage import Missing

_PARTS = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")
_TOP = (names.BLOBS, names.REVISIONS, names.CHANNELS)


def file(registry: Registry, path: str) -> tuple[bytes, str]:
    """The content of a file or the listing of a folder, with its content type; raises UsageError if there is neither."""
    parts = path.rstrip("/").split("/") if path.strip("/") else []
    allowed = not parts or parts[0] in _TOP or parts == [names.SETTINGS]
    if not allowed or not all(_PARTS.fullmatch(part) and ".." not in part for part in parts):
        raise UsageError("there is no such file")
    if parts and not path.endswith("/"):
        try:
            content = registry.store.read("/".join(parts))
        except Missing:
            raise UsageError("there is no such file") from None
        return content, "application/json" if parts[-1].endswith(".json") else "application/gzip"
    children = registry.store.names("/".join(parts))
    if parts and not children:
        raise UsageError("there is no such folder")
    shown = [name for name in children if parts or name in (*_TOP, names.SETTINGS)]
    links = [f'<a href="{html.escape(name)}">{html.escape(name)}</a>' for name in shown]
    return "<br>\n".join(links).encode(), "text/html; charset=utf-8"
