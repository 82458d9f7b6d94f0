"""The bundles of a sharded state as files: their names, and a list of them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from privtab.base.names import decode_name
from privtab.base.shard_names import sharded_revision
from privtab.bundle.archive import contents, json_bytes
from privtab.state.shards import PEOPLE_PART

LISTING_FILE = "shards.json"
"""The name of the file with the list."""
LONGEST = 100


def shard_file(key: str) -> str:
    """The name of the file with the bundle of `people` or of a root key; no two keys have the same.

    >>> shard_file("people"), shard_file("lake:raw"), shard_file("lake:a%2Fb c")
    ('people.tar.gz', 'lake.raw.tar.gz', 'lake.a_2fb_20c.tar.gz')
    """
    type_, colon, name = key.partition(":")
    if not colon:
        return f"{key}.tar.gz"
    name = decode_name(name)
    safe_name = re.sub(r"[^A-Za-z0-9.-]", lambda match: "".join(f"_{byte:02x}" for byte in match[0].encode()), name)
    if len(safe_name) > LONGEST or safe_name != safe_name.lower():
        # Some file systems ignore case, and none accepts very long names.
        safe_name = f"{safe_name[:LONGEST]}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
    return f"{type_}.{safe_name}.tar.gz"


def listing(bundles: Mapping[str, bytes]) -> dict[str, Any]:
    """The list of a state's bundles: for each its file, roots, revision and size; and their combined revision."""
    rows: dict[str, dict[str, Any]] = {}
    system = contents(bundles[PEOPLE_PART]).manifest["metadata"]["system"]
    for key, bundle in bundles.items():
        bundle_contents = contents(bundle)
        rows[key] = {
            "file": shard_file(key),
            "revision": bundle_contents.manifest["revision"],
            "roots": bundle_contents.roots,
            "bytes": len(bundle),
        }
    return _listing(system, rows)


def listing_file(system: str, rows: Mapping[str, Mapping[str, Any]]) -> tuple[str, bytes]:
    """The name and the content of the file that lists a state's bundles, from what it says of each: of `people`, and by root key.

    For example:

        name, content = listing_file("lake", {"people": people, "catalog:hive": shard})
    """
    return LISTING_FILE, json_bytes(_listing(system, rows)) + b"\n"


def _listing(system: str, rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    revisions = {key: str(row["revision"]) for key, row in rows.items() if key != PEOPLE_PART}
    return {
        "system": system,
        "revision": sharded_revision(str(rows[PEOPLE_PART]["revision"]), revisions),
        PEOPLE_PART: rows[PEOPLE_PART],
        "shards": {key: rows[key] for key in sorted(revisions)},
    }


def shard_files(bundles: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files of a sharded state, by name, in the order in which they are to be written: `people` after the shards.

    So a concurrent reader never sees a reference to a shard that is not there yet. The list of the files comes last.
    """
    files = {shard_file(key): bundle for key, bundle in sorted(bundles.items()) if key != PEOPLE_PART}
    return files | {shard_file(PEOPLE_PART): bundles[PEOPLE_PART], LISTING_FILE: json_bytes(listing(bundles)) + b"\n"}
