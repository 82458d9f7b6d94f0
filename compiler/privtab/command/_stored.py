"""Load policies and states that are kept elsewhere than in tables: in bundles, and where installed packages look.

`state.tar.gz`; and `SCHEME:…` of a package, as `registry:/srv/registry#prod@12`, `store:grants.db@12` or `import:ranger:policies.json`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from privtab.base import files, plugins
from privtab.base.errors import BrokenBundle, FileError, UsageError

if TYPE_CHECKING:
    from privtab.ir.nodes import Program
    from privtab.state.nodes import State
    from privtab.state.raw import RawState

SCHEME = "registry:"
_ARCHIVES = (".tar.gz", ".tgz")
_SQLITE = b"SQLite format 3\0"
_SCHEME = re.compile(r"(?P<name>[a-z]{2,}):")


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
    """Whether an argument is a bundle or a reference to a channel, not a file with tables.

    >>> is_stored("registry:/srv/registry#prod"), is_stored("state.yaml")
    (True, False)
    """
    text = os.fspath(location)
    return text.startswith(SCHEME) or text.endswith(_ARCHIVES)


def load_policy(
    policy: str | Path, *, variant: str | None = None, readings: Mapping[str, str] | None = None
) -> Program:
    """The program of a policy, from its tables or from a bundle; raises like `pipeline.load_program`.

    >>> load_policy("cdap/final").system
    'cdap'
    """
    if not is_stored(policy):
        from privtab.pipeline import load_program

        return load_program(policy, variant=variant, readings=readings)
    from privtab.bundle.contents import program_in

    if variant or readings:
        raise UsageError(f"{policy} is compiled already: `--variant` and `--reading` are for tables")
    source = source_of(policy)
    bundle = _read(Path(policy)) if source is None else source.policy(os.fspath(policy))
    return program_in(bundle, str(policy))[0]


def load_rows(
    program: Program | None, state: str | os.PathLike[str], bundles: Iterable[bytes] | None = None
) -> RawState:
    """The rows of a state, from its tables, from bundles or from where a package looks; raises UsageError for bundles of another system.

    `bundles`: of the state, where they are read already. Without a program, of the only system:

        load_rows(None, Path("state.yaml")).rows
    """
    from privtab.state.load import load_raw_state

    if bundles is None and (source := source_of(state)) is not None:
        return source.rows(program, os.fspath(state))
    if bundles is None and not is_stored(state):
        _check_no_database(state)
        return load_raw_state(Path(state))
    return _rows_of_bundles(program, [_read(Path(state))] if bundles is None else bundles, os.fspath(state))


def _rows_of_bundles(program: Program | None, bundles: Iterable[bytes], shown: str) -> RawState:
    """The rows of a state in bundles: of a policy's system, or of the only system. `shown`: what messages call the bundles."""
    from privtab.state.load import as_raw
    from privtab.state.written import as_written

    system = None if program is None else program.system
    found = [_documents(bundle, shown) for bundle in bundles]
    systems = {name for documents in found for name in documents}
    if system is None and len(systems) == 1:
        (system,) = systems
    if system is None:
        raise UsageError(f"{shown} holds states of {len(systems)} systems: give `--policy`")
    if system not in systems:
        raise UsageError(f"{shown} holds no state of {system}")
    documents = [by_system[system] for by_system in found if system in by_system]
    state = _rows_of_index(documents, shown)
    return as_raw(state if program is None else as_written(program, state), shown)


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


def _documents(bundle: bytes, shown: str) -> Mapping[str, Any]:
    """The documents of states in a bundle, by system."""
    from privtab.client._bundles import bundle_content

    try:
        return bundle_content(bundle).states
    except BrokenBundle as error:
        raise FileError(f"{shown} cannot be read: {error}") from None


def _rows_of_index(documents: Iterable[Mapping[str, Any]], shown: str) -> State:
    """The rows of a state from its index, or from the indexes of all its shards."""
    from privtab.bundle.contents import state_of_index
    from privtab.engines.index import combined_document

    try:
        document, missing = combined_document(documents)
        if missing:
            raise UsageError(f"{shown} is a part of a state: {len(missing)} of its shards are missing")
        return state_of_index(document)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise FileError(f"the state of {shown} cannot be read: {error!r}") from error
