"""Write a sharded state, and remove files of earlier runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from privtab import strict_json
from privtab._staged import write
from privtab.cli._output import out
from privtab.plural import count


def write_shards(folder: Path, bundles: Mapping[str, bytes]) -> dict[str, Any]:
    """Write the bundles of a state (`shard_bundles`) into a folder, with a list of them; returns the list.

    Bundles in the earlier list but not in this one, the shards of removed root entities, are deleted.
    """
    from privtab.bundle.shards import LISTING, shard_files

    before = _listed_files(folder)
    files = shard_files(bundles)
    for name, content in files.items():
        write(folder / name, content)
    for name in before - files.keys():
        (folder / name).unlink(missing_ok=True)
    found: dict[str, Any] = strict_json.loads(files[LISTING])
    return found


def remove_shards(folder: Path) -> None:
    """Remove the shards that an earlier run wrote, since a whole state replaces them."""
    from privtab.bundle.shards import LISTING

    for name in _listed_files(folder):
        (folder / name).unlink(missing_ok=True)
    (folder / LISTING).unlink(missing_ok=True)


def show_shards(folder: Path, listing: Mapping[str, Any]) -> None:
    """Print what was written, with the names of the largest shards."""
    rows = [listing["people"], *listing["shards"].values()]
    total = sum(row["bytes"] for row in rows)
    largest = sorted(listing["shards"].items(), key=lambda item: (-item[1]["bytes"], item[0]))
    console = out()
    shards = count(len(largest), "shard")
    console.print(f"{folder}/  {total:,} bytes: people {rows[0]['bytes']:,}, {shards}", soft_wrap=True)
    for key, row in largest[:10]:
        console.print(f"  {row['file']}  {row['bytes']:,} bytes: {key}", soft_wrap=True)
    if len(largest) > 10:
        console.print(f"  and {len(largest) - 10} smaller ones")


def _listed_files(folder: Path) -> set[str]:
    """The files in the list of a folder; empty without a readable list."""
    from privtab.bundle.shards import LISTING

    try:
        listing: Any = strict_json.loads((folder / LISTING).read_text(encoding="utf-8"))
        found = {str(listing["people"]["file"]), *(str(row["file"]) for row in listing["shards"].values())}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return set()
    return {name for name in found if name == Path(name).name and name.endswith(".tar.gz")}
