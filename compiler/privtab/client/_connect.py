"""`connect`: a client of OPA for an address, an engine in process for bundles."""

from __future__ import annotations

import os
import re
from typing import Any

from privtab.client import _config
from privtab.client._address import shown
from privtab.client._base import Asker
from privtab.client.sync import Client
from privtab.errors import UsageError

_ADDRESSES = ("http://", "https://", "unix:", "http+unix:")
_BUNDLES = (".tar.gz", ".tgz")
_NEITHER = re.compile(r"[\w.+-]+://.*|(localhost|[\w-]+(\.[\w-]+)+|\[[0-9a-f:]+\]):\d+/?", re.IGNORECASE)
"""Matches other kinds of addresses, or a host with a port, which are not names of files."""


def connect(target: str | os.PathLike[str] | None = None, **settings: Any) -> Asker:
    """Return a Client for the address of an OPA, Embedded for bundles.

    `http://host:port`, `https://…` and `unix:/path` are addresses of an OPA, unless they end in `.tar.gz`: those, files, folders
    and `package:name` are bundles. `target` defaults to PRIVTAB_URL, the settings file, or an OPA on this machine.
    `engine="opa"` requires an OPA; other engines are those of `Embedded`.
    """
    location = os.fspath(target) if target is not None else _config.resolve({})["url"]
    _check(location)
    engine = settings.pop("engine", None)
    is_opa = location.lower().startswith(_ADDRESSES) and not location.partition("?")[0].endswith(_BUNDLES)
    if engine == "opa" or (engine is None and is_opa):
        if not is_opa:
            raise UsageError(f"`{location}` is not the address of an OPA: write http://host:port or unix:/path")
        if settings.keys() & {"verification_key", "verification_scope", "min_sequence", "sequence_file"}:
            raise UsageError(
                f"`{location}` is an OPA, which verifies bundles itself: see `signing` in its configuration"
            )
        return Client(location, **settings)
    if is_opa:
        raise UsageError(
            f"`{location}` is an OPA; the engine `{engine}` runs bundles: give a path or an address of them"
        )
    from privtab.client.embedded import Embedded

    if engine is not None:
        settings["engine"] = engine
    return Embedded(location, **settings)


def _check(location: str) -> None:
    """Raise UsageError for a target that is neither an address nor a path; an empty one would be the working directory."""
    if location and (location.lower().startswith(_ADDRESSES) or not _NEITHER.fullmatch(location)):
        return
    raise UsageError(
        f"`{shown(location)}` is not an address: write http://host:port, unix:/path, or the location of bundles"
    )
