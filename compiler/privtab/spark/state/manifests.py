"""The manifest of a build and the list of its bundles."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from privtab.bundle.archive import json_bytes
from privtab.ir.nodes import Program
from privtab.shard_names import combined
from privtab.state.shards import PEOPLE, roots


def listing(program: Program, manifest: Mapping[str, Any]) -> bytes:
    """The list of the bundles in the format of `state pack --shards`."""

    def row(key: str, part: Mapping[str, Any]) -> dict[str, Any]:
        named = {name: part[name] for name in ("file", "revision", "bytes")}
        windows, further = part.get("windows", False), part.get("further", ())
        return named | {"roots": sorted(roots(program.system, key, windows=windows, further=further))}

    shards = {key: row(key, part) for key, part in manifest["shards"].items()}
    head = {"system": program.system, "revision": manifest["revision"], PEOPLE: row(PEOPLE, manifest["people"])}
    return json_bytes({**head, "shards": shards}) + b"\n"


def revision(people: Mapping[str, Any], shards: Mapping[str, Mapping[str, Any]]) -> str:
    """The combined revision of all parts."""
    return combined(str(people["revision"]), {root: str(shard["revision"]) for root, shard in shards.items()})


def text(manifest: Mapping[str, Any]) -> bytes:
    """A manifest as the content of its file."""
    return (json.dumps(manifest, indent=1, ensure_ascii=False, sort_keys=True) + "\n").encode()
