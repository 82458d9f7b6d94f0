"""The manifest and the data of a bundle."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from privtab.bundle.bounds import read_object
from privtab.bundle.stream import entries
from privtab.errors import BrokenBundle

MANIFEST = ".manifest"
DATA = "data.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """A bundle's manifest, and its data below `data`."""

    manifest: Mapping[str, Any]
    data: Mapping[str, Any]

    @property
    def roots(self) -> list[str]:
        """The manifest's roots, sorted."""
        return sorted(root.strip("/") for root in self.manifest.get("roots", [""]))


def contents(bundle: bytes) -> Contents:
    """Read a bundle. Raises BrokenBundle."""
    manifest: Mapping[str, Any] = {}
    data: dict[str, Any] = {}
    for name, _, file in entries(io.BytesIO(bundle)):
        folder, _, last = name.rpartition("/")
        if name == MANIFEST:
            manifest = _manifest(read_object(name, file.read()))
        elif last == DATA:
            node = data
            for key in folder.split("/") if folder else ():
                node = node.setdefault(key, {})
                if not isinstance(node, dict):
                    raise BrokenBundle(f"`{name}` lies below `{key}`, which is not an object")
            node.update(read_object(name, file.read()))
    return Contents(manifest=manifest, data=data)


def _manifest(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the manifest if its roots and metadata are valid. Raises BrokenBundle."""
    roots = manifest.get("roots", [""])
    if not (isinstance(roots, list) and all(isinstance(root, str) for root in roots)):
        raise BrokenBundle(f"`{MANIFEST}`: `roots` is not a list of paths")
    if not isinstance(manifest.get("metadata", {}), dict):
        raise BrokenBundle(f"`{MANIFEST}`: `metadata` is not an object")
    return manifest
