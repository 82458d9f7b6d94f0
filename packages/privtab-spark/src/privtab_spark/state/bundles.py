"""Read states from bundles: their index, or rows from which an equivalent index can be built."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privtab.base import DecisionUnavailable, UsageError
from privtab.bundle import state_of_index
from privtab.engines import Index, Opener, combined_document
from privtab.state import State, as_written, index_document
from privtab_spark.state.schemas import program_of

if TYPE_CHECKING:
    from privtab_spark.policies import OpenPolicy


_ARCHIVES = (".tar.gz", ".tgz")


def is_bundle(state: Any) -> bool:
    """Return whether a state is given as the path or address of a bundle, or as a folder with the bundles of a sharded state."""
    if not isinstance(state, str | os.PathLike):
        return False
    if is_address(state):
        return True
    path = Path(state)
    if path.is_dir():
        return (path / ".manifest").is_file() or any(file.name.endswith(_ARCHIVES) for file in path.iterdir())
    return path.name.endswith(_ARCHIVES)


def is_address(state: str | os.PathLike[str]) -> bool:
    """Return whether a state is the address of a bundle."""
    return str(state).startswith(("http://", "https://"))


def require_complete(index: Index) -> Index:
    """The index unchanged; raises DecisionUnavailable if shards are missing, since their content is unknown."""
    if index.missing:
        raise missing_shards_error(index.missing)
    return index


def missing_shards_error(roots: Collection[str]) -> DecisionUnavailable:
    """The exception for missing shards of a state."""
    named = ", ".join(f"`{root}`" for root in sorted(roots)[:3])
    return DecisionUnavailable(
        f"the state is incomplete: {len(roots)} of its shards are missing, such as {named}", retry=False
    )


def rows_of_bundles(policy: OpenPolicy, where: str) -> State:
    """The rows of a state in a bundle, or in the bundles of a folder.

    Raises UsageError if none is for the policy's system, and DecisionUnavailable if shards are missing.
    """
    index, documents = _opened(policy, where, rows=True)
    rows = _rows(documents)
    return as_written(program_of(policy), rows) if index is None else rows


def bundled(policy: OpenPolicy, where: str) -> Index:
    """The index in a bundle, or in the bundles of a folder; raises UsageError if there is none for the policy's system.

    Raises HasWindows if its rows hold for a time.
    """
    index, documents = _opened(policy, where, rows=False)
    if index is not None:
        return index
    program = program_of(policy)
    return Index(index_document(program, as_written(program, _rows(documents)).plain("Spark")))


def _opened(policy: OpenPolicy, where: str, *, rows: bool) -> tuple[Index | None, list[Mapping[str, Any]]]:
    """The index of the policy's system in bundles, which are read once, and the documents that it is from.

    No index is returned if rows hold for a time. `rows`: the documents are needed in any case; otherwise that of a whole state without windows is not kept.
    """
    from privtab.client import BundleLocation

    opener = Opener()

    def keep(document: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]:
        index = opener.keep(document)
        return index, document if rows or not isinstance(index, Index) else {}

    states: dict[str, list[tuple[Any, Mapping[str, Any]]]] = {}
    for found in BundleLocation.of(where).read({}, keep):
        for name, kept in found.content.states.items():
            states.setdefault(name, []).append(kept)
    of_system = states.get(policy.system)
    if not of_system:
        systems = ", ".join(f"`{name}`" for name in sorted(states)) or "no state"
        raise UsageError(f"{where} holds {systems}, but no state of `{policy.system}`")
    indexes, documents = [index for index, _ in of_system], [document for _, document in of_system]
    combined = opener.combined(indexes)
    if combined is None:
        raise UsageError(f"{where} holds several states of `{policy.system}`: name one of them")
    return combined if isinstance(combined, Index) and not combined.windows else None, documents


def _rows(documents: Iterable[Mapping[str, Any]]) -> State:
    """The rows in the documents of a state; raises DecisionUnavailable if shards are missing."""
    document, missing = combined_document(documents)
    if missing:
        raise missing_shards_error(missing)
    return state_of_index(document)


def bundle_size(state: str | os.PathLike[str]) -> int:
    """Bytes of a bundle, or of all bundles in a folder; 0 for a bundle at an address, whose size is not known in advance."""
    path = Path(state)
    return sum(file.stat().st_size for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file())
