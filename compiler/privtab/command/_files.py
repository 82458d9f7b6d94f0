"""Write outputs atomically, and remove stale ones of earlier runs; write states in shards, and count their rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privtab.base import indented_json, strict_json
from privtab.base.printable import count
from privtab.base.staged import write_file, write_files
from privtab.command._output import out

if TYPE_CHECKING:
    from privtab.bundle.provenance import Provenance
    from privtab.bundle.sign import SigningKey
    from privtab.ir.nodes import Program
    from privtab.state.nodes import State

MANIFEST = ".privtab-manifest.json"
STATE = "state.tar.gz"


def json_text(value: object) -> str:
    """Readable JSON, equal for equal values."""
    return indented_json.dumps(value, sort_keys=True) + "\n"


def write_outputs(folder: Path, outputs: Mapping[str, Mapping[str, bytes]], *, complete: bool) -> None:
    """Write groups of files below `folder`, and remove stale ones of earlier runs.

    `outputs`: group → relative path → content. Files that a written group no longer has are removed; with `whole`, so are
    groups that are no longer written. Files that this function did not write are left alone.
    """
    before = _manifest(folder)
    write_files({folder / relative: content for files in outputs.values() for relative, content in files.items()})
    after = {group: sorted(files) for group, files in outputs.items()}
    other_groups = {} if complete else {group: files for group, files in before.items() if group not in after}
    current_files = {relative for files in (*after.values(), *other_groups.values()) for relative in files}
    for relative in sorted({relative for files in before.values() for relative in files} - current_files):
        _remove(folder, relative)
    write_file(folder / MANIFEST, json_text({"version": 1, "outputs": other_groups | after}).encode())


def _manifest(folder: Path) -> dict[str, list[str]]:
    """The files that earlier runs wrote; empty if the list is missing or unreadable, so that nothing is removed."""
    try:
        manifest: Any = strict_json.strict_loads((folder / MANIFEST).read_text(encoding="utf-8"))
        outputs = manifest["outputs"]
        return {str(group): [str(name) for name in files] for group, files in outputs.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _remove(folder: Path, relative: str) -> None:
    """Remove a stale output and folders left empty; skips anything that is not a file or lies outside of `folder`."""
    root = folder.resolve()
    path = (root / relative).resolve()
    if not path.is_relative_to(root) or path.is_dir():
        return
    path.unlink(missing_ok=True)
    for parent in path.parents:
        if parent == root or not parent.is_dir() or any(parent.iterdir()):
            return
        parent.rmdir()


def state_files(
    program: Program, state: State, *, sharded: bool, provenance: Provenance | None, signing: SigningKey | None
) -> dict[str, bytes]:
    """The files of a state, by name: its bundle, or with `sharded` those of `shard_files`."""
    from privtab.bundle.pack import shard_bundles, shard_files, state_bundle

    if sharded:
        return shard_files(shard_bundles(program, state, provenance=provenance, signing=signing))
    return {STATE: state_bundle(program, state, provenance=provenance, signing=signing)}


def row_counts(rows: Mapping[str, int]) -> str:
    """The number of rows in each table of a state.

    >>> row_counts({"service_admins": 3, "entities": 1})
    '3 service admins, 1 entity'
    """
    words = ((table.replace("_", " "), number) for table, number in rows.items())
    return ", ".join(count(number, "entity" if word == "entities" else word[:-1], word) for word, number in words)


def write_state(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the bundles of a state, with a list of them if it is in shards (`shard_files`), into a folder.

    Bundles in an earlier list but not in this one, as the shards of removed root entities, are deleted.
    """
    from privtab.bundle.pack import LISTING_FILE

    before = {LISTING_FILE, *_listed_files(folder)}
    for name, content in files.items():
        write_file(folder / name, content)
    for name in before - files.keys():
        (folder / name).unlink(missing_ok=True)


def show_shards(folder: Path, files: Mapping[str, bytes]) -> None:
    """Print what was written, with the names of the largest shards."""
    from privtab.bundle.pack import LISTING_FILE

    listing = strict_json.strict_loads(files[LISTING_FILE])
    rows = [listing["people"], *listing["shards"].values()]
    total = sum(row["bytes"] for row in rows)
    largest = sorted(listing["shards"].items(), key=lambda item: (-item[1]["bytes"], item[0]))
    out().print(f"{folder}/  {total:,} bytes: people {rows[0]['bytes']:,}, {count(len(largest), 'shard')}")
    for key, row in largest[:10]:
        out().print(f"  {row['file']}  {row['bytes']:,} bytes: {key}")
    if len(largest) > 10:
        out().print(f"  and {len(largest) - 10} smaller ones")


def _listed_files(folder: Path) -> set[str]:
    """The files in the list of a folder; empty without a readable list."""
    from privtab.bundle.pack import LISTING_FILE

    try:
        listing: Any = strict_json.strict_loads((folder / LISTING_FILE).read_text(encoding="utf-8"))
        found = {str(listing["people"]["file"]), *(str(row["file"]) for row in listing["shards"].values())}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return set()
    return {name for name in found if name == Path(name).name and name.endswith(".tar.gz")}
