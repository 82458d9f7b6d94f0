"""Load policies and states, which packages and bundles may hold, too; write outputs, and remove stale ones of earlier runs.

`state.tar.gz`; and `SCHEME:…` of a package, as `registry:/srv/registry#prod@12`, `store:grants.db@12` or `import:ranger:policies.json`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from privtab.base import files, plugins, strict_json
from privtab.base.errors import BrokenBundle, FileError, UsageError
from privtab.base.lazy import pattern
from privtab.base.printable import count, indented_json
from privtab.base.resources import sample_state
from privtab.base.staged import write_file, write_files

if TYPE_CHECKING:
    from privtab.bundle.pack import Provenance
    from privtab.bundle.sign import SigningKey
    from privtab.ir.nodes import Program
    from privtab.state.nodes import State
    from privtab.state.raw import RawState

MANIFEST = ".privtab-manifest.json"
STATE = "state.tar.gz"
_ARCHIVES = (".tar.gz", ".tgz")
_SQLITE = b"SQLite format 3\0"
_SCHEME = pattern(r"(?P<name>[a-z]{2,}):")


class StateSource(Protocol):
    """A module that an entry point `privtab.states` names: its name is the scheme of its locations."""

    def rows(self, program: Program | None, location: str) -> RawState:
        """The rows of the state at a location; without a program, of the only system."""

    def policy(self, location: str) -> bytes:
        """The bundle of a policy, where the package keeps bundles."""


def source_of(location: str | os.PathLike[str]) -> StateSource | None:
    """The package that a location is of, by its scheme; None for files. Raises UsageError where no package has the scheme."""
    found = _SCHEME.match(os.fspath(location))
    if found is None or Path(location).exists():
        return None
    source: StateSource = plugins.load_plugin("privtab.states", found["name"])
    return source


def is_stored(location: str | os.PathLike[str]) -> bool:
    """Tell a bundle, or a reference to a channel, from a file with tables.

    >>> is_stored("registry:/srv/registry#prod"), is_stored("state.yaml")
    (True, False)
    """
    text = os.fspath(location)
    return text.startswith("registry:") or text.endswith(_ARCHIVES)


def load_policy(policy: str | Path) -> Program:
    """The program of a policy, from its tables or from a bundle; raises like `pipeline.load_program`.

    >>> load_policy("cdap/final").system
    'cdap'
    """
    if not is_stored(policy):
        from privtab.pipeline import load_program

        return load_program(policy)
    from privtab.bundle.contents import program_in

    source = source_of(policy)
    bundle = _read(Path(policy)) if source is None else source.policy(os.fspath(policy))
    return program_in(bundle, str(policy))[0]


def load_rows(
    program: Program | None,
    state: str | os.PathLike[str],
    bundles: Iterable[bytes] | None = None,
    *,
    samples: bool = False,
) -> RawState:
    """The rows of a state, from its tables, from bundles or from where a package looks; raises UsageError for bundles of another system.

    `bundles`: of the state, where they are read already. `samples`: if it may be a shipped one. Without a program, of the only system:

        load_rows(None, Path("state.yaml")).rows
    """
    from privtab.state.load import load_raw_state

    if (sample := sample_state(os.fspath(state))) is not None:
        if not samples:
            raise UsageError(f"{state} is for trying things out: give a state of your own, such as a copy of {sample}")
        return load_raw_state(sample)
    if bundles is None and (source := source_of(state)) is not None:
        return source.rows(program, os.fspath(state))
    if bundles is None and not is_stored(state):
        _check_no_database(state)
        return load_raw_state(Path(state))
    return _rows_of_bundles(program, [_read(Path(state))] if bundles is None else bundles, os.fspath(state))


def _rows_of_bundles(program: Program | None, bundles: Iterable[bytes], shown: str) -> RawState:
    """The rows of a state in bundles: of a policy's system, or of the only system. `shown`: what messages call the bundles."""
    from privtab.bundle.contents import state_of_index
    from privtab.client._bundles import bundle_content
    from privtab.engines.index import combined_document
    from privtab.state.links import as_written
    from privtab.state.load import from_tables

    try:
        found = [bundle_content(bundle).states for bundle in bundles]
    except BrokenBundle as error:
        raise FileError(f"{shown} cannot be read: {error}") from None
    systems = {name for documents in found for name in documents}
    if program is None and len(systems) != 1:
        raise UsageError(f"{shown} holds states of {len(systems)} systems: give `--policy`")
    system = next(iter(systems)) if program is None else program.system
    if system not in systems:
        raise UsageError(f"{shown} holds no state of {system}")
    try:
        document, missing = combined_document(documents[system] for documents in found if system in documents)
        if missing:
            raise UsageError(f"{shown} is a part of a state: {len(missing)} of its shards are missing")
        state = state_of_index(document)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise FileError(f"the state of {shown} cannot be read: {error!r}") from error
    return from_tables(state if program is None else as_written(program, state), shown)


def _check_no_database(state: str | os.PathLike[str]) -> None:
    """Raise UsageError for a state that is a database without `store:`."""
    text = os.fspath(state)
    is_file = False
    if Path(state).is_file():
        with Path(state).open("rb") as file:
            is_file = file.read(len(_SQLITE)) == _SQLITE
    if is_file or text.startswith(("postgresql:", "postgresql+")):
        raise UsageError(f"{text} is a database: a state in a store is written store:{text}")


def _read(path: Path) -> bytes:
    """Read the file of a bundle. Raises FileError."""
    from privtab.bundle.archive import LARGEST

    if not path.exists():
        raise FileError(f"no such bundle: {path}")
    if not path.is_dir() and files.problem(path, pipes=False) is not None:
        raise FileError(f"{path}: a bundle is a file, not a pipe or a device")
    try:
        return files.read_content(path, LARGEST)
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from None


# --- outputs ---


def json_text(value: object) -> str:
    """Readable JSON, equal for equal values."""
    return indented_json(value, sort_keys=True) + "\n"


def write_outputs(folder: Path, outputs: Mapping[str, Mapping[str, bytes]], *, complete: bool) -> None:
    """Write groups of files below `folder`, and remove stale ones of earlier runs.

    `outputs`: group → relative path → content. Files that a written group no longer has are removed; with `complete`, so are
    groups that are no longer written. Files that this function did not write are left alone.
    """
    before = _manifest(folder)
    write_files({folder / relative: content for files in outputs.values() for relative, content in files.items()})
    after = {group: sorted(files) for group, files in outputs.items()}
    other_groups = {} if complete else {group: files for group, files in before.items() if group not in after}
    current_files = {relative for files in (*after.values(), *other_groups.values()) for relative in files}
    for relative in sorted({relative for names in before.values() for relative in names} - current_files):
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
    """The files of a state, by name: its bundle, or with `sharded` the files of `shard_files`."""
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


def _listed_files(folder: Path) -> set[str]:
    """The files in the list of a folder; empty without a readable list."""
    from privtab.bundle.pack import LISTING_FILE

    try:
        listing: Any = strict_json.strict_loads((folder / LISTING_FILE).read_text(encoding="utf-8"))
        found = {str(listing["people"]["file"]), *(str(row["file"]) for row in listing["shards"].values())}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return set()
    return {name for name in found if name == Path(name).name and name.endswith(".tar.gz")}
