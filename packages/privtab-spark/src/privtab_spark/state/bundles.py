"""Read states from bundles: their index, or rows from which an equivalent index can be built."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from privtab.base import DecisionUnavailable, HasWindows, UsageError
from privtab.bundle import state_of_index
from privtab.engines import Index, Opener, WindowedIndex, combined_document
from privtab.state import State, as_written
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
    try:
        bundled(policy, where)  # raises for unsuitable bundles
    except HasWindows as timed:
        return cast("State", timed.state)
    return _rows(policy, where)


def _rows(policy: OpenPolicy, where: str) -> State:
    """The rows in the bundles of a folder, which are suitable."""
    from privtab.client import BundleLocation

    bundles = BundleLocation.of(where).read({}, lambda document: document)
    found = (bundle.content.states for bundle in bundles)
    document, missing = combined_document(states[policy.system] for states in found if policy.system in states)
    if missing:
        raise missing_shards_error(missing)
    return state_of_index(document)


def bundled(policy: OpenPolicy, where: str) -> Index:
    """The index in a bundle, or in the bundles of a folder; raises UsageError if there is none for the policy's system.

    Raises HasWindows if its rows hold for a time.
    """
    from privtab.client import BundleLocation

    states: dict[str, list[Any]] = {}
    for found in BundleLocation.of(where).read({}, Opener().keep):
        for name, index in found.content.states.items():
            states.setdefault(name, []).append(index)
    of_system = states.get(policy.system)
    if not of_system:
        systems = ", ".join(f"`{name}`" for name in sorted(states)) or "no state"
        raise UsageError(f"{where} holds {systems}, but no state of `{policy.system}`")
    whole_states = [index for index in of_system if isinstance(index, Index | WindowedIndex)]
    if whole_states and len(of_system) > 1:
        raise UsageError(f"{where} holds several states of `{policy.system}`: name one of them")
    combined_index = whole_states[0] if whole_states else Index.of(of_system)
    if isinstance(combined_index, WindowedIndex) or combined_index.windows:
        as_written(program_of(policy), _rows(policy, where)).plain("Spark")  # raises HasWindows
    return cast("Index", combined_index)


def bundle_size(state: str | os.PathLike[str]) -> int:
    """Bytes of a bundle, or of all bundles in a folder; 0 for a bundle at an address, whose size is not known in advance."""
    path = Path(state)
    return sum(file.stat().st_size for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file())
